//! What is inserted where: the words in which the planner tells the executor.

use pgrx::{PgList, pg_sys};

use crate::load::direct::Nodes;
use crate::load::source::Mapping;

/// An attribute that gets its default, and one that gets the value of an expression.
pub const DEFAULT: i32 = 0;
pub const EXPRESSION: i32 = -1;

/// What is inserted where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Insertion {
    pub target: pg_sys::Oid,
    pub foreign: pg_sys::Oid,
    /// There are conditions.
    pub filters: bool,
    /// For each attribute of the target, the number of the foreign table's column that it gets; or one of the others.
    pub columns: Vec<i32>,
}

impl Insertion {
    /// As a list that a plan can carry. Guarded.
    pub fn to_list(&self) -> *mut pg_sys::List {
        let mut list = std::ptr::null_mut();
        let mut push = |number: i32| {
            // SAFETY: a guarded call on a list made here.
            list = unsafe { pg_sys::lappend_int(list, number) };
        };
        push(self.target.to_u32().cast_signed());
        push(self.foreign.to_u32().cast_signed());
        push(i32::from(self.filters));
        self.columns.iter().copied().for_each(push);
        list
    }

    /// # Safety
    /// A list made by [`Insertion::to_list`], or a copy.
    pub unsafe fn of_list(list: *mut pg_sys::List) -> Insertion {
        // SAFETY: the caller vouches for the list.
        let numbers: Vec<i32> = unsafe {
            let len = if list.is_null() { 0 } else { usize::try_from((*list).length).unwrap_or(0) };
            (0..len).map(|i| (*(*list).elements.add(i)).int_value).collect()
        };
        let oid = |i: usize| pg_sys::Oid::from_u32(numbers.get(i).copied().unwrap_or(0).cast_unsigned());
        let filters = numbers.get(2).is_some_and(|&n| n != 0);
        Insertion { target: oid(0), foreign: oid(1), filters, columns: numbers.get(3..).unwrap_or_default().to_vec() }
    }

    /// Rows are not stored as they are.
    pub fn projects(&self) -> bool {
        let twice =
            |(i, number): (usize, &i32)| *number > 0 && self.columns.iter().take(i).any(|other| other == number);
        self.filters || self.columns.contains(&EXPRESSION) || self.columns.iter().enumerate().any(twice)
    }

    /// The nodes of a plan that make rows of the target, if they are not stored as they are. Guarded.
    ///
    /// # Safety
    /// The plan of this insertion.
    pub unsafe fn nodes(&self, plan: *const pg_sys::CustomScan) -> Option<Nodes> {
        if !self.projects() {
            return None;
        }
        // SAFETY: the caller vouches for the plan, whose target list has an entry for each attribute.
        unsafe { Some(self.nodes_of((*plan).scan.plan.targetlist, (*plan).scan.plan.qual)) }
    }

    /// The same, of what is inserted and of conditions. Guarded.
    ///
    /// # Safety
    /// A list of TargetEntries, one for each attribute, over a row of the foreign table, and one of conditions.
    pub unsafe fn nodes_of(&self, entries: *mut pg_sys::List, quals: *mut pg_sys::List) -> Nodes {
        // SAFETY: the caller vouches for the lists.
        unsafe {
            let mut targets = PgList::<pg_sys::TargetEntry>::new();
            let entries = PgList::<pg_sys::TargetEntry>::from_pg(entries);
            let set = entries.iter_ptr().zip(&self.columns).filter(|(_, number)| **number != DEFAULT);
            set.for_each(|(entry, _)| targets.push(entry));
            Nodes { targets: targets.into_pg(), quals }
        }
    }

    /// Whose the fields of the file are. Guarded.
    ///
    /// # Safety
    /// The open foreign table.
    pub unsafe fn mapping(&self, foreign: pg_sys::Relation) -> Mapping {
        // SAFETY: the caller vouches for the relation.
        unsafe {
            let projects = self.projects();
            let mut mapping = Mapping::of_foreign(foreign, |number| {
                if projects {
                    return None;
                }
                let place = self.columns.iter().position(|&column| column == i32::from(number))?;
                i16::try_from(place + 1).ok()
            });
            if projects {
                let set = self.columns.iter().zip(1..).filter(|(number, _)| **number != DEFAULT);
                mapping.computed = set.map(|(_, attnum)| attnum).collect();
            }
            mapping
        }
    }
}
