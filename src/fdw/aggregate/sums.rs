//! The running aggregates of a scan.

use pg_bulk_types::block::Run;
use pg_bulk_types::convert::Datum;
use pgrx::pg_sys;

use super::accumulator::{Accumulator, AggregateKind};
use crate::fdw::private::Aggregates;
use crate::rows::row::RowArrays;
use crate::server::relation::Relation;
use crate::server::role::require_execute;

/// The running aggregates of a scan.
#[derive(Debug)]
pub struct Aggregation {
    pub(super) accumulators: Vec<Accumulator>,
    /// The scan returns transition states.
    pub(super) partial: bool,
    /// The scan has returned its row.
    pub(super) done: bool,
    /// A sum exceeds its range, which the caller raises an error about.
    pub(super) overflows: bool,
    /// A row that is not in a block.
    pub(super) values: Vec<Datum>,
    pub(super) nulls: Vec<bool>,
    /// Attributes of the row that the quals read, after the aggregates in the scan's tuple.
    pub(super) columns: Vec<usize>,
}

impl Aggregation {
    /// Raises an error unless the user may call all the functions. Guarded.
    pub fn new(aggregates: &Aggregates, relation: Relation<'_>) -> Aggregation {
        let natts = relation.descriptor().len();
        let attribute = |column: i32| usize::try_from(column - 1).unwrap_or(0);
        let accumulator = |&(function, column): &(pg_sys::Oid, i32)| {
            check_rights(function);
            AggregateKind::of(function).map(|kind| Accumulator::new(kind, attribute(column)))
        };
        Aggregation {
            accumulators: aggregates.list.iter().filter_map(accumulator).collect(),
            partial: aggregates.partial,
            done: false,
            overflows: false,
            values: vec![0; natts],
            nulls: vec![true; natts],
            columns: aggregates.columns.iter().copied().map(attribute).collect(),
        }
    }

    /// The arrays of a row that is not in a block.
    ///
    /// # Safety
    /// The aggregation stays where it is until their last use.
    pub unsafe fn arrays(&mut self) -> RowArrays<'static> {
        // SAFETY: vectors of equal lengths, which change only through these arrays. A datum is a usize on a 64-bit server.
        unsafe { RowArrays::from_raw(self.values.as_mut_ptr().cast(), self.nulls.as_mut_ptr(), self.nulls.len()) }
    }

    /// Resets the aggregates, for a rescan.
    pub fn again(&mut self) {
        self.done = false;
        self.accumulators.iter_mut().for_each(Accumulator::reset);
    }

    /// Adds rows that were decoded together.
    pub(super) fn add(&mut self, run: &Run<'_>) {
        self.overflows |= self.accumulators.iter_mut().try_for_each(|accumulator| accumulator.add(run)).is_err();
    }

    /// Adds the row in the arrays.
    #[inline]
    pub(super) fn add_row(&mut self) {
        let run = Run { values: &self.values, nulls: &self.nulls, attributes: self.values.len(), rows: 1 };
        self.overflows |= self.accumulators.iter_mut().try_for_each(|accumulator| accumulator.add(&run)).is_err();
    }
}

/// Raises unless the user may execute the function, as ExecInitAgg. Guarded.
fn check_rights(function: pg_sys::Oid) {
    require_execute(function, pg_sys::ObjectType::OBJECT_AGGREGATE);
    // SAFETY: a variable of this process, and a guarded call.
    unsafe {
        let hook = pg_sys::object_access_hook;
        if hook.is_some() {
            pg_sys::RunFunctionExecuteHook(function);
        }
    }
}
