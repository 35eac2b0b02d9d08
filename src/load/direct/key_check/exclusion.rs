//! Keys of exclusion constraints.
//!
//! Such keys have no order, so a sort does not bring conflicting keys together. A row is compared with all earlier rows
//! that stay. If columns must be equal, it is compared only with rows of the same hash. The rows that stay are kept in
//! memory.

use std::collections::HashMap;

use pgrx::pg_sys;

use crate::heap::removal::number_of;
use crate::index::key_conflicts::{Bits, Group, KeyConflicts};
use crate::load::direct::executor::Executor;
use crate::load::direct::indexes::Indexes;
use crate::server::look::Look;
use crate::server::memory_context::MemoryContext;
use crate::server::relation::{Relation, TupleDesc};
use crate::server::tuplestore::Tuplestore;
use crate::server::unguarded::{self as c, guarded};

/// The number after the last row.
pub const END: u64 = u64::MAX;

/// An exclusion constraint.
#[derive(Debug)]
pub struct Exclusion {
    /// Its index in the list of indexes.
    pub index: usize,
    info: *mut pg_sys::IndexInfo,
    executor: Executor,
    look: Look,
    operators: Operators,
    /// Keys in the order of the file, with the row's number.
    store: Tuplestore,
    values: *mut pg_sys::Datum,
    nulls: *mut bool,
    /// The key of the current row, and the key of another row.
    slot: *mut pg_sys::TupleTableSlot,
    other: *mut pg_sys::TupleTableSlot,
    /// The current row; [`END`] after the last one.
    at: u64,
    hash: u32,
    /// By hash, rows that stay.
    kept: HashMap<u32, Vec<Kept>>,
    memory: MemoryContext,
}

/// The operators of an exclusion constraint: two rows conflict if all of them are true.
#[derive(Debug, Clone, Copy)]
struct Operators {
    /// Number of the constraint's columns.
    count: usize,
    collations: *const pg_sys::Oid,
    /// For each column, the function of the exclusion operator, and a hash function for its equality, if there is one.
    functions: *mut pg_sys::FmgrInfo,
    hashes: *mut pg_sys::FmgrInfo,
}

#[derive(Debug)]
struct Kept {
    row: u64,
    key: pg_sys::MinimalTuple,
}

