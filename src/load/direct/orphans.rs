//! Rows that refer to what is not there: with on_error `table`.
//!
//! The server would check foreign keys one row after the other, when all rows are in, and end the load at the first that is
//! violated. Here they are checked together, as they are without `on_error` ([`super::foreign_keys`]); if that finds all keys,
//! there is nothing else to do. If not, keys are sorted once more, now each with its row; the rows whose keys are not found
//! are taken back, as those that lose to an index are ([`super::losers`]).
//!
//! ```text
//!   all relations: rows in their indexes, losers gone ─► check ── all keys are there ─────────────────────────► other triggers
//!                                                          └─ no ─► hunt ─► orphans are taken back ─┐
//!                                                                    ▲                            any, in tables that refer to each other
//!                                                                    └────────────────────────────────┘
//! ```
//!
//! The tricky point are rows that refer to rows of the same load: whoever refers to a row that is taken back is next. So where
//! a table refers to one that is loaded, it goes on until a round finds nothing. And nobody may be judged before all relations
//! have their indexes, or a query that uses an index would not find rows that are there.
//!
//! What was found is locked, so it stays; the server's own checks have nothing left to say.

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{pg_guard, pg_sys};

use super::foreign_keys::ForeignKeys;
use super::leader::Leader;
use super::losers::Loss;
use super::new_rows::NewRows;
use super::origin::Place;
use crate::error::{OrRaise, Result};
use crate::pg::number_sort::NumberSort;
use crate::pg::removal::{Removal, number_of};
use crate::pg::unguarded as c;

/// New rows of a relation, and the foreign keys that they are to satisfy.
#[derive(Debug)]
pub struct Hunt {
    pub leader: *mut Leader,
    pub rows: *const NewRows,
    /// For rows of the relation.
    pub slot: *mut pg_sys::TupleTableSlot,
    pub keys: *mut ForeignKeys,
    /// The relation's number among the load's.
    pub number: usize,
    /// For each sort, in kB.
    pub memory: i32,
    /// Row, and which of the foreign keys it violates. It belongs to the context, for the hunt is in a plain frame.
    orphans: *mut Option<NumberSort<4>>,
    /// What a hunt takes.
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

    fn put(&mut self, key: usize, row: u64) {
        // It begins two more, when it is all there.
        let memory = self.memory / 3;
        // SAFETY: made by `begin`.
        let orphans = unsafe { &mut *self.orphans };
        orphans.get_or_insert_with(|| NumberSort::new(memory)).put([row, key as u64, 0, 0]);
    }
}

/// Take back the rows that violate a foreign key now. Returns how many there were.
///
/// # Safety
/// A plain frame outside of parallel mode; what is in the hunt is valid, and the rows are in their indexes. Keys are tracked
/// from here on.
pub unsafe fn hunt(hunt: *mut Hunt) -> u64 {
    // SAFETY: this function's contract covers all arguments; nothing in this frame has a destructor.
    unsafe {
        let caller = pg_sys::CurrentMemoryContext;
        begin(hunt);
        pg_sys::CurrentMemoryContext = (*hunt).context;
        let (keys, slot) = ((*hunt).keys, (*hunt).slot);
        (*(*hunt).rows).for_each(slot, || {
            let row = number_of(&(*slot).tts_tid);
            (*keys).add(slot, |key| missing(hunt, key, row));
        });
        (*keys).find(|key, row| missing(hunt, key, row));
        let count = judge(hunt);
        pg_sys::CurrentMemoryContext = caller;
        c::MemoryContextDelete((*hunt).context);
        count
    }
}

/// # Safety
/// As [`hunt`].
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

/// A row's key is not there.
///
/// # Safety
/// A valid hunt, in whose memory context it is.
#[pg_guard]
unsafe extern "C-unwind" fn missing(hunt: *mut Hunt, key: usize, row: u64) {
    // SAFETY: this function's contract covers the argument.
    unsafe { &mut *hunt }.put(key, row);
}

/// # Safety
/// As [`hunt`].
#[pg_guard]
unsafe extern "C-unwind" fn judge(hunt: *mut Hunt) -> u64 {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let hunt = &mut *hunt;
        (*hunt.leader).take_back(hunt).or_raise()
    }
}

impl Leader {
    fn take_back(&mut self, hunt: &mut Hunt) -> Result<u64> {
        // SAFETY: made by `begin`, in a context that is still there.
        let Some(orphans) = (unsafe { (*hunt.orphans).take() }) else { return Ok(0) };
        // SAFETY: whoever made the hunt vouches for what is in it.
        let (relation, complaints) = unsafe {
            let relation = (*hunt.rows).relation;
            (relation, (*hunt.keys).complaints(relation))
        };
        let mut sort = self.in_file_order(hunt.number, orphans, hunt.memory / 3, false)?;
        // SAFETY: as above.
        let mut removal = unsafe { Removal::new(relation, self.builders) };
        let (mut count, mut last) = (0, None);
        while let Some([position, behind, row, key, ..]) = sort.take() {
            pgrx::check_for_interrupts!();
            // Of several foreign keys, the first one is what the server's checks would complain about.
            if last.replace(row) == Some(row) {
                continue;
            }
            let complaint = usize::try_from(key).ok().and_then(|key| complaints.get(key)).cloned();
            let place = Place { file: 0, position, behind };
            // SAFETY: a row of the load.
            unsafe { removal.put(row)? };
            self.counts.loaded -= 1;
            self.leave_out(place, Loss::Reject, complaint.unwrap_or_default())?;
            count += 1;
        }
        sort.end();
        removal.run()?;
        self.counts.others.add(removal.cpu);
        Ok(count)
    }
}
