//! `COPY t FROM` as a load.
//!
//! ```text
//!   ProcessUtility ─► consider ─► WHERE ─► begin ─┬─ no: core's COPY, as if nothing had been
//!               statement, table    as DoCopy     rights, rows     └─ yes: the load, and COPY's command tag
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
//! A statement that another library watches, too, is core's if that library's hook would not see it (`process_utility`).

mod few;
mod judge;
mod options;
mod run;

use std::ffi::{CStr, c_char};

use pgrx::{pg_guard, pg_sys};

use super::where_clause::{self, WhereClause};
use crate::guc;
use crate::pg::server_text::to_server;
use crate::pg::unguarded as c;

/// If the statement is a COPY FROM, do it as a load. False if nothing was done. `watched`: by somebody who would not see it.
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
    // SAFETY: this function's contract covers the arguments; what is made here lives as long as the current memory context.
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
            let expression = c::copyObjectImpl((*statement).whereClause.cast());
            clause = where_clause::transform(state, relation, expression.cast());
        }
        let load = begin(statement, relation, &raw const clause);
        if load.is_null() {
            return false;
        }
        let few = run::wait(load, relation);
        decided(statement, !few.data.is_null());
        let rows = if few.data.is_null() {
            run::run(load, caller)
        } else {
            few::copy(statement, relation, state, clause.conditions, few)
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

/// Look at the statement and its table by themselves; if they may be those of a load, the table, locked as COPY locks it. Else null.
///
/// # Safety
/// A COPY FROM.
#[pg_guard]
unsafe extern "C-unwind" fn consider(statement: *const pg_sys::CopyStmt, watched: bool) -> pg_sys::Relation {
    // SAFETY: this function's contract covers the argument; guarded calls.
    unsafe {
        // Options and table before the condition and the rights: what is folded in it may run code, and who watches them is told that
        // they are asked. Core is going to do both, too.
        let options = match judge::of_statement(&*statement, watched).and_then(|()| options::of_statement(&*statement))
        {
            Ok((options, _)) => options,
            Err(why) => {
                tell(statement, Some(&why));
                return std::ptr::null_mut();
            }
        };
        let relation = pg_sys::table_openrv((*statement).relation, pg_sys::RowExclusiveLock.cast_signed());
        let Err(why) = judge::of_table(relation, &options) else { return relation };
        hand_on(statement, relation, &why);
        std::ptr::null_mut()
    }
}

/// Begin the load. Else null, nothing done and the table closed.
///
/// # Safety
/// A COPY FROM that was considered, its table, and its condition.
#[pg_guard]
unsafe extern "C-unwind" fn begin(
    statement: *const pg_sys::CopyStmt,
    relation: pg_sys::Relation,
    clause: *const WhereClause,
) -> *mut super::Load {
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

/// It is core's: say why, and close the table. Guarded.
///
/// # Safety
/// A COPY, and its table, open and locked.
unsafe fn hand_on(statement: *const pg_sys::CopyStmt, relation: pg_sys::Relation, why: &str) {
    // SAFETY: this function's contract covers both arguments; guarded calls. The lock is kept, for core.
    unsafe {
        tell(statement, Some(why));
        pg_sys::table_close(relation, pg_sys::NoLock.cast_signed());
    }
}

/// # Safety
/// A COPY that has begun.
#[pg_guard]
unsafe extern "C-unwind" fn decided(statement: *const pg_sys::CopyStmt, is_few: bool) {
    // SAFETY: passed on.
    unsafe { tell(statement, is_few.then_some("The data are smaller than pg_bulk.copy_min_size.")) }
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
