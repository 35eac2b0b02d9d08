//! Offers: referenced columns of rows that are not stored, for the rows that refer to them.

use pgrx::{pg_guard, pg_sys};

use super::CheckedTable;
use crate::load::direct::key_query::Beside;
use crate::server::compat;
use crate::server::unguarded as c;

/// The referenced columns of a relation's new rows.
#[derive(Debug)]
pub struct Offer {
    pub columns: Vec<i16>,
    /// The columns' values, and the row's number.
    descriptor: pg_sys::TupleDesc,
    store: *mut pg_sys::Tuplestorestate,
    /// The rows of `store` that stay.
    rest: *mut pg_sys::Tuplestorestate,
    values: *mut pg_sys::Datum,
    nulls: *mut bool,
    slot: *mut pg_sys::TupleTableSlot,
    rows: u64,
    memory: i32,
    context: pg_sys::MemoryContext,
}

impl Offer {
    /// Makes an offer of some columns. Guarded; allocates in the current memory context.
    ///
    /// # Safety
    /// The relation is open and has these columns.
    pub unsafe fn new(relation: pg_sys::Relation, columns: Vec<i16>, memory: i32) -> Offer {
        // SAFETY: this function's contract covers the relation; guarded calls. The query finds columns by name, and
        // does not use the number.
        unsafe {
            let count = columns.len() + 1;
            let descriptor = pg_sys::CreateTemplateTupleDesc(i32::try_from(count).unwrap_or(1));
            for (i, &attnum) in columns.iter().enumerate() {
                let own = &*compat::attribute((*relation).rd_att, usize::try_from(attnum - 1).unwrap_or(0));
                let to = i16::try_from(i + 1).unwrap_or(i16::MAX);
                pg_sys::TupleDescInitEntry(descriptor, to, own.attname.data.as_ptr(), own.atttypid, own.atttypmod, 0);
                pg_sys::TupleDescInitEntryCollation(descriptor, to, own.attcollation);
            }
            let last = i16::try_from(count).unwrap_or(i16::MAX);
            pg_sys::TupleDescInitEntry(descriptor, last, c"row of the load".as_ptr(), pg_sys::INT8OID, -1, 0);
            Offer {
                columns,
                descriptor,
                store: pg_sys::tuplestore_begin_heap(false, false, memory),
                rest: std::ptr::null_mut(),
                values: pg_sys::palloc0(count * size_of::<pg_sys::Datum>()).cast(),
                nulls: pg_sys::palloc0(count * size_of::<bool>()).cast(),
                slot: pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsMinimalTuple),
                rows: 0,
                memory,
                context: pg_sys::CurrentMemoryContext,
            }
        }
    }

    /// Adds a row.
    ///
    /// # Safety
    /// A plain frame; a slot with a row of the relation.
    pub unsafe fn add(&mut self, row: *mut pg_sys::TupleTableSlot, number: u64) {
        // SAFETY: this function's contract covers both arguments; the arrays have an element for each column and one
        // for the number.
        unsafe {
            for (i, &attnum) in self.columns.iter().enumerate() {
                if (*row).tts_nvalid < attnum {
                    c::slot_getsomeattrs_int(row, attnum.into());
                }
                let at = usize::try_from(attnum - 1).unwrap_or(0);
                *self.values.add(i) = *(*row).tts_values.add(at);
                *self.nulls.add(i) = *(*row).tts_isnull.add(at);
            }
            *self.values.add(self.columns.len()) = pg_sys::Datum::from(number.cast_signed());
            c::tuplestore_putvalues(self.store, self.descriptor, self.values, self.nulls);
            self.rows += 1;
        }
    }

    /// The rows that stay, according to the decisions so far.
    ///
    /// # Safety
    /// A plain frame; the offer is of this table.
    pub unsafe fn rows(&mut self, table: *const CheckedTable) -> Beside {
        // SAFETY: this function's contract covers frame and table; the slot has a tuple after each successful fetch.
        unsafe {
            begin_rest(self);
            let number = i32::try_from(self.columns.len() + 1).unwrap_or(i32::MAX);
            c::tuplestore_rescan(self.store);
            while c::tuplestore_gettupleslot(self.store, true, false, self.slot) {
                c::check_for_interrupts();
                c::slot_getsomeattrs_int(self.slot, number);
                let row = (*(*self.slot).tts_values.add(self.columns.len())).value() as u64;
                if !(*table).is_removed(row) {
                    c::tuplestore_puttupleslot(self.rest, self.slot);
                }
            }
            Beside { descriptor: self.descriptor, store: self.rest, count: self.rows, alone: false }
        }
    }

    /// Frees its resources. Guarded.
    pub fn close(&mut self) {
        // SAFETY: all were made here; guarded calls.
        unsafe {
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
            pg_sys::tuplestore_end(self.store);
            if !self.rest.is_null() {
                pg_sys::tuplestore_end(self.rest);
            }
        }
    }
}

/// # Safety
/// The offer is valid.
#[pg_guard]
unsafe extern "C-unwind" fn begin_rest(offer: *mut Offer) {
    // SAFETY: this function's contract covers the argument; guarded calls.
    unsafe {
        if !(*offer).rest.is_null() {
            pg_sys::tuplestore_end((*offer).rest);
        }
        let old = pg_sys::MemoryContextSwitchTo((*offer).context);
        (*offer).rest = pg_sys::tuplestore_begin_heap(false, false, (*offer).memory);
        pg_sys::MemoryContextSwitchTo(old);
    }
}
