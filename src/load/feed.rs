//! Rows that the buffered writer passes to an INSERT: fields in, the target's row in a slot.
//!
//! One reading of the file, row by row, is a series ([`fill`]). There is a single one, unless a rule makes several
//! statements of the INSERT, or a join rescans its rows; then the file is rewound.
//!
//! [`fill`] is a plain frame (see `server`). The Rust work for a row is in [`next_row`], which is guarded once for each
//! row.

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::files::Files;
use super::query::Query;
use super::rejects::{Complaint, Reject};
use super::{Load, query, source};
use crate::error::{Error, OrRaise, Result, is_data_exception};
use crate::input::file_figures::{ByFile, FileFigures};
use crate::program::projection::{Made, Projection, compute, filter};
use crate::rows::row::pump::{Begin, Policy, Pump, RowOutcome, Sink};
use crate::rows::row::{RowArrays, Rows};
use crate::rows::soft::Verbosity;
use crate::server::expression::Expression;
use crate::server::memory_context::MemoryContext;
use crate::server::node::Node;
use crate::server::progress::Figures;
use crate::server::slot::{ExprContext, Slot};
use crate::server::unguarded::{self, Opaque, guarded};

/// A load's rows for an INSERT.
#[derive(Debug)]
pub struct Feed {
    load: *mut Load,
    pub token: i64,
    /// The feed that was innermost before this one.
    outer: *mut Feed,
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
    /// The reader of the current series; else null.
    reader: Opaque,
    /// There was a series before.
    started: bool,
    stored: StoredByFile,
}

/// Takes records as rows of an INSERT.
#[derive(Debug)]
pub struct InsertSink {
    load: *mut Load,
    arrays: RowArrays<'static>,
    pub econtext: ExprContext<'static>,
    /// Rejects go to the spool.
    keeps: bool,
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

impl Feed {
    /// Makes the feed of a load whose INSERT is about to begin. Guarded.
    ///
    /// # Safety
    /// A load whose relation and rows are open.
    pub unsafe fn of_load(load: *mut Load) -> Result<*mut Feed> {
        // SAFETY: this function's contract covers the load; guarded calls.
        unsafe {
            let (memory, this) = ((*load).memory, &*load);
            let target = this.target.relation()?;
            let qual = Expression::conditions(this.program.where_clause.conditions);
            let defaults = if qual.is_some() { source::defaults(target, &this.mapping) } else { Vec::new() };
            let slot = Slot::make(target.descriptor());
            let projection = this.program.projection.zip(this.rows.as_ref()).map(|(nodes, rows)| {
                let inputs = source::input_descriptor(target, &this.mapping);
                Projection::over(
                    nodes,
                    inputs,
                    rows.columns(),
                    this.request.options.copy.on_error,
                    MemoryContext::from_raw(memory),
                )
            });
            let mut policy = Policy::of(&this.request.options.copy);
            if let Some(rows) = &this.rows {
                policy.want(rows, |_| true);
            }
            let sink = InsertSink {
                load,
                arrays: projection.as_ref().map_or(slot.arrays(), Projection::arrays),
                econtext: ExprContext::from_raw(pg_sys::MakePerTupleExprContext(pg_sys::CreateExecutorState())),
                keeps: !(*load).spool.is_null(),
                filtered: 0,
                reported: 0,
                by_file: this.measures.files.as_ref().map_or(ByFile::NONE, Files::by_file),
            };
            let stored = vec![0; this.measures.files.as_ref().map_or(0, Files::count)];
            let feed = Feed {
                load,
                token: new_token()?,
                outer: INNERMOST.load(Relaxed),
                defaults,
                qual,
                projection,
                slot,
                pump: Pump { policy, sink },
                given: 0,
                reader: std::ptr::null_mut(),
                started: false,
                stored: StoredByFile { rows: stored, file: 0, before: 0, lags: false },
            };
            let feed = PgMemoryContexts::For(memory).leak_and_drop_on_delete(feed);
            INNERMOST.store(feed, Relaxed);
            Ok(feed)
        }
    }

