//! Rows that the buffered writer passes to an INSERT: fields in, the target's row in a slot.
//!
//! One reading of the file, row by row, is a series ([`fill`]). There is a single one, unless a rule makes several
//! statements of the INSERT, or a join rescans its rows; then the file is rewound.
//!
//! [`fill`] is a plain frame (see `server`). The Rust work for a row is in [`next_row`](Feed::next_row), which is guarded
//! once for each row.

use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::files::Files;
use super::phase::Phases;
use super::query::{self, Query};
use super::rejects::{Complaint, Reject, Spool};
use super::{Load, source};
use crate::error::{Error, OrRaise, Result, is_data_exception};
use crate::input::file_figures::{ByFile, FileFigures};
use crate::program::projection::{Made, Projection, compute, filter};
use crate::rows::copy_options::CopyOptions;
use crate::rows::row::pump::{Begin, Policy, Pump, RowOutcome, Sink};
use crate::rows::row::{RowArrays, Rows};
use crate::rows::soft::{Conversion, Verbosity};
use crate::server::expression::Expression;
use crate::server::node::Node;
use crate::server::progress::Figures;
use crate::server::relation::Relation;
use crate::server::slot::{ExprContext, Slot};
use crate::server::unguarded::{self, Opaque, guarded};

/// A load's rows for an INSERT.
#[derive(Debug)]
pub struct Feed {
    pub token: i64,
    /// The name of the target, for messages.
    target: String,
    copy: CopyOptions,
    pub rows: Rows,
    /// The query that makes the rows, if there is no file.
    query: Option<&'static Query>,
    /// Attributes that the feed sets to defaults, because the file has no field for them.
    pub defaults: Vec<(usize, Expression)>,
    qual: Option<Expression>,
    /// Makes computed columns.
    projection: Option<Projection>,
    /// The row; a virtual tuple.
    pub slot: Slot<'static>,
    pub pump: Pump<InsertSink>,
    /// Rows that the INSERT has received.
    pub given: u64,
    /// The reader of the current series; null after its end. None before the first series.
    reader: Option<Opaque>,
    stored: StoredByFile,
}

/// Takes records as rows of an INSERT.
#[derive(Debug)]
pub struct InsertSink {
    arrays: RowArrays<'static>,
    pub econtext: ExprContext<'static>,
    pub phases: Phases,
    /// Where rejects go, if they are kept.
    spool: Option<&'static Spool>,
    pub filtered: u64,
    /// Bytes at which progress was last reported.
    reported: u64,
    /// The figures of each file, for a load of several.
    by_file: ByFile,
}

/// The rows that the statement has stored of each file, for a load of several files.
#[derive(Debug)]
struct StoredByFile {
    rows: Vec<u64>,
    /// The file of the last row.
    file: usize,
    /// Number of the rows of the files before it.
    before: u64,
    /// At the end of a file, the statement had not stored all of its rows yet.
    lags: bool,
}

/// A running feed.
#[derive(Debug, Clone, Copy)]
struct Running {
    token: i64,
    /// The schema of its extension.
    schema: pg_sys::Oid,
    feed: *mut Feed,
}

thread_local! {
    /// The feeds of this process; the innermost one is the last. A feed leaves the list when it is dropped, with its memory
    /// context.
    static RUNNING: RefCell<Vec<Running>> = const { RefCell::new(Vec::new()) };
}

impl Drop for Feed {
    fn drop(&mut self) {
        // A process that ends through exit() has no thread-local values any more.
        let _ = RUNNING.try_with(|feeds| feeds.borrow_mut().retain(|feed| feed.token != self.token));
    }
}

/// The running feed with this token, or null. Raises nothing.
pub fn running(token: i64) -> *mut Feed {
    let find = |feeds: &Vec<Running>| feeds.iter().find(|feed| feed.token == token).copied();
    RUNNING.with_borrow(find).map_or(std::ptr::null_mut(), |found| found.feed)
}

/// Does this process feed any load?
pub fn is_any_running() -> bool {
    RUNNING.with_borrow(|feeds| !feeds.is_empty())
}

/// Does the innermost load that is being fed belong to an extension in this schema?
pub fn is_extension_schema(schema: pg_sys::Oid) -> bool {
    RUNNING.with_borrow(|feeds| feeds.last().is_some_and(|feed| feed.schema == schema))
}

fn new_token() -> Result<i64> {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is as long as said.
    if !unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) } {
        return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, "could not generate random values"));
    }
    Ok(i64::from_ne_bytes(bytes))
}

