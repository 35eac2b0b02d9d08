//! What each process of a load does: records to rows, rows to heaps.
//!
//! This is the part that owns things; how rows go through it is in [`row_loop`](super::row_loop).

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pg_bulk_format::reader::Place;
use pg_bulk_format::tuple::{FormBuffer, Stamp};
use pgrx::pg_sys;

use super::chunks::Chunks;
use super::defaults::Defaults;
use super::heap::{Added, Heap};
use super::rejects::{Pins, Rejects};
use super::shared::Shared;
use super::wide::{Received, Wide};
use crate::error::Result;
use crate::load::phase::Phases;
use crate::load::rejects::Complaint;
use crate::pg::append::Traits;
use crate::pg::original;
use crate::pg::row::{RowArrays, Rows};
use crate::pg::soft::{OnError, Outcome, Tolerance};
use crate::pg::stages::{Stage, Stages};

/// Rows between two looks at interrupts and at whether the chunk is still wanted.
const ROUND: u32 = 256;
/// Milliseconds after which a leader that waits shows how far the others are.
const SHOW: std::ffi::c_long = 500;
/// Bytes of pages that a process keeps in memory at most, over all heaps.
const MOST_BYTES: usize = 16 << 20;
/// ... but so many for each heap, however many there are.
const LEAST_PAGES: usize = 4;

/// Executor state of a load's target.
#[derive(Debug, Clone, Copy)]
pub struct Executor {
    pub estate: *mut pg_sys::EState,
    pub target: *mut pg_sys::ResultRelInfo,
    pub econtext: *mut pg_sys::ExprContext,
    /// A virtual slot with the target's descriptor.
    pub slot: *mut pg_sys::TupleTableSlot,
    /// For partitioned tables, else null.
    pub mtstate: *mut pg_sys::ModifyTableState,
    pub routing: *mut pg_sys::PartitionTupleRouting,
    /// The where option, or null.
    pub condition: *mut pg_sys::ExprState,
    /// The target's rows must be checked by ExecConstraints.
    pub checks: bool,
    /// The target is a leaf of a partitioned table, and loaded as itself.
    pub leaf: bool,
    pub generated: bool,
}

/// One process's part of a load.
#[derive(Debug)]
pub struct Process {
    pub rows: Rows,
    pub chunks: Chunks,
    pub shared: *const Shared,
    /// Number of this process; 0 is the leader.
    pub number: usize,
    /// In a worker, the target as it opened it; else null.
    pub target: pg_sys::Relation,
    pub executor: Executor,
    pub defaults: Defaults,
    pub tolerance: Tolerance,
    pub rejects: Rejects,
    pub pins: Pins,
    /// The memory context that [`run`](super::row_loop::run) was called in.
    pub memory: pg_sys::MemoryContext,
    /// Rows are made and judged, but there is no heap for them.
    pub is_dry: bool,
    /// Records that are still to be passed over.
    pub skip_left: u64,
    /// Records that are to be read before [`run`] returns.
    pub records_left: u64,
    /// Rows that may still be loaded.
    limit: u64,
    /// Attributes that must not be NULL, from 0.
    pub not_null: Vec<usize>,
    /// Those of them that no field of the file sets.
    unset_not_null: Vec<usize>,
    /// All columns of the file.
    pub wanted: Vec<usize>,
    pub heaps: Vec<Heap>,
    /// Which of these is a relation's.
    by_oid: HashMap<u32, usize>,
    /// Memory that their pages take.
    page_bytes: usize,
    /// Traits of all relations that rows may go to.
    pub traits: Vec<(pg_sys::Oid, Traits)>,
    /// In the leader: the numbers of blocks that they had before the load.
    starts: Vec<u32>,
    pub stamp: Stamp,
    pub wide: Wide,
    /// In a worker: for each relation, the rows that workers appended.
    counters: *const AtomicU64,
    form: FormBuffer,
    /// The leaf that the last row went to: its result relation and the index of its heap.
    pub last_leaf: (*mut pg_sys::ResultRelInfo, usize),
    pub filtered: u64,
    /// Rows since interrupts were last looked for.
    round: u32,
    /// Rows and bytes that were reported.
    unreported_rows: u64,
    reported: u64,
    /// In the leader: what others may see of the load. Null in a worker.
    pub phases: *mut Phases,
    /// Where its time goes, but for what its heaps know.
    pub stages: Stages,
}

/// What a step ended with; numbers, so that they cross the guard as they are.
pub const END: i32 = 0;
/// A row is in the slot's arrays, and not all of it can be made here.
pub const ROW: i32 = 1;
/// The same, and it lacks fields: what there is is converted, then comes the error.
pub const SHORT: i32 = 2;

