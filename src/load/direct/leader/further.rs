//! The files after the first: an INSERT may read several foreign tables.
//!
//! All files are one load: indexes, foreign keys and triggers come after the rows of the last file. Each file has its
//! own workers, which end with it. So a process that waits for an earlier error only waits for errors of its own file.
//! A file is opened when the one before it is done.
//!
//! The tricky point is the key runs that workers leave behind. Keys are collected from the first row on, and the keys
//! of a worker are found by its number. So the places for keys are reserved before any worker starts, for as many
//! workers as all files together may have, and workers are numbered across files.

use std::collections::VecDeque;
use std::rc::Rc;

use super::Leader;
use super::reading::{fields_of, is_safe_to_read, most_workers, traces, workers_for};
use crate::error::{Error, Result};
use crate::input::source::Location;
use crate::input::stream::Header;
use crate::load::direct::origin::{Earlier, ReadPosition, Traces};
use crate::load::direct::process::{File, Process, Quota};
use crate::load::direct::rejects::Rejects;
use crate::load::direct::shared::Shared;
use crate::load::options::LoadOptions;
use crate::load::source::{self, FurtherFile};
use crate::program::Nodes;
use crate::program::mapping::Mapping;
use crate::program::projection::Projection;
use crate::rows::file_chunks::FileChunks;
use crate::rows::hazard::Hazards;
use crate::rows::ragged::Ragged;
use crate::rows::soft::Tolerance;
use crate::server::progress::Figures;

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
        self.process.tolerance.report(None);
        self.report_ragged();
        self.keep_track();
        self.process.rows.close()?;
        let FurtherFile { options, path, mapping, projection } = source;
        let executor = self.process.executor;
        let mut rows = source::open_rows(executor.relation(), &options, Some(&mapping))?;
        rows.stream_mut().mark_splits(FileChunks::is_large);
        let traces = if self.process.tracer.traces == Traces::Nothing { Traces::Nothing } else { traces(&rows) };
        let copy = &options.copy;
        self.workers.most = most_workers(&rows, &options, self.process.recipe.defaults.takes_ids()).min(workers);
        self.too_much = None;
        (self.files.header, self.files.name) = (copy.header(), options.location.display().to_string());
        self.spec.input.path = path;
        self.spec.input.files = rows.stream().files().map_or_else(Vec::new, |list| list.write());
        self.spec.input.foreign = options.foreign();
        self.spec.input.encoding = rows.stream().encoding();
        self.spec.input.fields = fields_of(&mapping);
        self.spec.projection = projection.map(Nodes::text);
        let projection = projection
            .zip(options.foreign())
            .map(|(nodes, foreign)| Projection::new(nodes, foreign, rows.columns(), copy.on_error, executor.memory()));
        *self.alone = Shared::alone();
        self.use_own_state();
        let counts = &self.counts;
        self.process.progress.before = Figures {
            bytes: counts.bytes_read,
            rows: self.files.made,
            excluded: counts.filtered,
            rejected: counts.rejected,
            ..Figures::default()
        };
        self.phases().show(|figures| figures.workers = 0);
        self.process.switch_to_file(File {
            rows,
            projection,
            tolerance: Tolerance { reject_limit: None, ..copy.tolerance() },
            rejects: Rejects::new(copy, None),
            quota: Quota::new(copy.skip, copy.limit.unwrap_or(u64::MAX)),
            traces,
        });
        self.files.current = (!self.files.further.is_empty()).then_some((options, mapping));
        Ok(true)
    }

    /// Reports the current file's records with another number of fields: in a note, or in a notice of a statement that
    /// returns no notes.
    pub fn report_ragged(&mut self) {
        let Process { rows, tolerance, .. } = &self.process;
        let ragged = std::mem::take(&mut self.files.ragged);
        let notices = rows.ragged_notices(&ragged);
        if self.process.heaps.is_dry {
            notices.into_iter().for_each(Error::notice);
        } else if self.spec.input.foreign.is_some() {
            tolerance.report_ragged(rows, &ragged);
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
            traces: process.tracer.traces,
            anchors: std::mem::take(&mut process.tracer.origins.anchors),
            relation: process.rows.context.relation_name.clone(),
            described: process.rows.context.described.clone(),
        });
    }
}