impl Feed {
    /// Makes the feed of a load whose INSERT is about to begin. It takes the rows and the phases of the load, and lives as
    /// long. Guarded.
    pub fn of_load(load: &mut Load) -> Result<*mut Feed> {
        let memory = load.memory;
        // SAFETY: the relation is open now. Later the slot uses its descriptor, which it pins.
        let target = unsafe { Relation::from_raw(load.target.relation()?.as_ptr()) };
        let no_rows = || Error::new(Code::ERRCODE_INTERNAL_ERROR, "the file is not open");
        let mut rows = load.rows.take().ok_or_else(no_rows)?;
        // Errors are about a row while a series reads rows.
        rows.context.is_quiet = true;
        let qual = Expression::conditions(load.program.where_clause.conditions);
        let defaults = if qual.is_some() { source::defaults(target, &load.mapping) } else { Vec::new() };
        let slot = Slot::make(target.descriptor());
        // SAFETY: a guarded call returns a state with a context; the slot was made above.
        let econtext = unsafe {
            (*slot.as_ptr()).tts_tableOid = load.target.relid;
            ExprContext::from_raw(pg_sys::MakePerTupleExprContext(pg_sys::CreateExecutorState()))
        };
        let copy = load.request.options.copy.clone();
        let projection = load.program.projection.map(|nodes| {
            let inputs = source::input_descriptor(target, &load.mapping);
            Projection::over(nodes, inputs, rows.columns(), copy.on_error, memory)
        });
        let mut policy = Policy::of(&copy);
        policy.want(&rows, |_| true);
        let files = load.measures.files.as_ref();
        let sink = InsertSink {
            arrays: projection.as_ref().map_or(slot.arrays(), Projection::arrays),
            econtext,
            phases: std::mem::replace(&mut load.measures.phases, Phases::begin()),
            spool: load.spool,
            filtered: 0,
            reported: 0,
            by_file: files.map_or(ByFile::NONE, Files::by_file),
        };
        let stored = vec![0; files.map_or(0, Files::count)];
        let token = new_token()?;
        let feed = memory.keep(Feed {
            token,
            target: load.target.display_name(),
            copy,
            rows,
            query: load.program.query,
            defaults,
            qual,
            projection,
            slot,
            pump: Pump { policy, sink },
            given: 0,
            reader: None,
            stored: StoredByFile { rows: stored, file: 0, before: 0, lags: false },
        });
        let running = Running { token, schema: load.request.schema, feed };
        RUNNING.with_borrow_mut(|feeds| feeds.push(running));
        Ok(running.feed)
    }

    /// Rewinds the file to its start.
    fn restart(&mut self) -> Result<()> {
        let target = &self.target;
        if self.query.is_some() {
            return Err(query::not_twice(target));
        }
        self.rows.restart(self.copy.header(), || {
            let message = format!("cannot read a program or a FIFO more than once, as rules of \"{target}\" require");
            Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message))
        })?;
        self.pump.policy.restart(&self.copy);
        let sink = &mut self.pump.sink;
        (sink.filtered, self.given, sink.reported) = (0, 0, 0);
        sink.by_file.clear();
        self.stored.rows.fill(0);
        (self.stored.file, self.stored.before, self.stored.lags) = (0, 0, false);
        Ok(())
    }

    /// Begins a series for this reader. Guarded.
    pub fn begin_series(&mut self, reader: Opaque) -> Result<()> {
        if self.reader.is_some_and(|reader| !reader.is_null()) {
            let message = "cannot read the rows of a load in two places at a time";
            return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message));
        }
        if self.reader.replace(reader).is_some() {
            self.restart()?;
        }
        Ok(())
    }

    /// Ends this reader's series, if it has one: at the end of the file, or before.
    pub fn end_series(&mut self, reader: Opaque) {
        if self.reader == Some(reader) {
            (self.reader, self.rows.context.is_quiet) = (Some(std::ptr::null_mut()), true);
        }
    }

    /// Notes how many rows the running statement has stored, if the next row is of another file. Raises nothing.
    pub fn note_stored(&mut self, statement: Node<'_, pg_sys::EState>) {
        let file = self.rows.stream().file_number();
        if !self.pump.sink.by_file.is_none() && file != self.stored.file {
            self.stored.lags |= stores_later(statement);
            self.stored.note_file(statement.es_processed);
            self.stored.file = file;
        }
    }

    /// The rows stored of each file, at the end of the statement. None if they are unknown.
    pub fn stored(&mut self, processed: u64) -> Option<&[u64]> {
        self.stored.note_file(processed);
        (!self.stored.lags).then_some(&self.stored.rows)
    }

    /// Goes to the next record and decodes it. The feed's memory context for a row is current. Guarded.
    #[inline]
    fn next_row(&mut self) -> Result<RowOutcome> {
        self.rows.context.is_quiet = false;
        self.rows.follow_settings();
        self.pump.next(&mut self.rows)
    }

    /// Rejects the row that a function has raised an error about. Guarded.
    fn leave_out(&mut self, complaint: Complaint) -> Result<()> {
        let Pump { policy, sink } = &mut self.pump;
        sink.complain(&mut self.rows, policy, complaint)?;
        sink.show_rejected(policy);
        Ok(())
    }

    /// Guarded.
    fn count_row_of_query(&mut self) {
        self.rows.context.is_quiet = false;
        self.rows.count_row_of_query();
        if self.rows.count().is_multiple_of(ROUND) {
            let (given, sink) = (self.given, &mut self.pump.sink);
            let excluded = sink.filtered;
            sink.phases.show(|figures| (figures.rows, figures.excluded) = (given, excluded));
        }
    }

    /// The figures of the current record's file, if they are counted.
    fn figures(&self) -> Option<&FileFigures> {
        self.pump.sink.by_file.of(self.rows.stream().file_number())
    }

    fn count_given(&mut self) {
        self.pump.policy.count_row();
        self.given += 1;
        if let Some(figures) = self.figures() {
            figures.loaded.fetch_add(1, Relaxed);
        }
    }

    fn count_filtered(&mut self) {
        self.pump.sink.filtered += 1;
        if let Some(figures) = self.figures() {
            figures.filtered.fetch_add(1, Relaxed);
        }
    }
}

