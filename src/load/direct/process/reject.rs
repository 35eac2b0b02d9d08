//! Rejects: records with errors are kept or sent, and counted.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::Process;
use crate::error::{Error, Result, is_data_exception};
use crate::load::rejects::{Complaint, Reject};
use crate::rows::row::Attention;
use crate::rows::soft::{OnError, Verbosity};
use crate::server::original;

impl Process {
    /// Rejects the current record because of an error about it. Fails if the error is not a record's own, or with
    /// another error. Guarded.
    #[cold]
    pub fn survive(&mut self, error: &Error) -> std::result::Result<(), Option<Error>> {
        if !self.tolerance.survives(error) {
            return Err(None);
        }
        if self.quota.skip > 0 {
            self.quota.skip -= 1;
            return Ok(());
        }
        if !self.rejects.keeps() && self.tolerance.verbosity == Verbosity::Verbose {
            self.rows.note_record(error);
        }
        self.reject(Complaint::of_error(error)).map_err(Some)
    }

    /// Rejects the current record because of a bad value, or counts that the value was set to NULL. Guarded.
    #[cold]
    pub fn bad_value(&mut self) -> Result<()> {
        self.tolerance.bad_rows = 0;
        match self.tolerance.bad_value.take() {
            // SAFETY: the error was caught for the current row.
            Some(bad) => self.reject(unsafe { Complaint::of_data(bad) }.about_value(&self.rows)),
            None => self.count(),
        }
    }

    /// Rejects the row about which the executor or a function raised an error, which was caught. Guarded.
    pub fn leave_out(&mut self, complaint: Complaint) -> Result<()> {
        original::forget();
        self.rejects.pins.release();
        self.reject(complaint)
    }

    /// Rejects the current record. Guarded.
    #[cold]
    pub fn reject(&mut self, complaint: Complaint) -> Result<()> {
        if self.rejects.keeps() && is_data_exception(complaint.code) && self.pull.is_none() {
            let offset = self.rows.reader().record_offset();
            let (arrays, fields) = (self.arrays(), self.recipe.fields);
            if let Some(length) = self.rows.end_early(arrays, fields)? {
                self.tracer.end_early(self.rows.stream(), offset, length, &mut self.wide)?;
            }
        }
        // Messages contain the line number, and would otherwise count lines again from an earlier position.
        self.rows.stream_mut().reader.store_line_number();
        if self.rejects.keep.is_some_and(|most| self.shared.kept.fetch_add(1, SeqCst) < most) {
            let reject = Reject::new(&mut self.rows, complaint).write();
            self.rejects.keep_bytes(&reject);
            self.wide.send_reject(&reject)?;
        }
        self.count()
    }

    fn count(&mut self) -> Result<()> {
        self.rejects.count(&self.shared, self.number, &mut self.wide)?;
        if self.tolerance.on_error != OnError::SetNull
            && let Some(figures) = self.progress.by_file.of(self.rows.stream().file_number())
        {
            figures.rejected.fetch_add(1, Relaxed);
        }
        self.rows.context.attention = Attention::NONE;
        self.rows.clear_queue();
        // A failed subtransaction may have reset the progress that other sessions see.
        self.show();
        // SAFETY: the row is left out, and its values are not used.
        unsafe { self.executor.context().reset() };
        Ok(())
    }
}
