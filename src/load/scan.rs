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
use std::sync::atomic::Ordering::Relaxed;

use pgrx::{PgList, PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::feed::{self, Feed};
use super::planned_insert::OUR_PATHLIST_HOOK;
use crate::error::Error;
use crate::server::custom_scan::{Methods, NO_CALLBACKS};
use crate::server::function::version_1;
use crate::server::relation::TupleDesc;
use crate::server::slot::Slot;
use crate::server::unguarded;

const NAME: &CStr = c"bulk_rows";

/// The planner's row estimate; the real number is unknown.
const ROWS: f64 = 1000.0;

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
    ..NO_CALLBACKS
});

/// The hook that was there before.
static mut PREVIOUS_HOOK: pg_sys::set_rel_pathlist_hook_type = None;

/// Registers the scan and the hook. Called once, when the library is loaded.
pub fn init() {
    // SAFETY: the server loads a library from one thread, and calls hooks from it; the table stays. A plan that is
    // serialized and read again finds the table by its name.
    unsafe {
        pg_sys::RegisterCustomScanMethods(&raw const SCAN.0);
        let previous = pg_sys::set_rel_pathlist_hook;
        PREVIOUS_HOOK = previous;
        if previous.is_none() {
            OUR_PATHLIST_HOOK.store(set_rel_pathlist as *const () as usize, Relaxed);
        }
        pg_sys::set_rel_pathlist_hook = Some(set_rel_pathlist);
    }
}

/// # Safety
/// Called by the planner for each relation of a query.
#[pg_guard]
unsafe extern "C-unwind" fn set_rel_pathlist(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    index: pg_sys::Index,
    entry: *mut pg_sys::RangeTblEntry,
) {
    // SAFETY: the planner's own structures.
    unsafe {
        if let Some(previous) = PREVIOUS_HOOK {
            unguarded::guard(|| previous(root, rel, index, entry));
        }
        // Planning outside of a load is left unchanged.
        if !feed::is_any_running() || call_of(entry).is_none() {
            return;
        }
        let path = pg_sys::palloc0(size_of::<pg_sys::CustomPath>()).cast::<pg_sys::CustomPath>();
        (*path).path.type_ = pg_sys::NodeTag::T_CustomPath;
        (*path).path.pathtype = pg_sys::NodeTag::T_CustomScan;
        (*path).path.parent = rel;
        (*path).path.pathtarget = (*rel).reltarget;
        (*path).path.rows = ROWS;
        (*path).path.total_cost = ROWS * pg_sys::cpu_tuple_cost;
        (*path).flags = pg_sys::CUSTOMPATH_SUPPORT_PROJECTION;
        (*path).methods = &raw const PATH.0;
        (*rel).rows = ROWS;
        (*rel).pathlist = null_mut();
        pg_sys::add_path(rel, path.cast());
    }
}

/// The call of `bulk_rows` in a range table entry, if there is one. Guarded.
///
/// # Safety
/// A valid entry.
unsafe fn call_of(entry: *const pg_sys::RangeTblEntry) -> Option<*mut pg_sys::FuncExpr> {
    // SAFETY: this function's contract covers the entry; tags give the node types.
    unsafe {
        if (*entry).rtekind != pg_sys::RTEKind::RTE_FUNCTION || (*entry).funcordinality {
            return None;
        }
        let functions = PgList::<pg_sys::RangeTblFunction>::from_pg((*entry).functions);
        let expression = (*functions.get_ptr(0).filter(|_| functions.len() == 1)?).funcexpr;
        if (*expression).type_ != pg_sys::NodeTag::T_FuncExpr {
            return None;
        }
        let call = expression.cast::<pg_sys::FuncExpr>();
        let name = pg_sys::get_func_name((*call).funcid);
        let is_ours = !name.is_null()
            && CStr::from_ptr(name) == NAME
            && feed::is_extension_schema(pg_sys::get_func_namespace((*call).funcid));
        is_ours.then_some(call)
    }
}

/// # Safety
/// Called by the planner.
#[pg_guard]
unsafe extern "C-unwind" fn plan_path(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    _path: *mut pg_sys::CustomPath,
    targets: *mut pg_sys::List,
    clauses: *mut pg_sys::List,
    _plans: *mut pg_sys::List,
) -> *mut pg_sys::Plan {
    // SAFETY: the planner's own structures; the path was made for a call of `bulk_rows`.
    unsafe {
        let index = (*rel).relid;
        let entry = *(*root).simple_rte_array.add(index as usize);
        let Some(call) = call_of(entry) else {
            Error::new(Code::ERRCODE_INTERNAL_ERROR, "scan of bulk_rows without a call of it").raise();
        };
        let scan = pg_sys::palloc0(size_of::<pg_sys::CustomScan>()).cast::<pg_sys::CustomScan>();
        (*scan).scan.plan.type_ = pg_sys::NodeTag::T_CustomScan;
        (*scan).scan.plan.targetlist = targets;
        (*scan).scan.plan.qual = pg_sys::extract_actual_clauses(clauses, false);
        (*scan).flags = pg_sys::CUSTOMPATH_SUPPORT_PROJECTION;
        (*scan).custom_scan_tlist = columns(index, (*call).funcresulttype);
        let arguments = PgList::<pg_sys::Node>::from_pg((*call).args);
        let mut token = PgList::<pg_sys::Node>::new();
        arguments.get_ptr(1).into_iter().for_each(|argument| token.push(argument));
        (*scan).custom_exprs = token.into_pg();
        (*scan).methods = &raw const SCAN.0;
        scan.cast()
    }
}

