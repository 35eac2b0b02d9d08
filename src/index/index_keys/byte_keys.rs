//! One process's keys of an index, for keys that are strings of bytes.
//!
//! Like integer keys, they are collected in memory and written as sorted runs. Their store accounts for all memory and
//! reports when it is full.

use pg_bulk_storage::btree::bytes::read::ByteKeyReader;
use pg_bulk_storage::btree::bytes::shape::ByteShape;
use pg_bulk_storage::btree::bytes::store::{NoMemory, Store};
use pg_bulk_storage::btree::entry::Tid;
use pg_bulk_storage::page::PAGE_SIZE;
use pgrx::pg_sys;

use super::runs::{GIVEN_UP, RunFileKind, Runs};
use super::sources::file_name;
use crate::error::{Error, Result, out_of_memory};
use crate::server::shared_files::SharedFiles;

/// Bytes of a run that are read at once.
const LEAST_BLOCK: usize = 8 * 1024;
const MOST_BLOCK: usize = 128 * 1024;

/// The collected keys of one process.
#[derive(Debug)]
pub struct ByteKeys {
    reader: ByteKeyReader,
    memory: usize,
    /// After [`ByteKeys::sort`], all keys that are not in a file, as one run.
    pub store: Store,
    /// Number of keys that this process has collected.
    pub total: u64,
    pub given_up: bool,
    pub runs: Runs,
}

impl ByteKeys {
    pub fn new(reader: ByteKeyReader, memory: usize, place: RunFileKind) -> ByteKeys {
        ByteKeys { reader, memory, store: Store::new(memory), total: 0, given_up: false, runs: Runs::new(place) }
    }

    pub fn shape(&self) -> &ByteShape {
        self.reader.shape()
    }

    /// Bytes of each run to read at once, with this number of runs.
    pub fn block(&self, runs: usize) -> usize {
        (self.memory / runs.max(1)).clamp(LEAST_BLOCK, MOST_BLOCK)
    }

    pub fn add_pages(&mut self, pages: &[u8], first: u32) -> Result<()> {
        for (page, block) in pages.as_chunks::<PAGE_SIZE>().0.iter().zip(first..) {
            self.make_room()?;
            if self.given_up {
                return Ok(());
            }
            match self.reader.read_page(page, block, &mut self.store) {
                Some(count) => self.total += count as u64,
                None => self.give_up(),
            }
        }
        Ok(())
    }

    pub fn add_tuple(&mut self, tuple: &[u8], tid: Tid) -> Result<()> {
        self.make_room()?;
        if !self.given_up {
            if self.reader.read_tuple(tuple, tid, &mut self.store) {
                self.total += 1;
            } else {
                self.give_up();
            }
        }
        Ok(())
    }

    fn give_up(&mut self) {
        self.given_up = true;
        self.store = Store::new(0);
    }

    /// Makes room for the keys of a page.
    fn make_room(&mut self) -> Result<()> {
        let room = self.shape().page_room();
        while !self.given_up && !self.store.make_room(room).map_err(no_memory)? {
            self.store.sort().map_err(no_memory)?;
            self.spill()?;
        }
        Ok(())
    }

    /// Writes the run in the store to the file.
    fn spill(&mut self) -> Result<()> {
        let (count, bytes) = self.store.run_size();
        self.runs.write_records(self.store.run(), count, bytes)?;
        self.store.remove_run();
        Ok(())
    }

    /// Sorts the keys in memory. Guarded.
    pub fn sort(&mut self) -> Result<()> {
        loop {
            self.store.sort().map_err(no_memory)?;
            if self.store.run_size().0 == self.store.count() {
                return Ok(());
            }
            self.spill()?;
        }
    }

    pub fn hand_over(&mut self) -> Result<()> {
        if self.given_up {
            self.runs.write(&[], GIVEN_UP)?;
        } else if !self.store.is_empty() {
            self.sort()?;
            self.spill()?;
        }
        self.store = Store::new(0);
        self.runs.export();
        Ok(())
    }

    /// Takes over the runs of a worker. None if it could not collect its keys. Guarded.
    pub fn take_over(&mut self, files: &SharedFiles, worker: usize, index: pg_sys::Oid) -> Result<Option<Runs>> {
        let runs = Runs::open(files, &file_name(index, worker), 1)?;
        if let Some(runs) = &runs {
            self.total += runs.records()?;
        }
        Ok(runs)
    }
}

fn no_memory(_: NoMemory) -> Error {
    out_of_memory()
}
