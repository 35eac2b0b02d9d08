//! Checks keys of rows that are not stored: which of their constraints would raise an error if they were in their
//! tables.
//!
//! ```text
//!   row ─┬─► keys of unique indexes ─► sort ─► equal to one before? in the table? ─► groups ─┐
//!        ├─► keys of exclusion constraints ─► in the table? ─► groups ───────────────────────┼─► decide in file order
//!        │                                └─► kept, in file order ───────────────────────────┘         │
//!        └─► foreign keys ─► sort ─► in the table, or among the rows that stay? ◄──────────────────────┘
//! ```
//!
//! A load finds such rows by inserting them, and deletes them again ([`super::removed_rows`]). A
//! dry run inserts nothing, locks no row and waits for no session; but it finds the same rows, with the same errors.
//! Rows have numbers instead of heap positions. The numbers ascend in the order of the file, so one process reads the
//! whole file.
//!
//! The tricky point is that a row is compared only with earlier rows that stay, and whether these stay depends on other
//! rows. A row that one index excludes conflicts with no row in another index, and cannot be a parent. So all keys are
//! collected first.

pub mod decide;
mod exclusion;
mod offer;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::exclusion::Exclusion;
use self::offer::Offer;
use super::executor::Executor;
use super::foreign_keys::ForeignKeys;
use super::indexes::Indexes;
use super::origin::{Origin, Origins, Traces, Trail};
use crate::error::{Error, Result};
use crate::guc;
use crate::heap::removal::{number_of, row_of};
use crate::index::key_conflicts::{Bits, KeyConflicts};
use crate::index::number_sort::NumberSort;
use crate::index::strategy::IndexStrategy;
use crate::index::tuple_sort::LEAST_MEMORY;
use crate::load::duplicate::Keep;
use crate::load::options::{LoadOptions, Truncate};
use crate::server::memory_context::MemoryContext;
use crate::server::relation::Relation;
use crate::server::result_relation::ResultRelation;
use crate::server::unguarded::{self as c, guarded};

/// Rows of a pseudo block; each needs an offset number.
const PER_BLOCK: u64 = 1 << 15;

/// The keys of a load's rows.
#[derive(Debug)]
pub struct KeyCheck {
    executor: Executor,
    keep: Keep,
    arbiter: Option<pg_sys::Oid>,
    /// The tables count as empty.
    as_truncated: bool,
    /// Positions are line numbers.
    lines: bool,
    /// For each of the load's relations, once it has a row.
    tables: Vec<Option<Box<CheckedTable>>>,
    /// The last result relation and the number of its table.
    last: Option<(ResultRelation, usize)>,
    /// Foreign keys between relations of the load: the referenced relation and its referenced columns.
    referenced: Vec<(usize, Vec<i16>)>,
}

/// A relation that has rows.
#[derive(Debug)]
pub struct CheckedTable {
    /// Index of the relation among the load's relations.
    number: usize,
    relation: Relation<'static>,
    /// Number of rows so far.
    rows: u64,
    trail: Trail,
    indexes: Indexes,
    exclusions: Vec<Exclusion>,
    conflicts: KeyConflicts,
    keys: ForeignKeys,
    orphans: Orphans,
    /// Referenced columns, for rows that refer to this table.
    offers: Vec<Offer>,
    /// Rows that do not stay, by ordinal number.
    removed: Bits,
    /// A slot for rows of the table itself.
    slot: *mut pg_sys::TupleTableSlot,
    /// Memory for each sort, in kB.
    sort_memory: i32,
    /// Memory context of all of the table's state.
    memory: MemoryContext,
}

/// Rows that violate a foreign key, with the key.
#[derive(Debug)]
struct Orphans {
    rows: Option<NumberSort<4>>,
    /// Memory for each sort, in kB, and the memory context of the sort.
    sort_memory: i32,
    memory: MemoryContext,
}

impl Orphans {
    /// Notes a row, unless it does not stay anyway. Guarded.
    fn put(&mut self, removed: &Bits, key: usize, row: u64) {
        if removed.has(CheckedTable::ordinal(row)) {
            return;
        }
        let _memory = self.memory.enter();
        // Two more sorts start when this one is complete.
        self.rows.get_or_insert_with(|| NumberSort::new(self.sort_memory / 3)).put([row, key as u64, 0, 0]);
    }
}

