//! Loads: files into tables.
//!
//! `bulk_load` is a plain frame (see `server`): it runs input functions, defaults, triggers and constraints. It pushes
//! COPY's error context, which adds a line only while rows are read. A load has these steps:
//!
//! ```text
//!   begin_call  arguments
//!   begin       rights, the lock; the relation is inspected and closed again
//!   TRUNCATE    the server's own, if asked for
//!   analyze     the where clause, the filter, a query whose rows are loaded
//!   prepare     the columns, the right to insert into them; which writer; the load's number; the file is opened
//!   read_header only if the header names the columns
//!   a writer    direct, or `buffered`
//!   finish      the file and the relation are closed
//!   ANALYZE     the server's own, if asked for
//!   record      the row of the history, the line in the log
//!   deliver     the row of the result
//! ```
//!
//! `call` has the first and the last one; [`perform`] runs those between [`begin()`] and the result. A job of the queue
//! begins and performs its load in the same way, with the job's number as the load's number.
//!
//! [`Load`] is the state of a load. It lives in a memory context of its own: after an error the server deletes that
//! context, and the load with it.
//!
//! A writer receives a prepared load: the relation is open and locked, the caller may insert, the file is open at its
//! first record, and `mapping` says which column each field is for. The writer sets `counts`.

mod buffered;
mod call;
mod create;
pub mod definer;
pub mod direct;
pub mod duplicate;
mod engine;
mod expression;
mod feed;
mod files;
mod hint;
pub mod history;
pub mod obstacle;
pub mod once;
mod option_name;
pub mod options;
pub mod phase;
pub mod planned_insert;
mod prepare;
pub mod query;
mod read;
pub mod rejects;
pub mod report;
pub mod scan;
pub mod settings;
mod sniff;
pub mod source;
pub mod target;
pub mod wrapper;

use std::ffi::CString;
use std::time::{Duration, Instant};

use pgrx::pg_sys;

pub use self::call::begin;
pub use self::files::Fate;
use self::files::Files;
use self::once::Met;
use self::options::LoadOptions;
use self::phase::{Phase, Phases};
pub use self::prepare::next_id;
use self::prepare::{prepare, read_header};
use self::query::Query;
use self::rejects::Spool;
use self::report::Counts;
use self::source::FurtherFile;
use self::target::Target;
use crate::error::OrRaise;
use crate::guc;
use crate::program::Nodes;
use crate::program::filter;
use crate::program::mapping::Mapping;
use crate::program::where_clause::{self, WhereClause};
use crate::rows::context::copy_context;
use crate::rows::row::Rows;
use crate::rows::soft;
use crate::server::attempt::attempt;
use crate::server::jsonb::Jsonb;
use crate::server::lookup::now;
use crate::server::memory_context::MemoryContext;
use crate::server::relation::Relation;
use crate::server::role::current_user;
use crate::server::sql_value::SqlValue;
use crate::server::statement::{self, About, Checked, Surroundings};
use crate::server::unguarded::{self, guarded};
use crate::server::usage::Usage;

/// A load.
#[derive(Debug)]
pub struct Load {
    pub request: Request,
    pub id: i64,
    pub target: Target,
    pub mapping: Mapping,
    /// None before the file is opened and after it is closed.
    pub rows: Option<Rows>,
    pub program: Program,
    /// The files that an INSERT reads after this one.
    pub more: Vec<FurtherFile>,
    /// The INSERT that the load replaces.
    pub statement: Option<direct::Statement>,
    /// Memory context that lives as long as the load.
    pub memory: MemoryContext,
    pub writer: Writer,
    /// The index that decides which rows are duplicates, unless duplicates are errors.
    pub arbiter: Option<pg_sys::Oid>,
    /// With option `once`, the files to record as loaded.
    pub met: Vec<Met>,
    /// With `on_error = table`, the spool of the rejects.
    pub spool: Option<&'static Spool>,
    pub measures: Measures,
}

/// What a load was asked for.
#[derive(Debug)]
pub struct Request {
    pub options: LoadOptions,
    /// The arguments, which workers read again: the path, or a name for the input in its place; and a copy of the
    /// jsonb. An INSERT has no jsonb.
    pub path: CString,
    pub json: Option<Jsonb>,
    /// The names of further files of an INSERT.
    pub also: Vec<String>,
    pub purpose: Purpose,
    /// The extension's schema.
    pub schema: pg_sys::Oid,
    /// The calling role. A trigger may have changed the current user later.
    pub owner: pg_sys::Oid,
    /// `where`, as a statement to parse.
    pub where_statement: Option<CString>,
    pub truncate_statement: Option<CString>,
    pub analyze_statement: Option<CString>,
}

