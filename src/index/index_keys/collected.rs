//! One process's keys of an index, integers or strings of bytes.
//!
//! They are collected in memory ([`KeyStore`]). When memory is full they are sorted and written to a temporary file as a
//! run. A worker leaves all of its runs in a file that the leader finds by name. The leader keeps its last run in memory.
//!
//! A key that the family cannot represent makes the collection useless. The process then gives up collecting, and the
//! leader finds a mark in its file.

use std::fmt::Debug;

use pg_bulk_storage::btree::collect::{CollectedFamily, KeyStore, NoMemory, Room};
use pg_bulk_storage::btree::entry::Tid;
use pg_bulk_storage::btree::packed;
use pg_bulk_storage::page::PAGE_SIZE;
use pgrx::pg_sys;

use super::runs::{RunFileKind, Runs};
use super::sources::{Sources, file_name};
use crate::error::{Error, Result, out_of_memory};
use crate::heap::removal::number_of;
use crate::server::points::point_quiet;
use crate::server::shared_files::SharedFiles;

/// Least number of entries to pack at once; smaller for tests with few rows.
const WORTH_PACKING: usize = if cfg!(feature = "points") { 64 } else { 8192 };
/// Entries of a packed block. Fewer entries wait for others, because they would not pay for a block's header.
const PACKED_BLOCK: usize = if WORTH_PACKING < packed::MOST { WORTH_PACKING } else { packed::MOST };

/// The collected keys of one process. All functions are guarded.
pub trait Keys: Debug {
    /// Makes this process's runs readable for other processes. Before the first key.
    fn share_files(&mut self, _files: SharedFiles, _index: pg_sys::Oid) {}

    /// Collects the keys of pages that were appended from block `first` on.
    fn add_pages(&mut self, pages: &[u8], first: u32) -> Result<()>;

    /// Collects the key of a row that is in the table.
    fn add_tuple(&mut self, tuple: &[u8], tid: pg_sys::ItemPointerData) -> Result<()>;

    /// Bytes that the keys take in this process.
    fn held(&self) -> usize;

    /// Ends without using the keys.
    fn close(&mut self);

    /// Sorts the keys of all rows so far, while the workers sort theirs.
    fn sort(&mut self) -> Result<()>;

    /// Leaves the keys to the leader, after the last row.
    fn hand_over(&mut self) -> Result<()>;
}

/// The collected keys of one process, in a family.
#[derive(Debug)]
pub struct Collected<F: CollectedFamily> {
    reader: F::Reader,
    /// Memory limit in bytes.
    pub memory: usize,
    /// After they are sorted, all keys that are not in a file, as one run.
    pub store: F::Store,
    /// Number of keys that this process has collected, and of those that it has taken over.
    pub total: u64,
    pub given_up: bool,
    pub runs: Runs,
}

impl<F: CollectedFamily> Collected<F> {
    pub fn new(reader: F::Reader, memory: usize, store: F::Store, place: RunFileKind) -> Self {
        Self { reader, memory, store, total: 0, given_up: false, runs: Runs::new(place) }
    }

    pub fn shape(&self) -> &F::Shape {
        F::shape(&self.reader)
    }

    fn give_up(&mut self) {
        self.given_up = true;
        self.runs.forget();
        self.store = F::Store::default();
    }

    /// Makes room for the keys of a page.
    fn make_room(&mut self) -> Result<()> {
        while !self.given_up {
            let packed = self.runs.packed_size();
            match self.store.room_for_page(F::shape(&self.reader), packed).map_err(no_memory)? {
                Room::Made => break,
                // This costs little: packed keys are written fast, and they are read from first to last in any case.
                Room::WithoutPacked => self.runs.spill()?,
                Room::WithoutRun => {
                    self.store.sort(packed).map_err(no_memory)?;
                    self.spill()?;
                }
            }
        }
        Ok(())
    }

    /// Writes the run in the store to the file.
    fn spill(&mut self) -> Result<()> {
        let (count, bytes) = self.store.run_size();
        self.runs.write::<F>(self.store.run(), count, bytes)?;
        self.store.remove_run();
        Ok(())
    }

    /// Takes over the runs of all workers. False if a process could not collect its keys. Guarded.
    pub fn take_over(&mut self, sources: Sources<'_>, index: pg_sys::Oid, others: &mut Vec<Runs>) -> Result<bool> {
        for worker in 1..=sources.workers {
            let Some(files) = sources.files else { return Ok(false) };
            let Some(runs) = Runs::open(&files, &file_name(index, worker))? else { return Ok(false) };
            self.total += runs.list.iter().map(|run| run.count).sum::<u64>();
            others.push(runs);
        }
        Ok(!self.given_up)
    }
}

impl<F: CollectedFamily> Keys for Collected<F> {
    fn share_files(&mut self, files: SharedFiles, index: pg_sys::Oid) {
        self.runs.share(files, file_name(index, 0));
    }

    fn add_pages(&mut self, pages: &[u8], first: u32) -> Result<()> {
        for (page, block) in pages.as_chunks::<PAGE_SIZE>().0.iter().zip(first..) {
            self.make_room()?;
            if self.given_up {
                return Ok(());
            }
            match F::add_page(&self.reader, page, block, &mut self.store) {
                Some(count) => self.total += count as u64,
                None => self.give_up(),
            }
        }
        let packed = self.runs.pack(|to| self.store.pack(PACKED_BLOCK, WORTH_PACKING, to).map_err(no_memory))?;
        for _ in 0..packed / PACKED_BLOCK as u64 {
            point_quiet!("index.packed");
        }
        if self.store.is_crowded_by(self.runs.packed_size()) { self.runs.spill() } else { Ok(()) }
    }

    fn add_tuple(&mut self, tuple: &[u8], tid: pg_sys::ItemPointerData) -> Result<()> {
        self.make_room()?;
        if !self.given_up {
            if F::add_tuple(&self.reader, tuple, Tid::from_u64(number_of(&tid)), &mut self.store) {
                self.total += 1;
            } else {
                self.give_up();
            }
        }
        Ok(())
    }

    fn held(&self) -> usize {
        self.store.memory() + self.runs.packed_size()
    }

    fn close(&mut self) {
        self.runs.close();
    }

    fn sort(&mut self) -> Result<()> {
        loop {
            self.store.sort(self.runs.packed_size()).map_err(no_memory)?;
            if self.store.run_size().0 == self.store.count() {
                return Ok(());
            }
            self.spill()?;
        }
    }

    fn hand_over(&mut self) -> Result<()> {
        if self.given_up {
            self.runs.give_up()?;
        } else if self.store.count() > 0 {
            self.sort()?;
            self.spill()?;
        }
        self.runs.spill()?;
        self.store = F::Store::default();
        self.runs.export();
        Ok(())
    }
}

fn no_memory(_: NoMemory) -> Error {
    out_of_memory()
}
