//! The key of a partitioned table.

use pgrx::pg_sys;

use super::version::MAJOR;
use crate::server::node::NodeList;
use crate::server::relation::Relation;
use crate::server::unguarded;

/// The first fields of PartitionKeyData (partcache.h), which has no binding. In all versions the strategy (one byte or
/// four) and the number of columns fill the first word.
#[repr(C)]
struct PartitionKeyHead {
    strategy_and_columns: u64,
    columns: *mut i16,
    expressions: *mut pg_sys::List,
    families: *mut pg_sys::Oid,
    types: *mut pg_sys::Oid,
    functions: *mut pg_sys::FmgrInfo,
    collations: *mut pg_sys::Oid,
    value_types: *mut pg_sys::Oid,
}

/// A relation's key. The server may change its functions at any call, so their OIDs are copied.
struct PartitionKey<'a> {
    expressions: NodeList<'a>,
    functions: Vec<pg_sys::Oid>,
    types: Vec<pg_sys::Oid>,
}

/// Returns a relation's key; None if the relation is not partitioned. Guarded.
fn key_of<'a>(relation: Relation<'a>) -> Option<PartitionKey<'a>> {
    // SAFETY: the relation is open, and so is its key, which has one function and one type per column; the closure owns
    // nothing. The number of columns follows the strategy, which has one byte in 15 and four from 16 on.
    unsafe {
        let key = unguarded::guard(|| unguarded::RelationGetPartitionKey(relation.as_ptr()));
        let head = key.cast::<PartitionKeyHead>().as_ref()?;
        let count = usize::try_from(*key.cast::<i16>().add(if MAJOR >= 16 { 2 } else { 1 })).unwrap_or(0);
        Some(PartitionKey {
            expressions: NodeList::from_raw(head.expressions),
            functions: std::slice::from_raw_parts(head.functions, count)
                .iter()
                .map(|function| function.fn_oid)
                .collect(),
            types: std::slice::from_raw_parts(head.value_types, count).to_vec(),
        })
    }
}

/// Returns the expressions of a partitioned table's key. Guarded.
pub fn partition_expressions<'a>(relation: Relation<'a>) -> NodeList<'a> {
    key_of(relation).map_or(NodeList::EMPTY, |key| key.expressions)
}

/// Whether all functions that compare or hash a partitioned table's key pass the test. Guarded.
pub fn partition_functions(relation: Relation<'_>, mut test: impl FnMut(pg_sys::Oid) -> bool) -> bool {
    key_of(relation).is_none_or(|key| key.functions.into_iter().all(&mut test))
}

/// Returns the types of the columns of a partitioned table's key. Guarded.
pub fn partition_types(relation: Relation<'_>) -> Vec<pg_sys::Oid> {
    key_of(relation).map_or_else(Vec::new, |key| key.types)
}
