//! Removes orphans, rows without a parent, with `on_error = table`.
//!
//! The server would check foreign keys row by row after the last row, and fail at the first violation. Here they are
//! checked together, as without `on_error` ([`super::foreign_keys`]). If all keys have a parent, nothing more is done.
//! Otherwise the keys are sorted again, each with its row, and the orphans are deleted, like rows that conflict with an
//! index ([`super::removed_rows`]).
//!
//! ```text
//!   all relations: rows in their indexes, conflicts removed ─► check ── all keys have parents ─────► other triggers
//!                                                                └─ no ─► hunt ─► orphans are deleted ─┐
//!                                                                          ▲         any, between loaded tables
//!                                                                          └───────────────────────────┘
//! ```
//!
//! The tricky point is a reference to a row of the same load: when that row is deleted, the row that refers to it
//! becomes an orphan. So if a table refers to a loaded table, rounds go on until one finds no orphan. And no row is
//! checked before all relations have their indexes, since a query with an index would not find rows that the index
//! lacks.
//!
//! The parents that were found are locked, so they stay, and the server's own checks are not needed any more.

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{pg_guard, pg_sys};

use super::foreign_keys::ForeignKeys;
use super::leader::Leader;
use super::new_rows::NewRows;
use super::origin::RecordPosition;
use super::removed_rows::RemovalReason;
use crate::error::{OrRaise, Result};
use crate::heap::removal::{Removal, number_of};
use crate::index::number_sort::NumberSort;
use crate::server::relation::Relation;
use crate::server::unguarded::{self as c, guarded};

/// New rows of a relation, and the foreign keys that are checked for them.
#[derive(Debug)]
pub struct Hunt {
    pub leader: *mut Leader,
    pub rows: *const NewRows,
    /// A slot for rows of the relation.
    pub slot: *mut pg_sys::TupleTableSlot,
    pub keys: *mut ForeignKeys,
    /// Index of the relation among the load's relations.
    pub number: usize,
    /// Memory for each sort, in kB.
    pub memory: i32,
    /// Rows, each with the foreign key that it violates. Owned by the context, since the hunt runs in a plain frame.
    orphans: *mut Option<NumberSort<4>>,
    /// Memory context of the hunt.
    context: pg_sys::MemoryContext,
}

impl Hunt {
    pub fn new(
        leader: *mut Leader,
        rows: *const NewRows,
        slot: *mut pg_sys::TupleTableSlot,
        keys: *mut ForeignKeys,
        number: usize,
        memory: i32,
    ) -> Hunt {
        Hunt { leader, rows, slot, keys, number, memory, orphans: std::ptr::null_mut(), context: std::ptr::null_mut() }
    }

    /// Notes a row without a parent. Guarded; the hunt's memory context is current.
    fn put(&mut self, key: usize, row: u64) {
        // Two more sorts start when this one is complete.
        let memory = self.memory / 3;
        // SAFETY: made by `begin`.
        let orphans = unsafe { &mut *self.orphans };
        orphans.get_or_insert_with(|| NumberSort::new(memory)).put([row, key as u64, 0, 0]);
    }
}

/// Deletes the current orphans. Returns how many there were.
///
/// # Safety
/// A plain frame outside of parallel mode; the pointers in the hunt are valid, and the rows are in their indexes. Keys
/// are tracked from here on.
pub unsafe fn hunt(hunt: *mut Hunt) -> u64 {
    // SAFETY: this function's contract covers all arguments; nothing in this frame has a destructor.
    unsafe {
        let caller = pg_sys::CurrentMemoryContext;
        begin(hunt);
        pg_sys::CurrentMemoryContext = (*hunt).context;
        let (keys, slot) = ((*hunt).keys, (*hunt).slot);
        (*(*hunt).rows).for_each(slot, || {
            let row = number_of(&(*slot).tts_tid);
            (*keys).add(slot, |key| guarded(|| (*hunt).put(key, row)));
        });
        (*keys).find(|key, row| guarded(|| (*hunt).put(key, row)));
        let count = guarded(|| (*(*hunt).leader).take_back(&mut *hunt).or_raise());
        pg_sys::CurrentMemoryContext = caller;
        c::MemoryContextDelete((*hunt).context);
        count
    }
}

/// # Safety
/// See [`hunt`].
#[pg_guard]
unsafe extern "C-unwind" fn begin(hunt: *mut Hunt) {
    // SAFETY: this function's contract covers the argument; guarded calls.
    unsafe {
        let hunt = &mut *hunt;
        hunt.context = pg_sys::AllocSetContextCreateExtended(
            pg_sys::CurrentMemoryContext,
            c"pg_bulk orphans".as_ptr(),
            pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
        );
        hunt.orphans = PgMemoryContexts::For(hunt.context).leak_and_drop_on_delete(None);
        let old = pg_sys::MemoryContextSwitchTo(hunt.context);
        (*hunt.keys).discard();
        (*hunt.keys).prepare(hunt.memory, true);
        pg_sys::MemoryContextSwitchTo(old);
    }
}

impl Leader {
    fn take_back(&mut self, hunt: &mut Hunt) -> Result<u64> {
        // SAFETY: made by `begin`, in a context that is not deleted yet.
        let Some(orphans) = (unsafe { (*hunt.orphans).take() }) else { return Ok(0) };
        // SAFETY: `hunt`'s contract covers the pointers in it.
        let (relation, complaints) = unsafe {
            let relation = (*hunt.rows).relation;
            (relation, (*hunt.keys).complaints(relation))
        };
        let mut sort = self.in_file_order(hunt.number, orphans, hunt.memory / 3, false)?;
        // SAFETY: as above.
        let mut removal = unsafe { Removal::new(Relation::from_raw(relation), self.workers.at_once) };
        let (mut count, mut last) = (0, None);
        while let Some([position, behind, row, key, ..]) = sort.take() {
            pgrx::check_for_interrupts!();
            // Of several violated foreign keys, the server's checks would report the first.
            if last.replace(row) == Some(row) {
                continue;
            }
            let complaint = usize::try_from(key).ok().and_then(|key| complaints.get(key)).cloned();
            let place = RecordPosition { file: 0, position, behind };
            // SAFETY: the row is the load's.
            unsafe { removal.put(row)? };
            self.counts.loaded -= 1;
            self.leave_out(place, RemovalReason::Reject, complaint.unwrap_or_default())?;
            count += 1;
        }
        sort.end();
        removal.run()?;
        self.counts.others.add(removal.cpu);
        Ok(count)
    }
}
