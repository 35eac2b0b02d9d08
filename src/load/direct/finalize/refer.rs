//! Checks foreign keys whose violations are rejected, after all relations of the load have their indexes.

use pgrx::pg_sys;

use super::{Finalization, WrittenTable, check_serializable, close};
use crate::load::direct::executor::Executor;
use crate::load::direct::orphans::{self, Hunt};
use crate::load::phase::{Phase, enter};
use crate::server::unguarded as c;

/// Checks the foreign keys that were put off, and queues the remaining triggers.
///
/// # Safety
/// See [`after_rows`]; the indexes of all relations contain their rows.
pub unsafe fn check(finalization: *mut Finalization) {
    // SAFETY: as in `after_rows`.
    unsafe {
        let Executor { estate, .. } = (*finalization).executor;
        let caller = pg_sys::CurrentMemoryContext;
        let (tables, count) = ((*finalization).referring.as_ptr(), (*finalization).referring.len());
        if count > 0 {
            enter((*finalization).phases, Phase::ForeignKeys);
        }
        let mut taken = 0;
        for i in 0..count {
            let table = *tables.add(i);
            pg_sys::CurrentMemoryContext = (*table).memory;
            if !(*table).gathered {
                let slot = (*table).slot;
                (*table).new.for_each(slot, || (*table).keys.add(slot, |_| ()));
            }
            if !(*table).keys.check() {
                taken += hunt(finalization, table);
            }
        }
        // Rows that referred to rows that are deleted now.
        while taken > 0 {
            taken = 0;
            for i in 0..count {
                let table = *tables.add(i);
                pg_sys::CurrentMemoryContext = (*table).memory;
                if (*table).keys.refer_to(|oid| (*finalization).relations.iter().any(|written| written.oid == oid)) {
                    taken += hunt(finalization, table);
                }
            }
        }
        for i in 0..count {
            let table = *tables.add(i);
            pg_sys::CurrentMemoryContext = (*table).memory;
            if (*table).keys.leave_others() {
                let (slot, relinfo) = ((*table).slot, (*table).relinfo);
                (*table).keys.let_server_check();
                (*table).new.for_each(slot, || {
                    c::ExecARInsertTriggers(estate, relinfo, slot, std::ptr::null_mut(), std::ptr::null_mut());
                });
            }
            check_serializable((*table).new.relation);
            pg_sys::CurrentMemoryContext = caller;
            close(finalization, table);
        }
    }
}

/// Deletes the orphans of a table. Returns how many there were.
///
/// # Safety
/// See [`check`]; the table is one of its tables.
unsafe fn hunt(finalization: *const Finalization, table: *mut WrittenTable) -> u64 {
    // SAFETY: as in `check`.
    unsafe {
        let (rows, keys) = (&raw const (*table).new, &raw mut (*table).keys);
        let mut hunt =
            Hunt::new((*finalization).leader, rows, (*table).slot, keys, (*table).number, (*table).sort_memory);
        orphans::hunt(&raw mut hunt)
    }
}
