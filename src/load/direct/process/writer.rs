//! The sink of a process's pump: makes rows of the target from records, and stores them in heaps, which append their
//! pages. The leader also inserts rows that workers send; a dry run only checks keys.
//!
//! Many rows are made and stored within one guard. If a row needs user-defined code, or a step that may raise an error
//! whose fields all matter, the pump returns with the row partly made.
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

use super::{Heaps, Process, Progress, Pull, Recipe, Tracer};
use crate::error::{Error, Result, is_data_exception};
use crate::load::direct::executor::Executor;
use crate::load::direct::key_check::{CheckedTable, KeyCheck};
use crate::load::direct::rejects::Rejects;
use crate::load::direct::spec::Shared;
use crate::load::direct::wide::{MessageKind, Received, Wide};
use crate::load::rejects::{Complaint, Reject};
use crate::program::projection::Projection;
use crate::rows::chunks::Chunks;
use crate::rows::row::pump::{Begin, Policy, Sink};
use crate::rows::row::{Attention, RowArrays, Rows};
use crate::rows::soft::{Conversion, OnError, Verbosity};
use crate::server::background::pause;
use crate::server::result_relation::ResultRelation;
use crate::server::slot::{ExprContext, Row, Slot};
use crate::server::team::SharedRef;
use crate::server::{original, unguarded};

/// Number of ranges of tuple positions that justify a message to the leader.
const SOME: usize = 500;
/// Rows between two checks for interrupts and for the end of the chunk.
pub(super) const ROUND: u32 = 256;
/// Milliseconds after which a waiting leader shows the progress of the other processes.
const SHOW: i64 = 500;
/// Rows of workers that are inserted before the leader's own rows go on.
const RECEIVED: usize = 64;

/// The state of a process beside its rows: where records come from, and where rows go to.
#[derive(Debug)]
pub struct Writer {
    /// Number of this process; 0 is the leader.
    pub number: usize,
    pub shared: SharedRef<Shared>,
    pub executor: Executor,
    pub chunks: Chunks,
    /// Records to read before [`run`](crate::load::direct::row_loop::run) returns.
    pub records: u64,
    /// What rows are pulled from; None if the process takes the records of the file one after the other.
    pub pull: Option<Pull>,
    pub recipe: Recipe,
    pub rejects: Rejects,
    /// In a dry run, the check of keys; None if no key needs a check.
    pub keys: Option<KeyCheck>,
    pub heaps: Heaps,
    pub wide: Wide,
    pub tracer: Tracer,
    pub progress: Progress,
    /// Each row needs steps in a plain frame.
    pub is_plain: bool,
}

/// Result of receiving rows from workers.
enum Sent {
    /// The queues may contain more rows.
    More,
    /// All rows in the queues are inserted.
    All,
    /// All rows are inserted, and all queues are closed.
    Closed,
}

