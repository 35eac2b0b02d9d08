//! The state of a scan: rows of the file into the executor's slot.
//!
//! A scan begins in [`open`] and returns its rows in [`iterate`]; [`step`] has the Rust work for a row.

mod filtered;
pub(super) mod iterate;
pub(super) mod open;
pub(super) mod step;

use std::ffi::CString;

use pgrx::pg_sys;

use super::aggregate::sums::Aggregation;
use super::options::TableOptions;
use super::order::OrderCheck;
use super::parallel::participant::Participant;
use super::private::Wanted;
use crate::error::Result;
use crate::pg::column::Column;
use crate::pg::progress::Progress;
use crate::pg::row::{RowArrays, Rows};
use crate::pg::soft::{OnError, Tolerance};
use crate::program::filter::RowFilter;

/// The state of a scan.
#[derive(Debug)]
pub struct Scan {
    /// None before the scan has begun and after it has ended.
    pub rows: Option<Rows>,
    relid: pg_sys::Oid,
    relation: pg_sys::Relation,
    /// The subtransaction in which the source was opened.
    begun_in: pg_sys::SubTransactionId,
    wanted: Wanted,
    /// Check of the row order, if the plan relies on it.
    order: Option<OrderCheck>,
    options: TableOptions,
    /// The function that makes the rows. With a filter, all columns of the file are in `first`.
    filter: Option<RowFilter>,
    /// Columns that the quals read, or all columns to convert if there are no quals.
    first: Vec<usize>,
    first_attributes: Vec<usize>,
    /// Columns to convert for rows that passed the quals.
    rest: Vec<usize>,
    /// The scan leaves out and counts no rows, and stops at the first bad value.
    is_plain: bool,
    /// Values of rows decoded together may have to be made datums.
    has_raw: bool,
    pub qual: *mut pg_sys::ExprState,
    /// The aggregates, if the scan returns these instead of rows.
    pub aggregation: Option<Aggregation>,
    pub tolerance: Tolerance,
    skip_left: u64,
    limit_left: u64,
    progress: Progress,
    /// Bytes at the last progress report.
    reported: u64,
    /// Bytes read by scans before a rescan, by workers that have ended, and by a load that replaced the scan.
    pub bytes_before: u64,
    /// This process's part, in a parallel scan.
    pub participant: Option<Participant>,
    /// A load reads the file instead.
    pub is_replaced: bool,
}

