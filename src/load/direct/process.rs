//! One process of a load: makes rows from records, and puts them into heaps.
//!
//! This module owns the state. The pump makes rows of the file's records, and its sink, the [`writer`], puts them into
//! heaps. [`row_loop`](super::row_loop) does the steps of a row that need a plain frame.

mod heaps;
mod tracer;
mod writer;

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use pg_bulk_text::reader::RecordStart;
use pgrx::pg_sys;

pub use self::heaps::Heaps;
pub use self::tracer::Tracer;
use self::writer::ROUND;
pub use self::writer::{InBlock, Writer};
use super::executor::{Executor, set_up_again};
use super::join::{Join, Joined};
use super::origin::Traces;
use super::rejects::Rejects;
use super::spec::Shared;
use crate::error::Result;
use crate::input::file_figures::ByFile;
use crate::load::options::LoadOptions;
use crate::load::phase::Phases;
use crate::load::query::Query;
use crate::load::source;
use crate::program::Nodes;
use crate::program::defaults::Defaults;
use crate::program::mapping::Mapping;
use crate::program::projection::Projection;
use crate::rows::chunks::Chunks;
use crate::rows::column::{Column, Taken};
use crate::rows::copy_options::CopyOptions;
use crate::rows::row::Rows;
use crate::rows::row::pump::Policy;
use crate::server::compat::is_virtual;
use crate::server::progress::Figures;
use crate::server::relation::Relation;
use crate::server::slot::ExprContext;
use crate::server::stages::{Stage, Stages};
use crate::server::team::SharedRef;
use crate::server::unguarded::Opaque;

/// One process of a load.
#[derive(Debug)]
pub struct Process {
    pub rows: Rows,
    pub policy: Policy,
    pub writer: Writer,
    /// In the leader of a join: the step before the second record, done once. [`Writer::records`] then ends the first
    /// record.
    pub beginning: Option<Beginning>,
}

/// The policy of these options, for a process of a load. Without a limit of rejects, which all processes count together.
pub fn policy_of(copy: &CopyOptions) -> Policy {
    let mut policy = Policy::of(copy);
    policy.tolerance.reject_limit = None;
    policy
}

/// A step of the leader after the first record.
#[derive(Debug, Clone, Copy)]
pub struct Beginning {
    pub begin: unsafe fn(Opaque),
    pub leader: Opaque,
    /// The memory context for what the step makes.
    pub memory: pg_sys::MemoryContext,
}

/// What rows are pulled from, one by one.
#[derive(Debug)]
pub enum Pull {
    /// The query that makes the rows; there is no file.
    Query(&'static Query),
    /// The plan that rows of the file go through.
    Join(Join),
}

impl Process {
    /// A process that is ready for the rows of its file. Guarded.
    pub fn new(rows: Rows, policy: Policy, writer: Writer) -> Result<Process> {
        let mut process = Process { rows, policy, writer, beginning: None };
        let writer = &mut process.writer;
        if writer.executor.routing().1.is_null() {
            writer.heaps.open(writer.executor.relation(), &writer.tracer)?;
            writer.recipe.not_null = not_null(writer.executor.relation());
        }
        writer.find_steps();
        process.begin_file();
        Ok(process)
    }

    /// Prepares the process for the rows of its file.
    fn begin_file(&mut self) {
        let Process { rows, policy, writer, .. } = self;
        rows.stream_mut().stages = Stages::new();
        writer.recipe.adapt(rows, policy, writer.executor.attributes());
    }

    /// The plan that rows of the file go through, if they are joined.
    pub fn join(&self) -> Option<&Join> {
        match &self.writer.pull {
            Some(Pull::Join(join)) => Some(join),
            _ => None,
        }
    }

    /// Switches to reading in chunks, with counts shared by all processes. Bytes of the file beyond `place` that were
    /// read are read again. Before workers start.
    pub fn hand_over(&mut self, shared: SharedRef<Shared>, place: u64) {
        let writer = &mut self.writer;
        writer.report(&mut self.rows);
        writer.shared.move_counts(&shared, place);
        writer.progress.reported = self.rows.stream().bytes_read();
        writer.shared = shared;
    }

    /// Ends a file that is not the last: partial pages wait for the next file's rows. Guarded.
    pub fn pause(&mut self) -> Result<()> {
        let writer = &mut self.writer;
        writer.report(&mut self.rows);
        writer.show(&self.rows);
        writer.shared.rest(writer.number);
        writer.tracer.report(0, &mut writer.heaps.list, &mut writer.wide)
    }

