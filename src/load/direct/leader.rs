//! The leader of a load: the state of its own process, of its workers, of the files, and of the rejects. The [steps of
//! a load](super::steps) are methods of this state, each in the module that it belongs to.
//!
//! The files after the first: an INSERT may read several foreign tables.
//!
//! All files are one load: indexes, foreign keys and triggers come after the rows of the last file. Each file has its
//! own workers, which end with it. So a process that waits for an earlier error only waits for errors of its own file.
//! A file is opened when the one before it is done.
//!
//! The tricky point is the key runs that workers leave behind. Keys are collected from the first row on, and the keys
//! of a worker are found by its number. So the places for keys are reserved before any worker starts, for as many
//! workers as all files together may have, and workers are numbered across files.

pub mod prepare;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys;

use self::prepare::{fields_of, is_safe_to_read, most_workers, traces, workers_for};
use super::held::HeldRelations;
use super::origin::{Earlier, ReadPosition, Traces};
use super::process::{Process, Recipe, policy_of};
use super::rejects::{Rejects, TooMuch};
use super::spec::{LoadTask, Shared, Spec};
use crate::error::{Error, Result};
use crate::index::violating_row::ViolatingRow;
use crate::input::source::Location;
use crate::input::stream::Header;
use crate::load::duplicate::Duplicates;
use crate::load::options::LoadOptions;
use crate::load::phase::Phases;
use crate::load::report::Counts;
use crate::load::source::{self, FurtherFile};
use crate::program::Nodes;
use crate::program::mapping::Mapping;
use crate::rows::file_chunks::FileChunks;
use crate::rows::hazard::Hazards;
use crate::rows::ragged::Ragged;
use crate::server::memory_context::MemoryContext;
use crate::server::progress::Figures;
use crate::server::team::Team;

/// The state of a load.
#[derive(Debug)]
pub struct Leader {
    pub process: Process,
    /// The shared state of a load without workers.
    pub alone: &'static Shared,
    pub spec: Spec,
    pub workers: Workers,
    pub files: Files,
    pub notes: Vec<String>,
    /// The record that exceeded the reject limit, if there is one.
    pub too_much: Option<TooMuch>,
    /// The error context outside of the load's own.
    pub(super) outer: *mut pg_sys::ErrorContextCallback,
    pub counts: Counts,
    /// Action for duplicates, the index that finds them, and the number of rows of the table that were replaced.
    pub duplicates: Duplicates,
    pub arbiter: Option<pg_sys::Oid>,
    pub replaced: u64,
    /// The row for which an index raises an error.
    pub violating_row: ViolatingRow,
    /// The statistics contain the rows.
    pub(super) is_counted: bool,
    /// The relations that rows may go to, open until triggers have fired.
    pub held: HeldRelations,
}

/// The workers of a load, as its leader sees them.
#[derive(Debug, Default)]
pub struct Workers {
    /// The workers for the current file.
    pub team: Option<Team<LoadTask>>,
    /// Appended rows by relation of the spec, of workers that have ended.
    pub gathered: Vec<u64>,
    /// Most workers for the current file.
    pub most: usize,
    /// Workers that were started: for all files so far, and the most at a time.
    pub launched: usize,
    pub at_once: usize,
    /// The workers know where to leave their keys.
    pub share_keys: bool,
}

impl Leader {
    /// The phases of the load.
    pub fn phases(&mut self) -> &mut Phases {
        // SAFETY: the load outlives its leader.
        unsafe { &mut *self.process.writer.progress.phases }
    }

    /// Appended rows of a relation, by all processes.
    pub fn total(&self, index: usize) -> u64 {
        self.process.writer.heaps.rows_of(index) + self.by_workers(index)
    }

    pub fn by_workers(&self, index: usize) -> u64 {
        let gone = self.workers.gathered.get(index).copied().unwrap_or(0);
        let running = |team: &Team<LoadTask>| Some(team.slice(team.task().counters).get(index)?.load(Relaxed));
        gone + self.workers.team.as_ref().and_then(running).unwrap_or(0)
    }
}

/// The files of a load.
#[derive(Debug)]
pub struct Files {
    /// Files that are done, and files still to be read.
    pub earlier: Vec<Earlier>,
    pub further: VecDeque<Further>,
    /// Options and mapping of the current file, kept only while further files follow.
    current: Option<(LoadOptions, Mapping)>,
    /// Header and name of the current file, for reading it again.
    pub header: Header,
    pub name: String,
    /// The record that was located last.
    pub target: ReadPosition,
    /// Rows made of the files that are done.
    pub made: u64,
    /// Records of the current file with another number of fields that became rows.
    pub ragged: Ragged,
    /// The file was already read again, so the error is known. A file of a list cannot be read again a second time.
    pub looked_again: bool,
}

