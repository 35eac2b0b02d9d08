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
//! A load finds such rows by inserting them, and deletes them again ([`super::removed_rows`], [`super::orphans`]). A
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

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgList, pg_guard, pg_sys};

use self::exclusion::Exclusion;
use self::offer::Offer;
use super::executor::Executor;
use super::foreign_keys::ForeignKeys;
use super::indexes::Indexes;
use super::origin::{Origin, Origins, Traces, Trail};
use crate::error::Result;
use crate::heap::removal::{number_of, row_of};
use crate::index::key_conflicts::{Bits, KeyConflicts};
use crate::index::number_sort::NumberSort;
use crate::index::strategy::IndexStrategy;
use crate::index::tuple_sort::LEAST_MEMORY;
use crate::load::duplicate::Keep;
use crate::load::options::{LoadOptions, Truncate};
use crate::server::unguarded as c;

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
    /// For each of the load's relations, once it has a row; else null.
    tables: Vec<*mut CheckedTable>,
    /// The last result relation and its table.
    last: (*mut pg_sys::ResultRelInfo, *mut CheckedTable),
    /// Foreign keys between relations of the load: the referenced relation and its referenced columns.
    referenced: Vec<(usize, Vec<i16>)>,
}

/// A relation that has rows.
#[derive(Debug)]
pub struct CheckedTable {
    /// Index of the relation among the load's relations.
    number: usize,
    relation: pg_sys::Relation,
    /// Number of rows so far.
    rows: u64,
    trail: Trail,
    indexes: Indexes,
    exclusions: Vec<Exclusion>,
    conflicts: KeyConflicts,
    keys: ForeignKeys,
    /// Rows that violate a foreign key, with the key.
    orphans: Option<NumberSort<4>>,
    /// Referenced columns, for rows that refer to this table.
    offers: Vec<Offer>,
    /// Rows that do not stay, by ordinal number.
    removed: Bits,
    /// A slot for rows of the table itself.
    slot: *mut pg_sys::TupleTableSlot,
    /// Memory for each sort, in kB.
    sort_memory: i32,
    /// Memory context of all of the table's state.
    memory: pg_sys::MemoryContext,
}

impl KeyCheck {
    /// Makes the check for open relations. Guarded.
    ///
    /// # Safety
    /// The load's executor state, and its relations.
    pub unsafe fn new(
        executor: Executor,
        relations: &[pg_sys::Relation],
        options: &LoadOptions,
        arbiter: Option<pg_sys::Oid>,
        traces: Traces,
    ) -> KeyCheck {
        let mut referenced: Vec<(usize, Vec<i16>)> = Vec::new();
        for &relation in relations {
            // SAFETY: this function's contract covers the relations; guarded calls, and lists with `nkeys` elements.
            unsafe {
                let keys = PgList::<pg_sys::ForeignKeyCacheInfo>::from_pg(pg_sys::RelationGetFKeyList(relation));
                for key in keys.iter_ptr() {
                    let Some(parent) = relations.iter().position(|&other| (*other).rd_id == (*key).confrelid) else {
                        continue;
                    };
                    let count = usize::try_from((*key).nkeys).unwrap_or(0);
                    let offer = (parent, (&(*key).confkey)[..].iter().take(count).copied().collect());
                    if !referenced.contains(&offer) {
                        referenced.push(offer);
                    }
                }
            }
        }
        KeyCheck {
            executor,
            keep: options.duplicates.keep,
            arbiter,
            as_truncated: options.table.truncate == Truncate::Assumed,
            lines: traces == Traces::Lines,
            tables: vec![std::ptr::null_mut(); relations.len()],
            last: (std::ptr::null_mut(), std::ptr::null_mut()),
            referenced,
        }
    }

