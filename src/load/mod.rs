//! Loads: files into tables.
//!
//! `bulk_load` is a plain frame (see `pg`): input functions, defaults, triggers and constraints run under it, and it
//! pushes COPY's error context, which speaks only while rows are being read. It goes through a load step by step:
//!
//! ```text
//!   begin_call  arguments
//!   begin       rights, the lock; the relation is looked at and closed again
//!   TRUNCATE    the server's own, if asked for
//!   analyze     the where clause, the filter, a query whose rows are loaded
//!   prepare     the columns, the right to insert into them; which writer; the load's number; the file is opened
//!   read_header only if the header says which columns there are
//!   a writer    direct, or `buffered`
//!   finish      the file and the relation are closed
//!   ANALYZE     the server's own, if asked for
//!   record      the row of the history, the line in the log
//!   deliver     the row of the result
//! ```
//!
//! The first and the last one are in `call`, and [`perform`] takes those between [`begin()`] and the result. A job of the queue begins
//! and performs its load in the same way, with a number that it has already.
//!
//! What is known of the load is in [`Load`], which lives in a memory context of its own: after an error that context
//! goes, and the load with it.
//!
//! A writer is given a load that is prepared: the relation is open and locked, the caller may insert, the file is open
//! at its first record, and `mapping` says whose its fields are. It leaves its figures in `counts`.

mod assignment;
mod begin;
mod buffered;
mod call;
mod check;
pub mod copy;
mod create;
pub mod definer;
mod direct;
pub mod duplicate;
mod engine;
mod expression;
mod feed;
mod files;
pub mod filter;
mod finish;
pub mod given;
mod hint;
pub mod history;
pub mod insert_select;
mod memory;
mod obstacle;
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
mod summary;
pub mod target;
mod volatile;
mod where_clause;
pub mod wrapper;

use std::ffi::CString;
use std::time::{Duration, Instant};

use pgrx::{pg_guard, pg_sys};

pub use self::begin::begin;
pub use self::files::Fate;
use self::files::Files;
use self::finish::{finish, record};
use self::once::Met;
use self::options::LoadOptions;
use self::phase::Phases;
pub use self::prepare::next_id;
use self::prepare::{prepare, read_header, reopen};
use self::query::Query;
use self::rejects::Spool;
use self::report::Counts;
use self::source::{Mapping, Source};
use self::target::Target;
use self::where_clause::WhereClause;
use crate::error::OrRaise;
use crate::pg::attempt::attempt;
use crate::pg::context::copy_context;
use crate::pg::row::Rows;
use crate::pg::soft;
use crate::pg::statement::{self, About, Checked};
use crate::pg::unguarded::{self, Opaque};
use crate::pg::usage::Usage;

/// A load.
#[derive(Debug)]
pub struct Load {
    pub options: LoadOptions,
    /// The arguments, for workers to read again: the path, or what it is called that is in its place; and a copy of the jsonb,
    /// which an INSERT has none of.
    pub path: CString,
    pub json: Option<pg_sys::Datum>,
    pub target: Target,
    pub mapping: Mapping,
    /// None before the file is opened and after it is closed.
    pub rows: Option<Rows>,
    pub where_clause: WhereClause,
    /// Whose rows they are, if there is no file.
    pub query: Option<Query>,
    /// What an INSERT makes of the file's rows, if they are not stored as they are.
    pub projection: Option<direct::Nodes>,
    /// The plan that they go through, if an INSERT joins them with other tables.
    pub joined: Option<direct::Joined>,
    /// The files that an INSERT reads after this one, and what they are called.
    pub more: Vec<Source>,
    also: Vec<String>,
    /// The INSERT that it is.
    pub statement: Option<direct::Statement>,
    pub id: i64,
    /// Of a job.
    pub attempt: Option<i32>,
    /// Nothing is written.
    pub is_dry: bool,
    /// The extension's schema.
    pub schema: pg_sys::Oid,
    /// What lives as long as the load.
    pub memory: pg_sys::MemoryContext,
    pub writer: Writer,
    /// The index that says which rows are duplicates, where these are no errors.
    pub arbiter: Option<pg_sys::Oid>,
    pub counts: Counts,
    /// The files, if they are several and somebody will want to know what became of each.
    pub files: Option<Files>,
    /// With option once, the files that are loaded.
    pub met: Vec<Met>,
    /// With on_error `table`, where the rejects go; else null.
    pub spool: *mut Spool,
    /// Rows are being read, and errors are about the last one.
    pub reading: bool,
    /// `where`, as a statement to parse.
    where_statement: Option<CString>,
    truncate_statement: Option<CString>,
    analyze_statement: Option<CString>,
    began: Instant,
    /// When it is done: how long it took.
    pub took: Duration,
    started: pg_sys::TimestampTz,
    /// Who called. A trigger may be somebody else by now.
    owner: pg_sys::Oid,
    /// What this process had used when it began.
    usage: Usage,
    pub phases: Phases,
}

/// What a load is begun for.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// A call of bulk_load.
    Call,
    Job(JobNumber),
    /// To see what is wrong with the file; nothing is written.
    Check,
}

/// Which job a load is of.
#[derive(Debug, Clone, Copy)]
pub struct JobNumber {
    /// It is the load's number, too.
    pub id: i64,
    pub attempt: i32,
}

/// Who writes the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    Buffered,
    Direct,
    /// Nobody: nothing is to be loaded.
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

