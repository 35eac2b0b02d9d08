//! `COPY t FROM` as a load.
//!
//! ```text
//!   ProcessUtility ─► consider ───────► WHERE ────► begin ───────┬─ no: core's COPY
//!                     statement, table  as DoCopy   rights, rows └─ yes: the load, and COPY's command tag
//! ```
//!
//! With `pg_bulk.copy` on, the direct writer runs a COPY if the result differs from core's only in the time. In doubt,
//! core runs it. Core also runs each COPY for which it would raise an error before it reads: options, columns, rights
//! to files, FREEZE, a missing file. Errors that DoCopy raises before these are raised here, by the same functions: a
//! missing table, an invalid WHERE, a missing INSERT privilege.
//!
//! A COPY is not a call of bulk_load: it has no load number and no row in `bulk_history`, sends no notices to the
//! client, and takes COPY's lock only. A DEBUG1 message says that the load ran, or why core runs the COPY.
//! `pg_bulk.log_timing` logs the load.
//!
//! If another library watches the statement too and its hook would not be called, core runs the COPY
//! (`process_utility`).

mod eligibility;
mod few;
mod options;
mod run;

use std::ffi::{CStr, c_char};

use pgrx::{pg_guard, pg_sys};

use crate::guc;
use crate::program::where_clause::{self, WhereClause};
use crate::server::node::Node;
use crate::server::relation::Relation;
use crate::server::server_text::to_server;
use crate::server::unguarded as c;

/// Runs a COPY FROM as a load. False if it did nothing. `watched`: another library's hook would miss the statement.
///
/// # Safety
/// A plain frame; a utility statement, and the arguments of ProcessUtility_hook.
pub unsafe fn take(
    statement: *const pg_sys::Node,
    query: *const c_char,
    environment: *mut pg_sys::QueryEnvironment,
    completion: *mut pg_sys::QueryCompletion,
    watched: bool,
) -> bool {
    // SAFETY: this function's contract covers the arguments; results live as long as the current memory context.
    unsafe {
        if (*statement).type_ != pg_sys::NodeTag::T_CopyStmt || !guc::copy() {
            return false;
        }
        let statement = statement.cast::<pg_sys::CopyStmt>();
        if !(*statement).is_from {
            return false;
        }
        c::check_stack_depth();
        let caller = pg_sys::CurrentMemoryContext;
        let relation = consider(statement, watched);
        if relation.is_null() {
            return false;
        }
        let mut clause = WhereClause::NONE;
        let state = c::make_parsestate(std::ptr::null_mut());
        (*state).p_sourcetext = query;
        (*state).p_queryEnv = environment;
        if !(*statement).whereClause.is_null() {
            let expression = Node::from_raw(c::copyObjectImpl((*statement).whereClause.cast()).cast());
            let of = |expression| where_clause::transform(state, Relation::from_raw(relation), expression);
            clause = expression.map_or(clause, of);
        }
        let load = begin(statement, relation, &raw const clause);
        if load.is_null() {
            return false;
        }
        let few = run::wait(load, relation);
        let why = (!few.data.is_null()).then_some("The data are smaller than pg_bulk.copy_min_size.");
        c::guarded(|| report(statement, why));
        let rows = if few.data.is_null() {
            run::run(load, caller)
        } else {
            few::copy(statement, relation, state, clause.conditions.as_ptr(), few)
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

/// Returns the table of an eligible statement, locked as COPY locks it; else null.
///
/// # Safety
/// A COPY FROM.
#[pg_guard]
unsafe extern "C-unwind" fn consider(statement: *const pg_sys::CopyStmt, watched: bool) -> pg_sys::Relation {
    // SAFETY: this function's contract covers the argument; guarded calls.
    unsafe {
        // Options and the table come before the condition and the rights: constant folding in the condition may run
        // code, and a library may observe the checks of rights. Core repeats both.
        let options =
            match eligibility::of_statement(&*statement, watched).and_then(|()| options::of_statement(&*statement)) {
                Ok((options, _)) => options,
                Err(why) => {
                    report(statement, Some(&why));
                    return std::ptr::null_mut();
                }
            };
        let relation = pg_sys::table_openrv((*statement).relation, pg_sys::RowExclusiveLock.cast_signed());
        let Err(why) = eligibility::of_table(Relation::from_raw(relation), &options) else { return relation };
        hand_on(statement, relation, &why);
        std::ptr::null_mut()
    }
}

/// Begins the load. Else null: nothing is done, and the table is closed.
///
/// # Safety
/// A COPY FROM that was considered, its table, and its condition.
#[pg_guard]
unsafe extern "C-unwind" fn begin(
    statement: *const pg_sys::CopyStmt,
    relation: pg_sys::Relation,
    clause: *const WhereClause,
) -> *mut crate::load::Load {
    // SAFETY: this function's contract covers all arguments; guarded calls.
    unsafe {
        match run::begin(&*statement, relation, *clause) {
            Ok(load) => load,
            Err(why) => {
                hand_on(statement, relation, &why);
                std::ptr::null_mut()
            }
        }
    }
}

/// Leaves the COPY to core: logs the reason, and closes the table. Guarded.
///
/// # Safety
/// A COPY, and its table, open and locked.
unsafe fn hand_on(statement: *const pg_sys::CopyStmt, relation: pg_sys::Relation, why: &str) {
    // SAFETY: this function's contract covers both arguments; guarded calls. The lock is kept, for core.
    unsafe {
        report(statement, Some(why));
        pg_sys::table_close(relation, pg_sys::NoLock.cast_signed());
    }
}

/// Reports at DEBUG1 whether the statement is a load, and else why not. Guarded.
///
/// # Safety
/// A COPY.
unsafe fn report(statement: *const pg_sys::CopyStmt, why: Option<&str>) {
    let level = pg_sys::DEBUG1.cast_signed();
    // SAFETY: message_level_is_interesting only compares settings. The name belongs to the statement, and the text
    // outlives the message.
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
                c::errfinish(c"copy.rs".as_ptr(), 0, c"report".as_ptr());
            }
        });
    }
}
