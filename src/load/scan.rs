//! `bulk_rows` as a scan: a load's rows in, a slot out, one row at a time.
//!
//! The executor collects the rows of a set-returning function in FROM before it uses the first one. In a SELECT list it
//! makes a composite value of each. So the planner gets another path for calls of `bulk_rows`, and for nothing else: a
//! custom scan, which stores the row itself in its slot ([`feed`](super::feed)). The function itself raises an error.
//!
//! The token says which load is meant. The scan evaluates it when it begins; only the buffered writer's own statement
//! has a valid one.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::feed::{self, Feed};
use super::planned_insert::OUR_PATHLIST_HOOK;
use crate::error::{Error, OrRaise, Result};
use crate::server::callback::{Argument, Unused, callback};
use crate::server::custom_scan::{self, Methods, NO_CALLBACKS};
use crate::server::function::version_1;
use crate::server::lookup::{function_name, function_schema};
use crate::server::node::make::{columns, node};
use crate::server::node::{Node, NodeList};
use crate::server::planner::{PlannedRelation, Planner, conditions};
use crate::server::relation::TupleDesc;
use crate::server::slot::Slot;
use crate::server::unguarded;

const NAME: &CStr = c"bulk_rows";

/// The planner's row estimate; the real number is unknown.
const ROWS: f64 = 1000.0;

type Entry<'a> = Node<'a, pg_sys::RangeTblEntry>;

static PATH: Methods<pg_sys::CustomPathMethods> = Methods(pg_sys::CustomPathMethods {
    CustomName: NAME.as_ptr(),
    PlanCustomPath: Some(callback!(
        plan_path,
        root: Planner<'_>,
        rel: PlannedRelation<'_>,
        path: Unused<pg_sys::CustomPath>,
        targets: NodeList<'_, pg_sys::TargetEntry>,
        clauses: NodeList<'_, pg_sys::RestrictInfo>,
        plans: NodeList<'_> => *mut pg_sys::Plan
    )),
    ReparameterizeCustomPathByChild: None,
});

static SCAN: Methods<pg_sys::CustomScanMethods> = Methods(pg_sys::CustomScanMethods {
    CustomName: NAME.as_ptr(),
    CreateCustomScanState: Some(callback!(create_state, plan: Unused<pg_sys::CustomScan> => *mut pg_sys::Node)),
});

static EXECUTION: Methods<pg_sys::CustomExecMethods> = Methods(pg_sys::CustomExecMethods {
    CustomName: NAME.as_ptr(),
    BeginCustomScan: Some(callback!(begin, scan: &mut Scan, estate: Unused<pg_sys::EState>, flags: i32)),
    ExecCustomScan: Some(execute),
    EndCustomScan: Some(callback!(end, scan: &mut Scan)),
    ReScanCustomScan: Some(callback!(rescan, scan: &mut Scan)),
    ..NO_CALLBACKS
});

static HOOK: pg_sys::set_rel_pathlist_hook_type = Some(callback!(
    set_rel_pathlist,
    root: Planner<'_>,
    rel: PlannedRelation<'_>,
    index: pg_sys::Index,
    entry: Entry<'_>
));

/// The hook that was there before.
static PREVIOUS: OnceLock<pg_sys::set_rel_pathlist_hook_type> = OnceLock::new();

/// Registers the scan and the hook. Called once, when the library is loaded.
pub fn init() {
    custom_scan::register(&SCAN);
    // SAFETY: the server loads a library from one thread, and calls hooks from it.
    unsafe {
        let previous = std::ptr::replace(&raw mut pg_sys::set_rel_pathlist_hook, HOOK);
        if previous.is_none() {
            OUR_PATHLIST_HOOK.store(HOOK.map_or(0, |hook| hook as usize), Relaxed);
        }
        let _ = PREVIOUS.set(previous);
    }
}

