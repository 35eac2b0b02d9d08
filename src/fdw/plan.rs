//! Planning of a scan: number of rows, cost, and the columns to convert.

use pgrx::{pg_guard, pg_sys};

use super::aggregate;
use super::estimate::{divisor, estimate};
use super::filter;
use super::options::TableOptions;
use super::order::{self, Ordered};
use super::private::Wanted;
use crate::error::OrRaise;
use crate::input::chunk::is_searchable;
use crate::input::source::Location;
use crate::rows::copy_options::RecordShape;
use crate::rows::hazard::Hazards;
use crate::rows::soft::OnError;
use crate::server::compat;

/// # Safety
/// Called by the planner.
#[pg_guard]
pub unsafe extern "C-unwind" fn get_foreign_rel_size(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    relid: pg_sys::Oid,
) {
    let options = TableOptions::of_table(relid).or_raise();
    let estimate = estimate(&options);
    // SAFETY: the planner's own structures.
    unsafe {
        let pages = (estimate.size.div_ceil(8192)).max(1) as f64;
        let analyzed = (*rel).tuples >= 0.0 && (*rel).pages > 0;
        let mut tuples = if analyzed {
            (*rel).tuples / f64::from((*rel).pages) * pages
        } else if let Some(record) = estimate.record {
            estimate.size as f64 / record
        } else {
            // As file_fdw: a record is about as long as its row.
            estimate.size as f64 / f64::from((*(*rel).reltarget).width.max(1) + 24)
        };
        tuples = (tuples - options.copy.skip as f64).max(0.0);
        if let Some(limit) = options.copy.limit {
            tuples = tuples.min(limit as f64);
        }
        (*rel).tuples = pg_sys::clamp_row_est(tuples);
        (*rel).pages = pages.min(f64::from(u32::MAX)) as u32;
        let selectivity = pg_sys::clauselist_selectivity(
            root,
            (*rel).baserestrictinfo,
            0,
            pg_sys::JoinType::JOIN_INNER,
            std::ptr::null_mut(),
        );
        (*rel).rows = pg_sys::clamp_row_est((*rel).tuples * selectivity);
        filter::forbid_workers(&options, root);
    }
}

/// # Safety
/// Called by the planner.
#[pg_guard]
pub unsafe extern "C-unwind" fn get_foreign_paths(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    relid: pg_sys::Oid,
) {
    // SAFETY: the planner's own structures.
    unsafe {
        // As cost_seqscan, and the cost of three more operators for each row. file_fdw charges ten times a row's cost;
        // here it was measured as less than twice.
        let startup = (*rel).baserestrictcost.startup;
        let options = TableOptions::of_table(relid).or_raise();
        let per_tuple = pg_sys::cpu_tuple_cost
            + 3.0 * pg_sys::cpu_operator_cost
            + (*rel).baserestrictcost.per_tuple
            + filter::cost(&options, root);
        let total = startup + pg_sys::seq_page_cost * f64::from((*rel).pages) + per_tuple * (*rel).tuples;
        let workers = if (*rel).consider_parallel && (*rel).lateral_relids.is_null() && has_chunks(&options) {
            let most = pg_sys::max_parallel_workers_per_gather;
            pg_sys::compute_parallel_worker(rel, f64::from((*rel).pages), -1.0, most)
        } else {
            0
        };
        // Processes that each read the whole list would each make their own list, and a file may be added in between.
        let is_list = options.location.as_ref().is_some_and(Location::may_be_several);
        let add = |pathkeys, per_row: f64| {
            // If the costs were nearly equal, the planner would keep the ordered path (STD_FUZZ_FACTOR, pathnode.c). A
            // plan must not rely on the order without need.
            let dearer =
                |total: f64, added: f64| if per_row > 0.0 { total + f64::max(added, 0.02 * total) } else { total };
            let total = dearer(total, per_row * (*rel).rows);
            let path = compat::create_foreignscan_path(root, rel, (*rel).rows, startup, total);
            // Without the option the client's encoding applies, which a worker does not know by itself.
            let knows_encoding = options.copy.encoding.is_some() && options.copy.shape() != RecordShape::Binary;
            (*path).path.parallel_safe &= knows_encoding && !is_list;
            (*path).path.pathkeys = pathkeys;
            pg_sys::add_path(rel, path.cast());
            if workers > 0 {
                // As cost_seqscan: the rows are divided; reading the file is not.
                let divisor = divisor(workers);
                let read = startup + pg_sys::seq_page_cost * f64::from((*rel).pages);
                let total = dearer(read + per_tuple * (*rel).tuples / divisor, per_row * (*rel).rows / divisor);
                let rows = pg_sys::clamp_row_est((*rel).rows / divisor);
                let path = compat::create_foreignscan_path(root, rel, rows, startup, total);
                (*path).path.pathkeys = pathkeys;
                (*path).path.parallel_aware = true;
                (*path).path.parallel_workers = workers;
                pg_sys::add_partial_path(rel, path.cast());
            }
        };
        add(std::ptr::null_mut(), 0.0);
        let order = options.sorted_by.as_ref();
        if let Some((pathkeys, columns)) = order.and_then(|order| order::useful(root, rel, relid, order).or_raise()) {
            // Each row is compared with the one before.
            add(pathkeys, columns.len() as f64 * pg_sys::cpu_operator_cost);
        }
    }
}

