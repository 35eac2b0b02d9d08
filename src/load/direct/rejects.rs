//! Rows that a load leaves out, counted across its processes.
//!
//! With `reject_limit` the load fails at the first row beyond it, in the order of the file. When all processes together
//! have left out more rows than that, the load is going to fail, but whose row is to blame only those know who have seen
//! all rows before it. So no further stretch is given out, each process waits at its next such row until the stretches
//! before its own are done, and then counts: rows of the stretches before, and its own of this one.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use pgrx::PgSqlErrorCode as Code;

use super::shared::Shared;
use crate::error::{Error, Result};

/// What a process needs to judge its rejects.
#[derive(Debug)]
pub struct Rejects {
    /// Most rows left out.
    pub limit: Option<u64>,
    /// Of each stretch, the rows left out; null where the file is read in order.
    pub by_stretch: *const AtomicU64,
}

impl Rejects {
    /// For a file that is read in order.
    pub fn new(limit: u64) -> Rejects {
        Rejects { limit: (limit > 0).then_some(limit), by_stretch: std::ptr::null() }
    }

    /// Rows left out of a stretch.
    fn of(&self, stretch: u64) -> &AtomicU64 {
        let index = usize::try_from(stretch).unwrap_or(0);
        // SAFETY: there is a counter for each stretch of the grid, in memory that is there as long as processes work.
        unsafe { &*self.by_stretch.add(index) }
    }

    /// A row is left out. An error if it is the one that is too many. `meanwhile` is called now and then while the process
    /// waits for others. Guarded, and interruptible.
    pub fn count(&self, shared: &Shared, process: usize, meanwhile: impl FnMut()) -> Result<()> {
        let total = shared.bad.fetch_add(1, SeqCst) + 1;
        let Some(limit) = self.limit else { return Ok(()) };
        let stretch = if self.by_stretch.is_null() { None } else { shared.working_on(process) };
        let Some(stretch) = stretch else {
            return if total > limit { Err(too_many(limit)) } else { Ok(()) };
        };
        let here = self.of(stretch).fetch_add(1, SeqCst) + 1;
        if total <= limit {
            return Ok(());
        }
        shared.end_here();
        // Where it is of no use to go on, any error will do: an earlier one is going to be raised.
        let earlier_are_done = shared.wait_for_earlier(process, meanwhile);
        let before: u64 = (0..stretch).map(|number| self.of(number).load(SeqCst)).sum();
        if earlier_are_done && shared.bad_before + before + here <= limit {
            return Ok(());
        }
        Err(too_many(limit))
    }
}

/// COPY's message, which is about the last bad value.
fn too_many(limit: u64) -> Error {
    let message = format!("skipped more than REJECT_LIMIT ({limit}) rows due to data type incompatibility");
    Error::new(Code::ERRCODE_INVALID_TEXT_REPRESENTATION, message)
}
