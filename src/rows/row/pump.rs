//! The pump: the only loop that turns the records of a file into rows.
//!
//! ```text
//!   advance ─► error filter ─► skip ─► Sink::begin ─► decode ─► bad values ─► Sink::finish ─► caller (plain frame)
//!      ▲            │            │          │                       │              │
//!      └────────────┴────────────┴──────────┴───────────────────────┴──────────────┘
//! ```
//!
//! A [`Pump`] has a [`Policy`] and a [`Sink`]. The policy decides which records become rows, and which of their columns
//! are converted. The sink takes the rows: a tuplestore, a sample, a slot, the heaps of a load. Its type is known at
//! compile time, so a row costs no indirect call.
//!
//! [`next_row`] runs in a guard, and takes many records in one. It returns with each row that the sink does not
//! finish by itself. The caller is a plain frame. It runs the queue of the row ([`Rows::convert`]) if there is one, and
//! then raises the error about missing fields ([`Rows::check_missing`]) if the row is [`RowOutcome::Short`].

use super::{RowArrays, Rows};
use crate::error::{Error, Result};
use crate::rows::column::Column;
use crate::rows::copy_options::CopyOptions;
use crate::rows::soft::{Conversion, OnError, Tolerance};
use crate::server::slot::ExprContext;
use crate::server::stages::Stage;

/// Result of a step to the next row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum RowOutcome {
    /// There is no row.
    End,
    /// A row. Its queue may have to be run.
    Row,
    /// A row that lacks fields. The caller converts the fields that exist, then raises the error.
    Short,
}

/// Continuation of a record after [`Sink::begin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// The record is to be decoded.
    Decode,
    /// The sink needs no more of the record.
    Done,
    /// The sink has a complete row for the caller.
    Row,
}

/// Decides which records become rows.
#[derive(Debug)]
pub struct Policy {
    /// The error filter.
    pub tolerance: Tolerance,
    /// Records still to skip.
    pub skip_left: u64,
    /// Rows still to make, if there is a limit.
    pub limit_left: Option<u64>,
    /// Indexes of the columns to convert.
    wanted: Vec<usize>,
}

impl Policy {
    /// The policy of these options, at the start of the file.
    pub fn of(copy: &CopyOptions) -> Policy {
        Policy { tolerance: copy.tolerance(), skip_left: copy.skip, limit_left: copy.limit, wanted: Vec::new() }
    }

    /// Convert these columns. Columns without an attribute are left out.
    pub fn want(&mut self, rows: &Rows, is_wanted: impl Fn(&Column) -> bool) {
        self.wanted = rows.indexes(is_wanted);
    }

    /// Indexes of the columns to convert.
    pub fn wanted(&self) -> &[usize] {
        &self.wanted
    }

    /// Does a bad value stop the reader, and is there no limit? Then rows can be decoded together.
    pub fn is_plain(&self) -> bool {
        self.tolerance.on_error == OnError::Stop && self.limit_left.is_none()
    }

    /// Count a row towards the limit.
    #[inline]
    pub fn count_row(&mut self) {
        if let Some(left) = &mut self.limit_left {
            *left -= 1;
        }
    }

    /// A row that was counted does not count: the caller leaves it out.
    pub fn uncount_row(&mut self) {
        if let Some(left) = &mut self.limit_left {
            *left += 1;
        }
    }

    /// Begin again at the start of the file.
    pub fn restart(&mut self, copy: &CopyOptions) {
        *self = Policy { wanted: std::mem::take(&mut self.wanted), ..Policy::of(copy) };
    }

    /// Count a record to be skipped; false if none is left to skip.
    #[inline]
    fn skips(&mut self) -> bool {
        let skips = self.skip_left > 0;
        self.skip_left -= u64::from(skips);
        skips
    }
}

/// Takes the rows of a pump. Guarded.
pub trait Sink {
    /// The arrays that fields are decoded into, with an element for each attribute of the rows' columns.
    fn arrays(&mut self) -> RowArrays<'_>;

    /// For default expressions and input functions.
    fn econtext(&self) -> ExprContext<'static>;

    /// Do what is due before a record, whether or not there is one. False ends the rows.
    #[inline]
    fn before_record(&mut self, _rows: &mut Rows, _policy: &mut Policy) -> Result<bool> {
        Ok(true)
    }

    /// Go to the next record; false at the end.
    #[inline]
    fn advance(&mut self, rows: &mut Rows, _policy: &mut Policy) -> Result<bool> {
        rows.advance()
    }