/// The expressions and plans that make the rows of the file's records.
#[derive(Debug)]
pub struct Program {
    pub where_clause: WhereClause,
    /// The query that makes the rows, if there is no file.
    pub query: Option<&'static Query>,
    /// The expressions that an INSERT computes from the file's rows, unless it stores them unchanged.
    pub projection: Option<Nodes>,
    /// The plan that the rows go through, if an INSERT joins them with other tables.
    pub joined: Option<direct::Joined>,
}

/// What a load has counted and measured.
#[derive(Debug)]
pub struct Measures {
    pub counts: Counts,
    /// The figures of each file, if there are several files and the figures are recorded.
    pub files: Option<Files>,
    pub phases: Phases,
    began: Instant,
    /// The load's duration, set when it is done.
    pub took: Duration,
    started: pg_sys::TimestampTz,
    /// CPU usage of this process at the load's begin.
    usage: Usage,
}

/// The purpose of a load.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// A call of bulk_load, or a statement that is replaced.
    Call,
    Job(JobNumber),
    /// A dry run that finds errors in the file; writes nothing.
    Check,
}

/// The number of a job.
#[derive(Debug, Clone, Copy)]
pub struct JobNumber {
    /// Also the load's number.
    pub id: i64,
    pub attempt: i32,
}

/// The writer of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    Buffered,
    Direct,
    /// There is nothing to load.
    None,
}

impl Writer {
    fn name(self) -> &'static str {
        match self {
            Writer::Buffered => "buffered",
            Writer::Direct => "direct",
            Writer::None => "none",
        }
    }
}

/// Runs the steps of a load after [`begin()`] and before the result. Leaves the load's memory context
/// current.
///
/// # Safety
/// A plain frame; a load that has begun in the same transaction, and an active snapshot.
pub unsafe fn perform(load: *mut Load) {
    // SAFETY: the frame is plain. One step at a time uses the load; its strings live as long as it.
    unsafe {
        pg_sys::CurrentMemoryContext = (*load).memory.as_ptr();
        if let Some(truncate) = &(*load).request.truncate_statement {
            statement::run(truncate.as_ptr(), 0, About::Anything, Checked::NONE, Surroundings::NONE);
        }
        guarded(|| {
            (*load).target.reopen();
            if (*load).request.truncate_statement.is_some() {
                once::forget_emptied(&(*load).target, (*load).request.schema);
            }
        });
        analyze(load);
        guarded(|| prepare(&mut *load));
        let error = attempt(|| read_and_write(load));
        if !error.is_null() {
            // The error is completed without the LWLocks of the load's shared memory.
            unguarded::LWLockReleaseAll();
            hint::complete(&*load, &mut *error);
            unguarded::ReThrowError(error);
        }
        guarded(|| finish(&mut *load));
        if let Some(analyze) = &(*load).request.analyze_statement {
            statement::run(analyze.as_ptr(), 0, About::Anything, Checked::NONE, Surroundings::NONE);
        }
        guarded(|| record(&mut *load));
    }
}

/// Reads the header, if it names the columns, and writes the rows.
///
/// # Safety
/// As [`perform`], with a load that is prepared.
unsafe fn read_and_write(load: *mut Load) {
    // SAFETY: the frame is plain. One step at a time uses the load, whose rows outlive the push.
    unsafe {
        if (*load).request.options.copy.by_name()
            && let Some(rows) = &mut (*load).rows
        {
            let rows = &raw mut *rows;
            unguarded::in_context(copy_context, rows.cast(), || guarded(|| read_header(&mut *load)));
        }
        let query = (*load).program.query;
        query.inspect(|query| query.start());
        write(load);
        query.inspect(|query| query.leave());
    }
}

/// Writes the rows of a load that replaces a statement, and closes the file and the table.
///
/// # Safety
/// A plain frame; a load whose relation and rows are open. Its memory context is current.
pub unsafe fn run_statement(load: *mut Load) {
    // SAFETY: the frame is plain. One step at a time uses the load.
    unsafe {
        write(load);
        guarded(|| {
            finish(&mut *load);
            (*load).measures.took = (*load).measures.began.elapsed();
            if guc::log_timing() {
                report::log(&mut *load);
            }
        });
    }
}

/// Makes the load's program, and its projection, if its options name a filter, whose OID it finds.
///
/// # Safety
/// A plain frame; a load whose relation is open. Its memory context is current.
unsafe fn analyze(load: *mut Load) {
    // SAFETY: the frame is plain, and owns nothing; parse trees live as long as the load's memory.
    unsafe {
        let relation = Relation::from_raw(guarded(|| (*load).target.reopen().as_ptr()));
        if let Some(text) = &(*load).request.where_statement {
            (*load).program.where_clause = where_clause::analyze(relation, text.as_ptr());
        }
        let computed = expression::analyze(relation, &(*load).request.options);
        guarded(|| find_filter(&mut (*load).request.options));
        let filtered = (*load).request.options.function.map(|function| filter::analyze(relation, function));
        (*load).program.projection = filtered.or(computed);
        query::analyze(relation, &mut (*load).request.options, &mut (*load).program);
    }
}

