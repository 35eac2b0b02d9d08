//! The custom node that replaces ModifyTable.
//!
//! It returns no row. ModifyTable is its child, and is initialized only if it runs.

use std::ffi::{CStr, CString};
use std::ptr::null_mut;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgList, pg_guard, pg_sys};

use super::eligibility::{self, joins, parts};
use super::insertion::{Insertion, Reach};
use super::run::{self, LoadOutcome};
use crate::error::OrRaise;
use crate::guc::{self, DirectInsert};
use crate::input::source::Location;
use crate::load::direct::{self, Statement};
use crate::load::wrapper::Wrapper;
use crate::server::custom_scan::{Methods, NO_CALLBACKS};
use crate::server::lookup::qualified_name;
use crate::server::node::{Node, NodeList};
use crate::server::relation::OpenRelation;
use crate::server::server_text::to_server;

const NAME: &CStr = c"Direct Insert";

static PATH: Methods<pg_sys::CustomPathMethods> = Methods(pg_sys::CustomPathMethods {
    CustomName: NAME.as_ptr(),
    PlanCustomPath: Some(plan_path),
    ReparameterizeCustomPathByChild: None,
});

static SCAN: Methods<pg_sys::CustomScanMethods> =
    Methods(pg_sys::CustomScanMethods { CustomName: NAME.as_ptr(), CreateCustomScanState: Some(create_state) });

static EXECUTION: Methods<pg_sys::CustomExecMethods> = Methods(pg_sys::CustomExecMethods {
    CustomName: NAME.as_ptr(),
    BeginCustomScan: Some(begin),
    ExecCustomScan: Some(execute),
    EndCustomScan: Some(end),
    ReScanCustomScan: Some(rescan),
    ExplainCustomScan: Some(explain),
    ..NO_CALLBACKS
});

/// Registers the node, so that serialized plans can be read. Called once, when the library is loaded. Guarded.
pub fn register() {
    // SAFETY: a guarded call with a table that lives as long as the process.
    unsafe { pg_sys::RegisterCustomScanMethods(&raw const SCAN.0) }
}

pub fn path_methods() -> *const pg_sys::CustomPathMethods {
    &raw const PATH.0
}

