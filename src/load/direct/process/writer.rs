//! Makes rows from records, many within one guard, and stores them in heaps, which append their pages. The leader also
//! inserts rows that workers send; a dry run only checks keys.
//!
//! If a row needs user-defined code, or a step that may raise an error whose fields all matter, [`Process::advance`]
//! returns with the row partly made.
//!
//! A row of a projection is computed in plain frames, between a guarded step that reads and another that stores. If the
//! row was decoded together with the row before, and fits on the current page, neither step can raise an error, and no
//! guard is needed. So most rows run without a guard, except around a function whose errors are survived. Guards remain
//! for the first row of a block and the last row of a page. [`Process::advance_in_block`], [`Process::store_at_once`]
//! and [`Process::store_tuple`] either do the whole step for the row, or do nothing and return that.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use pg_bulk_storage::tuple::{TUPLE_HEADER, Unfit};
use pg_bulk_text::reader::RecordStart;
use pgrx::pg_sys;

use super::Process;
use crate::error::{Error, Result, is_data_exception};
use crate::load::direct::key_check::CheckedTable;
use crate::load::direct::spec::Shared;
use crate::load::direct::wide::{MessageKind, Received};
use crate::load::rejects::{Complaint, Reject};
use crate::program::projection::Projection;
use crate::rows::chunks::Chunks;
use crate::rows::row::pump::RowOutcome;
use crate::rows::row::{Attention, RowArrays};
use crate::rows::soft::{Conversion, OnError, Verbosity};
use crate::server::background::pause;
use crate::server::result_relation::ResultRelation;
use crate::server::slot::{Row, Slot};
use crate::server::stages::{Stage, Stages};
use crate::server::team::SharedRef;
use crate::server::{original, unguarded};

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

/// Milliseconds after which a waiting leader shows the progress of the other processes.
const SHOW: i64 = 500;
/// Rows of workers that are inserted before the leader's own rows go on.
const RECEIVED: usize = 64;

/// Result of receiving rows from workers.
pub(super) enum Sent {
    /// The queues may contain more rows.
    More,
    /// All rows in the queues are inserted.
    All,
    /// All rows are inserted, and all queues are closed.
    Closed,
}

impl Process {
    /// Inserts some of the rows that workers have sent. Guarded, and interruptible.
    pub(super) fn receive(&mut self) -> Result<Sent> {
        let shared = self.shared;
        for _ in 0..RECEIVED {
            let oid = match self.wide.receive() {
                Received::Message(MessageKind::Row, oid) => oid,
                Received::Message(MessageKind::Reject, _) => {
                    self.rejects.keep_bytes(self.wide.content());
                    continue;
                }
                Received::Message(kind, oid) => {
                    self.remember(kind, oid);
                    continue;
                }
                Received::Nothing => return Ok(Sent::All),
                Received::Closed => return Ok(Sent::Closed),
            };
            pgrx::check_for_interrupts!();
            let index = self.heaps.open_locked(oid, &self.tracer)?;
            if let Some(heap) = self.heaps.list.get_mut(index) {
                self.wide.store_received(heap, &shared.append_lock)?;
            }
        }
        Ok(Sent::More)
    }

    /// Inserts rows of workers until all workers are done. Guarded, and interruptible.
    pub fn receive_all(&mut self) -> Result<()> {
        loop {
            match self.receive()? {
                Sent::Closed => return Ok(()),
                Sent::More => (),
                // A queue sets the latch after a message, and when its sender is gone.
                Sent::All => {
                    pause(SHOW);
                    self.show();
                }
            }
            pgrx::check_for_interrupts!();
        }
    }

    /// Puts a row of a result relation into its heap. Guarded.
    pub fn store(&mut self, leaf: ResultRelation, row: Row<'_>) -> Result<()> {
        let heap = self.heaps.of_leaf(leaf, &self.tracer)?;
        self.add(heap, row)
    }

    /// Puts a row into a heap. Guarded.
    pub(super) fn add(&mut self, heap: usize, row: Row<'_>) -> Result<()> {
        self.count_row();
        let origin = self.tracer.origin(&mut self.rows);
        let added = self.heaps.add(heap, row, origin, &mut self.wide, &self.shared.append_lock);
        self.survive_row(added)
    }

    /// Puts a row that was decoded in a block, for the target, into the target's heap. Guarded.
    #[inline]
    pub(super) fn add_decoded(&mut self) -> Result<()> {
        self.count_row();
        let origin = self.tracer.origin(&mut self.rows);
        let added = self.heaps.add_decoded(&mut self.rows, origin, &mut self.wide, &self.shared.append_lock);
        self.survive_row(added)
    }

    /// Rejects the row that was counted last if it was not added because of an error about it.
    #[inline]
    fn survive_row(&mut self, added: Result<()>) -> Result<()> {
        let Err(error) = added else { return Ok(()) };
        self.survive(&error).map_err(|other| other.unwrap_or(error))?;
        self.quota.rows += 1;
        self.progress.rows -= 1;
        Ok(())
    }

    /// Gives a row that is not stored its position, in the slot. Returns the table that checks its keys; null without a
    /// check. Guarded.
    pub fn take(&mut self, leaf: ResultRelation, slot: Slot<'_>) -> Result<*mut CheckedTable> {
        let Some(keys) = &mut self.keys else { return Ok(std::ptr::null_mut()) };
        let table = keys.table_of(leaf, || self.heaps.number_of(leaf.relation()))?;
        let origin = self.tracer.origin(&mut self.rows);
        slot.set_tid(table.next(origin, &mut self.tracer.origins));
        let table = &raw mut *table;
        self.count_row();
        Ok(table)
    }

