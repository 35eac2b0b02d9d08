//! Index tuples of rows, in the sort order of their index.
//!
//! ```text
//!   page ─► row ─► predicate ─► expressions ─► index tuple ─► tuplesort
//! ```
//!
//! Predicates, expressions and comparisons may be user code, so they run as the table's owner. Those of a row run in
//! plain frames; the sort at the end is one guarded call. The user is switched for a page of rows or more at a time,
//! since the switch costs more than a row.

use pgrx::pg_sys;

use super::shared_sorts::{Role, SharedSort};
use crate::heap::removal::row_of;
use crate::server::elsewhere::Elsewhere;
use crate::server::memory_context::MemoryContext;
use crate::server::owner::as_owner;
use crate::server::relation::{OpenRelation, Relation};
use crate::server::unguarded::{self as c, guard};

/// Smallest memory that a sort accepts, in kB (tuplesort.c).
pub const LEAST_MEMORY: i32 = 64;

const MOST_KEYS: usize = pg_sys::INDEX_MAX_KEYS as usize;
const BLCKSZ: usize = pg_sys::BLCKSZ as usize;
/// SizeOfPageHeaderData (bufpage.h)
const PAGE_HEADER: usize = std::mem::offset_of!(pg_sys::PageHeaderData, pd_linp);
/// LP_NORMAL (itemid.h)
const NORMAL: u32 = pg_sys::LP_NORMAL;
/// Bytes of rows that wait to be processed together.
const WAITING: usize = 64 * 1024;

/// Rows of one process, as tuples of one index.
#[derive(Debug)]
pub struct TupleSort {
    heap: Relation<'static>,
    /// None once it is closed.
    index: Option<Relation<'static>>,
    /// Null until there is a row.
    info: *mut pg_sys::IndexInfo,
    estate: *mut pg_sys::EState,
    slot: *mut pg_sys::TupleTableSlot,
    /// None until there is a row, and after all rows are sorted.
    sort: Option<BegunSort>,
    /// Memory of the sort, in kB.
    memory: i32,
    /// Memory context of all parts.
    context: MemoryContext,
    shared: Option<SharedSort>,
    /// Set while messages concern index entries, and not the current line.
    elsewhere: Elsewhere,
    /// Rows that the sort was given.
    rows: u64,
    /// Rows that wait to be given to the sort.
    waiting: Vec<(pg_sys::ItemPointerData, Vec<u8>)>,
    waiting_bytes: usize,
}

/// A sort of the server that was begun, and not ended.
#[derive(Debug)]
pub struct BegunSort(*mut pg_sys::Tuplesortstate);

impl BegunSort {
    /// Begins to sort tuples of an index: alone, as a participant of a shared sort, or to merge those of all
    /// participants. Guarded; allocates in the current memory context.
    pub fn begin(
        heap: Relation<'_>,
        index: Relation<'_>,
        memory: i32,
        shared: Option<(SharedSort, Role)>,
    ) -> BegunSort {
        let (unique, nulls, options) = (false, false, 0);
        let mut coordinate = shared.map(|(shared, role)| shared.coordinates(role));
        let coordinate = coordinate.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        let (heap, index) = (heap.as_ptr(), index.as_ptr());
        // SAFETY: a guarded call on open relations, which copies the coordinates.
        BegunSort(unsafe {
            pg_sys::tuplesort_begin_index_btree(heap, index, unique, nulls, memory, coordinate, options)
        })
    }

    /// Sorts the tuples. Guarded.
    pub fn perform(&mut self) {
        // SAFETY: a guarded call on a sort that has not ended.
        unsafe { pg_sys::tuplesort_performsort(self.0) }
    }

    /// Frees the tuples. Guarded.
    pub fn end(self) {
        // SAFETY: a guarded call on a sort that has not ended.
        unsafe { pg_sys::tuplesort_end(self.0) }
    }

    /// Returns the pointer for functions of the server.
    pub fn as_ptr(&self) -> *mut pg_sys::Tuplesortstate {
        self.0
    }
}

