//! Indexes out of the keys that were collected.

use std::cell::Cell;
use std::time::Instant;

use pg_bulk_format::btree::entry::Tid;
use pgrx::{PgSqlErrorCode as Code, pg_guard};

use super::{Settling, Table, Written, left_beside};
use crate::error::{Error, OrRaise};
use crate::load::direct::index_keys::{self, Clash, Collector, Help, Sources};
use crate::load::direct::suspects::Group;
use crate::load::direct::way::Way;
use crate::load::duplicate::Keep;
use crate::load::report::Why;
use crate::pg::holder;
use crate::pg::removal::row_of;

/// Build the indexes whose keys were collected.
///
/// # Safety
/// As [`tell`], with what [`look`] made. The indexes are closed.
#[pg_guard]
pub(super) unsafe extern "C-unwind" fn build(
    settling: *const Settling,
    written: *mut Written,
    table: *mut Table,
    survives: bool,
) {
    // SAFETY: this function's contract covers all arguments.
    unsafe {
        // Keys of other relations wait in memory, too.
        let relations = &(*settling).relations;
        let others = relations.iter().filter(|other| !std::ptr::eq(*other, written));
        let held_by_others: usize = others.flat_map(|other| &other.collectors).map(Collector::held).sum();
        let (settling, written, table) = (&*settling, &mut *written, &mut *table);
        let (files, workers, rows, start) = (settling.files, settling.workers, written.rows, written.start);
        let mut elsewhere: Vec<Tid> = written.elsewhere.iter().map(index_keys::tid_of).collect();
        elsewhere.sort_unstable();
        let elsewhere = &*elsewhere;
        let offender = &raw mut (*settling.leader).offender;
        let suspects = &mut table.suspects;
        let (relation, keep, arbiter) = (table.new.relation, table.indexes.keep(), table.indexes.arbiter());
        for (number, index) in table.indexes.list.iter_mut().enumerate() {
            let merge = index.way == Way::Merged;
            // Not to be told from what the table had before, unless that was nothing.
            if !merge && (index.way != Way::Rebuilt || start > 0) {
                continue;
            }
            let beside = written.collectors.iter().filter(|collector| collector.index != index.oid);
            let held = held_by_others + beside.map(Collector::held).sum::<usize>();
            let Some(collector) = written.collectors.iter_mut().find(|collector| collector.index == index.oid) else {
                continue;
            };
            let memory = left_beside(held);
            let began = Instant::now();
            let done = Cell::new(Help::default());
            let help = (!survives).then_some(&done);
            let builders = settling.builders;
            let sources = Sources { files, workers, builders, memory, rows, merge, start, elsewhere, help };
            let mut group = Group::NONE;
            let replaces = keep == Keep::New && arbiter == Some(number);
            let mut judge = |clash: Clash<'_>, row: Tid| {
                let place = |tid: Tid| row_of(tid.to_u64());
                if !survives {
                    (*offender).row = Some(place(row));
                    (*offender).other = None;
                    match clash {
                        Clash::Twin { before, .. } => (*offender).other = Some(place(before)),
                        Clash::Takes { rows, .. } => {
                            (*offender).row = rows.iter().find(|&&row| sources.is_new(row)).map(|&row| place(row));
                        }
                        Clash::Taken { .. } => (),
                    }
                    return false;
                }
                // A row that is replaced is gone at once; who takes its place is known when all have been seen.
                if replaces
                    && let Clash::Taken { by, begins: true } | Clash::Takes { by, .. } = &clash
                    && !holder::delete(relation, by)
                {
                    let message = "a row of the table was changed although the table was locked";
                    Err::<(), _>(Error::new(Code::ERRCODE_INTERNAL_ERROR, message)).or_raise();
                }
                match clash {
                    Clash::Taken { by, begins } => {
                        let known = if begins { Group::NONE } else { group };
                        group = suspects.taken(number, &place(row), &by, known);
                    }
                    Clash::Twin { before, begins } => {
                        let known = if begins { Group::NONE } else { group };
                        group = suspects.twin(number, &place(before), known, &place(row));
                    }
                    Clash::Takes { by, rows, begins } => {
                        group = if begins { Group::NONE } else { group };
                        for &row in rows.iter().filter(|&&row| sources.is_new(row)) {
                            group = suspects.taken(number, &place(row), &by, group);
                        }
                    }
                }
                true
            };
            let built = index_keys::build(table.new.relation, collector, sources, &mut judge).or_raise();
            index.way = match (built, merge) {
                (true, true) => Way::Merged,
                (true, false) => Way::Built,
                (false, _) => Way::Rebuilt,
            };
            if merge && !built {
                index.why = Why::Keys;
            }
            let Help { workers: helped, cpu } = done.get();
            index.workers = helped;
            (*settling.leader).counts.others.add(cpu);
            index.took += began.elapsed();
        }
    }
}
