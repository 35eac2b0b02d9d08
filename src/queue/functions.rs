//! The queue's SQL functions, except [`super::wait`].
//!
//! A caller sees jobs of roles whose privileges it has; other jobs do not exist for it. The rights to the file and the
//! table are checked when a job is enqueued, so that mistakes show at once, and again when it runs, which is the check
//! that counts.

use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::Queue;
use super::job::New;
use crate::error::{Error, Result};
use crate::input::encoding::invalid_in_server_encoding;
use crate::load;
use crate::load::definer::{self, Allowed};
use crate::load::options::given::Given;
use crate::load::options::{LoadOptions, LockOption, Truncate};
use crate::load::settings;
use crate::load::target;
use crate::program::copy_question;
use crate::server::background;
use crate::server::function::{Call, sql_function};
use crate::server::lock::{Mode, Until};
use crate::server::lookup::{is_temporary_schema, relation_names, schema_of, setting};
use crate::server::points::point;
use crate::server::role::{
    NoSession, applies_changes, cannot_connect, current_user, is_restricted, require_some, role_name,
};
use crate::server::unguarded;

/// How often bulk_cancel retries while another session changes the job, and the milliseconds in between.
const TRIES: u32 = 500;
const PAUSE: i64 = 10;

/// Settings that the meaning of a file or a query depends on, or expressions over their rows. Only settings that every
/// role may set: those for superusers come from the owner's session. Other settings choose a plan, memory or a storage
/// format, or only warn (escape_string_warning), or every job sets them itself (isolation, lock_timeout).
/// quote_all_identifiers would also change the names in the extension's own tables.
const SETTINGS: [&CStr; 19] = [
    c"client_encoding",
    c"DateStyle",
    c"TimeZone",
    c"IntervalStyle",
    c"timezone_abbreviations",
    c"array_nulls",
    c"lc_monetary",
    c"search_path",
    c"row_security",
    c"standard_conforming_strings",
    c"backslash_quote",
    c"transform_null_equals",
    c"bytea_output",
    c"extra_float_digits",
    c"xmlbinary",
    c"xmloption",
    c"lc_numeric",
    c"lc_time",
    c"default_text_search_config",
];

sql_function!(pg_finfo_bulk_enqueue, bulk_enqueue, enqueue);
sql_function!(pg_finfo_bulk_cancel, bulk_cancel, cancel_call);
sql_function!(pg_finfo_bulk_retry, bulk_retry, retry);
sql_function!(pg_finfo_bulk_pause, bulk_pause, pause);
sql_function!(pg_finfo_bulk_resume, bulk_resume, resume);
sql_function!(pg_finfo_bulk_prioritize, bulk_prioritize, prioritize);

/// Raises errors that forbid a change of the queue in this transaction. Guarded.
fn check_transaction(what: &CStr) -> Result<()> {
    target::check_transaction(what);
    if is_restricted() {
        let message = format!("cannot call {} within security-restricted operation", what.to_string_lossy());
        return Err(Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message));
    }
    Ok(())
}

/// The error about a job that does not exist, or that the caller may not see.
pub fn unknown(job: i64) -> Error {
    Error::new(Code::ERRCODE_UNDEFINED_OBJECT, format!("job {job} does not exist"))
}