    /// Rewinds the file to its start.
    fn restart(&mut self) -> Result<()> {
        // SAFETY: the load outlives the feed, and nothing else uses it meanwhile.
        let load = unsafe { &mut *self.load };
        let target = load.target.display_name();
        if load.program.query.is_some() {
            return Err(query::not_twice(&target));
        }
        let copy = &load.request.options.copy;
        if let Some(rows) = &mut load.rows {
            rows.restart(copy.header(), |_| {
                let message =
                    format!("cannot read a program or a FIFO more than once, as rules of \"{target}\" require");
                Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message))
            })?;
        }
        self.pump.policy.restart(copy);
        let sink = &mut self.pump.sink;
        (sink.filtered, self.given, sink.reported) = (0, 0, 0);
        sink.by_file.clear();
        self.stored.rows.fill(0);
        (self.stored.file, self.stored.before, self.stored.lags) = (0, 0, false);
        Ok(())
    }

    /// Notes how many rows the running statement has stored, if the next row is of another file. Raises nothing.
    pub fn note_stored(&mut self, statement: Node<'_, pg_sys::EState>) {
        if self.pump.sink.by_file.is_none() {
            return;
        }
        let file = self.pump.sink.file();
        if file != self.stored.file {
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
}

impl StoredByFile {
    fn note_file(&mut self, processed: u64) {
        if let Some(stored) = self.rows.get_mut(self.file) {
            *stored = processed.saturating_sub(self.before);
        }
        self.before = processed;
    }
}

impl InsertSink {
    /// Number of the current record's file.
    fn file(&self) -> usize {
        // SAFETY: the load outlives the feed.
        let rows = unsafe { (*self.load).rows.as_ref() };
        rows.map_or(0, |rows| rows.stream().file_number())
    }

    /// The figures of the current record's file.
    fn figures(&self) -> Option<&FileFigures> {
        if self.by_file.is_none() { None } else { self.by_file.of(self.file()) }
    }
}

/// Does the statement insert into a foreign table in batches? It counts the rows of a batch after it has sent them.
fn stores_later(statement: Node<'_, pg_sys::EState>) -> bool {
    [statement.opened(), statement.routed()].iter().any(|list| list.iter().any(|relation| relation.ri_BatchSize > 1))
}

impl Feed {
    /// Begins a series for this reader. Guarded.
    pub fn begin_series(&mut self, reader: Opaque) -> Result<()> {
        if !self.reader.is_null() {
            let message = "cannot read the rows of a load in two places at a time";
            return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message));
        }
        if self.started {
            self.restart()?;
        }
        (self.started, self.reader) = (true, reader);
        Ok(())
    }

    /// Ends this reader's series, if it has one: at the end of the file, or before.
    pub fn end_series(&mut self, reader: Opaque) {
        if self.reader == reader {
            self.reader = std::ptr::null_mut();
            // SAFETY: the load outlives the feed.
            unsafe { (*self.load).reading = false };
        }
    }

    /// Goes to the next record and decodes it. The feed's memory context for a row is current. Guarded.
    #[inline]
    fn next_row(&mut self) -> Result<RowOutcome> {
        // SAFETY: the load outlives the feed; the sink uses other parts of it.
        let (rows, reading) = unsafe { (&mut (*self.load).rows, &mut (*self.load).reading) };
        let Some(rows) = rows else { return Ok(RowOutcome::End) };
        *reading = true;
        rows.follow_settings();
        self.pump.next(rows)
    }

    /// Rejects the row that a function has raised an error about. Guarded.
    fn leave_out(&mut self, complaint: Complaint) -> Result<()> {
        let Pump { policy, sink } = &mut self.pump;
        // SAFETY: the load outlives the feed; the sink uses other parts of it.
        let Some(rows) = (unsafe { &mut (*self.load).rows }) else { return Ok(()) };
        sink.complain(rows, policy, complaint)?;
        sink.show_rejected(policy);
        pgrx::check_for_interrupts!();
        Ok(())
    }

    /// Guarded.
    fn count_row_of_query(&mut self) {
        // SAFETY: the load outlives the feed, and nothing else uses it meanwhile.
        let load = unsafe { &mut *self.load };
        load.reading = true;
        let Some(rows) = &mut load.rows else { return };
        rows.count_row_of_query();
        if rows.count().is_multiple_of(ROUND) {
            let (given, excluded) = (self.given, self.pump.sink.filtered);
            load.measures.phases.show(|figures| (figures.rows, figures.excluded) = (given, excluded));
        }
    }
}

