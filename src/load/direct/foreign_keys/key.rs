//! The keys of one foreign key: collected without repetitions, and found again with their rows.

use pgrx::pg_sys;

use crate::load::direct::key_query::KeyQuery;
use crate::server::unguarded as c;

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
    pub(super) sort: *mut pg_sys::Tuplesortstate,
    pub(super) numbered: *mut pg_sys::Tuplestorestate,
    /// Number of distinct keys, once they have numbers.
    pub(super) count: Option<u64>,
}

impl ForeignKey {
    /// The foreign key that a trigger checks, if it is supported here. Guarded; allocates in the current memory
    /// context.
    ///
    /// # Safety
    /// The relation is open, and the trigger is one of its triggers.
    pub(super) unsafe fn new(
        relation: pg_sys::Relation,
        trigger: &pg_sys::Trigger,
        number: usize,
        lock: pg_sys::LOCKMODE,
    ) -> Option<ForeignKey> {
        if trigger.tgfoid.to_u32() != pg_sys::F_RI_FKEY_CHECK_INS || trigger.tgdeferrable || !trigger.tgqual.is_null() {
            return None;
        }
        // SAFETY: this function's contract covers the relation; guarded calls.
        unsafe {
            let query = KeyQuery::new(relation, trigger.tgconstraint, lock)?;
            Some(ForeignKey {
                trigger: number,
                enabled: trigger.tgenabled,
                slot: pg_sys::MakeSingleTupleTableSlot(query.descriptor, &raw const pg_sys::TTSOpsVirtual),
                sorted: pg_sys::MakeSingleTupleTableSlot(query.descriptor, &raw const pg_sys::TTSOpsMinimalTuple),
                query,
                sort: std::ptr::null_mut(),
                numbered: std::ptr::null_mut(),
                count: None,
            })
        }
    }

    /// Numbers the distinct keys and keeps each once; returns how many there are.
    ///
    /// Keys that are equal but differ in bytes count as different: whether they refer to the same row is not decided
    /// here.
    ///
    /// # Safety
    /// A plain frame. The keys of all rows were collected, tracked or not.
    pub(super) unsafe fn number_keys(&mut self, tracked: bool) -> u64 {
        // SAFETY: this function's contract covers the frame; the slot has an attribute for each column and one for the
        // number.
        unsafe {
            c::tuplesort_performsort(self.sort);
            self.walk(tracked, |key, number, is_first| {
                if is_first {
                    let columns = key.query.columns.len();
                    let slot = key.sorted;
                    c::slot_getsomeattrs_int(slot, (columns + 1) as i32);
                    *(*slot).tts_values.add(columns) = pg_sys::Datum::from(number.cast_signed());
                    *(*slot).tts_isnull.add(columns) = false;
                    let (values, nulls) = ((*slot).tts_values, (*slot).tts_isnull);
                    c::tuplestore_putvalues(key.numbered, (*slot).tts_tupleDescriptor, values, nulls);
                }
            })
        }
    }

    /// Numbers the keys if necessary, lets `look` set the bits of those with a parent, and calls `missing` for each row
    /// whose key has none.
    ///
    /// # Safety
    /// See [`ForeignKeys::find`]; the same holds for `look`.
    pub(super) unsafe fn seek(&mut self, look: impl FnOnce(&ForeignKey, u64, *mut u8), mut missing: impl FnMut(u64)) {
        // SAFETY: this function's contract covers the frame; nothing in it has a destructor. There is a bit for each
        // key.
        unsafe {
            let keys = match self.count {
                Some(keys) => keys,
                None => self.number_keys(true),
            };
            self.count = Some(keys);
            if keys == 0 {
                return;
            }
            let room = usize::try_from(keys / 8 + 1).unwrap_or(usize::MAX);
            let found = c::MemoryContextAllocHuge(pg_sys::CurrentMemoryContext, room).cast::<u8>();
            std::ptr::write_bytes(found, 0, room);
            look(self, keys, found);
            c::tuplesort_rescan(self.sort);
            let last = self.query.columns.len();
            let sorted = self.sorted;
            self.walk(true, |_, key, _| {
                let at = usize::try_from(key / 8).unwrap_or(0);
                if *found.add(at) >> (key % 8) & 1 == 0 {
                    c::slot_getsomeattrs_int(sorted, (last + 1) as i32);
                    missing((*(*sorted).tts_values.add(last)).value() as u64);
                }
            });
        }
    }

    /// Visits the keys in their order: `visit` gets the key's number, and whether it is the first with that number.
    /// Returns the number of distinct keys.
    ///
    /// # Safety
    /// A plain frame. The keys are sorted; `visit` owns nothing that has a destructor.
    unsafe fn walk(&self, tracked: bool, mut visit: impl FnMut(&ForeignKey, u64, bool)) -> u64 {
        // SAFETY: this function's contract covers the frame. A non-empty slot for minimal tuples has a tuple that is
        // valid until the next fetch; it has `t_len` bytes, and ends with its row if that is tracked.
        unsafe {
            let mut keys = 0;
            let mut previous: *mut u8 = std::ptr::null_mut();
            let mut room = 0;
            let mut len = 0;
            let tail = if tracked { size_of::<u64>() } else { 0 };
            while c::tuplesort_gettupleslot(self.sort, true, false, self.sorted, std::ptr::null_mut()) {
                c::check_for_interrupts();
                let tuple = (*self.sorted.cast::<pg_sys::MinimalTupleTableSlot>()).mintuple;
                // A sort does not keep the header before this field.
                let head = std::mem::offset_of!(pg_sys::MinimalTupleData, t_infomask2);
                let size = ((*tuple).t_len as usize).saturating_sub(head + tail);
                let bytes = std::slice::from_raw_parts(tuple.cast::<u8>().add(head), size);
                if !previous.is_null() && bytes == std::slice::from_raw_parts(previous, len) {
                    visit(self, keys, false);
                    continue;
                }
                if size > room {
                    room = size.next_power_of_two();
                    previous = c::MemoryContextAlloc(pg_sys::CurrentMemoryContext, room).cast();
                }
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), previous, size);
                len = size;
                keys += 1;
                visit(self, keys, true);
            }
            keys
        }
    }

    /// Frees the resources, once.
    ///
    /// # Safety
    /// The frame is plain.
    pub(super) unsafe fn end(&mut self) {
        // SAFETY: made by `prepare`.
        unsafe {
            if !self.sort.is_null() {
                c::tuplesort_end(self.sort);
                c::tuplestore_end(self.numbered);
            }
        }
        (self.sort, self.numbered) = (std::ptr::null_mut(), std::ptr::null_mut());
    }
}
