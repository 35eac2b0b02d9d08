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

use std::ffi::c_char;

use pgrx::pg_sys;

use crate::guc;
use crate::load::{Load, run_statement};
use crate::program::where_clause::{self, WhereClause};
use crate::server::node::Node;
use crate::server::relation::{OpenRelation, Relation};
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
    // SAFETY: the frame is plain, and the statement is valid; results live as long as the current memory context. The load
    // is used by one step at a time, and not after its memory context is deleted.
    unsafe {
        let Some(statement) = Node::from_raw(statement.cast_mut()).and_then(Node::as_a::<pg_sys::CopyStmt>) else {
            return false;
        };
        if !guc::copy() || !statement.is_from {
            return false;
        }
        c::check_stack_depth();
        let Some(relation) = c::guarded(|| consider(statement, watched)) else { return false };
        let mut clause = WhereClause::NONE;
        let state = c::make_parsestate(std::ptr::null_mut());
        (*state).p_sourcetext = query;
        (*state).p_queryEnv = environment;
        if let Some(expression) = statement.clause() {
            let copy = Node::from_raw(c::copyObjectImpl(expression.as_ptr().cast()).cast());
            clause = where_clause::transform(state, relation, copy.unwrap_or(expression));
        }
        let load = c::guarded(|| begin(statement, relation, clause));
        if load.is_null() {
            // The lock is kept, for core.
            c::table_close(relation.as_ptr(), pg_sys::NoLock.cast_signed());
            return false;
        }
        let (caller, memory) = (pg_sys::CurrentMemoryContext, (*load).memory);
        let name = (&raw mut (*(*relation.as_ptr()).rd_rel).relname.data).cast();
        let few = c::in_context(run::before_first_line, name, || c::guarded(|| run::few_of(&mut *load)));
        c::guarded(|| report(statement, few.map(|_| "The data are smaller than pg_bulk.copy_min_size.")));
        if few.is_none() {
            pg_sys::CurrentMemoryContext = memory.as_ptr();
            run_statement(load);
            pg_sys::CurrentMemoryContext = caller;
        }
        let mut rows = (*load).measures.counts.loaded;
        // This drops the load.
        c::guarded(|| memory.delete());
        if let Some(data) = few {
            rows = few::copy(statement, relation, state, clause.conditions.as_ptr(), data);
        }
        if !completion.is_null() {
            (*completion).commandTag = pg_sys::CommandTag::CMDTAG_COPY;
            (*completion).nprocessed = rows;
        }
        // As after every utility command.
        c::CommandCounterIncrement();
        true
    }
}

/// Returns the table of an eligible COPY FROM, locked as COPY locks it. Guarded.
fn consider(statement: Node<'_, pg_sys::CopyStmt>, watched: bool) -> Option<Relation<'static>> {
    // Options and the table come before the condition and the rights: constant folding in the condition may run
    // code, and a library may observe the checks of rights. Core repeats both.
    let options = eligibility::of_statement(statement, watched).and_then(|()| options::of_statement(statement));
    let table = statement.table().ok_or_else(String::new);
    let opened = options.and_then(|(options, _)| {
        // The lock is kept, for core.
        let relation = OpenRelation::named(table?, pg_sys::RowExclusiveLock);
        eligibility::of_table(relation.get(), &options)?;
        Ok(relation)
    });
    match opened {
        // SAFETY: it stays open until the caller closes it.
        Ok(relation) => Some(unsafe { Relation::from_raw(relation.keep()) }),
        Err(why) => {
            report(statement, Some(&why));
            None
        }
    }
}

/// Begins the load of a COPY FROM that was considered. Else null: nothing is done. Guarded.
fn begin(statement: Node<'_, pg_sys::CopyStmt>, relation: Relation<'static>, clause: WhereClause) -> *mut Load {
    run::begin(statement, relation, clause).unwrap_or_else(|why| {
        report(statement, Some(&why));
        std::ptr::null_mut()
    })
}

/// Reports at DEBUG1 whether the statement is a load, and else why not. Guarded.
fn report(statement: Node<'_, pg_sys::CopyStmt>, why: Option<&str>) {
    let level = pg_sys::DEBUG1.cast_signed();
    let name = statement.table().and_then(|table| table.name()).unwrap_or_default();
    // SAFETY: message_level_is_interesting only compares settings. Name and text outlive the message.
    unsafe {
        if !pg_sys::message_level_is_interesting(level) {
            return;
        }
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
