//! A stretch of code in which nothing is raised and no interrupt is served.

use pgrx::pg_sys;

use super::compat;

/// Interrupts are held, and checkpoints if asked for, until this is dropped.
pub struct Section {
    delays: bool,
}

/// How long a process stays without the flag when a checkpoint has begun: longer than the checkpointer sleeps between
/// two looks at who holds it up (10 ms, CreateCheckPoint).
const CHECKPOINT_TURN: i64 = 15_000;

/// The redo point when a process last began such a section. One that does so again and again would hold a checkpoint up, which
/// waits until it sees nobody with the flag.
#[derive(Debug)]
pub struct Redo(pg_sys::XLogRecPtr);

impl Redo {
    /// The one that there is now. Raises nothing.
    pub fn now() -> Redo {
        // SAFETY: takes a spinlock; raises nothing.
        Redo(unsafe { pg_sys::GetRedoRecPtr() })
    }

    /// Has a checkpoint begun since? Raises nothing.
    pub fn is_past(&self) -> bool {
        Redo::now().0 != self.0
    }

    /// Give a checkpoint that has begun since the chance to pass, once. Raises nothing.
    pub fn let_checkpoint_pass(&mut self) {
        let now = Redo::now().0;
        if std::mem::replace(&mut self.0, now) != now {
            // SAFETY: raises nothing.
            unsafe { pg_sys::pg_usleep(CHECKPOINT_TURN) };
        }
    }
}

impl Section {
    pub fn begin(delays: bool) -> Section {
        // SAFETY: this process's own counters and flags (HOLD_INTERRUPTS, miscadmin.h). The flag is not set by anybody
        // else in this process: it is a matter of short sections like this one.
        unsafe {
            pg_sys::InterruptHoldoffCount += 1;
            if delays {
                (*pg_sys::MyProc).delayChkptFlags |= compat::DELAY_CHKPT_START;
            }
        }
        Section { delays }
    }

    /// Run what core would run in a critical section: an error in it stops the server.
    pub fn critically(&self, work: impl FnOnce()) {
        // SAFETY: START_CRIT_SECTION and END_CRIT_SECTION (miscadmin.h).
        unsafe {
            pg_sys::CritSectionCount += 1;
            work();
            pg_sys::CritSectionCount -= 1;
        }
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
