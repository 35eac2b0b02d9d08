//! A parallel worker of a load.
//!
//! A worker prepares the same state from the spec that the leader has prepared from the call, loads chunks until none
//! is left, and ends. A worker holds back an error until it is known to be the earliest of the file, then raises it
//! unchanged.

use std::ffi::CString;
use std::rc::Rc;

use pg_bulk_storage::tuple::Stamp;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::executor;
use super::join::{self, Join};
use super::origin::Traces;
use super::process::{Heaps, Process, Progress, Pull, Recipe, Tracer, Writer, policy_of};
use super::rejects::Rejects;
use super::row_loop;
use super::spec::{LoadTask, Shared, Spec};
use super::wide::Wide;
use crate::error::{Error, OrRaise, Result};
use crate::heap::leaves;
use crate::index::index_keys::KeyPlan;
use crate::index::shared_sorts::SharedSorts;
use crate::input::file_figures::ByFile;
use crate::input::files::FileList;
use crate::input::source::Location;
use crate::load::definer::Allowed;
use crate::load::options::{LoadOptions, Once};
use crate::load::source;
use crate::program::Text;
use crate::program::defaults::Defaults;
use crate::program::mapping::Mapping;
use crate::rows::chunks::Chunks;
use crate::rows::context::copy_context;
use crate::rows::file_chunks::Listed;
use crate::rows::row::{Rows, leaders_rows};
use crate::server::attempt::attempt;
use crate::server::background::pause;
use crate::server::failure;
use crate::server::jsonb::Jsonb;
use crate::server::memory_context::MemoryContext;
use crate::server::points::point;
use crate::server::relation::{KeptRelation, Relation};
use crate::server::sent::Sent;
use crate::server::sequence::Sequence;
use crate::server::shared_files::SharedFiles;
use crate::server::statement::assigned_transaction_id;
use crate::server::team::{Exclusive, Worker};
use crate::server::unguarded::{self, guarded};

/// Entry point, called by ParallelWorkerMain in a transaction with the leader's xid.
///
/// # Safety
/// The arguments are those of a parallel worker's entry point.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pg_bulk_load_worker(segment: *mut pg_sys::dsm_segment, toc: *mut pg_sys::shm_toc) {
    // SAFETY: the server passes the arguments; the context callback gets the rows of the process while it is pushed;
    // nothing in this frame has a destructor.
    unsafe {
        let state = guarded(|| {
            point!("worker.begin");
            let state = attach(Worker::join(segment, toc).or_raise()).or_raise();
            std::ptr::from_mut(MemoryContext::current().keep(state))
        });
        let process = &raw mut (*state).process;
        let error = attempt(|| {
            unguarded::in_context(copy_context, (&raw mut (*process).rows).cast(), || {
                row_loop::run(process);
                guarded(|| (*process).finish().or_raise());
            });
        });
        if error.is_null() {
            guarded(|| finish(&mut *state));
            return;
        }
        failure::recover();
        if !failure::is_about_a_row(&*error)
            || guarded(|| (*process).writer.shared.is_earliest((*process).writer.number))
        {
            unguarded::ReThrowError(error);
        }
        // The leader receives an earlier error and ends this worker.
        guarded(|| {
            loop {
                pause(60_000);
            }
        })
    }
}

/// A worker, its state as a process of the load, and the target.
struct State {
    team: Worker<LoadTask>,
    process: Process,
    target: Option<KeptRelation>,
}

/// Ends the work of a worker that is done.
fn finish(State { team, process, target }: &mut State) {
    point!("worker.end");
    process.writer.wide.detach();
    process.rows.close().or_raise();
    if let Some(Pull::Join(join)) = process.writer.pull.take() {
        let figures = team.slice(team.task().figures).chunks_exact(join.measured.max(1)).nth(team.number - 1);
        // SAFETY: the figures of this worker alone.
        join.report(unsafe { &mut *Exclusive::pointer(figures.unwrap_or_default()) });
        join.end();
    }
    // SAFETY: the worker has no row left, and has written its keys.
    unsafe {
        executor::tear_down(&process.writer.executor);
        process.writer.heaps.plan.release();
    }
    if let Some(target) = target.take() {
        target.close();
    }
    team.end();
}

/// Opens the leader's file, or the first file of its list. Guarded; memory as in [`source::open_rows`].
fn open(relation: Relation, options: &mut LoadOptions, mapping: &Mapping, shared: &Shared) -> Result<Rows> {
    if matches!(options.location, Location::Files(_)) {
        return source::open_rows(relation, options, Some(mapping));
    }
    let location = options.location.clone();
    let described = if options.is_copy() { CString::default() } else { location.described() };
    leaders_rows(&location, shared.leaders, shared.file, |opened| {
        options.location = opened.clone();
        let rows = source::open_rows(relation, options, Some(mapping));
        options.location = location.clone();
        let mut rows = rows?;
        rows.context.described = described.clone();
        Ok(rows)
    })
}

