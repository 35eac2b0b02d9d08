//! Prepares a load: relations, expressions, number of workers, and the indexes whose keys are collected.

use std::ffi::CString;

use pg_bulk_storage::tuple::Stamp;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::{Files as LoadFiles, Further, Leader, Workers};
use crate::error::{Error, Result};
use crate::guc;
use crate::heap::append::Traits;
use crate::heap::leaves;
use crate::index::index_keys::{KeyPlan, Tuples, WORTH_WORKERS, plan};
use crate::index::violating_row::ViolatingRow;
use crate::input::chunk_order::MOST_PROCESSES;
use crate::input::file_figures::ByFile;
use crate::input::files::Listed;
use crate::load::direct::executor::{Executor, inserted_by};
use crate::load::direct::held::HeldRelations;
use crate::load::direct::join::Join;
use crate::load::direct::key_check::KeyCheck;
use crate::load::direct::new_files;
use crate::load::direct::origin::Traces;
use crate::load::direct::process::{Heaps, Process, Progress, Pull, Recipe, Tracer, Writer, policy_of};
use crate::load::direct::rejects::Rejects;
use crate::load::direct::spec::{InputSpec, KeySpec, Shared, Spec};
use crate::load::direct::wide::Wide;
use crate::load::files::Files;
use crate::load::options::{IndexesOption, LoadOptions};
use crate::load::report::Counts;
use crate::load::{Load, obstacle, source};
use crate::program::Nodes;
use crate::program::defaults::Defaults;
use crate::program::mapping::Mapping;
use crate::rows::chunks::Chunks;
use crate::rows::column::Column;
use crate::rows::copy_options::CopyOptions;
use crate::rows::file_chunks::FileChunks;
use crate::rows::hazard::Hazards;
use crate::rows::row::Rows;
use crate::rows::soft::{OnError, Verbosity};
use crate::server::compat;
use crate::server::database::max_parallel_maintenance_workers;
use crate::server::expression::Expression;
use crate::server::memory_context::MemoryContext;
use crate::server::relation::{KeptRelation, Relation};
use crate::server::statement::{current_command, next_command, transaction_id};

