//! The functions `bulk_load` of a path and of bytes, and `bulk_check`: arguments in, rows out.
//!
//! They are plain frames (see `server`), because [`perform`] runs user code. The steps before and after it are guarded.
//!
//! [`begin`] checks options and rights and locks the table, before anything is changed. The table is opened, inspected and
//! closed again, because TRUNCATE may follow and fails while the relation is open. The rights to the path are checked
//! before anything tests whether the file exists.
//!
//! `bulk_check` finds the records that a load would reject, and loads nothing. The direct writer reads the file in all its
//! processes as with `on_error = table`, but makes no heap pages. It fires no triggers, builds no indexes and stores no
//! rows. The rejects become the result.

use std::ffi::CString;

use pgrx::{PgLogLevel, PgSqlErrorCode as Code, ereport, pg_sys};

use super::definer::Allowed;
use super::options::given::Given;
use super::options::{LoadOptions, Truncate};
use super::rejects::table::values;
use super::target::{self, Target};
use super::{Load, Purpose, Request, engine, perform};
use crate::error::{Error, OrRaise, Result};
use crate::input::source::Bytes;
use crate::program::where_clause;
use crate::server::function::{Call, missing, version_1};
use crate::server::jsonb::Jsonb;
use crate::server::lookup::now;
use crate::server::memory_context::MemoryContext;
use crate::server::sql_value::SqlValue;
use crate::server::unguarded::guarded;

/// Defines a function that runs a load, with its record.
macro_rules! load_function {
    ($record:ident, $name:ident, $purpose:expr, $is_data:literal) => {
        version_1!($record);

        /// # Safety
        /// Called by the executor, with three arguments, or with four.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
            // SAFETY: the executor's call, in a frame that owns nothing.
            unsafe { answer(fcinfo, $purpose, $is_data) }
        }
    };
}

// `bulk_load(path, target, options, allow)`, `bulk_load(data, target, options, allow)` and
// `bulk_check(path, target, options, allow)`.
load_function!(pg_finfo_bulk_load, bulk_load, Purpose::Call, false);
load_function!(pg_finfo_bulk_load_bytea, bulk_load_bytea, Purpose::Call, true);
load_function!(pg_finfo_bulk_check, bulk_check, Purpose::Check, false);

/// Runs the load of a call.
///
/// # Safety
/// A plain frame, with a call of the executor.
unsafe fn answer(fcinfo: pg_sys::FunctionCallInfo, purpose: Purpose, is_data: bool) -> pg_sys::Datum {
    // SAFETY: the call, its arguments and the load last as long as this frame. One step at a time uses the load; the last
    // one drops it.
    unsafe {
        let caller = pg_sys::CurrentMemoryContext;
        let load = guarded(|| begin_call(&Call::from_raw(fcinfo), purpose, is_data));
        perform(load);
        pg_sys::CurrentMemoryContext = caller;
        guarded(|| deliver(&*load, &Call::from_raw(fcinfo)).or_raise());
        guarded(|| (*load).memory.delete());
        pg_sys::Datum::from(0usize)
    }
}

/// Parses the arguments of a call that lasts as long as its load. The first one is a path, or bytes. Guarded.
fn begin_call(call: &Call<'_>, purpose: Purpose, is_data: bool) -> *mut Load {
    call.rows();
    // SAFETY: an argument of type bytea, which lasts as long as the call.
    let data = call.datum(0).filter(|_| is_data).map(|data| unsafe { Bytes::of_datum(data) });
    let path = if is_data { None } else { call.argument(0).or_raise().into_optional_text() };
    let given = match (&path, data) {
        (_, Some(data)) => Given::Data(data),
        (Some(path), None) => Given::Path(path),
        (None, None) if is_data => missing("data").raise(),
        (None, None) => Given::Nothing,
    };
    let target = call.required(1, "target").or_raise().as_oid();
    let json = call.jsonb(2, "options").or_raise();
    let allowed = Allowed::by_call(call).or_raise();
    begin(given, target, json, &allowed, call.schema(), purpose)
}