/// # Safety
/// Called by the planner.
#[pg_guard]
unsafe extern "C-unwind" fn plan_path(
    root: *mut pg_sys::PlannerInfo,
    _rel: *mut pg_sys::RelOptInfo,
    path: *mut pg_sys::CustomPath,
    _targets: *mut pg_sys::List,
    _clauses: *mut pg_sys::List,
    plans: *mut pg_sys::List,
) -> *mut pg_sys::Plan {
    // SAFETY: the planner passes its own structures, a path made by `take_over`, and the plans of the paths below it.
    let (root, private, below) = unsafe {
        let Some(root) = Node::from_raw(root) else { return null_mut() };
        (root, NodeList::from_raw((*path).custom_private), NodeList::<pg_sys::Plan>::from_raw(plans))
    };
    let mut below = below.get(0).and_then(|modify| modify.lefttree());
    let mut insertions = Insertion::all_of_list(private);
    let targets = root.processed_tlist().map(Node::copy);
    let mut quals = NodeList::EMPTY;
    let columns = match insertions.first() {
        // The plan's entries are for EXPLAIN only.
        Some(insertion) if insertion.joins.is_some() => variables_of(targets),
        Some(insertion) if insertion.own.is_none() => {
            while let Some(plan) = below.filter(|plan| plan.tag() == pg_sys::NodeTag::T_Result) {
                below = plan.lefttree();
            }
            quals = below.map_or(NodeList::EMPTY, |plan| plan.qual().map(Node::copy));
            // Turns the plan's expressions into ones over a row of the foreign table.
            columns_of(root, insertion.foreign).into_pg()
        }
        _ => {
            // Each table has its own planned expressions; those of the plan are for EXPLAIN only.
            if !set_conditions(&mut insertions, root, below) {
                insertions.clear();
            }
            variables_of(targets)
        }
    };
    // SAFETY: a guarded call. Zeroed memory becomes a valid plan as its fields are set.
    unsafe {
        let scan = pg_sys::palloc0(size_of::<pg_sys::CustomScan>()).cast::<pg_sys::CustomScan>();
        (*scan).scan.plan.type_ = pg_sys::NodeTag::T_CustomScan;
        // An entry for each attribute. The planner labels them in every node except ModifyTable, and EXPLAIN shows
        // them.
        (*scan).scan.plan.targetlist = targets.as_ptr();
        (*scan).scan.plan.qual = quals.as_ptr();
        (*scan).custom_scan_tlist = columns;
        (*scan).custom_plans = plans;
        (*scan).custom_private = Insertion::all_to_list(&insertions);
        (*scan).methods = &raw const SCAN.0;
        scan.cast()
    }
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
fn variables_of(targets: NodeList<'_, pg_sys::TargetEntry>) -> *mut pg_sys::List {
    // SAFETY: guarded calls on a list of nodes.
    unsafe {
        let variables =
            pg_sys::pull_var_clause(targets.as_ptr().cast(), pg_sys::PVC_RECURSE_PLACEHOLDERS.cast_signed());
        pg_sys::add_to_flat_tlist(null_mut(), variables)
    }
}

/// The columns of the foreign table, the only one that the query reads, each at its attribute number. Guarded.
fn columns_of(root: Node<'_, pg_sys::PlannerInfo>, foreign: pg_sys::Oid) -> PgList<pg_sys::TargetEntry> {
    let foreign = OpenRelation::locked(foreign);
    let mut columns = PgList::<pg_sys::TargetEntry>::new();
    // SAFETY: a guarded call on a set of the planner.
    let place = unsafe { pg_sys::bms_singleton_member(root.all_baserels) };
    for form in foreign.get().descriptor().attributes() {
        // SAFETY: guarded calls, which make nodes.
        columns.push(unsafe {
            let expression: *mut pg_sys::Expr = if form.attisdropped {
                pg_sys::makeNullConst(pg_sys::INT4OID, -1, pg_sys::InvalidOid).cast()
            } else {
                let (kind, modifier, collation) = (form.atttypid, form.atttypmod, form.attcollation);
                pg_sys::makeVar(place as _, form.attnum, kind, modifier, collation, 0).cast()
            };
            pg_sys::makeTargetEntry(expression, form.attnum, null_mut(), false)
        });
    }
    columns
}

/// The state of the node.
#[repr(C)]
struct State {
    custom: pg_sys::CustomScanState,
    /// Null until execution begins; dropped with the query's memory.
    insertions: *mut Vec<Insertion>,
    /// Core's node, if it runs; then `why` is the reason.
    child: *mut pg_sys::PlanState,
    why: *mut std::ffi::c_char,
    /// The plan that joins the file's rows; else null.
    joined: *mut pg_sys::PlanState,
    /// The open foreign tables, so that this session does not change them meanwhile.
    foreign: *mut Vec<pg_sys::Relation>,
    is_done: bool,
    /// Set when execution begins.
    statement: Option<Statement>,
    outcome: LoadOutcome,
}

/// # Safety
/// Called by the executor.
#[pg_guard]
unsafe extern "C-unwind" fn create_state(_plan: *mut pg_sys::CustomScan) -> *mut pg_sys::Node {
    // SAFETY: a guarded allocation of this size, zeroed: a valid state once these fields are set.
    unsafe {
        let state = pg_sys::palloc0(size_of::<State>()).cast::<State>();
        (*state).custom.ss.ps.type_ = pg_sys::NodeTag::T_CustomScanState;
        (*state).custom.methods = &raw const EXECUTION.0;
        state.cast()
    }
}

/// # Safety
/// Called by the executor with a state made by [`create_state`].
#[pg_guard]
unsafe extern "C-unwind" fn begin(node: *mut pg_sys::CustomScanState, estate: *mut pg_sys::EState, flags: i32) {
    // SAFETY: the executor's own structures, and a plan made by `plan_path`.
    unsafe {
        let state = node.cast::<State>();
        let plan = (*node).ss.ps.plan.cast::<pg_sys::CustomScan>();
        let insertions = Insertion::all_of_list(NodeList::from_raw((*plan).custom_private));
        let Some(modify) = NodeList::<pg_sys::Plan>::from_raw((*plan).custom_plans).get(0) else { return };
        let mut answer = if guc::direct_insert() != DirectInsert::Off {
            eligibility::of_tables(&insertions, flags.cast_unsigned() & pg_sys::EXEC_FLAG_EXPLAIN_ONLY == 0)
                .and_then(|()| insertions.first().map_or(Ok(()), |insertion| eligibility::of_plan(insertion.target)))
        } else {
            Err("pg_bulk.direct_insert is off".into())
        };
        if let Some(insertion) = insertions.first().filter(|insertion| insertion.joins.is_some() && answer.is_ok()) {
            match joins::plan(modify, insertion, NodeList::from_raw((*estate).es_range_table)) {
                Ok(plan) => {
                    (*state).joined = pg_sys::ExecInitNode(plan.as_ptr(), estate, flags);
                    (*node).custom_ps = pg_sys::lappend(null_mut(), (*state).joined.cast());
                }
                Err(why) => answer = Err(why),
            }
        }
        let foreign = insertions.iter().map(|insertion| OpenRelation::locked(insertion.foreign).keep());
        let foreign: Vec<pg_sys::Relation> = foreign.collect();
        let mut memory = PgMemoryContexts::For((*estate).es_query_cxt);
        (*state).foreign = memory.leak_and_drop_on_delete(foreign);
        (*state).insertions = memory.leak_and_drop_on_delete(insertions);
        if answer.is_ok() && flags.cast_unsigned() & pg_sys::EXEC_FLAG_EXPLAIN_ONLY == 0 {
            let targets = modify.as_a::<pg_sys::ModifyTable>().map(|modify| modify.targets());
            let place = targets.and_then(|targets| targets.ints().next()).unwrap_or(0);
            (*state).statement = Some(Statement::begin(estate, place.cast_unsigned()));
        }
        if let Err(why) = answer {
            (*state).why = pg_sys::pstrdup(to_server(why.trim_end_matches('.')).as_ptr());
            (*state).child = pg_sys::ExecInitNode(modify.as_ptr(), estate, flags);
            (*node).custom_ps = pg_sys::lappend(null_mut(), (*state).child.cast());
        }
    }
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
            let plan = (*node).ss.ps.plan.cast();
            run::run((*state).insertions, plan, (*state).statement, (*state).joined, &raw mut (*state).outcome);
            count(state);
        }
        null_mut()
    }
}

