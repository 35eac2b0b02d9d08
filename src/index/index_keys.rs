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
mod clash;
mod collected;
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
use self::collector::CollectedForm;
pub use self::collector::Collector;
pub use self::leaves::can_read;
pub use self::sources::{Help, Sources};
pub use self::stream::{Growth, KeyStream, Room, border};
use super::shared_sorts::SharedSorts;
use super::tuple_sort::TupleSort;
use crate::rows::hazard::Hazards;
use crate::server::compat;
use crate::server::elsewhere::Elsewhere;
use crate::server::icu_collator::IcuCollator;
use crate::server::node::NodeList;
use crate::server::owner::may_run;
use crate::server::relation::{IndexForm, OpenRelation, Relation};
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

    /// Lets go of the files and sorts. Guarded.
    ///
    /// # Safety
    /// No copy of these handles, and nothing that they lent, is used any more.
    pub unsafe fn release(&mut self) {
        // SAFETY: no copy of them is used any more.
        unsafe {
            self.files.take().into_iter().for_each(|files| files.release());
            self.sorts.take().into_iter().for_each(|sorts| sorts.release());
        }
    }

    /// Makes the collectors of a relation's indexes, which the leader has locked; workers share their files. Guarded;
    /// allocates in the current memory context.
    pub fn collectors(&self, number: usize, relation: Relation<'static>, elsewhere: &Elsewhere) -> Vec<Collector> {
        let shared = self.files.map(|files| (files, self.participant));
        let mine = self.list.iter().filter(|planned| planned.relation == number);
        let collector = |planned: &Planned| {
            if let Some(number) = planned.sort {
                let shared = self.sorts.and_then(|sorts| sorts.get(number));
                let sort = TupleSort::new(relation, planned.index, self.sort_memory, shared, elsewhere.clone());
                return Some(Collector { index: planned.index, form: CollectedForm::Tuples(sort) });
            }
            let shape = shape(relation, OpenRelation::open(planned.index, pg_sys::AccessShareLock).get());
            let attributes = attributes(relation.descriptor());
            Collector::new(planned.index, &shape?, &attributes, (self.memory, self.packs), shared)
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

/// Adds the indexes of a locked relation whose keys can be collected: those that may be built or merged, or else those
/// that get their keys inserted. Guarded.
pub fn plan(
    relation: Relation<'_>,
    number: usize,
    (builds, tuples): (bool, Tuples),
    hazards: &Hazards,
    planned: &mut Vec<Planned>,
) {
    for oid in relation.indexes() {
        let index = OpenRelation::open(oid, pg_sys::RowExclusiveLock);
        if planned.len() < MOST {
            let shape = shape(relation, index.get());
            if shape.as_ref().is_some_and(|shape| builds || matches!(shape.keys, KeyForm::Words(_))) {
                planned.push(Planned { relation: number, index: oid, sort: None });
            } else if shape.is_none() && tuples != Tuples::None && has_tuples(index.get(), tuples, hazards) {
                let sorts = planned.iter().filter(|planned| planned.sort.is_some()).count();
                planned.push(Planned { relation: number, index: oid, sort: Some(sorts) });
            }
        }
    }
}

/// Is an index a B-tree whose tuples every process may form and compare as the table's owner? Guarded.
fn has_tuples(index: Relation<'_>, tuples: Tuples, hazards: &Hazards) -> bool {
    let Some(form) = immediate_btree(index).filter(|form| tuples == Tuples::All || !form.is_unique) else {
        return false;
    };
    // SAFETY: a guarded call on an open index, which has an order function for each key.
    let order = |column| unsafe { pg_sys::index_getprocid(index.as_ptr(), column, ORDER_PROC) };
    may_run(index)
        && index.index_nodes().into_iter().filter_map(NodeList::node).all(|nodes| hazards.is_safe(nodes))
        && (1i16..).take(form.keys).all(|column| hazards.function_is_safe(order(column)))
}

fn immediate_btree(index: Relation<'_>) -> Option<IndexForm> {
    let form = index.index().filter(|_| index.access_method() == pg_sys::BTREE_AM_OID);
    form.filter(|form| form.is_usable && form.is_immediate && !form.is_exclusion)
}

/// The shape of an index's keys, if they are integers or strings of bytes here. Guarded.
pub fn shape(relation: Relation<'_>, index: Relation<'_>) -> Option<IndexProperties> {
    let form = immediate_btree(index).filter(|form| form.keys == index.descriptor().len())?;
    if index.is_computed() {
        return None;
    }
    let mut attributes = Vec::with_capacity(form.keys);
    let mut columns = Vec::with_capacity(form.keys);
    for (i, attnum) in index.key_columns().into_iter().enumerate() {
        let attribute = usize::try_from(attnum).ok()?.checked_sub(1)?;
        let (heap, own) = (relation.descriptor().attribute(attribute)?, index.descriptor().attribute(i)?);
        let number = i16::try_from(i + 1).ok()?;
        // SAFETY: a guarded call on an open index, which has an order function, a collation and options for each key.
        let (procedure, collation, options) = unsafe {
            let (index, procedure) = (&*index.as_ptr(), pg_sys::index_getprocid(index.as_ptr(), number, ORDER_PROC));
            (procedure, *index.rd_indcollation.add(i), u32::from((*index.rd_indoption.add(i)).cast_unsigned()))
        };
        let (kind, collator) = match kind(procedure) {
            Some(kind) => (ByteKind::Fixed(kind), None),
            None => {
                let collator = strings(procedure, collation)?;
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
