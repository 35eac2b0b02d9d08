//! Goes from one file to the next.
//!
//! The state of the file is replaced. The state of the target stays: heaps with their partial pages, collected keys,
//! ids that were taken. So all files of a load share pages and indexes.

use super::{Process, Projection};
use crate::error::Result;
use crate::load::direct::origin::Traces;
use crate::load::direct::rejects::Rejects;
use crate::pg::chunks::Chunks;
use crate::pg::column::{Column, Taken};
use crate::pg::row::Rows;
use crate::pg::row::RowsChange;
use crate::pg::soft::Tolerance;
use crate::pg::stages::Stages;

/// State that belongs to a file.
#[derive(Debug)]
pub struct File {
    pub rows: Rows,
    pub projection: Option<Projection>,
    pub tolerance: Tolerance,
    pub rejects: Rejects,
    pub skip: u64,
    pub limit: u64,
    pub traces: Traces,
}

impl Process {
    /// Prepares the process for the rows of its file.
    pub(super) fn adapt(&mut self) {
        self.rows.stream_mut().stages = Stages::new();
        self.decode_together();
    }

    fn decode_together(&mut self) {
        let has_field = |c: &Column| !c.ignored && c.taken == Taken::Field;
        let is_set = |i: &usize| self.rows.columns().iter().any(|c| has_field(c) && c.attribute == *i);
        self.unset_not_null = self.not_null.iter().copied().filter(|i| !is_set(i)).collect();
        match &self.projection {
            // The row is a row of the foreign table.
            Some(projection) => self.rows.decode_together(projection.attributes(), &[]),
            None => {
                let attributes = self.attributes();
                self.rows.decode_together(attributes, &self.not_null);
            }
        }
    }

    /// Adapts to a change of the fields' columns, or to the next file of a list.
    #[cold]
    pub(super) fn fit(&mut self, change: RowsChange) {
        if change == RowsChange::File {
            // The first record of a file does not follow the last record of the file before.
            self.gaps += 1;
            // Rows counted until now belong to the file before.
            self.report();
            self.file = self.rows.stream().file_number();
        }
        if let Some(projection) = &mut self.projection {
            projection.fit(self.rows.columns());
        }
        self.wanted = self.projection.as_ref().map_or_else(|| self.rows.all(), |projection| projection.first.clone());
        self.decode_together();
    }

    /// Ends a file that is not the last: partial pages wait for the next file's rows. Guarded.
    pub fn pause(&mut self) -> Result<()> {
        self.report();
        self.show();
        self.shared().rest(self.number);
        self.report_origins(0)
    }

    /// Goes on with another file. In the leader, when it has no workers. Guarded.
    pub fn switch_to_file(&mut self, file: File) {
        let File { mut rows, projection, tolerance, rejects, skip, limit, traces } = file;
        // Collectors refer to `elsewhere`.
        rows.elsewhere = self.rows.elsewhere.clone();
        let mut old = std::mem::replace(&mut self.rows, rows);
        self.stages.merge(&std::mem::replace(&mut old.stream_mut().stages, Stages::new()));
        self.wanted = projection.as_ref().map_or_else(|| self.rows.all(), |projection| projection.first.clone());
        self.projection = projection;
        self.chunks = Chunks::InOrder;
        self.wide.set_queues(Vec::new());
        (self.tolerance, self.rejects) = (tolerance, rejects);
        (self.skip_left, self.limit, self.records_left) = (skip, limit, u64::MAX);
        (self.round, self.reported) = (0, 0);
        self.defaults.go_on();
        self.origins.file += 1;
        (self.traces, self.last_anchor) = (traces, 0);
        for trail in self.heaps.iter_mut().filter_map(|heap| heap.trail.as_mut()) {
            trail.switch_file(traces == Traces::Lines, self.origins.file);
        }
        self.adapt();
    }
}
