//! Inserts rows into indexes that may exclude some of them.

use pgrx::pg_sys;

use super::WrittenTable;
use crate::error::{OrRaise, Result};
use crate::load::direct::leader::Leader;
use crate::load::direct::origin::RecordPosition;
use crate::load::direct::removed_rows::Rivals;
use crate::load::duplicate::Keep;
use crate::server::holder::{self, HeapRow};
use crate::server::slot::ExprContext;
use crate::server::statement::next_command;
use crate::server::unguarded::{self as c, guard, guarded};

impl WrittenTable {
    /// Inserts the new rows into the indexes that are not built. Rows that an index does not accept are noted or removed.
    /// Guarded.
    pub(super) fn insert_checked(&mut self, leader: &mut Leader, context: ExprContext<'_>) -> Result<()> {
        let mut conflicts = &raw mut self.conflicts;
        // Rows must be deleted by a later command than the one that inserted them.
        next_command();
        // Collected keys do not need the rows.
        if self.indexes.want_rows() && self.indexes.are_checked() {
            let mut order = leader.file_order(self.number, self.sort_memory)?;
            // SAFETY: the positions are those of the table's rows; the closure owns nothing.
            unsafe {
                guard(|| {
                    while let Some((row, place)) = guarded(|| order.next()) {
                        self.take_or_leave(leader, &row, place);
                        c::MemoryContextReset(context.memory());
                    }
                });
            }
            leader.keep_all_superseded(self.number, &self.indexes, &mut self.conflicts)?;
            conflicts = std::ptr::null_mut();
        } else if self.indexes.want_rows() {
            // Keys of rows that are removed later are collected, too, which does no harm.
            self.gathered = self.refers;
            let (refers, indexes, keys) = (self.refers, &mut self.indexes, &mut self.keys);
            let violating_row = &raw mut leader.violating_row;
            // SAFETY: the slot has a row of the table; the closure is plain.
            unsafe {
                self.new.for_each(|slot| {
                    c::list_free(indexes.add(slot, violating_row));
                    if refers {
                        keys.add(slot, |_| ());
                    }
                    c::MemoryContextReset(context.memory());
                });
            }
        }
        // SAFETY: all rows were added; the closure owns nothing.
        unsafe { guard(|| self.indexes.insert_sorted(&raw mut leader.violating_row, conflicts, self.new.slot())) };
        Ok(())
    }

    /// Inserts a row into the indexes, unless it conflicts with another row.
    ///
    /// # Safety
    /// A plain frame; one of the table's rows.
    unsafe fn take_or_leave(&mut self, leader: &mut Leader, row: &pg_sys::ItemPointerData, place: RecordPosition) {
        let (new, indexes, conflicts) = (&self.new, &mut self.indexes, &mut self.conflicts);
        let relation = new.relation();
        let keep = indexes.keep();
        // SAFETY: the slot has the row, and the relation and its indexes are open; the closure is plain.
        unsafe {
            new.visit(row, |slot| {
                let row = HeapRow::new(relation, (*slot).tts_tid);
                loop {
                    let arbiter = indexes.arbiter().unwrap_or(usize::MAX);
                    let holder = indexes.holder(arbiter, slot);
                    let is_taken = holder.ip_posid != 0;
                    let is_own = is_taken && new.has(&holder);
                    if is_taken && !is_own && keep == Keep::Old {
                        guarded(|| holder::check_visible(HeapRow::new(relation, holder)).or_raise());
                    }
                    if is_taken && keep == Keep::Old {
                        return guarded(|| leader.remove_row(row, place, indexes, arbiter).or_raise());
                    }
                    if leader.process.writer.rejects.keeps()
                        && let Some(index) = indexes.in_the_way(slot, &holder)
                    {
                        return guarded(|| leader.remove_row(row, place, indexes, index).or_raise());
                    }
                    // The conflicting row may have been changed in the meantime.
                    let rivals = Rivals { row: row.tid(), other: HeapRow::new(relation, holder), is_own };
                    if is_taken && !guarded(|| leader.replace(rivals, conflicts).or_raise()) {
                        continue;
                    }
                    c::list_free(indexes.add(slot, &raw mut leader.violating_row));
                    return;
                }
            });
        }
    }
}
