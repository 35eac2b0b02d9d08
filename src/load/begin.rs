//! The beginning of a load, before it changes anything: options, rights, and the lock of the table.
//!
//! The table is opened, inspected and closed again, because TRUNCATE may follow and fails while the relation is open.
//! The rights to the path are checked here, before anything tests whether the file exists.

use std::ffi::CString;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::definer::Allowed;
use super::options::given::Given;
use super::options::{LoadOptions, Truncate};
use super::target::{self, Target};
use super::{Load, Purpose, Request, engine};
use crate::error::{Error, OrRaise};
use crate::program::where_clause;
use crate::server::jsonb::Jsonb;
use crate::server::memory_context::MemoryContext;

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
