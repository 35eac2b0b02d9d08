//! Sections of code in which no error is raised and no interrupt is served.

use pgrx::pg_sys;

use super::call::calls;
use super::compat;

/// Holds off interrupts, and checkpoints if asked for, until it is dropped.
pub struct Section {
    delays: bool,
}

/// Pause of a process before it sets the flag again after a checkpoint has begun, in µs. It is longer than the sleep of
/// the checkpointer between two checks of the flags (10 ms, CreateCheckPoint).
const CHECKPOINT_TURN: i64 = 15_000;

// SAFETY: reads shared memory under a spinlock, and sleeps. Raises nothing.
calls! {
    fn redo_pointer() -> pg_sys::XLogRecPtr = GetRedoRecPtr();
    fn sleep(microseconds: i64) = pg_usleep(microseconds);
}

/// The redo point when a process last began such a section. A checkpoint waits until it sees no process with the flag,
/// so a process that sets it again and again would delay the checkpoint.
#[derive(Debug)]
pub struct Redo(pg_sys::XLogRecPtr);

impl Redo {
    /// The current redo point. Raises nothing.
    pub fn now() -> Redo {
        Redo(redo_pointer())
    }

    /// Let a checkpoint that has begun since pass, by one pause. Raises nothing.
    pub fn let_checkpoint_pass(&mut self) {
        let now = Redo::now().0;
        if std::mem::replace(&mut self.0, now) != now {
            sleep(CHECKPOINT_TURN);
        }
    }
}

impl Section {
    pub fn begin(delays: bool) -> Section {
        // SAFETY: this process's own counters and flags (HOLD_INTERRUPTS, miscadmin.h). No other code of this process
        // holds the flag now: it is set only for short sections.
        unsafe {
            pg_sys::InterruptHoldoffCount += 1;
            if delays {
                (*pg_sys::MyProc).delayChkptFlags |= compat::DELAY_CHKPT_START;
            }
        }
        Section { delays }
    }

    /// Run `work` as a critical section.
    pub fn critically(&self, work: impl FnOnce()) {
        critical(|_| work());
    }
}

/// Shows that the code runs in a critical section: an error in it is a PANIC, which stops the server. So no error leaves
/// it, neither as a panic nor as a longjmp.
#[derive(Debug)]
pub struct Critical(());

/// Run `work` as a critical section (START_CRIT_SECTION and END_CRIT_SECTION, miscadmin.h). In any frame.
pub fn critical(work: impl FnOnce(&Critical)) {
    // SAFETY: a counter of this process.
    unsafe {
        pg_sys::CritSectionCount += 1;
        work(&Critical(()));
        pg_sys::CritSectionCount -= 1;
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        // SAFETY: as in `begin`.
        unsafe {
            if self.delays {
                (*pg_sys::MyProc).delayChkptFlags &= !compat::DELAY_CHKPT_START;
            }
            pg_sys::InterruptHoldoffCount = pg_sys::InterruptHoldoffCount.saturating_sub(1);
        }
    }
}