impl Leader {
    pub fn new(load: &mut Load, executor: Executor) -> Result<Leader> {
        let target = load.target.relation()?;
        let condition = load.program.where_clause.conditions.node();
        let (options, mapping) = (&load.request.options, &load.mapping);
        let no_rows = || Error::new(Code::ERRCODE_INTERNAL_ERROR, "the file is not open");
        let mut rows = load.rows.take().ok_or_else(no_rows)?;
        rows.stream_mut().mark_splits(FileChunks::is_large);
        let more = std::mem::take(&mut load.more);
        let is_dry = load.request.is_dry();
        // A dry run writes nothing and needs no transaction id.
        let xmin = if is_dry { pg_sys::InvalidTransactionId } else { transaction_id() };
        let stamp = Stamp { xmin: xmin.into_inner(), cid: current_command(!is_dry), frozen: options.table.freeze };
        if !is_dry {
            // Only this load has the command id, so xmin and command id identify its rows. Functions that are not volatile
            // get no command id of their own, and may call code that writes to the table, such as another load.
            next_command();
        }
        let relations = leaves::lock_leaves(target);
        executor.pin_partitions();
        let leaves: Vec<Relation<'_>> = relations.iter().map(KeptRelation::get).collect();
        // A table without partitions was locked all the while. Triggers that the load's own statement triggers create
        // are for the next load.
        if !is_dry
            && leaves.iter().any(|leaf| leaf.oid() != target.oid())
            && let Some(obstacle) = obstacle::of_open_leaves(&leaves, options).into_iter().next()
        {
            let message =
                format!("partitions of table \"{}\" changed while the load began", load.target.display_name());
            let error = Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message);
            return Err(error.detail(obstacle).hint("Load it again."));
        }
        let expressions = source::defaults(target, mapping);
        let mut defaults = Defaults::new(&expressions, |default| default.open())?;
        if options.is_statement() {
            defaults.be_sparing();
        }
        let traits: Vec<(pg_sys::Oid, Traits)> = leaves.iter().map(|&leaf| (leaf.oid(), Traits::of(leaf))).collect();
        let starts: Vec<u32> = leaves.iter().map(|leaf| leaf.pages()).collect();
        let mut list = Vec::new();
        let traces = traces(&rows);
        let (is_safe, complain, keys, held) = {
            let hazards = Hazards::new();
            let safe = leaves.iter().all(|&leaf| hazards.relation_is_safe(leaf))
                && hazards.relation_is_safe(target)
                && condition.is_none_or(|condition| hazards.is_safe(condition))
                && is_safe_to_read(&hazards, rows.columns(), load.program.projection)
                // An inlined expression does the same as its function, so the function's label counts.
                && mapping.function.is_none_or(|function| hazards.function_is_safe(function))
                && load.program.joined.is_none_or(|joined| joined.is_safe)
                && more
                    .iter()
                    .try_fold(true, |safe, source| Ok::<_, Error>(safe && Further::is_safe(source, &hazards)?))?
                && defaults.expressions().filter_map(Expression::node).all(|default| hazards.is_safe(default))
                && defaults.is_shareable();
            // An expression that is not parallel safe may also write to the table.
            let collect = safe && !is_dry;
            let survives = options.copy.on_error == OnError::Table || load.arbiter.is_some();
            let each = leaves.iter().zip(&traits).zip(&starts).enumerate();
            for (number, ((&leaf, &(_, traits)), &start)) in each.filter(|_| collect) {
                let empty = start == 0 && !traits.shared;
                let builds = match options.indexes {
                    IndexesOption::Insert => false,
                    IndexesOption::Rebuild => empty,
                    IndexesOption::Auto | IndexesOption::Merge => empty || new_files::may_merge(leaf, traits),
                };
                let tuples = match empty && builds {
                    true if survives => Tuples::Plain,
                    true => Tuples::All,
                    false => Tuples::None,
                };
                plan(leaf, number, (builds, tuples), &hazards, &mut list);
            }
            let keeps = options.copy.on_error == OnError::Table;
            let complain = leaves.iter().any(|&leaf| leaves::may_complain(leaf) || (keeps && leaves::may_refer(leaf)));
            let keys = (is_dry && complain).then(|| KeyCheck::new(executor, &leaves, options, load.arbiter, traces));
            let held = if is_dry { HeldRelations::NONE } else { HeldRelations::hold(&leaves) };
            (safe, complain, keys, held)
        };
        relations.into_iter().for_each(KeptRelation::close);
        let copy = &options.copy;
        // A row of a join has no position in the file.
        let traces = if complain && load.program.joined.is_none() { traces } else { Traces::Nothing };
        let alone: &'static Shared = MemoryContext::current().keep(Shared::alone());
        let sizes = more
            .iter()
            .map(|source| source.options.location.divided_size(source.options.copy.coding()))
            .sum::<Option<u64>>();
        let own_size = rows.stream().files().map(|list| list.size()).or(rows.stream().size());
        let size = own_size.zip(sizes).map(|(first, others)| first + others);
        let is_shared = is_safe
            && keys.is_none()
            // One record may give any number of rows of the plan, so ids cannot be taken in advance.
            && (load.program.joined.is_none() || (defaults.sequences().is_empty() && rows.stream().files().is_none()))
            && (!options.is_statement() || defaults.have_room(most_rows(&rows, size))?)
            && traits.iter().all(|(_, t)| !t.temporary);
        let most_workers = if is_shared { most_workers(&rows, options, defaults.takes_ids()) } else { 0 };
        let further = Further::of(more, if is_shared { MOST_PROCESSES - 1 - most_workers } else { 0 });
        let at_a_time = further.iter().map(|further| further.workers).fold(most_workers, usize::max);
        let memory = memory_of_each(list.len() * (at_a_time + 1));
        let packs = at_a_time < WORTH_WORKERS;
        let sort_memory = memory.min(enough_to_sort(size, at_a_time + 1));
        let spec = Spec {
            relation: target.oid(),
            command: stamp.cid,
            frozen: options.table.freeze,
            is_dry,
            traces: traces != Traces::Nothing,
            input: InputSpec {
                path: load.request.path.clone(),
                files: rows.stream().files().map_or_else(Vec::new, |list| list.write()),
                options: load.request.json.as_ref().map_or_else(Vec::new, |json| json.bytes().to_vec()),
                foreign: options.foreign(),
                is_copy: options.is_copy(),
                encoding: rows.stream().encoding(),
                fields: fields_of(mapping),
                function: mapping.function,
            },
            inserted: inserted_by(load),
            conditions: Nodes { quals: load.program.where_clause.conditions, ..Nodes::NONE }.text(),
            projection: load.program.projection.map(Nodes::text),
            join: load.program.joined.filter(|_| most_workers > 0).map(|joined| joined.text(mapping.computed.clone())),
            traits: traits.clone(),
            keys: KeySpec {
                list: list.clone(),
                memory,
                sort_memory,
                packs,
                files: 0,
                sorts: 0,
                participants: 0,
                earlier_workers: 0,
            },
        };
        if !is_dry && traits.iter().any(|(_, t)| t.logical) {
            log_transaction();
        }
        let joined = load.program.joined.as_ref();
        let projection =
            Recipe::projection(load.program.projection, joined, options, mapping, &executor, rows.columns());
        let fields = load.program.joined.map_or(executor.context(), |joined| joined.fields());
        let tracer = Tracer::new(traces, traits.len());
        let plan = KeyPlan { list, memory, sort_memory, packs, files: None, sorts: None, participant: 0 };
        let mut heaps = Heaps::new(traits, stamp, plan, &executor, &rows);
        (heaps.is_dry, heaps.starts) = (is_dry, starts);
        let pull = match (load.program.query, load.program.joined) {
            (Some(query), _) => Some(Pull::Query(query)),
            (None, joined) => joined.map(|joined| Pull::Join(Join::new(joined, &mapping.computed))),
        };
        let writer = Writer {
            number: 0,
            shared: alone.into(),
            executor,
            chunks: Chunks::InOrder,
            records: u64::MAX,
            pull,
            recipe: Recipe::new(projection, fields, defaults),
            rejects: Rejects::new(copy, load.spool),
            keys,
            heaps,
            wide: Wide::leader(),
            tracer,
            progress: Progress::new(
                load.measures.files.as_ref().map_or(ByFile::NONE, Files::by_file),
                &raw mut load.measures.phases,
            ),
            is_plain: false,
        };
        let process = Process::new(rows, policy_of(copy), writer)?;
        let all_workers = most_workers + further.iter().map(|further| further.workers).sum::<usize>();
        let shares_now = !further.is_empty() && all_workers > 0;
        let mut leader = Leader {
            process,
            alone,
            spec,
            workers: Workers { most: most_workers, ..Workers::default() },
            files: LoadFiles::new(options, mapping, further),
            notes: Vec::new(),
            too_much: None,
            outer: std::ptr::null_mut(),
            counts: Counts::default(),
            duplicates: options.duplicates.clone(),
            arbiter: load.arbiter,
            replaced: 0,
            violating_row: ViolatingRow::default(),
            is_counted: false,
            held,
        };
        if shares_now {
            // The leader has keys already when the workers of a later file start.
            leader.share_keys(all_workers);
        }
        Ok(leader)
    }
}