/// From the first step after [`begin()`] to the last before the result. The load's memory context becomes the current one.
///
/// # Safety
/// A plain frame; a load that has begun, in the same transaction, and an active snapshot.
pub unsafe fn perform(load: *mut Load) {
    // SAFETY: this function's contract covers the load, which is used by one step at a time; its strings live as long as it.
    unsafe {
        pg_sys::CurrentMemoryContext = (*load).memory;
        if let Some(truncate) = &(*load).truncate_statement {
            statement::run(truncate.as_ptr(), 0, About::Anything, Checked::NONE);
        }
        reopen(load);
        if (*load).truncate_statement.is_some() {
            once::forget_emptied(load);
        }
        if let Some(text) = &(*load).where_statement {
            (*load).where_clause = where_clause::analyze((*load).target.relation, text.as_ptr());
        }
        expression::analyze(load);
        filter::analyze(load);
        query::analyze(load);
        prepare(load);
        if (*load).writer == Writer::None {
            finish(load);
            record(load);
            return;
        }

        let mut context = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(load_context),
            arg: load.cast(),
        };
        pg_sys::error_context_stack = &raw mut context;
        let error = attempt(read_rows, load.cast());
        if !error.is_null() {
            // The locks of its shared memory are nobody's business while the error is being completed.
            unguarded::LWLockReleaseAll();
            rejects::add_first((*load).spool, error);
            hint::add(load, error);
            unguarded::ReThrowError(error);
        }
        query::leave(load);
        pg_sys::error_context_stack = context.previous;

        finish(load);
        if let Some(analyze) = &(*load).analyze_statement {
            statement::run(analyze.as_ptr(), 0, About::Anything, Checked::NONE);
        }
        record(load);
    }
}

/// The header, if it says which columns there are, and the rows.
///
/// # Safety
/// As [`perform`], with a load that is prepared.
unsafe extern "C-unwind" fn read_rows(load: Opaque) {
    // SAFETY: this function's contract covers the load.
    unsafe {
        if (*load.cast::<Load>()).options.match_by_name {
            read_header(load.cast());
        }
        query::start(load.cast());
        write(load);
    }
}

/// The rows.
///
/// # Safety
/// As [`perform`], with a load that is prepared.
unsafe extern "C-unwind" fn write(load: Opaque) {
    // SAFETY: this function's contract covers the load.
    unsafe {
        let load = load.cast::<Load>();
        match (*load).writer {
            Writer::Buffered => buffered::load(load),
            Writer::Direct => direct::load(load),
            Writer::None => (),
        }
        judge(load);
    }
}

/// Were more rows left out than may be, of all there were?
///
/// # Safety
/// A valid load that is written.
#[pg_guard]
unsafe extern "C-unwind" fn judge(load: *const Load) {
    // SAFETY: this function's contract covers the argument.
    let Load { options, counts, .. } = unsafe { &*load };
    let records = counts.loaded + counts.rejected + counts.duplicate + counts.filtered;
    if let Some(percent) = options.copy.reject_percent {
        soft::check_share(options.copy.on_error, percent, counts.rejected, records).or_raise();
    }
    options.duplicates.judge(counts.duplicate, records).or_raise();
}

/// COPY's context, while there are rows for it to speak of.
///
/// # Safety
/// Called by the server while it makes a message, with the load it was pushed with.
unsafe extern "C-unwind" fn load_context(load: Opaque) {
    // SAFETY: the load outlives the push.
    unsafe {
        let load = load.cast::<Load>();
        if (*load).reading
            && let Some(rows) = &(*load).rows
        {
            copy_context((&raw const *rows).cast_mut().cast());
        }
    }
}

/// A context for what lives as long as a load. Guarded.
fn memory_context() -> pg_sys::MemoryContext {
    // SAFETY: a guarded call.
    unsafe {
        pg_sys::AllocSetContextCreateExtended(
            pg_sys::CurrentMemoryContext,
            c"bulk_load".as_ptr(),
            pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
        )
    }
}

impl Load {
    /// A load of which nothing is known but what it is told here. Guarded.
    fn new(options: LoadOptions, path: CString, target: Target, memory: pg_sys::MemoryContext) -> Load {
        // SAFETY: calls that do not raise.
        let (started, owner) = unsafe { (pg_sys::GetCurrentTimestamp(), pg_sys::GetUserId()) };
        Load {
            options,
            path,
            json: None,
            target,
            mapping: Mapping::default(),
            rows: None,
            where_clause: WhereClause::NONE,
            query: None,
            projection: None,
            joined: None,
            more: Vec::new(),
            also: Vec::new(),
            statement: None,
            id: 0,
            attempt: None,
            is_dry: false,
            schema: pg_sys::InvalidOid,
            memory,
            writer: Writer::Buffered,
            arbiter: None,
            counts: Counts::default(),
            files: None,
            met: Vec::new(),
            spool: std::ptr::null_mut(),
            reading: false,
            where_statement: None,
            truncate_statement: None,
            analyze_statement: None,
            began: Instant::now(),
            took: Duration::ZERO,
            started,
            owner,
            usage: Usage::now(),
            phases: Phases::begin(),
        }
    }

    /// The row of the result. Guarded; allocates in the current memory context.
    fn result(&self) -> [Option<pg_sys::Datum>; report::COLUMNS] {
        report::row(self.id, &self.counts, self.took, self.writer.name())
    }
}

/// What is to be told of the files of a load that has failed, but for which one the error is about. The load must still be there. Allocates nothing.
///
/// # Safety
/// A load or null.
pub unsafe fn fate(load: *const Load) -> Option<Fate> {
    // SAFETY: this function's contract covers the argument.
    unsafe { load.as_ref() }?.files.as_ref().map(Files::fate)
}
