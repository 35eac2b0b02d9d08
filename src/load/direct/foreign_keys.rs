//! Foreign keys of many rows, checked together.
//!
//! The server checks a foreign key row by row, by a query that finds and locks the row referred to: so many queries take
//! longer than all the rest of a load. Here the new keys are collected, each once, and one query finds and locks all the
//! rows they refer to, run as the server runs its own: by the referenced table's owner, with a snapshot taken when the
//! rows are in, FOR KEY SHARE.
//!
//! ```text
//!   row ─► key, unless it has NULLs ─► sort ─► each once, numbered ─┐
//!                                                                   ├─► keys whose row is there and locked: all? ─► done
//!                             referenced table, FOR KEY SHARE ──────┘                                        no ─► queue checks
//! ```
//!
//! The tricky point is what nobody should have to prove: that this finds what the server's check finds. It does not
//! matter. A key counts as checked only if its row was found by the constraint's own operators and is locked to the end
//! of the transaction, which is what that check comes to. If any key is left over, for whatever reason (it is not
//! there, it was inserted a moment ago, it was changed meanwhile), the server's own checks are queued for all rows, and
//! say what there is to say, in their words.
//!
//! It is not done where checks of the server could do something else: constraints that may be deferred, other row
//! triggers that fire between checks, snapshots that last longer than a statement, partitioned referenced tables; and
//! for a few rows it is not worth it.

use pgrx::pg_sys;

use super::key_query::{KeyQuery, sort_operator};
use crate::pg::compat;
use crate::pg::unguarded as c;

/// Fewer rows are left to the server's checks.
const FEWEST_ROWS: u64 = 1000;
const ROW: i16 = pg_sys::TRIGGER_TYPE_ROW as i16;
const INSERT: i16 = pg_sys::TRIGGER_TYPE_INSERT as i16;
const BEFORE_OR_INSTEAD: i16 = (pg_sys::TRIGGER_TYPE_BEFORE | pg_sys::TRIGGER_TYPE_INSTEAD) as i16;
const DISABLED: std::ffi::c_char = pg_sys::TRIGGER_DISABLED.cast_signed();

/// A foreign key whose new values are collected.
#[derive(Debug)]
struct ForeignKey {
    /// Which of the relation's triggers checks it, and how that was enabled.
    trigger: usize,
    enabled: std::ffi::c_char,
    query: KeyQuery,
    /// For keys. Their number is of no use until they are sorted.
    slot: *mut pg_sys::TupleTableSlot,
    sorted: *mut pg_sys::TupleTableSlot,
    sort: *mut pg_sys::Tuplesortstate,
    numbered: *mut pg_sys::Tuplestorestate,
}

/// The foreign keys of a relation that are checked together.
#[derive(Debug)]
pub struct ForeignKeys {
    list: Vec<ForeignKey>,
    triggers: *mut pg_sys::TriggerDesc,
    /// Other triggers want to be queued meanwhile.
    others: bool,
    /// A key is known not to be checked here.
    doubtful: bool,
}

impl ForeignKeys {
    /// Those of a result relation with so many new rows. The triggers that check them are disabled in the result
    /// relation's own copy. Guarded; allocates in the current memory context.
    ///
    /// # Safety
    /// A result relation, and its copy of the triggers is nobody else's.
    pub unsafe fn new(relinfo: *mut pg_sys::ResultRelInfo, rows: u64) -> ForeignKeys {
        // SAFETY: the caller vouches for the result relation; guarded calls.
        unsafe {
            let triggers = (*relinfo).ri_TrigDesc;
            let mut found = ForeignKeys { list: Vec::new(), triggers, others: false, doubtful: false };
            let fire = |number: &usize| found.fires(*number);
            let firing: Vec<usize> = (0..found.count()).filter(fire).collect();
            let is_check = |trigger: &pg_sys::Trigger| {
                let function = trigger.tgfoid.to_u32();
                function == pg_sys::F_RI_FKEY_CHECK_INS || function == pg_sys::F_UNIQUE_KEY_RECHECK
            };
            let is_possible = rows >= FEWEST_ROWS
                && pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ.cast_signed()
                && firing.iter().all(|&number| is_check(&*found.trigger(number)));
            if is_possible {
                let relation = (*relinfo).ri_RelationDesc;
                found.list = firing.iter().filter_map(|&n| ForeignKey::new(relation, &*found.trigger(n), n)).collect();
            }
            found.others = firing.len() > found.list.len();
            for key in &found.list {
                (*found.trigger(key.trigger)).tgenabled = DISABLED;
            }
            found
        }
    }

