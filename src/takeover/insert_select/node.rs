//! The custom node that replaces ModifyTable.
//!
//! It returns no row. ModifyTable is its child, and is initialized only if it runs.

use std::ffi::{CStr, CString};
use std::ptr::null_mut;

use pgrx::pg_sys;

use super::eligibility::{self, joins, parts};
use super::insertion::{Insertion, Reach};
use super::run::{self, LoadOutcome};
use crate::error::Result;
use crate::guc::{self, DirectInsert};
use crate::input::source::Location;
use crate::load::direct::{self, Statement};
use crate::load::wrapper::Wrapper;
use crate::server::callback::{Argument, Unused, callback};
use crate::server::custom_scan::{self, Methods, NO_CALLBACKS};
use crate::server::explain::Explain;
use crate::server::lookup::qualified_name;
use crate::server::memory_context::MemoryContext;
use crate::server::node::make::{columns, node, targets};
use crate::server::node::{Node, NodeList};
use crate::server::planner::Planner;
use crate::server::relation::{KeptRelation, OpenRelation};
use crate::server::server_text::to_server;

const NAME: &CStr = c"Direct Insert";

pub static PATH: Methods<pg_sys::CustomPathMethods> = Methods(pg_sys::CustomPathMethods {
    CustomName: NAME.as_ptr(),
    PlanCustomPath: Some(callback!(
        plan_path,
        root: Planner<'_>,
        rel: Unused<pg_sys::RelOptInfo>,
        path: Node<'_, pg_sys::CustomPath>,
        targets: NodeList<'_>,
        clauses: NodeList<'_>,
        plans: NodeList<'_, pg_sys::Plan> => *mut pg_sys::Plan
    )),
    ReparameterizeCustomPathByChild: None,
});

static SCAN: Methods<pg_sys::CustomScanMethods> = Methods(pg_sys::CustomScanMethods {
    CustomName: NAME.as_ptr(),
    CreateCustomScanState: Some(callback!(create_state, plan: Unused<pg_sys::CustomScan> => *mut pg_sys::Node)),
});

