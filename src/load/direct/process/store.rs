//! Stores rows in heaps, which append their pages. The leader also inserts rows that workers send; a dry run only
//! checks keys.

use super::Process;
use crate::error::Result;
use crate::load::direct::key_check::CheckedTable;
use crate::load::direct::wide::{MessageKind, Received};
use crate::rows::chunks::Chunks;
use crate::server::background::pause;
use crate::server::result_relation::ResultRelation;
use crate::server::slot::{Row, Slot};
use crate::server::stages::{Stage, Stages};

/// Milliseconds after which a waiting leader shows the progress of the other processes.
const SHOW: i64 = 500;
/// Rows of workers that are inserted before the leader's own rows go on.
const RECEIVED: usize = 64;

/// Result of receiving rows from workers.
pub(super) enum Sent {
    /// The queues may contain more rows.
    More,
    /// All rows in the queues are inserted.
    All,
    /// All rows are inserted, and all queues are closed.
    Closed,
}

impl Process {
    /// Inserts some of the rows that workers have sent. Guarded, and interruptible.
    pub(super) fn receive(&mut self) -> Result<Sent> {
        let shared = self.shared;
        for _ in 0..RECEIVED {
            let oid = match self.wide.receive() {
                Received::Message(MessageKind::Row, oid) => oid,
                Received::Message(MessageKind::Reject, _) => {
                    self.rejects.keep_bytes(self.wide.content());
                    continue;
                }
                Received::Message(kind, oid) => {
                    self.remember(kind, oid);
                    continue;
                }
                Received::Nothing => return Ok(Sent::All),
                Received::Closed => return Ok(Sent::Closed),
            };
            pgrx::check_for_interrupts!();
            let index = self.heaps.open_locked(oid, &self.tracer)?;
            if let Some(heap) = self.heaps.list.get_mut(index) {
                self.wide.store_received(heap, &shared.append_lock)?;
            }
        }
        Ok(Sent::More)
    }

    /// Inserts rows of workers until all workers are done. Guarded, and interruptible.
    pub fn receive_all(&mut self) -> Result<()> {
        loop {
            match self.receive()? {
                Sent::Closed => return Ok(()),
                Sent::More => (),
                // A queue sets the latch after a message, and when its sender is gone.
                Sent::All => {
                    pause(SHOW);
                    self.show();
                }
            }
            pgrx::check_for_interrupts!();
        }
    }

    /// Puts a row of a result relation into its heap. Guarded.
    pub fn store(&mut self, leaf: ResultRelation, row: Row<'_>) -> Result<()> {
        let heap = self.heaps.of_leaf(leaf, &self.tracer)?;
        self.add(heap, row)
    }

    /// Puts a row into a heap. Guarded.
    pub(super) fn add(&mut self, heap: usize, row: Row<'_>) -> Result<()> {
        self.count_row();
        let origin = self.tracer.origin(&mut self.rows);
        let added = self.heaps.add(heap, row, origin, &mut self.wide, &self.shared.append_lock);
        self.survive_row(added)
    }

    /// Puts a row that was decoded in a block, for the target, into the target's heap. Guarded.
    #[inline]
    pub(super) fn add_decoded(&mut self) -> Result<()> {
        self.count_row();
        let origin = self.tracer.origin(&mut self.rows);
        let added = self.heaps.add_decoded(&mut self.rows, origin, &mut self.wide, &self.shared.append_lock);
        self.survive_row(added)
    }

    /// Rejects the row that was counted last if it was not added because of an error about it.
    #[inline]
    fn survive_row(&mut self, added: Result<()>) -> Result<()> {
        let Err(error) = added else { return Ok(()) };
        self.survive(&error).map_err(|other| other.unwrap_or(error))?;
        self.quota.rows += 1;
        self.progress.rows -= 1;
        Ok(())
    }

    /// Gives a row that is not stored its position, in the slot. Returns the table that checks its keys; null without a
    /// check. Guarded.
    pub fn take(&mut self, leaf: ResultRelation, slot: Slot<'_>) -> Result<*mut CheckedTable> {
        let Some(keys) = &mut self.keys else { return Ok(std::ptr::null_mut()) };
        let table = keys.table_of(leaf, || self.heaps.number_of(leaf.relation()))?;
        let origin = self.tracer.origin(&mut self.rows);
        slot.set_tid(table.next(origin, &mut self.tracer.origins));
        let table = &raw mut *table;
        self.count_row();
        Ok(table)
    }

    #[inline]
    pub fn count_row(&mut self) {
        self.quota.rows -= 1;
        self.progress.rows += 1;
    }

    /// Appends all rows that are left. Guarded.
    pub fn finish(&mut self) -> Result<()> {
        self.report();
        self.show();
        self.shared.rest(self.number);
        // With workers, each process may have a few rows left in any load. Without workers, a few rows may be the whole
        // load, and then go through shared buffers.
        let alone = self.number == 0 && matches!(self.chunks, Chunks::InOrder);
        self.recipe.defaults.give_back()?;
        let mut watch = self.progress.stages.watch();
        self.heaps.finish(alone, &self.shared.append_lock)?;
        self.tracer.report(0, &mut self.heaps.list, &mut self.wide)?;
        for collector in self.heaps.collectors() {
            if self.number > 0 {
                collector.hand_over()?;
            } else {
                // Workers sort their keys at the same time.
                collector.sort();
            }
        }
        self.progress.stages.lap(&mut watch, Stage::Rest);
        self.account();
        Ok(())
    }

    /// Adds the written pages and the time of each stage to the shared counts.
    fn account(&mut self) {
        let mut stages = std::mem::replace(&mut self.progress.stages, Stages::new());
        let mut pages = 0;
        for heap in &mut self.heaps.list {
            let appended = heap.take_appended();
            pages += appended.pages;
            stages.merge(&appended.stages);
            stages.merge(&heap.take_stages());
        }
        stages.merge(&std::mem::replace(&mut self.rows.stream_mut().stages, Stages::new()));
        stages.set_rest(Stage::Rest);
        self.shared.account(pages, &stages);
    }
}
