//! Runs a COPY as a load.

use std::ffi::{CString, c_char, c_ulonglong};

use pgrx::{check_for_interrupts, pg_sys};

use super::few::Few;
use super::{eligibility, options};
use crate::error::OrRaise;
use crate::guc;
use crate::input::source::Location;
use crate::load::target::{Target, TargetKind};
use crate::load::{Load, Request, Writer, obstacle, run_statement, source};
use crate::program::where_clause::WhereClause;
use crate::server::jsonb::Jsonb;
use crate::server::memory_context::MemoryContext;
use crate::server::node::Node;
use crate::server::relation::Relation;
use crate::server::unguarded::{self as c, Opaque, guarded};
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

/// Waits for the first data of a client. If a small amount and its end are there, returns the data, allocated in the
/// current memory context; then the load is over.
///
/// # Safety
/// A plain frame; a load that has begun, and its table.
pub unsafe fn wait(load: *mut Load, relation: Relation<'static>) -> Few {
    // SAFETY: the frame is plain, and the table's name outlives the push. With all data, the load is over.
    unsafe {
        let mut context = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(before_first_line),
            arg: (&raw mut (*(*relation.as_ptr()).rd_rel).relname.data).cast(),
        };
        pg_sys::error_context_stack = &raw mut context;
        let few = guarded(|| few_of(&mut *load));
        pg_sys::error_context_stack = context.previous;
        if !few.data.is_null() {
            guarded(|| (*load).memory.delete());
        }
        few
    }
}

/// COPY's error context while it waits for the first line.
///
/// # Safety
/// Called by the server while it makes a message, with the table's name.
unsafe extern "C-unwind" fn before_first_line(name: Opaque) {
    // SAFETY: the name outlives the push.
    unsafe {
        c::set_errcontext_domain(std::ptr::null());
        c::errcontext_msg(c"COPY %s, line %llu".as_ptr(), name.cast::<c_char>(), 1 as c_ulonglong);
    }
}

/// As [`wait`], but the load remains. Guarded.
fn few_of(load: &mut Load) -> Few {
    // Core's CopyFrom would look up the partitions now, and might find one that was attached during the wait,
    // without an eligibility check. The load has looked them up before the wait, like an ordinary COPY.
    if load.target.kind == TargetKind::Partitioned {
        return Few::NONE;
    }
    let Some(rows) = &mut load.rows else { return Few::NONE };
    let all = rows.stream_mut().source_mut().all_of_few(guc::copy_min_size());
    // Handles a cancel request that came meanwhile.
    check_for_interrupts!();
    let Some(all) = all.filter(|all| Few::suits(all)) else { return Few::NONE };
    // SAFETY: a guarded call returns memory for the bytes.
    let data = unsafe {
        let data = pg_sys::palloc(all.len() + 1).cast::<c_char>();
        data.copy_from_nonoverlapping(all.as_ptr().cast(), all.len());
        data
    };
    let few = Few { data, len: all.len() };
    load.measures.phases.progress.end();
    few
}

/// Runs the load, and returns the number of rows.
///
/// # Safety
/// A plain frame, and a load that has begun, whose memory context is a child of `caller`, the current one.
pub unsafe fn run(load: *mut Load, caller: pg_sys::MemoryContext) -> u64 {
    // SAFETY: this function's contract covers the load, which is used by one step at a time.
    unsafe {
        pg_sys::CurrentMemoryContext = (*load).memory.as_ptr();
        run_statement(load);
        pg_sys::CurrentMemoryContext = caller;
        let rows = (*load).measures.counts.loaded;
        // This drops the load.
        guarded(|| (*load).memory.delete());
        rows
    }
}
