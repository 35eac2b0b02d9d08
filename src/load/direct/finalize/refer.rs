//! Checks foreign keys whose violations are rejected, after all relations of the load have their indexes.

use super::{Finalization, check_serializable};
use crate::error::Result;
use crate::load::direct::leader::Leader;
use crate::load::direct::removed_rows::hunt;
use crate::load::phase::Phase;

impl Finalization {
    /// Checks the foreign keys that were put off, and queues the remaining triggers. The indexes of all relations contain
    /// their rows. Guarded.
    pub(super) fn check_references(&mut self, leader: &mut Leader) -> Result<()> {
        let mut tables = std::mem::take(&mut self.referring);
        if !tables.is_empty() {
            leader.phases().enter(Phase::ForeignKeys);
        }
        let mut taken = 0;
        for table in &mut tables {
            let _memory = table.memory.enter();
            if !table.gathered {
                // SAFETY: the slot has a row of the table; the closure is plain.
                unsafe { table.new.for_each(|slot| table.keys.add(slot, |_| ())) };
            }
            if !table.keys.check()? {
                taken += hunt(leader, &table.new, &mut table.keys, table.number, table.sort_memory)?;
            }
        }
        // Rows that referred to rows that are deleted now.
        while taken > 0 {
            taken = 0;
            for table in &mut tables {
                let _memory = table.memory.enter();
                if table.keys.refer_to(|oid| self.relations.iter().any(|written| written.oid == oid)) {
                    taken += hunt(leader, &table.new, &mut table.keys, table.number, table.sort_memory)?;
                }
            }
        }
        for mut table in tables {
            let memory = table.memory.enter();
            if table.keys.leave_others() {
                table.keys.let_server_check();
                self.queue_triggers(&table);
            }
            check_serializable(table.new.relation());
            drop(memory);
            self.close(table);
        }
        Ok(())
    }
}
