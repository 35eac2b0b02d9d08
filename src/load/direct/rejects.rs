//! Rows that a load leaves out, counted across its processes.
//!
//! With `reject_limit` the load fails at the first row beyond it, in the order of the file. When all processes together
//! have left out more rows than that, the load is going to fail, but whose row is to blame only the counts of all rows
//! before it can tell. So no further stretch is given out, and a process waits at its next such row until the stretches before
//! its own are done.
//!
//! The row to blame may have been passed long ago, when there still seemed to be room. So whatever the load ends with, the
//! leader adds up the stretches up to there; and if that is too much, it reads the stretch with the row in question once
//! more, and stops at it ([`Rejects::too_much`]).

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use pg_bulk_format::dialect::Eol;
use pg_bulk_format::reader::Place;
use pgrx::PgSqlErrorCode as Code;

use super::shared::Shared;
use crate::error::{Error, Result};

/// What all processes know of a stretch.
#[derive(Debug)]
#[repr(C)]
pub struct Tally {
    /// Rows left out.
    count: AtomicU64,
    /// Where its first record begins: offset, and lines before. Written by whoever cuts it.
    place: UnsafeCell<(u64, u64)>,
}

impl Tally {
    pub fn new() -> Tally {
        Tally { count: AtomicU64::new(0), place: UnsafeCell::new((0, 0)) }
    }
}

/// What a process needs to judge its rejects.
#[derive(Debug)]
pub struct Rejects {
    /// Most rows left out.
    pub limit: Option<u64>,
    /// The limit as the user said it.
    named: u64,
    /// Of each stretch; null where the file is read in order.
    pub tallies: *const Tally,
}

/// The row that was too many, so that it can be found again.
#[derive(Debug, Clone, Copy)]
pub struct TooMuch {
    /// Where to begin.
    pub place: Place,
    /// Rows that are left out from there on, before it.
    pub before: u64,
}

impl Rejects {
    /// For a file that is read in order.
    pub fn new(limit: u64) -> Rejects {
        Rejects { limit: (limit > 0).then_some(limit), named: limit, tallies: std::ptr::null() }
    }

    /// The same limit, for reading again what is behind a place.
    pub fn again(&self, before: u64) -> Rejects {
        Rejects { limit: Some(before), named: self.named, tallies: std::ptr::null() }
    }

    fn tally(&self, stretch: u64) -> &Tally {
        let index = usize::try_from(stretch).unwrap_or(0);
        // SAFETY: there is one for each stretch of the grid, in memory that is there as long as processes work.
        unsafe { &*self.tallies.add(index) }
    }

    fn count_of(&self, stretch: u64) -> u64 {
        self.tally(stretch).count.load(SeqCst)
    }

    /// A stretch is being cut, and begins at this place.
    pub fn mark(&self, stretch: u64, place: Place) {
        if !self.tallies.is_null() {
            // SAFETY: it is the stretch's turn, so nobody else writes; nobody reads before it is done.
            unsafe { *self.tally(stretch).place.get() = (place.offset, place.lines) };
        }
    }

    /// A row is left out. An error if it is one too many. `meanwhile` is called now and then while the process waits for
    /// others. Guarded, and interruptible.
    pub fn count(&self, shared: &Shared, process: usize, meanwhile: impl FnMut()) -> Result<()> {
        let total = shared.bad.fetch_add(1, SeqCst) + 1;
        let Some(limit) = self.limit else { return Ok(()) };
        let stretch = if self.tallies.is_null() { None } else { shared.working_on(process) };
        let Some(stretch) = stretch else {
            return if total > limit { Err(self.too_many()) } else { Ok(()) };
        };
        let here = self.tally(stretch).count.fetch_add(1, SeqCst) + 1;
        if total <= limit {
            return Ok(());
        }
        shared.end_here();
        // Where it is of no use to go on, any error will do: an earlier one is going to be raised.
        let earlier_are_done = shared.wait_for_earlier(process, meanwhile);
        let before: u64 = (0..stretch).map(|number| self.count_of(number)).sum();
        if earlier_are_done && shared.bad_before + before + here <= limit {
            return Ok(());
        }
        Err(self.too_many())
    }

    /// Of the stretches up to the one that failed, or of all there were: is there a row too many? All but the last of these
    /// stretches are done.
    pub fn too_much(&self, shared: &Shared, eol: Eol) -> Option<TooMuch> {
        let limit = self.limit?;
        if self.tallies.is_null() {
            return None;
        }
        let stretches = shared.failed().map_or(shared.grid.count(), |failed| failed + 1);
        let mut before = shared.bad_before;
        for stretch in 0..stretches {
            let here = self.count_of(stretch);
            if before + here > limit {
                // SAFETY: the stretch was cut, or it would have no count, and nobody writes any more.
                let (offset, lines) = unsafe { *self.tally(stretch).place.get() };
                return Some(TooMuch { place: Place { eol, offset, lines }, before: limit - before });
            }
            before += here;
        }
        None
    }

    /// COPY's message, which is about the last bad value.
    pub fn too_many(&self) -> Error {
        let limit = self.named;
        let message = format!("skipped more than REJECT_LIMIT ({limit}) rows due to data type incompatibility");
        Error::new(Code::ERRCODE_INVALID_TEXT_REPRESENTATION, message)
    }
}