/// Makes the state of a process of the load. Guarded.
fn attach(team: Worker<LoadTask>) -> Result<State> {
    let task = team.task();
    let (shared, queue) = (&task.shared, team.queue());
    let spec = Spec::receive(&mut team.slice(task.spec));
    let damaged =
        || Error::new(Code::ERRCODE_INTERNAL_ERROR, "could not read the shared memory of the leader of the load");
    let spec = spec.ok_or_else(damaged)?;
    let mut options = match spec.input.foreign {
        Some(foreign) => LoadOptions::of_foreign_table(foreign)?,
        // The leader sends no options if it has none.
        None if spec.input.options.is_empty() => return Err(damaged()),
        None => {
            // SAFETY: the leader has sent the bytes of a jsonb.
            let json = unsafe { Jsonb::from_bytes(&spec.input.options) };
            // The leader has checked the options.
            LoadOptions::parse(spec.input.path.clone(), &json, &Allowed::ALL, false)?
        }
    };
    let target = KeptRelation::open(spec.relation, pg_sys::RowExclusiveLock);
    let relation = target.get();
    if spec.is_dry {
        options.adapt_to_check();
    }
    if spec.input.is_copy {
        options.adapt_to_copy();
    }
    options.copy.encoding = Some(spec.input.encoding);
    let list =
        if spec.input.files.is_empty() { None } else { Some(FileList::read(&spec.input.files).ok_or_else(damaged)?) };
    let list = list.map(|list| Rc::new(list.made_of(&options.location)));
    if let Some(list) = &list {
        options.location = Location::Files(Rc::clone(list));
    }
    let mut mapping = Mapping {
        fields: spec.input.fields.iter().map(|(attnum, _)| (*attnum != 0).then_some(*attnum)).collect(),
        names: spec.input.fields.iter().map(|(_, name)| name.clone()).collect(),
        others: source::others(relation, &options)?,
        function: spec.input.function,
        ..Mapping::default()
    };
    let nodes = spec.projection.as_ref().map(Text::nodes);
    if let Some(nodes) = nodes {
        nodes.complete(&mut mapping);
    }
    let join = spec.join.as_ref().map(join::Text::attach).transpose()?;
    if let (Some(join), Some(text)) = (&join, &spec.join) {
        join.joined().complete(&mut mapping);
        mapping.computed = text.sets.clone();
    }
    let mut rows = open(relation, &mut options, &mapping, shared)?;
    rows.stream_mut().let_caller_switch();
    if list.is_none() {
        rows.take_names()?;
    }
    if options.once != Once::No {
        rows.stream_mut().insist(shared.file)?;
    }
    // A worker without access to the shared ring has no chunks to load.
    let ring = shared.ring;
    let is_absent = !ring.is_none() && !rows.stream_mut().source_mut().join(ring);
    let place = pg_bulk_text::reader::RecordStart { eol: shared.eol(), offset: 0, lines: 0 };
    let cutter = rows.stream().cutter(place).ok_or_else(damaged)?;
    let executor = executor::set_up(relation, &spec.inserted, spec.conditions.nodes().quals, 0);
    executor.pin_partitions();
    let known: Vec<_> = spec.traits.iter().map(|(oid, _)| *oid).collect();
    let sees_the_same = leaves::are_leaves(relation, &known);
    let mut sequences = team.slice(task.sequences).iter();
    let mut defaults = Defaults::new(&source::defaults(relation, &mapping), |_| {
        Sequence::attach(sequences.next().ok_or_else(damaged)?)
    })?;
    if options.is_statement() {
        defaults.be_sparing();
    }
    let mut rejects = Rejects::new(&options.copy, None);
    if rejects.limit.is_some() {
        rejects.tallies = Some(team.slice(task.rejects).into());
    }
    let files = if spec.keys.files == 0 { None } else { Some(SharedFiles::attach(spec.keys.files)?) };
    let count = spec.keys.list.iter().filter(|planned| planned.sort.is_some()).count();
    let sorts = match spec.keys.sorts {
        0 => None,
        handle => Some(SharedSorts::attach(handle, count, spec.keys.participants)?),
    };
    let plan = KeyPlan {
        list: spec.keys.list,
        memory: spec.keys.memory,
        sort_memory: spec.keys.sort_memory,
        packs: spec.keys.packs,
        files,
        sorts,
        participant: spec.keys.earlier_workers + team.number,
    };
    // A parallel worker has its leader's transaction id.
    let xmin = assigned_transaction_id().into_inner();
    let joined = join.as_ref().map(Join::joined);
    let projection = Recipe::projection(nodes, joined, &options, &mapping, &executor, rows.columns());
    let by_file = ByFile::new(team.slice(task.by_file).into());
    rows.stream_mut().count_by_file(by_file);
    let fields = join.as_ref().map_or(executor.context(), |join| join.joined().fields());
    let stamp = Stamp { xmin, cid: spec.command, frozen: spec.frozen };
    let traces = if spec.traces { Traces::Positions } else { Traces::Nothing };
    let tracer = Tracer::new(traces, spec.traits.len());
    let mut heaps = Heaps::new(spec.traits, stamp, plan, &executor, &rows);
    (heaps.is_dry, heaps.counters) = (spec.is_dry, team.slice(task.counters));
    let chunks = match &list {
        Some(list) => {
            let states = team.slice(task.states).into();
            Chunks::Listed(Box::new(Listed::new(list, states, defaults.takes_ids())))
        }
        None => Chunks::Shared { cutter: Box::new(cutter), ticket: 0 },
    };
    let mut policy = policy_of(&options.copy);
    // The leader skips records before it starts workers. With a limit, it starts none.
    (policy.skip_left, policy.limit_left) = (0, is_absent.then_some(0));
    let writer = Writer {
        number: team.number,
        shared: shared.into(),
        executor,
        chunks,
        // If a partition was attached or detached in the meantime, this worker routes no rows. The other processes do not
        // know the change.
        records: if sees_the_same { u64::MAX } else { 0 },
        pull: join.map(Pull::Join),
        recipe: Recipe::new(projection, fields, defaults),
        rejects,
        keys: None,
        heaps,
        wide: Wide::worker(queue),
        tracer,
        progress: Progress::new(by_file, std::ptr::null_mut()),
        is_plain: false,
    };
    let mut process = Process::new(rows, policy, writer)?;
    process.rows.end_stream();
    Ok(State { team, process, target: Some(target) })
}