/// The feed that began last. A feed leaves the chain when it is dropped, with its memory context.
static INNERMOST: AtomicPtr<Feed> = AtomicPtr::new(std::ptr::null_mut());

impl Drop for Feed {
    fn drop(&mut self) {
        let this = &raw mut *self;
        if INNERMOST.load(Relaxed) == this {
            INNERMOST.store(self.outer, Relaxed);
            return;
        }
        let mut feed = INNERMOST.load(Relaxed);
        // SAFETY: feeds in the chain have not been dropped.
        while let Some(inner) = unsafe { feed.as_mut() } {
            if inner.outer == this {
                inner.outer = self.outer;
                return;
            }
            feed = inner.outer;
        }
    }
}

/// The running feed with this token, or null. Raises nothing.
pub fn running(token: i64) -> *mut Feed {
    let mut feed = INNERMOST.load(Relaxed);
    // SAFETY: feeds in the chain have not been dropped.
    while let Some(found) = unsafe { feed.as_ref() } {
        if found.token == token {
            return feed;
        }
        feed = found.outer;
    }
    feed
}

/// Does this process feed any load?
pub fn is_any_running() -> bool {
    !INNERMOST.load(Relaxed).is_null()
}

/// Does a load that is being fed belong to an extension in this schema?
pub fn is_extension_schema(schema: pg_sys::Oid) -> bool {
    // SAFETY: feeds in the chain have not been dropped, and a feed does not outlive its load.
    unsafe { INNERMOST.load(Relaxed).as_ref().is_some_and(|feed| (*feed.load).request.schema == schema) }
}

fn new_token() -> Result<i64> {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is as long as said.
    if !unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) } {
        return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, "could not generate random values"));
    }
    Ok(i64::from_ne_bytes(bytes))
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
            // SAFETY: the load outlives the feed.
            unsafe { &mut (*self.load).measures.phases }.show(|f| {
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
        if !self.keeps && policy.tolerance.verbosity == Verbosity::Verbose {
            rows.note_record(error);
        }
        self.complain(rows, policy, Complaint::of_error(error))
    }

    fn note_bad_value(&mut self, rows: &mut Rows, policy: &mut Policy) -> Result<()> {
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
        if self.keeps && is_data_exception(complaint.code) {
            rows.end_early(self.arrays, self.econtext)?;
        }
        self.count_reject(rows);
        // SAFETY: the spool of a load that is being fed.
        if let Some(spool) = unsafe { (*self.load).spool.as_mut() } {
            spool.push(&Reject::new(rows, complaint).write());
        }
        policy.tolerance.count()?;
        rows.clear_queue();
        Ok(())
    }

    fn show_rejected(&mut self, policy: &Policy) {
        let rejected = policy.tolerance.bad_rows;
        // SAFETY: the load outlives the feed.
        unsafe { &mut (*self.load).measures.phases }.show(|figures| figures.rejected = rejected);
    }
}