    /// The table for rows of a result relation; made at the first row.
    ///
    /// # Safety
    /// One of the executor's result relations, and its index among the load's relations. Guarded.
    unsafe fn open(&mut self, relinfo: *mut pg_sys::ResultRelInfo, number: usize) -> *mut CheckedTable {
        if let Some(&table) = self.tables.get(number).filter(|table| !table.is_null()) {
            return table;
        }
        // SAFETY: this function's contract covers the argument; guarded calls. The table is dropped with its memory
        // context.
        unsafe {
            let relation = (*relinfo).ri_RelationDesc;
            let memory = pg_sys::AllocSetContextCreateExtended(
                (*self.executor.estate).es_query_cxt,
                c"pg_bulk keys".as_ptr(),
                pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            );
            let old = pg_sys::MemoryContextSwitchTo(memory);
            // Routing has opened the indexes, but not for speculative insertion.
            if (*relinfo).ri_NumIndices > 0 {
                pg_sys::ExecCloseIndices(relinfo);
                (*relinfo).ri_NumIndices = 0;
            }
            c::guard(|| c::ExecOpenIndices(relinfo, true));
            let Executor { estate, econtext, .. } = self.executor;
            let mut indexes = Indexes::to_ask(relinfo, estate, econtext, self.keep, self.arbiter, !self.as_truncated);
            indexes.prepare();
            let mut keys = ForeignKeys::new(relinfo, 0, true, pg_sys::AccessShareLock.cast_signed());
            let offered = self.referenced.iter().filter(|(parent, _)| *parent == number);
            let offered: Vec<&Vec<i16>> = offered.map(|(_, columns)| columns).collect();
            // All sorts together get maintenance_work_mem, as one index build does.
            let searched = indexes.list.iter().filter(|index| index.strategy == IndexStrategy::SearchOnly).count();
            let sorts = (indexes.sorts() + searched + keys.len() + offered.len()) * self.tables.len();
            let all = pg_sys::maintenance_work_mem;
            let sort_memory = (all / i32::try_from(sorts.max(1)).unwrap_or(i32::MAX)).max(LEAST_MEMORY);
            indexes.begin_sorts(sort_memory);
            keys.prepare(sort_memory, true);
            let slot = pg_sys::table_slot_create(relation, std::ptr::null_mut());
            let exclusions = Exclusion::all(&indexes, self.executor, relation, slot, sort_memory);
            let offers =
                offered.into_iter().map(|columns| Offer::new(relation, columns.clone(), sort_memory)).collect();
            let table = CheckedTable {
                number,
                relation,
                rows: 0,
                trail: Trail::new(self.lines, 0),
                conflicts: KeyConflicts::new(indexes.list.len(), sort_memory, false),
                indexes,
                exclusions,
                keys,
                orphans: None,
                offers,
                removed: Bits::new(0),
                slot,
                sort_memory,
                memory,
            };
            pg_sys::MemoryContextSwitchTo(old);
            let table = PgMemoryContexts::For(memory).leak_and_drop_on_delete(table);
            if let Some(place) = self.tables.get_mut(number) {
                *place = table;
            }
            table
        }
    }

    /// The table for rows of a result relation; `number` finds its index among the load's relations. Guarded.
    ///
    /// # Safety
    /// One of the executor's result relations.
    pub unsafe fn table_of(
        &mut self,
        relinfo: *mut pg_sys::ResultRelInfo,
        number: impl FnOnce() -> Result<usize>,
    ) -> Result<*mut CheckedTable> {
        if self.last.0 != relinfo {
            let number = number()?;
            // SAFETY: this function's contract covers the relation.
            self.last = (relinfo, unsafe { self.open(relinfo, number) });
        }
        Ok(self.last.1)
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

    /// The ordinal of a row with this [`number_of`], from 0.
    fn ordinal(row: u64) -> u64 {
        (row >> 16) * PER_BLOCK + (row & 0xffff).saturating_sub(1)
    }

    fn is_removed(&self, row: u64) -> bool {
        self.removed.has(CheckedTable::ordinal(row))
    }

    fn remove(&mut self, row: u64) {
        self.removed.add(CheckedTable::ordinal(row));
    }
}

/// Collects the keys of a row.
///
/// # Safety
/// A plain frame; the row in the slot was given its position by this table.
pub unsafe fn add(table: *mut CheckedTable, slot: *mut pg_sys::TupleTableSlot) {
    // SAFETY: this function's contract covers all arguments; nothing in this frame has a destructor.
    unsafe {
        let caller = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = (*table).memory;
        c::list_free((*table).indexes.add(slot, std::ptr::null_mut()));
        for i in 0..(*table).exclusions.len() {
            (*(*table).exclusions.as_mut_ptr().add(i)).add(&raw mut (*table).conflicts, slot);
        }
        let row = number_of(&(*slot).tts_tid);
        (*table).keys.add(slot, |key| missing(table, key, row));
        for i in 0..(*table).offers.len() {
            (*(*table).offers.as_mut_ptr().add(i)).add(slot, row);
        }
        pg_sys::CurrentMemoryContext = caller;
    }
}

/// Notes a row without a parent.
///
/// # Safety
/// The table is valid.
#[pg_guard]
unsafe extern "C-unwind" fn missing(table: *mut CheckedTable, key: usize, row: u64) {
    // SAFETY: this function's contract covers the argument; the sort lives as long as the table.
    unsafe {
        let table = &mut *table;
        if table.is_removed(row) {
            return;
        }
        // Two more sorts start when this one is complete.
        let (memory, old) = (table.sort_memory / 3, pg_sys::MemoryContextSwitchTo(table.memory));
        table.orphans.get_or_insert_with(|| NumberSort::new(memory)).put([row, key as u64, 0, 0]);
        pg_sys::MemoryContextSwitchTo(old);
    }
}
