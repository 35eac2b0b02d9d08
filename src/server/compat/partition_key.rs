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

/// Returns a relation's key, and the number of its columns; None if the relation is not partitioned. Guarded.
fn key_of<'a>(relation: Relation<'a>) -> Option<(&'a PartitionKeyHead, usize)> {
    // SAFETY: the relation is open, and so is its key; the closure owns nothing. The number of columns follows the
    // strategy, which has one byte in 15 and four from 16 on.
    unsafe {
        let key = unguarded::guard(|| unguarded::RelationGetPartitionKey(relation.as_ptr()));
        let head = key.cast::<PartitionKeyHead>().as_ref()?;
        let count = *key.cast::<i16>().add(if MAJOR >= 16 { 2 } else { 1 });
        Some((head, usize::try_from(count).unwrap_or(0)))
    }
}

/// Returns the expressions of a partitioned table's key. Guarded.
pub fn partition_expressions<'a>(relation: Relation<'a>) -> NodeList<'a> {
    // SAFETY: a key has a list of expressions, or null.
    key_of(relation).map_or(NodeList::EMPTY, |(key, _)| unsafe { NodeList::from_raw(key.expressions) })
}

/// Whether all functions that compare or hash a partitioned table's key pass the test. Guarded.
pub fn partition_functions(relation: Relation<'_>, mut test: impl FnMut(pg_sys::Oid) -> bool) -> bool {
    // SAFETY: a key has one function per column.
    key_of(relation).is_none_or(|(key, count)| (0..count).all(|i| test(unsafe { (*key.functions.add(i)).fn_oid })))
}

/// Returns the types of the columns of a partitioned table's key. Guarded.
pub fn partition_types(relation: Relation<'_>) -> Vec<pg_sys::Oid> {
    // SAFETY: a key has one type per column.
    key_of(relation)
        .map_or_else(Vec::new, |(key, count)| (0..count).map(|i| unsafe { *key.value_types.add(i) }).collect())
}
