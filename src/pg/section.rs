//! A stretch of code in which nothing is raised and no interrupt is served.

use pgrx::pg_sys;

use super::compat;

/// Interrupts are held, and checkpoints if asked for, until this is dropped.
pub struct Section {
    delays: bool,
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
