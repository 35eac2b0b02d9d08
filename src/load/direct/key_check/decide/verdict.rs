//! Decides which rows conflict with others, one by one, in the order of the file.
//!
//! The result is as if each row had been inserted unless one of its keys existed, with the arbiter's key checked first.
//! Only rows whose keys are not unique are looked at, and all rows with keys of exclusion constraints.

use std::collections::HashSet;

use super::super::CheckedTable;
use super::super::exclusion::{END, Exclusion};
use super::leave_out;
use crate::error::Result;
use crate::index::key_conflicts::Bits;
use crate::index::number_sort::NumberSort;
use crate::load::direct::leader::Leader;
use crate::load::direct::removed_rows::reason_for;
use crate::load::duplicate::Keep;
use crate::server::unguarded::{self as c, guard, guarded};

/// A key of a row: index, group of equal keys, and the table's row that has it, or 0.
type Claim = (usize, u64, u64);

/// The row that has a key: a row of the load, or of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Load(u64),
    Table(u64),
}

/// State of the decisions on a table's rows.
#[derive(Debug)]
struct Decisions {
    /// Rows of the groups, the next one, and the keys of the current row.
    conflicts: Option<NumberSort<4>>,
    next: Option<[u64; 4]>,
    claims: Vec<Claim>,
    /// Rows of the load that exclude the current one, with the index.
    excluding: Vec<(usize, u64)>,
    keep: Keep,
    arbiter: Option<usize>,
    /// For each index, the groups whose key is taken.
    taken: Vec<Bits>,
    /// If rows replace others: for each index, the row that has each group's key, or 0.
    owners: Vec<Vec<u64>>,
    /// Rows of the table that were replaced.
    replaced: HashSet<u64>,
    removed: Bits,
    /// The rows that do not stay, with the index that excludes each.
    removals: NumberSort<4>,
}

/// Decides on the rows of a table, whose rows with non-unique keys are known. Guarded; the table's memory context is current.
pub fn decide(leader: &mut Leader, table: &mut CheckedTable) -> Result<()> {
    if table.exclusions.is_empty() && table.conflicts.is_empty() {
        return Ok(());
    }
    let mut decisions = Decisions::new(table)?;
    // SAFETY: the operators are those of the constraints. The closure is plain: it owns nothing.
    unsafe {
        guard(|| {
            let exclusions = &mut table.exclusions;
            exclusions.iter_mut().for_each(|exclusion| exclusion.advance());
            loop {
                c::check_for_interrupts();
                let next = decisions.next.map_or(END, |[row, ..]| row);
                let row = exclusions.iter().map(Exclusion::at).fold(next, u64::min);
                if row == END {
                    break;
                }
                for exclusion in exclusions.iter_mut().filter(|exclusion| exclusion.at() == row) {
                    let other = exclusion.in_the_way(&decisions.removed);
                    if other != 0 {
                        decisions.excluding.push((exclusion.index, other));
                    }
                }
                let stays = guarded(|| decisions.pass(row));
                for exclusion in exclusions.iter_mut().filter(|exclusion| exclusion.at() == row) {
                    if stays {
                        guarded(|| exclusion.keep());
                    }
                    exclusion.advance();
                }
            }
        });
    }
    let Decisions { conflicts, removals, .. } = decisions;
    if let Some(conflicts) = conflicts {
        conflicts.end();
    }
    let reasons: Vec<_> = (0..table.indexes.list.len()).map(|index| reason_for(&table.indexes, index)).collect();
    leave_out(leader, table, removals, |leader, index, place| {
        let reason = usize::try_from(index).ok().and_then(|index| reasons.get(index));
        reason.map_or(Ok(()), |(reason, complaint)| leader.leave_out(place, *reason, complaint.clone()))
    })?;
    Ok(())
}

/// Excludes all rows with a key except the last one. Guarded.
fn leave_last(mut rows: NumberSort<4>, memory: i32, removals: &mut NumberSort<4>) {
    let mut by_key = NumberSort::<3>::new(memory);
    while let Some([row, index, group, _]) = rows.take() {
        pgrx::check_for_interrupts!();
        by_key.put([group, row, index]);
    }
    rows.end();
    by_key.sort();
    let mut before = None::<[u64; 3]>;
    while let Some(now) = by_key.take() {
        pgrx::check_for_interrupts!();
        if let Some([group, row, index]) = before.replace(now)
            && group == now[0]
        {
            removals.put([row, index, 0, 0]);
        }
    }
    by_key.end();
}

