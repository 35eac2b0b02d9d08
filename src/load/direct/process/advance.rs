//! Makes rows from records, many within one guard.
//!
//! If a row needs user-defined code, or a step that may raise an error whose fields all matter, [`Process::advance`]
//! returns with the row partly made.

use std::cell::Cell;

use pg_bulk_text::reader::RecordStart;

use super::Process;
use crate::error::Result;
use crate::load::direct::shared::Shared;
use crate::load::rejects::Complaint;
use crate::program::projection::Projection;
use crate::rows::row::RowArrays;
use crate::rows::row::pump::RowOutcome;
use crate::rows::soft::{Conversion, OnError};
use crate::server::original;
use crate::server::slot::Row;
use crate::server::stages::Stage;
use crate::server::team::SharedRef;
use crate::server::unguarded;

/// Number of ranges of tuple positions that justify a message to the leader.
const SOME: usize = 500;
/// Rows between two checks for interrupts and for the end of the chunk.
pub(super) const ROUND: u32 = 256;

impl Process {
    /// The arrays that fields are decoded into.
    pub(super) fn arrays(&self) -> RowArrays<'static> {
        self.recipe.projection.as_ref().map_or_else(|| self.executor.arrays(), Projection::arrays)
    }

    /// Does each row need steps outside of [`step`]?
    pub(super) fn is_plain(&self) -> bool {
        self.keys.is_some() || !self.executor.is_idle() || self.recipe.defaults.evaluates()
    }

    /// Makes rows until one needs a step outside of the guard. Guarded.
    pub fn advance(&mut self) -> Result<RowOutcome> {
        let is_plain = self.is_plain();
        let projects = self.recipe.projection.is_some();
        if let Some(projection) = &mut self.recipe.projection {
            projection.is_partial = projection.has_rest();
        }
        loop {
            self.progress.round += 1;
            // As in COPY, a message about an interrupt names the last row.
            if self.progress.round >= ROUND || unguarded::are_interrupts_pending() {
                self.progress.round = 0;
                pgrx::check_for_interrupts!();
                if self.chunks.is_over(&self.shared) {
                    return Ok(RowOutcome::End);
                }
                self.receive()?;
                self.show();
            }
            if self.quota.rows == 0 || self.quota.records == 0 {
                return Ok(RowOutcome::End);
            }
            let more = match self.rows.advance() {
                Ok(more) => more,
                Err(error) => {
                    self.quota.records -= 1;
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
            self.quota.records -= 1;
            if self.quota.skip > 0 {
                self.quota.skip -= 1;
                continue;
            }
            self.rows.count_ragged();
            if let Some(decoded) = self.rows.decoded() {
                if let Some(projection) = &mut self.recipe.projection {
                    projection.is_partial = false;
                } else {
                    self.recipe.defaults.set(decoded)?;
                    if !is_plain && !self.recipe.unset_not_null.iter().any(|&i| decoded.is_null(i)) {
                        self.add_decoded()?;
                        continue;
                    }
                }
                self.rows.clear_queue();
                // SAFETY: the row is new; only attributes without a field have been set.
                unsafe { self.rows.make_datums() }?;
                if let Some(decoded) = self.rows.decoded() {
                    arrays.copy_from(decoded);
                }
                return Ok(RowOutcome::Row);
            }
            self.rows.reset();
            let mut watch = self.progress.stages.sample();
            self.rows.decode(&self.recipe.wanted, arrays);
            self.progress.stages.lap_sample(&mut watch, Stage::Convert);
            if self.tolerance.on_error != OnError::Stop && self.rows.has_queue() {
                let outcome = self.rows.convert_softly(&mut self.tolerance, arrays, self.recipe.fields)?;
                self.progress.stages.lap_sample(&mut watch, Stage::Convert);
                original::forget();
                if self.tolerance.bad_rows > 0 {
                    self.bad_value()?;
                }
                match outcome {
                    Conversion::Good => (),
                    Conversion::Raises => return Ok(RowOutcome::Row),
                    Conversion::LeftOut => {
                        // SAFETY: the row is left out, and its values are not used.
                        unsafe { self.recipe.fields.reset() };
                        continue;
                    }
                }
                self.rows.clear_queue();
            }
            if self.rows.is_short() {
                if let Some(error) = self.tolerance.rejects_short.then(|| self.rows.check_missing().err()).flatten() {
                    self.reject(Complaint::of_error(&error))?;
                    continue;
                }
                return Ok(RowOutcome::Short);
            }
            if projects {
                return Ok(RowOutcome::Row);
            }
            self.recipe.defaults.set(arrays)?;
            if is_plain || self.rows.has_queue() || self.recipe.not_null.iter().any(|&i| arrays.is_null(i)) {
                return Ok(RowOutcome::Row);
            }
            // SAFETY: the fields and defaults have made a row of the target.
            let row = unsafe { Row::new(arrays, self.executor.relation()) };
            // Without routing, the target's heap is the first.
            self.add(0, row)?;
        }
    }

    pub(super) fn next_chunk(&mut self) -> Result<bool> {
        self.tracer.report(SOME, &mut self.heaps.list, &mut self.wide)?;
        self.tracer.gaps += 1;
        self.progress.round = ROUND;
        let Process { rows, chunks, shared, number, recipe, rejects, tracer, progress, .. } = self;
        let defaults = &mut recipe.defaults;
        let began = Cell::new(None);
        let mark = |ticket, place: RecordStart| {
            rejects.mark(ticket, place);
            began.set(Some(place));
        };
        let more = chunks.next(rows, shared, *number, &mut progress.stages, |n| defaults.reserve(n), mark)?;
        // At the end of the file no ids are needed; ids that are left may be for another file.
        if more && chunks.is_endless() {
            defaults.refill()?;
        }
        if let Some(place) = began.take() {
            tracer.anchor(place, rows);
        }
        Ok(more)
    }

    /// Adds this process's progress to the shared counts.
    pub(super) fn report(&mut self) {
        self.progress.report(&self.rows, &self.shared);
        self.shared.ragged.take(&mut self.rows.ragged);
    }

    /// Shows the progress of all processes.
    pub fn show(&self) {
        self.progress.show(&self.rows, &self.chunks, &self.shared);
    }

    /// Switches to reading in chunks, with counts shared by all processes. Bytes of the file beyond `place` that were
    /// read are read again. Before workers start.
    pub fn hand_over(&mut self, shared: SharedRef<Shared>, place: u64) {
        self.report();
        self.shared.move_counts(&shared, place);
        self.progress.reported = self.rows.stream().bytes_read();
        self.shared = shared;
    }
}