/// Makes the next row in the slot; false at the end. Its values live until the next row.
///
/// # Safety
/// A plain frame and a valid feed. The feed's memory context for a row is current.
pub unsafe fn fill(feed: *mut Feed) -> bool {
    // SAFETY: this function's contract covers the feed, which nothing else uses meanwhile.
    unsafe {
        let (slot, econtext) = ((*feed).slot, (*feed).pump.sink.econtext.as_ptr());
        let (policy, arrays) = (&raw mut (*feed).pump.policy, (*feed).pump.sink.arrays);
        let Some(rows) = (*(*feed).load).rows.as_mut() else { return false };
        let rows = &raw mut *rows;
        let query = query::of(&mut (*(*feed).load).program);
        loop {
            unguarded::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
            if !query.is_null() {
                if !row_of_query(feed, query, arrays) {
                    return false;
                }
                if passes(feed) {
                    (*policy).count_row();
                    (*feed).given += 1;
                    return true;
                }
                (*feed).pump.sink.filtered += 1;
                continue;
            }
            let outcome = guarded(|| (*feed).next_row().or_raise());
            if outcome == RowOutcome::End {
                return false;
            }
            if (*rows).has_queue() {
                Rows::convert(rows, arrays, econtext);
            }
            if outcome == RowOutcome::Short {
                guarded(|| (*rows).check_missing().or_raise());
            }
            let mut is_there = true;
            if let Some(projection) = (*feed).projection.as_ref() {
                let row = slot.arrays();
                if !projection.filters {
                    compute(&raw const *projection, econtext, row);
                } else {
                    match filter(&raw const *projection, econtext, row, false) {
                        // This projection makes no tuples.
                        Made::Row | Made::Tuple(_) => (),
                        Made::Nothing => is_there = false,
                        Made::Bad(error) => {
                            guarded(|| (*feed).leave_out(Complaint::of_data(error)).or_raise());
                            continue;
                        }
                    }
                }
            }
            if !is_there || !passes(feed) {
                (*feed).pump.sink.filtered += 1;
                if let Some(figures) = (*feed).pump.sink.figures() {
                    figures.filtered.fetch_add(1, Relaxed);
                }
                unguarded::check_for_interrupts();
                continue;
            }
            (*policy).count_row();
            (*feed).given += 1;
            if let Some(figures) = (*feed).pump.sink.figures() {
                figures.loaded.fetch_add(1, Relaxed);
            }
            return true;
        }
    }
}

/// Rows of a query between two progress reports.
const ROUND: u64 = 1000;

/// Fetches the next row of the query. Errors inside the query have no row as context.
///
/// # Safety
/// As [`fill`], with the load's query, and the arrays of the slot.
unsafe fn row_of_query(feed: *mut Feed, query: *mut Query, arrays: RowArrays) -> bool {
    // SAFETY: this function's contract covers all of them.
    unsafe {
        let load = (*feed).load;
        (*load).reading = false;
        if (*feed).pump.policy.limit_left == Some(0) {
            return false;
        }
        unguarded::check_for_interrupts();
        if !query::next_in_snapshot(query, arrays) {
            return false;
        }
        guarded(|| (*feed).count_row_of_query());
        true
    }
}

/// Completes the row with the defaults that `where` must see, and evaluates `where`.
///
/// # Safety
/// As [`fill`].
unsafe fn passes(feed: *mut Feed) -> bool {
    // SAFETY: this function's contract covers the feed.
    unsafe {
        let Some(qual) = (*feed).qual else { return true };
        let (slot, econtext) = ((*feed).slot, (*feed).pump.sink.econtext.as_ptr());
        for &(attribute, expression) in &(*feed).defaults {
            slot.arrays().set(attribute, expression.value(econtext));
        }
        let slot = slot.as_ptr();
        unguarded::store_virtual(slot);
        (*slot).tts_tableOid = (*(*feed).load).target.relid;
        (*econtext).ecxt_scantuple = slot;
        unguarded::exec_qual(qual.as_ptr(), econtext)
    }
}
