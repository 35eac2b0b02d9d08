//! Makes rows from records, many within one guard.
//!
//! If a row needs user-defined code, or a step that may raise an error whose fields all matter, [`Process::advance`]
//! returns with the row partly made.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use pg_bulk_format::reader::RecordStart;

use pgrx::pg_sys;

use super::Process;
use crate::error::Result;
use crate::load::direct::shared::Shared;
use crate::load::rejects::Complaint;
use crate::pg::chunks::Chunks;
use crate::pg::original;
use crate::pg::row::RowArrays;
use crate::pg::row::pump::RowOutcome;
use crate::pg::soft::{Conversion, OnError};
use crate::pg::stages::Stage;
use crate::pg::unguarded;

/// Number of ranges of tuple positions that justify a message to the leader.
const SOME: usize = 500;
/// Rows between two checks for interrupts and for the end of the chunk.
pub(super) const ROUND: u32 = 256;

impl Process {
    /// The arrays that fields are decoded into.
    fn arrays(&self) -> RowArrays {
        if let Some(projection) = &self.projection {
            return projection.arrays();
        }
        // SAFETY: a slot that lives as long as the executor's state.
        unsafe { RowArrays { values: (*self.executor.slot).tts_values, nulls: (*self.executor.slot).tts_isnull } }
    }

    /// Number of the target's attributes.
    pub(super) fn attributes(&self) -> usize {
        // SAFETY: a slot that lives as long as the executor's state.
        unsafe { usize::try_from((*(*self.executor.slot).tts_tupleDescriptor).natts).unwrap_or(0) }
    }

    /// Does each row need steps outside of [`step`]?
    pub(super) fn is_plain(&self) -> bool {
        let e = &self.executor;
        !self.keys.is_null()
            || e.checks
            || e.generated
            || e.leaf
            || !e.routing.is_null()
            || !e.condition.is_null()
            || self.defaults.evaluates()
    }

    /// Has the load reached its limit of rows? Raises nothing.
    pub fn is_full(&self) -> bool {
        self.limit == 0
    }

    /// Counts a row of a query; true when progress is to be shown. Raises nothing.
    pub fn ends_round(&mut self) -> bool {
        self.round = (self.round + 1) % ROUND;
        self.round == 0
    }

    /// Makes rows until one needs a step outside of the guard. Guarded.
    pub fn advance(&mut self) -> Result<RowOutcome> {
        let is_plain = self.is_plain();
        let projects = self.projection.is_some();
        if let Some(projection) = &mut self.projection {
            projection.is_partial = projection.has_rest();
        }
        loop {
            self.round += 1;
            // As in COPY, a message about an interrupt names the last row.
            if self.round >= ROUND || unguarded::are_interrupts_pending() {
                self.round = 0;
                pgrx::check_for_interrupts!();
                if self.chunks.is_over(self.shared()) {
                    return Ok(RowOutcome::End);
                }
                self.receive()?;
                self.show();
            }
            if self.limit == 0 || self.records_left == 0 {
                return Ok(RowOutcome::End);
            }
            let more = match self.rows.advance() {
                Ok(more) => more,
                Err(error) => {
                    self.records_left -= 1;
                    self.survive(&error).map_err(|other| other.unwrap_or(error))?;
                    continue;
                }
            };
            if !more {
                self.report();
                if !self.next_chunk()? {
                    return Ok(RowOutcome::End);
                }
                continue;
            }
            if let Some(change) = self.rows.take_change() {
                self.fit(change);
            }
            let arrays = self.arrays();
            self.records_left -= 1;
            if self.skip_left > 0 {
                self.skip_left -= 1;
                continue;
            }
            if let (Some(decoded), Some(projection)) = (self.rows.decoded(), &mut self.projection) {
                projection.is_partial = false;
                let attributes = projection.attributes();
                self.rows.clear_queue();
                // SAFETY: both arrays are as long as the foreign table's descriptor.
                unsafe {
                    self.rows.make_datums(decoded)?;
                    arrays.copy_from(decoded, attributes);
                }
                return Ok(RowOutcome::Row);
            }
            if let Some(decoded) = self.rows.decoded() {
                // SAFETY: the arrays are as long as the target's descriptor.
                unsafe { self.defaults.set(decoded) }?;
                // SAFETY: attributes of the same descriptor.
                let null = |&i: &usize| unsafe { *decoded.nulls.add(i) };
                if is_plain || self.unset_not_null.iter().any(null) {
                    self.rows.clear_queue();
                    // SAFETY: as above, both arrays.
                    unsafe {
                        self.rows.make_datums(decoded)?;
                        arrays.copy_from(decoded, self.attributes());
                    }
                    return Ok(RowOutcome::Row);
                }
                self.add_decoded(decoded)?;
                continue;
            }
            self.rows.reset();
            let mut watch = self.stages.sample();
            // SAFETY: the slot's arrays are as long as the target's descriptor.
            unsafe { self.rows.decode(&self.wanted, arrays) };
            self.stages.lap_sample(&mut watch, Stage::Convert);
            if self.tolerance.on_error != OnError::Stop && self.rows.has_queue() {
                // SAFETY: as above.
                let outcome = unsafe { self.rows.convert_softly(&mut self.tolerance, arrays, self.fields) }?;
                self.stages.lap_sample(&mut watch, Stage::Convert);
                original::forget();
                if self.tolerance.bad_rows > 0 {
                    self.bad_value()?;
                }
                match outcome {
                    Conversion::Good => (),
                    Conversion::Raises => return Ok(RowOutcome::Row),
                    Conversion::LeftOut => {
                        // SAFETY: the row's values are not needed any more; a guarded call.
                        unsafe { pg_sys::MemoryContextReset((*self.fields).ecxt_per_tuple_memory) };
                        continue;
                    }
                }
                self.rows.clear_queue();
            }
            if self.rows.is_short() {
                if let Some(error) = self.rejects.keeps().then(|| self.rows.check_missing().err()).flatten() {
                    self.reject(Complaint::of_error(&error))?;
                    continue;
                }
                return Ok(RowOutcome::Short);
            }
            if projects {
                return Ok(RowOutcome::Row);
            }
            // SAFETY: as above.
            unsafe { self.defaults.set(arrays) }?;
            // SAFETY: attributes of the same descriptor.
            let null = |&i: &usize| unsafe { *arrays.nulls.add(i) };
            if is_plain || self.rows.has_queue() || self.not_null.iter().any(null) {
                return Ok(RowOutcome::Row);
            }
            self.add(0, arrays)?;
        }
    }

