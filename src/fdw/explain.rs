//! EXPLAIN of a scan: file, size, rows and column lists.

use std::ffi::{CStr, CString, c_char};

use pgrx::{PgList, pg_guard, pg_sys};

use super::aggregate::Aggregates;
use super::options::TableOptions;
use super::private::{order_of, others};
use super::scan::Scan;
use crate::error::OrRaise;
use crate::input::source::Location;
use crate::rows::soft::OnError;
use crate::server::refusal::refusal;
use crate::server::server_text::from_server;

fn text(label: &std::ffi::CStr, value: &str, es: *mut pg_sys::ExplainState) {
    let value = CString::new(value).unwrap_or_default();
    // SAFETY: guarded; valid strings and the state that the server gave.
    unsafe { pg_sys::ExplainPropertyText(label.as_ptr(), value.as_ptr(), es) }
}

/// Column names, quoted for SQL.
fn quoted(names: &[CString]) -> String {
    // SAFETY: guarded; valid strings.
    let quote = |name: &CString| unsafe { CStr::from_ptr(pg_sys::quote_identifier(name.as_ptr())) };
    let names: Vec<_> = names.iter().map(|name| quote(name).to_string_lossy()).collect();
    names.join(", ")
}

fn number(label: &std::ffi::CStr, unit: Option<&std::ffi::CStr>, value: u64, es: *mut pg_sys::ExplainState) {
    let unit = unit.map_or(std::ptr::null(), std::ffi::CStr::as_ptr);
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    // SAFETY: as above.
    unsafe { pg_sys::ExplainPropertyInteger(label.as_ptr(), unit, value, es) }
}

/// Labels a scan that returns aggregates as postgres_fdw does, since core does not name its table. Returns the table;
/// `None` if the scan returns rows. Guarded.
///
/// # Safety
/// As [`explain_foreign_scan`].
unsafe fn explain_aggregate(node: *mut pg_sys::ForeignScanState, es: *mut pg_sys::ExplainState) -> Option<pg_sys::Oid> {
    // SAFETY: this function's contract covers the structures. The only member of `fs_relids` is the index of a range
    // table entry, and EXPLAIN has a name for each entry.
    unsafe {
        let plan = (*node).ss.ps.plan.cast::<pg_sys::ForeignScan>();
        let aggregates = Aggregates::from_private((*plan).fdw_private)?;
        let place = pg_sys::bms_next_member((*plan).fs_relids, -1) - 1;
        let entry = pg_sys::list_nth((*es).rtable, place).cast::<pg_sys::RangeTblEntry>();
        let relid = (*entry).relid;
        let quote = |name: *const c_char| CStr::from_ptr(pg_sys::quote_identifier(name)).to_string_lossy().into_owned();
        let name = pg_sys::get_rel_name(relid);
        let mut table = quote(name);
        if (*es).verbose {
            let schema = pg_sys::get_namespace_name_or_temp(pg_sys::get_rel_namespace(relid));
            table = format!("{}.{table}", quote(schema));
        }
        let mut alias = pg_sys::list_nth((*es).rtable_names, place).cast::<c_char>().cast_const();
        if alias.is_null() {
            alias = (*(*entry).eref).aliasname;
        }
        if CStr::from_ptr(alias) != CStr::from_ptr(name) {
            table = format!("{table} {}", quote(alias));
        }
        let what = if aggregates.partial { "Partial Aggregate" } else { "Aggregate" };
        text(c"Relations", &format!("{what} on ({table})"), es);
        Some(relid)
    }
}

/// # Safety
/// Called by EXPLAIN.
#[pg_guard]
pub unsafe extern "C-unwind" fn explain_foreign_scan(
    node: *mut pg_sys::ForeignScanState,
    es: *mut pg_sys::ExplainState,
) {
    // SAFETY: the executor's and EXPLAIN's own structures.
    let (relid, scan, costs, verbose, analyze) = unsafe {
        let relid = explain_aggregate(node, es).unwrap_or_else(|| (*(*node).ss.ss_currentRelation).rd_id);
        (relid, (*node).fdw_state.cast::<Scan>().as_ref(), (*es).costs, (*es).verbose, (*es).analyze)
    };
    let options = TableOptions::of_table(relid).or_raise();
    match options.location().or_raise() {
        Location::Client(_) | Location::Bytes(_) | Location::LargeObject(_) | Location::Query => (),
        location @ Location::Program(_) => text(c"Foreign Program", &location.display(), es),
        location @ (Location::File(_) | Location::Files(_) | Location::Below(_)) => {
            text(c"Foreign File", &location.display(), es);
            let list = location.files().ok().flatten();
            if let Some(list) = &list {
                number(c"Foreign Files", None, list.files.len() as u64, es);
            }
            let size = || match list {
                Some(list) => Some(list.size()).filter(|_| Location::Files(list).is_allowed()),
                // Nothing about a file that may not be read; directories are never read.
                None if !location.is_allowed() => None,
                None => location.metadata().ok().filter(|meta| !meta.is_dir()).map(|meta| meta.len()),
            };
            // As file_fdw: no size without costs.
            if costs && let Some(size) = size() {
                number(c"Foreign File Size", Some(c"b"), size, es);
            }
        }
    }
    if let Some(filter) = &options.filter {
        text(c"Filter Function", &from_server(filter.name()), es);
    }
    // SAFETY: a plan that this module made.
    let order = unsafe { order_of((*(*node).ss.ps.plan.cast::<pg_sys::ForeignScan>()).fdw_private) };
    if !order.is_empty() {
        let columns: Vec<_> = order.iter().map(|column| column.describe(relid)).collect();
        text(c"Sorted By", &columns.join(", "), es);
    }
    if verbose {
        // SAFETY: a plan that this module made; the entries about its path are strings.
        let why = unsafe {
            let plan = (*node).ss.ps.plan.cast::<pg_sys::ForeignScan>();
            let others = PgList::<pg_sys::Node>::from_pg(others((*plan).fdw_private));
            others.get_ptr(0).map(|node| CStr::from_ptr((*node.cast::<pg_sys::String>()).sval).to_string_lossy())
        };
        // SAFETY: the executor's own structures.
        let of_query = || refusal(unsafe { (*node).ss.ps.state }).filter(|_| analyze).map(Into::into);
        if let Some(why) = why.or_else(of_query) {
            text(c"Direct Insert", &format!("no ({why})"), es);
        }
    }
    let Some(scan) = scan.filter(|_| analyze) else { return };
    if scan.is_replaced {
        text(c"Direct Insert", "yes", es);
    }
    number(c"Bytes Read", Some(c"b"), scan.bytes_read(), es);
    if options.copy.on_error != OnError::Stop {
        let label = if options.copy.on_error == OnError::Ignore { c"Rows Skipped" } else { c"Rows Set to Null" };
        number(label, None, scan.pump.policy.tolerance.bad_rows, es);
    }
    if verbose {
        let [first, rest] = scan.converted();
        if !first.is_empty() {
            text(c"Converted", &quoted(&first), es);
        }
        if !rest.is_empty() {
            text(c"Converted after Filter", &quoted(&rest), es);
        }
    }
}