    /// Goes on with another file: its rows, with their policy, projection, rejects and traces. In the leader, when it
    /// has no workers. Guarded.
    ///
    /// The state of the file is replaced. The state of the target stays: heaps with their partial pages, collected
    /// keys, ids that were taken. So all files of a load share pages and indexes.
    pub fn switch_to_file(
        &mut self,
        mut rows: Rows,
        policy: Policy,
        projection: Option<Projection>,
        rejects: Rejects,
        traces: Traces,
    ) {
        // Collectors refer to `elsewhere`.
        rows.context.elsewhere = self.rows.context.elsewhere.clone();
        let mut old = std::mem::replace(&mut self.rows, rows);
        self.policy = policy;
        let writer = &mut self.writer;
        writer.progress.stages.merge(&std::mem::take(&mut old.stream_mut().stages));
        (writer.progress.round, writer.progress.reported, writer.progress.file) = (0, 0, 0);
        (writer.chunks, writer.records, writer.rejects) = (Chunks::InOrder, u64::MAX, rejects);
        writer.wide.set_queues(VecDeque::new());
        writer.recipe.projection = projection;
        writer.recipe.defaults.go_on();
        writer.tracer.switch_to_file(traces);
        writer.heaps.switch_to_file(&writer.tracer);
        self.begin_file();
    }

    /// Appends all rows that are left. Guarded.
    pub fn finish(&mut self) -> Result<()> {
        let writer = &mut self.writer;
        writer.report(&mut self.rows);
        writer.show(&self.rows);
        writer.shared.rest(writer.number);
        // With workers, each process may have a few rows left in any load. Without workers, a few rows may be the whole
        // load, and then go through shared buffers.
        let alone = writer.number == 0 && matches!(writer.chunks, Chunks::InOrder);
        writer.recipe.defaults.give_back()?;
        let mut watch = writer.progress.stages.watch();
        writer.heaps.finish(alone, &writer.shared.append_lock)?;
        writer.tracer.report(0, &mut writer.heaps.list, &mut writer.wide)?;
        for collector in writer.heaps.collectors() {
            if writer.number > 0 {
                collector.hand_over()?;
            } else {
                // Workers sort their keys at the same time.
                collector.sort()?;
            }
        }
        writer.progress.stages.lap(&mut watch, Stage::Rest);
        // Adds the written pages and the time of each stage to the shared counts.
        let mut stages = std::mem::replace(&mut writer.progress.stages, Stages::new());
        let mut pages = 0;
        for heap in &mut writer.heaps.list {
            let appended = heap.take_appended();
            pages += appended.pages;
            stages.merge(&appended.stages);
            stages.merge(&heap.take_stages());
        }
        stages.merge(&std::mem::replace(&mut self.rows.stream_mut().stages, Stages::new()));
        stages.set_rest(Stage::Rest);
        writer.shared.account(pages, &stages);
        Ok(())
    }

    /// Prepares to read the file in order from a position in a chunk on, storing nothing.
    ///
    /// An error may have stopped any expression in the middle, so all expressions are made anew
    /// ([`expression`](crate::server::expression)). `inserted` is as for the executor. Guarded.
    pub fn look_again(&mut self, ticket: u64, place: RecordStart, inserted: &[i16]) -> Result<()> {
        let is_joined = self.join().is_some();
        let Process { rows, writer, .. } = self;
        let memory = writer.executor.memory().enter();
        rows.renew_columns();
        match &mut writer.recipe.projection {
            // Only the scan is run again: it finds the bad records, not the plan above it.
            Some(projection) if is_joined => projection.forget_conditions(),
            projection => {
                writer.executor = set_up_again(&writer.executor, inserted);
                writer.recipe.fields = writer.executor.context();
                if let Some(projection) = projection {
                    projection.renew();
                }
                writer.recipe.defaults.renew();
            }
        }
        drop(memory);
        let chunks = std::mem::replace(&mut writer.chunks, Chunks::InOrder);
        (writer.records, writer.keys) = (u64::MAX, None);
        writer.find_steps();
        writer.rejects.forget_spool();
        writer.heaps.forget();
        writer.wide.set_queues(VecDeque::new());
        if let Chunks::Listed(listed) = chunks {
            rows.switch_to_file(listed.chunks().file_of(ticket))?;
            if place.offset == 0 {
                return Ok(());
            }
            rows.take_names()?;
        }
        rows.stream_mut().resume(place)
    }
}

/// Attributes that must not be NULL, without virtual ones, which ExecConstraints checks.
fn not_null(relation: Relation<'_>) -> Vec<usize> {
    let all = relation.descriptor().attributes().enumerate();
    all.filter(|(_, one)| one.attnotnull && !is_virtual(one)).map(|(i, _)| i).collect()
}

/// The steps from a record's fields to a row.
#[derive(Debug)]
pub struct Recipe {
    /// The projection of the file's rows, if they are not stored unchanged.
    pub projection: Option<Projection>,
    /// The context for the values of a record; with a join, one record may have many rows.
    pub fields: ExprContext<'static>,
    pub defaults: Defaults,
    /// Attributes that must not be NULL, counted from 0.
    not_null: Vec<usize>,
    /// Those of `not_null` that no field of the file sets.
    unset_not_null: Vec<usize>,
}

impl Recipe {
    /// The recipe for rows of a file, which the process [adapts](Recipe::adapt) before the first record. Guarded.
    pub fn new(projection: Option<Projection>, fields: ExprContext<'static>, defaults: Defaults) -> Recipe {
        Recipe { projection, fields, defaults, not_null: Vec::new(), unset_not_null: Vec::new() }
    }

