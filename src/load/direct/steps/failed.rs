//! The end of a load that fails: chooses the error to raise, and cleans up before that.
//!
//! Every error of a load passes through here before it is raised again. Rows that were appended are counted for
//! autovacuum, and a worker's error loses the context line that names the parallel worker.
//!
//! The line of a row for which an index raised an error.
//!
//! After the error was caught, the record of the row that was being inserted is looked up again. COPY would have raised
//! the error at that record's line: of two records of the file with equal keys, at the later one.

use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{OrRaise, Result};
use crate::index::violating_row::ViolatingRow;
use crate::load::direct::heap::block_of;
use crate::load::direct::leader::Leader;
use crate::load::direct::origin::{ReadPosition, Traces};
use crate::load::direct::row_loop;
use crate::rows::context::copy_context;
use crate::server::attempt::attempt;
use crate::server::background::pause;
use crate::server::failure;
use crate::server::original::Original;
use crate::server::session_state::SessionState;
use crate::server::unguarded::{self, guarded};

/// Raises the error of the record that exceeded `reject_limit`, if there is such a record.
///
/// # Safety
/// A plain frame. The leader's workers are done, or their errors no longer matter.
pub(super) unsafe fn blame(leader: &mut Leader) {
    // SAFETY: the context callback gets the rows of the leader's process while it is pushed; nothing in this frame has a
    // destructor.
    unsafe {
        if !guarded(|| leader.look_again().or_raise()) {
            return;
        }
        let process = &raw mut leader.process;
        (*process).rows.context.elsewhere.end();
        unguarded::in_context(copy_context, (&raw mut (*process).rows).cast(), || row_loop::run_again(process));
        // The second conversion may succeed where the first failed, so the error is raised in any case.
        guarded::<()>(|| leader.process.writer.rejects.too_many().raise());
    }
}

/// Returns the error to raise when `error` ended the load: an earlier error of the file, or `error` itself.
///
/// # Safety
/// A plain frame; `error` was caught, and `original` and `state` were noted before it.
pub(super) unsafe fn fail(
    leader: Option<&mut Leader>,
    mut error: *mut pg_sys::ErrorData,
    original: *mut Original,
    state: &SessionState,
) -> *mut pg_sys::ErrorData {
    // SAFETY: each error was caught, and the original was pushed; steps of the leader are guarded; nothing in this frame
    // has a destructor.
    unsafe {
        failure::recover();
        // The leader may read rows again, which runs user-defined code.
        state.restore();
        // A worker raises an error only if the error is the earliest in the file.
        let is_own = !Original::restore(original, error);
        let Some(leader) = leader else { return error };
        if is_own && leader.workers.team.is_some() && failure::is_about_a_row(&*error) {
            let earlier = attempt(|| guarded(|| leader.wait_for_earlier()));
            if !earlier.is_null() {
                error = earlier;
                failure::recover();
                Original::restore(original, error);
            }
        }
        leader.note_whole_files();
        let is_about_a_row = failure::is_about_a_row(&*error);
        if is_about_a_row && !attempt(|| guarded(|| leader.drain())).is_null() {
            failure::recover();
        }
        // After an error of the server itself (resources, system, internal), the leader requests no further work from
        // it.
        if failure::leaves_server_well(&*error) && !attempt(|| guarded(|| leader.count_rows())).is_null() {
            // Losing statistics is better than losing the error.
            failure::recover();
        }
        if is_own {
            name_line(leader, &mut *error);
        }
        if is_about_a_row {
            let too_many = attempt(|| blame(leader));
            if !too_many.is_null() {
                error = too_many;
                failure::recover();
                Original::restore(original, error);
            }
        }
        error
    }
}

impl Leader {
    /// Waits until the workers are done with all earlier chunks. Raises an earlier error. Guarded.
    fn wait_for_earlier(&mut self) {
        let shared = self.process.writer.shared;
        // The wide rows of workers are not needed any more, but a full queue would block its worker.
        if shared.wait_until_earliest(0, &mut || self.drain()) {
            return;
        }
        // A worker has an earlier error and raises it; the leader receives it from its message queue in this loop.
        loop {
            self.drain();
            pause(10);
        }
    }

    /// Receives the rejects that workers have sent. Guarded.
    fn drain(&mut self) {
        self.process.writer.rejects.drain(&mut self.process.writer.wide);
    }
}

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
        let origins = &mut self.process.writer.tracer.origins;
        let mut latest = None;
        for row in [row, other].into_iter().flatten() {
            latest = latest.max(origins.of_row(relation, block_of(&row), row.ip_posid)?);
        }
        let Some(place) = latest else { return Ok(None) };
        if let Some(earlier) = usize::try_from(place.file).ok().and_then(|file| self.files.earlier.get_mut(file)) {
            let target = self.process.writer.executor.relation();
            let (line, described) = earlier.line_of(place, target)?;
            return Ok(Some((line, earlier.relation.clone(), described)));
        }
        let (mut target, source) = (ReadPosition::default(), self.source());
        let process = &mut self.process;
        let line = if process.writer.tracer.traces == Traces::Lines {
            place.position + place.behind
        } else {
            process.writer.tracer.origins.find(&mut target, &source, &mut process.rows, place)?;
            process.rows.reader().line_number()
        };
        Ok(Some((line, process.rows.context.relation_name.clone(), process.rows.context.described.clone())))
    }
}