    /// Go on with further records after the end of the ones before; false if there are none.
    #[inline]
    fn next_chunk(&mut self, _rows: &mut Rows, _policy: &mut Policy) -> Result<bool> {
        Ok(false)
    }

    /// Adapt to other columns, or to another file.
    fn fit(&mut self, rows: &mut Rows, policy: &mut Policy) {
        policy.want(rows, |_| true);
    }

    /// Take a record that is not skipped. Its values may be decoded already ([`Rows::decoded`]).
    fn begin(&mut self, rows: &mut Rows, policy: &mut Policy) -> Result<Begin>;

    /// Reject the current record, because of an error that is survived.
    fn reject(&mut self, rows: &mut Rows, policy: &mut Policy, error: &Error) -> Result<()> {
        rows.leave_out_record(&mut policy.tolerance, error)
    }

    /// The queue of the record was run under the error filter.
    fn note_conversion(&mut self, _rows: &mut Rows, _policy: &mut Policy, _outcome: Conversion) -> Result<()> {
        Ok(())
    }

    /// Take a decoded row, whose queue may have to be run. True if the caller must complete the row.
    fn finish(&mut self, rows: &mut Rows, policy: &mut Policy) -> Result<bool>;
}

/// Turns records into rows, for one sink.
#[derive(Debug)]
pub struct Pump<S> {
    pub policy: Policy,
    pub sink: S,
}

impl<S: Sink> Pump<S> {
    /// See [`next_row`].
    #[inline]
    pub fn next(&mut self, rows: &mut Rows) -> Result<RowOutcome> {
        next_row(rows, &mut self.policy, &mut self.sink)
    }
}

/// Make rows until one needs a step outside of the guard. The sink has been [fitted](Sink::fit) to these rows. Guarded.
#[inline]
pub fn next_row<S: Sink>(rows: &mut Rows, policy: &mut Policy, sink: &mut S) -> Result<RowOutcome> {
    loop {
        if policy.limit_left == Some(0) || !sink.before_record(rows, policy)? {
            return Ok(RowOutcome::End);
        }
        match sink.advance(rows, policy) {
            Ok(true) => (),
            Ok(false) if sink.next_chunk(rows, policy)? => continue,
            Ok(false) => return Ok(RowOutcome::End),
            Err(error) if policy.tolerance.survives(&error) => {
                pgrx::check_for_interrupts!();
                if !policy.skips() {
                    sink.reject(rows, policy, &error)?;
                }
                leave_out(sink);
                continue;
            }
            Err(error) => return Err(error),
        }
        if rows.take_change() {
            sink.fit(rows, policy);
        }
        if policy.skips() {
            continue;
        }
        rows.count_ragged();
        match sink.begin(rows, policy)? {
            Begin::Decode => (),
            Begin::Done => continue,
            Begin::Row => return Ok(RowOutcome::Row),
        }
        rows.reset();
        let mut watch = rows.stream.stages.sample();
        rows.decode(&policy.wanted, sink.arrays());
        rows.stream.stages.lap_sample(&mut watch, Stage::Convert);
        if policy.tolerance.on_error != OnError::Stop && rows.has_queue() {
            let econtext = sink.econtext();
            let converted = econtext.within(|| rows.convert_softly(&mut policy.tolerance, sink.arrays(), econtext));
            rows.stream.stages.lap_sample(&mut watch, Stage::Convert);
            let outcome = converted?;
            sink.note_conversion(rows, policy, outcome)?;
            match outcome {
                Conversion::Good => rows.clear_queue(),
                Conversion::Raises => return Ok(RowOutcome::Row),
                Conversion::LeftOut => {
                    pgrx::check_for_interrupts!();
                    leave_out(sink);
                    continue;
                }
            }
        }
        let is_short = rows.is_short();
        if is_short
            && policy.tolerance.rejects_short
            && let Err(error) = rows.check_missing()
        {
            sink.reject(rows, policy, &error)?;
            leave_out(sink);
            continue;
        }
        if sink.finish(rows, policy)? {
            return Ok(if is_short { RowOutcome::Short } else { RowOutcome::Row });
        }
    }
}

/// Frees the values of a record, and copies of its error.
fn leave_out(sink: &impl Sink) {
    // SAFETY: the sink gets no row of the record, and nothing else uses the memory.
    unsafe { sink.econtext().reset() }
}
