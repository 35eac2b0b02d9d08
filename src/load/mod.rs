//! Loads: files into tables.
//!
//! [`bulk_load`] is a plain frame (see `pg`): input functions, defaults, triggers and constraints run under it, and it
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
//! A job of the queue begins and performs its load in the same way, with a number that it has already.
//!
//! What is known of the load is in [`Load`], which lives in a memory context of its own: after an error that context
//! goes, and the load with it.
//!
//! A writer is given a load that is prepared: the relation is open and locked, the caller may insert, the file is open
//! at its first record, and `mapping` says whose its fields are. It leaves its figures in `counts`.

mod assignment;
mod buffered;
mod check;
pub mod copy;
mod create;
mod direct;
pub mod duplicate;
mod expression;
mod feed;
mod files;
pub mod filter;
pub mod given;
pub mod history;
pub mod insert_select;
mod memory;
mod obstacle;
pub mod once;
pub mod options;
pub mod phase;
pub mod query;
mod read;
pub mod rejects;
pub mod report;
pub mod scan;
mod sniff;
pub mod source;
mod summary;
pub mod target;
mod volatile;
mod where_clause;

use std::ffi::{CStr, CString};
use std::rc::Rc;
use std::time::{Duration, Instant};

use pgrx::memcxt::PgMemoryContexts;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use self::duplicate::Keep;
pub use self::files::Fate;
use self::files::Files;
use self::given::Given;
use self::once::Met;
use self::options::{IndexesOption, LoadOptions, LockOption, WriterOption};
use self::phase::{Phase, Phases};
use self::query::Query;
use self::rejects::Spool;
use self::rejects::spool::About;
use self::report::Counts;
use self::source::{Mapping, Source};
use self::target::Target;
use self::where_clause::WhereClause;
use crate::error::{Error, OrRaise, Result};
use crate::pg::attempt::attempt;
use crate::pg::context::copy_context;
use crate::pg::progress::{Figures, Kind, Progress};
use crate::pg::row::Rows;
use crate::pg::soft::{self, OnError};
use crate::pg::source::{Bytes, Location};
use crate::pg::statement::{self, Checked};
use crate::pg::unguarded::{self, Opaque, nextval_internal};
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

static VERSION_1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };

/// The record that the server asks for before it calls a function of version 1.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_finfo_bulk_load() -> *const pg_sys::Pg_finfo_record {
    &raw const VERSION_1
}

/// `bulk_load(path, target, options)`.
///
/// # Safety
/// Called by the executor, with three arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_load(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // A plain frame: nothing here has a destructor.
    // SAFETY: the load that `begin_call` makes is used by one step at a time; its strings live as long as it.
    unsafe {
        let caller = pg_sys::CurrentMemoryContext;
        let load = begin_call(fcinfo, Purpose::Call, false);
        perform(load);
        pg_sys::CurrentMemoryContext = caller;
        deliver(load, fcinfo);
        pg_sys::Datum::from(0usize)
    }
}

/// The record that the server asks for before it calls a function of version 1.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_finfo_bulk_load_bytea() -> *const pg_sys::Pg_finfo_record {
    &raw const VERSION_1
}

/// `bulk_load(data, target, options)`.
///
/// # Safety
/// Called by the executor, with three arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_load_bytea(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // A plain frame: nothing here has a destructor.
    // SAFETY: as in `bulk_load`. The value lives as long as the call.
    unsafe {
        let caller = pg_sys::CurrentMemoryContext;
        let load = begin_call(fcinfo, Purpose::Call, true);
        perform(load);
        pg_sys::CurrentMemoryContext = caller;
        deliver(load, fcinfo);
        pg_sys::Datum::from(0usize)
    }
}

