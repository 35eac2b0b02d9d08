//! Keys of indexes that are built after the rows, collected while the rows are made.
//!
//! ```text
//!   each process:  pages of a batch, appended ─► collector ─► sorted runs ─► memory, temporary file ─┐
//!                                               (an index)                                           │
//!   leader:        new file ◄─ pages ◄─ levels ◄─ equal keys checked ◄─ merge of the runs ◄──────────┘
//! ```
//!
//! When core builds an index of numbers, three steps take most of the time. It reads the heap again, compares keys
//! through functions, and carries each key as a separate tuple.
//!
//! Here a key is an integer ([`pg_bulk_storage::btree`]). It is taken from its page right after the page was written,
//! from the processor's cache, and arrays of such keys are sorted. Keys that come in order need no sort. A key with
//! text is a string of bytes whose order is the index's ([`pg_bulk_storage::btree::bytes`]). This requires that the text
//! is compared by bytes, or that ICU returns sort keys ([`crate::server::icu_collator`]). All other keys are index tuples,
//! which the server forms, sorts and compares ([`super::tuple_sort`]), in all processes and while rows are loaded.
//!
//! Keys are collected from the first row on, and only for tables without other writers. An index of an empty table is
//! built; an index with entries is merged with the new ones if these are many. The indexes are chosen before the first
//! row ([`plan`]), because the workers must know them. If an index is neither built nor merged in the end, because
//! there are few rows or a session reads it, its keys were collected in vain.

mod build;
mod byte_keys;
mod clash;
mod collector;
mod end;
mod leaves;
mod runs;
mod sources;
mod stream;

use std::rc::Rc;

use pg_bulk_storage::btree::bytes::collator::Collator;
use pg_bulk_storage::btree::bytes::shape::{ByteColumn, ByteKind, ByteShape};
use pg_bulk_storage::btree::key::{KeyColumn, KeyKind, KeyShape};
use pgrx::pg_sys;

pub use self::build::{WORTH_WORKERS, build, set_new_file, tid_of};
pub use self::clash::Clash;
pub use self::collector::Collector;
pub use self::leaves::can_read;
pub use self::sources::{Help, Sources};
pub use self::stream::growth::{border, leaves_of, next_tuple, take_growth};
pub use self::stream::{KeyStream, Room, next_tuples};
use super::shared_sorts::SharedSorts;
use crate::rows::hazard::Hazards;
use crate::server::compat;
use crate::server::elsewhere::Elsewhere;
use crate::server::icu_collator::IcuCollator;
use crate::server::owner::may_run;
use crate::server::relation::Relation;
use crate::server::sent::sent;
use crate::server::shared_files::SharedFiles;
use crate::server::tuple_layout::attributes;

/// Most indexes of a load whose keys are collected; with many partitions each would get too little memory.
const MOST: usize = 64;
/// BTORDER_PROC (nbtree.h)
const ORDER_PROC: u16 = 1;

sent! {
    /// An index whose keys are collected.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Planned {
        /// Index of its relation among the load's relations.
        pub relation: usize,
        pub index: pg_sys::Oid,
        /// The number of its shared sort, if its keys are index tuples.
        pub sort: Option<usize>,
    }
}

/// The indexes of a load whose keys are collected.
#[derive(Debug, Clone, Default)]
pub struct KeyPlan {
    pub list: Vec<Planned>,
    /// Bytes for the keys of each index, in each process.
    pub memory: usize,
    /// Bytes for the index tuples of each index, in each process.
    pub sort_memory: usize,
    /// Keys that come in order are packed, because they are only read from their start.
    pub packs: bool,
    /// The files in which workers leave their keys.
    pub files: Option<SharedFiles>,
    /// The sorts in which all processes leave their index tuples.
    pub sorts: Option<SharedSorts>,
    /// Number of this process among all that collect keys, of earlier files, too.
    pub participant: usize,
}

impl KeyPlan {
    /// Does the relation have any such index?
    pub fn has(&self, relation: usize) -> bool {
        self.list.iter().any(|planned| planned.relation == relation)
    }

