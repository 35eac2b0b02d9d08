//! The line of a row for which an index raised an error.
//!
//! After the error was caught, the record of the row that was being inserted is looked up again. COPY would have raised
//! the error at that record's line: of two records of the file with equal keys, at the later one.

use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::Leader;
use crate::error::{OrRaise, Result};
use crate::index::violating_row::ViolatingRow;
use crate::load::direct::heap::block_of;
use crate::load::direct::origin::{ReadPosition, Traces};
use crate::server::attempt::attempt;
use crate::server::failure;
use crate::server::unguarded::{self, Opaque};

/// Adds the line of the row to the context of an error about a key.
///
/// # Safety
/// A plain frame; a valid leader without workers, and an error that was caught while the load was finalized.
pub unsafe fn name_line(leader: *mut Leader, error: *mut pg_sys::ErrorData) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        let codes = [Code::ERRCODE_UNIQUE_VIOLATION as i32, Code::ERRCODE_EXCLUSION_VIOLATION as i32];
        if (*leader).violating_row.row.is_none() || !codes.contains(&(*error).sqlerrcode) {
            return;
        }
        let other = attempt(find_line, leader.cast());
        if !other.is_null() {
            // The error matters more than its line.
            failure::recover();
            unguarded::FreeErrorData(other);
            return;
        }
        add_context(leader, error);
    }
}

/// # Safety
/// A valid leader.
#[pg_guard]
unsafe extern "C-unwind" fn find_line(leader: Opaque) {
    // SAFETY: this function's contract covers the argument.
    let leader = unsafe { &mut *leader.cast::<Leader>() };
    leader.violating_row.line = leader.line_of_violating_row().or_raise();
}

/// # Safety
/// A valid leader that has looked for the line, and an error.
#[pg_guard]
unsafe extern "C-unwind" fn add_context(leader: *const Leader, error: *mut pg_sys::ErrorData) {
    // SAFETY: this function's contract covers both arguments; strings of errors are NUL-terminated or null.
    unsafe {
        let Some((line, relation, file)) = &(*leader).violating_row.line else { return };
        let mut text = b"COPY ".to_vec();
        text.extend(relation.as_bytes());
        let what = if (*leader).process.rows.context.is_query { "row" } else { "line" };
        text.extend(format!(", {what} {line}").bytes());
        if !file.is_empty() {
            text.push(b'\n');
            text.extend(file.as_bytes());
        }
        if !(*error).context.is_null() {
            text.push(b'\n');
            text.extend(CStr::from_ptr((*error).context).to_bytes());
        }
        text.push(0);
        (*error).context = pg_sys::pstrdup(text.as_ptr().cast());
    }
}

impl Leader {
    fn line_of_violating_row(&mut self) -> Result<Option<(u64, CString, CString)>> {
        let ViolatingRow { relation, row, other, .. } = self.violating_row;
        let origins = &mut self.process.tracer.origins;
        let mut latest = None;
        for row in [row, other].into_iter().flatten() {
            latest = latest.max(origins.of_row(relation, block_of(&row), row.ip_posid)?);
        }
        let Some(place) = latest else { return Ok(None) };
        if let Some(earlier) = usize::try_from(place.file).ok().and_then(|file| self.files.earlier.get_mut(file)) {
            let target = self.process.executor.relation();
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