impl Decisions {
    /// Guarded; the table's memory context is current.
    fn new(table: &mut CheckedTable) -> Result<Decisions> {
        let mut conflicts = table.conflicts.sort.take();
        if let Some(sort) = &mut conflicts {
            sort.sort();
        }
        let keep = table.indexes.keep();
        let groups = &table.conflicts.groups;
        let arbiter = table.indexes.arbiter();
        let mut removals = NumberSort::new(table.sort_memory / 3);
        // If rows can conflict by one key only, the last row of each key stays, and no other state is needed.
        let is_other = |(index, &count): (usize, &u64)| Some(index) != arbiter && count > 0;
        let one_key = table.exclusions.is_empty() && !groups.iter().enumerate().any(is_other);
        if keep == Keep::New
            && one_key
            && let Some(rows) = conflicts.take()
        {
            leave_last(rows, table.sort_memory / 3, &mut removals);
        }
        let next = conflicts.as_mut().and_then(NumberSort::take);
        let owners = |&count: &u64| vec![0; usize::try_from(count + 1).unwrap_or(0)];
        let taken: Result<_> = groups.iter().map(|&count| Bits::new(count + 1)).collect();
        Ok(Decisions {
            conflicts,
            next,
            claims: Vec::new(),
            excluding: Vec::new(),
            keep,
            arbiter,
            taken: taken?,
            owners: if keep == Keep::New && !one_key { groups.iter().map(owners).collect() } else { Vec::new() },
            replaced: HashSet::new(),
            removed: Bits::default(),
            removals,
        })
    }

    /// Does a row stay? Guarded.
    fn pass(&mut self, row: u64) -> bool {
        self.claims.clear();
        while let Some([_, index, group, holder]) = self.next.filter(|next| next[0] == row) {
            self.claims.push((usize::try_from(index).unwrap_or(usize::MAX), group, holder));
            self.next = self.conflicts.as_mut().and_then(NumberSort::take);
        }
        let stays = if self.keep == Keep::New { self.replace(row) } else { self.enter(row) };
        self.excluding.clear();
        stays
    }

    fn remove(&mut self, row: u64, index: usize) {
        self.removed.add(CheckedTable::ordinal(row));
        self.removals.put([row, index as u64, 0, 0]);
    }

    /// Enters a row, unless one of its keys is taken.
    fn enter(&mut self, row: u64) -> bool {
        let is_taken = |&&(index, group, holder): &&Claim| {
            holder != 0 || self.taken.get(index).is_some_and(|taken| taken.has(group))
        };
        let is_duplicate = |claim: &&Claim| Some(claim.0) == self.arbiter && is_taken(claim);
        let duplicate = self.claims.iter().find(is_duplicate).map(|claim| claim.0);
        let first = || {
            let refused = self.claims.iter().filter(is_taken).map(|claim| claim.0);
            refused.chain(self.excluding.iter().map(|&(index, _)| index)).min()
        };
        if let Some(index) = duplicate.or_else(first) {
            self.remove(row, index);
            return false;
        }
        for &(index, group, _) in &self.claims {
            if let Some(taken) = self.taken.get_mut(index) {
                taken.add(group);
            }
        }
        true
    }

    fn owner(&self, &(index, group, holder): &Claim) -> Option<Owner> {
        let at = usize::try_from(group).unwrap_or(usize::MAX);
        let row = self.owners.get(index).and_then(|owners| owners.get(at)).copied().unwrap_or(0);
        if row != 0 && !self.removed.has(CheckedTable::ordinal(row)) {
            return Some(Owner::Load(row));
        }
        (holder != 0 && !self.replaced.contains(&holder)).then_some(Owner::Table(holder))
    }

    /// Enters a row in place of the row with the arbiter's key, unless it conflicts with a third row.
    fn replace(&mut self, row: u64) -> bool {
        let is_arbiter = |claim: &&Claim| Some(claim.0) == self.arbiter;
        let old = self.claims.iter().find(is_arbiter).and_then(|claim| self.owner(claim));
        let is_other = |owner: Option<Owner>| owner.is_some() && owner != old;
        let refused = self.claims.iter().filter(|claim| !is_arbiter(claim) && is_other(self.owner(claim)));
        let excluded = self.excluding.iter().filter(|&&(_, other)| is_other(Some(Owner::Load(other))));
        let first = refused.map(|claim| claim.0).chain(excluded.map(|&(index, _)| index)).min();
        if let Some(index) = first {
            self.remove(row, index);
            return false;
        }
        match (old, self.arbiter) {
            (Some(Owner::Load(old)), Some(arbiter)) => self.remove(old, arbiter),
            (Some(Owner::Table(old)), _) => {
                self.replaced.insert(old);
            }
            _ => (),
        }
        for &(index, group, _) in &self.claims {
            let at = usize::try_from(group).unwrap_or(usize::MAX);
            if let Some(owner) = self.owners.get_mut(index).and_then(|owners| owners.get_mut(at)) {
                *owner = row;
            }
        }
        true
    }
}