/// From the first step after [`begin`] to the last before the result. The load's memory context becomes the current one.
///
/// # Safety
/// A plain frame; a load that has begun, in the same transaction, and an active snapshot.
pub unsafe fn perform(load: *mut Load) {
    // SAFETY: the caller vouches for the load, which is used by one step at a time; its strings live as long as it.
    unsafe {
        pg_sys::CurrentMemoryContext = (*load).memory;
        if let Some(truncate) = &(*load).truncate_statement {
            statement::run(truncate.as_ptr(), 0, Checked::NONE);
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
        if (*load).options.match_by_name {
            read_header(load);
        }
        query::start(load);
        if (*load).spool.is_null() {
            write(load.cast());
        } else {
            let error = attempt(write, load.cast());
            if !error.is_null() {
                // The locks of its shared memory are nobody's business while the error is being completed.
                unguarded::LWLockReleaseAll();
                rejects::add_first((*load).spool, error);
                unguarded::ReThrowError(error);
            }
        }
        query::leave(load);
        pg_sys::error_context_stack = context.previous;

        finish(load);
        if let Some(analyze) = &(*load).analyze_statement {
            statement::run(analyze.as_ptr(), 0, Checked::NONE);
        }
        record(load);
    }
}

/// The rows.
///
/// # Safety
/// As [`perform`], with a load that is prepared.
unsafe extern "C-unwind" fn write(load: Opaque) {
    // SAFETY: the caller vouches for the load.
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
    // SAFETY: the caller vouches for it.
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

/// The arguments of a call. The first one is a path, or bytes.
///
/// # Safety
/// Arguments as declared.
unsafe fn begin_call(fcinfo: pg_sys::FunctionCallInfo, purpose: Purpose, is_data: bool) -> *mut Load {
    // SAFETY: passed on.
    unsafe { begin_guarded(fcinfo, &raw const purpose, is_data) }
}

/// # Safety
/// As [`begin_call`].
#[pg_guard]
unsafe extern "C-unwind" fn begin_guarded(
    fcinfo: pg_sys::FunctionCallInfo,
    purpose: *const Purpose,
    is_data: bool,
) -> *mut Load {
    // SAFETY: the caller vouches for the arguments; guarded calls.
    unsafe {
        pg_sys::InitMaterializedSRF(fcinfo, 0);
        let argument = |index: usize, name: &str| {
            let argument = *(*fcinfo).args.as_ptr().add(index);
            if argument.isnull {
                let message = format!("{name} must not be null");
                return Err(Error::new(Code::ERRCODE_NULL_VALUE_NOT_ALLOWED, message));
            }
            Ok(argument.value)
        };
        let first = (*(*fcinfo).args.as_ptr()).isnull;
        let first = if first && !is_data { None } else { Some(argument(0, "data").or_raise()) };
        let relid = argument(1, "target").or_raise();
        let json = argument(2, "options").or_raise();
        let string = |text: pg_sys::Datum| {
            CStr::from_ptr(pg_sys::text_to_cstring(pg_sys::pg_detoast_datum_packed(text.cast_mut_ptr()).cast()))
        };
        let given = match first {
            None => Given::Nothing,
            Some(data) if is_data => Given::Data(Bytes::of_datum(data)),
            Some(path) => Given::Path(string(path)),
        };
        let schema = pg_sys::get_func_namespace((*(*fcinfo).flinfo).fn_oid);
        begin(given, pg_sys::Oid::from_u32(relid.value() as u32), json, schema, *purpose)
    }
}

/// Rights, the lock. `schema` is the extension's. Guarded.
///
/// # Safety
/// `json` is a datum of type jsonb.
pub unsafe fn begin(
    given: Given,
    relid: pg_sys::Oid,
    json: pg_sys::Datum,
    schema: pg_sys::Oid,
    purpose: Purpose,
) -> *mut Load {
    // SAFETY: the caller vouches for the datum; guarded calls.
    unsafe {
        let options = LoadOptions::parse(given.path().to_owned(), json, false).or_raise();
        let mut options = given.settle(options).or_raise();
        let is_dry = matches!(purpose, Purpose::Check);
        if is_dry && options.query.is_some() {
            let message = "query is no option of bulk_check()";
            Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, message).raise();
        }
        if options.each_file && !matches!(purpose, Purpose::Job(_)) {
            let message = "each_file is an option of bulk_enqueue()";
            Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, message).raise();
        }
        if options.create {
            if is_dry {
                let message = "create is an option of bulk_load()";
                Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, message).raise();
            }
            target::raise_exists(relid);
        }
        if is_dry {
            options.settle_for_check();
        }
        let job = match purpose {
            Purpose::Job(number) => Some(number),
            Purpose::Call | Purpose::Check => None,
        };
        target::check_transaction(if is_dry { c"bulk_check()" } else { c"bulk_load()" });
        target::check_location(&options.location).or_raise();
        let mut target = Target::open(relid, &options).or_raise();
        let command = |verb: &str| CString::new([verb.as_bytes(), b" ", target.name.as_bytes()].concat()).ok();
        // ONLY: what is emptied is what is loaded, and not the children of a table that has some.
        let truncate = if target.kind == target::Kind::Plain { "TRUNCATE ONLY" } else { "TRUNCATE" };
        let truncate_statement = if options.truncate { command(truncate) } else { None };
        let analyze_statement = if options.analyze { command("ANALYZE") } else { None };
        let where_statement = options.where_clause.as_deref().map(where_clause::statement);
        // TRUNCATE insists that nobody has it open.
        target.close();
        let path = if options.location.is_inside() { options.location.name() } else { given.path() }.to_owned();
        let memory = memory_context();
        let old = pg_sys::MemoryContextSwitchTo(memory);
        let json = pg_sys::Datum::from(pg_sys::pg_detoast_datum_copy(json.cast_mut_ptr()));
        pg_sys::MemoryContextSwitchTo(old);
        let load = Load {
            json: Some(json),
            id: job.map_or(0, |job| job.id),
            attempt: job.map(|job| job.attempt),
            is_dry,
            schema,
            where_statement,
            truncate_statement,
            analyze_statement,
            ..Load::new(options, path, target, memory)
        };
        PgMemoryContexts::For(memory).leak_and_drop_on_delete(load)
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

/// Open the relation again.
///
/// # Safety
/// A valid load.
#[pg_guard]
unsafe extern "C-unwind" fn reopen(load: *mut Load) {
    // SAFETY: the caller vouches for it.
    unsafe { (*load).target.reopen() }
}

/// Everything before the first row. The file is opened last: whoever may not insert learns nothing of it.
///
/// # Safety
/// A valid load whose relation is open, and whose memory context is current.
#[pg_guard]
unsafe extern "C-unwind" fn prepare(load: *mut Load) {
    // SAFETY: the caller vouches for it, and nobody else uses the load meanwhile.
    let load = unsafe { &mut *load };
    let relation = load.target.relation;
    let mapping = source::by_position(relation, &load.options).or_raise();
    load.target.check_insert(mapping.as_ref(), load.where_clause.rights).or_raise();
    // SAFETY: the relation is open.
    load.target.obstacles = unsafe { obstacle::of_target(relation, load.options.duplicates.keep) };
    // A column gets its default, too, where an object lacks its key.
    let set = mapping.as_ref().filter(|_| !load.options.copy.dialect.json);
    // SAFETY: the relation is open, and the condition was analyzed.
    let volatile = unsafe { volatile::obstacles(relation, set, load.where_clause.conditions) };
    load.target.obstacles.extend(volatile);
    // SAFETY: nodes that were analyzed.
    load.target.obstacles.extend(load.projection.and_then(|nodes| unsafe {
        match load.options.function {
            Some(function) => filter::obstacle(function, relation, nodes).or_raise(),
            None => expression::obstacle(nodes),
        }
    }));
    load.target.obstacles.extend(load.query.as_ref().and_then(|query| query.obstacle(&load.options)));
    if load.options.duplicates.keep != Keep::Error {
        load.target.check_replace(load.options.duplicates.keep);
        // SAFETY: the relation is open.
        load.arbiter = Some(unsafe { load.options.duplicates.arbiter(relation) }.or_raise());
    }
    if load.id == 0 && !load.is_dry {
        load.id = next_id(load.schema).or_raise();
    }
    if load.options.once && once::sift(load).or_raise() {
        load.analyze_statement = None;
        load.writer = Writer::None;
        return;
    }
    if load.is_dry {
        check::check_target(&load.target).or_raise();
        load.writer = Writer::Direct;
    } else {
        load.writer = choose_writer(load).or_raise();
    }
    if load.options.copy.on_error == OnError::Table {
        let about = About {
            load_id: load.id,
            attempt: load.attempt.unwrap_or(1),
            owner: load.owner,
            relid: load.target.relid,
            target: load.target.name.clone(),
            path: load.path.clone(),
            schema: load.schema,
        };
        load.spool = Spool::open(about, load.attempt.is_some());
    }
    load.rows = Some(source::open_rows(relation, &load.options, mapping.as_ref()).or_raise());
    load.mapping = mapping.unwrap_or_default();
    once::check_opened(load).or_raise();
    if let Some(list) = load.rows.as_ref().and_then(|rows| rows.stream().files()) {
        let count = list.files.len();
        load.counts.notes.push(if count == 1 { "1 file".into() } else { format!("{count} files") });
        load.files = (!load.is_dry).then(|| Files::new(Rc::clone(list)));
    }
    if let (Some(files), Some(rows)) = (&load.files, &mut load.rows) {
        rows.stream_mut().count_by_file(files.by_file());
    }
    if load.writer == Writer::Direct && !load.is_dry {
        let size = load.rows.as_ref().and_then(|rows| rows.stream().file_size());
        let others_go_on = load.options.lock == LockOption::Online && size.unwrap_or(0) < direct::WORTH_EXCLUSIVE;
        if load.target.kind == target::Kind::Plain && !others_go_on {
            // SAFETY: the relation is open, once.
            unsafe { direct::renew(relation, 1) }.or_raise();
        }
    }
    load.begin_rows();
}

/// Who is to write; what that means for the options becomes a note or an error.
fn choose_writer(load: &mut Load) -> Result<Writer> {
    let obstacles = &load.target.obstacles;
    let unsupported = |message: String, obstacle: Option<&String>| {
        let error = Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message);
        Err(match obstacle {
            Some(obstacle) => error.detail(obstacle.clone()),
            None => error,
        })
    };
    if load.options.writer == WriterOption::Direct && !obstacles.is_empty() {
        let message = format!("cannot load \"{}\" with the direct writer", load.target.display_name());
        return unsupported(message, obstacles.first());
    }
    if load.options.writer != WriterOption::Buffered && obstacles.is_empty() {
        if load.options.freeze {
            direct::check_freeze(load.target.relation)?;
        }
        return Ok(Writer::Direct);
    }
    if load.options.freeze {
        return unsupported("cannot freeze rows with the buffered writer".into(), obstacles.first());
    }
    if load.options.duplicates.keep == Keep::New {
        let message = format!("cannot replace rows of \"{}\" with the buffered writer", load.target.display_name());
        return unsupported(message, obstacles.first());
    }
    if load.options.writer == WriterOption::Auto {
        load.counts.notes.extend(obstacles.iter().cloned());
    }
    if matches!(load.options.indexes, IndexesOption::Merge | IndexesOption::Rebuild) {
        load.counts.notes.push("The buffered writer inserts into indexes row by row.".into());
    }
    Ok(Writer::Buffered)
}

