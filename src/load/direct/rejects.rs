//! Rejects of a load, counted across its processes.
//!
//! With `reject_limit` the load fails at the first reject beyond the limit, in the order of the file. When all
//! processes together exceed the limit, the load will fail. But the record to report is known only from the counts of
//! all chunks before it. So no further chunk is given out, and a process waits at its next reject until all earlier
//! chunks are done.
//!
//! The record to report may have been passed before the limit was reached. So after the load has ended, with or without
//! an error, the leader adds up the counts of the chunks. If they exceed the limit, it reads the chunk with that record
//! again and stops at the record ([`Rejects::too_much`]).

use std::sync::atomic::Ordering::SeqCst;

use pg_bulk_text::reader::RecordStart;
use pgrx::pg_sys;

use super::spec::{RejectTally, Shared};
use super::wide::{MessageKind, Received, Wide};
use crate::error::{Error, Result};
use crate::guc;
use crate::load::rejects::Spool;
use crate::rows::copy_options::CopyOptions;
use crate::rows::soft::{self, Limit, OnError};
use crate::server::result_relation::ResultRelation;
use crate::server::team::SharedRef;

/// State of a process for keeping and counting its rejects.
#[derive(Debug)]
pub struct Rejects {
    /// Most rejects to keep; None if rejects are not kept.
    pub(super) keep: Option<u64>,
    /// In the leader: the spool for rejects. A worker sends them to the leader.
    spool: Option<&'static Spool>,
    /// Most rejects of the load.
    pub limit: Option<u64>,
    /// The limit in the user's options.
    named: u64,
    /// Tallies of the chunks; None when the file is read in order.
    pub tallies: Option<SharedRef<[RejectTally]>>,
    /// Of the row that is being checked.
    pub pins: Pins,
}

/// Pins on the descriptor of a partition's root.
///
/// To show a row in the root's format, ExecConstraints pins the descriptor and leaves the pin to the end of the
/// transaction.
#[derive(Debug, Default)]
pub struct Pins(Option<(ResultRelation, i32)>);

impl Pins {
    /// Notes the number of pins before the row is checked. For a plain frame.
    pub fn note(&mut self, leaf: ResultRelation) {
        self.0 = leaf.root().map(|root| (root, root.relation().descriptor().pins()));
    }

    /// Forgets the number: the row passed its checks.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// Releases the pins that were added since. Guarded.
    pub fn release(&mut self) {
        let Some((root, before)) = self.0.take() else { return };
        let descriptor = root.relation().descriptor();
        while descriptor.pins() > before.max(0) {
            // SAFETY: a guarded call, which raises an error for a pin of another resource owner.
            unsafe { pg_sys::DecrTupleDescRefCount(descriptor.as_ptr()) };
        }
    }
}

/// The record that exceeded the limit, with the position to find it again.
#[derive(Debug, Clone, Copy)]
pub struct TooMuch {
    /// Its chunk.
    pub ticket: u64,
    /// Position to read from.
    pub place: RecordStart,
    /// Rejects between that position and the record.
    pub before: u64,
}

impl Rejects {
    /// State for a file that is read in order.
    pub fn new(options: &CopyOptions, spool: Option<&'static Spool>) -> Rejects {
        let limit = options.reject_limit.and_then(Limit::rows);
        let keep = (options.on_error == OnError::Table).then(guc::reject_cap);
        Rejects { keep, spool, limit, named: limit.unwrap_or(0), tallies: None, pins: Pins::default() }
    }

    /// State for reading again from a position, after `before` rejects that fit the limit.
    pub fn again(&self, before: u64) -> Rejects {
        Rejects { limit: Some(before), tallies: None, pins: Pins::default(), ..*self }
    }

    /// Are all errors of a record's own survived, and rejects kept?
    pub fn keeps(&self) -> bool {
        self.keep.is_some()
    }

    /// In the leader: may one more reject be kept?
    pub fn has_room(&self) -> bool {
        self.spool.is_some_and(Spool::has_room)
    }

    /// In the leader: the id of the load whose rejects the view bulk_rejects will show.
    pub fn kept_by(&self) -> Option<i64> {
        self.spool.and_then(Spool::view_of)
    }

    /// Counts further rejects, but keeps none.
    pub fn forget_spool(&mut self) {
        self.keep = self.keep.map(|_| 0);
        self.spool = None;
    }

    /// In the leader: keeps a reject that a worker has sent. Guarded.
    pub fn keep_bytes(&mut self, reject: &[u8]) {
        if let Some(spool) = self.spool {
            spool.push(reject);
        }
    }

    /// Receives messages while the leader waits: keeps rejects, and discards the rest. Guarded.
    pub fn drain(&mut self, wide: &mut Wide) {
        loop {
            match wide.receive() {
                Received::Message(MessageKind::Reject, _) => self.keep_bytes(wide.content()),
                Received::Message(..) => (),
                Received::Nothing | Received::Closed => return,
            }
        }
    }

    fn tally(&self, ticket: u64) -> Option<&RejectTally> {
        self.tallies.as_deref()?.get(usize::try_from(ticket).ok()?)
    }

    fn count_of(&self, ticket: u64) -> u64 {
        self.tally(ticket).map_or(0, |tally| tally.count.load(SeqCst))
    }

    /// Notes the position of a chunk that is being cut.
    pub fn mark(&self, ticket: u64, place: RecordStart) {
        if let Some(tally) = self.tally(ticket) {
            tally.begin_at(place);
        }
    }

    /// Counts a reject; an error if it exceeds the limit. While the process waits for others, it receives their
    /// messages. Guarded, and interruptible.
    pub fn count(&mut self, shared: &Shared, process: usize, wide: &mut Wide) -> Result<()> {
        let total = shared.bad.fetch_add(1, SeqCst) + 1;
        let Some(limit) = self.limit else { return Ok(()) };
        let Some((ticket, tally)) = shared.working_on(process).and_then(|ticket| Some((ticket, self.tally(ticket)?)))
        else {
            return if total > limit { Err(self.too_many()) } else { Ok(()) };
        };
        let here = tally.count.fetch_add(1, SeqCst) + 1;
        if total <= limit {
            return Ok(());
        }
        shared.end_here();
        // If the wait ends because of an earlier error, that error will be raised, whatever this one is.
        let earlier_are_done = shared.wait_for_earlier(process, || self.drain(wide));
        let before: u64 = (0..ticket).map(|number| self.count_of(number)).sum();
        if earlier_are_done && shared.bad_before + before + here <= limit {
            return Ok(());
        }
        Err(self.too_many())
    }

    /// Finds the record that exceeds the limit in the chunks up to the failed one, or in all chunks. All but the last
    /// of these are done.
    pub fn too_much(&self, shared: &Shared) -> Option<TooMuch> {
        let limit = self.limit?;
        let chunks = shared.failed().map_or(shared.grid.count(), |failed| failed + 1);
        let mut before = shared.bad_before;
        for ticket in 0..chunks {
            let tally = self.tally(ticket)?;
            let here = tally.count.load(SeqCst);
            if before + here > limit {
                return Some(TooMuch { ticket, place: tally.place(), before: limit - before });
            }
            before += here;
        }
        None
    }

    /// The error that is raised when the limit is exceeded.
    pub fn too_many(&self) -> Error {
        let on_error = if self.keeps() { OnError::Table } else { OnError::Ignore };
        soft::too_many(on_error, self.named)
    }
}
