//! Searches for rows that conflict with another row, without waiting for other transactions.
//!
//! An INSERT waits for transactions that may be inserting or deleting a conflicting row. This search finds the rows
//! that exist now, and takes no lock on them: committed rows of other transactions, and rows of this transaction.

use pgrx::pg_sys;

use super::compat;
use super::holder::NOBODY;
use super::unguarded as c;

/// A repeated search in a unique index or an exclusion constraint.
#[derive(Debug)]
pub struct Look {
    index: pg_sys::Relation,
    info: *mut pg_sys::IndexInfo,
    estate: *mut pg_sys::EState,
    econtext: *mut pg_sys::ExprContext,
    snapshot: pg_sys::Snapshot,
    /// Null if the table has no rows.
    scan: pg_sys::IndexScanDesc,
    /// One for each key column.
    keys: *mut pg_sys::ScanKeyData,
    count: usize,
    is_exclusion: bool,
    /// A slot of the table.
    slot: *mut pg_sys::TupleTableSlot,
}

impl Look {
    /// Begins the search. With `has_rows` false or an empty table, it finds nothing. Guarded; allocates in the current
    /// memory context.
    ///
    /// # Safety
    /// An open heap and index, an IndexInfo from ExecOpenIndices with speculative insertions, executor state, and a
    /// slot of the heap; all of them outlive the search.
    pub unsafe fn begin(
        heap: pg_sys::Relation,
        index: pg_sys::Relation,
        info: *mut pg_sys::IndexInfo,
        (estate, econtext): (*mut pg_sys::EState, *mut pg_sys::ExprContext),
        slot: *mut pg_sys::TupleTableSlot,
        has_rows: bool,
    ) -> Look {
        // SAFETY: this function's contract covers all arguments; guarded calls. The IndexInfo has an operator, strategy
        // and collation for each key (check_exclusion_or_unique_constraint, execIndexing.c).
        unsafe {
            let count = usize::try_from((*info).ii_NumIndexKeyAttrs).unwrap_or(0);
            let is_exclusion = !(*info).ii_ExclusionOps.is_null();
            let (strategies, procedures) = if is_exclusion {
                ((*info).ii_ExclusionStrats, (*info).ii_ExclusionProcs)
            } else {
                ((*info).ii_UniqueStrats, (*info).ii_UniqueProcs)
            };
            let keys = pg_sys::palloc0(count.max(1) * size_of::<pg_sys::ScanKeyData>()).cast::<pg_sys::ScanKeyData>();
            for i in 0..count {
                let nothing = pg_sys::Datum::from(0usize);
                let attnum = i16::try_from(i + 1).unwrap_or(i16::MAX);
                let collation = *(*index).rd_indcollation.add(i);
                let (strategy, procedure) = (*strategies.add(i), *procedures.add(i));
                c::guard(|| {
                    let subtype = pg_sys::InvalidOid;
                    c::ScanKeyEntryInitialize(keys.add(i), 0, attnum, strategy, subtype, collation, procedure, nothing);
                });
            }
            let has_rows =
                has_rows && pg_sys::RelationGetNumberOfBlocksInFork(heap, pg_sys::ForkNumber::MAIN_FORKNUM) > 0;
            let (mut snapshot, mut scan) = (std::ptr::null_mut(), std::ptr::null_mut());
            if has_rows {
                snapshot = pg_sys::RegisterSnapshot(pg_sys::GetLatestSnapshot());
                scan = c::guard(|| compat::index_beginscan(heap, index, snapshot, i32::try_from(count).unwrap_or(0)));
            }
            Look { index, info, estate, econtext, snapshot, scan, keys, count, is_exclusion, slot }
        }
    }

    /// Whether the table counts as empty.
    pub fn finds_nothing(&self) -> bool {
        self.scan.is_null()
    }

    /// Returns the row that conflicts with a key, or [`NOBODY`].
    ///
    /// # Safety
    /// A plain frame; a value for each key column. The current memory context outlives the search.
    pub unsafe fn find(&self, values: *const pg_sys::Datum, nulls: *const bool) -> pg_sys::ItemPointerData {
        if self.scan.is_null() {
            return NOBODY;
        }
        // SAFETY: this function's contract covers frame and values; `keys` has `count` elements.
        unsafe {
            for i in 0..self.count {
                let is_null = *nulls.add(i);
                if is_null && (self.is_exclusion || !(*self.info).ii_NullsNotDistinct) {
                    return NOBODY;
                }
                let flags = if is_null { pg_sys::SK_ISNULL | pg_sys::SK_SEARCHNULL } else { 0 };
                (*self.keys.add(i)).sk_flags = flags.cast_signed();
                (*self.keys.add(i)).sk_argument = *values.add(i);
            }
            let forward = pg_sys::ScanDirection::ForwardScanDirection;
            let count = i32::try_from(self.count).unwrap_or(0);
            c::index_rescan(self.scan, self.keys, count, std::ptr::null_mut(), 0);
            let mut found = NOBODY;
            while found.ip_posid == 0 && c::index_getnext_slot(self.scan, forward, self.slot) {
                c::check_for_interrupts();
                if !(*self.scan).xs_recheck || self.is_in_the_way(values) {
                    found = (*self.slot).tts_tid;
                }
            }
            c::clear_virtual(self.slot);
            found
        }
    }

    /// Rechecks a match that the index has found but cannot confirm (index_recheck_constraint, execIndexing.c).
    ///
    /// # Safety
    /// As [`Look::find`]; the row is in the slot.
    unsafe fn is_in_the_way(&self, values: *const pg_sys::Datum) -> bool {
        const MOST: usize = pg_sys::INDEX_MAX_KEYS as usize;
        // SAFETY: this function's contract covers frame and slot; the arrays have room for the keys of any index.
        unsafe {
            let before = (*self.econtext).ecxt_scantuple;
            (*self.econtext).ecxt_scantuple = self.slot;
            let caller = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = (*self.econtext).ecxt_per_tuple_memory;
            let mut theirs = [pg_sys::Datum::from(0usize); MOST];
            let mut nulls = [false; MOST];
            let (theirs, nulls) = (theirs.as_mut_ptr(), nulls.as_mut_ptr());
            c::FormIndexDatum(self.info, self.slot, self.estate, theirs, nulls);
            (*self.econtext).ecxt_scantuple = before;
            let fits = |i| {
                let function = &raw mut (*self.keys.add(i)).sk_func;
                let collation = *(*self.index).rd_indcollation.add(i);
                !*nulls.add(i) && c::FunctionCall2Coll(function, collation, *theirs.add(i), *values.add(i)).value() != 0
            };
            let all = (0..self.count).all(fits);
            pg_sys::CurrentMemoryContext = caller;
            all
        }
    }

    /// Ends the search, except for its memory. Guarded.
    pub fn end(&mut self) {
        let scan = std::mem::replace(&mut self.scan, std::ptr::null_mut());
        if !scan.is_null() {
            // SAFETY: guarded calls; `begin` has made both, and they have not ended.
            unsafe {
                pg_sys::index_endscan(scan);
                pg_sys::UnregisterSnapshot(self.snapshot);
            }
        }
    }
}
