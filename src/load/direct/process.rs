//! One process of a load: makes rows from records, and puts them into heaps.
//!
//! This module owns the state; the loop over rows is [`row_loop`](super::row_loop). [`advance`] makes a row, [`store`]
//! puts it into its heap.

mod advance;
mod at_once;
mod file_switch;
mod heaps;
mod progress;
mod recipe;
mod reject;
mod store;
mod trace;

use std::collections::VecDeque;

use pg_bulk_text::reader::RecordStart;
use pgrx::pg_sys;

pub use self::at_once::InBlock;
pub use self::file_switch::File;
pub use self::heaps::Heaps;
pub use self::progress::Progress;
pub use self::recipe::Recipe;
pub use self::trace::Tracer;
use super::executor::{Executor, set_up_again};
use super::join::Join;
use super::key_check::KeyCheck;
use super::rejects::Rejects;
use super::shared::Shared;
use super::wide::Wide;
use crate::error::Result;
use crate::load::query::Query;
use crate::rows::chunks::Chunks;
use crate::rows::row::Rows;
use crate::rows::soft::Tolerance;
use crate::server::compat::is_virtual;
use crate::server::relation::Relation;
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
    Query(&'static Query),
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
