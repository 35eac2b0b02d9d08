//! What an INSERT stores in each column, as the planner passes it to the executor.

use pgrx::pg_sys;

use crate::program::Nodes;
use crate::program::mapping::Mapping;
use crate::server::node::{Node, NodeList};
use crate::server::relation::OpenRelation;

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
    pub fn all_to_list<'a>(insertions: &[Insertion]) -> NodeList<'a> {
        insertions.iter().map(|insertion| insertion.to_list().node()).collect()
    }

    fn to_list<'a>(&self) -> NodeList<'a> {
        let head: [i32; HEAD] = [
            self.target.to_u32().cast_signed(),
            self.foreign.to_u32().cast_signed(),
            i32::try_from(self.place).unwrap_or(0),
            i32::from(self.filters),
            i32::from(self.own.is_some()),
            self.joins.map_or(0, |reach| 1 + reach as i32),
        ];
        let numbers: NodeList<'_, i32> = head.iter().chain(&self.columns).copied().collect();
        let nodes = self.own.unwrap_or(Nodes::NONE);
        [numbers.node(), nodes.targets.node(), nodes.quals.node()].into_iter().collect()
    }

    /// Reads a list made by [`Insertion::all_to_list`], or a copy.
    pub fn all_of_list(list: NodeList<'_, pg_sys::List>) -> Vec<Insertion> {
        list.iter().map(|list| Insertion::of_list(list.list())).collect()
    }

    fn of_list(lists: NodeList<'_, pg_sys::List>) -> Insertion {
        let nth = |i: usize| lists.get(i).map_or(NodeList::<pg_sys::Node>::EMPTY, |list| list.list());
        let numbers: Vec<i32> = lists.first().map(|list| list.ints().collect()).unwrap_or_default();
        let own = Nodes { targets: nth(1).of().copied(), quals: nth(2).copied(), ..Nodes::NONE };
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

    /// The entries of a target list, with one for each attribute, for those that do not get their default. Guarded.
    pub fn entries<'a>(&self, list: NodeList<'a, pg_sys::TargetEntry>) -> NodeList<'a, pg_sys::TargetEntry> {
        let set = list.iter().zip(&self.columns).filter(|(_, number)| **number != DEFAULT);
        set.map(|(entry, _)| entry).collect()
    }

    /// The nodes that compute rows of the target, if there are any, for this plan of the insertion. Guarded.
    pub fn nodes(&self, plan: Option<Node<'_, pg_sys::Plan>>) -> Option<Nodes> {
        if !self.projects() || self.joins.is_some() {
            return None;
        }
        let of_plan = |plan: Node<'_, pg_sys::Plan>| Nodes {
            targets: self.entries(plan.targetlist()).copied(),
            quals: plan.qual().copied(),
            ..Nodes::NONE
        };
        self.own.or_else(|| plan.map(of_plan))
    }

    /// Maps the file's fields to the target's attributes. Guarded.
    pub fn mapping(&self) -> Mapping {
        let projects = self.projects();
        let foreign = OpenRelation::locked(self.foreign);
        let place = |number: i16| {
            if projects {
                return None;
            }
            let place = self.columns.iter().position(|&column| column == i32::from(number))?;
            i16::try_from(place + 1).ok()
        };
        let mut mapping = Mapping::of_foreign(foreign.get(), place);
        if projects {
            let set = self.columns.iter().zip(1..).filter(|(number, _)| **number != DEFAULT);
            mapping.computed = set.map(|(_, attnum)| attnum).collect();
        }
        mapping
    }
}
