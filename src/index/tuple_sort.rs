//! Index tuples of rows, in the sort order of their index.
//!
//! ```text
//!   page ─► row ─► predicate ─► expressions ─► index tuple ─► tuplesort
//! ```
//!
//! Predicates, expressions and comparisons may be user code, so they run in plain frames, as the table's owner. The
//! user is switched for a page of rows or more at a time, since the switch costs more than a row.

use pgrx::pg_sys;

use super::shared_sorts::SharedSort;
use crate::server::elsewhere::Elsewhere;
use crate::server::owner::as_owner;
use crate::server::relation::Relation;
use crate::server::unguarded::{self as c, Opaque, guard};

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
    heap: pg_sys::Relation,
    /// Null once it is closed.
    index: pg_sys::Relation,
    info: *mut pg_sys::IndexInfo,
    estate: *mut pg_sys::EState,
    slot: *mut pg_sys::TupleTableSlot,
    /// Null until there is a row, and after all rows are sorted.
    sort: *mut pg_sys::Tuplesortstate,
    /// Memory of the sort, in kB.
    memory: i32,
    /// Memory context of all parts.
    context: pg_sys::MemoryContext,
    shared: Option<SharedSort>,
    /// Set while messages concern index entries, and not the current line.
    elsewhere: Elsewhere,
    /// Rows that the sort was given.
    rows: u64,
    /// Rows that wait to be given to the sort.
    waiting: Vec<(pg_sys::ItemPointerData, Vec<u8>)>,
    waiting_bytes: usize,
}

/// Rows to be processed: those of pages, or those that wait.
struct PendingRows {
    to: *mut TupleSort,
    pages: *const u8,
    count: usize,
    first: u32,
    list: *const (pg_sys::ItemPointerData, Vec<u8>),
    list_len: usize,
}

impl TupleSort {
    /// Start for a B-tree of a table, with `memory` bytes for the sort. Guarded; all memory is in the current memory
    /// context.
    ///
    /// # Safety
    /// An open table that stays open as long as the sort is used, and an index of it that is locked.
    pub unsafe fn new(
        heap: pg_sys::Relation,
        index: pg_sys::Oid,
        memory: usize,
        shared: Option<SharedSort>,
        elsewhere: Elsewhere,
    ) -> TupleSort {
        // SAFETY: this function's contract covers both arguments; guarded calls.
        unsafe {
            let index = pg_sys::index_open(index, pg_sys::AccessShareLock.cast_signed());
            TupleSort {
                heap,
                index,
                info: std::ptr::null_mut(),
                estate: std::ptr::null_mut(),
                slot: std::ptr::null_mut(),
                sort: std::ptr::null_mut(),
                memory: i32::try_from(memory / 1024).unwrap_or(i32::MAX),
                context: pg_sys::CurrentMemoryContext,
                shared,
                elsewhere,
                rows: 0,
                waiting: Vec::new(),
                waiting_bytes: 0,
            }
        }
    }

