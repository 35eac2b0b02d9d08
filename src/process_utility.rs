//! ProcessUtility_hook, once for all of this library that has to do with utility statements: a COPY that is a load
//! ([`load::copy`](crate::load::copy)), and foreign tables of servers with a directory, which are looked at when the
//! statement that made them is done (`fdw::servers`).
//!
//! A COPY by which pg_bulk asks the hooks of other libraries ([`copy_question`]) comes here, too.
//!
//! It passes each statement on exactly once, or does what standard_ProcessUtility (utility.c) would do for it. The latter only
//! where nobody is passed by: hooks of libraries that were loaded before this one would not see the statement, and what they
//! forbid or write down is their business. Those that were loaded later call this one.

use std::ffi::c_char;
use std::sync::OnceLock;

use pgrx::pg_sys;

use crate::pg::copy_question;
use crate::pg::unguarded as c;
use crate::{fdw, load};

/// Who was there before.
static PREVIOUS: OnceLock<pg_sys::ProcessUtility_hook_type> = OnceLock::new();

/// Called once, when the library is loaded.
pub fn init() {
    // SAFETY: a variable of this process, which has one thread of the server's.
    unsafe {
        let previous = pg_sys::ProcessUtility_hook;
        let _ = PREVIOUS.set(previous);
        pg_sys::ProcessUtility_hook = Some(hook);
        copy_question::init(hook, previous.is_some());
    }
}

/// # Safety
/// Called by the server, with a statement.
unsafe extern "C-unwind" fn hook(
    planned: *mut pg_sys::PlannedStmt,
    query: *const c_char,
    read_only: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // A plain frame: nothing here has a destructor.
    // SAFETY: what the server gave, looked at or passed on; tags say what nodes are.
    unsafe {
        let previous = PREVIOUS.get().copied().flatten();
        let statement = (*planned).utilityStmt;
        // The statement outlives its execution, but for one that ends the transaction.
        let ends = (*statement).type_ == pg_sys::NodeTag::T_TransactionStmt;
        let is_asked = copy_question::is_asked(statement);
        if is_asked && previous.is_none() {
            copy_question::answer();
            return;
        }
        if is_asked || !load::copy::take(statement, query, environment, completion, previous.is_some()) {
            match previous {
                Some(hook) => hook(planned, query, read_only, context, params, environment, receiver, completion),
                None => c::standard_ProcessUtility(
                    planned,
                    query,
                    read_only,
                    context,
                    params,
                    environment,
                    receiver,
                    completion,
                ),
            }
        }
        if !ends && !is_asked {
            fdw::end_statement();
        }
    }
}