impl TupleSort {
    /// Starts for a B-tree of a table, which this process has locked, with `memory` bytes for the sort. Guarded; all
    /// memory is in the current memory context.
    pub fn new(
        heap: Relation<'static>,
        index: pg_sys::Oid,
        memory: usize,
        shared: Option<SharedSort>,
        elsewhere: Elsewhere,
    ) -> TupleSort {
        let index = OpenRelation::open(index, pg_sys::AccessShareLock).keep();
        TupleSort {
            heap,
            // SAFETY: the relation stays open until `close`.
            index: Some(unsafe { Relation::from_raw(index) }),
            info: std::ptr::null_mut(),
            estate: std::ptr::null_mut(),
            slot: std::ptr::null_mut(),
            sort: None,
            memory: i32::try_from(memory / 1024).unwrap_or(i32::MAX),
            context: MemoryContext::current(),
            shared,
            elsewhere,
            rows: 0,
            waiting: Vec::new(),
            waiting_bytes: 0,
        }
    }

    /// Makes this process a participant of a shared sort, before any row was given to the sort.
    pub fn share(&mut self, sort: SharedSort) {
        if self.sort.is_none() {
            self.shared = Some(sort);
        }
    }

    /// The shared sort, if this process participates in one.
    pub fn shared(&self) -> Option<SharedSort> {
        self.shared
    }

    /// Rows that this process has seen since it last sorted.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds the rows of pages that are in the table, from this block on. Guarded.
    pub fn add_pages(&mut self, pages: &[u8], first: u32) {
        self.put(self.heap, pages, first, &[]);
    }

    /// Adds a row that is in the table. Guarded.
    pub fn add_tuple(&mut self, tuple: &[u8], tid: pg_sys::ItemPointerData) {
        if self.waiting_bytes > WAITING {
            self.flush();
        }
        self.waiting_bytes += tuple.len();
        self.waiting.push((tid, tuple.to_vec()));
    }

    /// Bytes that the sort may use now.
    pub fn memory(&self) -> usize {
        if self.sort.is_none() { 0 } else { usize::try_from(self.memory).unwrap_or(0) * 1024 }
    }

    /// Processes the waiting rows. Guarded.
    pub fn flush(&mut self) {
        self.flush_of(self.heap);
    }

    fn flush_of(&mut self, heap: Relation<'_>) {
        if !self.waiting.is_empty() {
            let waiting = std::mem::take(&mut self.waiting);
            self.waiting_bytes = 0;
            self.put(heap, &[], 0, &waiting);
        }
    }

    /// Gives rows of pages, from block `first` on, and a list of rows to the sort.
    fn put(&mut self, heap: Relation<'_>, pages: &[u8], first: u32, list: &[(pg_sys::ItemPointerData, Vec<u8>)]) {
        let Some(index) = self.index else { return };
        let elsewhere = self.elsewhere.clone();
        elsewhere.during(|| {
            as_owner(heap, || {
                let sort = self.prepare(heap, index);
                let (info, slot, estate) = (self.info, self.slot, self.estate);
                let mut rows = 0;
                // SAFETY: `prepare` has made the executor state. Pages are complete, and all items on them are tuples
                // of the table, as are those of the list. The arrays have space for the keys of any index. The closure
                // owns nothing.
                unsafe {
                    let econtext = (*estate).es_per_tuple_exprcontext;
                    let mut header = pg_sys::HeapTupleData { t_tableOid: heap.oid(), ..Default::default() };
                    let mut add = |tuple: *const u8, len: u32, tid: pg_sys::ItemPointerData| {
                        (header.t_len, header.t_data, header.t_self) = (len, tuple.cast_mut().cast(), tid);
                        let old = pg_sys::CurrentMemoryContext;
                        pg_sys::CurrentMemoryContext = (*econtext).ecxt_per_tuple_memory;
                        c::ExecStoreHeapTuple(&raw mut header, slot, false);
                        (*econtext).ecxt_scantuple = slot;
                        if c::exec_qual((*info).ii_PredicateState, econtext) {
                            let mut values = [pg_sys::Datum::from(0usize); MOST_KEYS];
                            let mut nulls = [false; MOST_KEYS];
                            let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
                            c::FormIndexDatum(info, slot, estate, values, nulls);
                            let tid = &raw mut header.t_self;
                            c::tuplesort_putindextuplevalues(sort, index.as_ptr(), tid, values, nulls);
                        }
                        rows += 1;
                        pg_sys::CurrentMemoryContext = old;
                        c::clear_virtual(slot);
                        c::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
                    };
                    guard(|| {
                        for (page, block) in pages.chunks_exact(BLCKSZ).zip(first..) {
                            c::check_for_interrupts();
                            let page = page.as_ptr();
                            let lower = usize::from((*page.cast::<pg_sys::PageHeaderData>()).pd_lower);
                            let items = page.add(PAGE_HEADER).cast::<pg_sys::ItemIdData>();
                            for item in 0..lower.saturating_sub(PAGE_HEADER) / size_of::<pg_sys::ItemIdData>() {
                                let id = items.add(item);
                                if (*id).lp_flags() == NORMAL {
                                    let tid = row_of(u64::from(block) << 16 | (item as u64 + 1));
                                    add(page.add((*id).lp_off() as usize), (*id).lp_len(), tid);
                                }
                            }
                        }
                        for (tid, tuple) in list {
                            add(tuple.as_ptr(), tuple.len() as u32, *tid);
                        }
                    });
                }
                self.rows += rows;
            });
        });
    }