/// The target list of the scan's slot: each attribute of the row type, in order.
///
/// # Safety
/// A row type of the relation at `index` of the range table.
unsafe fn columns(index: pg_sys::Index, row_type: pg_sys::Oid) -> *mut pg_sys::List {
    // SAFETY: guarded calls; a descriptor has natts attributes.
    unsafe {
        let descriptor = pg_sys::lookup_rowtype_tupdesc(row_type, -1);
        let mut columns = PgList::<pg_sys::TargetEntry>::new();
        for form in TupleDesc::from_raw(descriptor).attributes() {
            let expression: *mut pg_sys::Expr = if form.attisdropped {
                pg_sys::makeNullConst(pg_sys::INT4OID, -1, pg_sys::InvalidOid).cast()
            } else {
                let (kind, modifier, collation) = (form.atttypid, form.atttypmod, form.attcollation);
                pg_sys::makeVar(index as _, form.attnum, kind, modifier, collation, 0).cast()
            };
            columns.push(pg_sys::makeTargetEntry(expression, form.attnum, null_mut(), false));
        }
        if (*descriptor).tdrefcount >= 0 {
            pg_sys::DecrTupleDescRefCount(descriptor);
        }
        columns.into_pg()
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

/// # Safety
/// Called by the executor.
#[pg_guard]
unsafe extern "C-unwind" fn create_state(_plan: *mut pg_sys::CustomScan) -> *mut pg_sys::Node {
    // SAFETY: a guarded allocation of this size, zeroed: a valid state once these fields are set.
    unsafe {
        let scan = pg_sys::palloc0(size_of::<Scan>()).cast::<Scan>();
        (*scan).custom.ss.ps.type_ = pg_sys::NodeTag::T_CustomScanState;
        (*scan).custom.methods = &raw const EXECUTION.0;
        scan.cast()
    }
}

/// # Safety
/// Called by the executor with a state made by [`create_state`].
#[pg_guard]
unsafe extern "C-unwind" fn begin(node: *mut pg_sys::CustomScanState, _estate: *mut pg_sys::EState, flags: i32) {
    if flags.cast_unsigned() & pg_sys::EXEC_FLAG_EXPLAIN_ONLY != 0 {
        return;
    }
    // SAFETY: the executor's own structures, and a plan made by `plan_path`.
    unsafe {
        let plan = (*node).ss.ps.plan.cast::<pg_sys::CustomScan>();
        let token = PgList::<pg_sys::Expr>::from_pg((*plan).custom_exprs).get_ptr(0).unwrap_or(null_mut());
        let state = pg_sys::ExecInitExpr(token, &raw mut (*node).ss.ps);
        let mut is_null = state.is_null();
        let mut token = pg_sys::Datum::from(0usize);
        if !state.is_null() {
            token = pg_sys::ExecEvalExpr(state, (*node).ss.ps.ps_ExprContext, &raw mut is_null);
        }
        let feed = feed::running(token.value() as i64);
        if is_null || feed.is_null() {
            refuse();
        }
        if !are_the_same(Slot::from_raw((*node).ss.ss_ScanTupleSlot).descriptor(), (*feed).slot.descriptor()) {
            refuse();
        }
        (*node.cast::<Scan>()).feed = feed;
    }
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
            feed::begin_series(feed, scan.cast());
            (*scan).begun = true;
        }
        let caller = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = (*feed).pump.sink.econtext.memory();
        let more = feed::fill(feed);
        pg_sys::CurrentMemoryContext = caller;
        if !more {
            (*scan).ended = true;
            feed::end_series(feed, scan.cast());
            return slot;
        }
        (*feed).note_stored((*node).ps.state);
        Slot::from_raw(slot).arrays().copy_from((*feed).slot.arrays());
        unguarded::store_virtual(slot);
        slot
    }
}

/// Always true: the rows of a load have no concurrent versions.
unsafe extern "C-unwind" fn recheck(_node: *mut pg_sys::ScanState, _slot: *mut pg_sys::TupleTableSlot) -> bool {
    true
}

/// # Safety
/// Called by the executor with a state made by [`create_state`].
#[pg_guard]
unsafe extern "C-unwind" fn rescan(node: *mut pg_sys::CustomScanState) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        end(node);
        let scan = node.cast::<Scan>();
        ((*scan).begun, (*scan).ended) = (false, false);
    }
}

/// # Safety
/// Called by the executor with a state made by [`create_state`].
#[pg_guard]
unsafe extern "C-unwind" fn end(node: *mut pg_sys::CustomScanState) {
    // SAFETY: the executor's own node; the feed outlives our statement.
    unsafe {
        let scan = node.cast::<Scan>();
        if !(*scan).feed.is_null() {
            feed::end_series((*scan).feed, scan.cast());
        }
    }
}

/// Guarded.
fn refuse() {
    let message = "bulk_rows can only be called by bulk_load";
    Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message).raise();
}

/// `bulk_rows(target, token)`, if it is called outside of its scan.
///
/// # Safety
/// Called by the executor.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_rows(_fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: it only raises an error.
    unsafe { unguarded::guarded(refuse) };
    pg_sys::Datum::from(0usize)
}

version_1!(pg_finfo_bulk_rows);
