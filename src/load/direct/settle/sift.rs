//! Rows into indexes that may refuse some of them.

use pgrx::pg_sys;

use super::Table;
use crate::load::direct::leader::Leader;
use crate::load::direct::losers::{self, Rivals};
use crate::load::direct::origin::Place;
use crate::load::duplicate::Keep;
use crate::pg::holder;
use crate::pg::unguarded as c;

/// Insert the new rows into the indexes that are not built. Those that one of them refuses are suspects, or gone.
///
/// # Safety
/// As [`tell`]; a table that was looked at.
pub(super) unsafe fn sift(leader: *mut Leader, table: *mut Table, econtext: *mut pg_sys::ExprContext) {
    // SAFETY: as in `tell`.
    unsafe {
        let (slot, number) = ((*table).slot, (*table).number);
        let (indexes, suspects) = (&raw mut (*table).indexes, &raw mut (*table).suspects);
        let offender = &raw mut (*leader).offender;
        // Rows are deleted by a later command than that which has inserted them.
        c::CommandCounterIncrement();
        if !(*table).indexes.want_rows() {
            // Keys that were collected need none.
            (*indexes).insert_sorted(offender, suspects, slot);
            return;
        }
        if (*table).indexes.are_careful() {
            let order = losers::order(leader, number, (*table).share);
            let (mut row, mut place) = (pg_sys::ItemPointerData::default(), Place::default());
            while losers::next(order, &raw mut row, &raw mut place) {
                (*table).new.visit(&row, slot, || {
                    take_or_leave(leader, table, &raw const place);
                    c::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
                });
            }
            losers::keep_superseded(leader, number, indexes, suspects);
            (*indexes).insert_sorted(offender, std::ptr::null_mut(), slot);
            return;
        }
        // Keys of rows that are going to lose come along: they do no harm.
        (*table).gathered = (*table).refers;
        (*table).new.for_each(slot, || {
            c::list_free((*indexes).add(slot, offender));
            if (*table).refers {
                (*table).keys.add(slot, |_| ());
            }
            c::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
        });
        (*indexes).insert_sorted(offender, suspects, slot);
    }
}

/// Insert a row into the indexes, unless another row is in its way.
///
/// # Safety
/// As [`sift`], with one of the rows in the table's slot.
unsafe fn take_or_leave(leader: *mut Leader, table: *mut Table, place: *const Place) {
    // SAFETY: as in `sift`.
    unsafe {
        let (slot, relation) = ((*table).slot, (*table).new.relation);
        let (indexes, suspects) = (&raw mut (*table).indexes, &raw mut (*table).suspects);
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
                    holder::check_visible(relation, &raw const holder);
                }
            }
            if is_taken && keep == Keep::Old {
                return losers::lose(leader, relation, &raw const row, place, indexes, arbiter);
            }
            if (*leader).process.rejects.keeps()
                && let Some(index) = (*indexes).in_the_way(slot, &holder)
            {
                return losers::lose(leader, relation, &raw const row, place, indexes, index);
            }
            // The one that was in the way may have been changed meanwhile.
            let rivals = Rivals { row, other: holder, is_own };
            if is_taken && !losers::replace(leader, relation, &raw const rivals, suspects) {
                continue;
            }
            c::list_free((*indexes).add(slot, &raw mut (*leader).offender));
            return;
        }
    }
}
