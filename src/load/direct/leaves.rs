//! The relations that rows of a load may go to.

use std::collections::HashSet;

use pgrx::{PgList, pg_sys};

use crate::pg::unguarded::{self as c, guard};

const NO_LOCK: pg_sys::LOCKMODE = pg_sys::NoLock.cast_signed();

fn is_partitioned(relation: pg_sys::Relation) -> bool {
    // SAFETY: an open relation.
    unsafe { (*(*relation).rd_rel).relkind.cast_unsigned() == pg_sys::RELKIND_PARTITIONED_TABLE }
}

/// The relations that rows of a target may go to, open, and locked to the end of the transaction. Guarded.
///
/// # Safety
/// The relation is open and locked.
pub unsafe fn lock_leaves(relation: pg_sys::Relation) -> Vec<pg_sys::Relation> {
    if !is_partitioned(relation) {
        return vec![relation];
    }
    let mode = pg_sys::RowExclusiveLock.cast_signed();
    // SAFETY: guarded calls; find_all_inheritors has locked what it returns.
    unsafe {
        let oids = guard(|| c::find_all_inheritors((*relation).rd_id, mode, std::ptr::null_mut()));
        let count = if oids.is_null() { 0 } else { (*oids).length };
        let open = |i| pg_sys::table_open(pg_sys::list_nth_oid(oids, i), NO_LOCK);
        let relations: Vec<_> = (0..count).map(open).collect();
        let (leaves, inner): (Vec<_>, Vec<_>) = relations.into_iter().partition(|&relation| !is_partitioned(relation));
        inner.into_iter().for_each(|relation| pg_sys::table_close(relation, NO_LOCK));
        leaves
    }
}

/// Partitions below a relation: the leaves, and those that have partitions. Not locked. Guarded.
///
/// # Safety
/// The relation is open and partitioned.
unsafe fn partitions(relation: pg_sys::Relation) -> (Vec<pg_sys::Oid>, Vec<pg_sys::Oid>) {
    // SAFETY: guarded calls.
    unsafe {
        let relid = (*relation).rd_id;
        let all = guard(|| c::find_all_inheritors(relid, NO_LOCK, std::ptr::null_mut()));
        let all = PgList::<pg_sys::Oid>::from_pg(all);
        let has_parts =
            |&oid: &pg_sys::Oid| pg_sys::get_rel_relkind(oid).cast_unsigned() == pg_sys::RELKIND_PARTITIONED_TABLE;
        all.iter_oid().filter(|&oid| oid != relid).partition(|oid| !has_parts(oid))
    }
}

/// Fixes the partitions that rows go to, even if another session attaches more.
///
/// The executor looks at a partition's own partitions only when the first row comes for them. Guarded.
///
/// # Safety
/// The relation is open; if it is partitioned, the executor's state routes its rows.
pub unsafe fn pin_partitions(relation: pg_sys::Relation, estate: *mut pg_sys::EState) {
    // SAFETY: this function's contract covers both arguments; guarded calls. The directory keeps them open.
    unsafe {
        let directory = (*estate).es_partition_directory;
        if !is_partitioned(relation) || directory.is_null() {
            return;
        }
        for inner in partitions(relation).1 {
            let inner = pg_sys::table_open(inner, pg_sys::RowExclusiveLock.cast_signed());
            pg_sys::PartitionDirectoryLookup(directory, inner);
            pg_sys::table_close(inner, NO_LOCK);
        }
    }
}

/// Are these the relations that rows may go to, as this process sees them? Guarded.
///
/// # Safety
/// The relation is open.
pub unsafe fn are_leaves(relation: pg_sys::Relation, known: &[pg_sys::Oid]) -> bool {
    // SAFETY: this function's contract covers the relation.
    unsafe {
        if !is_partitioned(relation) {
            return true;
        }
        let known: HashSet<u32> = known.iter().map(|oid| oid.to_u32()).collect();
        let leaves = partitions(relation).0;
        leaves.len() == known.len() && leaves.iter().all(|leaf| known.contains(&leaf.to_u32()))
    }
}

/// Has a relation constraints whose violations may be found only after the rows are in?
///
/// # Safety
/// The relation is open. Guarded.
pub unsafe fn may_complain(relation: pg_sys::Relation) -> bool {
    // SAFETY: this function's contract covers the relation; guarded calls.
    unsafe {
        if !(*(*relation).rd_rel).relhasindex {
            return false;
        }
        let lock = pg_sys::AccessShareLock.cast_signed();
        let indexes = PgList::<pg_sys::Oid>::from_pg(pg_sys::RelationGetIndexList(relation));
        indexes.iter_oid().any(|oid| {
            let index = pg_sys::index_open(oid, lock);
            let form = (*index).rd_index;
            let complains = (*form).indisunique || (*form).indisexclusion;
            pg_sys::index_close(index, lock);
            complains
        })
    }
}

/// Has a relation foreign keys?
///
/// # Safety
/// The relation is open.
pub unsafe fn may_refer(relation: pg_sys::Relation) -> bool {
    // SAFETY: this function's contract covers the relation, which has `numtriggers` triggers.
    unsafe {
        let Some(triggers) = (*relation).trigdesc.as_ref() else { return false };
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
        unsafe { pg_sys::table_close(leaf, NO_LOCK) };
    }
}