    #[inline]
    pub fn count_row(&mut self) {
        self.quota.rows -= 1;
        self.progress.rows += 1;
    }

    /// Appends all rows that are left. Guarded.
    pub fn finish(&mut self) -> Result<()> {
        self.report();
        self.show();
        self.shared.rest(self.number);
        // With workers, each process may have a few rows left in any load. Without workers, a few rows may be the whole
        // load, and then go through shared buffers.
        let alone = self.number == 0 && matches!(self.chunks, Chunks::InOrder);
        self.recipe.defaults.give_back()?;
        let mut watch = self.progress.stages.watch();
        self.heaps.finish(alone, &self.shared.append_lock)?;
        self.tracer.report(0, &mut self.heaps.list, &mut self.wide)?;
        for collector in self.heaps.collectors() {
            if self.number > 0 {
                collector.hand_over()?;
            } else {
                // Workers sort their keys at the same time.
                collector.sort();
            }
        }
        self.progress.stages.lap(&mut watch, Stage::Rest);
        self.account();
        Ok(())
    }

    /// Adds the written pages and the time of each stage to the shared counts.
    fn account(&mut self) {
        let mut stages = std::mem::replace(&mut self.progress.stages, Stages::new());
        let mut pages = 0;
        for heap in &mut self.heaps.list {
            let appended = heap.take_appended();
            pages += appended.pages;
            stages.merge(&appended.stages);
            stages.merge(&heap.take_stages());
        }
        stages.merge(&std::mem::replace(&mut self.rows.stream_mut().stages, Stages::new()));
        stages.set_rest(Stage::Rest);
        self.shared.account(pages, &stages);
    }
}

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

/// Result of [`Process::advance_in_block`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InBlock {
    /// The function did nothing.
    Not,
    /// A row is in the arrays.
    Row,
    /// The row as a value of a composite type.
    Value(pg_sys::HeapTupleHeader),
    /// There is a row, but no memory for it.
    NoMemory,
}

impl Process {
    /// Are rows of the projection put into the target's heap without further steps?
    pub fn stores_at_once(&self) -> bool {
        self.recipe.projection.is_some() && self.pull.is_none() && !self.heaps.is_dry && !self.is_plain()
    }

    /// Are rows of a function, which are tuples, put into the heap without further steps?
    pub fn stores_tuples(&self) -> bool {
        let attributes = self.executor.attributes();
        self.stores_at_once() && self.recipe.projection.as_ref().is_some_and(|p| p.makes_tuples(attributes))
    }

    /// Goes to the next row, for a projection. Raises nothing. `as_value`: the process [stores
    /// tuples](Process::stores_tuples).
    #[inline]
    pub fn advance_in_block(&mut self, as_value: bool) -> InBlock {
        if self.progress.round + 1 >= ROUND
            || self.quota.rows == 0
            || self.quota.records == 0
            || self.quota.skip > 0
            || unguarded::are_interrupts_pending()
        {
            return InBlock::Not;
        }
        let Some(projection) = &mut self.recipe.projection else { return InBlock::Not };
        if !self.rows.advance_decoded() {
            return InBlock::Not;
        }
        projection.is_partial = false;
        self.progress.round += 1;
        self.quota.records -= 1;
        if as_value
            && let Some(decoded) = self.rows.decoded()
            // SAFETY: the row is new, in the form of these columns.
            && let Some(value) = unsafe { projection.form_value(self.rows.column_forms(), decoded) }
        {
            return InBlock::Value(value);
        }
        // SAFETY: the row is new.
        if !unsafe { self.rows.has_made_datums() } {
            return InBlock::NoMemory;
        }
        if let Some(decoded) = self.rows.decoded() {
            projection.arrays().copy_from(decoded);
        }
        InBlock::Row
    }

    /// Puts a row into the target's heap, if the process [stores at once](Process::stores_at_once). Raises nothing.
    #[inline]
    pub fn store_at_once(&mut self, row: Row<'_>) -> bool {
        if self.recipe.not_null.iter().any(|&i| row.arrays().is_null(i)) {
            return false;
        }
        let origin = self.tracer.origin(&mut self.rows);
        let Some(heap) = self.heaps.list.first_mut() else { return false };
        let stored = heap.add_at_once(row, origin, &mut self.heaps.form);
        if stored {
            self.count_row();
        }
        stored
    }

    /// Puts an already formed tuple into the target's heap. Raises nothing.
    ///
    /// # Safety
    /// The process [stores tuples](Process::stores_tuples), and this tuple's type has the target's columns.
    #[inline]
    pub unsafe fn store_tuple(&mut self, tuple: pg_sys::HeapTupleHeader) -> std::result::Result<(), Unfit> {
        // SAFETY: a tuple of the target's columns, which has the size in its header.
        let (bytes, infomask) = unsafe {
            let length = pgrx::varsize_4b(tuple.cast());
            if length < TUPLE_HEADER {
                return Err(Unfit::Apart);
            }
            (std::slice::from_raw_parts(tuple.cast::<u8>().cast_const(), length), (*tuple).t_infomask)
        };
        let has_null = infomask & pg_sys::HEAP_HASNULL as u16 != 0;
        // The error about a NULL is raised after the tuple is taken apart.
        let is_null = |&i: &usize| bytes.get(TUPLE_HEADER + i / 8).is_none_or(|bits| bits >> (i % 8) & 1 == 0);
        if has_null && self.recipe.not_null.iter().any(is_null) {
            return Err(Unfit::Apart);
        }
        let origin = self.tracer.origin(&mut self.rows);
        let Some(heap) = self.heaps.list.first_mut() else { return Err(Unfit::Apart) };
        heap.add_given_at_once(bytes, origin)?;
        self.count_row();
        Ok(())
    }
}
