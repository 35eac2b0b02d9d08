//! The start of a scan: its state and its file.
//!
//! The file is opened when the scan begins, so that errors are raised at once. Two kinds of scans wait. A scan that
//! EvalPlanQual makes opens the file when a row is requested ([`open_late`]). The scan of a parallel worker opens it
//! when it has received the leader's file ([`open_in_worker`]).

use std::ffi::CStr;
use std::rc::Rc;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{pg_guard, pg_sys};

use super::{Scan, SlotSink, slot_arrays};
use crate::error::{OrRaise, Result};
use crate::fdw::aggregate::Aggregates;
use crate::fdw::aggregate::sums::Aggregation;
use crate::fdw::filter;
use crate::fdw::options::TableOptions;
use crate::fdw::order::OrderCheck;
use crate::fdw::private::{Wanted, order_of};
use crate::input::file_identity::Identity;
use crate::input::files::FileList;
use crate::input::source::{Descriptor, Location};
use crate::program::copy_question;
use crate::rows::row::pump::{Policy, Pump};
use crate::rows::row::{Rows, leaders_rows};
use crate::server::compat;
use crate::server::option_value::HeaderOption;
use crate::server::progress::Progress;

/// Opens a table's file and prepares its columns. Guarded; the current memory context must outlive the rows.
pub fn open_rows(relation: pg_sys::Relation, options: &TableOptions) -> Result<Rows> {
    // SAFETY: an open relation.
    let name = unsafe { CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()).to_owned() };
    let columns = options.columns(relation)?;
    let location = options.location()?;
    let stream = options.copy.open(location, options.copy.header(), columns.len())?;
    let known = options.copy.by_name().then(|| columns.clone());
    let match_header = options.copy.header == HeaderOption::Match;
    let mut rows = Rows::new(stream, columns, name, location.described(), match_header);
    if options.filter.is_some() {
        rows.fill_missing();
    }
    if let Some(known) = known {
        rows.name_by(known);
    }
    Ok(rows)
}

/// # Safety
/// Called by the executor.
#[pg_guard]
pub unsafe extern "C-unwind" fn begin_foreign_scan(node: *mut pg_sys::ForeignScanState, eflags: i32) {
    if eflags.cast_unsigned() & pg_sys::EXEC_FLAG_EXPLAIN_ONLY != 0 {
        return;
    }
    // SAFETY: the executor's own structures; the current memory context is the query's.
    unsafe {
        let relation = relation_of(node);
        let relid = (*relation).rd_id;
        let estate = (*node).ss.ps.state;
        let options = TableOptions::of_table(relid).or_raise();
        let plan = (*node).ss.ps.plan.cast::<pg_sys::ForeignScan>();
        let wanted = Wanted::from_private((*plan).fdw_private);
        let order = OrderCheck::new(&order_of((*plan).fdw_private), relation);
        let filter = filter::begin(&options, relation, estate).or_raise();
        // EvalPlanQual rechecks its own rows with the node's quals, so these stay in the plan state, and nothing is
        // read unless a row is requested.
        let rechecks = !(*estate).es_epq_active.is_null();
        // A worker of a parallel scan receives the leader's file before it opens it.
        let receives_file = pg_sys::ParallelWorkerNumber >= 0 && (*plan).scan.plan.parallel_aware;
        let rows = (!rechecks && !receives_file).then(|| {
            copy_question::may_read(options.location().or_raise());
            open_rows(relation, &options).or_raise()
        });
        let mut aggregation = Aggregates::from_private((*plan).fdw_private).map(|a| Aggregation::new(&a, relation));
        let mut qual = std::ptr::null_mut();
        if !rechecks || aggregation.is_some() {
            qual = std::mem::replace(&mut (*node).ss.ps.qual, std::ptr::null_mut());
        }
        let arrays = match &mut aggregation {
            Some(aggregation) => aggregation.arrays(),
            None => slot_arrays((*node).ss.ss_ScanTupleSlot),
        };
        for attribute in 0..usize::try_from((*(*relation).rd_att).natts).unwrap_or(0) {
            // Columns that are not read are NULL in every row.
            *arrays.nulls.add(attribute) = true;
            *arrays.values.add(attribute) = pg_sys::Datum::from(0usize);
        }
        let is_program = matches!(options.location, Some(Location::Program(_)));
        let progress = match &rows {
            Some(rows) => Progress::start(relid, is_program, rows.stream().file_size()),
            None => Progress::none(),
        };
        let sink = SlotSink {
            arrays: match &filter {
                Some(filter) => filter.arguments(),
                None => arrays,
            },
            econtext: (*node).ss.ps.ps_ExprContext,
            wanted,
            has_qual: !qual.is_null(),
            has_filter: filter.is_some(),
            first_attributes: Vec::new(),
            rest: Vec::new(),
            has_raw: false,
            progress,
            reported: 0,
            participant: None,
        };
        let mut scan = Scan {
            rows: None,
            pump: Pump { policy: Policy::of(&options.copy), sink },
            relid,
            relation,
            begun_in: pg_sys::GetCurrentSubTransactionId(),
            order,
            options,
            filter,
            qual,
            aggregation,
            bytes_before: 0,
            is_replaced: false,
        };
        if let Some(rows) = rows {
            scan.begin(rows);
        }
        (*node).fdw_state = PgMemoryContexts::For((*estate).es_query_cxt).leak_and_drop_on_delete(scan).cast();
    }
}