/// The context is that of a record's values.
impl Sink for Writer {
    /// The arrays that fields are decoded into.
    fn arrays(&mut self) -> RowArrays<'_> {
        self.fields()
    }

    fn econtext(&self) -> ExprContext<'static> {
        self.recipe.fields
    }

    #[inline]
    fn before_record(&mut self, rows: &mut Rows, _policy: &mut Policy) -> Result<bool> {
        self.progress.round += 1;
        // As in COPY, a message about an interrupt names the last row.
        if self.progress.round >= ROUND || unguarded::are_interrupts_pending() {
            self.progress.round = 0;
            pgrx::check_for_interrupts!();
            if self.chunks.is_over(&self.shared) {
                return Ok(false);
            }
            self.receive()?;
            self.show(rows);
        }
        let goes_on = self.records > 0;
        self.records -= u64::from(goes_on);
        Ok(goes_on)
    }

    fn next_chunk(&mut self, rows: &mut Rows, _policy: &mut Policy) -> Result<bool> {
        // A record was counted, but there was none.
        self.records += 1;
        self.report(rows);
        self.tracer.report(SOME, &mut self.heaps.list, &mut self.wide)?;
        self.tracer.gaps += 1;
        self.progress.round = ROUND;
        let Writer { chunks, shared, number, recipe, rejects, tracer, progress, .. } = self;
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

    #[cold]
    fn fit(&mut self, rows: &mut Rows, policy: &mut Policy) {
        let file = rows.stream().file_number();
        if file != self.progress.file {
            // The first record of a file does not follow the last record of the file before.
            self.tracer.gaps += 1;
            // Rows counted until now belong to the file before.
            self.report(rows);
            self.progress.file = file;
        }
        self.recipe.adapt(rows, policy, self.executor.attributes());
    }

    #[inline]
    fn begin(&mut self, rows: &mut Rows, policy: &mut Policy) -> Result<Begin> {
        let Recipe { projection, defaults, unset_not_null, .. } = &mut self.recipe;
        let Some(decoded) = rows.decoded() else {
            if let Some(projection) = projection {
                projection.is_partial = projection.has_rest();
            }
            return Ok(Begin::Decode);
        };
        if let Some(projection) = projection {
            projection.is_partial = false;
        } else {
            defaults.set(decoded)?;
            if !self.is_plain && !unset_not_null.iter().any(|&i| decoded.is_null(i)) {
                self.add_decoded(rows, policy)?;
                return Ok(Begin::Done);
            }
        }
        rows.clear_queue();
        // SAFETY: the row is new; only attributes without a field have been set.
        unsafe { rows.make_datums() }?;
        if let Some(decoded) = rows.decoded() {
            self.fields().copy_from(decoded);
        }
        Ok(Begin::Row)
    }

    #[cold]
    fn reject(&mut self, rows: &mut Rows, policy: &mut Policy, error: &Error) -> Result<()> {
        if !self.rejects.keeps() && policy.tolerance.verbosity == Verbosity::Verbose {
            rows.note_record(error);
        }
        self.complain(rows, policy, Complaint::of_error(error))
    }

    fn note_conversion(&mut self, rows: &mut Rows, policy: &mut Policy, _outcome: Conversion) -> Result<()> {
        original::forget();
        if std::mem::take(&mut policy.tolerance.bad_rows) == 0 {
            return Ok(());
        }
        match policy.tolerance.bad_value.take() {
            // SAFETY: the error was caught for the current row.
            Some(bad) => self.complain(rows, policy, unsafe { Complaint::of_data(bad) }.about_value(rows)),
            None => self.count_reject(rows, policy),
        }
    }

    #[inline]
    fn finish(&mut self, rows: &mut Rows, policy: &mut Policy) -> Result<bool> {
        if self.recipe.projection.is_some() || rows.is_short() {
            return Ok(true);
        }
        let arrays = self.executor.arrays();
        self.recipe.defaults.set(arrays)?;
        if self.is_plain || rows.has_queue() || self.recipe.not_null.iter().any(|&i| arrays.is_null(i)) {
            return Ok(true);
        }
        // SAFETY: the fields and defaults have made a row of the target.
        let row = unsafe { Row::new(arrays, self.executor.relation()) };
        // Without routing, the target's heap is the first.
        self.add(0, row, rows, policy)?;
        if policy.tolerance.on_error != OnError::Stop {
            // SAFETY: the row is stored, and the values that input functions have made for it are not used any more.
            unsafe { self.recipe.fields.reset() };
        }
        Ok(false)
    }
}