    /// Makes the collectors of a relation's indexes; workers share their files. Guarded; allocates in the current
    /// memory context.
    ///
    /// # Safety
    /// The relation is open and locked.
    pub unsafe fn collectors(
        &self,
        number: usize,
        relation: pg_sys::Relation,
        elsewhere: &Elsewhere,
    ) -> Vec<Collector> {
        let shared = self.files.map(|files| (files, self.participant));
        let mine = self.list.iter().filter(|planned| planned.relation == number);
        let collector = |planned: &Planned| {
            // SAFETY: this function's contract covers the relation; guarded calls on an index of it that the leader has
            // locked.
            unsafe {
                if let Some(number) = planned.sort {
                    let shared = self.sorts.and_then(|sorts| sorts.get(number));
                    return Some(Collector::of_tuples(planned, relation, self.sort_memory, shared, elsewhere.clone()));
                }
                let index = pg_sys::index_open(planned.index, pg_sys::AccessShareLock.cast_signed());
                let shape = shape(relation, index);
                pg_sys::index_close(index, pg_sys::NoLock.cast_signed());
                let attributes = attributes((*relation).rd_att);
                Collector::new(planned.index, &shape?, &attributes, (self.memory, self.packs), shared)
            }
        };
        mine.filter_map(collector).collect()
    }
}

/// Form of an index's keys.
#[derive(Debug)]
pub enum KeyForm {
    /// Integers.
    Words(KeyShape),
    /// Strings of bytes.
    Bytes(ByteShape),
}

/// Properties of an index that are needed to collect its keys.
#[derive(Debug)]
pub struct IndexProperties {
    pub keys: KeyForm,
    /// The heap's attributes in the index, counted from 0.
    pub attributes: Vec<usize>,
}

/// The indexes whose keys may be collected as index tuples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tuples {
    /// None, because index tuples are not merged with existing entries.
    None,
    /// All but unique ones, where the first duplicate key would be an error.
    Plain,
    All,
}

/// Adds the indexes of a relation whose keys can be collected: those that may be built or merged, or else those that
/// get their keys inserted. Guarded.
///
/// # Safety
/// The relation is open and locked.
pub unsafe fn plan(
    relation: pg_sys::Relation,
    number: usize,
    (builds, tuples): (bool, Tuples),
    hazards: &Hazards,
    planned: &mut Vec<Planned>,
) {
    // SAFETY: this function's contract covers the relation; guarded calls. The list is a copy.
    unsafe {
        let list = pg_sys::RelationGetIndexList(relation);
        let count = if list.is_null() { 0 } else { (*list).length };
        for i in 0..count {
            let oid = pg_sys::list_nth_oid(list, i);
            let index = pg_sys::index_open(oid, pg_sys::RowExclusiveLock.cast_signed());
            if planned.len() < MOST {
                let shape = shape(relation, index);
                if shape.as_ref().is_some_and(|shape| builds || matches!(shape.keys, KeyForm::Words(_))) {
                    planned.push(Planned { relation: number, index: oid, sort: None });
                } else if shape.is_none() && tuples != Tuples::None && has_tuples(index, tuples, hazards) {
                    let sorts = planned.iter().filter(|planned| planned.sort.is_some()).count();
                    planned.push(Planned { relation: number, index: oid, sort: Some(sorts) });
                }
            }
            pg_sys::index_close(index, pg_sys::NoLock.cast_signed());
        }
        pg_sys::list_free(list);
    }
}

/// Is an index a B-tree whose tuples every process may form and compare as the table's owner? Guarded.
///
/// # Safety
/// The index is open.
unsafe fn has_tuples(index: pg_sys::Relation, tuples: Tuples, hazards: &Hazards) -> bool {
    // SAFETY: this function's contract covers the index, which has `indnkeyatts` keys; guarded calls.
    unsafe {
        let form = &*(*index).rd_index;
        is_immediate_btree(index)
            && (tuples == Tuples::All || !form.indisunique)
            && may_run(Relation::from_raw(index))
            && hazards.is_safe(pg_sys::RelationGetIndexExpressions(index).cast())
            && hazards.is_safe(pg_sys::RelationGetIndexPredicate(index).cast())
            && (1..=form.indnkeyatts).all(|column| {
                let procedure = pg_sys::index_getprocid(index, column, ORDER_PROC);
                hazards.function_is_safe(procedure)
            })
    }
}

/// # Safety
/// The index is open.
unsafe fn is_immediate_btree(index: pg_sys::Relation) -> bool {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let form = &*(*index).rd_index;
        (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID
            && form.indisvalid
            && form.indisready
            && form.indislive
            && form.indimmediate
            && !form.indisexclusion
    }
}