    /// The projection of a file's rows: by an expression for each attribute, or by the scan below a join. None if rows are
    /// stored unchanged. Guarded.
    pub fn projection(
        nodes: Option<Nodes>,
        joined: Option<&Joined>,
        options: &LoadOptions,
        mapping: &Mapping,
        executor: &Executor,
        columns: &[Column],
    ) -> Option<Projection> {
        let (on_error, memory) = (options.copy.on_error, executor.memory());
        match (nodes, options.foreign()) {
            (Some(nodes), Some(foreign)) => Some(Projection::new(nodes, foreign, columns, on_error, memory)),
            (Some(nodes), None) => {
                let inputs = source::input_descriptor(executor.relation(), mapping);
                Some(Projection::over(nodes, inputs, columns, on_error, memory))
            }
            (None, _) => joined.map(|joined| joined.projection(columns, on_error)),
        }
    }

    /// The projection for plain frames, or null.
    pub fn projection_in_place(&mut self) -> *mut Projection {
        self.projection.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut)
    }

    /// Adapts to the columns of a file, and lets it decode rows of the projection, or of a target with this
    /// number of attributes.
    fn adapt(&mut self, rows: &mut Rows, policy: &mut Policy, attributes: usize) {
        let has_field = |c: &Column| !c.ignored && c.taken == Taken::Field;
        let is_set = |i: &usize| rows.columns().iter().any(|c| has_field(c) && c.attribute == *i);
        self.unset_not_null = self.not_null.iter().copied().filter(|i| !is_set(i)).collect();
        if let Some(projection) = &mut self.projection {
            projection.fit(rows.columns());
            policy.want(rows, |column| projection.is_first(column));
            // The row is a row of the foreign table.
            rows.decode_together(projection.attributes(), &[]);
        } else {
            policy.want(rows, |_| true);
            rows.decode_together(attributes, &self.not_null);
        }
    }
}

/// The counts of a process.
#[derive(Debug)]
pub struct Progress {
    /// Rows that were stored or checked, and rows that did not pass a condition; both not yet reported.
    rows: u64,
    pub filtered: u64,
    /// Bytes of the file that are reported.
    reported: u64,
    /// Rows since the last check for interrupts.
    round: u32,
    /// In the leader: the progress that other sessions see. Null in a worker.
    pub phases: *mut Phases,
    /// Progress figures of the files before this one.
    pub before: Figures,
    /// Counts for each file, and the file of the rows counted last.
    pub by_file: ByFile,
    file: usize,
    /// Time of the stages, without the stages of the heaps.
    pub stages: Stages,
}

impl Progress {
    pub fn new(by_file: ByFile, phases: *mut Phases) -> Progress {
        Progress {
            rows: 0,
            filtered: 0,
            reported: 0,
            round: 0,
            phases,
            before: Figures::default(),
            by_file,
            file: 0,
            stages: Stages::new(),
        }
    }

    /// Counts a row of a query; true when progress is to be shown. Raises nothing.
    pub fn ends_round(&mut self) -> bool {
        self.round = (self.round + 1) % ROUND;
        self.round == 0
    }

    /// Adds the counts to the shared ones.
    fn report(&mut self, read: &Rows, shared: &Shared) {
        let bytes = read.stream().bytes_read();
        shared.bytes.fetch_add(bytes.saturating_sub(self.reported), Relaxed);
        let rows = std::mem::take(&mut self.rows);
        shared.rows.fetch_add(rows, Relaxed);
        let filtered = std::mem::take(&mut self.filtered);
        shared.filtered.fetch_add(filtered, Relaxed);
        if let Some(figures) = self.by_file.of(self.file) {
            figures.loaded.fetch_add(rows, Relaxed);
            figures.filtered.fetch_add(filtered, Relaxed);
        }
        self.reported = bytes;
    }

    /// Shows the progress of all processes.
    fn show(&self, read: &Rows, chunks: &Chunks, shared: &Shared) {
        // SAFETY: null, or the load's, which outlives its processes; no other reference is in use.
        let Some(phases) = (unsafe { self.phases.as_mut() }) else { return };
        let in_order = matches!(chunks, Chunks::InOrder);
        // A second reading begins again at the start of the file.
        let unreported = if in_order { read.stream().bytes_read().saturating_sub(self.reported) } else { 0 };
        let before = self.before;
        phases.show(|figures| {
            figures.bytes = before.bytes + shared.bytes.load(Relaxed) + unreported;
            figures.rows = before.rows + shared.rows.load(Relaxed) + self.rows;
            figures.excluded = before.excluded + shared.filtered.load(Relaxed) + self.filtered;
            figures.rejected = before.rejected + shared.bad.load(Relaxed);
        });
    }
}