impl Scan {
    /// Bytes read, with those of earlier scans.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_before + self.rows.as_ref().map_or(0, |r| r.stream().bytes_read())
    }

    /// Begins the scan of these rows.
    fn begin(&mut self, rows: Rows) {
        self.rows = Some(rows);
        self.fit();
    }

    /// Assigns the columns to `first` and `rest` after their positions have changed.
    fn fit(&mut self) {
        let Some(rows) = &self.rows else { return };
        (self.first, self.rest) = match &self.filter {
            Some(_) => (rows.all(), Vec::new()),
            None => stages(&self.wanted, rows.columns(), self.options.copy.on_error, self.qual.is_null()),
        };
        let attribute = |&i: &usize| rows.columns().get(i).map(|column| column.attribute);
        self.first_attributes = self.first.iter().filter_map(attribute).collect();
        self.decode_together();
    }

    /// From now on decodes the first columns of many rows together, unless each row needs work of its own.
    fn decode_together(&mut self) {
        self.is_plain = self.options.copy.on_error == OnError::Stop && self.options.copy.limit.is_none();
        if let Some(rows) = self.rows.as_mut().filter(|_| self.is_plain) {
            let used = rows.columns().iter().filter(|column| !column.ignored);
            let attributes = used.map(|column| column.attribute + 1).max();
            rows.decode_some_together(attributes.unwrap_or(0), &[], &self.first);
            self.has_raw = rows.has_raw();
        }
    }

    /// Copies the first columns of a row that was decoded together with others.
    ///
    /// # Safety
    /// The arrays of a row, and of a slot.
    #[inline]
    unsafe fn take_decoded(&self, decoded: RowArrays, arrays: RowArrays) {
        for &attribute in &self.first_attributes {
            // SAFETY: this function's contract covers the arrays, and it is the attribute of a column.
            unsafe {
                *arrays.values.add(attribute) = *decoded.values.add(attribute);
                *arrays.nulls.add(attribute) = *decoded.nulls.add(attribute);
            }
        }
    }

    /// The filter has left out the record that was read.
    fn be_without(&mut self) {
        if self.options.copy.limit.is_some() {
            self.limit_left += 1;
        }
    }

    /// Are the reader's next records all rows of this process, with none to leave out?
    pub fn goes_on(&self) -> bool {
        self.is_plain && self.skip_left == 0 && self.participant.as_ref().is_none_or(Participant::goes_on)
    }

    /// Does the scan convert no column?
    pub fn wants_nothing(&self) -> bool {
        self.is_plain && self.first.is_empty() && self.rest.is_empty()
    }

    /// Adds the bytes of workers that have ended, before the shared state is released.
    pub fn add_others(&mut self) {
        self.bytes_before += self.participant.as_ref().map_or((0, 0), Participant::others).0;
    }

    /// Adds the bytes of the workers, and ends the sharing.
    pub fn take_others(&mut self) {
        self.add_others();
        self.participant = None;
    }

    /// Reports and ends this process's part, because the shared state will be released.
    pub fn stop_sharing(&mut self) {
        if let (Some(participant), Some(rows)) = (&mut self.participant, &self.rows) {
            participant.report(rows);
            participant.end();
        }
    }

    /// Does the scan skip no records?
    pub fn skips_nothing(&self) -> bool {
        self.options.copy.skip == 0
    }

    /// Can a load read the file instead? It must be a regular file that this scan has opened, and the plan must not
    /// rely on its order.
    pub fn is_replaceable(&self) -> bool {
        self.order.is_none() && self.rows.as_ref().is_some_and(|rows| rows.stream().identity().is_some())
    }

    /// Leaves the file to a load, which reports its progress. Guarded.
    pub fn give_up(&mut self) -> Result<()> {
        self.is_replaced = true;
        self.progress.end();
        self.rows.take().map_or(Ok(()), |mut rows| rows.close())
    }

    /// Names of the columns converted before and after the quals.
    pub fn converted(&self) -> [Vec<CString>; 2] {
        let name = |i: &usize| {
            let column = self.rows.as_ref().and_then(|rows| rows.columns().get(*i));
            column.map(|c| c.name.clone())
        };
        [&self.first, &self.rest].map(|set| set.iter().filter_map(name).collect())
    }
}

/// The columns that are converted before the quals are evaluated, and those converted after.
fn stages(wanted: &Wanted, columns: &[Column], on_error: OnError, no_quals: bool) -> (Vec<usize>, Vec<usize>) {
    // The set of rejected rows must not depend on the columns that a query reads.
    if on_error != OnError::Stop {
        return (columns.iter().enumerate().filter(|(_, c)| !c.ignored).map(|(i, _)| i).collect(), Vec::new());
    }
    let within = |set: &[i32], column: &Column| set.iter().any(|&a| usize::try_from(a) == Ok(column.attribute + 1));
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for (i, column) in columns.iter().enumerate().filter(|(_, column)| !column.ignored) {
        let (early, late) = (within(&wanted.by_quals, column), within(&wanted.besides, column));
        if early || (late && no_quals) {
            first.push(i);
        } else if late {
            rest.push(i);
        }
    }
    (first, rest)
}

/// # Safety
/// A valid slot.
unsafe fn slot_arrays(slot: *mut pg_sys::TupleTableSlot) -> RowArrays {
    // SAFETY: this function's contract covers the slot.
    unsafe { RowArrays { values: (*slot).tts_values, nulls: (*slot).tts_isnull } }
}
