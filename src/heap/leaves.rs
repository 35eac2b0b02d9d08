//! The relations that rows of a load may go to.

use std::collections::HashSet;

use pgrx::pg_sys;

use crate::server::relation::{OpenRelation, Relation};

/// The relations that rows of a target may go to, open, and locked to the end of the transaction. Guarded.
pub fn lock_leaves(relation: Relation<'_>) -> Vec<pg_sys::Relation> {
    if !relation.is_partitioned() {
        return vec![relation.as_ptr()];
    }
    let opened = relation.with_descendants(pg_sys::RowExclusiveLock).into_iter().map(OpenRelation::locked);
    opened.filter(|one| !one.get().is_partitioned()).map(OpenRelation::keep).collect()
}

/// Partitions below a partitioned relation: the leaves, and those that have partitions. Not locked. Guarded.
fn partitions(relation: Relation<'_>) -> (Vec<pg_sys::Oid>, Vec<pg_sys::Oid>) {
    // SAFETY: a guarded catalog lookup.
    let kind = |oid| unsafe { pg_sys::get_rel_relkind(oid) }.cast_unsigned();
    let all = relation.with_descendants(pg_sys::NoLock).into_iter();
    all.filter(|&oid| oid != relation.oid()).partition(|&oid| kind(oid) != pg_sys::RELKIND_PARTITIONED_TABLE)
}

/// Fixes the partitions that rows go to, even if another session attaches more.
///
/// The executor looks at a partition's own partitions only when the first row comes for them. Guarded.
///
/// # Safety
/// If the relation is partitioned, the executor's state routes its rows.
pub unsafe fn pin_partitions(relation: Relation<'_>, estate: *mut pg_sys::EState) {
    // SAFETY: this function's contract covers the state; guarded calls. The directory keeps the relations open.
    unsafe {
        let directory = (*estate).es_partition_directory;
        if !relation.is_partitioned() || directory.is_null() {
            return;
        }
        for inner in partitions(relation).1 {
            let inner = OpenRelation::open(inner, pg_sys::RowExclusiveLock);
            pg_sys::PartitionDirectoryLookup(directory, inner.get().as_ptr());
        }
    }
}

/// Are these the relations that rows may go to, as this process sees them? Guarded.
pub fn are_leaves(relation: Relation<'_>, known: &[pg_sys::Oid]) -> bool {
    if !relation.is_partitioned() {
        return true;
    }
    let known: HashSet<u32> = known.iter().map(|oid| oid.to_u32()).collect();
    let leaves = partitions(relation).0;
    leaves.len() == known.len() && leaves.iter().all(|leaf| known.contains(&leaf.to_u32()))
}

/// Has a relation constraints whose violations may be found only after the rows are in? Guarded.
pub fn may_complain(relation: Relation<'_>) -> bool {
    relation.has_indexes()
        && relation.indexes().into_iter().any(|oid| {
            let index = OpenRelation::open(oid, pg_sys::AccessShareLock).releasing(pg_sys::AccessShareLock);
            index.get().index().is_some_and(|form| form.is_unique || form.is_exclusion)
        })
}

/// Has a relation foreign keys?
pub fn may_refer(relation: Relation<'_>) -> bool {
    // SAFETY: the relation is open, and has `numtriggers` triggers.
    unsafe {
        let Some(triggers) = (*relation.as_ptr()).trigdesc.as_ref() else { return false };
        let count = usize::try_from(triggers.numtriggers).unwrap_or(0);
        (0..count).any(|i| (*triggers.triggers.add(i)).tgfoid.to_u32() == pg_sys::F_RI_FKEY_CHECK_INS)
    }
}

/// Closes the relations that [`lock_leaves`] opened; the locks stay. Guarded.
///
/// # Safety
/// The arguments are the relation and result of [`lock_leaves`].
pub unsafe fn close_leaves(relation: pg_sys::Relation, leaves: &[pg_sys::Relation]) {
    for &leaf in leaves.iter().filter(|&&leaf| leaf != relation) {
        // SAFETY: this function's contract covers the argument.
        unsafe { pg_sys::table_close(leaf, pg_sys::NoLock.cast_signed()) };
    }
}