/// Sets es_processed, if the statement counts these rows.
///
/// # Safety
/// A state whose load is done.
unsafe fn count(state: *mut State) {
    // SAFETY: this function's contract covers the state; the plan's child is core's ModifyTable.
    unsafe {
        let ps = &raw mut (*state).custom.ss.ps;
        let plans = (*(*ps).plan.cast::<pg_sys::CustomScan>()).custom_plans;
        let modify = (*(*plans).elements).ptr_value.cast::<pg_sys::ModifyTable>();
        if (*modify).canSetTag {
            (*(*ps).state).es_processed += (*state).outcome.rows;
        }
        if (*state).joined.is_null() {
            count_filtered(ps, &raw const (*state).outcome);
        }
    }
}

/// Sets the number of filtered rows for EXPLAIN ANALYZE.
///
/// # Safety
/// A node whose load is done.
pub unsafe fn count_filtered(ps: *mut pg_sys::PlanState, outcome: *const LoadOutcome) {
    // SAFETY: this function's contract covers the node.
    unsafe {
        if let Some(instrument) = (*ps).instrument.as_mut() {
            instrument.nfiltered1 += (*outcome).filtered as f64;
        }
    }
}

/// # Safety
/// Called by the executor with a state made by [`create_state`].
#[pg_guard]
unsafe extern "C-unwind" fn end(node: *mut pg_sys::CustomScanState) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let state = &mut *node.cast::<State>();
        if !state.child.is_null() {
            pg_sys::ExecEndNode(state.child);
        }
        if !state.joined.is_null() {
            pg_sys::ExecEndNode(state.joined);
        }
        if let Some(foreign) = state.foreign.as_mut() {
            foreign.drain(..).for_each(|relation| pg_sys::table_close(relation, pg_sys::NoLock.cast_signed()));
        }
    }
}