    /// Make this process a participant of a shared sort, before any row was given to the sort.
    pub fn share(&mut self, sort: SharedSort) {
        if self.sort.is_null() {
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

    /// Add the rows of pages that are in the table, from this block on. Guarded.
    pub fn add_pages(&mut self, pages: &[u8], first: u32) {
        let count = pages.len() / BLCKSZ;
        let (pages, list) = (pages.as_ptr(), std::ptr::null());
        self.look(PendingRows { to: std::ptr::null_mut(), pages, count, first, list, list_len: 0 });
    }

    /// Add a row that is in the table. Guarded.
    pub fn add_tuple(&mut self, tuple: &[u8], tid: pg_sys::ItemPointerData) {
        if self.waiting_bytes > WAITING {
            self.flush();
        }
        self.waiting_bytes += tuple.len();
        self.waiting.push((tid, tuple.to_vec()));
    }

    /// Bytes that the sort may use now.
    pub fn memory(&self) -> usize {
        if self.sort.is_null() { 0 } else { usize::try_from(self.memory).unwrap_or(0) * 1024 }
    }

    /// Process the waiting rows. Guarded.
    pub fn flush(&mut self) {
        if !self.waiting.is_empty() {
            let waiting = std::mem::take(&mut self.waiting);
            self.waiting_bytes = 0;
            let (pages, list, list_len) = (std::ptr::null(), waiting.as_ptr(), waiting.len());
            self.look(PendingRows { to: std::ptr::null_mut(), pages, count: 0, first: 0, list, list_len });
        }
    }

    fn look(&mut self, rows: PendingRows) {
        let mut rows = PendingRows { to: self, ..rows };
        // SAFETY: the table is open, and the rows live until this returns; the closure owns nothing.
        unsafe {
            let (heap, rows) = (self.heap, (&raw mut rows).cast());
            self.elsewhere.during(|| guard(|| as_owner(Relation::from_raw(heap), look_at, rows)));
        }
    }

    /// Sort the rows added so far. Those of a shared sort are left to the leader. Guarded.
    pub fn finish(&mut self) {
        self.flush();
        if self.sort.is_null() {
            return;
        }
        // SAFETY: the table is open; the closure owns nothing.
        unsafe {
            let (heap, sort) = (self.heap, self.sort.cast());
            self.elsewhere.during(|| guard(|| as_owner(Relation::from_raw(heap), perform, sort)));
            if let Some(shared) = self.shared {
                pg_sys::tuplesort_end(self.sort);
                self.sort = std::ptr::null_mut();
                shared.count(std::mem::take(&mut self.rows));
            }
        }
    }

    /// Sort like [`Self::finish`], after the table was opened again. Guarded.
    ///
    /// # Safety
    /// The sort's table, open.
    pub unsafe fn finish_for(&mut self, heap: pg_sys::Relation) {
        self.heap = heap;
        self.finish();
    }

    /// Take the sort of this process alone; null if there is none.
    pub fn take(&mut self) -> *mut pg_sys::Tuplesortstate {
        std::mem::replace(&mut self.sort, std::ptr::null_mut())
    }

    /// Close the index; sorted tuples stay. No rows may be added afterwards. Guarded.
    pub fn close(&mut self) {
        let index = std::mem::replace(&mut self.index, std::ptr::null_mut());
        if index.is_null() {
            return;
        }
        // SAFETY: an open index; `prepare` has made the rest.
        unsafe {
            if !self.estate.is_null() {
                pg_sys::ExecDropSingleTupleTableSlot(self.slot);
                pg_sys::FreeExecutorState(self.estate);
            }
            pg_sys::index_close(index, pg_sys::NoLock.cast_signed());
        }
    }

    /// Free the sorted tuples, and close the index. Guarded.
    pub fn end(&mut self) {
        let sort = self.take();
        if !sort.is_null() {
            // SAFETY: begun, and not ended.
            unsafe { pg_sys::tuplesort_end(sort) };
        }
        self.waiting = Vec::new();
        self.close();
    }
}

/// Create the executor state, and begin the sort.
///
/// # Safety
/// A plain frame, as the table's owner.
unsafe fn prepare(to: *mut TupleSort) {
    // SAFETY: this function's contract covers the argument; relations are open until the sort is closed.
    unsafe {
        let old = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = (*to).context;
        if (*to).estate.is_null() {
            (*to).info = c::BuildIndexInfo((*to).index);
            (*to).slot = c::MakeSingleTupleTableSlot((*(*to).heap).rd_att, &raw const pg_sys::TTSOpsHeapTuple);
            (*to).estate = c::CreateExecutorState();
            // GetPerTupleExprContext (executor.h)
            c::MakePerTupleExprContext((*to).estate);
            if !(*(*to).info).ii_Predicate.is_null() {
                (*(*to).info).ii_PredicateState = c::ExecPrepareQual((*(*to).info).ii_Predicate, (*to).estate);
            }
        }
        if (*to).sort.is_null() {
            let (unique, nulls, options) = (false, false, 0);
            let mut coordinate =
                pg_sys::SortCoordinateData { isWorker: true, nParticipants: -1, sharedsort: std::ptr::null_mut() };
            let coordinate = match (*to).shared {
                Some(shared) => {
                    coordinate.sharedsort = shared.sort;
                    &raw mut coordinate
                }
                None => std::ptr::null_mut(),
            };
            // A participant of a shared sort begins another sort if it gets more rows after it has sorted.
            (*to).sort = c::tuplesort_begin_index_btree(
                (*to).heap,
                (*to).index,
                unique,
                nulls,
                (*to).memory,
                coordinate,
                options,
            );
        }
        pg_sys::CurrentMemoryContext = old;
    }
}

/// # Safety
/// A plain frame; [`PendingRows`].
unsafe extern "C-unwind" fn look_at(rows: Opaque) {
    // SAFETY: this function's contract covers the argument; no value in this frame has a destructor. Pages are
    // complete, and all items on them are tuples of the table.
    unsafe {
        let rows = rows.cast::<PendingRows>();
        let to = (*rows).to;
        prepare(to);
        let mut header = pg_sys::HeapTupleData { t_tableOid: (*(*to).heap).rd_id, ..Default::default() };
        for number in 0..(*rows).count {
            c::check_for_interrupts();
            let page = (*rows).pages.add(number * BLCKSZ);
            let lower = usize::from((*page.cast::<pg_sys::PageHeaderData>()).pd_lower);
            let items = page.add(PAGE_HEADER).cast::<pg_sys::ItemIdData>();
            let block = (*rows).first.wrapping_add(number as u32);
            for item in 0..lower.saturating_sub(PAGE_HEADER) / size_of::<pg_sys::ItemIdData>() {
                let id = items.add(item);
                if (*id).lp_flags() == NORMAL {
                    header.t_len = (*id).lp_len();
                    header.t_data = page.add((*id).lp_off() as usize).cast_mut().cast();
                    header.t_self = pg_sys::ItemPointerData {
                        ip_blkid: pg_sys::BlockIdData { bi_hi: (block >> 16) as u16, bi_lo: block as u16 },
                        ip_posid: item as u16 + 1,
                    };
                    add(to, &raw mut header);
                }
            }
        }
        for number in 0..(*rows).list_len {
            let (tid, tuple) = &*(*rows).list.add(number);
            header.t_len = tuple.len() as u32;
            header.t_data = tuple.as_ptr().cast_mut().cast();
            header.t_self = *tid;
            add(to, &raw mut header);
        }
    }
}

/// Give a row to the sort.
///
/// # Safety
/// A plain frame; a sort that is prepared, and a tuple of its table.
#[inline]
unsafe fn add(to: *mut TupleSort, tuple: *mut pg_sys::HeapTupleData) {
    // SAFETY: this function's contract covers both arguments. The arrays have space for the keys of any index.
    unsafe {
        let (info, slot, estate) = ((*to).info, (*to).slot, (*to).estate);
        let econtext = (*estate).es_per_tuple_exprcontext;
        let old = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = (*econtext).ecxt_per_tuple_memory;
        c::ExecStoreHeapTuple(tuple, slot, false);
        (*econtext).ecxt_scantuple = slot;
        if c::exec_qual((*info).ii_PredicateState, econtext) {
            let mut values = [pg_sys::Datum::from(0usize); MOST_KEYS];
            let mut nulls = [false; MOST_KEYS];
            let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
            c::FormIndexDatum(info, slot, estate, values, nulls);
            c::tuplesort_putindextuplevalues((*to).sort, (*to).index, &raw mut (*tuple).t_self, values, nulls);
        }
        (*to).rows += 1;
        pg_sys::CurrentMemoryContext = old;
        c::clear_virtual(slot);
        c::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
    }
}

/// # Safety
/// A plain frame; a sort that was begun.
unsafe extern "C-unwind" fn perform(sort: Opaque) {
    // SAFETY: this function's contract covers the argument.
    unsafe { c::tuplesort_performsort(sort.cast()) }
}
