//! A heap that a load appends rows to: tuples are formed and collected in pages, which are appended in batches.
//!
//! A partial page is never filled up once it is in the file. It is kept in memory for the next batch.
//!
//! Rows that TOAST must shorten are [wide](super::wide). With logical decoding, a row with out-of-line values is
//! inserted by heap_insert, which only the leader may call. heap_insert extends the table by itself, so the leader
//! holds the append lock meanwhile. Then no other process of the load requests an extension lock, or extends a table
//! that is new in this transaction, for which core takes no extension lock. The append lock also keeps other WAL
//! records from between a row's out-of-line values and the row.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pg_bulk_storage::page::{PAGE_SIZE, PageBatch};
use pg_bulk_storage::tuple::{FormBuffer, Formed, Layout, MAX_TUPLE_SIZE, Stamp, TOAST_TUPLE_THRESHOLD, Unfit};
use pg_bulk_types::block::ColumnForm;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::origin::{Origin, Trail};
use crate::error::{Error, Result};
use crate::guc;
use crate::heap::append::{Appended, Appender, Traits};
use crate::heap::append_lock::AppendLock;
use crate::heap::toast::FormedTuple;
use crate::index::index_keys::Collector;
use crate::rows::row::RowArrays;
use crate::server::memory_context::MemoryContext;
use crate::server::relation::{KeptRelation, Relation};
use crate::server::slot::Row;
use crate::server::stages::{Stage, Stages, Watch};
use crate::server::tuple_layout::attributes;

/// Fewer pages than this are inserted through shared buffers.
const SMALL: usize = 64;
/// Tuples in one call of heap_multi_insert.
const MULTI: usize = 500;
/// Divisor of a full batch: with several appending processes, from that part of it on a process appends as soon as the
/// append lock is free. So a process waits for another one only when its batch is full.
const EARLY: usize = 2;
/// Pages whose keys all indexes get before the next pages.
const TOGETHER: usize = 16;

/// The rows of one relation.
#[derive(Debug)]
pub struct Heap {
    relation: Relation<'static>,
    layout: Layout,
    batch: PageBatch,
    /// Number of complete pages from which on the batch is appended as soon as the append lock is free.
    early: usize,
    appender: Appender,
    stamp: Stamp,
    /// The rows that were put into the relation.
    pub written: Appends,
    bulk: pg_sys::BulkInsertState,
    /// Outlives the heap.
    memory: MemoryContext,
    /// Keeps the relation open, if nothing else does.
    kept: Option<KeptRelation>,
    /// Time of forming tuples and pages.
    stages: Stages,
    /// Collectors of its indexes that are built after the rows.
    pub collectors: Vec<Collector>,
    /// Tuple positions of its rows, if errors may need them.
    pub trail: Option<Trail>,
    /// The batch contains rows with out-of-line values, which core would store a second time.
    external: bool,
}

/// The rows that a process has put into a relation.
#[derive(Debug)]
pub struct Appends {
    /// Index of the relation among the load's relations.
    pub index: usize,
    pub rows: u64,
    /// Of these, rows that core has inserted and counted in the statistics.
    pub counted: u64,
    /// First block of the load's rows, except for those in `elsewhere`.
    start: u32,
    /// Rows that core put before `start`.
    pub elsewhere: Vec<pg_sys::ItemPointerData>,
    /// Shared counter of appended rows.
    counter: Option<&'static AtomicU64>,
}

impl Appends {
    /// No rows yet, behind the block `start`. `counter` also counts appended rows.
    pub fn new(index: usize, start: u32, counter: Option<&'static AtomicU64>) -> Appends {
        Appends { index, rows: 0, counted: 0, start, elsewhere: Vec::new(), counter }
    }

    /// Counts rows of pages that were appended.
    fn append(&mut self, rows: u64) {
        self.rows += rows;
        if let Some(counter) = self.counter {
            counter.fetch_add(rows, Relaxed);
        }
    }

    /// Counts a row that core has inserted.
    fn insert(&mut self, tid: pg_sys::ItemPointerData) {
        self.rows += 1;
        self.counted += 1;
        if block_of(&tid) < self.start {
            self.elsewhere.push(tid);
        }
    }
}

