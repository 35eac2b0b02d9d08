//! `CREATE TABLE … AS SELECT … FROM ft`, and `SELECT … INTO`.
//!
//! ```text
//!   ExecutorRun ─► look ─► rStartup, which creates the table ─► first row? ─┬─ not eligible: the plan runs
//!                                                                           └─ else: the load, and no row
//! ```
//!
//! The planner sees an ordinary SELECT. Its rows go to a receiver that creates the table when it starts, and then
//! stores row after row (createas.c). So this module enters in ExecutorRun, and reads the source from the plan: a scan
//! of one file, alone or below a Gather, since a SELECT may be parallel. The hook is present from the first statement
//! of a connection on, because planning that statement loads the library at the latest.
//!
//! The table is new in the transaction, no other session sees it, and it has no index and no trigger yet.

use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys;

use super::eligibility::expression::of_expression;
use super::eligibility::{Answer, no, of_tables, without_relabels};
use super::insertion::{EXPRESSION, Insertion};
use super::node;
use super::run;
use super::translate::to_row;
use crate::error::OrRaise;
use crate::guc::{self, DirectInsert};
use crate::load::wrapper::Wrapper;
use crate::program::Nodes;
use crate::server::compat;
use crate::server::memory_context::MemoryContext;
use crate::server::node::Node;
use crate::server::refusal::refuse;
use crate::server::relation::Relation;
use crate::server::unguarded::{self, guarded};

/// Installs the hook. Called once, when the library is loaded.
pub fn register() {
    compat::install_executor_hook(look);
}

/// A query whose plan a load replaces. The innermost one is [`CURRENT`] from the moment it is found until its plan is
/// asked for the first row. In between, no user code runs except what creates the table.
#[derive(Debug)]
struct Taken {
    receiver: *mut pg_sys::DestReceiver,
    insertion: Insertion,
    /// The original ExecProcNode of the plan's top node.
    node: pg_sys::ExecProcNodeMtd,
}

static CURRENT: AtomicPtr<Taken> = AtomicPtr::new(null_mut());

/// # Safety
/// A plain frame; a query that has been started and will run to its end.
unsafe extern "C-unwind" fn look(query: *mut pg_sys::QueryDesc) {
    // A plain frame: nothing here has a destructor.
    // SAFETY: the executor's own structures; its objects live as long as its memory.
    unsafe {
        let receiver = (*query).dest;
        let is_into =
            (*query).operation == pg_sys::CmdType::CMD_SELECT && (*receiver).mydest == pg_sys::CommandDest::DestIntoRel;
        if !is_into || guc::direct_insert() == DirectInsert::Off {
            return;
        }
        let (Some(statement), Some(top)) = (Node::from_raw((*query).plannedstmt), Node::from_raw((*query).planstate))
        else {
            return;
        };
        let caller = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = top.estate().es_query_cxt;
        let taken = guarded(|| take(statement, top, receiver));
        if !taken.is_null() {
            (*top.as_ptr()).ExecProcNode = Some(first_row);
            CURRENT.store(taken, Relaxed);
        }
        pg_sys::CurrentMemoryContext = caller;
    }
}

/// Called for the first row of the plan's top node: the table has been created.
///
/// # Safety
/// Called by the executor, with the node of the query that was inspected last.
unsafe extern "C-unwind" fn first_row(state: *mut pg_sys::PlanState) -> *mut pg_sys::TupleTableSlot {
    // A plain frame: nothing here has a destructor.
    // SAFETY: `look` has set the current query, for this node; the receiver has created its table.
    unsafe {
        let taken = CURRENT.load(Relaxed);
        (*state).ExecProcNode = (*taken).node;
        let table = Relation::from_raw(compat::into_relation((*taken).receiver));
        let top = Node::from_raw(state).filter(|top| guarded(|| suits(top.estate(), &mut (*taken).insertion, table)));
        let Some(top) = top else {
            return match (*state).ExecProcNode {
                Some(process) => process(state),
                None => null_mut(),
            };
        };
        // A plan with a Gather runs in parallel mode, which forbids some steps of a load.
        let is_parallel = top.estate().es_use_parallel_mode;
        if is_parallel {
            unguarded::ExitParallelMode();
        }
        if let Some(scan) = scan_below(top) {
            let own = scan.state().as_ptr();
            let gather = if own == state { null_mut() } else { state };
            let instruments = [gather, own].map(|node| if node.is_null() { null_mut() } else { (*node).instrument });
            for instrument in instruments.into_iter().filter(|instrument| !instrument.is_null()) {
                unguarded::InstrStartNode(instrument);
            }
            guarded(|| Wrapper::get().and_then(|wrapper| (wrapper.replace)(scan)).or_raise());
            let outcome = run::run(std::slice::from_ref(&(*taken).insertion), None, None, null_mut());
            (*top.estate().as_ptr()).es_processed = outcome.rows;
            for instrument in instruments.into_iter().filter(|instrument| !instrument.is_null()) {
                unguarded::InstrStopNode(instrument, outcome.rows as f64);
            }
            node::count_filtered(scan.state(), &outcome);
            guarded(|| (Wrapper::get().or_raise().count)(scan, outcome.bytes, outcome.rejected));
        }
        if is_parallel {
            unguarded::EnterParallelMode();
        }
        null_mut()
    }
}

