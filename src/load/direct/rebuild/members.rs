//! Chooses the indexes of a relation that are built at the same time, and their order.
//!
//! Core builds an index in a parallel worker only if its expressions and its predicate are parallel safe
//! (plan_create_index_workers, planner.c). Here a worker does all steps for an index, including the comparisons. So the
//! functions of its operator classes must be safe, too, and its access method must be one of the server's. Functions
//! that the server finds in the type cache to compare and hash elements, columns or bounds of a key are not checked.
//!
//! The longest build should not start last, because the others would wait for it. The duration is estimated from the
//! access method and the width of the keys; a wrong estimate only costs time.

use pgrx::pg_sys;

use crate::index::strategy::IndexStrategy;
use crate::load::direct::indexes::Index;
use crate::rows::hazard::Hazards;
use crate::server::compat;
use crate::server::lookup::average_width;
use crate::server::relation::{OpenRelation, Relation};

/// An index: its position in the relation's list, and its relative cost.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    pub number: usize,
    cost: f64,
    is_btree: bool,
}

/// The indexes that processes may build at the same time, the longest build first. Empty if there are fewer than two.
/// Guarded. The relation's indexes are closed.
pub fn members(relation: Relation<'_>, list: &[Index]) -> Vec<Member> {
    let mut found = Vec::new();
    if relation.persistence() == pg_sys::RELPERSISTENCE_TEMP || compat::prunes_early() {
        return found;
    }
    let hazards = Hazards::new();
    for (number, index) in list.iter().enumerate().filter(|(_, index)| index.strategy == IndexStrategy::Rebuild) {
        let index = OpenRelation::open(index.oid, pg_sys::AccessShareLock);
        let index = index.get();
        // For other indexes, reindex_index (index.c) would have to update pg_index at the end.
        let is_whole = index.index().is_some_and(|form| form.is_usable && !form.checks_xmin);
        let method = index.access_method();
        if let Some(weight) = weight(method).filter(|_| is_whole && hazards.index_is_safe(index)) {
            found.push(Member { number, cost: weight * width(index), is_btree: method == pg_sys::BTREE_AM_OID });
        }
    }
    found.sort_by(|a, b| b.cost.total_cmp(&a.cost));
    leave_to_server(&mut found);
    found
}

/// Leaves a B-tree to the server if it takes longer than all others together: the server builds it with several
/// processes.
fn leave_to_server(found: &mut Vec<Member>) {
    while let [first, rest @ ..] = &**found
        && (rest.is_empty() || (first.is_btree && first.cost > rest.iter().map(|member| member.cost).sum()))
    {
        found.remove(0);
    }
    if found.len() < 2 {
        found.clear();
    }
}

/// Relative cost of a key of a few bytes, compared with a B-tree; only for the server's access methods.
fn weight(method: pg_sys::Oid) -> Option<f64> {
    Some(match method {
        pg_sys::BTREE_AM_OID => 1.0,
        pg_sys::HASH_AM_OID => 1.2,
        pg_sys::GIST_AM_OID | pg_sys::SPGIST_AM_OID => 4.0,
        pg_sys::GIN_AM_OID => 6.0,
        pg_sys::BRIN_AM_OID => 0.2,
        _ => return None,
    })
}

/// Width of a row's entry in an index, by the server's default estimates, in units of eight bytes. Guarded.
fn width(index: Relation<'_>) -> f64 {
    let of = |column: &pg_sys::FormData_pg_attribute| average_width(column.atttypid, column.atttypmod);
    1.0 + f64::from(index.descriptor().attributes().map(of).sum::<i32>()) / 8.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(costs: &[(f64, bool)]) -> Vec<usize> {
        let member = |(number, &(cost, is_btree))| Member { number, cost, is_btree };
        let mut found = costs.iter().enumerate().map(member).collect();
        leave_to_server(&mut found);
        found.iter().map(|member| member.number).collect()
    }

    #[test]
    fn what_is_left_to_the_server() {
        assert!(left(&[]).is_empty());
        assert!(left(&[(5.0, false)]).is_empty());
        assert_eq!(left(&[(5.0, false), (1.0, true)]), [0, 1]);
        assert_eq!(left(&[(5.0, true), (5.0, true)]), [0, 1]);
        assert!(left(&[(5.0, true), (1.0, false)]).is_empty());
        assert_eq!(left(&[(5.0, true), (2.0, false), (1.0, true)]), [1, 2]);
        assert_eq!(left(&[(9.0, true), (5.0, true), (2.0, false), (1.0, true)]), [2, 3]);
    }
}
