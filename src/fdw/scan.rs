//! The state of a scan: rows of the file into the executor's slot.
//!
//! A scan begins in [`open`] and returns its rows in [`iterate`]; [`step`] has the Rust work for a row.

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
use crate::program::filter::RowFilter;
use crate::rows::column::Column;
use crate::rows::ragged::Ragged;
use crate::rows::row::pump::{Begin, Policy, Pump, Sink};
use crate::rows::row::{RowArrays, Rows};
use crate::rows::soft::OnError;
use crate::server::progress::Progress;
use crate::server::relation::Relation;
use crate::server::slot::ExprContext;

/// The state of a scan.
#[derive(Debug)]
pub struct Scan {
    /// None before the scan has begun and after it has ended.
    pub rows: Option<Rows>,
    pub pump: Pump<SlotSink>,
    relid: pg_sys::Oid,
    relation: Relation<'static>,
    /// The subtransaction in which the source was opened.
    begun_in: pg_sys::SubTransactionId,
    /// Check of the row order, if the plan relies on it.
    order: Option<OrderCheck>,
    options: TableOptions,
    /// The function that makes the rows.
    filter: Option<RowFilter>,
    pub qual: *mut pg_sys::ExprState,
    /// The aggregates, if the scan returns these instead of rows.
    pub aggregation: Option<Aggregation>,
    /// Bytes read by scans before a rescan, by workers that have ended, and by a load that replaced the scan.
    pub bytes_before: u64,
    /// Records with another number of fields that became rows, of workers that have ended.
    pub ragged_of_others: Ragged,
    /// A load reads the file instead.
    pub is_replaced: bool,
}

/// Takes the rows of a scan: into its slot, its aggregation, or the input row of its filter. The columns that the quals
/// read are converted first, or all columns if there are no quals.
#[derive(Debug)]
pub struct SlotSink {
    arrays: RowArrays<'static>,
    econtext: ExprContext<'static>,
    wanted: Wanted,
    has_qual: bool,
    /// A filter takes all columns of the file.
    has_filter: bool,
    /// Attributes of the columns that are converted first.
    first_attributes: Vec<usize>,
    /// Columns to convert for rows that passed the quals.
    rest: Vec<usize>,
    /// Values of rows decoded together may have to be made datums.
    has_raw: bool,
    progress: Progress,
    /// Bytes at the last progress report.
    reported: u64,
    /// This process's part, in a parallel scan.
    pub participant: Option<Participant>,
}

impl SlotSink {
    /// From now on decodes the first columns of many rows together, unless each row needs work of its own.
    fn decode_together(&mut self, rows: &mut Rows, policy: &Policy) {
        if policy.is_plain() {
            let used = rows.columns().iter().filter(|column| !column.ignored);
            let attributes = used.map(|column| column.attribute + 1).max();
            rows.decode_some_together(attributes.unwrap_or(0), &[], policy.wanted());
            self.has_raw = rows.has_raw();
        }
    }

    /// Copies the first columns of a row that was decoded together with others.
    #[inline]
    fn take_decoded(&self, rows: &Rows) {
        if let Some(decoded) = rows.decoded() {
            self.arrays.take(&self.first_attributes, decoded);
        }
    }

    /// Bytes and rows of the workers, as known to the leader.
    fn others(&self) -> (u64, u64) {
        self.participant.as_ref().map_or((0, 0), Participant::others)
    }
}