/// The plan's expressions, over a row of the foreign table. Guarded.
fn nodes(scan: Node<'_, pg_sys::ForeignScan>, insertion: &Insertion) -> Nodes {
    let row = |nodes| to_row(nodes, scan.scan.scanrelid);
    let targets = insertion.entries(scan.plan().targetlist()).map(row);
    Nodes { targets: targets.copied(), quals: scan.plan().qual().map(row).copied(), ..Nodes::NONE }
}

/// The state for a query that a load can run, whose receiver creates a table; else null. Guarded.
fn take(
    statement: Node<'_, pg_sys::PlannedStmt>,
    top: Node<'_, pg_sys::PlanState>,
    receiver: *mut pg_sys::DestReceiver,
) -> *mut Taken {
    let is_ours =
        || scan_below(top).is_some_and(|scan| Wrapper::get().is_ok_and(|wrapper| (wrapper.is_replaceable)(scan)));
    match source_of(statement, top.estate().es_top_eflags.cast_unsigned(), is_ours) {
        Ok(insertion) => MemoryContext::current().keep(Taken { receiver, insertion, node: top.ExecProcNode }),
        Err(why) => {
            refuse(top.estate(), &why);
            null_mut()
        }
    }
}

/// Checks the plan of a query. Guarded.
fn source_of(
    statement: Node<'_, pg_sys::PlannedStmt>,
    flags: u32,
    is_ours: impl FnOnce() -> bool,
) -> Answer<Insertion> {
    let no_data = flags & pg_sys::EXEC_FLAG_WITH_NO_DATA != 0;
    if no_data || statement.hasModifyingCTE || !statement.subplans.is_null() || !statement.rowMarks.is_null() {
        return no("The SELECT does more than read rows.");
    }
    let Some(plan) = statement.plan() else { return no("The SELECT does more than read rows.") };
    let scan = scan_of(plan)?;
    let place = scan.scan.scanrelid as usize;
    let foreign = match place.checked_sub(1).and_then(|i| statement.rtable().get(i)) {
        Some(entry) if is_ours() => entry.relid,
        _ => return no("The SELECT reads another table."),
    };
    let quals = scan.plan().qual();
    quals.node().map_or(Ok(()), |quals| of_expression(quals, place, foreign))?;
    let mut columns = Vec::new();
    for entry in scan.plan().targetlist().iter() {
        if entry.resjunk {
            return no("The target list is not as expected.");
        }
        of_expression(entry.expr(), place, foreign)?;
        // A relabeled value is stored unchanged.
        let var = without_relabels(entry.expr()).as_a::<pg_sys::Var>();
        columns.push(var.map_or(EXPRESSION, |var| i32::from(var.varattno)));
    }
    if columns.is_empty() {
        return no("The new table has no columns.");
    }
    let target = pg_sys::InvalidOid;
    let insertion = Insertion { target, foreign, place, filters: !quals.is_empty(), joins: None, columns, own: None };
    let own = Some(nodes(scan, &insertion));
    Ok(Insertion { own, ..insertion })
}

/// The only scan of the plan.
fn scan_of(top: Node<'_, pg_sys::Plan>) -> Answer<Node<'_, pg_sys::ForeignScan>> {
    let mut plan = top;
    if plan.tag() == pg_sys::NodeTag::T_Gather {
        let passes = plan.targetlist().iter().enumerate().all(|(i, entry)| {
            entry
                .expr()
                .as_a::<pg_sys::Var>()
                .is_some_and(|var| var.varno == pg_sys::OUTER_VAR && usize::try_from(var.varattno) == Ok(i + 1))
        });
        let same = |below: &Node<'_, pg_sys::Plan>| below.targetlist().len() == top.targetlist().len();
        match plan.lefttree().filter(same) {
            Some(below) if passes && plan.qual().is_empty() && plan.initPlan.is_null() => plan = below,
            _ => return no("The SELECT does more than read rows."),
        }
    }
    match plan.as_a::<pg_sys::ForeignScan>() {
        Some(scan) if plan.initPlan.is_null() && scan.scan.scanrelid != 0 => Ok(scan),
        _ => no("The SELECT does more than read rows."),
    }
}

/// The state of the plan's only scan.
fn scan_below(top: Node<'_, pg_sys::PlanState>) -> Option<Node<'_, pg_sys::ForeignScanState>> {
    let is_gather = top.node().tag() == pg_sys::NodeTag::T_GatherState;
    if is_gather { top.lefttree()? } else { top }.as_a()
}

/// Can a load fill the new table? Guarded.
fn suits(query: Node<'_, pg_sys::EState>, insertion: &mut Insertion, relation: Relation<'_>) -> bool {
    insertion.target = relation.oid();
    let answer = match relation.kind() {
        pg_sys::RELKIND_RELATION => of_tables(std::slice::from_ref(insertion), true),
        _ => no("The new relation is not a table."),
    };
    answer.inspect_err(|why| refuse(query, why)).is_ok()
}