/// Opens the leader's files in a worker, or the file that the leader has open as `leaders`, in this encoding.
///
/// # Safety
/// The executor's own structures, and a scan that BeginForeignScan made. Guarded.
pub unsafe fn open_in_worker(
    node: *mut pg_sys::ForeignScanState,
    encoding: i32,
    list: Option<FileList>,
    leaders: Descriptor,
    file: Identity,
) -> Result<()> {
    // SAFETY: this function's contract covers the argument.
    let scan = unsafe { &mut *(*node).fdw_state.cast::<Scan>() };
    scan.options.copy.encoding = Some(encoding);
    let location = scan.options.location()?.clone();
    let rows = match list {
        Some(list) => {
            scan.options.location = Some(Location::Files(Rc::new(list.made_of(&location))));
            open_rows(scan.relation, &scan.options)?
        }
        None => leaders_rows(&location, leaders, file, |opened| {
            let named = scan.options.location.replace(opened.clone());
            let rows = open_rows(scan.relation, &scan.options);
            scan.options.location = named;
            let mut rows = rows?;
            rows.context.described = location.described();
            Ok(rows)
        })?,
    };
    scan.begin(rows);
    Ok(())
}

/// Opens the file that BeginForeignScan has left closed.
///
/// # Safety
/// The executor's own structures, and a scan that BeginForeignScan made.
#[pg_guard]
pub(super) unsafe extern "C-unwind" fn open_late(node: *mut pg_sys::ForeignScanState) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let scan = &mut *(*node).fdw_state.cast::<Scan>();
        let old = pg_sys::MemoryContextSwitchTo((*(*node).ss.ps.state).es_query_cxt);
        let rows = open_rows(scan.relation, &scan.options).or_raise();
        pg_sys::MemoryContextSwitchTo(old);
        scan.begun_in = pg_sys::GetCurrentSubTransactionId();
        scan.begin(rows);
    }
}

/// The foreign table of the scan. Guarded.
///
/// # Safety
/// The executor's own structures.
unsafe fn relation_of(node: *mut pg_sys::ForeignScanState) -> pg_sys::Relation {
    // SAFETY: this function's contract covers them; a scan that is not of one relation has its one relation in
    // `fs_relids`.
    unsafe {
        if !(*node).ss.ss_currentRelation.is_null() {
            return (*node).ss.ss_currentRelation;
        }
        let plan = (*node).ss.ps.plan.cast::<pg_sys::ForeignScan>();
        let place = pg_sys::bms_next_member((*plan).fs_relids, -1);
        compat::range_table_relation((*node).ss.ps.state, place.cast_unsigned())
    }
}