/// Called by the planner for each relation of a query.
fn set_rel_pathlist(root: Planner<'_>, rel: PlannedRelation<'_>, index: pg_sys::Index, entry: Entry<'_>) -> Result<()> {
    if let Some(Some(previous)) = PREVIOUS.get() {
        // SAFETY: the planner's own structures; the closure owns nothing.
        unsafe { unguarded::guard(|| previous(root.as_ptr(), rel.as_ptr(), index, entry.as_ptr())) };
    }
    // Planning outside of a load is left unchanged.
    if !feed::is_any_running() || call_of(entry).is_none() {
        return Ok(());
    }
    let mut path = custom_scan::path(&PATH, rel);
    (path.path.pathtarget, path.path.rows) = (rel.reltarget, ROWS);
    path.flags = pg_sys::CUSTOMPATH_SUPPORT_PROJECTION;
    // SAFETY: a guarded call; the fields of a path, and the planner's own relation, which gets no other path.
    unsafe {
        path.path.total_cost = ROWS * pg_sys::cpu_tuple_cost;
        ((*rel.as_ptr()).rows, (*rel.as_ptr()).pathlist) = (ROWS, null_mut());
        pg_sys::add_path(rel.as_ptr(), node(path).as_ptr().cast());
    }
    Ok(())
}

