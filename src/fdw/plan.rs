//! Planning of a scan: number of rows, cost, and the columns to convert.

use pgrx::pg_sys;

use super::aggregate;
use super::estimate::{costs, divisor, estimate};
use super::filter_option::Filter;
use super::options::TableOptions;
use super::order;
use super::private::{Private, Wanted};
use crate::error::Result;
use crate::input::chunk::is_searchable;
use crate::input::source::Location;
use crate::rows::copy_options::RecordShape;
use crate::rows::hazard::Hazards;
use crate::rows::soft::OnError;
use crate::server::column_set::ColumnSet;
use crate::server::lookup::parallel_label;
use crate::server::node::{Node, NodeList};
use crate::server::planner::{Estimate, PathOrder, PlannedRelation, Planner, Processes, clamped_rows, conditions};
use crate::server::relation::OpenRelation;

/// GetForeignRelSize.
pub fn size(root: Planner<'_>, rel: PlannedRelation<'_>, relid: pg_sys::Oid) -> Result<()> {
    let options = TableOptions::of_table(relid)?;
    let estimate = estimate(&options);
    let known = *rel;
    let pages = (estimate.size.div_ceil(8192)).max(1) as f64;
    let mut tuples = if known.tuples >= 0.0 && known.pages > 0 {
        known.tuples / f64::from(known.pages) * pages
    } else if let Some(record) = estimate.record {
        estimate.size as f64 / record
    } else {
        // As file_fdw: a record is about as long as its row.
        estimate.size as f64 / f64::from(rel.target().width.max(1) + 24)
    };
    tuples = (tuples - options.copy.skip as f64).max(0.0);
    if let Some(limit) = options.copy.limit {
        tuples = tuples.min(limit as f64);
    }
    rel.set_size(root, tuples, pages.min(f64::from(u32::MAX)) as u32);
    // Core only checks functions in the query's text.
    let function = options.filter.as_ref().and_then(Filter::planned);
    if function.is_some_and(|function| parallel_label(function) == pg_sys::PROPARALLEL_UNSAFE) {
        root.forbid_workers();
    }
    Ok(())
}

/// GetForeignPaths.
pub fn paths(root: Planner<'_>, rel: PlannedRelation<'_>, relid: pg_sys::Oid) -> Result<()> {
    // As cost_seqscan, and the cost of three more operators for each row. file_fdw charges ten times a row's cost; here
    // it was measured as less than twice.
    let known = *rel;
    let options = TableOptions::of_table(relid)?;
    let [per_row, per_operator, per_page] = costs();
    let function = options.filter.as_ref().and_then(Filter::planned);
    let per_call = function.map_or(0.0, |function| root.function_cost(function));
    let per_tuple = per_row + 3.0 * per_operator + known.baserestrictcost.per_tuple + per_call;
    let read = known.baserestrictcost.startup + per_page * f64::from(known.pages);
    let workers = if known.consider_parallel && known.lateral_relids.is_null() && has_chunks(&options) {
        rel.workers()
    } else {
        0
    };
    // Processes that each read the whole list would each make their own list, and a file may be added in between.
    let is_list = options.location.as_ref().is_some_and(Location::may_be_several);
    let add = |order, per_row: f64| {
        // If the costs were nearly equal, the planner would keep the ordered path (STD_FUZZ_FACTOR, pathnode.c). A plan
        // must not rely on the order without need.
        let dearer = |total: f64, added: f64| if per_row > 0.0 { total + f64::max(added, 0.02 * total) } else { total };
        let startup = known.baserestrictcost.startup;
        let total = dearer(read + per_tuple * known.tuples, per_row * known.rows);
        // Without the option the client's encoding applies, which a worker does not know by itself.
        let knows_encoding = options.copy.encoding.is_some() && options.copy.shape() != RecordShape::Binary;
        let cost = Estimate { rows: known.rows, startup, total };
        // SAFETY: this function looks at no path.
        unsafe { rel.add_scan(root, cost, order, Processes::One { is_safe: knows_encoding && !is_list }) };
        if workers > 0 {
            // As cost_seqscan: the rows are divided; reading the file is not.
            let divisor = divisor(workers);
            let total = dearer(read + per_tuple * known.tuples / divisor, per_row * known.rows / divisor);
            let cost = Estimate { rows: clamped_rows(known.rows / divisor), startup, total };
            // SAFETY: this function looks at no path.
            unsafe { rel.add_scan(root, cost, order, Processes::Workers(workers)) };
        }
    };
    add(PathOrder::NONE, 0.0);
    let order = options.sorted_by.as_ref();
    if let Some((order, columns)) = order.map_or(Ok(None), |order| order::useful(root, rel, relid, order))? {
        // Each row is compared with the one before.
        add(order, columns.len() as f64 * per_operator);
    }
    Ok(())
}

