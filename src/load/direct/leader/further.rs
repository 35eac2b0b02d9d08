//! The files that come after the first one: what an INSERT takes the rows of several foreign tables from.
//!
//! They are one load: indexes, foreign keys and triggers come after the rows of the last one. A file has workers of its own,
//! which end with it, so a process that waits for an earlier error of the file need not look beyond that; and a file is opened
//! when the one before it is done.
//!
//! The tricky point is what workers leave behind. Keys are collected from the first row on, and those of a worker are found
//! by its number. So where to leave them is known before there are any, for as many workers as all files together may have,
//! and workers are numbered through.

use std::collections::VecDeque;
use std::rc::Rc;

use super::Leader;
use super::reading::{fields, is_safe_to_read, most_workers, traces, workers_for};
use crate::error::Result;
use crate::load::direct::nodes::Nodes;
use crate::load::direct::origin::{Earlier, Traces};
use crate::load::direct::process::File;
use crate::load::direct::projection::Projection;
use crate::load::direct::rejects::Rejects;
use crate::load::direct::shared::Shared;
use crate::load::source::{self, Source};
use crate::pg::hazard::Hazards;
use crate::pg::progress::Figures;
use crate::pg::soft::Tolerance;
use crate::pg::source::Location;
use crate::pg::units::Units;

/// One of them.
#[derive(Debug)]
pub struct Further {
    source: Source,
    /// Workers that there may be for it.
    pub workers: usize,
}

impl Further {
    /// May any process make its rows? Guarded.
    pub fn is_safe(source: &Source, hazards: &Hazards) -> Result<bool> {
        let Some(foreign) = source.options.foreign else { return Ok(false) };
        let (_, columns) = source::foreign_columns(foreign, &source.options, &source.mapping)?;
        // SAFETY: nodes of the INSERT's plan.
        Ok(unsafe { is_safe_to_read(hazards, &columns, source.projection) })
    }

    /// With so many workers at most, all files together. What a file is will be looked at when it is opened.
    pub fn of(sources: Vec<Source>, workers: usize) -> VecDeque<Further> {
        let mut left = workers;
        let further = |source: Source| {
            let size = source.options.location.divided_size(source.options.copy.compressed);
            let workers = size.map_or(0, |size| workers_for(source.options.workers, size)).min(left);
            left -= workers;
            Further { source, workers }
        };
        sources.into_iter().map(further).collect()
    }
}

impl Leader {
    /// Is there no file behind this one?
    pub fn is_last(&self) -> bool {
        self.further.is_empty()
    }

    /// Go on with the next file; false if there is none. Outside of parallel mode. Guarded; what is opened lives in the
    /// current memory context.
    pub fn go_on(&mut self) -> Result<bool> {
        let Some(Further { source, workers }) = self.further.pop_front() else { return Ok(false) };
        self.process.tolerance.report(None);
        self.keep_track();
        self.process.rows.close()?;
        let Source { options, path, mapping, projection } = source;
        let executor = self.process.executor;
        // SAFETY: open as long as the executor's state is.
        let relation = unsafe { (*executor.target).ri_RelationDesc };
        let mut rows = source::open_rows(relation, &options, Some(&mapping))?;
        rows.stream_mut().mark_splits(Units::is_large);
        let traces = if self.process.traces == Traces::Nothing { Traces::Nothing } else { traces(&rows) };
        let copy = &options.copy;
        self.most_workers = most_workers(&rows, &options, self.process.defaults.takes_ids()).min(workers);
        self.launched = 0;
        self.too_much = None;
        (self.header, self.name) = (copy.header(), options.location.display().to_string());
        self.spec.path = path;
        self.spec.files = rows.stream().files().map_or_else(Vec::new, |list| list.write());
        self.spec.foreign = options.foreign;
        self.spec.encoding = rows.stream().encoding();
        self.spec.fields = fields(&mapping);
        self.spec.projection = projection.map(Nodes::text);
        let projection = projection.zip(options.foreign).map(|(nodes, foreign)| {
            // SAFETY: the nodes of the INSERT's plan, in which these are the foreign table's columns.
            unsafe { Projection::new(nodes, foreign, rows.columns(), copy.on_error, &executor) }
        });
        *self.alone = Shared::alone();
        self.process.shared = &raw const *self.alone;
        let counts = &self.counts;
        self.process.before = Figures {
            bytes: counts.bytes_read,
            rows: self.made,
            excluded: counts.filtered,
            rejected: counts.rejected,
            ..Figures::default()
        };
        // SAFETY: the load's, which outlives its leader.
        unsafe { &mut *self.process.phases }.show(|figures| figures.workers = 0);
        self.process.turn_to(File {
            rows,
            projection,
            tolerance: Tolerance { reject_limit: 0, ..copy.tolerance() },
            rejects: Rejects::new(copy, std::ptr::null_mut()),
            skip: copy.skip,
            limit: copy.limit.unwrap_or(u64::MAX),
            traces,
        });
        self.current = (!self.further.is_empty()).then_some((options, mapping));
        Ok(true)
    }

    /// Keep what it takes to read the current file again.
    fn keep_track(&mut self) {
        let Some((mut options, mapping)) = self.current.take() else { return };
        let source = self.source();
        if let Some(list) = self.process.rows.stream().files() {
            options.location = Location::Files(Rc::clone(list));
        }
        let process = &mut self.process;
        self.earlier.push(Earlier {
            options,
            mapping,
            identity: process.rows.stream().identity(),
            source,
            traces: process.traces,
            anchors: std::mem::take(&mut process.origins.anchors),
            relation: process.rows.relation_name.clone(),
            described: process.rows.described.clone(),
        });
    }
}
