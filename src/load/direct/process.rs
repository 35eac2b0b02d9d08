//! One process of a load: makes rows from records, and puts them into heaps.
//!
//! This module owns the state; the loop over rows is [`row_loop`](super::row_loop). [`writer`] makes a row and puts it
//! into its heap.
//!
//! When a process goes on with another file, the state of the file is replaced. The state of the target stays: heaps
//! with their partial pages, collected keys, ids that were taken. So all files of a load share pages and indexes.

mod heaps;
mod writer;

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use pg_bulk_text::reader::RecordStart;
use pgrx::pg_sys;

pub use self::heaps::Heaps;
pub use self::writer::InBlock;
use self::writer::ROUND;
use super::executor::{Executor, set_up_again};
use super::join::Join;
use super::key_check::KeyCheck;
use super::origin::{Tracer, Traces};
use super::rejects::Rejects;
use super::spec::Shared;
use super::wide::Wide;
use crate::error::Result;
use crate::input::file_figures::ByFile;
use crate::load::phase::Phases;
use crate::load::query::Query;
use crate::program::defaults::Defaults;
use crate::program::projection::Projection;
use crate::rows::chunks::Chunks;
use crate::rows::column::{Column, Taken};
use crate::rows::row::{Rows, RowsChange};
use crate::rows::soft::Tolerance;
use crate::server::compat::is_virtual;
use crate::server::progress::Figures;
use crate::server::relation::Relation;
use crate::server::slot::ExprContext;
use crate::server::stages::Stages;
use crate::server::team::SharedRef;
use crate::server::unguarded::Opaque;

/// One process of a load.
#[derive(Debug)]
pub struct Process {
    /// Number of this process; 0 is the leader.
    pub number: usize,
    pub shared: SharedRef<Shared>,
    pub executor: Executor,
    pub rows: Rows,
    pub chunks: Chunks,
    pub quota: Quota,
    /// What rows are pulled from; None if the process takes the records of the file one after the other.
    pub pull: Option<Pull>,
    pub recipe: Recipe,
    pub tolerance: Tolerance,
    pub rejects: Rejects,
    /// In a dry run, the check of keys; None if no key needs a check.
    pub keys: Option<KeyCheck>,
    pub heaps: Heaps,
    pub wide: Wide,
    pub tracer: Tracer,
    pub progress: Progress,
}

/// How many records and rows a process may still take.
#[derive(Debug)]
pub struct Quota {
    /// Records that are still to be skipped.
    pub skip: u64,
    /// Records to read before [`run`](super::row_loop::run) returns.
    pub records: u64,
    /// Rows that may still be loaded.
    rows: u64,
    /// In the leader of a join: the step before the second record, done once. [`Quota::records`] then ends the first
    /// record.
    pub beginning: Option<Beginning>,
}

impl Quota {
    pub fn new(skip: u64, rows: u64) -> Quota {
        Quota { skip, records: u64::MAX, rows, beginning: None }
    }

    /// Has the load reached its limit of rows? Raises nothing.
    pub fn is_full(&self) -> bool {
        self.rows == 0
    }
}

/// A step of the leader after the first record.
#[derive(Debug, Clone, Copy)]
pub struct Beginning {
    pub begin: unsafe extern "C-unwind" fn(Opaque),
    pub leader: Opaque,
    /// The memory context for what the step makes.
    pub memory: pg_sys::MemoryContext,
}

/// What rows are pulled from, one by one.
#[derive(Debug)]
pub enum Pull {
    /// The query that makes the rows; there is no file.
    Query(*mut Query),
    /// The plan that rows of the file go through.
    Join(Join),
}

impl Process {
    /// Makes the process ready for the rows of its file. Guarded.
    pub fn ready(mut self) -> Result<Process> {
        if self.executor.routing().1.is_null() {
            self.heaps.open(self.executor.relation(), &self.tracer)?;
            self.recipe.not_null = not_null(self.executor.relation());
        }
        self.begin_file();
        Ok(self)
    }

    /// The plan that rows of the file go through, if they are joined.
    pub fn join(&self) -> Option<&Join> {
        match &self.pull {
            Some(Pull::Join(join)) => Some(join),
            _ => None,
        }
    }