impl StoredByFile {
    fn note_file(&mut self, processed: u64) {
        if let Some(stored) = self.rows.get_mut(self.file) {
            *stored = processed.saturating_sub(self.before);
        }
        self.before = processed;
    }
}

/// Does the statement insert into a foreign table in batches? It counts the rows of a batch after it has sent them.
fn stores_later(statement: Node<'_, pg_sys::EState>) -> bool {
    [statement.opened(), statement.routed()].iter().any(|list| list.iter().any(|relation| relation.ri_BatchSize > 1))
}

/// The arrays are those of the relation's row, or of the projection's input.
impl Sink for InsertSink {
    fn arrays(&mut self) -> RowArrays<'_> {
        self.arrays
    }

    fn econtext(&self) -> ExprContext<'static> {
        self.econtext
    }

    fn advance(&mut self, rows: &mut Rows, policy: &mut Policy) -> Result<bool> {
        let more = rows.advance()?;
        let bytes = rows.stream().bytes_read();
        if bytes != self.reported {
            self.reported = bytes;
            let (count, excluded, rejected) = (rows.count(), self.filtered, policy.tolerance.bad_rows);
            self.phases.show(|f| {
                *f = Figures { bytes, rows: count.saturating_sub(excluded + rejected), excluded, rejected, ..*f }
            });
        }
        Ok(more)
    }

    fn begin(&mut self, _rows: &mut Rows, _policy: &mut Policy) -> Result<Begin> {
        Ok(Begin::Decode)
    }

    #[cold]
    fn reject(&mut self, rows: &mut Rows, policy: &mut Policy, error: &Error) -> Result<()> {
        if self.spool.is_none() && policy.tolerance.verbosity == Verbosity::Verbose {
            rows.note_record(error);
        }
        self.complain(rows, policy, Complaint::of_error(error))
    }

    fn note_conversion(&mut self, rows: &mut Rows, policy: &mut Policy, outcome: Conversion) -> Result<()> {
        if outcome != Conversion::LeftOut {
            return Ok(());
        }
        if let Some(bad) = policy.tolerance.bad_value.take() {
            policy.tolerance.bad_rows -= 1;
            // SAFETY: the error filter has copied the error to the row's memory.
            let complaint = unsafe { Complaint::of_data(bad) }.about_value(rows);
            self.complain(rows, policy, complaint)?;
        } else {
            self.count_reject(rows);
        }
        // A failed subtransaction may have reset the progress that other sessions see.
        self.show_rejected(policy);
        Ok(())
    }

    fn finish(&mut self, _rows: &mut Rows, _policy: &mut Policy) -> Result<bool> {
        Ok(true)
    }
}

impl InsertSink {
    /// Counts the current record as rejected.
    fn count_reject(&self, rows: &Rows) {
        if let Some(figures) = self.by_file.of(rows.stream().file_number()) {
            figures.rejected.fetch_add(1, Relaxed);
        }
    }