/// `bulk_enqueue(path, target, options, allow, priority, run_at, max_attempts)`, or without `allow`.
fn enqueue(call: &Call) -> Result<i64> {
    let path = call.argument(0)?.into_optional_text();
    let target = call.required(1, "target")?.as_oid();
    let json = call.jsonb(2, "options")?;
    let next = definer::position(call.function()).map_or(3, |allow| allow + 1);
    let priority = call.required(next, "priority")?.small();
    let run_at = call.required(next + 1, "run_at")?.number();
    let max_attempts = call.required(next + 2, "max_attempts")?.small();
    let allowed = Allowed::by_call(call)?;
    check_transaction(c"bulk_enqueue()")?;
    if max_attempts < 1 {
        let message = "max_attempts must be at least 1";
        return Err(Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, message));
    }
    let given = path.as_deref().map_or(Given::Nothing, Given::Path);
    // Options may replace the path.
    let path = given.path();
    let owner = current_user();
    let options = given.complete(LoadOptions::parse(path.to_owned(), &json, &allowed, true)?)?;
    if let Some(query) = &options.query {
        // SAFETY: a string; the closure owns nothing.
        unsafe { unguarded::guard(|| load::query::check(query.as_ptr())) };
    }
    settings::check(&options.job.settings);
    target::check_location(&options.location)?;
    // A hook may know a fact about this session that it does not know about the job's.
    copy_question::may_read(&options.location);
    let (schema, name) = check_target(target)?;
    check_owner(owner)?;
    let queue = Queue::in_schema(call.schema())?;
    // Such a priority counts as 0, also if the owner loses the right while the job is queued.
    if let Err(error) = check_priority(&queue, owner, priority) {
        error.detail("The priority counts as 0.").warn();
    }
    let settings: Vec<CString> =
        SETTINGS.iter().flat_map(|name| [(*name).to_owned(), setting(name).unwrap_or_default()]).collect();
    let list = if options.job.each_file { options.location.files()? } else { None };
    let paths = match &list {
        Some(list) => list.files.iter().map(|file| file.path.as_c_str()).collect(),
        None => vec![path],
    };
    queue.look_at_commit();
    let mut job = New {
        id: 0,
        owner,
        path,
        target,
        schema: &schema,
        name: &name,
        options: &json,
        settings: &settings,
        alone: options.table.truncate == Truncate::Yes || options.table.lock == LockOption::Share,
        priority,
        run_at,
        max_attempts,
    };
    // A path that cannot be read back as text is refused.
    if let Some(error) = paths.iter().find_map(|path| invalid_in_server_encoding(path.to_bytes())) {
        return Err(error);
    }
    for path in paths {
        pgrx::check_for_interrupts!();
        (job.id, job.path) = (load::next_id(queue.schema)?, path);
        queue.add(&job)?;
    }
    Ok(job.id)
}

/// The table's schema and name, if it exists and the caller may insert into some column of it. Takes no lock, because a
/// job may be loading the table now.
fn check_target(target: pg_sys::Oid) -> Result<(CString, CString)> {
    let Some((schema, name)) = relation_names(target) else {
        let message = format!("relation with OID {} does not exist", target.to_u32());
        return Err(Error::new(Code::ERRCODE_UNDEFINED_TABLE, message));
    };
    require_some(target, pg_sys::ACL_INSERT);
    if is_temporary_schema(schema_of(target)) {
        let message = "cannot enqueue a load of a temporary table";
        return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
            .detail("Only this session sees its rows; a job runs in another session."));
    }
    Ok((schema, name))
}

/// Raises unless the owner can have a session, which the job needs.
fn check_owner(owner: pg_sys::Oid) -> Result<()> {
    let role = role_name(owner);
    let (message, hint) = match cannot_connect(owner) {
        None => return Ok(()),
        Some(NoSession::Connect) => {
            (format!("role \"{role}\" may not connect to this database"), "Grant it CONNECT on the database.")
        }
        Some(_) => (
            format!("role \"{role}\" is not permitted to log in"),
            "A job runs in a session of the role that enqueues it. Call bulk_enqueue as a role with LOGIN.",
        ),
    };
    Err(Error::new(Code::ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION, message).hint(hint))
}

/// Raises unless the owner's jobs may have this priority: those below 0 come before the jobs of all other owners.
fn check_priority(queue: &Queue, owner: pg_sys::Oid, priority: i32) -> Result<()> {
    if priority >= 0 || queue.may_be_below_0(owner)? {
        return Ok(());
    }
    let message = format!("role \"{}\" may not have jobs with a priority below 0", role_name(owner));
    let hint = "Grant it EXECUTE on function bulk_prioritize(bigint, integer), or use a priority of 0 or more.";
    Err(Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message).hint(hint))
}

/// The status of the job in a call.
fn status_for_caller(queue: &Queue, job: i64) -> Result<String> {
    queue.status(job, current_user())?.map(|(status, _)| status).ok_or_else(|| unknown(job))
}

/// The job of a call that changes it, and the queue.
fn job_of(call: &Call, what: &CStr) -> Result<(i64, Queue)> {
    let job = call.required(0, "job_id")?.number();
    check_transaction(what)?;
    Ok((job, Queue::in_schema(call.schema())?))
}

/// `bulk_cancel(job_id)`.
fn cancel_call(call: &Call) -> Result<bool> {
    let (job, queue) = job_of(call, c"bulk_cancel()")?;
    cancel(&queue, job)
}

