//! Records that are left out: kept or sent, and counted.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use pgrx::pg_sys;

use super::Process;
use crate::error::{Error, Result};
use crate::load::rejects::{Complaint, Reject};
use crate::pg::row::Attention;
use crate::pg::soft::{OnError, Verbosity};

impl Process {
    /// Leave out the current record because of an error about it. The error is not survived if it is about something else;
    /// another one may come instead. Guarded.
    #[cold]
    pub fn survive(&mut self, error: &Error) -> std::result::Result<(), Option<Error>> {
        if !self.tolerance.survives(error) {
            return Err(None);
        }
        if self.skip_left > 0 {
            self.skip_left -= 1;
            return Ok(());
        }
        if !self.rejects.keeps() && self.tolerance.verbosity == Verbosity::Verbose {
            self.rows.note_record(error);
        }
        self.reject(Complaint::of_error(error)).map_err(Some)
    }

    /// Leave out the current record because of a value, or count that it is NULL now. Guarded.
    #[cold]
    pub fn bad_value(&mut self) -> Result<()> {
        self.tolerance.bad_rows = 0;
        match self.tolerance.bad_value.take() {
            // SAFETY: what was caught for the current row.
            Some(bad) => self.reject(unsafe { Complaint::of_data(bad) }.about_value(&self.rows)),
            None => self.count(),
        }
    }

    /// Leave out the current record. Guarded.
    #[cold]
    pub fn reject(&mut self, complaint: Complaint) -> Result<()> {
        // Messages name the line, and would count anew from far behind.
        self.rows.stream_mut().reader.settle_line_number();
        // SAFETY: as in `Process::shared`.
        let shared = unsafe { &*self.shared };
        if self.rejects.keep.is_some_and(|most| shared.kept.fetch_add(1, SeqCst) < most) {
            let reject = Reject::new(&mut self.rows, complaint).write();
            self.rejects.keep_bytes(&reject);
            self.wide.send_reject(&reject)?;
        }
        self.count()
    }

    fn count(&mut self) -> Result<()> {
        // SAFETY: as in `Process::shared`.
        self.rejects.count(unsafe { &*self.shared }, self.number, &mut self.wide)?;
        if self.tolerance.on_error != OnError::SetNull
            && let Some(figures) = self.by_file.of(self.rows.stream().file_number())
        {
            figures.rejected.fetch_add(1, Relaxed);
        }
        self.rows.attention = Attention::NONE;
        self.rows.clear_queue();
        // A subtransaction that failed may have ended what others see.
        self.show();
        // SAFETY: nothing of the row is needed any more; a guarded call.
        unsafe { pg_sys::MemoryContextReset((*self.executor.econtext).ecxt_per_tuple_memory) };
        Ok(())
    }
}