    /// Prepares to read the file in order from a position in a chunk on, storing nothing.
    ///
    /// An error may have stopped any expression in the middle, so all expressions are made anew
    /// ([`expression`](crate::server::expression)). `inserted` is as for the executor. Guarded.
    pub fn look_again(&mut self, ticket: u64, place: RecordStart, inserted: &[i16]) -> Result<()> {
        let memory = self.executor.memory().enter();
        self.rows.renew_columns();
        let is_joined = self.join().is_some();
        match &mut self.recipe.projection {
            // Only the scan is run again: it finds the bad records, not the plan above it.
            Some(projection) if is_joined => projection.forget_conditions(),
            projection => {
                self.executor = set_up_again(&self.executor, inserted);
                self.recipe.fields = self.executor.context();
                if let Some(projection) = projection {
                    projection.renew();
                }
                self.recipe.defaults.renew();
            }
        }
        drop(memory);
        let chunks = std::mem::replace(&mut self.chunks, Chunks::InOrder);
        self.quota.records = u64::MAX;
        self.keys = None;
        self.rejects.forget_spool();
        self.heaps.forget();
        self.wide.set_queues(VecDeque::new());
        if let Chunks::Listed(listed) = chunks {
            self.rows.switch_to_file(listed.chunks().file_of(ticket))?;
            if place.offset == 0 {
                return Ok(());
            }
            self.rows.take_names()?;
        }
        self.rows.stream_mut().resume(place)
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
    /// The columns of the file that are converted when a record is read: all, unless a condition is evaluated first.
    pub(super) wanted: Vec<usize>,
    /// The projection of the file's rows, if they are not stored unchanged.
    pub projection: Option<Projection>,
    /// The context for the values of a record; with a join, one record may have many rows.
    pub fields: ExprContext<'static>,
    pub defaults: Defaults,
    /// Attributes that must not be NULL, counted from 0.
    pub(super) not_null: Vec<usize>,
    /// Those of `not_null` that no field of the file sets.
    pub(super) unset_not_null: Vec<usize>,
}

impl Recipe {
    /// Before the first record, the process [adapts](Recipe::adapt) it to the file.
    pub fn new(projection: Option<Projection>, fields: ExprContext<'static>, defaults: Defaults) -> Recipe {
        Recipe { wanted: Vec::new(), projection, fields, defaults, not_null: Vec::new(), unset_not_null: Vec::new() }
    }

    /// Adapts to the columns of a file, and lets it decode rows of the projection, or of a target with this
    /// number of attributes.
    pub(super) fn adapt(&mut self, rows: &mut Rows, attributes: usize) {
        if let Some(projection) = &mut self.projection {
            projection.fit(rows.columns());
        }
        self.wanted = self.projection.as_ref().map_or_else(|| rows.all(), |projection| projection.first.clone());
        let has_field = |c: &Column| !c.ignored && c.taken == Taken::Field;
        let is_set = |i: &usize| rows.columns().iter().any(|c| has_field(c) && c.attribute == *i);
        self.unset_not_null = self.not_null.iter().copied().filter(|i| !is_set(i)).collect();
        match &self.projection {
            // The row is a row of the foreign table.
            Some(projection) => rows.decode_together(projection.attributes(), &[]),
            None => rows.decode_together(attributes, &self.not_null),
        }
    }
}

/// State that belongs to a file.
#[derive(Debug)]
pub struct File {
    pub rows: Rows,
    pub projection: Option<Projection>,
    pub tolerance: Tolerance,
    pub rejects: Rejects,
    pub quota: Quota,
    pub traces: Traces,
}

impl Process {
    /// Prepares the process for the rows of its file.
    pub(super) fn begin_file(&mut self) {
        self.rows.stream_mut().stages = Stages::new();
        self.recipe.adapt(&mut self.rows, self.executor.attributes());
    }

    /// Adapts to a change of the fields' columns, or to the next file of a list.
    #[cold]
    pub(super) fn fit(&mut self, change: RowsChange) {
        if change == RowsChange::File {
            // The first record of a file does not follow the last record of the file before.
            self.tracer.gaps += 1;
            // Rows counted until now belong to the file before.
            self.report();
            self.progress.file = self.rows.stream().file_number();
        }
        self.recipe.adapt(&mut self.rows, self.executor.attributes());
    }

    /// Ends a file that is not the last: partial pages wait for the next file's rows. Guarded.
    pub fn pause(&mut self) -> Result<()> {
        self.report();
        self.show();
        self.shared.rest(self.number);
        self.tracer.report(0, &mut self.heaps.list, &mut self.wide)
    }

    /// Goes on with another file. In the leader, when it has no workers. Guarded.
    pub fn switch_to_file(&mut self, file: File) {
        let File { mut rows, projection, tolerance, rejects, quota, traces } = file;
        // Collectors refer to `elsewhere`.
        rows.context.elsewhere = self.rows.context.elsewhere.clone();
        let mut old = std::mem::replace(&mut self.rows, rows);
        self.progress.stages.merge(&std::mem::replace(&mut old.stream_mut().stages, Stages::new()));
        self.recipe.projection = projection;
        self.chunks = Chunks::InOrder;
        self.wide.set_queues(VecDeque::new());
        (self.tolerance, self.rejects, self.quota) = (tolerance, rejects, quota);
        (self.progress.round, self.progress.reported) = (0, 0);
        self.recipe.defaults.go_on();
        self.tracer.switch_to_file(traces);
        self.heaps.switch_to_file(&self.tracer);
        self.begin_file();
    }
}

/// The counts of a process.
#[derive(Debug)]
pub struct Progress {
    /// Rows that were stored or checked, and rows that did not pass a condition; both not yet reported.
    pub(super) rows: u64,
    pub filtered: u64,
    /// Bytes of the file that are reported.
    pub(super) reported: u64,
    /// Rows since the last check for interrupts.
    pub(super) round: u32,
    /// In the leader: the progress that other sessions see. Null in a worker.
    pub phases: *mut Phases,
    /// Progress figures of the files before this one.
    pub before: Figures,
    /// Counts for each file, and the file of the rows counted last.
    pub by_file: ByFile,
    pub(super) file: usize,
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
    pub(super) fn report(&mut self, read: &Rows, shared: &Shared) {
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
    pub(super) fn show(&self, read: &Rows, chunks: &Chunks, shared: &Shared) {
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