/// A number for a load. Nobody needs rights on the sequence for that. Guarded.
pub fn next_id(schema: pg_sys::Oid) -> Result<i64> {
    let name = c"bulk_load_id_seq";
    // SAFETY: guarded calls.
    unsafe {
        let sequence = pg_sys::get_relname_relid(name.as_ptr(), schema);
        if sequence == pg_sys::InvalidOid {
            let message = "sequence \"bulk_load_id_seq\" does not exist";
            return Err(Error::new(Code::ERRCODE_UNDEFINED_TABLE, message));
        }
        Ok(pg_guard_ffi_boundary(|| nextval_internal(sequence, false)))
    }
}

/// Learn from the header which columns there are.
///
/// # Safety
/// As [`prepare`], afterwards.
#[pg_guard]
unsafe extern "C-unwind" fn read_header(load: *mut Load) {
    // SAFETY: the caller vouches for it; error context callbacks only look.
    let load = unsafe { &mut *load };
    let Some(rows) = &mut load.rows else { return };
    load.reading = true;
    let mut mapping = source::by_name(load.target.relation, &load.options, rows).or_raise();
    load.reading = false;
    load.counts.notes.append(&mut mapping.notes);
    load.target.check_insert(Some(&mapping), load.where_clause.rights).or_raise();
    load.mapping = mapping;
    if let Some(files) = &load.files {
        // What was read of them for that is read again.
        files.by_file().clear();
    }
}

