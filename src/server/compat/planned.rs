//! Plans that are sent to workers.

use std::ffi::c_void;

use pgrx::{pg_guard, pg_sys};

use crate::server::unguarded;

/// Wraps a part of a statement's plan in a PlannedStmt of its own, for workers to run (ExecSerializePlan,
/// execParallel.c). It has no subplans. Allocates in the current memory context.
///
/// # Safety
/// A plan, and the state of the statement that it belongs to; called from a guarded frame.
pub unsafe fn statement_for_workers(plan: *mut pg_sys::Plan, estate: *mut pg_sys::EState) -> *mut pg_sys::PlannedStmt {
    // SAFETY: guarded calls on a plan that is only read; zeroed memory, as in makeNode.
    unsafe {
        let statement = pg_sys::palloc0(size_of::<pg_sys::PlannedStmt>()).cast::<pg_sys::PlannedStmt>();
        (*statement).type_ = pg_sys::NodeTag::T_PlannedStmt;
        (*statement).commandType = pg_sys::CmdType::CMD_SELECT;
        (*statement).canSetTag = true;
        (*statement).planTree = plan;
        (*statement).rtable = (*estate).es_range_table;
        (*statement).paramExecTypes = (*(*estate).es_plannedstmt).paramExecTypes;
        (*statement).stmt_location = -1;
        (*statement).stmt_len = -1;
        #[cfg(not(feature = "pg15"))]
        {
            (*statement).permInfos = (*estate).es_rteperminfos;
        }
        #[cfg(feature = "pg18")]
        {
            (*statement).partPruneInfos = (*estate).es_part_prune_infos;
            (*statement).unprunableRelids = (*estate).es_unpruned_relids;
        }
        statement
    }
}

/// Called with the state of a node and a context.
type Walker = unsafe extern "C-unwind" fn(*mut pg_sys::PlanState, *mut c_void) -> bool;

unsafe extern "C-unwind" {
    /// nodeFuncs.c. Calls the walker with each child of a node. Its only own error is a stack overflow.
    #[cfg_attr(not(feature = "pg15"), link_name = "planstate_tree_walker_impl")]
    fn planstate_tree_walker(planstate: *mut pg_sys::PlanState, walker: Walker, context: *mut c_void) -> bool;
}

/// Returns the states of all nodes of a plan, in one order in every process.
///
/// # Safety
/// The state of a plan; called from a guarded frame.
pub unsafe fn nodes_of(top: *mut pg_sys::PlanState) -> Vec<*mut pg_sys::PlanState> {
    let mut nodes = Vec::new();
    // SAFETY: the state is the executor's own; the list outlives the walk. An error comes back as a panic.
    unsafe { crate::server::unguarded::guard(|| add_nodes(top, (&raw mut nodes).cast())) };
    nodes
}

/// # Safety
/// The state of a node, and a list of node states.
#[pg_guard]
unsafe extern "C-unwind" fn add_nodes(node: *mut pg_sys::PlanState, nodes: *mut c_void) -> bool {
    // SAFETY: planstate_tree_walker passes a node, and the list that the walk began with.
    unsafe {
        if !node.is_null() {
            (*nodes.cast::<Vec<*mut pg_sys::PlanState>>()).push(node);
            unguarded::guard(|| planstate_tree_walker(node, add_nodes, nodes));
        }
    }
    false
}
