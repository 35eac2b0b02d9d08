//! The queue's SQL functions, except [`super::wait`].
//!
//! A caller sees jobs of roles whose privileges it has; other jobs do not exist for it. The rights to the file and the
//! table are checked when a job is enqueued, so that mistakes show at once, and again when it runs, which is the check
//! that counts.

use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::Queue;
use super::job::New;
use crate::error::{Error, OrRaise, Result};
use crate::input::encoding::invalid_in_server_encoding;
use crate::load;
use crate::load::definer::{self, Allowed};
use crate::load::options::given::Given;
use crate::load::options::{LoadOptions, LockOption, Truncate};
use crate::load::settings;
use crate::load::target::check_location;
use crate::program::copy_question;
use crate::server::background;
use crate::server::function::version_1;
use crate::server::lock::{Mode, Until};
use crate::server::points::point;
use crate::server::role::{NoSession, cannot_connect, role_name};
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

version_1!(
    pg_finfo_bulk_enqueue,
    pg_finfo_bulk_wait,
    pg_finfo_bulk_cancel,
    pg_finfo_bulk_retry,
    pg_finfo_bulk_pause,
    pg_finfo_bulk_resume,
    pg_finfo_bulk_prioritize
);

/// An argument of a call; None for NULL.
///
/// # Safety
/// A call of a function with more than `index` arguments.
pub unsafe fn argument(fcinfo: pg_sys::FunctionCallInfo, index: usize) -> Option<pg_sys::Datum> {
    // SAFETY: this function's contract covers the call.
    let argument = unsafe { *(*fcinfo).args.as_ptr().add(index) };
    (!argument.isnull).then_some(argument.value)
}

/// An argument, or an error if it is NULL.
///
/// # Safety
/// As [`argument`].
pub unsafe fn required(fcinfo: pg_sys::FunctionCallInfo, index: usize, name: &str) -> Result<pg_sys::Datum> {
    let missing = || Error::new(Code::ERRCODE_NULL_VALUE_NOT_ALLOWED, format!("{name} must not be null"));
    // SAFETY: same contract.
    unsafe { argument(fcinfo, index) }.ok_or_else(missing)
}

/// The queue of the extension that a function belongs to. Guarded.
///
/// # Safety
/// A call of a function.
pub unsafe fn queue_of(fcinfo: pg_sys::FunctionCallInfo) -> Queue {
    // SAFETY: this function's contract covers the call.
    let function = unsafe { (*(*fcinfo).flinfo).fn_oid };
    // SAFETY: a guarded catalog lookup.
    Queue::in_schema(unsafe { pg_sys::get_func_namespace(function) }).or_raise()
}

/// Raises errors that forbid a change of the queue in this transaction. Guarded.
fn check_transaction(what: &CStr) -> Result<()> {
    // SAFETY: guarded calls with a string.
    unsafe {
        pg_sys::PreventCommandDuringRecovery(what.as_ptr());
        pg_sys::PreventCommandIfReadOnly(what.as_ptr());
        pg_sys::PreventCommandIfParallelMode(what.as_ptr());
        if pg_sys::InSecurityRestrictedOperation() {
            let message = format!("cannot call {} within security-restricted operation", what.to_string_lossy());
            return Err(Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message));
        }
    }
    Ok(())
}

/// The error about a job that does not exist, or that the caller may not see.
pub fn unknown(job: i64) -> Error {
    Error::new(Code::ERRCODE_UNDEFINED_OBJECT, format!("job {job} does not exist"))
}