static EXECUTION: Methods<pg_sys::CustomExecMethods> = Methods(pg_sys::CustomExecMethods {
    CustomName: NAME.as_ptr(),
    BeginCustomScan: Some(callback!(begin, state: &mut State, estate: Node<'_, pg_sys::EState>, flags: i32)),
    ExecCustomScan: Some(execute),
    EndCustomScan: Some(callback!(end, state: &mut State)),
    ReScanCustomScan: Some(rescan),
    ExplainCustomScan: Some(callback!(explain, state: &mut State, ancestors: NodeList<'_>, es: Explain<'_>)),
    ..NO_CALLBACKS
});

/// Registers the node, so that serialized plans can be read. Called once, when the library is loaded. Guarded.
pub fn register() {
    custom_scan::register(&SCAN);
}

/// Called by the planner, with a path made by `take_over`, and the plans of the paths below it.
fn plan_path(
    root: Planner<'_>,
    _rel: Unused<pg_sys::RelOptInfo>,
    path: Node<'_, pg_sys::CustomPath>,
    _targets: NodeList<'_>,
    _clauses: NodeList<'_>,
    plans: NodeList<'_, pg_sys::Plan>,
) -> Result<*mut pg_sys::Plan> {
    let mut below = plans.first().and_then(|modify| modify.lefttree());
    let mut insertions = Insertion::all_of_list(path.private().of());
    // An entry for each attribute. The planner labels them in every node except ModifyTable, and EXPLAIN shows them.
    let list = root.processed_tlist().map(Node::copy);
    let mut quals = NodeList::EMPTY;
    let of_scan = match insertions.first() {
        // The plan's entries are for EXPLAIN only.
        Some(insertion) if insertion.joins.is_some() => variables_of(list),
        Some(insertion) if insertion.own.is_none() => {
            while let Some(plan) = below.filter(|plan| plan.tag() == pg_sys::NodeTag::T_Result) {
                below = plan.lefttree();
            }
            quals = below.map_or(NodeList::EMPTY, |plan| plan.qual().map(Node::copy));
            // Turns the plan's expressions into ones over a row of the foreign table, the only one that the query reads.
            let place = i32::try_from(insertion.place).unwrap_or(0);
            columns(place, OpenRelation::locked(insertion.foreign).get().descriptor())
        }
        _ => {
            // Each table has its own planned expressions; those of the plan are for EXPLAIN only.
            if !set_conditions(&mut insertions, root, below) {
                insertions.clear();
            }
            variables_of(list)
        }
    };
    let mut scan = custom_scan::plan(&SCAN, list, quals);
    (scan.custom_scan_tlist, scan.custom_plans) = (of_scan.as_ptr(), plans.as_ptr());
    scan.custom_private = Insertion::all_to_list(&insertions).as_ptr();
    // SAFETY: the fields of a plan.
    Ok(unsafe { node(scan) }.as_ptr().cast())
}

/// Takes each table's conditions from the plan made of the paths below this node's. False if the plan is not as expected.
/// Guarded.
fn set_conditions(
    insertions: &mut [Insertion],
    root: Node<'_, pg_sys::PlannerInfo>,
    plan: Option<Node<'_, pg_sys::Plan>>,
) -> bool {
    let mut found = Vec::new();
    let is_known = parts::conditions(root, plan, NodeList::EMPTY, &mut found);
    let are_ours = |(insertion, (place, quals)): (&Insertion, &(usize, NodeList<'_>))| {
        insertion.place == *place && insertion.filters != quals.is_empty()
    };
    if !is_known || found.len() != insertions.len() || !insertions.iter().zip(&found).all(are_ours) {
        return false;
    }
    for (insertion, (_, quals)) in insertions.iter_mut().zip(found) {
        if let Some(nodes) = &mut insertion.own {
            nodes.quals = quals.copied();
        }
    }
    true
}

/// The variables of a target list, as a target list. Guarded.
fn variables_of(list: NodeList<'_, pg_sys::TargetEntry>) -> NodeList<'_, pg_sys::TargetEntry> {
    targets(list.node().map_or(NodeList::EMPTY, |list| list.variables(pg_sys::PVC_RECURSE_PLACEHOLDERS)))
}

/// The state of the node.
#[repr(C)]
struct State {
    custom: pg_sys::CustomScanState,
    /// Empty until execution begins; dropped with the query's memory.
    insertions: &'static [Insertion],
    /// Core's node, if it runs; then `why` is the reason.
    child: *mut pg_sys::PlanState,
    why: &'static CStr,
    /// The plan that joins the file's rows; else null.
    joined: *mut pg_sys::PlanState,
    /// The open foreign tables, so that this session does not change them meanwhile.
    foreign: Option<&'static mut Vec<KeptRelation>>,
    is_done: bool,
    /// Set when execution begins.
    statement: Option<Statement>,
    outcome: LoadOutcome,
}

// SAFETY: the server passes a state that `create_state` has made to one callback at a time.
unsafe impl Argument for &mut State {
    type Raw = *mut pg_sys::CustomScanState;
}

impl State {
    const fn plan(&self) -> Option<Node<'static, pg_sys::CustomScan>> {
        // SAFETY: the node's plan, made by `plan_path`, which outlives the node.
        unsafe { Node::from_raw(self.custom.ss.ps.plan.cast()) }
    }

    /// Begins the execution of a plan below this node. Guarded.
    fn begin_below(
        &mut self,
        plan: Node<'_, pg_sys::Plan>,
        estate: Node<'_, pg_sys::EState>,
        flags: i32,
    ) -> *mut pg_sys::PlanState {
        // SAFETY: guarded calls with a plan of this execution.
        unsafe {
            let below = pg_sys::ExecInitNode(plan.as_ptr(), estate.as_ptr(), flags);
            self.custom.custom_ps = pg_sys::lappend(null_mut(), below.cast());
            below
        }
    }

    /// Sets es_processed after the load, if the statement counts these rows.
    fn count(&mut self) {
        let modify = self.plan().and_then(|plan| plan.plans().first()?.as_a::<pg_sys::ModifyTable>());
        let ps = &raw mut self.custom.ss.ps;
        // SAFETY: the node's own state, and that of its execution.
        unsafe {
            if modify.is_some_and(|modify| modify.canSetTag) {
                (*(*ps).state).es_processed += self.outcome.rows;
            }
            if let Some(node) = Node::from_raw(ps).filter(|_| self.joined.is_null()) {
                count_filtered(node, &self.outcome);
            }
        }
    }
}

/// Called by the executor.
fn create_state(_plan: Unused<pg_sys::CustomScan>) -> Result<*mut pg_sys::Node> {
    let state = State {
        custom: custom_scan::state(&EXECUTION),
        insertions: &[],
        child: null_mut(),
        why: c"",
        joined: null_mut(),
        foreign: None,
        is_done: false,
        statement: None,
        outcome: LoadOutcome::default(),
    };
    // SAFETY: the fields of a state.
    Ok(unsafe { node(state) }.node().as_ptr())
}

/// Called by the executor with a state made by [`create_state`].
fn begin(state: &mut State, estate: Node<'_, pg_sys::EState>, flags: i32) -> Result<()> {
    let Some(plan) = state.plan() else { return Ok(()) };
    let insertions = Insertion::all_of_list(plan.private().of());
    let Some(modify) = plan.plans().first() else { return Ok(()) };
    let is_run = flags.cast_unsigned() & pg_sys::EXEC_FLAG_EXPLAIN_ONLY == 0;
    let mut answer = if guc::direct_insert() != DirectInsert::Off {
        eligibility::of_tables(&insertions, is_run)
            .and_then(|()| insertions.first().map_or(Ok(()), |insertion| eligibility::of_plan(insertion.target)))
    } else {
        Err("pg_bulk.direct_insert is off".into())
    };
    if let Some(insertion) = insertions.first().filter(|insertion| insertion.joins.is_some() && answer.is_ok()) {
        match joins::plan(modify, insertion, estate.entries()) {
            Ok(plan) => state.joined = state.begin_below(plan, estate, flags),
            Err(why) => answer = Err(why),
        }
    }
    // SAFETY: the state of the execution outlives the node.
    let memory = unsafe { MemoryContext::of_query(estate.as_ptr()) };
    state.foreign =
        Some(memory.keep(insertions.iter().map(|insertion| KeptRelation::locked(insertion.foreign)).collect()));
    state.insertions = memory.keep(insertions);
    match answer {
        Ok(()) if is_run => {
            let targets = modify.as_a::<pg_sys::ModifyTable>().map(|modify| modify.targets());
            let place = targets.and_then(|targets| targets.iter().next()).unwrap_or(0);
            // SAFETY: the state of the execution outlives the statement; the executor has locked the target.
            state.statement = Some(unsafe { Statement::begin(estate.as_ptr(), place.cast_unsigned()) });
        }
        Ok(()) => (),
        Err(why) => {
            state.why = memory.keep(to_server(why.trim_end_matches('.')));
            state.child = state.begin_below(modify, estate, flags);
        }
    }
    Ok(())
}

/// # Safety
/// Called by the executor, with a state that has begun.
unsafe extern "C-unwind" fn execute(node: *mut pg_sys::CustomScanState) -> *mut pg_sys::TupleTableSlot {
    // A plain frame: nothing here has a destructor.
    // SAFETY: the executor's own structures.
    unsafe {
        let state = node.cast::<State>();
        let child = (*state).child;
        if !child.is_null() {
            // ExecProcNode (executor.h) of a node without parameters.
            return match (*child).ExecProcNode {
                Some(process) => process(child),
                None => null_mut(),
            };
        }
        if !(*state).is_done {
            (*state).is_done = true;
            let plan = Node::from_raw((*node).ss.ps.plan);
            (*state).outcome = run::run((*state).insertions, plan, (*state).statement, (*state).joined);
            (*state).count();
        }
        null_mut()
    }
}

/// Sets the number of filtered rows for EXPLAIN ANALYZE.
pub fn count_filtered(node: Node<'_, pg_sys::PlanState>, outcome: &LoadOutcome) {
    // SAFETY: a node has an instrument, or null.
    if let Some(instrument) = unsafe { node.instrument.as_mut() } {
        instrument.nfiltered1 += outcome.filtered as f64;
    }
}

/// Called by the executor with a state made by [`create_state`].
fn end(state: &mut State) -> Result<()> {
    for below in [state.child, state.joined].into_iter().filter(|below| !below.is_null()) {
        // SAFETY: a guarded call on a node that `begin` has begun.
        unsafe { pg_sys::ExecEndNode(below) };
    }
    state.foreign.take().into_iter().flat_map(std::mem::take).for_each(KeptRelation::close);
    Ok(())
}

/// The executor never rescans an INSERT.
extern "C-unwind" fn rescan(_node: *mut pg_sys::CustomScanState) {}

/// Called by EXPLAIN, with a state that has begun.
fn explain(state: &mut State, _ancestors: NodeList<'_>, es: Explain<'_>) -> Result<()> {
    let insertions = state.insertions;
    let runs = state.child.is_null();
    if let Some(first) = insertions.first() {
        es.string(c"Target", &qualified_name(first.target).unwrap_or_default());
    }
    match insertions {
        [] => (),
        [only] => explain_source(only, runs, es)?,
        several => {
            // In formats other than text, keys must be unique.
            let show = |insertion| es.group(c"Source", None, || explain_source(insertion, runs, es));
            es.group(c"Sources", Some(c"Sources"), || several.iter().try_for_each(show))?;
        }
    }
    if !runs {
        let why = [b"no (", state.why.to_bytes(), b")"].concat();
        es.string(c"Direct Insert", &CString::new(why).unwrap_or_default());
        return Ok(());
    }
    if es.is_analyze() {
        let outcome = state.outcome;
        es.number(c"Workers Launched", None, outcome.workers as u64);
        es.number(c"Rows Inserted", None, outcome.rows);
        if outcome.rejected > 0 {
            es.number(c"Rows Skipped", None, outcome.rejected);
        }
        es.number(c"Pages Appended", None, outcome.pages);
        es.number(c"Bytes Read", None, outcome.bytes);
        if outcome.exclusively {
            es.boolean(c"Exclusive", true);
        }
    }
    Ok(())
}

/// Shows the file of a foreign table. Guarded.
fn explain_source(insertion: &Insertion, runs: bool, es: Explain<'_>) -> Result<()> {
    es.string(c"Foreign Table", &qualified_name(insertion.foreign).unwrap_or_default());
    if !runs {
        return Ok(());
    }
    let (location, copy) = (Wrapper::get()?.file)(insertion.foreign)?;
    match &location {
        Location::Client(_) => return Ok(()),
        Location::Program(command) => es.string(c"Foreign Program", command),
        file => es.string(c"Foreign File", file.name()),
    }
    if let Ok(Some(list)) = location.files() {
        es.number(c"Foreign Files", None, list.files.len() as u64);
    }
    if es.is_verbose() {
        let size = location.divided_size(copy.coding()).filter(|_| insertion.joins != Some(Reach::Leader));
        es.number(c"Workers Planned", None, size.map_or(0, |size| direct::workers_for(None, size)) as u64);
    }
    Ok(())
}
