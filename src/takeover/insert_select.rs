//! `INSERT INTO t SELECT … FROM ft` as a load.
//!
//! ```text
//!   planner  ─► upper_paths ─► eligibility ─┬─ no:  core's path, and the scans' EXPLAIN says why
//!                                           └─ yes: a CustomPath, with core's ModifyTable below it
//!   executor ─► begin ─► checked again ─┬─ no:  ModifyTable runs
//!                                       └─ yes: execute: the whole load, at the first call
//! ```
//!
//! Core inserts the rows of a SELECT one by one. If the direct writer gives an equivalent result, [`node`] replaces
//! ModifyTable and loads the foreign table's file. If UNION ALL or partitions combine several foreign tables, it loads
//! the file of each ([`parts`](eligibility::parts)). The rest stays core's: the range table, the permission checks, the snapshot, the
//! command tag.
//!
//! The module enters through `create_upper_paths_hook`. In a fresh connection the library is loaded while the first
//! statement is planned, when the planner looks at a foreign table. That is too late for planner_hook, but this hook is
//! called at the end of planning. (`GetForeignUpperPaths` is called only if all base relations of the query are foreign
//! tables. The parent of partitions and a UNION ALL are not.) The wrapper and loads do not import each other;
//! [`Wrapper`](crate::load::wrapper::Wrapper) passes a foreign table's options.
//!
//! ModifyTable stays in the plan because a plan may be cached. When the plan runs, `pg_bulk.direct_insert` may be off,
//! a partition may have a trigger, or the session may have a replication origin. Then core's plan runs, below the
//! custom node.
//!
//! An INSERT is not a call of bulk_load: it has no load number and no row in `bulk_history`. It takes an INSERT's locks
//! only, with one exception: if `pg_bulk.direct_insert` is `exclusive`, an empty table gets a new file, as with
//! bulk_load.

pub mod eligibility;
mod insertion;
mod new_table;
mod node;
mod run;
mod translate;

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys;

use self::insertion::Insertion;
use crate::load::direct;
use crate::load::planned_insert::{self, OUR_UPPER_PATHS_HOOK};
use crate::load::wrapper::Wrapper;
use crate::server::custom_scan;
use crate::server::node::make::{self, string};
use crate::server::node::{Node, NodeList};
use crate::server::planner::{PlannedRelation, Planner};
use crate::server::server_text::to_server;
use crate::server::unguarded::guarded;

/// The hook that was installed before.
static PREVIOUS: OnceLock<pg_sys::create_upper_paths_hook_type> = OnceLock::new();

/// Called once, when the library is loaded. Guarded.
pub fn init() {
    node::register();
    direct::register_leaf();
    new_table::register();
    planned_insert::init();
    // SAFETY: a variable of this process, which has one thread.
    unsafe {
        let previous = pg_sys::create_upper_paths_hook;
        if previous.is_none() {
            OUR_UPPER_PATHS_HOOK.store(upper_paths as *const () as usize, Relaxed);
        }
        let _ = PREVIOUS.set(previous);
        pg_sys::create_upper_paths_hook = Some(upper_paths);
    }
}

/// Cost of a load, as a fraction of the cost of core's INSERT. Any fraction below 1 makes the planner prefer the load.
const SHARE_OF_COST: f64 = 0.1;

/// # Safety
/// Called by the planner.
unsafe extern "C-unwind" fn upper_paths(
    root: *mut pg_sys::PlannerInfo,
    stage: pg_sys::UpperRelationKind::Type,
    input: *mut pg_sys::RelOptInfo,
    output: *mut pg_sys::RelOptInfo,
    extra: *mut std::ffi::c_void,
) {
    // A plain frame: nothing here has a destructor.
    // SAFETY: the planner's own structures; tags say the types of nodes.
    unsafe {
        if let Some(Some(previous)) = PREVIOUS.get() {
            previous(root, stage, input, output, extra);
        }
        let is_insert = (*(*root).parse).commandType == pg_sys::CmdType::CMD_INSERT;
        let structures = (Node::from_raw(root), Node::from_raw(input), Node::from_raw(output));
        if stage == pg_sys::UpperRelationKind::UPPERREL_FINAL
            && is_insert
            && !planned_insert::is_asking()
            && let (Some(root), Some(input), Some(output)) = structures
        {
            guarded(|| take_over(root, input, output));
        }
    }
}

/// Adds a load's path for an INSERT that reads foreign tables of pg_bulk, at the end of planning; else gives their EXPLAIN
/// the reason. Guarded.
fn take_over(root: Planner<'_>, input: PlannedRelation<'_>, output: PlannedRelation<'_>) {
    let paths = output.pathlist();
    let Some(path) = paths.of::<pg_sys::ModifyTablePath>().get(0).filter(|_| paths.len() == 1) else { return };
    let scans = scans(path.subpath());
    if scans.is_empty() {
        return;
    }
    match eligibility::check(root, input, path) {
        Ok(insertions) => add(output, path, &insertions),
        Err(why) => scans.into_iter().for_each(|scan| explain(scan, &why)),
    }
}

/// The scans of the wrapper's foreign tables anywhere below a path.
fn scans(path: Node<'_, pg_sys::Path>) -> Vec<Node<'_, pg_sys::ForeignPath>> {
    let is_ours = |path: &Node<'_, pg_sys::ForeignPath>| Wrapper::get().is_ok_and(|wrapper| wrapper.has(path.rel()));
    let mut found: Vec<_> = path.as_a().filter(is_ours).into_iter().collect();
    path.below().into_iter().for_each(|path| found.extend(scans(path)));
    found
}

/// Gives the scan's EXPLAIN the reason. Guarded.
fn explain(scan: Node<'_, pg_sys::ForeignPath>, why: &str) {
    if scan.fdw_private.is_null() {
        let why: NodeList<'_, _> = [string(&to_server(why.trim_end_matches('.')))].into_iter().collect();
        // SAFETY: the wrapper's path has no private data until its plan is made, and only this function and the wrapper use
        // them.
        unsafe { (*scan.as_ptr()).fdw_private = why.as_ptr() };
    }
}

/// Adds the load's path. Guarded.
fn add(output: PlannedRelation<'_>, modify: Node<'_, pg_sys::ModifyTablePath>, insertions: &[Insertion]) {
    let mut path = custom_scan::path(&node::PATH, output);
    (path.path.pathtarget, path.path.rows) = (modify.path.pathtarget, modify.path.rows);
    path.path.startup_cost = modify.path.startup_cost * SHARE_OF_COST;
    path.path.total_cost = modify.path.total_cost * SHARE_OF_COST;
    path.custom_private = Insertion::all_to_list(insertions).as_ptr();
    // SAFETY: guarded calls; the fields of paths.
    unsafe {
        // The planner frees a dominated path, and the new path refers to this one.
        let below: NodeList<'_, _> = [make::node(*modify)].into_iter().collect();
        path.custom_paths = below.as_ptr();
        pg_sys::add_path(output.as_ptr(), make::node(path).as_ptr().cast());
    }
}