    pub(super) fn next_chunk(&mut self) -> Result<bool> {
        self.report_origins(SOME)?;
        self.gaps += 1;
        let Process { rows, chunks, shared, number, defaults, rejects, stages, .. } = self;
        self.round = ROUND;
        let began = Cell::new(None);
        // SAFETY: as in `shared`.
        let shared = unsafe { &**shared };
        let mark = |ticket, place: RecordStart| {
            rejects.mark(ticket, place);
            began.set(Some(place));
        };
        let more = chunks.next(rows, shared, *number, stages, |n| defaults.reserve(n), mark)?;
        // At the end of the file no ids are needed; ids that are left may be for another file.
        if more && chunks.is_endless() {
            defaults.refill()?;
        }
        if let Some(place) = began.take() {
            self.anchor(place);
        }
        Ok(more)
    }

    /// Adds this process's progress to the shared counts.
    pub(super) fn report(&mut self) {
        let bytes = self.rows.stream().bytes_read();
        self.shared().bytes.fetch_add(bytes.saturating_sub(self.reported), Relaxed);
        let rows = std::mem::take(&mut self.unreported_rows);
        self.shared().rows.fetch_add(rows, Relaxed);
        let filtered = std::mem::take(&mut self.filtered);
        self.shared().filtered.fetch_add(filtered, Relaxed);
        if let Some(figures) = self.by_file.of(self.file) {
            figures.loaded.fetch_add(rows, Relaxed);
            figures.filtered.fetch_add(filtered, Relaxed);
        }
        self.reported = bytes;
    }

    /// Shows the progress of all processes.
    pub fn show(&self) {
        // SAFETY: null, or the load's, which outlives its processes; no other reference is in use.
        let Some(phases) = (unsafe { self.phases.as_mut() }) else { return };
        let shared = self.shared();
        let in_order = matches!(self.chunks, Chunks::InOrder);
        // A second reading begins again at the start of the file.
        let unreported = if in_order { self.rows.stream().bytes_read().saturating_sub(self.reported) } else { 0 };
        let before = self.before;
        phases.show(|figures| {
            figures.bytes = before.bytes + shared.bytes.load(Relaxed) + unreported;
            figures.rows = before.rows + shared.rows.load(Relaxed) + self.unreported_rows;
            figures.excluded = before.excluded + shared.filtered.load(Relaxed) + self.filtered;
            figures.rejected = before.rejected + shared.bad.load(Relaxed);
        });
    }

    /// Switches to reading in chunks, with counts shared by all processes. Bytes of the file beyond `place` that were
    /// read are read again. Before workers start.
    ///
    /// # Safety
    /// `shared` stays valid as long as this process works.
    pub unsafe fn hand_over(&mut self, shared: *const Shared, place: u64) {
        self.report();
        // SAFETY: this function's contract covers the argument.
        self.shared().move_counts(unsafe { &*shared }, place);
        self.reported = self.rows.stream().bytes_read();
        self.shared = shared;
    }
}