/// Result of adding a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    Stored,
    /// The row is wide: TOAST must shorten it.
    Wide,
}

impl Heap {
    /// The relation, which is open as long as the heap.
    pub const fn relation(&self) -> Relation<'static> {
        self.relation
    }

    /// Lets the heap close its relation.
    pub fn own(&mut self, relation: KeptRelation) {
        self.kept = Some(relation);
    }

    /// Makes a heap for an open relation. `stamp` is written to the tuples' headers; `memory` outlives the heap. Guarded.
    pub fn new(
        relation: Relation<'static>,
        traits: Traits,
        stamp: Stamp,
        written: Appends,
        memory: MemoryContext,
    ) -> Result<Heap> {
        let attributes = attributes(relation.descriptor());
        let out_of_memory = || Error::new(Code::ERRCODE_OUT_OF_MEMORY, "out of memory");
        let layout = Layout::new(&attributes, stamp, TOAST_TUPLE_THRESHOLD).ok_or_else(out_of_memory)?;
        let batch = PageBatch::new(guc::batch_pages(), reserve(relation), stamp.frozen).ok_or_else(out_of_memory)?;
        Ok(Heap {
            relation,
            layout,
            batch,
            early: usize::MAX,
            appender: Appender::new(relation, traits, stamp.frozen)?,
            stamp,
            written,
            bulk: std::ptr::null_mut(),
            memory,
            kept: None,
            stages: Stages::new(),
            collectors: Vec::new(),
            trail: None,
            external: false,
        })
    }

    /// Adds a row. Guarded.
    #[inline]
    pub fn add(
        &mut self,
        row: Row<'_>,
        origin: Origin,
        form: &mut FormBuffer,
        append_lock: &AppendLock,
    ) -> Result<Added> {
        self.append_early(append_lock)?;
        let (formed, watch) = self.form(row, form);
        self.add_formed(formed, origin, append_lock, watch)
    }

    /// Forms the tuple of a row. A row of another relation counts as wide, and cannot be stored either. Raises nothing.
    #[inline(always)]
    fn form<'f>(&mut self, row: Row<'_>, form: &'f mut FormBuffer) -> (Formed<'f>, Watch) {
        let mut watch = self.stages.sample();
        if row.relation() != self.relation {
            return (Formed::External, watch);
        }
        let (values, nulls) = (row.arrays().values().cast_const().cast(), row.arrays().nulls().cast_const());
        // SAFETY: a row of the relation, whose layout this is; a datum is a usize.
        let formed = unsafe { self.layout.form(values, nulls, form) };
        self.stages.lap_sample(&mut watch, Stage::Tuple);
        (formed, watch)
    }

    /// Adds a row that was decoded in a block. Guarded.
    ///
    /// # Safety
    /// The arrays have a value for each attribute of the relation, in the form that `column_forms` names.
    #[inline]
    pub unsafe fn add_decoded(
        &mut self,
        column_forms: &[ColumnForm],
        arrays: RowArrays,
        origin: Origin,
        form: &mut FormBuffer,
        append_lock: &AppendLock,
    ) -> Result<Added> {
        self.append_early(append_lock)?;
        let (values, nulls) = (arrays.values().cast_const().cast(), arrays.nulls().cast_const());
        let mut watch = self.stages.sample();
        // SAFETY: values of the relation's attributes in these forms; a datum is a usize.
        let formed = unsafe { self.layout.form_decoded(column_forms, values, nulls, form) };
        self.stages.lap_sample(&mut watch, Stage::Tuple);
        self.add_formed(formed, origin, append_lock, watch)
    }

    /// Adds a row if the current page has room for it. Raises nothing.
    #[inline]
    pub fn add_at_once(&mut self, row: Row<'_>, origin: Origin, form: &mut FormBuffer) -> bool {
        let (formed, watch) = self.form(row, form);
        let Formed::Tuple(tuple) = formed else { return false };
        let place = self.batch.add_here(tuple);
        self.is_put(place, origin, watch)
    }

    /// Adds an already formed tuple if it can be stored unchanged and the current page has room. Raises nothing.
    #[inline]
    pub fn add_given_at_once(&mut self, given: &[u8], origin: Origin) -> std::result::Result<(), Unfit> {
        let mut watch = self.stages.sample();
        let header = self.layout.header_for(given);
        self.stages.lap_sample(&mut watch, Stage::Tuple);
        let header = header?;
        let place = self.batch.add_with_header(given, &header);
        if self.is_put(place, origin, watch) { Ok(()) } else { Err(Unfit::Apart) }
    }

    /// Notes the tuple position of a tuple that was put on a page; false if there was no room. Raises nothing.
    #[inline]
    fn is_put(&mut self, place: Option<(u32, u16)>, origin: Origin, mut watch: Watch) -> bool {
        let Some((page, offset)) = place else { return false };
        self.stages.lap_sample(&mut watch, Stage::Page);
        if let Some(trail) = &mut self.trail {
            trail.follow(page, offset, origin);
        }
        true
    }

    /// Appends the complete pages if there are enough and the append lock is free. Guarded.
    #[inline]
    fn append_early(&mut self, append_lock: &AppendLock) -> Result<()> {
        if self.batch.complete() >= self.early && append_lock.is_free() { self.append(append_lock) } else { Ok(()) }
    }

    #[inline]
    fn add_formed(
        &mut self,
        formed: Formed<'_>,
        origin: Origin,
        append_lock: &AppendLock,
        mut watch: Watch,
    ) -> Result<Added> {
        let Formed::Tuple(tuple) = formed else { return Ok(Added::Wide) };
        let place = self.batch.add(tuple);
        self.stages.lap_sample(&mut watch, Stage::Page);
        self.follow(tuple, place, origin, append_lock)?;
        Ok(Added::Stored)
    }

    /// Notes the tuple position of a tuple. If there was no room, appends the batch and adds the tuple again. Guarded.
    #[inline]
    fn follow(
        &mut self,
        tuple: &[u8],
        place: Option<(u32, u16)>,
        origin: Origin,
        append_lock: &AppendLock,
    ) -> Result<()> {
        let mut place = place;
        if place.is_none() {
            self.append(append_lock)?;
            // The batch has room now, because a tuple is shorter than a page.
            place = self.batch.add(tuple);
        }
        if let Some(trail) = &mut self.trail
            && let Some((page, offset)) = place
        {
            trail.follow(page, offset, origin);
        }
        Ok(())
    }

    /// Must core insert rows with out-of-line values?
    pub fn is_logical(&self) -> bool {
        self.appender.traits().logical
    }

    /// Options of heap_insert for out-of-line values.
    pub fn insert_options(&self) -> i32 {
        if self.stamp.frozen { pg_sys::HEAP_INSERT_FROZEN.cast_signed() } else { 0 }
    }

    /// Adds a row that the toaster has shortened. Writes its header. Guarded.
    pub fn add_tuple(&mut self, tuple: FormedTuple, origin: Origin, append_lock: &AppendLock) -> Result<()> {
        let tuple = tuple.of(self.relation)?;
        // SAFETY: a tuple of the relation. The same fields as in heap_prepare_insert (heapam.c).
        unsafe {
            let header = (*tuple.as_ptr()).t_data;
            let heap = &raw mut (*header).t_choice.t_heap;
            (*heap).t_xmin = self.stamp.xmin.into();
            (*heap).t_xmax = pg_sys::InvalidTransactionId;
            (*heap).t_field3.t_cid = self.stamp.cid;
            self.external |= (*header).t_infomask & pg_sys::HEAP_HASEXTERNAL as u16 != 0;
            (*header).t_infomask &= !(pg_sys::HEAP_XACT_MASK as u16);
            (*header).t_infomask |= pg_sys::HEAP_XMAX_INVALID as u16;
            (*header).t_infomask2 &= !(pg_sys::HEAP2_XACT_MASK as u16);
            if self.stamp.frozen {
                (*header).t_infomask |= pg_sys::HEAP_XMIN_FROZEN as u16;
            }
        }
        let bytes = tuple.bytes();
        if bytes.len() > MAX_TUPLE_SIZE {
            return Err(too_big(bytes.len()));
        }
        let place = self.batch.add(bytes);
        self.follow(bytes, place, origin, append_lock)
    }

    /// Memory of its pages, in bytes.
    pub fn bytes(&self) -> usize {
        self.batch.allocated()
    }

    /// Frees memory of empty pages. After [`Heap::append`].
    pub fn shrink(&mut self) {
        self.batch.shrink();
    }

    /// Is there a complete page?
    pub fn has_pages(&self) -> bool {
        self.batch.complete() > 0
    }

    /// Appends the complete pages. Guarded.
    pub fn append(&mut self, append_lock: &AppendLock) -> Result<()> {
        if self.batch.complete() > 0 {
            let first = self.appender.append(&mut self.batch, append_lock)?;
            // Only where batches need no WAL flush; otherwise few large batches are faster.
            if self.appender.is_contended() && !self.appender.traits().existed {
                self.early = guc::batch_pages() / EARLY;
            }
            self.collect_keys(first)?;
            if let Some(trail) = &mut self.trail {
                trail.place(first, u32::try_from(self.batch.complete()).unwrap_or(u32::MAX));
            }
            self.written.append(self.batch.rows());
            self.batch.take_full();
        }
        Ok(())
    }

    /// Collects the keys of pages that were appended from block `first` on.
    ///
    /// All indexes get a page while it is in the processor's cache. Collectors that form index tuples take many pages
    /// at once. Guarded.
    fn collect_keys(&mut self, first: u32) -> Result<()> {
        let pages = self.batch.pages();
        let size = if self.collectors.iter().any(Collector::holds_index) { pages.len() } else { TOGETHER * PAGE_SIZE };
        for (pages, number) in pages.chunks(size.max(1)).zip(0u32..) {
            for collector in &mut self.collectors {
                collector.add_pages(pages, first + number * TOGETHER as u32)?;
            }
        }
        Ok(())
    }

    /// The counts of appends since the last call.
    pub fn take_appended(&mut self) -> Appended {
        self.appender.take_appended()
    }

    /// The time of stages since the last call.
    pub fn take_stages(&mut self) -> Stages {
        std::mem::replace(&mut self.stages, Stages::new())
    }

    /// Appends all rows, with a partial last page. Guarded.
    pub fn finish(&mut self, append_lock: &AppendLock) -> Result<()> {
        self.batch.finish();
        self.append(append_lock)
    }

    /// Inserts the rows through shared buffers if they are few and nothing was appended before.
    ///
    /// An append would cost a half-empty page and a WAL flush, too much for few rows. Only in the leader. Guarded.
    pub fn finish_small(&mut self, append_lock: &AppendLock) -> Result<()> {
        let pages = self.batch.finish();
        if pages >= SMALL || self.written.rows > 0 || self.external {
            return self.append(append_lock);
        }
        let held = append_lock.take();
        let mut places = Vec::new();
        let entered = self.memory.enter();
        let relation = self.relation.as_ptr();
        // SAFETY: guarded calls on an open relation. Slots and tuples point into the batch, which is cleared after
        // heap_multi_insert has copied the tuples; before that it writes their headers.
        unsafe {
            let descriptor = self.relation.descriptor().as_ptr();
            let slot = |_| pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsHeapTuple);
            let most = usize::try_from(self.batch.rows()).unwrap_or(MULTI).min(MULTI);
            let mut slots: Vec<*mut pg_sys::TupleTableSlot> = (0..most).map(slot).collect();
            let mut headers = vec![pg_sys::HeapTupleData::default(); most];
            let mut tuples = self.batch.all_tuples();
            loop {
                let mut count = 0;
                for ((header, &slot), (_, _, tuple)) in headers.iter_mut().zip(&slots).zip(&mut tuples) {
                    header.t_len = u32::try_from(tuple.len()).unwrap_or(0);
                    header.t_data = tuple.as_ptr().cast_mut().cast();
                    header.t_tableOid = self.relation.oid();
                    pg_sys::ExecStoreHeapTuple(&raw mut *header, slot, false);
                    count += 1;
                }
                if count == 0 {
                    break;
                }
                self.forget_target();
                let options = self.insert_options();
                let (few, nothing) = (i32::try_from(count).unwrap_or(0), std::ptr::null_mut());
                pg_sys::heap_multi_insert(relation, slots.as_mut_ptr(), few, self.stamp.cid, options, nothing);
                for (&slot, header) in slots.iter().zip(&headers).take(count) {
                    let tid = (*slot).tts_tid;
                    let bytes =
                        std::slice::from_raw_parts(header.t_data.cast::<u8>().cast_const(), header.t_len as usize);
                    self.collectors.iter_mut().try_for_each(|collector| collector.add_tuple(bytes, tid))?;
                    self.written.insert(tid);
                    if self.trail.is_some() {
                        places.push((block_of(&tid), tid.ip_posid));
                    }
                    pg_sys::ExecClearTuple(slot);
                }
            }
            for slot in slots {
                pg_sys::ExecDropSingleTupleTableSlot(slot);
            }
        }
        drop(entered);
        drop(held);
        if let Some(trail) = &mut self.trail {
            trail.place_each(places.into_iter());
        }
        self.batch.clear();
        Ok(())
    }

    /// Makes core look for a page with room again. Guarded.
    fn forget_target(&self) {
        // SAFETY: RelationSetTargetBlock (rel.h), for an open relation.
        unsafe { (*pg_sys::RelationGetSmgr(self.relation.as_ptr())).smgr_targblock = pg_sys::InvalidBlockNumber };
    }

    /// Inserts a row through shared buffers, with TOAST. Only in the leader. Guarded.
    pub fn insert(&mut self, tuple: FormedTuple, origin: Origin, append_lock: &AppendLock) -> Result<()> {
        let tuple = tuple.of(self.relation)?;
        let held = append_lock.take();
        // SAFETY: guarded calls on an open relation, and a tuple of it. Without the free space
        // map, the row is put on the file's last page, or behind it.
        let tid = unsafe {
            if self.bulk.is_null() {
                let _entered = self.memory.enter();
                self.bulk = pg_sys::GetBulkInsertState();
            }
            self.forget_target();
            let options = pg_sys::HEAP_INSERT_SKIP_FSM.cast_signed() | self.insert_options();
            pg_sys::heap_insert(self.relation.as_ptr(), tuple.as_ptr(), self.stamp.cid, options, self.bulk);
            (*tuple.as_ptr()).t_self
        };
        self.written.insert(tid);
        if let Some(trail) = &mut self.trail {
            trail.place_one(block_of(&tid), tid.ip_posid, origin);
        }
        drop(held);
        // Without the append lock, since user-defined functions may run.
        self.collectors.iter_mut().try_for_each(|collector| collector.add_tuple(tuple.bytes(), tid))
    }

    /// Releases what [`Heap::insert`] holds. Guarded.
    pub fn release(&mut self) {
        let bulk = std::mem::replace(&mut self.bulk, std::ptr::null_mut());
        if !bulk.is_null() {
            // SAFETY: made by GetBulkInsertState.
            unsafe { pg_sys::FreeBulkInsertState(bulk) };
        }
        // Collectors that were not taken.
        self.collectors.iter_mut().for_each(|collector| collector.close());
        if let Some(relation) = self.kept.take() {
            relation.close();
        }
    }
}

/// The block of a row.
pub fn block_of(tid: &pg_sys::ItemPointerData) -> u32 {
    (u32::from(tid.ip_blkid.bi_hi) << 16) | u32::from(tid.ip_blkid.bi_lo)
}

/// Free bytes to leave on each page: RelationGetTargetPageFreeSpace (rel.h) with a heap's default fillfactor.
fn reserve(relation: Relation<'_>) -> usize {
    // SAFETY: an open relation; a heap's options are StdRdOptions.
    let fillfactor = unsafe {
        let options = (*relation.as_ptr()).rd_options.cast::<pg_sys::StdRdOptions>();
        if options.is_null() { pg_sys::HEAP_DEFAULT_FILLFACTOR.cast_signed() } else { (*options).fillfactor }
    };
    let percent = 100 - usize::try_from(fillfactor.clamp(10, 100)).unwrap_or(100);
    pg_sys::BLCKSZ as usize * percent / 100
}

/// The error of a record whose tuple does not fit into a page.
pub(super) fn too_big(size: usize) -> Error {
    let (size, most) = (size.next_multiple_of(8), MAX_TUPLE_SIZE);
    let message = format!("row is too big: size {size}, maximum size {most}");
    Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message).about_record()
}