/// `bulk_enqueue(path, target, options, allow, priority, run_at, max_attempts)`.
///
/// # Safety
/// Called by the executor, with seven arguments, or with six: without `allow`.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_enqueue(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the executor passes arguments of the declared types; guarded calls.
    unsafe {
        let path = argument(fcinfo, 0);
        let target = required(fcinfo, 1, "target").or_raise();
        let json = required(fcinfo, 2, "options").or_raise();
        let next = definer::position((*(*fcinfo).flinfo).fn_oid).map_or(3, |allow| allow + 1);
        let priority = required(fcinfo, next, "priority").or_raise();
        let run_at = required(fcinfo, next + 1, "run_at").or_raise();
        let max_attempts = required(fcinfo, next + 2, "max_attempts").or_raise().value() as i32;
        let allowed = Allowed::by_call(fcinfo).or_raise();
        check_transaction(c"bulk_enqueue()").or_raise();
        if max_attempts < 1 {
            let message = "max_attempts must be at least 1";
            Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, message).raise();
        }
        let string = |text: pg_sys::Datum| {
            CStr::from_ptr(pg_sys::text_to_cstring(pg_sys::pg_detoast_datum_packed(text.cast_mut_ptr()).cast()))
        };
        let given = path.map_or(Given::Nothing, |path| Given::Path(string(path)));
        // Options may replace the path.
        let path = given.path();
        let target = pg_sys::Oid::from_u32(target.value() as u32);
        let owner = pg_sys::GetUserId();
        let options = LoadOptions::parse(path.to_owned(), json, &allowed, true).or_raise();
        let options = given.complete(options).or_raise();
        if let Some(query) = &options.query {
            unguarded::guard(|| load::query::check(query.as_ptr()));
        }
        settings::check(&options.job.settings);
        check_location(&options.location).or_raise();
        // A hook may know a fact about this session that it does not know about the job's.
        copy_question::may_read(&options.location);
        let (schema, name) = check_target(target).or_raise();
        check_owner(owner).or_raise();
        let queue = queue_of(fcinfo);
        let priority = priority.value() as i32;
        // Such a priority counts as 0, also if the owner loses the right while the job is queued.
        if let Err(error) = check_priority(&queue, owner, priority) {
            error.detail("The priority counts as 0.").warn();
        }
        let settings: Vec<CString> = SETTINGS.iter().flat_map(|name| [(*name).to_owned(), setting(name)]).collect();
        let list = if options.job.each_file { options.location.files().or_raise() } else { None };
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
            options: json,
            settings: &settings,
            alone: options.table.truncate == Truncate::Yes || options.table.lock == LockOption::Share,
            priority,
            run_at,
            max_attempts,
        };
        // A path that cannot be read back as text is refused.
        if let Some(error) = paths.iter().find_map(|path| invalid_in_server_encoding(path.to_bytes())) {
            error.raise();
        }
        for path in paths {
            pgrx::check_for_interrupts!();
            (job.id, job.path) = (load::next_id(queue.schema).or_raise(), path);
            queue.add(&job).or_raise();
        }
        pg_sys::Datum::from(job.id)
    }
}

/// A setting's value, in the form that SET takes.
fn setting(name: &CStr) -> CString {
    // SAFETY: a guarded call with a string; its result is valid until the next call.
    unsafe {
        let value = pg_sys::GetConfigOption(name.as_ptr(), true, false);
        if value.is_null() { CString::default() } else { CStr::from_ptr(value).to_owned() }
    }
}