/// The call of `bulk_rows` in a range table entry, if there is one. Guarded.
fn call_of(entry: Entry<'_>) -> Option<Node<'_, pg_sys::FuncExpr>> {
    if entry.rtekind != pg_sys::RTEKind::RTE_FUNCTION || entry.funcordinality {
        return None;
    }
    let function = entry.functions().first().filter(|_| entry.functions().len() == 1)?;
    let call = function.call()?.as_a::<pg_sys::FuncExpr>()?;
    let is_ours =
        function_name(call.funcid).as_deref() == Some(NAME) && feed::is_extension_schema(function_schema(call.funcid));
    is_ours.then_some(call)
}

/// Called by the planner, for a path that was made for a call of `bulk_rows`.
fn plan_path(
    root: Planner<'_>,
    rel: PlannedRelation<'_>,
    _path: Unused<pg_sys::CustomPath>,
    targets: NodeList<'_, pg_sys::TargetEntry>,
    clauses: NodeList<'_, pg_sys::RestrictInfo>,
    _plans: NodeList<'_>,
) -> Result<*mut pg_sys::Plan> {
    let no_call = || Error::new(Code::ERRCODE_INTERNAL_ERROR, "scan of bulk_rows without a call of it");
    let call = root.entry(rel.relid).and_then(call_of).ok_or_else(no_call)?;
    let token: NodeList<'_> = call.args().get(1).into_iter().collect();
    // SAFETY: guarded calls; the descriptor is valid until it is released. The fields of a plan.
    unsafe {
        let mut scan = custom_scan::plan(&SCAN, targets, conditions(clauses));
        // The target list of the slot: each attribute of the row type, in order.
        let descriptor = pg_sys::lookup_rowtype_tupdesc(call.funcresulttype, -1);
        let relation = i32::try_from(rel.relid).unwrap_or(0);
        scan.custom_scan_tlist = columns(relation, TupleDesc::from_raw(descriptor)).as_ptr();
        if (*descriptor).tdrefcount >= 0 {
            pg_sys::DecrTupleDescRefCount(descriptor);
        }
        (scan.flags, scan.custom_exprs) = (pg_sys::CUSTOMPATH_SUPPORT_PROJECTION, token.as_ptr());
        Ok(node(scan).as_ptr().cast())
    }
}

/// The state of a scan.
#[repr(C)]
struct Scan {
    custom: pg_sys::CustomScanState,
    /// Null in a plan that is only explained.
    feed: *mut Feed,
    begun: bool,
    ended: bool,
}

// SAFETY: the server passes a state that `create_state` has made to one callback at a time.
unsafe impl Argument for &mut Scan {
    type Raw = *mut pg_sys::CustomScanState;
}

/// Called by the executor.
fn create_state(_plan: Unused<pg_sys::CustomScan>) -> Result<*mut pg_sys::Node> {
    let scan = Scan { custom: custom_scan::state(&EXECUTION), feed: null_mut(), begun: false, ended: false };
    // SAFETY: the fields of a state.
    Ok(unsafe { node(scan) }.node().as_ptr())
}

/// Called by the executor with a state made by [`create_state`].
fn begin(scan: &mut Scan, _estate: Unused<pg_sys::EState>, flags: i32) -> Result<()> {
    if flags.cast_unsigned() & pg_sys::EXEC_FLAG_EXPLAIN_ONLY != 0 {
        return Ok(());
    }
    let ps = &raw mut scan.custom.ss.ps;
    let mut is_null = true;
    // SAFETY: guarded calls with the executor's own structures, and a plan made by `plan_path`.
    let (token, slot) = unsafe {
        let plan = Node::<pg_sys::CustomScan>::from_raw((*ps).plan.cast());
        let token = plan.and_then(|plan| plan.expressions().first()).map_or(null_mut(), Node::as_ptr);
        let state = pg_sys::ExecInitExpr(token.cast(), ps);
        let evaluate = || pg_sys::ExecEvalExpr(state, (*ps).ps_ExprContext, &raw mut is_null);
        let token = (!state.is_null()).then(evaluate);
        (token.filter(|_| !is_null), Slot::from_raw(scan.custom.ss.ss_ScanTupleSlot))
    };
    let feed = token.map_or(null_mut(), |token| feed::running(token.value() as i64));
    // SAFETY: a running feed, or null.
    match unsafe { feed.as_ref() } {
        Some(running) if are_the_same(slot.descriptor(), running.slot.descriptor()) => scan.feed = feed,
        _ => return Err(refused()),
    }
    Ok(())
}

/// Do two descriptors have the same column types, except for dropped columns of the second?
fn are_the_same(one: TupleDesc<'_>, other: TupleDesc<'_>) -> bool {
    let mut both = one.attributes().zip(other.attributes());
    one.len() == other.len() && both.all(|(one, other)| other.attisdropped || one.atttypid == other.atttypid)
}

/// # Safety
/// Called by the executor.
unsafe extern "C-unwind" fn execute(node: *mut pg_sys::CustomScanState) -> *mut pg_sys::TupleTableSlot {
    // A plain frame: nothing here has a destructor.
    // SAFETY: the executor's own structure.
    unsafe { unguarded::ExecScan(&raw mut (*node).ss, Some(next), Some(recheck)) }
}

/// Returns the next row.
///
/// # Safety
/// Called by ExecScan, from a plain frame, with a scan that has begun.
unsafe extern "C-unwind" fn next(node: *mut pg_sys::ScanState) -> *mut pg_sys::TupleTableSlot {
    // A plain frame: nothing here has a destructor.
    // SAFETY: this function's contract covers the scan; its slot has as many attributes as the feed's.
    unsafe {
        let slot = (*node).ss_ScanTupleSlot;
        unguarded::clear_virtual(slot);
        let scan = node.cast::<Scan>();
        let feed = (*scan).feed;
        if (*scan).ended || feed.is_null() {
            return slot;
        }
        if !(*scan).begun {
            unguarded::guarded(|| (*feed).begin_series(scan.cast()).or_raise());
            (*scan).begun = true;
        }
        let caller = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = (*feed).pump.sink.econtext.memory();
        let more = feed::fill(feed);
        pg_sys::CurrentMemoryContext = caller;
        if !more {
            (*scan).ended = true;
            (*feed).end_series(scan.cast());
            return slot;
        }
        if let Some(statement) = Node::from_raw((*node).ps.state) {
            (*feed).note_stored(statement);
        }
        Slot::from_raw(slot).arrays().copy_from((*feed).slot.arrays());
        unguarded::store_virtual(slot);
        slot
    }
}

/// Always true: the rows of a load have no concurrent versions.
extern "C-unwind" fn recheck(_node: *mut pg_sys::ScanState, _slot: *mut pg_sys::TupleTableSlot) -> bool {
    true
}

/// Called by the executor with a state made by [`create_state`].
fn rescan(scan: &mut Scan) -> Result<()> {
    end(scan)?;
    (scan.begun, scan.ended) = (false, false);
    Ok(())
}

/// Called by the executor with a state made by [`create_state`].
fn end(scan: &mut Scan) -> Result<()> {
    let reader = std::ptr::from_mut(scan).cast();
    // SAFETY: the feed outlives the statement of its load.
    if let Some(feed) = unsafe { scan.feed.as_mut() } {
        feed.end_series(reader);
    }
    Ok(())
}

fn refused() -> Error {
    Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, "bulk_rows can only be called by bulk_load")
}

/// `bulk_rows(target, token)`, if it is called outside of its scan.
///
/// # Safety
/// Called by the executor.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_rows(_fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: it only raises an error.
    unsafe { unguarded::guarded::<()>(|| refused().raise()) };
    pg_sys::Datum::from(0usize)
}

version_1!(pg_finfo_bulk_rows);
