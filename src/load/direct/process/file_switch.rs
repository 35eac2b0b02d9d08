//! Goes from one file to the next.
//!
//! The state of the file is replaced. The state of the target stays: heaps with their partial pages, collected keys,
//! ids that were taken. So all files of a load share pages and indexes.

use std::collections::VecDeque;

use super::{Process, Quota};
use crate::error::Result;
use crate::load::direct::origin::Traces;
use crate::load::direct::rejects::Rejects;
use crate::program::projection::Projection;
use crate::rows::chunks::Chunks;
use crate::rows::row::Rows;
use crate::rows::row::RowsChange;
use crate::rows::soft::Tolerance;
use crate::server::stages::Stages;

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
