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
use pgrx::pg_sys;

use super::shared::Shared;
use super::wide::{Received, Wide};
use crate::error::{Error, Result};
use crate::guc;
use crate::load::rejects::Spool;
use crate::pg::copy_options::CopyOptions;
use crate::pg::soft::{self, OnError};

/// What all processes know of a stretch.
#[derive(Debug)]
#[repr(C)]
pub struct Tally {
    /// Rows left out.
    count: AtomicU64,
    /// Where its first record begins. Written by whoever cuts it.
    place: UnsafeCell<Place>,
}

impl Tally {
    pub fn new() -> Tally {
        Tally { count: AtomicU64::new(0), place: UnsafeCell::new(Place { eol: Eol::Nl, offset: 0, lines: 0 }) }
    }
}

/// What a process needs to keep and judge its rejects.
#[derive(Debug)]
pub struct Rejects {
    /// Rejects are to be kept, so many at most.
    pub(super) keep: Option<u64>,
    /// In the leader: there. Else they are sent to it.
    spool: *mut Spool,
    /// Most rows left out.
    pub limit: Option<u64>,
    /// The limit as the user said it.
    named: u64,
    /// Of each stretch; null where the file is read in order.
    pub tallies: *const Tally,
}

/// Pins on the descriptor of a partition's root: to show a row as the root has it, ExecConstraints pins the descriptor, and
/// leaves it to the end of the transaction to let go.
#[derive(Debug, Default)]
pub struct Pins(Option<(pg_sys::TupleDesc, i32)>);

impl Pins {
    /// Note how many there are before the row is judged. For a plain frame.
    ///
    /// # Safety
    /// A result relation that is open.
    pub unsafe fn note(&mut self, relinfo: *const pg_sys::ResultRelInfo) {
        // SAFETY: this function's contract covers the argument.
        unsafe {
            let root = (*relinfo).ri_RootResultRelInfo;
            self.0 = (!root.is_null()).then(|| {
                let descriptor = (*(*root).ri_RelationDesc).rd_att;
                (descriptor, (*descriptor).tdrefcount)
            });
        }
    }

    /// The row was judged well.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// Let go of those that came since. Guarded.
    ///
    /// # Safety
    /// What was noted last is still open.
    pub unsafe fn release(&mut self) {
        if let Some((descriptor, before)) = self.0.take() {
            // SAFETY: this function's contract covers the argument; these pins are of this resource owner.
            unsafe {
                while (*descriptor).tdrefcount > before.max(0) {
                    pg_sys::DecrTupleDescRefCount(descriptor);
                }
            }
        }
    }
}

/// The row that was too many, so that it can be found again.
#[derive(Debug, Clone, Copy)]
pub struct TooMuch {
    /// In which stretch.
    pub stretch: u64,
    /// Where to begin.
    pub place: Place,
    /// Rows that are left out from there on, before it.
    pub before: u64,
}

impl Rejects {
    /// For a file that is read in order.
    pub fn new(options: &CopyOptions, spool: *mut Spool) -> Rejects {
        let limit = options.reject_limit;
        let keep = (options.on_error == OnError::Table).then(guc::reject_cap);
        Rejects { keep, spool, limit: (limit > 0).then_some(limit), named: limit, tallies: std::ptr::null() }
    }

    /// The same limit, for reading again what is behind a place.
    pub fn again(&self, before: u64) -> Rejects {
        Rejects { limit: Some(before), tallies: std::ptr::null(), ..*self }
    }

    /// Are rejects of all kinds survived, and kept?
    pub fn keeps(&self) -> bool {
        self.keep.is_some()
    }

    /// In the leader: may one more be kept?
    pub fn has_room(&self) -> bool {
        // SAFETY: the spool of the load, which outlives its processes.
        unsafe { self.spool.as_ref() }.is_some_and(|spool| spool.count < spool.most)
    }

    /// In the leader: the number of the load whose rejects the view bulk_rejects will show.
    pub fn kept_by(&self) -> Option<i64> {
        // SAFETY: the spool of the load, which outlives its processes.
        unsafe { self.spool.as_ref() }.and_then(Spool::view_of)
    }

    /// Count them, but keep none any more.
    pub fn forget_spool(&mut self) {
        self.keep = self.keep.map(|_| 0);
        self.spool = std::ptr::null_mut();
    }

    /// In the leader: keep what a worker has sent. Guarded.
    pub fn keep_bytes(&mut self, reject: &[u8]) {
        // SAFETY: the spool of the load, which outlives its processes.
        if let Some(spool) = unsafe { self.spool.as_mut() } {
            spool.push(reject);
        }
    }

    /// Take what workers have sent while nobody looked; rows are of no use any more. Guarded.
    pub fn drain(&mut self, wide: &mut Wide) {
        loop {
            match wide.receive() {
                // SAFETY: what was received last.
                Received::Reject(reject) => self.keep_bytes(unsafe { &*reject }),
                Received::Row(..) | Received::Stretches(..) | Received::Anchors(_) => (),
                Received::Nothing | Received::Closed => return,
            }
        }
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
            unsafe { *self.tally(stretch).place.get() = place };
        }
    }

    /// A row is left out. An error if it is one too many. While the process waits for others, it looks at what they send.
    /// Guarded, and interruptible.
    pub fn count(&mut self, shared: &Shared, process: usize, wide: &mut Wide) -> Result<()> {
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
        let earlier_are_done = shared.wait_for_earlier(process, || self.drain(wide));
        let before: u64 = (0..stretch).map(|number| self.count_of(number)).sum();
        if earlier_are_done && shared.bad_before + before + here <= limit {
            return Ok(());
        }
        Err(self.too_many())
    }

    /// Of the stretches up to the one that failed, or of all there were: is there a row too many? All but the last of these
    /// stretches are done.
    pub fn too_much(&self, shared: &Shared) -> Option<TooMuch> {
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
                let place = unsafe { *self.tally(stretch).place.get() };
                return Some(TooMuch { stretch, place, before: limit - before });
            }
            before += here;
        }
        None
    }

    /// The error about them.
    pub fn too_many(&self) -> Error {
        let on_error = if self.keeps() { OnError::Table } else { OnError::Ignore };
        soft::too_many(on_error, self.named)
    }
}
