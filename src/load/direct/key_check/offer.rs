//! Offers: referenced columns of rows that are not stored, for the rows that refer to them.

use pgrx::pg_sys;

use super::CheckedTable;
use crate::index::key_conflicts::Bits;
use crate::server::relation::{Relation, TupleDesc};
use crate::server::tuplestore::Tuplestore;
use crate::server::unguarded::{self as c, guard};

/// The referenced columns of a relation's new rows.
#[derive(Debug)]
pub struct Offer {
    columns: Vec<i16>,
    /// The columns' values, and the row's number.
    store: Tuplestore,
    values: *mut pg_sys::Datum,
    nulls: *mut bool,
    slot: *mut pg_sys::TupleTableSlot,
    memory: i32,
}

impl Offer {
    /// Makes an offer of some columns of a relation. Guarded; allocates in the current memory context.
    pub fn new(relation: Relation<'_>, mut columns: Vec<i16>, memory: i32) -> Offer {
        let own = |attnum: i16| relation.descriptor().attribute(usize::try_from(attnum - 1).ok()?);
        columns.retain(|&attnum| own(attnum).is_some());
        let count = columns.len() + 1;
        // SAFETY: guarded calls; the descriptor lives in the current memory context, as the store does. The query finds
        // columns by name, and does not use the number.
        unsafe {
            let descriptor = pg_sys::CreateTemplateTupleDesc(i32::try_from(count).unwrap_or(1));
            for (i, &attnum) in columns.iter().enumerate() {
                let Some(own) = own(attnum) else { continue };
                let to = i16::try_from(i + 1).unwrap_or(i16::MAX);
                pg_sys::TupleDescInitEntry(descriptor, to, own.attname.data.as_ptr(), own.atttypid, own.atttypmod, 0);
                pg_sys::TupleDescInitEntryCollation(descriptor, to, own.attcollation);
            }
            let last = i16::try_from(count).unwrap_or(i16::MAX);
            pg_sys::TupleDescInitEntry(descriptor, last, c"row of the load".as_ptr(), pg_sys::INT8OID, -1, 0);
            Offer {
                columns,
                store: Tuplestore::new(TupleDesc::from_raw(descriptor), memory),
                values: pg_sys::palloc0(count * size_of::<pg_sys::Datum>()).cast(),
                nulls: pg_sys::palloc0(count * size_of::<bool>()).cast(),
                slot: pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsMinimalTuple),
                memory,
            }
        }
    }

    pub fn columns(&self) -> &[i16] {
        &self.columns
    }

    /// Adds a row.
    ///
    /// # Safety
    /// A plain frame; a slot with a row of the relation.
    pub unsafe fn add(&mut self, row: *mut pg_sys::TupleTableSlot, number: u64) {
        // SAFETY: the row has the columns; the arrays have an element for each column and one for the number.
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
            self.store.put(self.values, self.nulls);
        }
    }

    /// The rows that stay, according to the decisions so far. Guarded; allocates in the current memory context.
    pub fn rows(&self, removed: &Bits) -> Tuplestore {
        let rest = Tuplestore::new(self.store.descriptor(), self.memory);
        self.store.rescan();
        let number = self.columns.len();
        // SAFETY: after each successful fetch, the slot has a row with a number behind the columns; the closure owns
        // nothing.
        unsafe {
            guard(|| {
                while self.store.next(self.slot) {
                    c::check_for_interrupts();
                    c::slot_getsomeattrs_int(self.slot, i32::try_from(number + 1).unwrap_or(i32::MAX));
                    let row = (*(*self.slot).tts_values.add(number)).value() as u64;
                    if !removed.has(CheckedTable::ordinal(row)) {
                        rest.put_slot(self.slot);
                    }
                }
            });
        }
        rest
    }

    /// Frees its resources. Guarded.
    pub fn close(self) {
        // SAFETY: a guarded call; made by `new`.
        unsafe { pg_sys::ExecDropSingleTupleTableSlot(self.slot) };
        self.store.end();
    }
}