/// Rows of workers that are inserted before the process's own go on.
const RECEIVED: usize = 64;

/// What became of the rows that workers have sent.
enum Sent {
    /// There may be more.
    More,
    /// All that were there are inserted.
    All,
    /// And there will be no more.
    Closed,
}

/// The parts a process is made of.
#[derive(Debug)]
pub struct Parts {
    pub rows: Rows,
    pub chunks: Chunks,
    pub shared: *const Shared,
    pub number: usize,
    pub executor: Executor,
    pub defaults: Defaults,
    pub tolerance: Tolerance,
    pub rejects: Rejects,
    pub is_dry: bool,
    pub skip: u64,
    pub limit: u64,
    pub traits: Vec<(pg_sys::Oid, Traits)>,
    pub starts: Vec<u32>,
    pub stamp: Stamp,
    pub wide: Wide,
    pub counters: *const AtomicU64,
}

impl Process {
    /// Guarded.
    pub fn new(parts: Parts) -> Result<Process> {
        let Parts { rows, chunks, shared, number, executor, defaults, tolerance, .. } = parts;
        let Parts { rejects, is_dry, skip, limit, traits, starts, stamp, wide, counters, .. } = parts;
        let wanted = rows.all();
        let mut process = Process {
            rows,
            chunks,
            shared,
            number,
            target: std::ptr::null_mut(),
            executor,
            defaults,
            tolerance,
            rejects,
            pins: Pins::default(),
            memory: std::ptr::null_mut(),
            is_dry,
            skip_left: skip,
            records_left: u64::MAX,
            limit,
            not_null: Vec::new(),
            unset_not_null: Vec::new(),
            wanted,
            heaps: Vec::new(),
            by_oid: HashMap::new(),
            page_bytes: 0,
            traits,
            starts,
            stamp,
            wide,
            counters,
            form: FormBuffer::new(),
            last_leaf: (std::ptr::null_mut(), 0),
            filtered: 0,
            round: 0,
            unreported_rows: 0,
            reported: 0,
            phases: std::ptr::null_mut(),
            stages: Stages::new(),
        };
        if executor.routing.is_null() {
            // SAFETY: the executor's own structures.
            let relation = unsafe { (*executor.target).ri_RelationDesc };
            process.open_heap(relation)?;
            process.not_null = not_null(relation);
            let is_set = |i: &usize| process.rows.columns().iter().any(|c| !c.ignored && c.attribute == *i);
            process.unset_not_null = process.not_null.iter().copied().filter(|i| !is_set(i)).collect();
        }
        process.rows.decode_together(process.attributes(), &process.not_null);
        Ok(process)
    }

    pub fn shared(&self) -> &Shared {
        // SAFETY: set by who made the process; lives as long as it does.
        unsafe { &*self.shared }
    }

    fn heap_of(&self, oid: pg_sys::Oid) -> Option<usize> {
        self.by_oid.get(&oid.to_u32()).copied()
    }

    /// Read the file in order from a place on, and store nothing. Guarded.
    pub fn look_again(&mut self, place: Place) -> Result<()> {
        self.chunks = Chunks::InOrder;
        self.records_left = u64::MAX;
        self.is_dry = true;
        self.rejects.forget_spool();
        self.heaps.clear();
        self.wide.set_queues(Vec::new());
        self.rows.stream_mut().resume(place)
    }

