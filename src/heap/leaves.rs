//! The relations that rows of a load may go to.

use std::collections::HashSet;

use pgrx::pg_sys;

use crate::server::relation::{KeptRelation, OpenRelation, Relation};

/// The relations that rows of a target may go to, open, and locked to the end of the transaction. Guarded.
pub fn lock_leaves(relation: Relation<'_>) -> Vec<KeptRelation> {
    if !relation.is_partitioned() {
        return vec![KeptRelation::locked(relation.oid())];
    }
    let (inner, leaves): (Vec<_>, Vec<_>) = relation
        .with_descendants(pg_sys::RowExclusiveLock)
        .into_iter()
        .map(KeptRelation::locked)
        .partition(|one| one.get().is_partitioned());
    inner.into_iter().for_each(KeptRelation::close);
    leaves
}

/// Partitions below a partitioned relation: the leaves, and those that have partitions. Not locked. Guarded.
pub fn partitions(relation: Relation<'_>) -> (Vec<pg_sys::Oid>, Vec<pg_sys::Oid>) {
    // SAFETY: a guarded catalog lookup.
    let kind = |oid| unsafe { pg_sys::get_rel_relkind(oid) }.cast_unsigned();
    let all = relation.with_descendants(pg_sys::NoLock).into_iter();
    all.filter(|&oid| oid != relation.oid()).partition(|&oid| kind(oid) != pg_sys::RELKIND_PARTITIONED_TABLE)
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
            let index = OpenRelation::open(oid, pg_sys::AccessShareLock).releasing();
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
