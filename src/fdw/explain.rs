//! EXPLAIN of a scan: file, size, rows and column lists.

use std::ffi::{CStr, CString};

use pgrx::pg_sys;

use super::node::ScanNode;
use super::options::TableOptions;
use super::private::Private;
use crate::error::Result;
use crate::input::source::Location;
use crate::rows::soft::OnError;
use crate::server::explain::Explain;
use crate::server::lookup;
use crate::server::refusal::refusal;
use crate::server::server_text::from_server;

/// A name in SQL. Guarded.
fn quoted(name: &CStr) -> String {
    lookup::quoted(name).to_string_lossy().into_owned()
}

/// Names in SQL. Guarded.
fn list(names: &[CString]) -> String {
    names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ")
}

/// Labels a scan that returns aggregates as postgres_fdw does, since core does not name its table. Guarded.
fn explain_aggregate(partial: bool, relid: pg_sys::Oid, alias: &CStr, explain: Explain<'_>) {
    let name = lookup::relation_name(relid).unwrap_or_default();
    let mut table = quoted(&name);
    if explain.is_verbose() {
        table = format!("{}.{table}", quoted(&lookup::shown_schema_name(lookup::schema_of(relid))));
    }
    if alias != name.as_c_str() {
        table = format!("{table} {}", quoted(alias));
    }
    let what = if partial { "Partial Aggregate" } else { "Aggregate" };
    explain.text(c"Relations", &format!("{what} on ({table})"));
}

/// ExplainForeignScan.
pub fn explain(mut node: ScanNode<'_>, explain: Explain<'_>) -> Result<()> {
    let private = Private::of(node.private());
    let aggregated = private.aggregates.and_then(|aggregates| {
        let (relid, alias) = explain.relation(node.aggregated_table())?;
        explain_aggregate(aggregates.partial, relid, alias, explain);
        Some(relid)
    });
    let relid = aggregated.unwrap_or_else(|| node.relation().oid());
    let (verbose, analyze, estate) = (explain.is_verbose(), explain.is_analyze(), node.estate());
    let options = TableOptions::of_table(relid)?;
    match options.location()? {
        Location::Client(_) | Location::Bytes(_) | Location::LargeObject(_) | Location::Query => (),
        location @ Location::Program(_) => explain.text(c"Foreign Program", &location.display()),
        location @ (Location::File(_) | Location::Files(_) | Location::Below(_)) => {
            explain.text(c"Foreign File", &location.display());
            let list = location.files().ok().flatten();
            if let Some(list) = &list {
                explain.number(c"Foreign Files", None, list.files.len() as u64);
            }
            let size = || match list {
                Some(list) => Some(list.size()).filter(|_| Location::Files(list).is_allowed()),
                // Nothing about a file that may not be read; directories are never read.
                None if !location.is_allowed() => None,
                None => location.metadata().ok().filter(|meta| !meta.is_dir()).map(|meta| meta.len()),
            };
            // As file_fdw: no size without costs.
            if explain.has_costs()
                && let Some(size) = size()
            {
                explain.number(c"Foreign File Size", Some(c"b"), size);
            }
        }
    }
    if let Some(filter) = &options.filter {
        explain.text(c"Filter Function", &from_server(filter.name()));
    }
    if !private.order.is_empty() {
        let columns: Vec<_> = private.order.iter().map(|column| column.describe(relid)).collect();
        explain.text(c"Sorted By", &columns.join(", "));
    }
    if verbose {
        let remark = private.remarks.first().and_then(|remark| remark.as_a::<pg_sys::String>());
        let why = remark.map(|remark| remark.text().to_string_lossy());
        let of_query = || refusal(estate).filter(|_| analyze).map(Into::into);
        if let Some(why) = why.or_else(of_query) {
            explain.text(c"Direct Insert", &format!("no ({why})"));
        }
    }
    let Some(scan) = node.scan().filter(|_| analyze) else { return Ok(()) };
    if scan.is_replaced {
        explain.text(c"Direct Insert", "yes");
    }
    explain.number(c"Bytes Read", Some(c"b"), scan.bytes_read());
    if options.copy.on_error != OnError::Stop {
        let label = if options.copy.on_error == OnError::Ignore { c"Rows Skipped" } else { c"Rows Set to Null" };
        explain.number(label, None, scan.pump.policy.tolerance.bad_rows);
    }
    if verbose {
        let [first, rest] = scan.converted();
        if !first.is_empty() {
            explain.text(c"Converted", &list(&first));
        }
        if !rest.is_empty() {
            explain.text(c"Converted after Filter", &list(&rest));
        }
    }
    Ok(())
}