impl Writer {
    /// The arrays that fields are decoded into.
    pub fn fields(&self) -> RowArrays<'static> {
        self.recipe.projection.as_ref().map_or_else(|| self.executor.arrays(), Projection::arrays)
    }

    /// Notes the steps that each row needs.
    pub(super) fn find_steps(&mut self) {
        self.is_plain = self.keys.is_some() || !self.executor.is_idle() || self.recipe.defaults.evaluates();
    }

    /// Are rows of the projection put into the target's heap without further steps?
    pub fn stores_at_once(&self) -> bool {
        self.recipe.projection.is_some() && self.pull.is_none() && !self.heaps.is_dry && !self.is_plain
    }

    /// Are rows of a function, which are tuples, put into the heap without further steps?
    pub fn stores_tuples(&self) -> bool {
        let attributes = self.executor.attributes();
        self.stores_at_once() && self.recipe.projection.as_ref().is_some_and(|p| p.makes_tuples(attributes))
    }

    /// Adds this process's progress to the shared counts.
    pub(super) fn report(&mut self, rows: &mut Rows) {
        self.progress.report(rows, &self.shared);
        self.shared.ragged.take(&mut rows.ragged);
    }

    /// Shows the progress of all processes.
    pub fn show(&self, rows: &Rows) {
        self.progress.show(rows, &self.chunks, &self.shared);
    }

    /// Inserts some of the rows that workers have sent. Guarded, and interruptible.
    fn receive(&mut self) -> Result<Sent> {
        let shared = self.shared;
        for _ in 0..RECEIVED {
            let oid = match self.wide.receive() {
                Received::Message(MessageKind::Row, oid) => oid,
                Received::Message(MessageKind::Reject, _) => {
                    self.rejects.keep_bytes(self.wide.content());
                    continue;
                }
                Received::Message(kind, oid) => {
                    let relation = self.heaps.relations.iter().position(|(known, _)| *known == oid);
                    self.tracer.remember(kind, relation, self.wide.content());
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
    pub fn receive_all(&mut self, rows: &Rows) -> Result<()> {
        loop {
            match self.receive()? {
                Sent::Closed => return Ok(()),
                Sent::More => (),
                // A queue sets the latch after a message, and when its sender is gone.
                Sent::All => {
                    pause(SHOW);
                    self.show(rows);
                }
            }
            pgrx::check_for_interrupts!();
        }
    }

    /// Puts a row of a result relation into its heap. Guarded.
    pub fn store(&mut self, leaf: ResultRelation, row: Row<'_>, rows: &mut Rows, policy: &mut Policy) -> Result<()> {
        let heap = self.heaps.of_leaf(leaf, &self.tracer)?;
        self.add(heap, row, rows, policy)
    }

    /// Puts a row into a heap. Guarded.
    fn add(&mut self, heap: usize, row: Row<'_>, rows: &mut Rows, policy: &mut Policy) -> Result<()> {
        let origin = self.tracer.origin(rows);
        let added = self.heaps.add(heap, row, origin, &mut self.wide, &self.shared.append_lock);
        self.count_row(added, rows, policy)
    }

    /// Puts a row that was decoded in a block, for the target, into the target's heap. Guarded.
    #[inline]
    fn add_decoded(&mut self, rows: &mut Rows, policy: &mut Policy) -> Result<()> {
        let origin = self.tracer.origin(rows);
        let added = self.heaps.add_decoded(rows, origin, &mut self.wide, &self.shared.append_lock);
        self.count_row(added, rows, policy)
    }

    /// Counts a row that was added, or rejects it if it was not because of an error about it. Guarded.
    #[inline]
    fn count_row(&mut self, added: Result<()>, rows: &mut Rows, policy: &mut Policy) -> Result<()> {
        match added {
            Ok(()) => {
                policy.count_row();
                self.progress.rows += 1;
                Ok(())
            }
            Err(error) if policy.tolerance.survives(&error) => self.reject(rows, policy, &error),
            Err(error) => Err(error),
        }
    }

    /// Gives a row that is not stored its position, in the slot. Returns the table that checks its keys; null without a
    /// check. Guarded.
    pub fn take(
        &mut self,
        leaf: ResultRelation,
        slot: Slot<'_>,
        rows: &mut Rows,
        policy: &mut Policy,
    ) -> Result<*mut CheckedTable> {
        let Some(keys) = &mut self.keys else { return Ok(std::ptr::null_mut()) };
        let table = keys.table_of(leaf, || self.heaps.number_of(leaf.relation()))?;
        let origin = self.tracer.origin(rows);
        slot.set_tid(table.next(origin, &mut self.tracer.origins));
        policy.count_row();
        self.progress.rows += 1;
        Ok(table)
    }

    /// Rejects the current record. Guarded.
    #[cold]
    fn complain(&mut self, rows: &mut Rows, policy: &Policy, complaint: Complaint) -> Result<()> {
        if self.rejects.keeps() && is_data_exception(complaint.code) && self.pull.is_none() {
            let offset = rows.reader().record_offset();
            if let Some(length) = rows.end_early(self.fields(), self.recipe.fields)? {
                self.tracer.end_early(rows.stream(), offset, length, &mut self.wide)?;
            }
        }
        // Messages contain the line number, and would otherwise count lines again from an earlier position.
        rows.stream_mut().reader.store_line_number();
        if self.rejects.keep.is_some_and(|most| self.shared.kept.fetch_add(1, SeqCst) < most) {
            let reject = Reject::new(rows, complaint).write();
            self.rejects.keep_bytes(&reject);
            self.wide.send_reject(&reject)?;
        }
        self.count_reject(rows, policy)
    }

    /// Counts a record that was rejected, or of which a value was set to NULL. Guarded.
    fn count_reject(&mut self, rows: &mut Rows, policy: &Policy) -> Result<()> {
        self.rejects.count(&self.shared, self.number, &mut self.wide)?;
        if policy.tolerance.on_error != OnError::SetNull
            && let Some(figures) = self.progress.by_file.of(rows.stream().file_number())
        {
            figures.rejected.fetch_add(1, Relaxed);
        }
        rows.context.attention = Attention::NONE;
        rows.clear_queue();
        // A failed subtransaction may have reset the progress that other sessions see.
        self.show(rows);
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
    /// Rejects the row about which the executor or a function raised an error, which was caught. Guarded.
    pub fn leave_out(&mut self, complaint: Complaint) -> Result<()> {
        original::forget();
        self.writer.rejects.pins.release();
        self.writer.complain(&mut self.rows, &self.policy, complaint)
    }

    /// Goes to the next row, for a projection. Raises nothing. `as_value`: the process [stores
    /// tuples](Writer::stores_tuples).
    #[inline]
    pub fn advance_in_block(&mut self, as_value: bool) -> InBlock {
        let Process { rows, policy, writer, .. } = self;
        if writer.progress.round + 1 >= ROUND
            || policy.limit_left == Some(0)
            || writer.records == 0
            || policy.skip_left > 0
            || unguarded::are_interrupts_pending()
        {
            return InBlock::Not;
        }
        let Some(projection) = &mut writer.recipe.projection else { return InBlock::Not };
        if !rows.advance_decoded() {
            return InBlock::Not;
        }
        projection.is_partial = false;
        writer.progress.round += 1;
        writer.records -= 1;
        if as_value
            && let Some(decoded) = rows.decoded()
            && let Some(value) = projection.value_mut()
            // SAFETY: the row is new, in the form of these columns.
            && let Some(value) = unsafe { value.form(rows.column_forms(), decoded) }
        {
            return InBlock::Value(value);
        }
        // SAFETY: the row is new.
        if !unsafe { rows.has_made_datums() } {
            return InBlock::NoMemory;
        }
        if let Some(decoded) = rows.decoded() {
            projection.arrays().copy_from(decoded);
        }
        InBlock::Row
    }

    /// Puts a row into the target's heap, if the process [stores at once](Writer::stores_at_once). Raises nothing.
    #[inline]
    pub fn store_at_once(&mut self, row: Row<'_>) -> bool {
        let writer = &mut self.writer;
        if writer.recipe.not_null.iter().any(|&i| row.arrays().is_null(i)) {
            return false;
        }
        let origin = writer.tracer.origin(&mut self.rows);
        let Some(heap) = writer.heaps.list.first_mut() else { return false };
        let stored = heap.add_at_once(row, origin, &mut writer.heaps.form);
        if stored {
            self.policy.count_row();
            writer.progress.rows += 1;
        }
        stored
    }

    /// Puts an already formed tuple into the target's heap. Raises nothing.
    ///
    /// # Safety
    /// The process [stores tuples](Writer::stores_tuples), and this tuple's type has the target's columns.
    #[inline]
    pub unsafe fn store_tuple(&mut self, tuple: pg_sys::HeapTupleHeader) -> std::result::Result<(), Unfit> {
        let writer = &mut self.writer;
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
        if has_null && writer.recipe.not_null.iter().any(is_null) {
            return Err(Unfit::Apart);
        }
        let origin = writer.tracer.origin(&mut self.rows);
        let Some(heap) = writer.heaps.list.first_mut() else { return Err(Unfit::Apart) };
        heap.add_given_at_once(bytes, origin)?;
        self.policy.count_row();
        writer.progress.rows += 1;
        Ok(())
    }
}
