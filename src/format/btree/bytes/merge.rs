//! Several sorted runs of records as one.
//!
//! As with keys that are integers ([`crate::btree::merge`]), the run that is ahead is followed until it is behind the
//! first record of all others. What was passed meanwhile is handed out where it lies, if it is long; short stretches are
//! collected. Records have no places that can be computed, so each of them is looked at: mostly at eight bytes of its key.

use std::mem;

use super::record::{Record, first, window};

/// A run: records in ascending order, a block at a time.
pub trait Run {
    /// Why a block cannot be had.
    type Error;

    /// The current block, of complete records; empty before the first one and after the last one.
    fn block(&self) -> &[u8];

    /// Goes on to the next block, whose records follow those of the current one. At the end the block is empty.
    ///
    /// # Errors
    /// The run's own.
    fn advance(&mut self) -> Result<(), Self::Error>;
}

/// A run in memory.
#[derive(Debug)]
pub struct Slice<'r> {
    records: Option<&'r [u8]>,
    block: &'r [u8],
}

impl<'r> Slice<'r> {
    /// The run of these records.
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
    /// The next record of each run that has one; a heap, the first one on top.
    heads: Vec<Head>,
    /// The run whose block is used up, to be advanced before anything else.
    spent: Option<usize>,
    begun: bool,
    collected: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    /// What its key begins with.
    window: u64,
    run: usize,
    /// Where it is in the run's block.
    at: usize,
}

/// Bytes that are collected at most.
const COLLECT: usize = 32 * 1024;
/// The shortest stretch that is handed out by itself.
const STRETCH: usize = 2048;

impl<R: Run> Merge<R> {
    /// The merge of these runs.
    #[must_use]
    pub fn new(runs: Vec<R>) -> Self {
        let heads = Vec::with_capacity(runs.len());
        Self { runs, heads, spent: None, begun: false, collected: Vec::new() }
    }

    /// The next records; none at the end. Not to be called after an error.
    ///
    /// # Errors
    /// A run's.
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
                Some(rival) => stretch(block, rival.window, self.record(*rival)),
            };
            if length >= STRETCH && !self.collected.is_empty() {
                break;
            }
            let (now, later) = block.split_at_checked(length).unwrap_or((block, &[]));
            let next = first(later).map(|record| window(record.key, 0));
            if length < STRETCH {
                self.collected.extend_from_slice(now);
            }
            match next {
                Some(window) => self.replace(Head { window, at: head.at + length, ..head }),
                None => {
                    self.remove();
                    self.spent = Some(head.run);
                }
            }
            if length >= STRETCH {
                return Ok(rest(&self.runs, head).get(..length).unwrap_or_default());
            }
            if let Some(run) = self.spent.take() {
                self.advance(run)?;
            }
        }
        Ok(&self.collected)
    }

    /// The runs, to be asked for what they know.
    #[must_use]
    pub fn runs(&self) -> &[R] {
        &self.runs
    }

    fn record(&self, head: Head) -> Option<Record<'_>> {
        first(rest(&self.runs, head))
    }

    /// A run's next block, and its place among the heads.
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

    /// Puts another head in place of the first one.
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

/// What is left of a head's block.
fn rest<R: Run>(runs: &[R], head: Head) -> &[u8] {
    runs.get(head.run).and_then(|run| run.block().get(head.at..)).unwrap_or_default()
}

/// Bytes of the records of a block, the first one of which is, that are before another one.
#[inline]
fn stretch(block: &[u8], rival_window: u64, rival: Option<Record<'_>>) -> usize {
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
