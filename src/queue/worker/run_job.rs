//! The statement that a worker runs: `SELECT bulk_run_job(…)`.
//!
//! A load is a statement of the server, in a worker as in a session. So hooks of other libraries see a text, a query
//! identifier and a running executor, as with any statement. The text names the file, the table and the options;
//! pg_stat_activity shows it, and the log shows it with an error.
//!
//! The function ignores its arguments. It performs the load of the job that its process has claimed, once; any other
//! call is an error. The owner of the job calls it, so PUBLIC has EXECUTE.

use std::ffi::{CStr, CString};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::super::job::Claimed;
use super::Job;
use crate::error::Error;
use crate::load::definer::Allowed;
use crate::load::options::given::Given;
use crate::load::{self, JobNumber, Load, Purpose};
use crate::server::function::version_1;
use crate::server::lookup::{function_named, literal, qualified, schema_name};
use crate::server::memory_context::MemoryContext;
use crate::server::statement::{self, About, Checked, Surroundings};
use crate::server::unguarded::guarded;
use crate::server::user_code;

const NAME: &CStr = c"bulk_run_job";

/// The job of the statement, until the function has begun. Null in any other process.
static JOB: AtomicPtr<Job> = AtomicPtr::new(std::ptr::null_mut());

/// The text of the statement, and its function.
#[derive(Debug)]
pub struct Statement {
    pub text: CString,
    /// Invalid if the extension's version in this database has no such function.
    function: pg_sys::Oid,
}

impl Statement {
    /// The statement of a job. `schema` is the extension's. In a transaction; guarded.
    pub fn of(job: &Claimed, schema: pg_sys::Oid) -> Statement {
        let types = [pg_sys::INT8OID, pg_sys::TEXTOID, pg_sys::TEXTOID, pg_sys::JSONBOID];
        let name = qualified(&schema_name(schema).unwrap_or_default(), NAME);
        // With type casts, so that no other function of this name matches as well.
        let parts = [
            b"SELECT ".as_slice(),
            name.to_bytes(),
            format!("({}::bigint, ", job.id).as_bytes(),
            literal(&job.path).to_bytes(),
            b"::text, ",
            literal(&qualified(&job.schema, &job.name)).to_bytes(),
            b"::text, ",
            literal(&job.options.text()).to_bytes(),
            b"::jsonb)",
        ]
        .concat();
        Statement { text: CString::new(parts).unwrap_or_default(), function: function_named(NAME, &types, schema) }
    }
}

/// Runs the statement of a job, which performs its load.
///
/// # Safety
/// A plain frame in a transaction; the job of this process, with a statement.
pub unsafe fn run(job: *mut Job) {
    // SAFETY: the process keeps the job, and its statement stays unchanged.
    unsafe {
        let Some(Statement { text, function }) = &(*job).statement else { return };
        let (text, function) = (text.as_ptr(), *function);
        JOB.store(job, Relaxed);
        if function == pg_sys::InvalidOid {
            load::perform(guarded(begin));
            return;
        }
        statement::run(text, 0, About::Call(function), Checked::NONE, Surroundings::NONE);
    }
}

version_1!(pg_finfo_bulk_run_job);

/// `bulk_run_job(job_id, path, target, options)`.
///
/// # Safety
/// Called by the executor.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_run_job(_fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // A plain frame: nothing here has a destructor.
    // SAFETY: the job lives as long as the process; its load as long as the transaction.
    unsafe {
        let caller = pg_sys::CurrentMemoryContext;
        load::perform(guarded(begin));
        pg_sys::CurrentMemoryContext = caller;
        pg_sys::Datum::from(0usize)
    }
}

/// Begins the job's load. Guarded.
fn begin() -> *mut Load {
    let job = JOB.swap(std::ptr::null_mut(), Relaxed);
    // SAFETY: set by `run`, for a job that outlives the statement, and that nothing else uses meanwhile.
    let Some(Job { claimed, queue, load, .. }) = (unsafe { job.as_mut() }) else {
        Error::new(
            Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "bulk_run_job() is called only by workers of pg_bulk",
        )
        .hint("Use bulk_enqueue() to have a job run.")
        .raise();
    };
    // Until now, the server has looked up this function only.
    user_code::watch();
    let number = JobNumber { id: claimed.id, attempt: claimed.attempt };
    let given = Given::Path(&claimed.path);
    let options = claimed.options.clone();
    // The load is still read after the statement has ended.
    let within = MemoryContext::of_top_transaction().enter();
    *load = load::begin(given, claimed.target, options, &Allowed::ALL, queue.schema, Purpose::Job(number));
    drop(within);
    *load
}
