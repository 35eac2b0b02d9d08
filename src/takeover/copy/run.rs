//! Runs a COPY as a load.

use std::ffi::{CString, c_char, c_ulonglong};

use pgrx::{check_for_interrupts, pg_sys};

use super::{eligibility, few, options};
use crate::error::OrRaise;
use crate::guc;
use crate::input::source::Location;
use crate::load::target::{Target, TargetKind};
use crate::load::{Load, Request, Writer, obstacle, source};
use crate::program::where_clause::WhereClause;
use crate::server::jsonb::Jsonb;
use crate::server::memory_context::MemoryContext;
use crate::server::node::Node;
use crate::server::relation::Relation;
use crate::server::unguarded::{self as c, Opaque};
use crate::takeover::insert_select::eligibility::{Answer, no};

/// Makes the load of a COPY FROM into this table and opens its file, or returns the reason why core must run the COPY. A
/// client is then asked for its data. Guarded.
pub fn begin(
    statement: Node<'_, pg_sys::CopyStmt>,
    relation: Relation<'static>,
    clause: WhereClause,
) -> Answer<*mut Load> {
    let (mut options, json) = options::of_statement(statement)?;
    let Ok(Some(mapping)) = source::by_position(relation, &options) else {
        return no("The list of columns is invalid.");
    };
    if matches!(options.location, Location::Client(_)) {
        options.location = Location::Client(mapping.fields.len());
    }
    // SAFETY: the load closes the table, unless it does not begin.
    let Ok(target) = (unsafe { Target::of_open(relation) }) else { return no("The target is not a table.") };
    target.check_insert(Some(&mapping), clause.rights).or_raise();
    let locked = eligibility::of_rows(relation, &options, clause.conditions, &mapping)?;
    let memory = MemoryContext::current().child(c"bulk_load");
    let entered = memory.enter();
    let Ok(rows) = source::open_rows(relation, &options, Some(&mapping)) else {
        // Core raises the error.
        drop(entered);
        // SAFETY: nothing in it is used any more.
        unsafe { memory.delete() };
        obstacle::release(&locked);
        return no("The data cannot be read.");
    };
    let path = statement.file().unwrap_or_default().to_owned();
    let json = match options.location {
        // Only files are read by workers.
        Location::File(_) => Some(Jsonb::parse(&CString::new(json).unwrap_or_default())),
        _ => None,
    };
    let request = Request { json, ..Request::new(options, path) };
    let load = Load::new(request, target, memory);
    let load = memory.keep(Load { mapping, rows: Some(rows), writer: Writer::Direct, ..load });
    load.program.where_clause = clause;
    load.begin_rows();
    // From here on core cannot run the COPY any more.
    if let Some(rows) = &mut load.rows {
        rows.stream_mut().source_mut().ask();
    }
    Ok(load)
}

/// COPY's error context while it waits for the first line.
///
/// # Safety
/// Called by the server while it makes a message, with the table's name.
pub unsafe extern "C-unwind" fn before_first_line(name: Opaque) {
    // SAFETY: the name outlives the push.
    unsafe {
        c::set_errcontext_domain(std::ptr::null());
        c::errcontext_msg(c"COPY %s, line %llu".as_ptr(), name.cast::<c_char>(), 1 as c_ulonglong);
    }
}

/// Waits for the first data of a client. Returns them if they are a small amount and their end is there, in the current
/// memory context. Guarded.
pub fn few_of(load: &mut Load) -> Option<&'static [u8]> {
    // Core's CopyFrom would look up the partitions now, and might find one that was attached during the wait,
    // without an eligibility check. The load has looked them up before the wait, like an ordinary COPY.
    if load.target.kind == TargetKind::Partitioned {
        return None;
    }
    let all = load.rows.as_mut()?.stream_mut().source_mut().all_of_few(guc::copy_min_size());
    // Handles a cancel request that came meanwhile.
    check_for_interrupts!();
    let few = MemoryContext::current().keep(all.filter(|all| few::suits(all))?.to_vec());
    load.measures.phases.progress.end();
    Some(few)
}