/// Checks options and rights and locks the table. `schema` is the extension's; `allowed` are the permitted options.
/// Guarded.
pub fn begin(
    given: Given,
    relid: pg_sys::Oid,
    json: Jsonb,
    allowed: &Allowed,
    schema: pg_sys::Oid,
    purpose: Purpose,
) -> *mut Load {
    let options = LoadOptions::parse(given.path().to_owned(), &json, allowed, false).or_raise();
    let mut options = given.complete(options).or_raise();
    let is_dry = matches!(purpose, Purpose::Check);
    if is_dry && options.query.is_some() {
        let message = "bulk_check() does not support the option query";
        Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, message).raise();
    }
    let of_jobs = [(options.job.each_file, "each_file"), (!options.job.settings.is_empty(), "settings")];
    if let Some((_, name)) = of_jobs.iter().find(|(is_given, _)| *is_given && !matches!(purpose, Purpose::Job(_))) {
        let message = format!("only bulk_enqueue() supports the option {name}");
        Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, message).raise();
    }
    if options.table.create {
        if is_dry {
            let message = "only bulk_load() supports the option create";
            Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, message).raise();
        }
        target::raise_exists(relid);
    }
    if is_dry {
        options.adapt_to_check();
    }
    target::check_transaction(if is_dry { c"bulk_check()" } else { c"bulk_load()" });
    target::check_location(&options.location).or_raise();
    let mut target = Target::open(relid, &options).or_raise();
    let command = |verb: &str| CString::new([verb.as_bytes(), b" ", target.name.as_bytes()].concat()).ok();
    // ONLY: the load empties the table that it loads, and not its inheritance children. The rows of an engine's
    // table are in tables that the engine has made.
    let is_alone = target.kind == target::TargetKind::Plain && engine::owner_of(target.relation().or_raise()).is_none();
    let truncate = if is_alone { "TRUNCATE ONLY" } else { "TRUNCATE" };
    let truncate_statement = if options.table.truncate == Truncate::Yes { command(truncate) } else { None };
    let analyze_statement = if options.table.analyze { command("ANALYZE") } else { None };
    let where_statement = options.where_clause.as_deref().map(where_clause::statement);
    // TRUNCATE fails while the relation is open.
    target.close();
    let path = if options.location.is_inside() { options.location.name() } else { given.path() }.to_owned();
    let memory = MemoryContext::current().child(c"bulk_load");
    let request = Request {
        json: Some(json),
        purpose,
        schema,
        where_statement,
        truncate_statement,
        analyze_statement,
        ..Request::new(options, path)
    };
    memory.keep(Load::new(request, target, memory))
}

/// Returns the row of a load to the executor, or the rejects of a check. Guarded.
fn deliver(load: &Load, call: &Call<'_>) -> Result<()> {
    if !load.request.is_dry() {
        return call.rows().put(&load.result());
    }
    let Some(spool) = load.spool else { return Ok(()) };
    let (rows, now, kept) = (call.rows(), now(), spool.count());
    spool.for_each(|reject| {
        let [line, offset, column, field, raw, bytes, state, message, constraint, at] = values(&reject, now);
        let path = SqlValue::text_of(reject.path.as_deref().unwrap_or(load.request.path.as_bytes()));
        rows.put(&[line, offset, column, field, raw, bytes, state, message, constraint, at, path])
    })?;
    spool.close();
    let all = load.measures.counts.rejected + load.measures.counts.duplicate;
    if kept < all {
        let message = format!("{kept} of {all} rejected rows are shown (pg_bulk.reject_cap)");
        ereport!(PgLogLevel::NOTICE, Code::ERRCODE_SUCCESSFUL_COMPLETION, message);
    }
    Ok(())
}
