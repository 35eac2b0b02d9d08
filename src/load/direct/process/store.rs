//! Stores rows in heaps, which append their pages. The leader also inserts rows that workers send; a dry run only
//! checks keys.

use pgrx::pg_sys;

use super::Process;
use crate::error::Result;
use crate::load::direct::heap::{Added, Heap};
use crate::load::direct::key_check::CheckedTable;
use crate::load::direct::wide::Received;
use crate::load::memory;
use crate::pg::chunks::Chunks;
use crate::pg::row::RowArrays;
use crate::pg::stages::{Stage, Stages};

/// Milliseconds after which a waiting leader shows the progress of the other processes.
const SHOW: std::ffi::c_long = 500;
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
        // SAFETY: as in `shared`.
        let shared = unsafe { &*self.shared };
        for _ in 0..RECEIVED {
            let (oid, message) = match self.wide.receive() {
                Received::Row(oid, message) => (oid, message),
                Received::Reject(reject) => {
                    // SAFETY: the bytes were received last.
                    self.rejects.keep_bytes(unsafe { &*reject });
                    continue;
                }
                other @ (Received::Ranges(..) | Received::Anchors(_)) => {
                    self.remember(other);
                    continue;
                }
                Received::Nothing => return Ok(Sent::All),
                Received::Closed => return Ok(Sent::Closed),
            };
            pgrx::check_for_interrupts!();
            let index = match self.heap_of(oid) {
                Some(index) => index,
                None => {
                    // SAFETY: a relation that the leader has locked.
                    let relation = unsafe { pg_sys::table_open(oid, pg_sys::NoLock.cast_signed()) };
                    let index = self.open_heap(relation)?;
                    if let Some(heap) = self.heaps.get_mut(index) {
                        heap.is_owner = true;
                    }
                    index
                }
            };
            if let Some(heap) = self.heaps.get_mut(index) {
                // SAFETY: the message was received last.
                unsafe { self.wide.store_received(heap, message, &shared.append_lock) }?;
            }
        }
        Ok(Sent::More)
    }

    /// Inserts rows of workers until all workers are done. Guarded, and interruptible.
    pub fn receive_all(&mut self) -> Result<()> {
        let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
        loop {
            match self.receive()? {
                Sent::Closed => return Ok(()),
                Sent::More => (),
                // SAFETY: guarded calls on this process's latch. A queue sets it after a message, and when its sender
                // is gone.
                Sent::All => unsafe {
                    pg_sys::WaitLatch(pg_sys::MyLatch, events.cast_signed(), SHOW, pg_sys::PG_WAIT_EXTENSION);
                    pg_sys::ResetLatch(pg_sys::MyLatch);
                    self.show();
                },
            }
            pgrx::check_for_interrupts!();
        }
    }

    /// Puts a row into a heap. Guarded. The arrays are as long as the heap's descriptor, and contain values of its
    /// types.
    pub fn add(&mut self, heap: usize, arrays: RowArrays) -> Result<()> {
        self.count_row();
        // SAFETY: as in `shared`.
        let shared = unsafe { &*self.shared };
        let origin = self.origin();
        let Some(destination) = self.heaps.get_mut(heap) else { return Ok(()) };
        let before = destination.bytes();
        // SAFETY: this function's contract covers the arrays.
        let added = unsafe { destination.add(arrays, origin, &mut self.form, &shared.append_lock) }?;
        if added == Added::Wide {
            // SAFETY: as above.
            unsafe { self.wide.add(destination, arrays, origin, &shared.append_lock) }?;
        }
        let after = destination.bytes();
        self.follow_bytes(before, after)
    }

    /// Puts a row that was decoded in a block into the target's heap. Guarded.
    #[inline]
    pub(super) fn add_decoded(&mut self, arrays: RowArrays) -> Result<()> {
        self.count_row();
        // SAFETY: as in `shared`.
        let shared = unsafe { &*self.shared };
        let origin = self.origin();
        let Some(destination) = self.heaps.first_mut() else { return Ok(()) };
        let before = destination.bytes();
        // SAFETY: the rows' arrays with their column forms.
        let added = unsafe {
            destination.add_decoded(self.rows.column_forms(), arrays, origin, &mut self.form, &shared.append_lock)
        }?;
        if added == Added::Wide {
            // SAFETY: as above; the arrays then contain datums.
            unsafe {
                self.rows.make_datums(arrays)?;
                self.wide.add(destination, arrays, origin, &shared.append_lock)?;
            }
        }
        let after = destination.bytes();
        self.follow_bytes(before, after)
    }

    /// Gives a row that is not stored its position, in the slot. Returns the table that checks its keys. Guarded.
    ///
    /// # Safety
    /// The process has a check, `relinfo` is one of its result relations, and the slot contains a row of it.
    pub unsafe fn take(
        &mut self,
        relinfo: *mut pg_sys::ResultRelInfo,
        slot: *mut pg_sys::TupleTableSlot,
    ) -> Result<*mut CheckedTable> {
        // SAFETY: this function's contract covers all arguments.
        unsafe {
            let table = (*self.keys).table_of(relinfo, || self.number_of_relation((*relinfo).ri_RelationDesc))?;
            let origin = self.origin();
            (*slot).tts_tid = (*table).next(origin, &mut self.origins);
            self.count_row();
            Ok(table)
        }
    }

    #[inline]
    pub fn count_row(&mut self) {
        self.limit -= 1;
        self.unreported_rows += 1;
    }

    /// Adds a heap's change of memory to the total. Guarded.
    #[inline]
    fn follow_bytes(&mut self, before: usize, after: usize) -> Result<()> {
        if after == before {
            return Ok(());
        }
        self.page_bytes += after - before;
        self.relieve()
    }

    /// Appends the largest batches if all together take too much memory. Half of the allowed memory remains in use, so
    /// that the next row does not exceed it again. Guarded.
    fn relieve(&mut self) -> Result<()> {
        // SAFETY: as in `shared`.
        let shared = unsafe { &*self.shared };
        let most = memory::page_bytes(self.heaps.len());
        if self.page_bytes <= most {
            return Ok(());
        }
        let mut heaps: Vec<&mut Heap> = self.heaps.iter_mut().filter(|heap| heap.has_pages()).collect();
        heaps.sort_by_key(|heap| std::cmp::Reverse(heap.bytes()));
        for heap in heaps {
            if self.page_bytes <= most / 2 {
                break;
            }
            let before = heap.bytes();
            heap.append(&shared.append_lock)?;
            heap.shrink();
            self.page_bytes -= before - heap.bytes();
        }
        Ok(())
    }

    /// Appends all rows that are left. Guarded.
    pub fn finish(&mut self) -> Result<()> {
        // SAFETY: as in `shared`.
        let shared = unsafe { &*self.shared };
        self.report();
        self.show();
        shared.rest(self.number);
        // With workers, each process may have a few rows left in any load. Without workers, a few rows may be the whole
        // load, and then go through shared buffers.
        let alone = self.number == 0 && matches!(self.chunks, Chunks::InOrder);
        // SAFETY: the executor's own memory, which outlives the heaps.
        let memory = unsafe { (*self.executor.estate).es_query_cxt };
        self.defaults.give_back()?;
        let mut watch = self.stages.watch();
        for heap in &mut self.heaps {
            if alone {
                heap.finish_small(memory, &shared.append_lock)?;
            } else {
                heap.finish(&shared.append_lock)?;
            }
        }
        self.report_origins(0)?;
        for collector in self.heaps.iter_mut().flat_map(|heap| &mut heap.collectors) {
            if self.number > 0 {
                collector.hand_over()?;
            } else {
                // Workers sort their keys at the same time.
                collector.sort();
            }
        }
        self.stages.lap(&mut watch, Stage::Rest);
        self.account();
        Ok(())
    }

    /// Adds the written pages and the time of each stage to the shared counts.
    fn account(&mut self) {
        let mut stages = std::mem::replace(&mut self.stages, Stages::new());
        let mut pages = 0;
        for heap in &mut self.heaps {
            let appended = heap.take_appended();
            pages += appended.pages;
            stages.merge(&appended.stages);
            stages.merge(&heap.take_stages());
        }
        stages.merge(&std::mem::replace(&mut self.rows.stream_mut().stages, Stages::new()));
        stages.set_rest(Stage::Rest);
        self.shared().account(pages, &stages);
    }
}
