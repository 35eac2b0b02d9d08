//! Inserts rows into indexes that may exclude some of them.

use pgrx::pg_sys;

use super::WrittenTable;
use crate::error::OrRaise;
use crate::load::direct::leader::Leader;
use crate::load::direct::origin::RecordPosition;
use crate::load::direct::removed_rows::{self, Rivals};
use crate::load::duplicate::Keep;
use crate::server::holder;
use crate::server::relation::Relation;
use crate::server::unguarded::{self as c, guarded};

/// Inserts the new rows into the indexes that are not built. Rows that an index does not accept are noted or removed.
///
/// # Safety
/// See [`finalize_relation`]; the table was made by [`look`](super::look).
pub(super) unsafe fn insert_checked(leader: *mut Leader, table: *mut WrittenTable, econtext: *mut pg_sys::ExprContext) {
    // SAFETY: as in `finalize_relation`.
    unsafe {
        let (slot, number) = ((*table).slot, (*table).number);
        let (indexes, conflicts) = (&raw mut (*table).indexes, &raw mut (*table).conflicts);
        let violating_row = &raw mut (*leader).violating_row;
        // Rows must be deleted by a later command than the one that inserted them.
        c::CommandCounterIncrement();
        if !(*table).indexes.want_rows() {
            // Collected keys do not need the rows.
            (*indexes).insert_sorted(violating_row, conflicts, slot);
            return;
        }
        if (*table).indexes.are_checked() {
            let order = removed_rows::order(leader, number, (*table).sort_memory);
            let (mut row, mut place) = (pg_sys::ItemPointerData::default(), RecordPosition::default());
            while removed_rows::next(order, &raw mut row, &raw mut place) {
                (*table).new.visit(&row, slot, || {
                    take_or_leave(leader, table, &raw const place);
                    c::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
                });
            }
            guarded(|| (*leader).keep_all_superseded(number, &*indexes, &mut *conflicts).or_raise());
            (*indexes).insert_sorted(violating_row, std::ptr::null_mut(), slot);
            return;
        }
        // Keys of rows that are removed later are collected, too, which does no harm.
        (*table).gathered = (*table).refers;
        (*table).new.for_each(slot, || {
            c::list_free((*indexes).add(slot, violating_row));
            if (*table).refers {
                (*table).keys.add(slot, |_| ());
            }
            c::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
        });
        (*indexes).insert_sorted(violating_row, conflicts, slot);
    }
}

/// Inserts a row into the indexes, unless it conflicts with another row.
///
/// # Safety
/// See [`insert_checked`]; one of the rows is in the table's slot.
unsafe fn take_or_leave(leader: *mut Leader, table: *mut WrittenTable, place: *const RecordPosition) {
    // SAFETY: as in `insert_checked`.
    unsafe {
        let (slot, relation) = ((*table).slot, (*table).new.relation);
        let (indexes, conflicts) = (&raw mut (*table).indexes, &raw mut (*table).conflicts);
        let row = (*slot).tts_tid;
        let keep = (*indexes).keep();
        loop {
            let arbiter = (*indexes).arbiter().unwrap_or(usize::MAX);
            let holder = (*indexes).holder(arbiter, slot);
            let is_taken = holder.ip_posid != 0;
            let mut is_own = false;
            if is_taken {
                (*table).new.visit(&holder, (*table).other, || is_own = true);
                if !is_own && keep == Keep::Old {
                    let relation = Relation::from_raw(relation);
                    c::guarded(|| holder::check_visible(relation, &holder).or_raise());
                }
            }
            if is_taken && keep == Keep::Old {
                return guarded(|| (*leader).remove_row(relation, row, *place, &*indexes, arbiter).or_raise());
            }
            if (*leader).process.rejects.keeps()
                && let Some(index) = (*indexes).in_the_way(slot, &holder)
            {
                return guarded(|| (*leader).remove_row(relation, row, *place, &*indexes, index).or_raise());
            }
            // The conflicting row may have been changed in the meantime.
            let rivals = Rivals { row, other: holder, is_own };
            if is_taken && !guarded(|| (*leader).replace(relation, rivals, &mut *conflicts).or_raise()) {
                continue;
            }
            c::list_free((*indexes).add(slot, &raw mut (*leader).violating_row));
            return;
        }
    }
}
