//! The keys of one foreign key: collected without repetitions, and found again with their rows.

use pgrx::pg_sys;

use crate::error::Result;
use crate::index::key_conflicts::Bits;
use crate::load::direct::key_query::{Beside, KeyQuery, sort_operator};
use crate::server::relation::Relation;
use crate::server::tuplestore::Tuplestore;
use crate::server::unguarded::{self as c, guard, guarded};

/// A foreign key whose new values are collected.
#[derive(Debug)]
pub struct ForeignKey {
    /// Index of the trigger that checks it, and how it was enabled.
    pub(super) trigger: usize,
    pub(super) enabled: std::ffi::c_char,
    pub(super) query: KeyQuery,
    /// A slot for keys. Their numbers are assigned after the sort.
    pub(super) slot: *mut pg_sys::TupleTableSlot,
    sorted: *mut pg_sys::TupleTableSlot,
    /// The keys, once they are prepared and until they are freed.
    pub(super) collected: Option<Collected>,
}

/// The keys of all rows.
#[derive(Debug)]
pub struct Collected {
    pub(super) sort: *mut pg_sys::Tuplesortstate,
    /// Each distinct key, with its number.
    numbered: Tuplestore,
    /// Number of distinct keys, once they have numbers.
    count: Option<u64>,
}

impl ForeignKey {
    /// The foreign key that a trigger of a relation checks, if it is supported here. Guarded; allocates in the current
    /// memory context.
    pub(super) fn new(
        relation: Relation<'_>,
        trigger: &pg_sys::Trigger,
        number: usize,
        lock: u32,
    ) -> Option<ForeignKey> {
        if trigger.tgfoid.to_u32() != pg_sys::F_RI_FKEY_CHECK_INS || trigger.tgdeferrable || !trigger.tgqual.is_null() {
            return None;
        }
        let query = KeyQuery::new(relation, trigger.tgconstraint, lock)?;
        let descriptor = query.descriptor.as_ptr();
        // SAFETY: guarded calls; the descriptor lives as long as the query.
        let (slot, sorted) = unsafe {
            (
                pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsVirtual),
                pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsMinimalTuple),
            )
        };
        Some(ForeignKey { trigger: number, enabled: trigger.tgenabled, query, slot, sorted, collected: None })
    }

    /// Prepares for collecting keys, with `memory` kB for the sort. Guarded; allocates in the current memory context.
    pub(super) fn prepare(&mut self, memory: i32, tracked: bool) {
        let columns = || self.query.descriptor.attributes().take(self.query.columns.len());
        let mut numbers: Vec<i16> = columns().map(|attribute| attribute.attnum).collect();
        let mut operators: Vec<_> = columns().map(|attribute| sort_operator(attribute.atttypid)).collect();
        let mut collations: Vec<_> = columns().map(|attribute| attribute.attcollation).collect();
        let mut nulls_first = vec![false; numbers.len()];
        // SAFETY: a guarded call; each array has an element for each column, and each column has a sort operator.
        let sort = unsafe {
            pg_sys::tuplesort_begin_heap(
                self.query.descriptor.as_ptr(),
                i32::try_from(numbers.len()).unwrap_or(0),
                numbers.as_mut_ptr(),
                operators.as_mut_ptr(),
                collations.as_mut_ptr(),
                nulls_first.as_mut_ptr(),
                memory,
                std::ptr::null_mut(),
                if tracked { pg_sys::TUPLESORT_RANDOMACCESS.cast_signed() } else { 0 },
            )
        };
        let numbered = Tuplestore::new(self.query.descriptor, memory);
        self.collected = Some(Collected { sort, numbered, count: None });
    }

    /// Do all keys have a parent? Locks the parents. Keys that are equal but differ in bytes count as different: whether
    /// they refer to the same row is not decided here. Guarded.
    pub(super) fn have_parents(&mut self) -> Result<bool> {
        let Some(collected) = &mut self.collected else { return Ok(true) };
        let keys = collected.number_keys(self.sorted, false);
        Ok(keys == 0 || self.query.run(&collected.numbered)? == keys)
    }

    /// Calls `missing` for each row whose key has no parent. Locks the parents, unless rows `beside` the table count, too.
    /// Guarded.
    pub(super) fn seek(&mut self, beside: Option<&Beside>, mut missing: impl FnMut(u64)) -> Result<()> {
        let Some(collected) = &mut self.collected else { return Ok(()) };
        let keys = collected.number_keys(self.sorted, true);
        if keys == 0 {
            return Ok(());
        }
        let mut found = Bits::new(keys + 1)?;
        self.query.find(&collected.numbered, beside, &mut found)?;
        let (sorted, last) = (self.sorted, self.query.columns.len());
        // SAFETY: the sort keeps its rows; the slot has an attribute for each column and one for the row. The closures own
        // nothing.
        unsafe {
            guard(|| {
                c::tuplesort_rescan(collected.sort);
                collected.walk(sorted, true, |key, _| {
                    if !found.has(key) {
                        c::slot_getsomeattrs_int(sorted, (last + 1) as i32);
                        let row = (*(*sorted).tts_values.add(last)).value() as u64;
                        guarded(|| missing(row));
                    }
                });
            });
        }
        Ok(())
    }

    /// Frees the keys. Guarded.
    pub(super) fn end(&mut self) {
        if let Some(Collected { sort, numbered, .. }) = self.collected.take() {
            // SAFETY: made by `prepare`; the closure owns nothing.
            unsafe { guard(|| c::tuplesort_end(sort)) };
            numbered.end();
        }
    }
}