fn cancel(queue: &Queue, job: i64) -> Result<bool> {
    if !matches!(status_for_caller(queue, job)?.as_str(), "queued" | "running") {
        return Ok(false);
    }
    queue.look_at_commit();
    let lock = queue.job_lock(job);
    for _ in 0..TRIES {
        if queue.cancel_queued(job)? {
            return Ok(true);
        }
        if status_for_caller(queue, job)? != "running" {
            return Ok(false);
        }
        // Keeps that process from going on to another job meanwhile.
        let meanwhile = queue.cancel_lock();
        meanwhile.take(Mode::Share, Until::TransactionEnd);
        let holder = lock.holder();
        point!("cancel.found");
        let signaled = holder.map(background::cancel);
        meanwhile.release(Mode::Share, Until::TransactionEnd);
        match signaled {
            Some(true) => return Ok(true),
            // The process has just exited.
            Some(false) => (),
            None if lock.try_take(Mode::ShareUpdateExclusive, Until::TransactionEnd) && queue.cancel_lost(job)? => {
                // Its process had exited, which no other session had detected yet.
                return Ok(true);
            }
            None => (),
        }
        // Another session has detected it, or the job is just beginning or ending.
        background::pause(PAUSE);
    }
    let message = format!("could not cancel job {job}, which another session is changing");
    Err(Error::new(Code::ERRCODE_LOCK_NOT_AVAILABLE, message).hint("Try again when its transaction has ended."))
}

/// `bulk_retry(job_id)`.
fn retry(call: &Call) -> Result<bool> {
    let (job, queue) = job_of(call, c"bulk_retry()")?;
    status_for_caller(&queue, job)?;
    queue.look_at_commit();
    queue.take_home(job)?;
    queue.retry(job)
}

/// `bulk_prioritize(job_id, priority)`. It changes no job of a role whose privileges the caller lacks.
fn prioritize(call: &Call) -> Result<bool> {
    call.required(0, "job_id")?;
    let priority = call.required(1, "priority")?.small();
    let (job, queue) = job_of(call, c"bulk_prioritize()")?;
    status_for_caller(&queue, job)?;
    if priority < 0 {
        let owner = queue.owner_of(job)?.unwrap_or(pg_sys::InvalidOid);
        check_priority(&queue, owner, priority)?;
    }
    queue.look_at_commit();
    queue.prioritize(job, priority)
}

/// `bulk_pause()`.
fn pause(call: &Call) -> Result<bool> {
    check_transaction(c"bulk_pause()")?;
    Queue::in_schema(call.schema())?.set_paused(true)
}

/// `bulk_resume()`. Also starts a dispatcher: jobs may lack one even if the queue is not paused.
fn resume(call: &Call) -> Result<bool> {
    check_transaction(c"bulk_resume()")?;
    let queue = Queue::in_schema(call.schema())?;
    queue.look_at_commit();
    queue.set_paused(false)
}

sql_function!(pg_finfo_bulk_keep_local, bulk_keep_local, keep_local);

/// `bulk_keep_local()`: BEFORE INSERT OR UPDATE OR DELETE, for each row. Keeps logical replication from changing the
/// extension's tables, which belong to their server.
///
/// A publication FOR ALL TABLES includes the tables of extensions, and cannot exclude them. A subscriber's dispatcher
/// would run the publisher's jobs once more. Its own jobs, which have the same numbers, would be changed and removed
/// with the publisher's. Rejected rows would be visible to the role that has their owner's OID there. So each of the
/// tables has a trigger that skips the change in a session that applies replicated changes.
///
/// The trigger is enabled as REPLICA, so it costs other sessions nothing. But it may be enabled in another mode
/// (`pg_restore --disable-triggers` ends with ENABLE TRIGGER ALL), so it checks the session itself. The extension's own
/// statements do not count as applied changes, whatever the session's role: see `server::role`.
fn keep_local(call: &Call) -> Result<pg_sys::Datum> {
    let Some(row) = call.trigger_row() else {
        let message = "bulk_keep_local() must be called as trigger";
        return Err(Error::new(Code::ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED, message));
    };
    // NULL makes the executor skip the row.
    Ok(pg_sys::Datum::from(if applies_changes() { std::ptr::null_mut() } else { row }))
}