impl Files {
    /// At the first file.
    pub fn new(options: &LoadOptions, mapping: &Mapping, further: VecDeque<Further>) -> Files {
        Files {
            earlier: Vec::new(),
            current: (!further.is_empty()).then(|| (options.clone(), mapping.clone())),
            further,
            header: options.copy.header(),
            name: options.location.display().to_string(),
            target: ReadPosition::default(),
            made: 0,
            ragged: Ragged::default(),
            looked_again: false,
        }
    }
}

/// A file that is still to be read.
#[derive(Debug)]
pub struct Further {
    source: FurtherFile,
    /// Most workers for the file.
    pub workers: usize,
}

impl Further {
    /// Is it parallel safe to make rows of this file? Guarded.
    pub fn is_safe(source: &FurtherFile, hazards: &Hazards) -> Result<bool> {
        let Some(foreign) = source.options.foreign() else { return Ok(false) };
        let (_, columns) = source::foreign_columns(foreign, &source.options, &source.mapping)?;
        Ok(is_safe_to_read(hazards, &columns, source.projection))
    }

    /// The files, with at most `workers` workers in all. Other properties of a file are read when it is opened.
    pub fn of(sources: Vec<FurtherFile>, workers: usize) -> VecDeque<Further> {
        let mut left = workers;
        let further = |source: FurtherFile| {
            let size = source.options.location.divided_size(source.options.copy.coding());
            let workers = size.map_or(0, |size| workers_for(source.options.workers, size)).min(left);
            left -= workers;
            Further { source, workers }
        };
        sources.into_iter().map(further).collect()
    }
}

impl Leader {
    /// Is the current file the last?
    pub fn is_last(&self) -> bool {
        self.files.further.is_empty()
    }

    /// Goes on with the next file; false when there is no further file. Outside of parallel mode. Guarded; the open
    /// file lives in the current memory context.
    pub fn go_on(&mut self) -> Result<bool> {
        let Some(Further { source, workers }) = self.files.further.pop_front() else { return Ok(false) };
        self.process.policy.tolerance.report(None);
        self.report_ragged();
        self.keep_track();
        self.process.rows.close()?;
        let FurtherFile { options, path, mapping, projection } = source;
        let executor = self.process.writer.executor;
        let mut rows = source::open_rows(executor.relation(), &options, Some(&mapping))?;
        rows.stream_mut().mark_splits(FileChunks::is_large);
        let traces = if self.process.writer.tracer.traces == Traces::Nothing { Traces::Nothing } else { traces(&rows) };
        let copy = &options.copy;
        self.workers.most = most_workers(&rows, &options, self.process.writer.recipe.defaults.takes_ids()).min(workers);
        self.too_much = None;
        (self.files.header, self.files.name) = (copy.header(), options.location.display().to_string());
        self.spec.input.path = path;
        self.spec.input.files = rows.stream().files().map_or_else(Vec::new, |list| list.write());
        self.spec.input.foreign = options.foreign();
        self.spec.input.encoding = rows.stream().encoding();
        self.spec.input.fields = fields_of(&mapping);
        self.spec.projection = projection.map(Nodes::text);
        let projection = Recipe::projection(projection, None, &options, &mapping, &executor, rows.columns());
        self.alone = MemoryContext::current().keep(Shared::alone());
        self.process.writer.shared = self.alone.into();
        let counts = &self.counts;
        self.process.writer.progress.before = Figures {
            bytes: counts.bytes_read,
            rows: self.files.made,
            excluded: counts.filtered,
            rejected: counts.rejected,
            ..Figures::default()
        };
        self.phases().show(|figures| figures.workers = 0);
        let rejects = Rejects::new(copy, None);
        self.process.switch_to_file(rows, policy_of(copy), projection, rejects, traces);
        self.files.current = (!self.files.further.is_empty()).then_some((options, mapping));
        Ok(true)
    }

    /// Reports the current file's records with another number of fields: in a note, or in a notice of a statement that
    /// returns no notes.
    pub fn report_ragged(&mut self) {
        let Process { rows, policy, .. } = &self.process;
        let ragged = std::mem::take(&mut self.files.ragged);
        let notices = rows.ragged_notices(&ragged);
        if self.process.writer.heaps.is_dry {
            notices.into_iter().for_each(Error::notice);
        } else if self.spec.input.foreign.is_some() {
            policy.tolerance.report_ragged(rows, &ragged);
        } else {
            self.notes.extend(notices.iter().map(|notice| notice.message().to_owned()));
        }
    }

    /// Keeps the state to read the current file again.
    fn keep_track(&mut self) {
        let Some((mut options, mapping)) = self.files.current.take() else { return };
        let source = self.source();
        if let Some(list) = self.process.rows.stream().files() {
            options.location = Location::Files(Rc::clone(list));
        }
        let process = &mut self.process;
        self.files.earlier.push(Earlier {
            options,
            mapping,
            identity: process.rows.stream().identity(),
            source,
            traces: process.writer.tracer.traces,
            anchors: std::mem::take(&mut process.writer.tracer.origins.anchors),
            relation: process.rows.context.relation_name.clone(),
            described: process.rows.context.described.clone(),
        });
    }
}