/// Looks the function up, if the options name one, and locks it. Guarded.
fn find_filter(options: &mut LoadOptions) {
    let Some(name) = &options.filter else { return };
    let function = filter::resolve(name).or_raise();
    // SAFETY: a guarded call. The lock keeps the function from being dropped, since workers look it up too.
    unsafe {
        pg_sys::LockDatabaseObject(pg_sys::ProcedureRelationId, function, 0, pg_sys::AccessShareLock.cast_signed())
    };
    filter::check(function).or_raise();
    options.function = Some(function);
}

/// Writes the rows with the load's writer.
///
/// # Safety
/// As [`perform`], with a load that is prepared.
unsafe fn write(load: *mut Load) {
    // SAFETY: the load is prepared; the frame is plain.
    unsafe {
        match (*load).writer {
            Writer::Buffered => buffered::load(load),
            Writer::Direct => direct::load(load),
            Writer::None => (),
        }
        guarded(|| check_limits(&(*load).request.options, &(*load).measures.counts));
    }
}

/// Closes the table; the lock stays. Guarded.
fn finish(load: &mut Load) {
    load.target.close();
    if let Some(spool) = load.spool.filter(|_| !load.request.is_dry()) {
        let kept = rejects::table::write(spool).or_raise();
        let rejected = load.measures.counts.rejected + load.measures.counts.duplicate;
        if kept < rejected {
            load.measures
                .counts
                .notes
                .push(format!("{kept} of {rejected} rejected rows are kept (pg_bulk.reject_cap)."));
        }
    }
    // ANALYZE reports its own progress, and needs the slot to be free.
    load.measures.phases.progress.end();
    if load.request.analyze_statement.is_some() {
        load.measures.phases.enter(Phase::Analyze);
    }
}

/// Writes the history, the log and the list of loaded files.
///
/// Guarded; the load's memory context is current.
fn record(load: &mut Load) {
    if load.request.is_dry() {
        return;
    }
    load.measures.took = load.measures.began.elapsed();
    once::record(load).or_raise();
    history::record(load);
    report::log(load);
}

/// Raises if more rows were left out than the limits permit. Guarded.
fn check_limits(options: &LoadOptions, counts: &Counts) {
    let records = counts.loaded + counts.rejected + counts.duplicate + counts.filtered;
    soft::check_share(options.copy.on_error, options.copy.reject_limit, counts.rejected, records).or_raise();
    options.duplicates.check_limit(counts.duplicate, records).or_raise();
}

impl Purpose {
    fn job(self) -> Option<JobNumber> {
        match self {
            Purpose::Job(number) => Some(number),
            Purpose::Call | Purpose::Check => None,
        }
    }
}

impl Request {
    /// The request of the current user. Guarded.
    pub fn new(options: LoadOptions, path: CString) -> Request {
        Request {
            options,
            path,
            json: None,
            also: Vec::new(),
            purpose: Purpose::Call,
            schema: pg_sys::InvalidOid,
            owner: current_user(),
            where_statement: None,
            truncate_statement: None,
            analyze_statement: None,
        }
    }

    /// A dry run writes nothing.
    pub fn is_dry(&self) -> bool {
        matches!(self.purpose, Purpose::Check)
    }

    /// The attempt of a job.
    pub fn attempt(&self) -> Option<i32> {
        self.purpose.job().map(|job| job.attempt)
    }
}

impl Measures {
    fn begin() -> Measures {
        Measures {
            counts: Counts::default(),
            files: None,
            phases: Phases::begin(),
            began: Instant::now(),
            took: Duration::ZERO,
            started: now(),
            usage: Usage::now(),
        }
    }
}

impl Load {
    /// Makes a load before anything else than its request is known. Guarded.
    pub fn new(request: Request, target: Target, memory: MemoryContext) -> Load {
        Load {
            id: request.purpose.job().map_or(0, |job| job.id),
            request,
            target,
            mapping: Mapping::default(),
            rows: None,
            program: Program { where_clause: WhereClause::NONE, query: None, projection: None, joined: None },
            more: Vec::new(),
            statement: None,
            memory,
            writer: Writer::Buffered,
            arbiter: None,
            met: Vec::new(),
            spool: None,
            measures: Measures::begin(),
        }
    }

    /// The fate of the files of a failed load, without the file that the error is about. Allocates nothing.
    pub fn fate(&self) -> Option<Fate> {
        self.measures.files.as_ref().map(Files::fate)
    }

    /// The row of the result. Guarded.
    fn result(&self) -> [SqlValue<'static>; report::COLUMNS] {
        report::row(self.id, &self.measures.counts, self.measures.took, self.writer.name())
    }
}