    /// The heap of a relation that rows may go to. Guarded.
    pub fn open_heap(&mut self, relation: pg_sys::Relation) -> Result<usize> {
        if self.is_dry {
            return Ok(0);
        }
        // SAFETY: an open relation.
        let oid = unsafe { (*relation).rd_id };
        if let Some(index) = self.heap_of(oid) {
            return Ok(index);
        }
        let Some(index) = self.traits.iter().position(|(known, _)| *known == oid) else {
            // SAFETY: an open relation.
            let name = unsafe { std::ffi::CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()) };
            let message = format!("partition \"{}\" was attached while rows were being loaded", name.to_string_lossy());
            return Err(crate::error::Error::new(
                pgrx::PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
                message,
            ));
        };
        let Some(&(_, traits)) = self.traits.get(index) else { return Ok(0) };
        let mut heap = Heap::new(relation, traits, self.stamp)?;
        heap.index = index;
        if let Some(&start) = self.starts.get(index) {
            heap.start = start;
        }
        if !self.counters.is_null() {
            // SAFETY: there is a counter for each of the traits.
            heap.counter = unsafe { self.counters.add(index) };
        }
        self.page_bytes += heap.bytes();
        self.by_oid.insert(oid.to_u32(), self.heaps.len());
        self.heaps.push(heap);
        Ok(self.heaps.len() - 1)
    }

    fn arrays(&self) -> RowArrays {
        // SAFETY: a slot that lives as long as the executor's state.
        unsafe { RowArrays { values: (*self.executor.slot).tts_values, nulls: (*self.executor.slot).tts_isnull } }
    }

    /// Attributes of the target.
    fn attributes(&self) -> usize {
        // SAFETY: a slot that lives as long as the executor's state.
        unsafe { usize::try_from((*(*self.executor.slot).tts_tupleDescriptor).natts).unwrap_or(0) }
    }

    /// Must each row be looked at outside of [`step`]?
    fn is_plain(&self) -> bool {
        let e = &self.executor;
        e.checks || e.generated || e.leaf || !e.routing.is_null() || !e.condition.is_null() || self.defaults.evaluates()
    }

    /// Rows until one needs more than this can do. Guarded.
    pub fn advance(&mut self) -> Result<i32> {
        let is_plain = self.is_plain();
        let arrays = self.arrays();
        loop {
            self.round += 1;
            if self.round >= ROUND {
                self.round = 0;
                pgrx::check_for_interrupts!();
                if self.chunks.is_over(self.shared()) {
                    return Ok(END);
                }
                self.receive()?;
                self.show();
            }
            if self.limit == 0 || self.records_left == 0 {
                return Ok(END);
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
                    return Ok(END);
                }
                continue;
            }
            self.records_left -= 1;
            if self.skip_left > 0 {
                self.skip_left -= 1;
                continue;
            }
            if let Some(decoded) = self.rows.decoded() {
                // SAFETY: as long as the target's descriptor.
                unsafe { self.defaults.set(decoded) }?;
                // SAFETY: attributes of the same descriptor.
                let null = |&i: &usize| unsafe { *decoded.nulls.add(i) };
                if is_plain || self.unset_not_null.iter().any(null) {
                    self.rows.clear_queue();
                    // SAFETY: as above, both of them.
                    unsafe {
                        self.rows.make_datums(decoded)?;
                        arrays.copy_from(decoded, self.attributes());
                    }
                    return Ok(ROW);
                }
                self.add_decoded(decoded)?;
                continue;
            }
            self.rows.reset();
            // SAFETY: the slot's arrays are as long as the target's descriptor.
            unsafe { self.rows.decode(&self.wanted, arrays) };
            if self.tolerance.on_error != OnError::Stop && self.rows.has_queue() {
                // SAFETY: as above.
                let outcome = unsafe { self.rows.convert_softly(&mut self.tolerance, arrays, self.executor.econtext) }?;
                original::forget();
                if self.tolerance.bad_rows > 0 {
                    self.bad_value()?;
                }
                match outcome {
                    Outcome::Good => (),
                    Outcome::Raises => return Ok(ROW),
                    Outcome::LeftOut => {
                        // SAFETY: nothing of the row is needed any more; a guarded call.
                        unsafe { pg_sys::MemoryContextReset((*self.executor.econtext).ecxt_per_tuple_memory) };
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
                return Ok(SHORT);
            }
            // SAFETY: as above.
            unsafe { self.defaults.set(arrays) }?;
            // SAFETY: attributes of the same descriptor.
            let null = |&i: &usize| unsafe { *arrays.nulls.add(i) };
            if is_plain || self.rows.has_queue() || self.not_null.iter().any(null) {
                return Ok(ROW);
            }
            self.add(0, arrays)?;
        }
    }

    fn next_chunk(&mut self) -> Result<bool> {
        let Process { rows, chunks, shared, number, defaults, rejects, stages, .. } = self;
        self.round = ROUND;
        // SAFETY: as in `shared`.
        let shared = unsafe { &**shared };
        let mark = |stretch, place| rejects.mark(stretch, place);
        let more = chunks.next(rows, shared, *number, stages, |n| defaults.reserve(n), mark)?;
        if matches!(chunks, Chunks::InOrder) {
            defaults.refill();
        }
        Ok(more)
    }

    /// Tell the others how far we are.
    fn report(&mut self) {
        let bytes = self.rows.stream().bytes_read();
        self.shared().bytes.fetch_add(bytes.saturating_sub(self.reported), Relaxed);
        let rows = std::mem::take(&mut self.unreported_rows);
        self.shared().rows.fetch_add(rows, Relaxed);
        let filtered = std::mem::take(&mut self.filtered);
        self.shared().filtered.fetch_add(filtered, Relaxed);
        self.reported = bytes;
    }

    /// Show how far all are.
    pub fn show(&self) {
        // SAFETY: null, or the load's, which outlives its processes and which nobody else uses now.
        let Some(phases) = (unsafe { self.phases.as_mut() }) else { return };
        let shared = self.shared();
        let in_order = matches!(self.chunks, Chunks::InOrder);
        let unreported = if in_order { self.rows.stream().bytes_read() - self.reported } else { 0 };
        phases.show(|figures| {
            figures.bytes = shared.bytes.load(Relaxed) + unreported;
            figures.rows = shared.rows.load(Relaxed) + self.unreported_rows;
            figures.excluded = shared.filtered.load(Relaxed) + self.filtered;
            figures.rejected = shared.bad.load(Relaxed);
        });
    }

    /// From now on the file is read in chunks, and all count together. What was read of it beyond `place` will be read
    /// again. Before there are workers.
    ///
    /// # Safety
    /// What they share, for as long as this process works.
    pub unsafe fn hand_over(&mut self, shared: *const Shared, place: u64) {
        self.report();
        // SAFETY: the caller vouches for it.
        self.shared().move_counts(unsafe { &*shared }, place);
        self.reported = self.rows.stream().bytes_read();
        self.shared = shared;
    }

    /// Insert rows that workers have sent, some at a time. Guarded, and interruptible.
    fn receive(&mut self) -> Result<Sent> {
        // SAFETY: as in `shared`.
        let shared = unsafe { &*self.shared };
        for _ in 0..RECEIVED {
            let (oid, message) = match self.wide.receive() {
                Received::Row(oid, message) => (oid, message),
                Received::Reject(reject) => {
                    // SAFETY: what was received last.
                    self.rejects.keep_bytes(unsafe { &*reject });
                    continue;
                }
                Received::Nothing => return Ok(Sent::All),
                Received::Closed => return Ok(Sent::Closed),
            };
            pgrx::check_for_interrupts!();
            let index = match self.heap_of(oid) {
                Some(index) => index,
                None => {
                    // SAFETY: a relation that the leader has locked.
                    let relation = unsafe { pg_sys::table_open(oid, pg_sys::NoLock.cast_signed()) };
                    let index = self.open_heap(relation)?;
                    if let Some(heap) = self.heaps.get_mut(index) {
                        heap.is_owner = true;
                    }
                    index
                }
            };
            if let Some(heap) = self.heaps.get_mut(index) {
                // SAFETY: what was received last.
                unsafe { self.wide.store_received(heap, message, &shared.baton) }?;
            }
        }
        Ok(Sent::More)
    }

    /// Insert the rows that workers send, until all workers are done. Guarded, and interruptible.
    pub fn receive_all(&mut self) -> Result<()> {
        let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
        loop {
            match self.receive()? {
                Sent::Closed => return Ok(()),
                Sent::More => (),
                // SAFETY: guarded calls on this process's latch, which a queue sets when something was sent, or when its
                // sender is gone.
                Sent::All => unsafe {
                    pg_sys::WaitLatch(pg_sys::MyLatch, events.cast_signed(), SHOW, pg_sys::PG_WAIT_EXTENSION);
                    pg_sys::ResetLatch(pg_sys::MyLatch);
                    self.show();
                },
            }
            pgrx::check_for_interrupts!();
        }
    }

    /// The block from which on rows of a relation may have been put.
    pub fn start_of(&self, index: usize) -> u32 {
        self.starts.get(index).copied().unwrap_or(0)
    }

    /// Rows of a relation that were put before that block.
    pub fn elsewhere(&self, index: usize) -> Vec<pg_sys::ItemPointerData> {
        self.heaps.iter().filter(|heap| heap.index == index).flat_map(|heap| heap.elsewhere.iter().copied()).collect()
    }

    /// Rows of a relation that this process has put into it.
    pub fn rows_of(&self, index: usize) -> u64 {
        self.heaps.iter().filter(|heap| heap.index == index).map(|heap| heap.rows).sum()
    }

    /// Of these, rows that core has told the statistics of.
    pub fn counted_rows_of(&self, index: usize) -> u64 {
        self.heaps.iter().filter(|heap| heap.index == index).map(|heap| heap.counted).sum()
    }

    /// Let go of what heaps hold. Guarded.
    pub fn release(&mut self) {
        self.heaps.iter_mut().for_each(Heap::release);
    }

    /// Put a row into a heap. Guarded. The arrays are as long as the heap's descriptor, and hold values of its types.
    pub fn add(&mut self, heap: usize, arrays: RowArrays) -> Result<()> {
        self.count_row();
        // SAFETY: as in `shared`.
        let shared = unsafe { &*self.shared };
        let Some(destination) = self.heaps.get_mut(heap) else { return Ok(()) };
        let before = destination.bytes();
        // SAFETY: the caller's arrays.
        let added = unsafe { destination.add(arrays, &mut self.form, &shared.baton) }?;
        if added == Added::Wide {
            // SAFETY: as above.
            unsafe { self.wide.add(destination, arrays, &shared.baton) }?;
        }
        let after = destination.bytes();
        self.follow_bytes(before, after)
    }

    /// Put a row that was decoded together with others into the target's heap. Guarded.
    #[inline]
    fn add_decoded(&mut self, arrays: RowArrays) -> Result<()> {
        self.count_row();
        // SAFETY: as in `shared`.
        let shared = unsafe { &*self.shared };
        let Some(destination) = self.heaps.first_mut() else { return Ok(()) };
        let before = destination.bytes();
        // SAFETY: the rows' arrays, and what they say of them.
        let added = unsafe { destination.add_decoded(self.rows.sources(), arrays, &mut self.form, &shared.baton) }?;
        if added == Added::Wide {
            // SAFETY: as above; then they hold datums.
            unsafe {
                self.rows.make_datums(arrays)?;
                self.wide.add(destination, arrays, &shared.baton)?;
            }
        }
        let after = destination.bytes();
        self.follow_bytes(before, after)
    }

    #[inline]
    fn count_row(&mut self) {
        self.limit -= 1;
        self.unreported_rows += 1;
    }

    /// A heap that took so many bytes takes so many now. Guarded.
    #[inline]
    fn follow_bytes(&mut self, before: usize, after: usize) -> Result<()> {
        if after == before {
            return Ok(());
        }
        self.page_bytes += after - before;
        self.relieve()
    }

    /// Append the largest batches while all together are too large; half of what is allowed stays, so that this is not
    /// to be done again for the next row. Guarded.
    fn relieve(&mut self) -> Result<()> {
        // SAFETY: as in `shared`.
        let shared = unsafe { &*self.shared };
        let most = MOST_BYTES.max(self.heaps.len() * LEAST_PAGES * pg_sys::BLCKSZ as usize);
        if self.page_bytes <= most {
            return Ok(());
        }
        let mut heaps: Vec<&mut Heap> = self.heaps.iter_mut().filter(|heap| heap.has_pages()).collect();
        heaps.sort_by_key(|heap| std::cmp::Reverse(heap.bytes()));
        for heap in heaps {
            if self.page_bytes <= most / 2 {
                break;
            }
            let before = heap.bytes();
            heap.append(&shared.baton)?;
            heap.shrink();
            self.page_bytes -= before - heap.bytes();
        }
        Ok(())
    }

    /// Append all that is left. Guarded.
    pub fn finish(&mut self) -> Result<()> {
        // SAFETY: as in `shared`.
        let shared = unsafe { &*self.shared };
        self.report();
        self.show();
        shared.rest(self.number);
        // Rows that the others cannot see yet may be few; without others, all rows there are may be.
        let alone = self.number == 0 && matches!(self.chunks, Chunks::InOrder);
        // SAFETY: the executor's own memory, which outlives the heaps.
        let memory = unsafe { (*self.executor.estate).es_query_cxt };
        let mut watch = self.stages.watch();
        for heap in &mut self.heaps {
            if alone {
                heap.finish_small(memory, &shared.baton)?;
            } else {
                heap.finish(&shared.baton)?;
            }
        }
        self.stages.lap(&mut watch, Stage::Rows);
        self.account();
        Ok(())
    }

    /// Say what was written, and where the time went.
    fn account(&mut self) {
        let mut stages = std::mem::replace(&mut self.stages, Stages::new());
        let mut pages = 0;
        for heap in &mut self.heaps {
            let appended = heap.take_appended();
            pages += appended.pages;
            stages.merge(&appended.stages);
        }
        stages.set_rest(Stage::Rows);
        self.shared().account(pages, &stages);
    }
}

/// Attributes that must not be NULL.
fn not_null(relation: pg_sys::Relation) -> Vec<usize> {
    // SAFETY: an open relation; its descriptor has natts attributes.
    unsafe {
        let descriptor = (*relation).rd_att;
        let natts = usize::try_from((*descriptor).natts).unwrap_or(0);
        (0..natts).filter(|&i| (*crate::pg::compat::attribute(descriptor, i)).attnotnull).collect()
    }
}