    fn count(&self) -> usize {
        // SAFETY: an open relation's triggers, or null.
        unsafe { self.triggers.as_ref() }.map_or(0, |triggers| usize::try_from(triggers.numtriggers).unwrap_or(0))
    }

    /// Trigger `number`, below `count`.
    fn trigger(&self, number: usize) -> *mut pg_sys::Trigger {
        // SAFETY: the caller vouches for the number.
        unsafe { (*self.triggers).triggers.add(number) }
    }

    /// Does it fire AFTER INSERT for each row, in this session? (TriggerEnabled, trigger.c.)
    fn fires(&self, number: usize) -> bool {
        // SAFETY: the number is below `count`; reads a setting.
        unsafe {
            let trigger = &*self.trigger(number);
            let replica = pg_sys::SessionReplicationRole == pg_sys::SESSION_REPLICATION_ROLE_REPLICA.cast_signed();
            let enabled = trigger.tgenabled.cast_unsigned();
            let not_here = if replica { pg_sys::TRIGGER_FIRES_ON_ORIGIN } else { pg_sys::TRIGGER_FIRES_ON_REPLICA };
            trigger.tgtype & ROW != 0
                && trigger.tgtype & INSERT != 0
                && trigger.tgtype & BEFORE_OR_INSTEAD == 0
                && enabled != pg_sys::TRIGGER_DISABLED
                && enabled != not_here
        }
    }

    /// Are there triggers to be queued for each row?
    pub fn leave_others(&self) -> bool {
        self.others
    }

    pub fn are_none(&self) -> bool {
        self.list.is_empty()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Get ready for keys, with so much memory for each sort, in kB. Guarded; allocates in the current memory context.
    pub fn prepare(&mut self, memory: i32) {
        for key in &mut self.list {
            // SAFETY: guarded calls. Each column but the last has an operator to sort by.
            unsafe {
                let descriptor = key.query.descriptor;
                let columns = key.query.columns.len();
                let attribute = |i| &*compat::attribute(descriptor, i);
                let mut numbers: Vec<i16> = (0..columns).map(|i| attribute(i).attnum).collect();
                let mut operators: Vec<_> = (0..columns).map(|i| sort_operator(attribute(i).atttypid)).collect();
                let mut collations: Vec<_> = (0..columns).map(|i| attribute(i).attcollation).collect();
                let mut nulls_first = vec![false; columns];
                key.sort = pg_sys::tuplesort_begin_heap(
                    descriptor,
                    i32::try_from(columns).unwrap_or(0),
                    numbers.as_mut_ptr(),
                    operators.as_mut_ptr(),
                    collations.as_mut_ptr(),
                    nulls_first.as_mut_ptr(),
                    memory,
                    std::ptr::null_mut(),
                    0,
                );
                key.numbered = pg_sys::tuplestore_begin_heap(false, false, memory);
            }
        }
    }

    /// Take a row.
    ///
    /// # Safety
    /// A plain frame; a slot with a row of the relation.
    pub unsafe fn add(&mut self, row: *mut pg_sys::TupleTableSlot) {
        for key in &mut self.list {
            // SAFETY: the caller vouches for frame and slot; the key's slot has an attribute for each of the columns.
            unsafe {
                let (values, nulls) = ((*key.slot).tts_values, (*key.slot).tts_isnull);
                let mut absent = 0;
                for (i, &attnum) in key.query.columns.iter().enumerate() {
                    if (*row).tts_nvalid < attnum {
                        c::slot_getsomeattrs_int(row, attnum.into());
                    }
                    let at = usize::try_from(attnum - 1).unwrap_or(0);
                    *values.add(i) = *(*row).tts_values.add(at);
                    absent += usize::from(*(*row).tts_isnull.add(at));
                }
                if absent > 0 {
                    self.doubtful |= key.query.full && absent < key.query.columns.len();
                    continue;
                }
                *nulls.add(key.query.columns.len()) = true;
                (*key.slot).tts_flags &= !(pg_sys::TTS_FLAG_EMPTY as u16);
                (*key.slot).tts_nvalid = (*(*key.slot).tts_tupleDescriptor).natts as _;
                c::tuplesort_puttupleslot(key.sort, key.slot);
                (*key.slot).tts_flags |= pg_sys::TTS_FLAG_EMPTY as u16;
            }
        }
    }

    /// Find and lock the rows referred to. False if that does not settle it.
    ///
    /// # Safety
    /// A plain frame outside of parallel mode. All rows were taken, and are in the indexes.
    pub unsafe fn check(&mut self) -> bool {
        for key in &mut self.list {
            // SAFETY: the caller vouches for the frame; nothing in it has a destructor.
            unsafe {
                if self.doubtful {
                    return false;
                }
                let keys = key.number_keys();
                if keys == 0 {
                    continue;
                }
                self.doubtful = key.query.run(key.numbered, keys) != keys;
                c::tuplestore_end(key.numbered);
            }
        }
        !self.doubtful
    }

    /// Let the server's checks be queued after all, and nothing else.
    pub fn give_back(&mut self) {
        for number in 0..self.count() {
            // SAFETY: the number is below `count`; the copy is the result relation's, which is not used for other rows.
            unsafe { (*self.trigger(number)).tgenabled = DISABLED };
        }
        for key in &self.list {
            // SAFETY: as above.
            unsafe { (*self.trigger(key.trigger)).tgenabled = key.enabled };
        }
    }
}

impl ForeignKey {
    /// The foreign key that a trigger checks, if it can be checked here. Guarded; allocates in the current memory context.
    ///
    /// # Safety
    /// An open relation, and a trigger of it.
    unsafe fn new(relation: pg_sys::Relation, trigger: &pg_sys::Trigger, number: usize) -> Option<ForeignKey> {
        if trigger.tgfoid.to_u32() != pg_sys::F_RI_FKEY_CHECK_INS || trigger.tgdeferrable || !trigger.tgqual.is_null() {
            return None;
        }
        // SAFETY: the caller vouches for the relation; guarded calls.
        unsafe {
            let query = KeyQuery::new(relation, trigger.tgconstraint)?;
            Some(ForeignKey {
                trigger: number,
                enabled: trigger.tgenabled,
                slot: pg_sys::MakeSingleTupleTableSlot(query.descriptor, &raw const pg_sys::TTSOpsVirtual),
                sorted: pg_sys::MakeSingleTupleTableSlot(query.descriptor, &raw const pg_sys::TTSOpsMinimalTuple),
                query,
                sort: std::ptr::null_mut(),
                numbered: std::ptr::null_mut(),
            })
        }
    }

