//! `COPY t FROM` as a load.
//!
//! ```text
//!   ProcessUtility ─► consider ─► WHERE ─► begin ─┬─ no: core's COPY, as if nothing had been
//!                     statement    as DoCopy     table, rights     └─ yes: the load, and COPY's command tag
//! ```
//!
//! With `pg_bulk.copy` on, a COPY goes to the direct writer where nobody could tell the two apart but by the time they take. The
//! rule is: in doubt, core. All that COPY complains of before it reads is core's to say (options, columns, rights to files, FREEZE,
//! a file that is not there), so such a COPY is handed on; but what DoCopy raises on the way to the same place (a table that is not
//! there, a WHERE that makes no sense, a right to INSERT that is missing) is raised here, since it is the same functions that say it.
//!
//! A COPY is no call of bulk_load: it has no number, no row in `bulk_history`, says nothing to the client, and takes no lock but
//! COPY's. What became of it, or why it is core's, a DEBUG1 message tells; `pg_bulk.log_timing` has the load's line in the log.
//!
//! The hook passes each statement on exactly once, or does what standard_ProcessUtility (utility.c) would do for it. Hooks that were
//! installed before this one do not see a COPY that is a load; those that come later do.

mod few;
mod judge;
mod options;
mod run;

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use pgrx::{pg_guard, pg_sys};

use self::few::Few;
use super::where_clause::{self, WhereClause};
use crate::guc;
use crate::pg::encoding::to_server;
use crate::pg::unguarded as c;

/// Who was asked before.
static PREVIOUS: OnceLock<pg_sys::ProcessUtility_hook_type> = OnceLock::new();

/// Called once, when the library is loaded.
pub fn init() {
    // SAFETY: a variable of this process, which has one thread of the server's.
    unsafe {
        let _ = PREVIOUS.set(pg_sys::ProcessUtility_hook);
        pg_sys::ProcessUtility_hook = Some(utility);
    }
}

/// # Safety
/// Called by the server, with a statement.
unsafe extern "C-unwind" fn utility(
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
        let statement = (*planned).utilityStmt;
        if (*statement).type_ == pg_sys::NodeTag::T_CopyStmt && guc::copy() {
            let statement = statement.cast::<pg_sys::CopyStmt>();
            if (*statement).is_from && take(statement, query, environment, completion) {
                return;
            }
        }
        match PREVIOUS.get().copied().flatten() {
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
}

/// Do a COPY FROM as a load. False if nothing was done.
///
/// # Safety
/// A plain frame; the arguments of [`utility`].
unsafe fn take(
    statement: *const pg_sys::CopyStmt,
    query: *const c_char,
    environment: *mut pg_sys::QueryEnvironment,
    completion: *mut pg_sys::QueryCompletion,
) -> bool {
    // SAFETY: the caller vouches for the arguments; what is made here lives as long as the current memory context.
    unsafe {
        c::check_stack_depth();
        let caller = pg_sys::CurrentMemoryContext;
        let relation = consider(statement);
        if relation.is_null() {
            return false;
        }
        let mut clause = WhereClause::NONE;
        let state = c::make_parsestate(std::ptr::null_mut());
        (*state).p_sourcetext = query;
        (*state).p_queryEnv = environment;
        if !(*statement).whereClause.is_null() {
            let expression = c::copyObjectImpl((*statement).whereClause.cast());
            clause = where_clause::transform(state, relation, expression.cast());
        }
        let mut few = Few::NONE;
        let load = begin(statement, relation, &raw const clause, &raw mut few);
        let rows = if !load.is_null() {
            run::run(load, caller)
        } else if !few.data.is_null() {
            few::copy(statement, relation, state, clause.conditions, few)
        } else {
            return false;
        };
        if !completion.is_null() {
            (*completion).commandTag = pg_sys::CommandTag::CMDTAG_COPY;
            (*completion).nprocessed = rows;
        }
        // As after every utility command.
        c::CommandCounterIncrement();
        true
    }
}

/// Look at the statement by itself; if it may be one for a load, the table, locked as COPY locks it. Else null.
///
/// # Safety
/// A COPY FROM.
#[pg_guard]
unsafe extern "C-unwind" fn consider(statement: *const pg_sys::CopyStmt) -> pg_sys::Relation {
    // SAFETY: the caller vouches for it; guarded calls.
    unsafe {
        match judge::of_statement(&*statement) {
            Ok(()) => pg_sys::table_openrv((*statement).relation, pg_sys::RowExclusiveLock.cast_signed()),
            Err(why) => {
                tell(statement, Some(&why));
                std::ptr::null_mut()
            }
        }
    }
}

/// Begin the load. Else null, with few rows that a client has sent, or nothing done and the table closed.
///
/// # Safety
/// A COPY FROM that was considered, its table, and its condition.
#[pg_guard]
unsafe extern "C-unwind" fn begin(
    statement: *const pg_sys::CopyStmt,
    relation: pg_sys::Relation,
    clause: *const WhereClause,
    few: *mut Few,
) -> *mut super::Load {
    // SAFETY: the caller vouches for all; guarded calls.
    unsafe {
        match run::begin(&*statement, relation, *clause, &mut *few) {
            Ok(load) => {
                tell(statement, None);
                load
            }
            Err(why) => {
                tell(statement, Some(&why));
                if (*few).data.is_null() {
                    pg_sys::table_close(relation, pg_sys::NoLock.cast_signed());
                }
                std::ptr::null_mut()
            }
        }
    }
}

/// Tell who wants to know what becomes of the statement, and why. Guarded.
///
/// # Safety
/// A COPY.
unsafe fn tell(statement: *const pg_sys::CopyStmt, why: Option<&str>) {
    let level = pg_sys::DEBUG1.cast_signed();
    // SAFETY: compares settings; the statement's own strings; those that are made here outlive the message.
    unsafe {
        if !pg_sys::message_level_is_interesting(level) {
            return;
        }
        let name = (*statement).relation.as_ref().map_or(c"", |relation| CStr::from_ptr(relation.relname));
        let text = why.map(|why| to_server(why.trim_end_matches('.')));
        c::guard(|| {
            if c::errstart_cold(level, std::ptr::null()) {
                match &text {
                    Some(why) => c::errmsg_internal(
                        c"COPY \"%s\" is not done by pg_bulk: %s".as_ptr(),
                        name.as_ptr(),
                        why.as_ptr(),
                    ),
                    None => c::errmsg_internal(c"COPY \"%s\" is done by pg_bulk".as_ptr(), name.as_ptr()),
                };
                c::errfinish(c"copy.rs".as_ptr(), 0, c"tell".as_ptr());
            }
        });
    }
}