/// Can several processes each read some chunks of the file? Changes of the file are checked when it is opened. Guarded.
fn has_chunks(options: &TableOptions) -> bool {
    let list = options.location.as_ref().and_then(|location| location.files().ok().flatten());
    let size = match &list {
        // Skipped records may be those of several files.
        Some(list) => Some(list.size()).filter(|_| options.copy.skip == 0 && list.files.len() > 1),
        None => options.location.as_ref().and_then(|location| location.plain_size(options.copy.compressed)),
    };
    let encodings = options.copy.encodings();
    // A process does not know how many rows the others have read.
    options.copy.limit.is_none()
        && size.is_some()
        && encodings.is_ok_and(|encodings| is_searchable(&encodings, &options.copy.dialect))
}

/// # Safety
/// Called by the planner.
#[pg_guard]
pub unsafe extern "C-unwind" fn get_foreign_plan(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    relid: pg_sys::Oid,
    path: *mut pg_sys::ForeignPath,
    tlist: *mut pg_sys::List,
    clauses: *mut pg_sys::List,
    outer_plan: *mut pg_sys::Plan,
) -> *mut pg_sys::ForeignScan {
    // SAFETY: the planner's own structures.
    unsafe {
        if (*rel).reloptkind == pg_sys::RelOptKind::RELOPT_UPPER_REL {
            return aggregate::plan(path, tlist, outer_plan);
        }
        filter::depend(&TableOptions::of_table(relid).or_raise(), root);
        let clauses = pg_sys::extract_actual_clauses(clauses, false);
        let mut wanted = wanted(rel, relid, clauses);
        // The columns of the promised order are converted, even if the query does not read them.
        let mut order = Vec::new();
        if !(*path).path.pathkeys.is_null() {
            let options = TableOptions::of_table(relid).or_raise();
            if let Some(option) = &options.sorted_by {
                order = order::promised(root, rel, relid, option, (*path).path.pathkeys).or_raise();
            }
            for column in order.iter().map(|column| i32::from(column.number)) {
                if !wanted.by_quals.contains(&column) && !wanted.besides.contains(&column) {
                    wanted.besides.push(column);
                }
            }
        }
        let private = wanted.into_private((*path).fdw_private);
        let private = pg_sys::lappend(private, std::ptr::null_mut());
        let private = pg_sys::lappend(private, Ordered::to_list(&order).cast());
        pg_sys::make_foreignscan(
            tlist,
            clauses,
            (*rel).relid,
            std::ptr::null_mut(),
            private,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            outer_plan,
        )
    }
}

/// # Safety
/// The planner's structures.
unsafe fn wanted(rel: *mut pg_sys::RelOptInfo, relid: pg_sys::Oid, clauses: *mut pg_sys::List) -> Wanted {
    // SAFETY: this function's contract covers the structures; guarded calls.
    unsafe {
        let attributes = |node: *mut pg_sys::Node| {
            let mut set: *mut pg_sys::Bitmapset = std::ptr::null_mut();
            pg_sys::pull_varattnos(node, (*rel).relid, &raw mut set);
            let mut found = Vec::new();
            let mut member = -1;
            loop {
                member = pg_sys::bms_next_member(set, member);
                if member < 0 {
                    break found;
                }
                found.push(member + pg_sys::FirstLowInvalidHeapAttributeNumber);
            }
        };
        let by_quals = attributes(clauses.cast());
        let mut besides = attributes((*(*rel).reltarget).exprs.cast());
        // Clauses that are evaluated elsewhere (pseudoconstant ones) read no column of the table. Attribute 0 is the
        // whole row.
        if by_quals.contains(&0) || besides.contains(&0) {
            let relation = pg_sys::RelationIdGetRelation(relid);
            let natts = i32::from((*(*relation).rd_rel).relnatts);
            pg_sys::RelationClose(relation);
            besides = (1..=natts).collect();
        }
        let whole_row = by_quals.contains(&0);
        let by_quals: Vec<i32> = if whole_row { besides.clone() } else { by_quals };
        besides.retain(|a| *a > 0 && !by_quals.contains(a));
        Wanted { by_quals: by_quals.into_iter().filter(|a| *a > 0).collect(), besides }
    }
}

/// Do any columns have defaults? Guarded.
fn has_defaults(relid: pg_sys::Oid) -> bool {
    // SAFETY: guarded calls on a relation that is locked; its descriptor may have none of these.
    unsafe {
        let relation = pg_sys::RelationIdGetRelation(relid);
        let constraints = (*(*relation).rd_att).constr;
        let has = !constraints.is_null() && (*constraints).num_defval > 0;
        pg_sys::RelationClose(relation);
        has
    }
}

/// # Safety
/// Called by the planner.
#[pg_guard]
pub unsafe extern "C-unwind" fn is_foreign_scan_parallel_safe(
    _root: *mut pg_sys::PlannerInfo,
    _rel: *mut pg_sys::RelOptInfo,
    rte: *mut pg_sys::RangeTblEntry,
) -> bool {
    // SAFETY: the planner's own structure.
    let relid = unsafe { (*rte).relid };
    let options = TableOptions::of_table(relid).or_raise();
    // DEFAULT markers and missing fields evaluate expressions that may be parallel-unsafe. Rejected rows may need
    // subtransactions, and are counted in one process. The leader runs a program.
    options.copy.dialect.default.is_none()
        && options.copy.on_error == OnError::Stop
        && matches!(&options.location, Some(Location::File(_) | Location::Below(_)))
        && !(options.copy.by_name() && has_defaults(relid))
        && Hazards::new().types_are_safe(relid, options.copy.shape() == RecordShape::Binary)
        && filter::is_parallel_safe(&options, relid).or_raise()
}