    /// Rejects the current record. Guarded.
    #[cold]
    fn complain(&mut self, rows: &mut Rows, policy: &mut Policy, complaint: Complaint) -> Result<()> {
        if self.spool.is_some() && is_data_exception(complaint.code) {
            rows.end_early(self.arrays, self.econtext)?;
        }
        self.count_reject(rows);
        if let Some(spool) = self.spool {
            spool.push(&Reject::new(rows, complaint).write());
        }
        policy.tolerance.count()?;
        rows.clear_queue();
        Ok(())
    }

    fn show_rejected(&mut self, policy: &Policy) {
        let rejected = policy.tolerance.bad_rows;
        self.phases.show(|figures| figures.rejected = rejected);
    }
}

/// A step to the next row of a feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    End,
    Row,
    Filtered,
    Rejected,
}

/// Makes the next row in the slot; false at the end. Its values live until the next row.
///
/// # Safety
/// A plain frame and a running feed, whose rows nothing else reads meanwhile. The feed's memory context for a row is
/// current.
pub unsafe fn fill(feed: *mut Feed) -> bool {
    // SAFETY: the frame is plain. The feed runs until its load ends; the steps use it one after the other.
    unsafe {
        loop {
            unguarded::MemoryContextReset((*feed).pump.sink.econtext.memory());
            let step = match (*feed).query {
                Some(query) => row_of_query(feed, query),
                None => row_of_file(feed),
            };
            match step {
                Step::End => return false,
                Step::Rejected => (),
                Step::Row if passes(feed) => {
                    (*feed).count_given();
                    return true;
                }
                Step::Row | Step::Filtered => (*feed).count_filtered(),
            }
            unguarded::check_for_interrupts();
        }
    }
}

/// Makes the next row of the file, without the defaults that `where` must see.
///
/// # Safety
/// As [`fill`].
unsafe fn row_of_file(feed: *mut Feed) -> Step {
    // SAFETY: a plain frame and a running feed. Rows and projection stay in it; nothing here has a destructor.
    unsafe {
        let rows = &raw mut (*feed).rows;
        let sink = &raw const (*feed).pump.sink;
        let (arrays, econtext) = ((*sink).arrays, (*sink).econtext.as_ptr());
        let outcome = guarded(|| (*feed).next_row().or_raise());
        if outcome == RowOutcome::End {
            return Step::End;
        }
        if (*rows).has_queue() {
            Rows::convert(rows, arrays, econtext);
        }
        if outcome == RowOutcome::Short {
            guarded(|| (*rows).check_missing().or_raise());
        }
        let Some(projection) = (*feed).projection.as_ref() else { return Step::Row };
        let (projection, row) = (&raw const *projection, (*feed).slot.arrays());
        if !(*projection).filters {
            compute(projection, econtext, row);
            return Step::Row;
        }
        match filter(projection, econtext, row, false) {
            // This projection makes no tuples.
            Made::Row | Made::Tuple(_) => Step::Row,
            Made::Nothing => Step::Filtered,
            Made::Bad(error) => {
                guarded(|| (*feed).leave_out(Complaint::of_data(error)).or_raise());
                Step::Rejected
            }
        }
    }
}

/// Rows of a query between two progress reports.
const ROUND: u64 = 1000;

/// Fetches the next row of the query. Errors inside the query have no row as context.
///
/// # Safety
/// As [`fill`], with the feed's query.
unsafe fn row_of_query(feed: *mut Feed, query: &Query) -> Step {
    // SAFETY: a plain frame and a running feed; the arrays are those of the target's row.
    unsafe {
        (*feed).rows.context.is_quiet = true;
        if (*feed).pump.policy.limit_left == Some(0) {
            return Step::End;
        }
        unguarded::check_for_interrupts();
        if !query.next_in_snapshot((*feed).pump.sink.arrays) {
            return Step::End;
        }
        guarded(|| (*feed).count_row_of_query());
        Step::Row
    }
}

/// Completes the row with the defaults that `where` must see, and evaluates `where`.
///
/// # Safety
/// As [`fill`], with a row in the slot.
unsafe fn passes(feed: *mut Feed) -> bool {
    // SAFETY: a plain frame and a running feed, whose expressions are those of the slot's row.
    unsafe {
        let Some(qual) = (*feed).qual else { return true };
        let (slot, econtext) = ((*feed).slot, (*feed).pump.sink.econtext.as_ptr());
        for &(attribute, expression) in &(*feed).defaults {
            slot.arrays().set(attribute, expression.value(econtext));
        }
        unguarded::store_virtual(slot.as_ptr());
        (*econtext).ecxt_scantuple = slot.as_ptr();
        unguarded::exec_qual(qual.as_ptr(), econtext)
    }
}
