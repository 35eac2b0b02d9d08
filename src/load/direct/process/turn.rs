//! From one file to the next.
//!
//! What belongs to the file is exchanged. What belongs to the target stays as it is: heaps, with pages that are not full and
//! of which nobody else knows yet, the keys that were collected, ids that were taken. So the pages and the indexes of a
//! load are those of all its files together.

use super::{Process, Projection};
use crate::error::Result;
use crate::load::direct::origin::Traces;
use crate::load::direct::rejects::Rejects;
use crate::pg::chunks::Chunks;
use crate::pg::column::{Column, Taken};
use crate::pg::row::Rows;
use crate::pg::row::Turn;
use crate::pg::soft::Tolerance;
use crate::pg::stages::Stages;

/// What belongs to a file.
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
    /// Get ready for the rows of a file.
    pub(super) fn adapt(&mut self) {
        self.rows.stream_mut().stages = Stages::new();
        self.decode_together();
    }

    fn decode_together(&mut self) {
        let has_field = |c: &Column| !c.ignored && c.taken == Taken::Field;
        let is_set = |i: &usize| self.rows.columns().iter().any(|c| has_field(c) && c.attribute == *i);
        self.unset_not_null = self.not_null.iter().copied().filter(|i| !is_set(i)).collect();
        match &self.projection {
            // The row is the foreign table's.
            Some(projection) => self.rows.decode_together(projection.attributes(), &[]),
            None => {
                let attributes = self.attributes();
                self.rows.decode_together(attributes, &self.not_null);
            }
        }
    }

    /// Which columns the fields are for has changed, or which file of a list they are of.
    #[cold]
    pub(super) fn fit(&mut self, turn: Turn) {
        if turn == Turn::File {
            // Its first record is not behind the last one of the file before.
            self.gaps += 1;
            // What was counted until now is of the file before.
            self.report();
            self.file = self.rows.stream().file_number();
        }
        if let Some(projection) = &mut self.projection {
            projection.fit(self.rows.columns());
        }
        self.wanted = self.projection.as_ref().map_or_else(|| self.rows.all(), |projection| projection.first.clone());
        self.decode_together();
    }

    /// The rows of a file are in, and there is another file: what is still to be appended waits for its rows. Guarded.
    pub fn pause(&mut self) -> Result<()> {
        self.report();
        self.show();
        self.shared().rest(self.number);
        self.tell_origins(0)
    }

    /// Go on with another file. In the leader, when it has no workers. Guarded.
    pub fn turn_to(&mut self, file: File) {
        let File { mut rows, projection, tolerance, rejects, skip, limit, traces } = file;
        // Collectors know it.
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
            trail.turn_to(traces == Traces::Lines, self.origins.file);
        }
        self.adapt();
    }
}