/// The executor never rescans an INSERT.
unsafe extern "C-unwind" fn rescan(_node: *mut pg_sys::CustomScanState) {}

/// # Safety
/// Called by EXPLAIN, with a state that has begun.
#[pg_guard]
unsafe extern "C-unwind" fn explain(
    node: *mut pg_sys::CustomScanState,
    _ancestors: *mut pg_sys::List,
    es: *mut pg_sys::ExplainState,
) {
    // SAFETY: the executor's and EXPLAIN's own structures.
    unsafe {
        let state = &*node.cast::<State>();
        let text = |label: &CStr, value: &CStr| pg_sys::ExplainPropertyText(label.as_ptr(), value.as_ptr(), es);
        let number = |label: &CStr, value: u64| {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            pg_sys::ExplainPropertyInteger(label.as_ptr(), std::ptr::null(), value, es);
        };
        let Some(insertions) = state.insertions.as_ref() else { return };
        let runs = state.child.is_null();
        if let Some(first) = insertions.first() {
            text(c"Target", &qualified_name(first.target).unwrap_or_default());
        }
        // In formats other than text, keys must be unique.
        let has_groups = insertions.len() > 1;
        if has_groups {
            pg_sys::ExplainOpenGroup(c"Sources".as_ptr(), c"Sources".as_ptr(), false, es);
        }
        for insertion in insertions {
            if has_groups {
                pg_sys::ExplainOpenGroup(c"Source".as_ptr(), std::ptr::null(), true, es);
            }
            text(c"Foreign Table", &qualified_name(insertion.foreign).unwrap_or_default());
            if runs {
                let (location, copy) = Wrapper::get().or_raise().file_of(insertion.foreign).or_raise();
                let (label, name) = match &location {
                    Location::Client(_) => continue,
                    Location::Program(command) => (c"Foreign Program", command.as_c_str()),
                    file => (c"Foreign File", file.name()),
                };
                text(label, name);
                if let Ok(Some(list)) = location.files() {
                    number(c"Foreign Files", list.files.len() as u64);
                }
                if (*es).verbose {
                    let size = location.divided_size(copy.coding());
                    let size = size.filter(|_| insertion.joins != Some(Reach::Leader));
                    let workers = size.map_or(0, |size| direct::workers_for(None, size));
                    number(c"Workers Planned", workers as u64);
                }
            }
            if has_groups {
                pg_sys::ExplainCloseGroup(c"Source".as_ptr(), std::ptr::null(), true, es);
            }
        }
        if has_groups {
            pg_sys::ExplainCloseGroup(c"Sources".as_ptr(), c"Sources".as_ptr(), false, es);
        }
        if !runs {
            let why = CStr::from_ptr(state.why).to_bytes();
            text(c"Direct Insert", &CString::new([b"no (", why, b")"].concat()).unwrap_or_default());
            return;
        }
        if (*es).analyze {
            let outcome = state.outcome;
            number(c"Workers Launched", outcome.workers as u64);
            number(c"Rows Inserted", outcome.rows);
            if outcome.rejected > 0 {
                number(c"Rows Skipped", outcome.rejected);
            }
            number(c"Pages Appended", outcome.pages);
            number(c"Bytes Read", outcome.bytes);
            if outcome.exclusively {
                pg_sys::ExplainPropertyBool(c"Exclusive".as_ptr(), true, es);
            }
        }
    }
}