    /// Keep each key once, with a number; and say how many there are. Keys that are equal, but not the same bytes, are not
    /// the same: whether they refer to the same row is not decided here.
    ///
    /// # Safety
    /// A plain frame. All rows were taken.
    unsafe fn number_keys(&mut self) -> u64 {
        // SAFETY: the caller vouches for the frame. A slot for minimal tuples that is not empty has one, which lies
        // there until the next one is asked for; a tuple is as long as it says.
        unsafe {
            let mut keys = 0;
            let mut previous: *mut u8 = std::ptr::null_mut();
            let mut room = 0;
            let mut len = 0;
            c::tuplesort_performsort(self.sort);
            while c::tuplesort_gettupleslot(self.sort, true, false, self.sorted, std::ptr::null_mut()) {
                c::check_for_interrupts();
                let tuple = (*self.sorted.cast::<pg_sys::MinimalTupleTableSlot>()).mintuple;
                // What is before that, a sort does not keep.
                let head = std::mem::offset_of!(pg_sys::MinimalTupleData, t_infomask2);
                let size = ((*tuple).t_len as usize).saturating_sub(head);
                let bytes = std::slice::from_raw_parts(tuple.cast::<u8>().add(head), size);
                if !previous.is_null() && bytes == std::slice::from_raw_parts(previous, len) {
                    continue;
                }
                if size > room {
                    room = size.next_power_of_two();
                    previous = c::MemoryContextAlloc(pg_sys::CurrentMemoryContext, room).cast();
                }
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), previous, size);
                len = size;
                keys += 1;
                let columns = self.query.columns.len();
                c::slot_getsomeattrs_int(self.sorted, (columns + 1) as i32);
                *(*self.sorted).tts_values.add(columns) = pg_sys::Datum::from(keys as i64);
                *(*self.sorted).tts_isnull.add(columns) = false;
                let (values, nulls) = ((*self.sorted).tts_values, (*self.sorted).tts_isnull);
                c::tuplestore_putvalues(self.numbered, (*self.sorted).tts_tupleDescriptor, values, nulls);
            }
            c::tuplesort_end(self.sort);
            keys
        }
    }
}