/// The shape of an index's keys, if they are integers or strings of bytes here. Guarded.
///
/// # Safety
/// The relation and the index, one of its indexes, are open.
pub unsafe fn shape(relation: pg_sys::Relation, index: pg_sys::Relation) -> Option<IndexProperties> {
    // SAFETY: this function's contract covers both arguments; an index has `indnatts` keys, options and attributes.
    unsafe {
        let form = &*(*index).rd_index;
        let is_plain = is_immediate_btree(index)
            && form.indnatts == form.indnkeyatts
            && pg_sys::RelationGetIndexExpressions(index).is_null()
            && pg_sys::RelationGetIndexPredicate(index).is_null();
        if !is_plain {
            return None;
        }
        let count = usize::try_from(form.indnatts).ok()?;
        let mut attributes = Vec::with_capacity(count);
        let mut columns = Vec::with_capacity(count);
        for (i, &attnum) in form.indkey.values.as_slice(count).iter().enumerate() {
            let attribute = usize::try_from(attnum).ok()?.checked_sub(1)?;
            let natts = usize::try_from((*(*relation).rd_att).natts).ok()?;
            if attribute >= natts {
                return None;
            }
            let heap = &*compat::attribute((*relation).rd_att, attribute);
            let own = &*compat::attribute((*index).rd_att, i);
            let procedure = pg_sys::index_getprocid(index, i16::try_from(i + 1).ok()?, ORDER_PROC);
            let (kind, collator) = match kind(procedure) {
                Some(kind) => (ByteKind::Fixed(kind), None),
                None => {
                    let collator = strings(procedure, *(*index).rd_indcollation.add(i))?;
                    let storage = own.attstorage.cast_unsigned();
                    let kind = ByteKind::Varlena {
                        packable: storage != pg_sys::TYPSTORAGE_PLAIN,
                        compressible: storage == pg_sys::TYPSTORAGE_EXTENDED || storage == pg_sys::TYPSTORAGE_MAIN,
                    };
                    (kind, collator)
                }
            };
            // The operator class must compare values as the column stores them.
            let (len, by_value) = match kind {
                ByteKind::Fixed(kind) => (i16::try_from(kind.size()).ok()?, kind.by_value()),
                ByteKind::Varlena { .. } => (-1, false),
            };
            if heap.attlen != len || heap.attbyval != by_value || own.attlen != len || own.attalign != heap.attalign {
                return None;
            }
            let options = u32::from((*(*index).rd_indoption.add(i)).cast_unsigned());
            columns.push(ByteColumn {
                kind,
                collator,
                descending: options & pg_sys::INDOPTION_DESC != 0,
                nulls_first: options & pg_sys::INDOPTION_NULLS_FIRST != 0,
                nullable: !heap.attnotnull,
            });
            attributes.push(attribute);
        }
        let keys = match words(&columns) {
            Some(shape) => KeyForm::Words(shape),
            None => KeyForm::Bytes(ByteShape::new(&columns)?),
        };
        Some(IndexProperties { keys, attributes })
    }
}

/// The shape of keys that are integers.
fn words(columns: &[ByteColumn]) -> Option<KeyShape> {
    let column = |column: &ByteColumn| {
        let ByteColumn { kind: ByteKind::Fixed(kind), descending, nulls_first, nullable, .. } = *column else {
            return None;
        };
        Some(KeyColumn { kind, descending, nulls_first, nullable })
    };
    KeyShape::new(&columns.iter().map(column).collect::<Option<Vec<_>>>()?)
}

/// The collator of an ordering function for strings; `Some(None)` for memcmp. None for an unknown function. Guarded.
fn strings(procedure: pg_sys::Oid, collation: pg_sys::Oid) -> Option<Option<Rc<dyn Collator>>> {
    match procedure.to_u32() {
        pg_sys::F_BYTEACMP | pg_sys::F_BTTEXT_PATTERN_CMP => Some(None),
        pg_sys::F_BTTEXTCMP if compat::collates_bytes(collation) => Some(None),
        pg_sys::F_BTTEXTCMP => Some(Some(Rc::new(IcuCollator::of(collation)?))),
        _ => None,
    }
}

/// The kind of values that an ordering function compares, if it is known.
fn kind(procedure: pg_sys::Oid) -> Option<KeyKind> {
    Some(match procedure.to_u32() {
        pg_sys::F_BTINT2CMP => KeyKind::Int2,
        pg_sys::F_BTINT4CMP | pg_sys::F_DATE_CMP => KeyKind::Int4,
        pg_sys::F_BTINT8CMP
        | pg_sys::F_TIMESTAMP_CMP
        | pg_sys::F_TIMESTAMPTZ_CMP
        | pg_sys::F_TIME_CMP
        | pg_sys::F_CASH_CMP => KeyKind::Int8,
        pg_sys::F_BTOIDCMP => KeyKind::Oid,
        pg_sys::F_BTFLOAT4CMP => KeyKind::Float4,
        pg_sys::F_BTFLOAT8CMP => KeyKind::Float8,
        pg_sys::F_UUID_CMP => KeyKind::Uuid,
        pg_sys::F_BTBOOLCMP => KeyKind::Bool,
        pg_sys::F_BTCHARCMP => KeyKind::Char,
        _ => return None,
    })
}