/// Can several processes each read some chunks of the file? Changes of the file are checked when it is opened. Guarded.
fn has_chunks(options: &TableOptions) -> bool {
    let list = options.location.as_ref().and_then(|location| location.files().ok().flatten());
    let size = match &list {
        // Skipped records may be those of several files.
        Some(list) => Some(list.size()).filter(|_| options.copy.skip == 0 && list.files.len() > 1),
        None => options.location.as_ref().and_then(|location| location.plain_size(options.copy.coding())),
    };
    let encodings = options.copy.encodings();
    // A process does not know how many rows the others have read.
    options.copy.limit.is_none()
        && size.is_some()
        && encodings.is_ok_and(|encodings| is_searchable(&encodings, &options.copy.dialect))
}

/// GetForeignPlan.
pub fn plan(
    root: Planner<'_>,
    rel: PlannedRelation<'_>,
    relid: pg_sys::Oid,
    path: Node<'_, pg_sys::ForeignPath>,
    targets: NodeList<'_>,
    clauses: NodeList<'_, pg_sys::RestrictInfo>,
    outer_plan: Option<Node<'_, pg_sys::Plan>>,
) -> Result<*mut pg_sys::ForeignScan> {
    if rel.reloptkind == pg_sys::RelOptKind::RELOPT_UPPER_REL {
        return Ok(aggregate::plan(path, targets, outer_plan));
    }
    let options = TableOptions::of_table(relid)?;
    if let Some(function) = options.filter.as_ref().and_then(Filter::planned) {
        root.depend(function);
    }
    let clauses = conditions(clauses);
    let mut wanted = wanted(rel, relid, clauses);
    // The columns of the promised order are converted, even if the query does not read them.
    let mut order = Vec::new();
    let count = path.pathkeys().len();
    if count > 0 {
        if let Some(option) = &options.sorted_by {
            order = order::promised(root, rel, relid, option, count)?;
        }
        for column in order.iter().map(|column| i32::from(column.number)) {
            if !wanted.by_quals.contains(&column) && !wanted.besides.contains(&column) {
                wanted.besides.push(column);
            }
        }
    }
    let private = Private { wanted, remarks: path.private(), aggregates: None, order };
    Ok(private.make_scan(targets, clauses, rel.relid, NodeList::EMPTY, outer_plan))
}

/// The columns that the conditions read, and the others that the relation returns. Guarded.
fn wanted(rel: PlannedRelation<'_>, relid: pg_sys::Oid, clauses: NodeList<'_>) -> Wanted {
    let by_quals = attributes(clauses, rel.relid);
    let mut besides = attributes(rel.targets(), rel.relid);
    // Clauses that are evaluated elsewhere (pseudoconstant ones) read no column of the table. Attribute 0 is the whole
    // row.
    if by_quals.contains(&0) || besides.contains(&0) {
        let natts = OpenRelation::locked(relid).get().descriptor().len();
        besides = (1..=i32::try_from(natts).unwrap_or(0)).collect();
    }
    let whole_row = by_quals.contains(&0);
    let by_quals: Vec<i32> = if whole_row { besides.clone() } else { by_quals };
    besides.retain(|a| *a > 0 && !by_quals.contains(a));
    Wanted { by_quals: by_quals.into_iter().filter(|a| *a > 0).collect(), besides }
}

/// The numbers of the attributes of a relation that expressions use. Guarded.
fn attributes(expressions: NodeList<'_>, relation: pg_sys::Index) -> Vec<i32> {
    let set = expressions.node().map_or(ColumnSet::EMPTY, |expressions| expressions.attributes(relation));
    set.numbers().map(i32::from).collect()
}

/// Do any columns have defaults? Guarded.
fn has_defaults(relid: pg_sys::Oid) -> bool {
    OpenRelation::locked(relid).get().descriptor().defaults().next().is_some()
}

/// IsForeignScanParallelSafe.
pub fn is_parallel_safe(
    _root: Planner<'_>,
    _rel: PlannedRelation<'_>,
    entry: Node<'_, pg_sys::RangeTblEntry>,
) -> Result<bool> {
    let relid = entry.relid;
    let options = TableOptions::of_table(relid)?;
    // DEFAULT markers and missing fields evaluate expressions that may be parallel-unsafe. Rejected rows may need
    // subtransactions, and are counted in one process. The leader runs a program.
    Ok(!options.copy.takes_defaults()
        && options.copy.on_error == OnError::Stop
        && matches!(&options.location, Some(Location::File(_) | Location::Below(_)))
        && !(options.copy.by_name() && has_defaults(relid))
        && Hazards::new().types_are_safe(relid, options.copy.shape() == RecordShape::Binary)
        && options.filter.as_ref().map_or(Ok(true), |filter| filter.is_parallel_safe(relid, &options.copy))?)
}