/// Close what is open; the lock stays.
///
/// # Safety
/// A valid load that is written.
#[pg_guard]
unsafe extern "C-unwind" fn finish(load: *mut Load) {
    // SAFETY: the caller vouches for it.
    let load = unsafe { &mut *load };
    if let Some(mut rows) = load.rows.take() {
        load.counts.bytes_read = rows.stream().bytes_read();
        rows.close().or_raise();
    }
    load.target.close();
    // SAFETY: a spool lives as long as its load at least.
    if let Some(spool) = unsafe { load.spool.as_mut() } {
        let kept = rejects::table::write(spool).or_raise();
        let rejected = load.counts.rejected + load.counts.duplicate;
        if kept < rejected {
            load.counts.notes.push(format!("{kept} of {rejected} rejected rows are kept (pg_bulk.reject_cap)."));
        }
    }
    // ANALYZE has a progress report of its own, and only a free slot for it.
    load.phases.progress.end();
    if load.analyze_statement.is_some() {
        load.phases.enter(Phase::Analyze);
    }
}

/// Leave behind what remains of the load.
///
/// # Safety
/// A valid load that is done, whose memory context is current.
#[pg_guard]
unsafe extern "C-unwind" fn record(load: *mut Load) {
    // SAFETY: the caller vouches for it.
    let load = unsafe { &mut *load };
    load.took = load.began.elapsed();
    once::record(load).or_raise();
    history::record(load);
    summary::log(load);
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

    /// The file is open: whoever watches is to see it. Guarded.
    fn begin_rows(&mut self) {
        let size = self.rows.as_ref().and_then(|rows| rows.stream().file_size());
        let more = self.more.iter().map(|source| source.options.location.size()).sum::<Option<u64>>();
        let size = size.zip(more).map(|(size, more)| size + more);
        let kind = match self.options.location {
            Location::File(_) | Location::Files(_) | Location::Below(_) => Kind::File,
            Location::Program(_) => Kind::Program,
            Location::Client(_) => Kind::Client,
            Location::Bytes(_) | Location::LargeObject(_) | Location::Query => Kind::Inside,
        };
        self.phases.progress = Progress::of_load(self.target.relid, self.id, kind, size, Figures::default());
        self.phases.enter(Phase::Rows);
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
    // SAFETY: the caller vouches for it.
    unsafe { load.as_ref() }?.files.as_ref().map(Files::fate)
}

/// Put the result where the executor wants it, and forget the load.
///
/// # Safety
/// A load that is finished, and the call that it was made for. The current memory context is not the load's.
#[pg_guard]
unsafe extern "C-unwind" fn deliver(load: *mut Load, fcinfo: pg_sys::FunctionCallInfo) {
    // SAFETY: the caller vouches for both; deleting the context drops the load.
    unsafe {
        {
            let load = &*load;
            let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            report::put_row(&mut *result, load.result());
        }
        pg_sys::MemoryContextDelete((*load).memory);
    }
}
