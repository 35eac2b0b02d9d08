//! ProcessUtility_hook of this library. It runs a COPY as a load ([`takeover::copy`](crate::takeover::copy)), and checks
//! foreign tables of servers with a directory after the statement that has created them (`fdw::servers`).
//!
//! A COPY by which pg_bulk asks the hooks of other libraries ([`copy_question`]) also comes here.
//!
//! The hook passes each statement on exactly once, or replaces standard_ProcessUtility (utility.c). It replaces it only
//! if no library loaded before this one has a hook: such a hook would not see the statement, and could neither forbid
//! nor log it. Hooks of libraries that were loaded later call this one.

use std::ffi::c_char;
use std::sync::OnceLock;

use pgrx::pg_sys;

use crate::error::OrRaise;
use crate::program::copy_question;
use crate::server::unguarded as c;
use crate::{fdw, takeover};

/// The hook that was installed before.
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
    // SAFETY: the server's arguments, read or passed on; tags give the node types.
    unsafe {
        let previous = PREVIOUS.get().copied().flatten();
        let statement = (*planned).utilityStmt;
        // The statement outlives its execution, unless it ends the transaction.
        let ends = (*statement).type_ == pg_sys::NodeTag::T_TransactionStmt;
        let is_asked = copy_question::is_asked(statement);
        if is_asked && previous.is_none() {
            c::guarded(copy_question::answer);
            return;
        }
        if is_asked || !takeover::copy::take(statement, query, environment, completion, previous.is_some()) {
            match previous {
                Some(hook) => hook(planned, query, read_only, context, params, environment, receiver, completion),
                None => c::standard_ProcessUtility(
                    planned, query, read_only, context, params, environment, receiver, completion,
                ),
            }
        }
        if !ends && !is_asked {
            c::guarded(|| fdw::check_pending().or_raise());
        }
    }
}
