//! `INSERT INTO t SELECT … FROM ft` as a load.
//!
//! ```text
//!   planner  ─► upper_paths ─► judge ─┬─ no:  core's path, and the scans' EXPLAIN says why
//!                                     └─ yes: a CustomPath, with core's ModifyTable below it
//!   executor ─► begin ─► judged again ─┬─ no:  ModifyTable runs
//!                                      └─ yes: execute: the whole load, at the first call
//! ```
//!
//! Core inserts the rows of a SELECT one by one. Where source and target are such that the direct writer comes to the
//! same, the node [`node`] takes the place of ModifyTable and loads the foreign table's file; of several tables, put
//! together by UNION ALL or as partitions, the file of each ([`parts`]). Everything around it stays
//! core's: the range table and who may do what with it, the snapshot, the command tag.
//!
//! `create_upper_paths_hook` is the place to come in: the library of a fresh connection is loaded while its
//! first statement is planned, when a foreign table is looked at. That is too late for a planner hook, but this one is asked at the end of
//! planning. (`GetForeignUpperPaths` is for a query whose base relations are foreign tables, which the parent of
//! partitions, or a UNION ALL, is not.) The wrapper and loads do
//! not know each other; what a foreign table's options mean comes through [`Wrapper`](super::wrapper::Wrapper).
//!
//! ModifyTable stays in the plan because a plan may be kept. When it runs, `pg_bulk.direct_insert` may be off, a
//! partition may have a trigger, the session an origin: then core's own plan runs, below ours.
//!
//! An INSERT is no call of bulk_load: it has no number and no row in `bulk_history`. It takes no lock but an INSERT's, with
//! one exception: an empty table gets a new file, as bulk_load would give it one, if `pg_bulk.direct_insert` is `exclusive`.

pub mod expression;
mod insertion;
mod joins;
pub mod judge;
mod new_table;
mod node;
mod parts;
mod run;
mod scans;
mod translate;

use std::ptr::null_mut;
use std::sync::OnceLock;

use pgrx::{PgList, pg_guard, pg_sys};

use self::insertion::Insertion;
use crate::load::{direct, planned_insert};
use crate::pg::server_text::to_server;

/// Who was asked before.
static PREVIOUS: OnceLock<pg_sys::create_upper_paths_hook_type> = OnceLock::new();

/// Called once, when the library is loaded. Guarded.
pub fn init() {
    node::register();
    direct::register_leaf();
    new_table::register();
    planned_insert::init();
    // SAFETY: a variable of this process, which has one thread.
    unsafe {
        let _ = PREVIOUS.set(pg_sys::create_upper_paths_hook);
        pg_sys::create_upper_paths_hook = Some(upper_paths);
    }
}

/// Our hook, as a number, if no other library had one before; else one that no hook has.
pub fn sole_hook() -> usize {
    let is_sole = matches!(PREVIOUS.get(), Some(None));
    if is_sole { upper_paths as *const () as usize } else { usize::MAX }
}

/// Part of the cost of core's INSERT that a load is taken to have. Less is what counts: how much less has no say.
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
    // SAFETY: what the planner gave; tags say what nodes are.
    unsafe {
        if let Some(Some(previous)) = PREVIOUS.get() {
            previous(root, stage, input, output, extra);
        }
        let is_insert = (*(*root).parse).commandType == pg_sys::CmdType::CMD_INSERT;
        if stage == pg_sys::UpperRelationKind::UPPERREL_FINAL && is_insert && !planned_insert::is_asking() {
            take_over(root, input, output);
        }
    }
}

/// Offer a load in place of an INSERT, if it reads foreign tables of ours; or let their EXPLAIN say why not.
///
/// # Safety
/// The planner's structures, at the end of planning an INSERT.
#[pg_guard]
unsafe extern "C-unwind" fn take_over(
    root: *mut pg_sys::PlannerInfo,
    input: *mut pg_sys::RelOptInfo,
    output: *mut pg_sys::RelOptInfo,
) {
    // SAFETY: this function's contract covers the structures; tags say what nodes are.
    unsafe {
        let paths = PgList::<pg_sys::Path>::from_pg((*output).pathlist);
        let Some(path) = paths.get_ptr(0).filter(|_| paths.len() == 1) else { return };
        if (*path).type_ != pg_sys::NodeTag::T_ModifyTablePath {
            return;
        }
        let path = path.cast::<pg_sys::ModifyTablePath>();
        let scans = scans::below((*path).subpath);
        if scans.is_empty() {
            return;
        }
        match judge::judge(root, input, path) {
            Ok(insertions) => add(output, path, &insertions),
            Err(why) => scans.into_iter().for_each(|scan| tell(scan, &why)),
        }
    }
}

/// Let the scan's EXPLAIN say why not. Guarded.
///
/// # Safety
/// A valid path of one of our tables.
unsafe fn tell(scan: *mut pg_sys::ForeignPath, why: &str) {
    // SAFETY: this function's contract covers the path; guarded calls.
    unsafe {
        if (*scan).fdw_private.is_null() {
            let why = pg_sys::pstrdup(to_server(why.trim_end_matches('.')).as_ptr());
            (*scan).fdw_private = pg_sys::lappend(null_mut(), pg_sys::makeString(why).cast());
        }
    }
}

/// Guarded.
///
/// # Safety
/// The planner's own structures.
unsafe fn add(output: *mut pg_sys::RelOptInfo, modify: *mut pg_sys::ModifyTablePath, insertions: &[Insertion]) {
    // SAFETY: this function's contract covers the structures; guarded calls.
    unsafe {
        // A path that is dominated is freed, and ours refers to this one.
        let below = pg_sys::palloc0(size_of::<pg_sys::ModifyTablePath>()).cast::<pg_sys::ModifyTablePath>();
        below.copy_from_nonoverlapping(modify, 1);
        let path = pg_sys::palloc0(size_of::<pg_sys::CustomPath>()).cast::<pg_sys::CustomPath>();
        (*path).path.type_ = pg_sys::NodeTag::T_CustomPath;
        (*path).path.pathtype = pg_sys::NodeTag::T_CustomScan;
        (*path).path.parent = output;
        (*path).path.pathtarget = (*modify).path.pathtarget;
        (*path).path.rows = (*modify).path.rows;
        (*path).path.startup_cost = (*modify).path.startup_cost * SHARE_OF_COST;
        (*path).path.total_cost = (*modify).path.total_cost * SHARE_OF_COST;
        (*path).custom_paths = pg_sys::lappend(null_mut(), below.cast());
        (*path).custom_private = Insertion::all_to_list(insertions);
        (*path).methods = node::path_methods();
        pg_sys::add_path(output, path.cast());
    }
}