/// Upper bound of the rows of a file, if the size of all files is known. In bzip2, the densest format, a block of some
/// 40 bytes may stand for 46 MB.
fn most_rows(rows: &Rows, size: Option<u64>) -> u64 {
    let compressed = || rows.stream().file_size().filter(|_| rows.stream().can_share());
    size.or_else(|| compressed().map(|size| size.saturating_mul(1 << 21))).unwrap_or(0)
}

/// Bytes for each of `count` key collections. All together get `maintenance_work_mem`, as one index build does.
fn memory_of_each(count: usize) -> usize {
    let all = usize::try_from(guc::maintenance_work_mem()).unwrap_or(0) * 1024;
    all / count.max(1)
}

/// Bytes in which each process sorts the index tuples of a file.
///
/// With more, sorting takes longer: each comparison beyond the processor's caches waits for memory, while sorted runs
/// are read and merged sequentially. But all runs must be merged in one pass, which takes a buffer for each run
/// (MERGE_BUFFER_SIZE, tuplesort.c). The estimate takes a key to be as long as its record.
fn enough_to_sort(size: Option<u64>, processes: usize) -> usize {
    const LEAST: usize = 4 << 20;
    const UNKNOWN: usize = 16 << 20;
    const BUFFER: u64 = 34 * pg_sys::BLCKSZ as u64;
    size.map_or(UNKNOWN, |size| {
        let each = size / processes.max(1) as u64;
        usize::try_from(each.saturating_mul(BUFFER).isqrt()).unwrap_or(usize::MAX).max(LEAST)
    })
}

/// In a subtransaction, logs the parent transaction for logical decoding. Workers take their subtransaction for the top
/// level, and would not log the parent with their first record (IsSubxactTopXidLogPending, xact.c). Any record of the
/// leader logs it.
fn log_transaction() {
    let mut nothing = [0u8; 4];
    // SAFETY: guarded calls; the data outlive the record. XLOG_NOOP has no effect in recovery.
    unsafe {
        if pg_sys::GetCurrentTransactionNestLevel() > 1 {
            pg_sys::XLogBeginInsert();
            compat::xlog_register_data(nothing.as_mut_ptr(), nothing.len());
            pg_sys::XLogInsert(pg_sys::RmgrIds::RM_XLOG_ID as u8, pg_sys::XLOG_NOOP as u8);
        }
    }
}

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
        let setting = usize::try_from(max_parallel_maintenance_workers()).unwrap_or(0);
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
