//! Runs an INSERT as a load.

use std::ffi::CString;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::insertion::{Insertion, Reach};
use crate::error::{Error, OrRaise};
use crate::guc::{self, DirectInsert};
use crate::load::direct::{Joined, Statement};
use crate::load::options::LoadOptions;
use crate::load::source::FurtherFile;
use crate::load::target::{Target, TargetKind};
use crate::load::{Load, Request, Writer, direct, report, run_statement, source};
use crate::program::Nodes;
use crate::program::copy_question;
use crate::program::mapping::Mapping;
use crate::server::memory_context::MemoryContext;
use crate::server::node::Node;
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

impl LoadOutcome {
    fn of(load: &Load) -> LoadOutcome {
        let counts = &load.measures.counts;
        LoadOutcome {
            rows: counts.loaded,
            filtered: counts.filtered,
            rejected: counts.rejected,
            bytes: counts.bytes_read,
            pages: counts.pages,
            workers: counts.workers,
            exclusively: false,
        }
    }
}

/// Runs the load.
///
/// # Safety
/// A plain frame, in the execution of the statement, or of one that creates the table; the tables are locked, and the
/// statement is eligible. `plan` has the nodes of insertions without their own; `statement` is the executor's state of
/// an INSERT, and `joined` the plan that joins the file's rows, or null.
pub unsafe fn run(
    insertions: &[Insertion],
    plan: Option<Node<'_, pg_sys::Plan>>,
    statement: Option<Statement>,
    joined: *mut pg_sys::PlanState,
) -> LoadOutcome {
    // SAFETY: the frame is plain; the load is used by one step at a time. An insertion that joins has a plan. The last step
    // ends the use of the load.
    unsafe {
        let caller = pg_sys::CurrentMemoryContext;
        let load = guarded(|| begin(insertions));
        (*load).statement = statement;
        if let Some(reach) = insertions.first().and_then(|insertion| insertion.joins) {
            let no_file = || Error::new(Code::ERRCODE_INTERNAL_ERROR, "the plan reads no file");
            let joined = guarded(|| Joined::new(joined, reach == Reach::Everywhere).ok_or_else(no_file).or_raise());
            (*load).program.joined = Some(joined);
        }
        pg_sys::CurrentMemoryContext = (*load).memory.as_ptr();
        guarded(|| open(&mut *load, insertions, plan));
        let exclusively = guarded(|| renew(&mut *load));
        run_statement(load);
        pg_sys::CurrentMemoryContext = caller;
        let outcome = LoadOutcome { exclusively, ..LoadOutcome::of(&*load) };
        guarded(|| (*load).memory.delete());
        outcome
    }
}

/// Makes the load, which is dropped with its memory context. Guarded.
fn begin(insertions: &[Insertion]) -> *mut Load {
    let none = || Error::new(Code::ERRCODE_INTERNAL_ERROR, "there is nothing to insert");
    let insertion = insertions.first().ok_or_else(none).or_raise();
    let (options, path) = options_of(insertion);
    let mut target = Target::open(insertion.target, &options).or_raise();
    target.close();
    let memory = MemoryContext::current().child(c"bulk_load");
    memory.keep(Load { writer: Writer::Direct, ..Load::new(Request::new(options, path), target, memory) })
}

/// The options of an insertion's foreign table, and the path of its file. Guarded.
fn options_of(insertion: &Insertion) -> (LoadOptions, CString) {
    let options = LoadOptions::of_foreign_table(insertion.foreign).or_raise();
    let path = options.location.name().to_owned();
    (options, path)
}

/// The mapping of fields to attributes, and the expressions over them. Guarded.
fn mapping_of(insertion: &Insertion, plan: Option<Node<'_, pg_sys::Plan>>) -> (Mapping, Option<Nodes>) {
    let mut mapping = insertion.mapping();
    let nodes = insertion.nodes(plan);
    if let Some(nodes) = nodes {
        nodes.complete(&mut mapping);
    }
    (mapping, nodes)
}

/// Opens table and rows of a load that has begun, and whose memory context is current. Guarded.
fn open(load: &mut Load, insertions: &[Insertion], plan: Option<Node<'_, pg_sys::Plan>>) {
    load.target.reopen();
    let Some((first, others)) = insertions.split_first() else { return };
    (load.mapping, load.program.projection) = mapping_of(first, plan);
    if let Some(joined) = load.program.joined {
        joined.complete(&mut load.mapping);
    }
    for insertion in others {
        let (options, path) = options_of(insertion);
        let (mapping, projection) = mapping_of(insertion, plan);
        load.request.also.push(report::described(&options.location));
        load.more.push(FurtherFile { options, path, mapping, projection });
    }
    for insertion in insertions {
        copy_question::may_read(&options_of(insertion).0.location);
    }
    let relation = load.target.relation().or_raise();
    load.rows = Some(source::open_rows(relation, &load.request.options, Some(&load.mapping)).or_raise());
    load.begin_rows();
}

/// Gives an empty table a new file, as a call of bulk_load does, if `pg_bulk.direct_insert` is `exclusive`. Guarded.
fn renew(load: &mut Load) -> bool {
    let size = load.rows.as_ref().and_then(|rows| rows.stream().file_size());
    guc::direct_insert() == DirectInsert::Exclusive
        && load.target.kind == TargetKind::Plain
        && size.unwrap_or(0) >= direct::WORTH_EXCLUSIVE
        && direct::renew(load.target.relation().or_raise(), 1 + i32::from(load.statement.is_some())).or_raise()
}