/// The table's schema and name, if it exists and the caller may insert into some column of it. Takes no lock, because a
/// job may be loading the table now.
fn check_target(target: pg_sys::Oid) -> Result<(CString, CString)> {
    let insert = pg_sys::ACL_INSERT as pg_sys::AclMode;
    // SAFETY: guarded catalog lookups, and the strings that they return.
    unsafe {
        let (name, namespace) = (pg_sys::get_rel_name(target), pg_sys::get_rel_namespace(target));
        let schema = pg_sys::get_namespace_name(namespace);
        if name.is_null() || schema.is_null() {
            let message = format!("relation with OID {} does not exist", target.to_u32());
            return Err(Error::new(Code::ERRCODE_UNDEFINED_TABLE, message));
        }
        let user = pg_sys::GetUserId();
        let result = pg_sys::pg_class_aclcheck(target, user, insert);
        if result != pg_sys::AclResult::ACLCHECK_OK
            && pg_sys::pg_attribute_aclcheck_all(target, user, insert, pg_sys::AclMaskHow::ACLMASK_ANY)
                != pg_sys::AclResult::ACLCHECK_OK
        {
            let object = pg_sys::get_relkind_objtype(pg_sys::get_rel_relkind(target));
            pg_sys::aclcheck_error(result, object, name);
        }
        if pg_sys::isAnyTempNamespace(namespace) {
            let message = "cannot enqueue a load of a temporary table";
            return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
                .detail("Only this session sees its rows; a job runs in another session."));
        }
        Ok((CStr::from_ptr(schema).to_owned(), CStr::from_ptr(name).to_owned()))
    }
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
    // SAFETY: a guarded call.
    let caller = unsafe { pg_sys::GetUserId() };
    queue.status(job, caller)?.map(|(status, _)| status).ok_or_else(|| unknown(job))
}

/// `bulk_cancel(job_id)`.
///
/// # Safety
/// Called by the executor, with one argument.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_cancel(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the executor passes the declared arguments.
    let (job, queue) = unsafe {
        let job = required(fcinfo, 0, "job_id").or_raise().value() as i64;
        check_transaction(c"bulk_cancel()").or_raise();
        (job, queue_of(fcinfo))
    };
    pg_sys::Datum::from(cancel(&queue, job).or_raise())
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
        // Signals the process group, as pg_cancel_backend. SAFETY: a signal to a process that cancels its work on it.
        let signaled =
            holder.map(|pid| unsafe { libc::kill(-pid, libc::SIGINT) == 0 || libc::kill(pid, libc::SIGINT) == 0 });
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
///
/// # Safety
/// Called by the executor, with one argument.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_retry(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the executor passes the declared arguments.
    let (job, queue) = unsafe {
        let job = required(fcinfo, 0, "job_id").or_raise().value() as i64;
        check_transaction(c"bulk_retry()").or_raise();
        (job, queue_of(fcinfo))
    };
    status_for_caller(&queue, job).or_raise();
    queue.look_at_commit();
    queue.take_home(job).or_raise();
    pg_sys::Datum::from(queue.retry(job).or_raise())
}

/// `bulk_prioritize(job_id, priority)`. It changes no job of a role whose privileges the caller lacks.
///
/// # Safety
/// Called by the executor, with two arguments.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_prioritize(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the executor passes the declared arguments.
    let (job, priority, queue) = unsafe {
        let job = required(fcinfo, 0, "job_id").or_raise().value() as i64;
        let priority = required(fcinfo, 1, "priority").or_raise().value() as i32;
        check_transaction(c"bulk_prioritize()").or_raise();
        (job, priority, queue_of(fcinfo))
    };
    status_for_caller(&queue, job).or_raise();
    if priority < 0 {
        let owner = queue.owner_of(job).or_raise().unwrap_or(pg_sys::InvalidOid);
        check_priority(&queue, owner, priority).or_raise();
    }
    queue.look_at_commit();
    pg_sys::Datum::from(queue.prioritize(job, priority).or_raise())
}

/// `bulk_pause()`.
///
/// # Safety
/// Called by the executor.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_pause(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    check_transaction(c"bulk_pause()").or_raise();
    // SAFETY: called by the executor.
    let queue = unsafe { queue_of(fcinfo) };
    pg_sys::Datum::from(queue.set_paused(true).or_raise())
}

/// `bulk_resume()`. Also starts a dispatcher: jobs may lack one even if the queue is not paused.
///
/// # Safety
/// Called by the executor.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_resume(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    check_transaction(c"bulk_resume()").or_raise();
    // SAFETY: called by the executor.
    let queue = unsafe { queue_of(fcinfo) };
    queue.look_at_commit();
    pg_sys::Datum::from(queue.set_paused(false).or_raise())
}
