//! Runs an INSERT as a load.

use std::ffi::CString;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::insertion::{Insertion, Reach};
use crate::error::{Error, OrRaise};
use crate::guc::{self, DirectInsert};
use crate::load::direct::{Joined, Statement};
use crate::load::options::LoadOptions;
use crate::load::source::FurtherFile;
use crate::load::target::{Target, TargetKind};
use crate::load::{Load, Program, Request, Writer, direct, memory_context, run_statement, source, summary};
use crate::program::Nodes;
use crate::program::copy_question;
use crate::program::mapping::Mapping;
use crate::server::node::Node;
use crate::server::relation::Relation;
use crate::server::unguarded::guarded;

/// The result of the load.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoadOutcome {
    pub rows: u64,
    pub filtered: u64,
    pub rejected: u64,
    pub bytes: u64,
    pub pages: u64,
    pub workers: usize,
    /// The table was empty, and the load had exclusive access to it.
    pub exclusively: bool,
}

/// Runs the load.
///
/// # Safety
/// A plain frame, in the execution of the statement, or of one that creates the table; the tables are locked, and the
/// statement is eligible. `plan` has the nodes of insertions without their own; `statement` is the executor's state of
/// an INSERT, and `joined` the plan that joins the file's rows, or null.
pub unsafe fn run(
    insertions: *const Vec<Insertion>,
    plan: *const pg_sys::CustomScan,
    statement: Option<Statement>,
    joined: *mut pg_sys::PlanState,
    outcome: *mut LoadOutcome,
) {
    // SAFETY: this function's contract covers the insertions; the load is used by one step at a time.
    unsafe {
        let caller = pg_sys::CurrentMemoryContext;
        let load = guarded(|| begin(&*insertions));
        (*load).statement = statement;
        guarded(|| set_joined(&mut (*load).program, joined, &*insertions));
        pg_sys::CurrentMemoryContext = (*load).memory;
        guarded(|| open(&mut *load, &*insertions, plan));
        (*outcome).exclusively = guarded(|| renew(&mut *load));
        run_statement(load);
        pg_sys::CurrentMemoryContext = caller;
        guarded(|| end(load, &mut *outcome));
    }
}

/// # Safety
/// As [`run`]. Guarded.
unsafe fn set_joined(program: &mut Program, joined: *mut pg_sys::PlanState, insertions: &[Insertion]) {
    // SAFETY: an insertion that joins has a plan, by this function's contract.
    unsafe {
        let reach = insertions.first().and_then(|insertion| insertion.joins);
        program.joined = reach.and_then(|reach| Joined::new(joined, reach == Reach::Everywhere));
        if reach.is_some() && program.joined.is_none() {
            Error::new(Code::ERRCODE_INTERNAL_ERROR, "the plan reads no file").raise();
        }
    }
}

/// Makes the load, which is dropped with its memory context. Guarded.
fn begin(insertions: &[Insertion]) -> *mut Load {
    let none = || Error::new(Code::ERRCODE_INTERNAL_ERROR, "there is nothing to insert");
    let insertion = insertions.first().ok_or_else(none).or_raise();
    let (options, path) = options_of(insertion);
    let mut target = Target::open(insertion.target, &options).or_raise();
    target.close();
    let memory = memory_context();
    let load = Load { writer: Writer::Direct, ..Load::new(Request::new(options, path), target, memory) };
    PgMemoryContexts::For(memory).leak_and_drop_on_delete(load)
}

/// The options of an insertion's foreign table, and the path of its file. Guarded.
fn options_of(insertion: &Insertion) -> (LoadOptions, CString) {
    let options = LoadOptions::of_foreign_table(insertion.foreign).or_raise();
    let path = options.location.name().to_owned();
    (options, path)
}

/// The mapping of fields to attributes, and the expressions over them. Guarded.
///
/// # Safety
/// As [`run`].
unsafe fn mapping_of(insertion: &Insertion, plan: *const pg_sys::CustomScan) -> (Mapping, Option<Nodes>) {
    // SAFETY: this function's contract covers both arguments; guarded calls on a table that is locked.
    unsafe {
        let mut mapping = insertion.mapping();
        let nodes = insertion.nodes(Node::from_raw(plan.cast_mut().cast()));
        if let Some(nodes) = nodes {
            nodes.complete(&mut mapping);
        }
        (mapping, nodes)
    }
}

/// # Safety
/// As [`run`], with a load that has begun and whose memory context is current. Guarded.
unsafe fn open(load: &mut Load, insertions: &[Insertion], plan: *const pg_sys::CustomScan) {
    // SAFETY: this function's contract covers the plan; guarded calls on a table that is locked.
    unsafe {
        load.target.reopen();
        let Some((first, others)) = insertions.split_first() else { return };
        (load.mapping, load.program.projection) = mapping_of(first, plan);
        if let Some(joined) = load.program.joined {
            joined.complete(&mut load.mapping);
        }
        for insertion in others {
            let (options, path) = options_of(insertion);
            let (mapping, projection) = mapping_of(insertion, plan);
            load.request.also.push(summary::described(&options.location));
            load.more.push(FurtherFile { options, path, mapping, projection });
        }
        for insertion in insertions {
            copy_question::may_read(&options_of(insertion).0.location);
        }
        load.rows =
            Some(source::open_rows(load.target.relation, &load.request.options, Some(&load.mapping)).or_raise());
        load.begin_rows();
    }
}

/// Gives an empty table a new file, as a call of bulk_load does, if `pg_bulk.direct_insert` is `exclusive`.
///
/// # Safety
/// As [`run`], with a load whose table and file are open. Guarded.
unsafe fn renew(load: &mut Load) -> bool {
    // SAFETY: only the load and its statement refer to the table, or it is left alone.
    unsafe {
        let size = load.rows.as_ref().and_then(|rows| rows.stream().file_size());
        guc::direct_insert() == DirectInsert::Exclusive
            && load.target.kind == TargetKind::Plain
            && size.unwrap_or(0) >= direct::WORTH_EXCLUSIVE
            && direct::renew(Relation::from_raw(load.target.relation), 1 + i32::from(load.statement.is_some()))
                .or_raise()
    }
}

/// Takes the result of the load, and deletes it. Guarded.
///
/// # Safety
/// As [`run`], with a load that is done. The current memory context is not the load's.
unsafe fn end(load: *mut Load, outcome: &mut LoadOutcome) {
    // SAFETY: this function's contract covers the load, which is dropped with its context.
    unsafe {
        let counts = &(*load).measures.counts;
        outcome.rows = counts.loaded;
        outcome.filtered = counts.filtered;
        outcome.rejected = counts.rejected;
        outcome.bytes = counts.bytes_read;
        outcome.pages = counts.pages;
        outcome.workers = counts.workers;
        pg_sys::MemoryContextDelete((*load).memory);
    }
}
