//! The end of a load that fails: chooses the error to raise, and cleans up before that.
//!
//! Every error of a load passes through here before it is raised again. Rows that were appended are counted for
//! autovacuum, and a worker's error loses the context line that names the parallel worker.

use pgrx::{pg_guard, pg_sys};

use crate::error::OrRaise;
use crate::load::direct::leader::Leader;
use crate::load::direct::leader::line::name_line;
use crate::load::direct::row_loop;
use crate::rows::context::copy_context;
use crate::server::attempt::attempt;
use crate::server::failure;
use crate::server::original::Original;
use crate::server::session_state::SessionState;
use crate::server::unguarded::{Opaque, guarded};

/// Raises the error of the record that exceeded `reject_limit`, if there is such a record.
///
/// # Safety
/// A plain frame, and a valid leader. Its workers are done, or their errors no longer matter.
pub(super) unsafe extern "C-unwind" fn blame(leader: Opaque) {
    // SAFETY: this function's contract covers the argument; nothing in this frame has a destructor.
    unsafe {
        let leader = leader.cast::<Leader>();
        if !guarded(|| (*leader).look_again().or_raise()) {
            return;
        }
        let process = &raw mut (*leader).process;
        let mut context = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(copy_context),
            arg: (&raw mut (*process).rows).cast(),
        };
        pg_sys::error_context_stack = &raw mut context;
        (*process).rows.context.elsewhere.end();
        row_loop::run_again(process);
        // The second conversion may succeed where the first failed, so the error is raised in any case.
        pg_sys::error_context_stack = context.previous;
        guarded::<()>(|| (*leader).process.rejects.too_many().raise());
    }
}

/// Returns the error to raise when `error` ended the load: an earlier error of the file, or `error` itself.
///
/// # Safety
/// A plain frame; the leader is valid or null, `error` was caught, and `original` and `state` were noted before it.
pub(super) unsafe fn fail(
    leader: *mut Leader,
    error: *mut pg_sys::ErrorData,
    original: *mut Original,
    state: SessionState,
) -> *mut pg_sys::ErrorData {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let mut error = error;
        failure::recover();
        // The leader may read rows again, which runs user-defined code.
        state.restore();
        // A worker raises an error only if the error is the earliest in the file.
        let is_own = !Original::restore(original, error);
        if is_own && !leader.is_null() && (*leader).workers.team.is_some() && failure::is_about_a_row(error) {
            let earlier = attempt(wait_for_earlier, leader.cast());
            if !earlier.is_null() {
                error = earlier;
                failure::recover();
                Original::restore(original, error);
            }
        }
        if !leader.is_null() {
            (*leader).note_whole_files();
        }
        if !leader.is_null() && failure::is_about_a_row(error) && !attempt(drain, leader.cast()).is_null() {
            failure::recover();
        }
        // After an error of the server itself (resources, system, internal), the leader requests no further work from
        // it.
        if !leader.is_null() && failure::leaves_server_well(error) && !attempt(count_dead, leader.cast()).is_null() {
            // Losing statistics is better than losing the error.
            failure::recover();
        }
        if !leader.is_null() && is_own {
            name_line(leader, error);
        }
        if !leader.is_null() && failure::is_about_a_row(error) {
            let too_many = attempt(blame, leader.cast());
            if !too_many.is_null() {
                error = too_many;
                failure::recover();
                Original::restore(original, error);
            }
        }
        error
    }
}

/// # Safety
/// A valid leader.
#[pg_guard]
unsafe extern "C-unwind" fn wait_for_earlier(leader: Opaque) {
    // SAFETY: this function's contract covers the argument.
    let leader = unsafe { &mut *leader.cast::<Leader>() };
    let process = &mut leader.process;
    // SAFETY: as in Process::shared; the reference does not outlive this function.
    let shared = unsafe { &*process.shared };
    let (wide, rejects) = (&mut process.wide, &mut process.rejects);
    // The wide rows of workers are not needed any more, but a full queue would block its worker.
    let mut discard = || rejects.drain(wide);
    if shared.wait_until_earliest(0, &mut discard) {
        return;
    }
    // A worker has an earlier error and raises it; the leader receives it from its message queue in this loop.
    let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
    loop {
        discard();
        // SAFETY: guarded calls on this process's latch.
        unsafe {
            pg_sys::WaitLatch(pg_sys::MyLatch, events.cast_signed(), 10, pg_sys::PG_WAIT_EXTENSION);
            pg_sys::ResetLatch(pg_sys::MyLatch);
        }
        pgrx::check_for_interrupts!();
    }
}

/// Receives the rejects that workers have sent.
///
/// # Safety
/// A valid leader.
#[pg_guard]
unsafe extern "C-unwind" fn drain(leader: Opaque) {
    // SAFETY: this function's contract covers the argument.
    let process = unsafe { &mut (*leader.cast::<Leader>()).process };
    process.rejects.drain(&mut process.wide);
}

/// # Safety
/// A valid leader.
#[pg_guard]
unsafe extern "C-unwind" fn count_dead(leader: Opaque) {
    // SAFETY: this function's contract covers the argument.
    unsafe { &mut *leader.cast::<Leader>() }.count_rows();
}