impl KeyCheck {
    /// Makes the check for the relations of a load, with its executor state. Guarded.
    pub fn new(
        executor: Executor,
        relations: &[Relation<'_>],
        options: &LoadOptions,
        arbiter: Option<pg_sys::Oid>,
        traces: Traces,
    ) -> KeyCheck {
        let mut referenced: Vec<(usize, Vec<i16>)> = Vec::new();
        for relation in relations {
            for key in relation.foreign_keys() {
                let Some(parent) = relations.iter().position(|other| other.oid() == key.confrelid) else { continue };
                let count = usize::try_from(key.nkeys).unwrap_or(0);
                let offer = (parent, key.confkey.into_iter().take(count).collect());
                if !referenced.contains(&offer) {
                    referenced.push(offer);
                }
            }
        }
        KeyCheck {
            executor,
            keep: options.duplicates.keep,
            arbiter,
            as_truncated: options.table.truncate == Truncate::Assumed,
            lines: traces == Traces::Lines,
            tables: relations.iter().map(|_| None).collect(),
            last: None,
            referenced,
        }
    }

    /// Makes the table for rows of a result relation. Guarded.
    fn open(&self, relinfo: ResultRelation, number: usize) -> CheckedTable {
        let relation = relinfo.relation();
        let memory = self.executor.memory().child(c"pg_bulk keys");
        let _entered = memory.enter();
        // Routing has opened the indexes, but not for speculative insertion.
        // SAFETY: the load has no handle of the executor's indexes.
        unsafe { relinfo.open_indexes(true) };
        let mut indexes = Indexes::to_ask(relinfo, self.executor, self.keep, self.arbiter, !self.as_truncated);
        indexes.prepare();
        // SAFETY: a guarded call on an open relation.
        let slot = unsafe { pg_sys::table_slot_create(relation.as_ptr(), std::ptr::null_mut()) };
        let mut keys = ForeignKeys::new(relinfo, 0, true, pg_sys::AccessShareLock);
        let offered = self.referenced.iter().filter(|(parent, _)| *parent == number);
        let offered: Vec<&Vec<i16>> = offered.map(|(_, columns)| columns).collect();
        // All sorts together get maintenance_work_mem, as one index build does.
        let searched =
            |index: usize| indexes.list.get(index).is_some_and(|index| index.strategy == IndexStrategy::SearchOnly);
        let searched: Vec<usize> = (0..indexes.list.len()).filter(|&index| searched(index)).collect();
        let sorts = (indexes.sorts() + searched.len() + keys.len() + offered.len()) * self.tables.len();
        let sort_memory =
            (guc::maintenance_work_mem() / i32::try_from(sorts.max(1)).unwrap_or(i32::MAX)).max(LEAST_MEMORY);
        indexes.begin_sorts(sort_memory);
        keys.prepare(sort_memory, true);
        // SAFETY: open indexes of the relation, and a slot for its rows.
        let exclusion = |index| unsafe { Exclusion::new(&indexes, index, self.executor, relation, slot, sort_memory) };
        CheckedTable {
            number,
            relation,
            rows: 0,
            trail: Trail::new(self.lines, 0),
            conflicts: KeyConflicts::new(indexes.list.len(), sort_memory, false),
            exclusions: searched.into_iter().filter_map(exclusion).collect(),
            indexes,
            keys,
            orphans: Orphans { rows: None, sort_memory, memory },
            offers: offered.into_iter().map(|columns| Offer::new(relation, columns.clone(), sort_memory)).collect(),
            removed: Bits::default(),
            slot,
            sort_memory,
            memory,
        }
    }

    /// The table for rows of a result relation; made at the first row. `number` finds the relation's index among the load's
    /// relations. Guarded.
    pub fn table_of(
        &mut self,
        relinfo: ResultRelation,
        number: impl FnOnce() -> Result<usize>,
    ) -> Result<&mut CheckedTable> {
        let number = match self.last {
            Some((last, number)) if last == relinfo => number,
            _ => number()?,
        };
        self.last = Some((relinfo, number));
        if self.tables.get(number).is_some_and(Option::is_none) {
            let table = Box::new(self.open(relinfo, number));
            self.tables.get_mut(number).map(|place| place.insert(table));
        }
        self.tables
            .get_mut(number)
            .and_then(Option::as_deref_mut)
            .ok_or_else(|| Error::new(Code::ERRCODE_INTERNAL_ERROR, "could not find the position of a row of the load"))
    }
}

impl CheckedTable {
    /// The position of a new row.
    pub fn next(&mut self, origin: Origin, origins: &mut Origins) -> pg_sys::ItemPointerData {
        let (block, offset) = (self.rows / PER_BLOCK, self.rows % PER_BLOCK + 1);
        self.trail.follow(0, offset as u16, origin);
        self.rows += 1;
        if offset == PER_BLOCK {
            self.remember(block, origins);
        }
        row_of((block << 16) | offset)
    }

    /// Passes on the tuple positions of a block that is full, or the last one. Guarded.
    fn remember(&mut self, block: u64, origins: &mut Origins) {
        self.trail.place(block as u32, 1);
        origins.add(self.number, &self.trail.take());
    }

    /// Collects the keys of a row.
    ///
    /// # Safety
    /// A plain frame; the row in the slot was given its position by this table.
    pub unsafe fn add(&mut self, slot: *mut pg_sys::TupleTableSlot) {
        let CheckedTable { orphans, removed, conflicts, .. } = self;
        // SAFETY: the slot has a row of the table's relation; nothing in this frame has a destructor.
        unsafe {
            let caller = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = self.memory.as_ptr();
            c::list_free(self.indexes.add(slot, std::ptr::null_mut()));
            for exclusion in &mut self.exclusions {
                exclusion.add(conflicts, slot);
            }
            let row = number_of(&(*slot).tts_tid);
            self.keys.add(slot, |key| guarded(|| orphans.put(removed, key, row)));
            for offer in &mut self.offers {
                offer.add(slot, row);
            }
            pg_sys::CurrentMemoryContext = caller;
        }
    }

    /// Closes the state, when the rows are not checked any more. Guarded.
    fn close(mut self) {
        self.exclusions.drain(..).for_each(Exclusion::close);
        self.keys.discard();
        self.offers.drain(..).for_each(Offer::close);
        self.indexes.close();
        let (slot, memory) = (self.slot, self.memory);
        drop(self);
        // SAFETY: guarded calls; the slot was made by `open`, and the table was all that the context had.
        unsafe {
            pg_sys::ExecDropSingleTupleTableSlot(slot);
            memory.delete();
        }
    }

    /// The ordinal of a row with this [`number_of`], from 0.
    fn ordinal(row: u64) -> u64 {
        (row >> 16) * PER_BLOCK + (row & 0xffff).saturating_sub(1)
    }
}
