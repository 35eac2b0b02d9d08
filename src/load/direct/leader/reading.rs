//! What the leader finds out about a file before it reads rows: parallel safety, number of workers, tracing of rows.

use std::ffi::CString;

use pgrx::pg_sys;

use crate::guc;
use crate::input::chunk_order::MOST_PROCESSES;
use crate::input::files::Listed;
use crate::load::direct::origin::Traces;
use crate::load::options::LoadOptions;
use crate::program::Nodes;
use crate::program::mapping::Mapping;
use crate::rows::column::Column;
use crate::rows::copy_options::CopyOptions;
use crate::rows::file_chunks::FileChunks;
use crate::rows::hazard::Hazards;
use crate::rows::row::Rows;
use crate::rows::soft::{OnError, Verbosity};
use crate::server::compat;
use crate::server::expression::Expression;

/// Is it parallel safe to make rows of these columns and of expressions over them? Guarded.
pub(super) fn is_safe_to_read(hazards: &Hazards, columns: &[Column], nodes: Option<Nodes>) -> bool {
    let column_is_safe = |column: &Column| {
        let default = column.default.and_then(Expression::node);
        hazards.column_is_safe(column) && default.is_none_or(|default| hazards.is_safe(default))
    };
    nodes.and_then(Nodes::all).is_none_or(|nodes| hazards.is_safe(nodes))
        && columns.iter().filter(|column| !column.ignored).all(column_is_safe)
}

/// How rows of a file can be traced to its records.
pub(super) fn traces(rows: &Rows) -> Traces {
    let is_supplied = rows.stream().source().is_supplied() && !rows.context.is_query;
    let is_there = rows.stream().size().is_some() || rows.stream().can_share() || is_supplied;
    let is_traceable = rows.stream().files().is_some() || (rows.stream().has_offsets() && is_there);
    if is_traceable { Traces::Positions } else { Traces::Lines }
}

/// Most workers that the file allows for its rows. Guarded.
pub(super) fn most_workers(rows: &Rows, options: &LoadOptions, takes_ids: bool) -> usize {
    let copy = &options.copy;
    let stream = rows.stream();
    // Errors of a filter function are survived in subtransactions, which workers cannot start.
    let filters = options.function.is_some() && matches!(copy.on_error, OnError::Table | OnError::Ignore);
    let survives = || survives(copy, rows.columns()) && copy.limit.is_none() && !filters;
    if let Some(list) = stream.files() {
        // Skipped records may be those of several files.
        let mut any = stream.is_searchable() && survives() && copy.skip == 0;
        // The number of records of a compressed file is not known when the ids are taken.
        let is_plain = |file: &Listed| {
            pgrx::check_for_interrupts!();
            list.location(file).plain_size(copy.coding()).is_some()
        };
        any &= !takes_ids || list.files.iter().all(is_plain);
        let chunks = usize::try_from(FileChunks::of(list).count()).unwrap_or(usize::MAX);
        return if any { workers_for(options.workers, list.size()).min(chunks - 1) } else { 0 };
    }
    // The reject limit is checked chunk by chunk, but the number of chunks of a compressed file is unknown.
    let has_no_limit = copy.reject_limit.is_none();
    let is_divided = stream.has_chunks() || (stream.can_share() && has_no_limit);
    if is_divided && survives() { workers_for(options.workers, stream.file_size().unwrap_or(0)) } else { 0 }
}

/// Number of workers for a file of `size` bytes.
pub fn workers_for(option: Option<usize>, size: u64) -> usize {
    let asked = option.or_else(guc::workers);
    let workers = asked.unwrap_or_else(|| {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // SAFETY: reads a setting.
        let setting = usize::try_from(unsafe { pg_sys::max_parallel_maintenance_workers }).unwrap_or(0);
        // Starting a worker takes milliseconds.
        let worth = usize::try_from(size / (4 << 20)).unwrap_or(usize::MAX);
        setting.min(cores.saturating_sub(1)).min(worth)
    });
    workers.min(MOST_PROCESSES - 1)
}

/// Can workers handle bad values as the options ask? Workers cannot start subtransactions, and messages about single
/// bad values must come in the order of the file.
fn survives(copy: &CopyOptions, columns: &[Column]) -> bool {
    let values_are = || columns.iter().all(|column| column.ignored || compat::is_survivable(column.type_oid));
    match copy.on_error {
        OnError::Stop => true,
        OnError::Table => values_are(),
        OnError::Ignore | OnError::SetNull => copy.verbosity != Verbosity::Verbose && values_are(),
    }
}

/// The fields' attribute numbers and names, for workers.
pub(super) fn fields_of(mapping: &Mapping) -> Vec<(i16, CString)> {
    let numbers = mapping.fields.iter().map(|attnum| attnum.unwrap_or(0));
    numbers.zip(mapping.names.iter().cloned()).collect()
}
