//! Rows of the load whose keys are not unique, in groups of equal keys.
//!
//! The rows are collected index by index, in the order of keys, and decided on later, in the order of the file. So they
//! go through a sort, and a group is only a number.

use std::collections::HashMap;

use pgrx::pg_sys;

use super::number_sort::NumberSort;
use crate::error::{Result, out_of_memory};
use crate::heap::removal::{number_of, row_of};

/// Rows of a relation with equal keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Group {
    /// Number of the group, from 1.
    number: u64,
    /// The row of the table that has the key, or had it until it was replaced; 0 without such a row.
    holder: u64,
}

impl Group {
    /// No group.
    pub const NONE: Group = Group { number: 0, holder: 0 };
}

/// Rows of a relation whose keys are not unique.
#[derive(Debug)]
pub struct KeyConflicts {
    /// Row, index, group, and the row that holds the key.
    pub sort: Option<NumberSort<4>>,
    /// Number of groups so far, for each index.
    pub groups: Vec<u64>,
    /// Memory for each of three sorts, in kB.
    pub memory: i32,
    /// Rows of the load that later rows of the load have replaced one by one, outside of groups.
    pub superseded: Option<NumberSort<4>>,
    /// Replacing rows by number, with the rows that they replaced; only if triggers need them.
    pub replaced: Option<HashMap<u64, u64>>,
}

impl KeyConflicts {
    pub fn new(indexes: usize, memory: i32, keeps_replaced: bool) -> KeyConflicts {
        let replaced = keeps_replaced.then(HashMap::new);
        // One of the sorts starts while two others are still in use.
        KeyConflicts { sort: None, groups: vec![0; indexes], memory: memory / 3, superseded: None, replaced }
    }

    /// Notes that a row has replaced another one.
    pub fn replace(&mut self, new: u64, old: u64) {
        if let Some(replaced) = &mut self.replaced {
            replaced.insert(new, old);
        }
    }

    /// Notes that a row of the load was replaced, by number.
    pub fn supersede(&mut self, row: u64) {
        let memory = self.memory;
        self.superseded.get_or_insert_with(|| NumberSort::new(memory)).put([row, 0, 0, 0]);
    }

    /// Are there replaced rows that triggers must see?
    pub fn have_replaced(&self) -> bool {
        self.replaced.as_ref().is_some_and(|replaced| !replaced.is_empty())
    }

    /// The row that a row has replaced.
    pub fn replaced_by(&self, row: &pg_sys::ItemPointerData) -> Option<pg_sys::ItemPointerData> {
        self.replaced.as_ref()?.get(&number_of(row)).map(|&old| row_of(old))
    }

    fn put(&mut self, index: usize, row: &pg_sys::ItemPointerData, group: Group) {
        let memory = self.memory;
        let sort = self.sort.get_or_insert_with(|| NumberSort::new(memory));
        sort.put([number_of(row), index as u64, group.number, group.holder]);
    }

    fn new_group(&mut self, index: usize, holder: u64) -> Group {
        let groups = self.groups.get_mut(index);
        if let Some(groups) = groups {
            *groups += 1;
            return Group { number: *groups, holder };
        }
        Group::NONE
    }

    /// Notes a row with the same key as the row before, which may be in a group.
    pub fn twin(
        &mut self,
        index: usize,
        before: &pg_sys::ItemPointerData,
        group: Group,
        row: &pg_sys::ItemPointerData,
    ) -> Group {
        let mut group = group;
        if group == Group::NONE {
            group = self.new_group(index, 0);
            self.put(index, before, group);
        }
        self.put(index, row, group);
        group
    }

    /// Notes a row whose key a row of the table holds. `group` is the group of the load's other rows with that key.
    pub fn taken(
        &mut self,
        index: usize,
        row: &pg_sys::ItemPointerData,
        holder: &pg_sys::ItemPointerData,
        group: Group,
    ) -> Group {
        let holder = number_of(holder);
        let group = if group == Group::NONE { self.new_group(index, holder) } else { Group { holder, ..group } };
        self.put(index, row, group);
        group
    }

    pub fn is_empty(&self) -> bool {
        self.sort.is_none()
    }
}

/// A set of numbers.
#[derive(Debug, Default)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// A set for numbers below `count`.
    pub fn new(count: u64) -> Result<Bits> {
        let (mut words, needed) = (Vec::new(), usize::try_from(count.div_ceil(64)).unwrap_or(usize::MAX));
        words.try_reserve_exact(needed).map_err(|_| out_of_memory())?;
        words.resize(needed, 0);
        Ok(Bits(words))
    }

    fn word(number: u64) -> usize {
        usize::try_from(number / 64).unwrap_or(usize::MAX)
    }

    pub fn has(&self, number: u64) -> bool {
        self.0.get(Bits::word(number)).is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    pub fn add(&mut self, number: u64) {
        if self.0.len() <= Bits::word(number) {
            self.0.resize(Bits::word(number) + 1, 0);
        }
        if let Some(word) = self.0.get_mut(Bits::word(number)) {
            *word |= 1 << (number % 64);
        }
    }
}
