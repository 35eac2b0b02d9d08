//! Finds orphans: rows without a parent.
//!
//! A load finds them in rounds, since deleting a row makes orphans of the rows that refer to it
//! ([`finalize`](crate::load::direct::finalize)). This module uses the same rounds.

use pgrx::{pg_guard, pg_sys};

use super::super::{CheckedTable, missing};
use super::{leave_out, table_of};
use crate::error::OrRaise;
use crate::load::direct::key_query::{Beside, KeyQuery};
use crate::load::direct::leader::Leader;
use crate::load::direct::removed_rows::RemovalReason;
use crate::load::rejects::Complaint;
use crate::server::unguarded as c;

/// Finds the rows of all tables that violate a foreign key.
///
/// # Safety
/// See [`super::decide`]; the rows that conflict with others are known.
pub unsafe fn decide(leader: *mut Leader) {
    // SAFETY: as in `super::decide`.
    unsafe {
        let count = (*leader).spec.traits.len();
        let mut taken = 0;
        for number in 0..count {
            taken += hunt(leader, number, false);
        }
        // Rows that referred to rows that do not stay.
        while taken > 0 {
            taken = 0;
            for number in 0..count {
                taken += hunt(leader, number, true);
            }
        }
    }
}

/// Finds the orphans of a table, and returns how many there are. With `again`, only if the table refers to a relation
/// of the load, whose rows may have been rejected.
///
/// # Safety
/// See [`decide`].
unsafe fn hunt(leader: *mut Leader, number: usize, again: bool) -> u64 {
    // SAFETY: as in `decide`; nothing in this frame has a destructor.
    unsafe {
        let table = table_of(leader, number);
        if table.is_null() || (*table).keys.are_none() {
            return 0;
        }
        let traits = &(*leader).spec.traits;
        let is_loaded = |oid: pg_sys::Oid| traits.iter().any(|(loaded, _)| *loaded == oid);
        if again && !(*table).keys.refer_to(is_loaded) {
            return 0;
        }
        let context = begin((*table).memory);
        pg_sys::CurrentMemoryContext = context;
        (*table).keys.look(|query| beside(leader, query), |key, row| missing(table, key, row));
        pg_sys::CurrentMemoryContext = (*table).memory;
        let count = take_out(leader, table);
        c::MemoryContextDelete(context);
        count
    }
}

/// Rows of the load that a foreign key may refer to, besides the rows of its table.
///
/// # Safety
/// See [`decide`].
unsafe fn beside(leader: *const Leader, query: &KeyQuery) -> Beside {
    // SAFETY: as in `decide`.
    unsafe {
        let traits = &raw const (*leader).spec.traits;
        let alone = (*leader).process.keys.as_ref().is_some_and(|check| check.as_truncated);
        for number in 0..(*traits).len() {
            if (*(*traits).as_ptr().add(number)).0 != query.parent {
                continue;
            }
            let table = table_of(leader, number);
            if table.is_null() {
                return Beside { alone, ..Beside::NOTHING };
            }
            for i in 0..(*table).offers.len() {
                let offer = (*table).offers.as_mut_ptr().add(i);
                if (*offer).columns == query.referenced {
                    return Beside { alone, ..(*offer).rows(table) };
                }
            }
        }
        Beside::NOTHING
    }
}

/// # Safety
/// The memory context is valid.
#[pg_guard]
unsafe extern "C-unwind" fn begin(parent: pg_sys::MemoryContext) -> pg_sys::MemoryContext {
    // SAFETY: this function's contract covers the argument; a guarded call.
    unsafe {
        pg_sys::AllocSetContextCreateExtended(
            parent,
            c"pg_bulk orphans".as_ptr(),
            pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
        )
    }
}

/// Rejects the orphans that were found. Returns how many there were.
///
/// # Safety
/// The leader is valid, and the table is one of its tables.
#[pg_guard]
unsafe extern "C-unwind" fn take_out(leader: *mut Leader, table: *mut CheckedTable) -> u64 {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        let table = &mut *table;
        let Some(orphans) = table.orphans.take() else { return 0 };
        let complaints: Vec<Complaint> = table.keys.complaints(table.relation);
        leave_out(&mut *leader, table, orphans, |leader, key, place| {
            let complaint = usize::try_from(key).ok().and_then(|key| complaints.get(key)).cloned();
            leader.leave_out(place, RemovalReason::Reject, complaint.unwrap_or_default())
        })
        .or_raise()
    }
}
