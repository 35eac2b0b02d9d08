//! Sorts rows of numbers.
//!
//! Rows that fit into memory are sorted there. Others go to a temporary file as sorted runs, which are merged when the
//! rows are returned. All functions are guarded.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use pgrx::PgSqlErrorCode as Code;

use crate::error::{Error, OrRaise, out_of_memory};
use crate::server::buf_file::{BufFile, Place};
use crate::server::memory_context::MemoryContext;

/// Most and least number of rows of a run that are written or read at once, between two checks for interrupts.
const MOST_BLOCK: usize = 4096;
const LEAST_BLOCK: usize = 64;
/// Least and most memory of a sort, in kB. All runs are merged at once, so few rows in a run would make many runs, each with
/// rows in memory. A longer run would be sorted for seconds without a check for interrupts. Tests need runs of few rows.
const MEMORY: [i32; 2] = [if cfg!(feature = "points") { 0 } else { 1024 }, 256 * 1024];

/// Rows of `N` numbers, which are returned in ascending order.
#[derive(Debug)]
pub struct NumberSort<const N: usize> {
    /// Rows that fit into memory.
    most: usize,
    /// Memory context of the file: the one in which this was created.
    context: MemoryContext,
    /// The rows in memory, and how many of them were returned.
    few: Vec<[u64; N]>,
    taken: usize,
    /// The runs in a file, ...
    file: Option<BufFile>,
    runs: Vec<Run<N>>,
    /// ... and the next row of each with the number of its run.
    next: BinaryHeap<Reverse<([u64; N], usize)>>,
    /// Number of rows that were put.
    pub count: u64,
}

/// A sorted run in the file.
#[derive(Debug)]
struct Run<const N: usize> {
    /// Where its unread rows are, and how many of them there are.
    place: Place,
    left: usize,
    /// Rows that were read, as they are in the file.
    rows: std::vec::IntoIter<[[u8; size_of::<u64>()]; N]>,
}

impl<const N: usize> NumberSort<N> {
    /// Creates a sort with `memory` kB, within limits. The current memory context must outlive it.
    pub fn new(memory: i32) -> NumberSort<N> {
        let [least, most] = MEMORY;
        // While the vector grows, it takes half as much memory again.
        let most = usize::try_from(memory.clamp(least, most)).unwrap_or(0) * 1024 / 2 / size_of::<[u64; N]>();
        let (few, runs, next) = (Vec::new(), Vec::new(), BinaryHeap::new());
        NumberSort { most, context: MemoryContext::current(), few, taken: 0, file: None, runs, next, count: 0 }
    }

    pub fn put(&mut self, row: [u64; N]) {
        self.count += 1;
        let len = self.few.len();
        let has_room = len < self.few.capacity()
            || (len < self.most && self.few.try_reserve_exact(len.clamp(LEAST_BLOCK, 1 << 20)).is_ok());
        if !has_room {
            self.spill();
            self.few.try_reserve(1).map_err(|_| out_of_memory()).or_raise();
        }
        self.few.push(row);
    }

    /// Writes the rows in memory to the file as a run.
    fn spill(&mut self) {
        self.few.sort_unstable();
        let file = self.file.get_or_insert_with(|| BufFile::temporary(self.context));
        self.runs.push(Run { place: file.place(), left: self.few.len(), rows: Vec::new().into_iter() });
        for rows in self.few.chunks(MOST_BLOCK) {
            pgrx::check_for_interrupts!();
            let bytes: Vec<u8> = rows.as_flattened().iter().flat_map(|number| number.to_ne_bytes()).collect();
            file.write(&bytes);
        }
        self.few.clear();
    }

    /// Sorts the rows. Called once, after the last row.
    pub fn sort(&mut self) {
        if self.runs.is_empty() {
            return self.few.sort_unstable();
        }
        self.spill();
        self.few = Vec::new();
        (0..self.runs.len()).for_each(|run| self.advance(run));
    }

    /// Returns the next row.
    pub fn take(&mut self) -> Option<[u64; N]> {
        if let Some(Reverse((row, run))) = self.next.pop() {
            self.advance(run);
            return Some(row);
        }
        let row = *self.few.get(self.taken)?;
        self.taken += 1;
        Some(row)
    }

    /// Adds the next row of a run to those that are compared.
    fn advance(&mut self, number: usize) {
        let block = (self.most / self.runs.len().max(1)).clamp(LEAST_BLOCK, MOST_BLOCK);
        let (Some(run), Some(file)) = (self.runs.get_mut(number), &self.file) else { return };
        if run.rows.as_slice().is_empty() {
            pgrx::check_for_interrupts!();
            let mut rows = Vec::new();
            rows.try_reserve_exact(run.left.min(block)).map_err(|_| out_of_memory()).or_raise();
            rows.resize(run.left.min(block), [[0; size_of::<u64>()]; N]);
            if !(file.go_to(run.place) && file.fill(rows.as_flattened_mut().as_flattened_mut())) {
                let message = "could not read from temporary file: its rows are not as they were written";
                Err::<(), _>(Error::new(Code::ERRCODE_DATA_CORRUPTED, message)).or_raise();
            }
            run.place = file.place();
            run.left -= rows.len();
            run.rows = rows.into_iter();
        }
        self.next.extend(run.rows.next().map(|row| Reverse((row.map(u64::from_ne_bytes), number))));
    }

    /// Frees the resources.
    pub fn end(self) {
        if let Some(file) = self.file {
            file.close();
        }
    }
}