impl Exclusion {
    /// The exclusion constraint of one of a relation's indexes. Guarded; allocates in the current memory context.
    ///
    /// # Safety
    /// Open indexes of the relation, the executor state for which they were opened, and a slot for rows of the relation.
    pub unsafe fn new(
        indexes: &Indexes,
        number: usize,
        executor: Executor,
        relation: Relation<'_>,
        slot: *mut pg_sys::TupleTableSlot,
        memory: i32,
    ) -> Option<Exclusion> {
        // SAFETY: guarded calls on open relations. An index has a collation, an operator and a function for each key, and an
        // expression for each key that is not a column.
        unsafe {
            let index = indexes.list.get(number)?;
            let info = index.info();
            let count = usize::try_from((*info).ii_NumIndexKeyAttrs).unwrap_or(0);
            let descriptor = pg_sys::CreateTemplateTupleDesc(i32::try_from(count + 1).unwrap_or(1));
            let room = count.max(1) * size_of::<pg_sys::FmgrInfo>();
            let functions = pg_sys::palloc0(room).cast::<pg_sys::FmgrInfo>();
            let hashes = pg_sys::palloc0(room).cast::<pg_sys::FmgrInfo>();
            let mut expression = 0;
            for i in 0..count {
                let attnum = *(&(*info).ii_IndexAttrNumbers)[..].get(i)?;
                let type_oid = if attnum == 0 {
                    let node = pg_sys::list_nth((*info).ii_Expressions, expression);
                    expression += 1;
                    pg_sys::exprType(node.cast())
                } else {
                    relation.descriptor().attribute(usize::try_from(attnum - 1).ok()?)?.atttypid
                };
                let to = i16::try_from(i + 1).unwrap_or(i16::MAX);
                pg_sys::TupleDescInitEntry(descriptor, to, c"key".as_ptr(), type_oid, -1, 0);
                pg_sys::fmgr_info(*(*info).ii_ExclusionProcs.add(i), functions.add(i));
                // The operator is the equality of the type's hash function.
                let flags = pg_sys::TYPECACHE_EQ_OPR | pg_sys::TYPECACHE_HASH_PROC;
                let known = pg_sys::lookup_type_cache(type_oid, flags.cast_signed());
                if (*known).eq_opr == *(*info).ii_ExclusionOps.add(i) && (*known).hash_proc != pg_sys::InvalidOid {
                    pg_sys::fmgr_info((*known).hash_proc, hashes.add(i));
                }
            }
            let last = i16::try_from(count + 1).unwrap_or(i16::MAX);
            pg_sys::TupleDescInitEntry(descriptor, last, c"row".as_ptr(), pg_sys::INT8OID, -1, 0);
            Some(Exclusion {
                index: number,
                info,
                executor,
                look: indexes.look(number, slot)?,
                operators: Operators {
                    count,
                    collations: (*index.relation()?.as_ptr()).rd_indcollation,
                    functions,
                    hashes,
                },
                store: Tuplestore::new(TupleDesc::from_raw(descriptor), memory),
                values: pg_sys::palloc0(pg_sys::INDEX_MAX_KEYS as usize * size_of::<pg_sys::Datum>()).cast(),
                nulls: pg_sys::palloc0(pg_sys::INDEX_MAX_KEYS as usize * size_of::<bool>()).cast(),
                slot: pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsMinimalTuple),
                other: pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsMinimalTuple),
                at: END,
                hash: 0,
                kept: HashMap::new(),
                memory: MemoryContext::current(),
            })
        }
    }

    /// Collects a row's key, and notes the row if it conflicts with a row of the table.
    ///
    /// # Safety
    /// A plain frame; a slot with a row of the relation; `conflicts` lives in the current memory context.
    pub unsafe fn add(&mut self, conflicts: &mut KeyConflicts, slot: *mut pg_sys::TupleTableSlot) {
        // SAFETY: the frame is plain, the slot has a row, and the arrays have room for any index's keys.
        unsafe {
            let (estate, econtext) = (self.executor.estate(), self.executor.context().as_ptr());
            (*econtext).ecxt_scantuple = slot;
            if !c::exec_qual((*self.info).ii_PredicateState, econtext) {
                return;
            }
            let (values, nulls) = (self.values, self.nulls);
            c::FormIndexDatum(self.info, slot, estate, values, nulls);
            if (0..self.operators.count).any(|i| *nulls.add(i)) {
                return;
            }
            let row = &raw const (*slot).tts_tid;
            let holder = self.look.find(values, nulls);
            if holder.ip_posid != 0 {
                guarded(|| conflicts.taken(self.index, &*row, &holder, Group::NONE));
            }
            // An index has at most INDEX_MAX_KEYS columns; the row's number is one more.
            let mut all = [pg_sys::Datum::from(0usize); pg_sys::INDEX_MAX_KEYS as usize + 1];
            let mut none = [false; pg_sys::INDEX_MAX_KEYS as usize + 1];
            let (all, none) = (all.as_mut_ptr(), none.as_mut_ptr());
            std::ptr::copy_nonoverlapping(values, all, self.operators.count);
            *all.add(self.operators.count) = pg_sys::Datum::from(number_of(&*row).cast_signed());
            self.store.put(all, none);
        }
    }

    /// Goes to the next row; at first, to the first one.
    ///
    /// # Safety
    /// The frame is plain.
    pub unsafe fn advance(&mut self) {
        // SAFETY: the frame is plain; a slot with a row has `count` + 1 columns.
        unsafe {
            if !self.store.next(self.slot) {
                self.at = END;
                return;
            }
            c::slot_getsomeattrs_int(self.slot, i32::try_from(self.operators.count + 1).unwrap_or(i32::MAX));
            let values = (*self.slot).tts_values;
            self.at = (*values.add(self.operators.count)).value() as u64;
            self.hash = 0;
            for i in 0..self.operators.count {
                let hash = self.operators.hashes.add(i);
                if (*hash).fn_oid != pg_sys::InvalidOid {
                    let value =
                        c::FunctionCall1Coll(hash, *self.operators.collations.add(i), *values.add(i)).value() as u32;
                    self.hash = self.hash.rotate_left(5) ^ value;
                }
            }
        }
    }

    /// The number of a row of the load that conflicts with the current one; 0 without a conflict. Rows in `removed` do
    /// not count.
    ///
    /// # Safety
    /// A plain frame; there is a current row.
    pub unsafe fn in_the_way(&self, removed: &Bits) -> u64 {
        // SAFETY: the frame is plain; slots have `count` columns.
        unsafe {
            let Some(rows) = self.kept.get(&self.hash) else { return 0 };
            let memory = pg_sys::CurrentMemoryContext;
            let per_tuple = self.executor.context().memory();
            let mut found = 0;
            for Kept { row, key } in rows {
                c::check_for_interrupts();
                if removed.has(super::CheckedTable::ordinal(*row)) {
                    continue;
                }
                c::ExecStoreMinimalTuple(*key, self.other, false);
                c::slot_getsomeattrs_int(self.other, i32::try_from(self.operators.count).unwrap_or(i32::MAX));
                let (theirs, ours) = ((*self.other).tts_values, (*self.slot).tts_values);
                pg_sys::CurrentMemoryContext = per_tuple;
                let excludes = |i| {
                    let (function, collation) = (self.operators.functions.add(i), *self.operators.collations.add(i));
                    c::FunctionCall2Coll(function, collation, *theirs.add(i), *ours.add(i)).value() != 0
                };
                let all = (0..self.operators.count).all(excludes);
                pg_sys::CurrentMemoryContext = memory;
                c::MemoryContextReset(per_tuple);
                if all {
                    found = *row;
                    break;
                }
            }
            found
        }
    }

    /// The current row; [`END`] after the last one.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Keeps the current row's key, because the row stays. Guarded.
    pub fn keep(&mut self) {
        if self.at == END {
            return;
        }
        let _memory = self.memory.enter();
        // SAFETY: guarded calls; the slot has the current row.
        let key = unsafe {
            let mut is_ours = false;
            let tuple = pg_sys::ExecFetchSlotMinimalTuple(self.slot, &raw mut is_ours);
            let len = (*tuple).t_len as usize;
            let key = pg_sys::palloc(len).cast::<pg_sys::MinimalTupleData>();
            std::ptr::copy_nonoverlapping(tuple.cast::<u8>(), key.cast(), len);
            if is_ours {
                pg_sys::pfree(tuple.cast());
            }
            key
        };
        self.kept.entry(self.hash).or_default().push(Kept { row: self.at, key });
    }

    /// Frees its resources. Guarded.
    pub fn close(mut self) {
        // SAFETY: all were made by `new`; guarded calls.
        unsafe {
            self.look.end();
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
            pg_sys::ExecDropSingleTupleTableSlot(self.other);
        }
        self.store.end();
    }
}
