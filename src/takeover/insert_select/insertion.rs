//! What an INSERT stores in each column, as the planner passes it to the executor.

use std::ptr::null_mut;

use pgrx::{PgList, pg_sys};

use crate::program::Nodes;
use crate::program::mapping::Mapping;

/// Values of `columns`: the attribute gets its default, or the value of an expression.
pub const DEFAULT: i32 = 0;
pub const EXPRESSION: i32 = -1;

/// The processes that may run the plan that joins the file's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Leader,
    Everywhere,
}

/// The part of an INSERT that reads one foreign table.
#[derive(Debug, Clone)]
pub struct Insertion {
    pub target: pg_sys::Oid,
    pub foreign: pg_sys::Oid,
    /// Its index in its range table.
    pub place: usize,
    /// There are conditions.
    pub filters: bool,
    /// The rows are joined with other tables.
    pub joins: Option<Reach>,
    /// For each attribute of the target, the foreign table's column number, [`DEFAULT`] or [`EXPRESSION`].
    pub columns: Vec<i32>,
    /// Its own conditions and expressions, unless the plan has them.
    pub own: Option<Nodes>,
}

/// Count of numbers before those of columns.
const HEAD: usize = 6;

impl Insertion {
    /// Makes a list that a plan can carry. Guarded.
    pub fn all_to_list(insertions: &[Insertion]) -> *mut pg_sys::List {
        let mut list = PgList::<pg_sys::List>::new();
        insertions.iter().for_each(|insertion| list.push(insertion.to_list()));
        list.into_pg()
    }

    fn to_list(&self) -> *mut pg_sys::List {
        let mut numbers = null_mut();
        let mut push = |number: i32| {
            // SAFETY: a guarded call on a list made here.
            numbers = unsafe { pg_sys::lappend_int(numbers, number) };
        };
        push(self.target.to_u32().cast_signed());
        push(self.foreign.to_u32().cast_signed());
        push(i32::try_from(self.place).unwrap_or(0));
        push(i32::from(self.filters));
        push(i32::from(self.own.is_some()));
        push(self.joins.map_or(0, |reach| 1 + reach as i32));
        self.columns.iter().copied().for_each(push);
        let nodes = self.own.unwrap_or(Nodes::NONE);
        let mut list = PgList::<pg_sys::List>::new();
        list.push(numbers);
        list.push(nodes.targets);
        list.push(nodes.quals);
        list.into_pg()
    }

    /// # Safety
    /// A list made by [`Insertion::all_to_list`], or a copy, which outlives the result.
    pub unsafe fn all_of_list(list: *mut pg_sys::List) -> Vec<Insertion> {
        // SAFETY: this function's contract covers the list.
        unsafe { PgList::<pg_sys::List>::from_pg(list).iter_ptr().map(|list| Insertion::of_list(list)).collect() }
    }

    /// # Safety
    /// A list made by [`Insertion::to_list`], or a copy.
    unsafe fn of_list(list: *mut pg_sys::List) -> Insertion {
        // SAFETY: this function's contract covers the list.
        let (numbers, own) = unsafe {
            let lists = PgList::<pg_sys::List>::from_pg(list);
            let nth = |i: usize| lists.get_ptr(i).unwrap_or(null_mut());
            let list = nth(0);
            let len = if list.is_null() { 0 } else { usize::try_from((*list).length).unwrap_or(0) };
            let numbers: Vec<i32> = (0..len).map(|i| (*(*list).elements.add(i)).int_value).collect();
            (numbers, Nodes { targets: nth(1), quals: nth(2), ..Nodes::NONE })
        };
        let number = |i: usize| numbers.get(i).copied().unwrap_or(0);
        let oid = |i: usize| pg_sys::Oid::from_u32(number(i).cast_unsigned());
        Insertion {
            target: oid(0),
            foreign: oid(1),
            place: usize::try_from(number(2)).unwrap_or(0),
            filters: number(3) != 0,
            own: (number(4) != 0).then_some(own),
            joins: (number(5) != 0).then(|| if number(5) > 1 { Reach::Everywhere } else { Reach::Leader }),
            columns: numbers.get(HEAD..).unwrap_or_default().to_vec(),
        }
    }

    /// Must rows be computed before they are stored?
    pub fn projects(&self) -> bool {
        let twice =
            |(i, number): (usize, &i32)| *number > 0 && self.columns.iter().take(i).any(|other| other == number);
        self.filters
            || self.joins.is_some()
            || self.columns.contains(&EXPRESSION)
            || self.columns.iter().enumerate().any(twice)
    }

    /// The entries of a target list for attributes that do not get their default. Guarded.
    ///
    /// # Safety
    /// A list of TargetEntries, one for each attribute.
    pub unsafe fn entries(&self, list: *mut pg_sys::List) -> *mut pg_sys::List {
        // SAFETY: this function's contract covers the list.
        let entries = unsafe { PgList::<pg_sys::TargetEntry>::from_pg(list) };
        let mut targets = PgList::<pg_sys::TargetEntry>::new();
        let set = entries.iter_ptr().zip(&self.columns).filter(|(_, number)| **number != DEFAULT);
        set.for_each(|(entry, _)| targets.push(entry));
        targets.into_pg()
    }

    /// The nodes that compute rows of the target, if there are any. Guarded.
    ///
    /// # Safety
    /// The plan of this insertion.
    pub unsafe fn nodes(&self, plan: *const pg_sys::CustomScan) -> Option<Nodes> {
        if !self.projects() || self.joins.is_some() {
            return None;
        }
        // SAFETY: this function's contract covers the plan, whose target list has an entry for each attribute.
        let of_plan = || unsafe {
            let plan = &(*plan).scan.plan;
            Nodes { targets: self.entries(plan.targetlist), quals: plan.qual, ..Nodes::NONE }
        };
        Some(self.own.unwrap_or_else(of_plan))
    }

    /// Maps the file's fields to the target's attributes. Guarded.
    ///
    /// # Safety
    /// The open foreign table.
    pub unsafe fn mapping(&self, foreign: pg_sys::Relation) -> Mapping {
        // SAFETY: this function's contract covers the relation.
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
