//! Finds orphans: rows without a parent.
//!
//! A load finds them in rounds, since deleting a row makes orphans of the rows that refer to it
//! ([`finalize`](crate::load::direct::finalize)). This module uses the same rounds.

use super::super::{CheckedTable, KeyCheck};
use super::leave_out;
use crate::error::Result;
use crate::load::direct::key_query::{Beside, KeyQuery};
use crate::load::direct::leader::Leader;
use crate::load::direct::removed_rows::RemovalReason;

/// Finds the rows of all tables that violate a foreign key. The rows that conflict with others are known. Guarded.
pub fn decide(leader: &mut Leader, check: &mut KeyCheck) -> Result<()> {
    let mut taken = 0;
    for number in 0..check.tables.len() {
        taken += hunt(leader, check, number, false)?;
    }
    // Rows that referred to rows that do not stay.
    while taken > 0 {
        taken = 0;
        for number in 0..check.tables.len() {
            taken += hunt(leader, check, number, true)?;
        }
    }
    Ok(())
}

/// Finds the orphans of a table, and returns how many there are. With `again`, only if the table refers to a relation
/// of the load, whose rows may have been rejected.
fn hunt(leader: &mut Leader, check: &mut KeyCheck, number: usize, again: bool) -> Result<u64> {
    let Some(Some(table)) = check.tables.get(number) else { return Ok(0) };
    let is_loaded = |oid| leader.spec.traits.iter().any(|(loaded, _)| *loaded == oid);
    if table.keys.are_none() || (again && !table.keys.refer_to(is_loaded)) {
        return Ok(0);
    }
    let context = table.memory.child(c"pg_bulk orphans");
    for key in 0..table_of(check, number).map_or(0, |table| table.keys.len()) {
        let _memory = context.enter();
        let Some(query) = table_of(check, number).and_then(|table| table.keys.queries().nth(key)) else { continue };
        let beside = beside(leader, check, query);
        if let Some(Some(table)) = check.tables.get_mut(number) {
            let CheckedTable { keys, orphans, removed, .. } = &mut **table;
            keys.look(key, &beside, |row| orphans.put(removed, key, row))?;
        }
        if let Some(rows) = beside.rows {
            rows.end();
        }
    }
    // SAFETY: the queries, which were all that the context had, have ended.
    unsafe { context.delete() };
    let Some(Some(table)) = check.tables.get_mut(number) else { return Ok(0) };
    let Some(orphans) = table.orphans.rows.take() else { return Ok(0) };
    let _memory = table.memory.enter();
    let complaints = table.keys.complaints(table.relation);
    leave_out(leader, table, orphans, |leader, key, place| {
        let complaint = usize::try_from(key).ok().and_then(|key| complaints.get(key)).cloned();
        leader.leave_out(place, RemovalReason::Reject, complaint.unwrap_or_default())
    })
}

fn table_of(check: &KeyCheck, number: usize) -> Option<&CheckedTable> {
    check.tables.get(number)?.as_deref()
}

/// Rows of the load that a foreign key may refer to, besides the rows of its table. Guarded; allocates in the current memory
/// context.
fn beside(leader: &Leader, check: &KeyCheck, query: &KeyQuery) -> Beside {
    let Some(number) = leader.spec.traits.iter().position(|(oid, _)| *oid == query.parent) else {
        return Beside { rows: None, alone: false };
    };
    let rows = table_of(check, number).and_then(|table| {
        let offer = table.offers.iter().find(|offer| offer.columns() == query.referenced)?;
        Some(offer.rows(&table.removed))
    });
    Beside { rows, alone: check.as_truncated }
}