/// The arrays are those of the scan's slot, its aggregation or its filter's input row. The context is the plan node's.
impl Sink for SlotSink {
    fn arrays(&mut self) -> RowArrays<'_> {
        self.arrays
    }

    fn econtext(&self) -> ExprContext<'static> {
        self.econtext
    }

    #[inline]
    fn advance(&mut self, rows: &mut Rows, policy: &mut Policy) -> Result<bool> {
        let more = match &mut self.participant {
            None => rows.advance()?,
            Some(participant) => participant.advance(rows, &mut policy.skip_left)?,
        };
        let bytes = rows.stream().bytes_read();
        if bytes != self.reported {
            self.reported = bytes;
            let others = self.others();
            self.progress.update(bytes + others.0, rows.count() + others.1);
        }
        Ok(more)
    }

    /// Decides which columns are converted before the quals are evaluated, and which after.
    fn fit(&mut self, rows: &mut Rows, policy: &mut Policy) {
        let within = |set: &[i32], column: &Column| set.iter().any(|&a| usize::try_from(a) == Ok(column.attribute + 1));
        // The set of rejected rows must not depend on the columns that a query reads.
        let all = self.has_filter || policy.tolerance.on_error != OnError::Stop;
        let is_late = |column: &Column| {
            self.has_qual && !within(&self.wanted.by_quals, column) && within(&self.wanted.besides, column)
        };
        let is_wanted = |c: &Column| within(&self.wanted.by_quals, c) || within(&self.wanted.besides, c);
        policy.want(rows, |column| all || (is_wanted(column) && !is_late(column)));
        self.rest = rows.indexes(|column| !all && is_late(column));
        let attribute = |&i: &usize| rows.columns().get(i).map(|column| column.attribute);
        self.first_attributes = policy.wanted().iter().filter_map(attribute).collect();
        self.decode_together(rows, policy);
    }

    #[inline]
    fn begin(&mut self, rows: &mut Rows, _policy: &mut Policy) -> Result<Begin> {
        if rows.decoded().is_none() {
            return Ok(Begin::Decode);
        }
        rows.clear_queue();
        // SAFETY: the row is new.
        unsafe { rows.make_datums() }?;
        self.take_decoded(rows);
        Ok(Begin::Row)
    }

    #[inline]
    fn finish(&mut self, _rows: &mut Rows, policy: &mut Policy) -> Result<bool> {
        policy.count_row();
        Ok(true)
    }
}

impl Scan {
    /// Bytes read, with those of earlier scans.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_before + self.rows.as_ref().map_or(0, |r| r.stream().bytes_read())
    }

    /// Begins the scan of these rows.
    fn begin(&mut self, mut rows: Rows) {
        self.pump.sink.fit(&mut rows, &mut self.pump.policy);
        self.rows = Some(rows);
    }

    /// Are the reader's next records all rows of this process, with none to leave out?
    #[inline]
    pub fn goes_on(&self) -> bool {
        let Pump { policy, sink } = &self.pump;
        policy.is_plain() && policy.skip_left == 0 && sink.participant.as_ref().is_none_or(Participant::goes_on)
    }

    /// Does the scan convert no column?
    pub fn wants_nothing(&self) -> bool {
        let Pump { policy, sink } = &self.pump;
        policy.is_plain() && policy.wanted().is_empty() && sink.rest.is_empty()
    }

    /// Adds the bytes of workers that have ended, before the shared state is released.
    pub fn add_others(&mut self) {
        self.bytes_before += self.pump.sink.others().0;
    }

    /// Adds the bytes of the workers, and ends the sharing.
    pub fn take_others(&mut self) {
        self.add_others();
        if let Some(participant) = self.pump.sink.participant.take() {
            self.ragged_of_others = participant.ragged_of_others();
        }
    }

    /// Reports and ends this process's part, because the shared state will be released.
    pub fn stop_sharing(&mut self) {
        if let (Some(participant), Some(rows)) = (&mut self.pump.sink.participant, &mut self.rows) {
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
        self.pump.sink.progress.end();
        self.rows.take().map_or(Ok(()), |mut rows| rows.close())
    }

    /// Names of the columns converted before and after the quals.
    pub fn converted(&self) -> [Vec<CString>; 2] {
        let name = |i: &usize| {
            let column = self.rows.as_ref().and_then(|rows| rows.columns().get(*i));
            column.map(|c| c.name.clone())
        };
        [self.pump.policy.wanted(), &self.pump.sink.rest].map(|set| set.iter().filter_map(name).collect())
    }
}
