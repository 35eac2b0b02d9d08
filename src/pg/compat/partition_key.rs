//! The key of a partitioned table.

use pgrx::pg_sys;

use super::version::MAJOR;
use crate::pg::unguarded;

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

/// Returns the expressions of a partitioned table's key.
///
/// # Safety
/// An open partitioned table; a guarded frame.
pub unsafe fn partition_expressions(relation: pg_sys::Relation) -> *mut pg_sys::List {
    // SAFETY: this function's contract covers the relation; a partitioned table has a key.
    unsafe {
        let key = unguarded::guard(|| unguarded::RelationGetPartitionKey(relation));
        (*key.cast::<PartitionKeyHead>()).expressions
    }
}

/// Whether all functions that compare or hash a partitioned table's key pass the test.
///
/// # Safety
/// An open partitioned table; a guarded frame.
pub unsafe fn partition_functions(relation: pg_sys::Relation, mut test: impl FnMut(pg_sys::Oid) -> bool) -> bool {
    // SAFETY: this function's contract covers the relation; a partitioned table has a key with one function per column.
    // The number of columns follows the strategy, which has one byte in 15 and four from 16 on.
    unsafe {
        let key = unguarded::guard(|| unguarded::RelationGetPartitionKey(relation));
        let count = *key.cast::<i16>().add(if MAJOR >= 16 { 2 } else { 1 });
        let functions = (*key.cast::<PartitionKeyHead>()).functions;
        (0..usize::try_from(count).unwrap_or(0)).all(|i| test((*functions.add(i)).fn_oid))
    }
}

/// Returns the types of the columns of a partitioned table's key.
///
/// # Safety
/// An open partitioned table; a guarded frame.
pub unsafe fn partition_types(relation: pg_sys::Relation) -> Vec<pg_sys::Oid> {
    // SAFETY: as in `partition_functions`; the key has one type per column.
    unsafe {
        let key = unguarded::guard(|| unguarded::RelationGetPartitionKey(relation));
        let count = *key.cast::<i16>().add(if MAJOR >= 16 { 2 } else { 1 });
        let types = (*key.cast::<PartitionKeyHead>()).value_types;
        (0..usize::try_from(count).unwrap_or(0)).map(|i| *types.add(i)).collect()
    }
}
