//! Builds indexes from collected keys.

use std::cell::Cell;
use std::time::Instant;

use pg_bulk_storage::btree::entry::Tid;
use pgrx::PgSqlErrorCode as Code;

use super::table::{WrittenTable, left_beside};
use super::{Finalization, Written};
use crate::error::{Error, OrRaise, Result};
use crate::heap::removal::row_of;
use crate::index::index_keys::{self, Clash, Help, Sources};
use crate::index::key_conflicts::Group;
use crate::index::strategy::IndexStrategy;
use crate::load::direct::leader::Leader;
use crate::load::duplicate::Keep;
use crate::load::report::Why;
use crate::server::holder::{self, HeapRow};

impl Finalization {
    /// Builds the indexes whose keys were collected. All indexes of the table are closed. Guarded.
    pub(super) fn build(
        &self,
        leader: &mut Leader,
        written: &mut Written,
        table: &mut WrittenTable,
        held_by_others: usize,
        survives: bool,
    ) -> Result<()> {
        let &Finalization { files, workers, builders, .. } = self;
        let (rows, start) = (written.rows, written.start);
        let mut elsewhere: Vec<Tid> = written.elsewhere.iter().map(index_keys::tid_of).collect();
        elsewhere.sort_unstable();
        let elsewhere = &*elsewhere;
        let violating_row = &mut leader.violating_row;
        let conflicts = &mut table.conflicts;
        let (relation, keep, arbiter) = (table.new.relation(), table.indexes.keep(), table.indexes.arbiter());
        for (number, index) in table.indexes.list.iter_mut().enumerate() {
            let merge = index.strategy == IndexStrategy::Merge;
            // Without a merge, collected keys are the whole index only if the table was empty.
            if !merge && (index.strategy != IndexStrategy::Rebuild || start > 0) {
                continue;
            }
            let beside = written.collectors.iter().filter(|collector| collector.index != index.oid);
            let held = held_by_others + beside.map(|collector| collector.held()).sum::<usize>();
            let Some(collector) = written.collectors.iter_mut().find(|collector| collector.index == index.oid) else {
                continue;
            };
            let memory = left_beside(held);
            let began = Instant::now();
            let done = Cell::new(Help::default());
            let help = (!survives).then_some(&done);
            let sources = Sources { files, workers, builders, memory, rows, merge, start, elsewhere, help };
            let mut group = Group::NONE;
            let replaces = keep == Keep::New && arbiter == Some(number);
            let mut may_stay = |clash: Clash<'_>, row: Tid| {
                let place = |tid: Tid| row_of(tid.to_u64());
                if !survives {
                    violating_row.row = Some(place(row));
                    violating_row.other = None;
                    match clash {
                        Clash::Twin { before, .. } => violating_row.other = Some(place(before)),
                        Clash::Takes { rows, .. } => {
                            violating_row.row = rows.iter().find(|&&row| sources.is_new(row)).map(|&row| place(row));
                        }
                        Clash::Taken { .. } => (),
                    }
                    return false;
                }
                // A replaced row of the table is deleted at once. The row that replaces it is known only after all
                // keys.
                if replaces
                    && let Clash::Taken { by, begins: true } | Clash::Takes { by, .. } = &clash
                    // SAFETY: the relation is open and locked, and this is a row that is in the index.
                    && !holder::delete(unsafe { HeapRow::new(relation, *by) }).or_raise()
                {
                    let message = "a row of the table was changed although the table was locked";
                    Err::<(), _>(Error::new(Code::ERRCODE_INTERNAL_ERROR, message)).or_raise();
                }
                match clash {
                    Clash::Taken { by, begins } => {
                        let known = if begins { Group::NONE } else { group };
                        group = conflicts.taken(number, &place(row), &by, known);
                    }
                    Clash::Twin { before, begins } => {
                        let known = if begins { Group::NONE } else { group };
                        group = conflicts.twin(number, &place(before), known, &place(row));
                    }
                    Clash::Takes { by, rows, begins } => {
                        group = if begins { Group::NONE } else { group };
                        for &row in rows.iter().filter(|&&row| sources.is_new(row)) {
                            group = conflicts.taken(number, &place(row), &by, group);
                        }
                    }
                }
                true
            };
            // `Rebuild` has locked the index and found no other writer.
            let built = index_keys::build(relation, collector, sources, &mut may_stay)?;
            index.strategy = match (built, merge) {
                (true, true) => IndexStrategy::Merge,
                (true, false) => IndexStrategy::Build,
                (false, _) => IndexStrategy::Rebuild,
            };
            if merge && !built {
                index.why = Why::Keys;
            }
            let Help { workers: helped, cpu } = done.get();
            index.workers = helped;
            leader.counts.others.add(cpu);
            index.took += began.elapsed();
        }
        Ok(())
    }
}
