//! The line of a row for which an index raised an error.
//!
//! After the error was caught, the record of the row that was being inserted is looked up again. COPY would have raised
//! the error at that record's line: of two records of the file with equal keys, at the later one.

use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::Leader;
use crate::error::{OrRaise, Result};
use crate::index::violating_row::ViolatingRow;
use crate::load::direct::heap::block_of;
use crate::load::direct::origin::{ReadPosition, Traces};
use crate::server::attempt::attempt;
use crate::server::failure;
use crate::server::unguarded::{self, guarded};

/// Adds the line of the row to the context of an error about a key.
///
/// # Safety
/// A plain frame; a leader without workers, and an error that was caught while the load was finalized.
pub unsafe fn name_line(leader: &mut Leader, error: &mut pg_sys::ErrorData) {
    let codes = [Code::ERRCODE_UNIQUE_VIOLATION as i32, Code::ERRCODE_EXCLUSION_VIOLATION as i32];
    if leader.violating_row.row.is_none() || !codes.contains(&error.sqlerrcode) {
        return;
    }
    // SAFETY: a plain frame that owns nothing; an error's context is a NUL-terminated string, or null.
    unsafe {
        let other = attempt(|| guarded(|| leader.violating_row.line = leader.line_of_violating_row().or_raise()));
        if !other.is_null() {
            // The error matters more than its line.
            failure::recover();
            unguarded::FreeErrorData(other);
            return;
        }
        guarded(|| {
            let context = if error.context.is_null() { c"" } else { CStr::from_ptr(error.context) };
            if let Some(text) = leader.context(context) {
                error.context = pg_sys::pstrdup(text.as_ptr());
            }
        });
    }
}

impl Leader {
    /// The context of an error about the violating row, whose line is known: that line before the context so far.
    fn context(&self, context: &CStr) -> Option<CString> {
        let (line, relation, file) = self.violating_row.line.as_ref()?;
        let mut text = b"COPY ".to_vec();
        text.extend(relation.as_bytes());
        let what = if self.process.rows.context.is_query { "row" } else { "line" };
        text.extend(format!(", {what} {line}").bytes());
        for more in [file, context].into_iter().filter(|more| !more.is_empty()) {
            text.push(b'\n');
            text.extend(more.to_bytes());
        }
        CString::new(text).ok()
    }

    fn line_of_violating_row(&mut self) -> Result<Option<(u64, CString, CString)>> {
        let ViolatingRow { relation, row, other, .. } = self.violating_row;
        let origins = &mut self.process.tracer.origins;
        let mut latest = None;
        for row in [row, other].into_iter().flatten() {
            latest = latest.max(origins.of_row(relation, block_of(&row), row.ip_posid)?);
        }
        let Some(place) = latest else { return Ok(None) };
        if let Some(earlier) = usize::try_from(place.file).ok().and_then(|file| self.files.earlier.get_mut(file)) {
            let target = self.process.executor.relation().as_ptr();
            let (line, described) = earlier.line_of(place, target)?;
            return Ok(Some((line, earlier.relation.clone(), described)));
        }
        let (mut target, source) = (ReadPosition::default(), self.source());
        let process = &mut self.process;
        let line = if process.tracer.traces == Traces::Lines {
            place.position + place.behind
        } else {
            process.tracer.origins.find(&mut target, &source, &mut process.rows, place)?;
            process.rows.reader().line_number()
        };
        Ok(Some((line, process.rows.context.relation_name.clone(), process.rows.context.described.clone())))
    }
}
