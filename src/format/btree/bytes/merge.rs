//! Merges several sorted runs of records.
//!
//! As in [`crate::btree::merge`], the current run is followed until it is behind the first record of all other runs.
//! The followed part is returned in place if it is long; short parts are collected. Records have different sizes, so
//! each one must be read, but mostly only eight bytes of its key.

use std::mem;

use super::record::{Record, first, window};

/// A sorted run: records in ascending order, a block at a time.
pub trait Run {
    /// Why reading a block fails.
    type Error;

    /// The current block of complete records; empty before the first block and after the last one.
    fn block(&self) -> &[u8];

    /// Reads the next block. Its records follow those of the current one. After the last block it is empty.
    ///
    /// # Errors
    /// An error of the run.
    fn advance(&mut self) -> Result<(), Self::Error>;
}

/// A run in memory.
#[derive(Debug)]
pub struct Slice<'r> {
    records: Option<&'r [u8]>,
    block: &'r [u8],
}

impl<'r> Slice<'r> {
    /// Creates a run of these records.
    #[must_use]
    pub fn new(records: &'r [u8]) -> Self {
        Self { records: Some(records), block: &[] }
    }
}

impl Run for Slice<'_> {
    type Error = std::convert::Infallible;

    fn block(&self) -> &[u8] {
        self.block
    }

    fn advance(&mut self) -> Result<(), Self::Error> {
        self.block = self.records.take().unwrap_or_default();
        Ok(())
    }
}

/// Runs that are being merged.
#[derive(Debug)]
pub struct Merge<R> {
    runs: Vec<R>,
    /// The next record of each run that is not at its end: a heap, with the first one on top.
    heads: Vec<Head>,
    /// The run whose block is used up. It must be advanced before anything else.
    spent: Option<usize>,
    begun: bool,
    collected: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    /// The first eight bytes of its key.
    window: u64,
    run: usize,
    /// Offset in the run's block.
    at: usize,
}

/// The most bytes to collect.
const COLLECT: usize = 32 * 1024;
/// The shortest part that is returned in place, in bytes.
const LEAST_SLICE: usize = 2048;

impl<R: Run> Merge<R> {
    /// Creates the merge of these runs.
    #[must_use]
    pub fn new(runs: Vec<R>) -> Self {
        let heads = Vec::with_capacity(runs.len());
        Self { runs, heads, spent: None, begun: false, collected: Vec::new() }
    }

    /// Returns the next records; none at the end. Must not be called after an error.
    ///
    /// # Errors
    /// An error of a run.
    #[allow(clippy::should_implement_trait, reason = "what is returned is borrowed")]
    pub fn next(&mut self) -> Result<&[u8], R::Error> {
        self.collected.clear();
        if !mem::replace(&mut self.begun, true) {
            for run in 0..self.runs.len() {
                self.advance(run)?;
            }
        }
        if let Some(run) = self.spent.take() {
            self.advance(run)?;
        }
        while self.collected.len() < COLLECT {
            let Some(head) = self.heads.first().copied() else { break };
            let rival = if self.is_before(2, 1) { self.heads.get(2) } else { self.heads.get(1) };
            let block = rest(&self.runs, head);
            let length = match rival {
                None => block.len(),
                Some(rival) => slice_before(block, rival.window, self.record(*rival)),
            };
            if length >= LEAST_SLICE && !self.collected.is_empty() {
                break;
            }
            let (now, later) = block.split_at_checked(length).unwrap_or((block, &[]));
            let next = first(later).map(|record| window(record.key, 0));
            if length < LEAST_SLICE {
                self.collected.extend_from_slice(now);
            }
            match next {
                Some(window) => self.replace(Head { window, at: head.at + length, ..head }),
                None => {
                    self.remove();
                    self.spent = Some(head.run);
                }
            }
            if length >= LEAST_SLICE {
                return Ok(rest(&self.runs, head).get(..length).unwrap_or_default());
            }
            if let Some(run) = self.spent.take() {
                self.advance(run)?;
            }
        }
        Ok(&self.collected)
    }

    /// Returns the runs.
    #[must_use]
    pub fn runs(&self) -> &[R] {
        &self.runs
    }

    fn record(&self, head: Head) -> Option<Record<'_>> {
        first(rest(&self.runs, head))
    }

    /// Reads a run's next block and adds its first record to the heads.
    fn advance(&mut self, run: usize) -> Result<(), R::Error> {
        let Some(source) = self.runs.get_mut(run) else { return Ok(()) };
        source.advance()?;
        let Some(record) = first(source.block()) else { return Ok(()) };
        self.heads.push(Head { window: window(record.key, 0), run, at: 0 });
        let mut child = self.heads.len() - 1;
        while child > 0 {
            let parent = (child - 1) / 2;
            if !self.is_before(child, parent) {
                break;
            }
            self.heads.swap(child, parent);
            child = parent;
        }
        Ok(())
    }

    /// Replaces the first head.
    fn replace(&mut self, head: Head) {
        if let Some(first) = self.heads.first_mut() {
            *first = head;
        }
        self.sink();
    }

    /// Removes the first head.
    fn remove(&mut self) {
        if !self.heads.is_empty() {
            self.heads.swap_remove(0);
        }
        self.sink();
    }

    fn sink(&mut self) {
        let mut parent = 0;
        loop {
            let (left, right) = (2 * parent + 1, 2 * parent + 2);
            let child = if self.is_before(right, left) { right } else { left };
            if !self.is_before(child, parent) {
                return;
            }
            self.heads.swap(child, parent);
            parent = child;
        }
    }

    fn is_before(&self, a: usize, b: usize) -> bool {
        match (self.heads.get(a), self.heads.get(b)) {
            (Some(a), Some(b)) if a.window != b.window => a.window < b.window,
            (Some(a), Some(b)) => self.record(*a) < self.record(*b),
            _ => false,
        }
    }
}

/// The unread bytes of a head's block.
fn rest<R: Run>(runs: &[R], head: Head) -> &[u8] {
    runs.get(head.run).and_then(|run| run.block().get(head.at..)).unwrap_or_default()
}

/// Length of the records at the start of a block that are before the record `rival`. The first one is known to be.
#[inline]
fn slice_before(block: &[u8], rival_window: u64, rival: Option<Record<'_>>) -> usize {
    let mut at = 0;
    while let Some(record) = block.get(at..).and_then(first) {
        let window = window(record.key, 0);
        if at > 0 && (window > rival_window || window == rival_window && Some(record) > rival) {
            break;
        }
        at += record.size();
    }
    at
}