    /// Creates the executor state, and begins the sort. As the table's owner. Guarded.
    fn prepare(&mut self, heap: Relation<'_>, index: Relation<'_>) -> *mut pg_sys::Tuplesortstate {
        let _entered = self.context.enter();
        // SAFETY: guarded calls, whose results live in this memory context; relations are open until the sort is
        // closed.
        unsafe {
            if self.estate.is_null() {
                self.info = pg_sys::BuildIndexInfo(index.as_ptr());
                let (descriptor, operations) = (heap.descriptor().as_ptr(), &raw const pg_sys::TTSOpsHeapTuple);
                self.slot = pg_sys::MakeSingleTupleTableSlot(descriptor, operations);
                self.estate = pg_sys::CreateExecutorState();
                // GetPerTupleExprContext (executor.h)
                pg_sys::MakePerTupleExprContext(self.estate);
                if !(*self.info).ii_Predicate.is_null() {
                    (*self.info).ii_PredicateState = pg_sys::ExecPrepareQual((*self.info).ii_Predicate, self.estate);
                }
            }
            // A participant of a shared sort begins another sort if it gets more rows after it has sorted.
            let (memory, shared) = (self.memory, self.shared);
            let sort = self.sort.get_or_insert_with(|| {
                BegunSort::begin(heap, index, memory, shared.map(|shared| (shared, Role::Participant)))
            });
            sort.as_ptr()
        }
    }

    /// Sorts the rows added so far. Those of a shared sort are left to the leader. Guarded.
    pub fn finish(&mut self) {
        self.finish_for(self.heap);
    }

    /// Sorts like [`Self::finish`], after the table was opened again. Guarded.
    pub fn finish_for(&mut self, heap: Relation<'_>) {
        self.flush_of(heap);
        let Some(mut sort) = self.sort.take() else { return };
        self.elsewhere.during(|| as_owner(heap, || sort.perform()));
        match self.shared {
            Some(shared) => {
                sort.end();
                shared.count(std::mem::take(&mut self.rows));
            }
            None => self.sort = Some(sort),
        }
    }

    /// Takes the sort of this process alone; None for a shared sort, or without rows.
    pub fn take(&mut self) -> Option<BegunSort> {
        self.sort.take()
    }

    /// Closes the index; sorted tuples stay. No rows may be added afterwards. Guarded.
    pub fn close(&mut self) {
        let Some(index) = self.index.take() else { return };
        // SAFETY: guarded calls; `new` has opened the index, and `prepare` has made the rest.
        unsafe {
            if !self.estate.is_null() {
                pg_sys::ExecDropSingleTupleTableSlot(self.slot);
                pg_sys::FreeExecutorState(self.estate);
            }
            pg_sys::index_close(index.as_ptr(), pg_sys::NoLock.cast_signed());
        }
    }

    /// Frees the sorted tuples, and closes the index. Guarded.
    pub fn end(&mut self) {
        if let Some(sort) = self.take() {
            sort.end();
        }
        self.waiting = Vec::new();
        self.close();
    }
}