impl Collected {
    /// Numbers the distinct keys from 1, unless they have numbers, and keeps each once; returns how many there are. The keys
    /// of all rows were collected. Guarded.
    fn number_keys(&mut self, slot: *mut pg_sys::TupleTableSlot, tracked: bool) -> u64 {
        if let Some(count) = self.count {
            return count;
        }
        // SAFETY: the slot is the key's, with an attribute for each column and one for the number; the closures own nothing.
        let count = unsafe {
            guard(|| {
                c::tuplesort_performsort(self.sort);
                self.walk(slot, tracked, |number, is_first| {
                    if is_first {
                        let last = (*(*slot).tts_tupleDescriptor).natts;
                        c::slot_getsomeattrs_int(slot, last);
                        let (values, nulls) = ((*slot).tts_values, (*slot).tts_isnull);
                        let at = usize::try_from(last - 1).unwrap_or(0);
                        *values.add(at) = pg_sys::Datum::from(number.cast_signed());
                        *nulls.add(at) = false;
                        self.numbered.put(values, nulls);
                    }
                })
            })
        };
        self.count = Some(count);
        count
    }

    /// Visits the keys in their order: `visit` gets the key's number, and whether it is the first with that number.
    /// Returns the number of distinct keys.
    ///
    /// # Safety
    /// A plain frame; the key's slot for sorted tuples. The keys are sorted; `visit` owns nothing that has a destructor.
    unsafe fn walk(&self, slot: *mut pg_sys::TupleTableSlot, tracked: bool, mut visit: impl FnMut(u64, bool)) -> u64 {
        // SAFETY: the frame is plain. A non-empty slot for minimal tuples has a tuple that is valid until the next fetch; it
        // has `t_len` bytes, and ends with its row if that is tracked.
        unsafe {
            let mut keys = 0;
            let mut previous: *mut u8 = std::ptr::null_mut();
            let mut room = 0;
            let mut len = 0;
            let tail = if tracked { size_of::<u64>() } else { 0 };
            while c::tuplesort_gettupleslot(self.sort, true, false, slot, std::ptr::null_mut()) {
                c::check_for_interrupts();
                let tuple = (*slot.cast::<pg_sys::MinimalTupleTableSlot>()).mintuple;
                // A sort does not keep the header before this field.
                let head = std::mem::offset_of!(pg_sys::MinimalTupleData, t_infomask2);
                let size = ((*tuple).t_len as usize).saturating_sub(head + tail);
                let bytes = std::slice::from_raw_parts(tuple.cast::<u8>().add(head), size);
                if !previous.is_null() && bytes == std::slice::from_raw_parts(previous, len) {
                    visit(keys, false);
                    continue;
                }
                if size > room {
                    room = size.next_power_of_two();
                    previous = c::MemoryContextAlloc(pg_sys::CurrentMemoryContext, room).cast();
                }
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), previous, size);
                len = size;
                keys += 1;
                visit(keys, true);
            }
            keys
        }
    }
}
