//! Merges several sorted runs of entries.
//!
//! Runs of a load overlap in long parts: each process had other chunks of the file, and the keys of the existing index
//! are often apart from both. So the current run is followed as long as its entries are before the first entry of all
//! other runs. The end of this part is searched in doubling steps, and the whole part is returned in place. Only if the
//! runs alternate after a few entries are these collected, so that the caller gets many at once.

use std::mem;

use super::entry::{Entry, Word};

/// A sorted run: entries in ascending order, a block at a time.
pub trait Run<W: Word> {
    /// Why reading a block fails.
    type Error;

    /// The current block; empty before the first block and after the last one.
    fn block(&self) -> &[Entry<W>];

    /// Reads the next block. Its entries follow those of the current one. After the last block it is empty.
    ///
    /// # Errors
    /// An error of the run.
    fn advance(&mut self) -> Result<(), Self::Error>;
}

/// A run in memory.
#[derive(Clone, Debug)]
pub struct Slice<'e, W: Word> {
    entries: Option<&'e [Entry<W>]>,
    block: &'e [Entry<W>],
}

impl<'e, W: Word> Slice<'e, W> {
    /// Creates a run of these entries.
    #[must_use]
    pub fn new(entries: &'e [Entry<W>]) -> Self {
        Self { entries: Some(entries), block: &[] }
    }
}

impl<W: Word> Run<W> for Slice<'_, W> {
    type Error = std::convert::Infallible;

    fn block(&self) -> &[Entry<W>] {
        self.block
    }

    fn advance(&mut self) -> Result<(), Self::Error> {
        self.block = self.entries.take().unwrap_or_default();
        Ok(())
    }
}

/// Runs that are being merged.
#[derive(Debug)]
pub struct Merge<W: Word, R> {
    runs: Vec<R>,
    /// The next entry of each run that is not at its end, with its position: a heap, with the first one on top.
    heads: Vec<Head<W>>,
    /// The run whose block is used up. It must be advanced before anything else.
    spent: Option<usize>,
    begun: bool,
    collected: Vec<Entry<W>>,
}

#[derive(Clone, Copy, Debug)]
struct Head<W: Word> {
    entry: Entry<W>,
    run: usize,
    at: usize,
}

/// The most entries to collect.
const COLLECT: usize = 1024;
/// The shortest part that is returned in place, in entries.
const LEAST_SLICE: usize = 64;

impl<W: Word, R: Run<W>> Merge<W, R> {
    /// Creates the merge of these runs.
    #[must_use]
    pub fn new(runs: Vec<R>) -> Self {
        let heads = Vec::with_capacity(runs.len());
        Self { runs, heads, spent: None, begun: false, collected: Vec::with_capacity(COLLECT + LEAST_SLICE) }
    }

    /// Returns the next entries; none at the end. Must not be called after an error.
    ///
    /// # Errors
    /// An error of a run.
    #[allow(clippy::should_implement_trait, reason = "what is returned is borrowed")]
    pub fn next(&mut self) -> Result<&[Entry<W>], R::Error> {
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
            let rival = match (self.heads.get(1), self.heads.get(2)) {
                (Some(a), Some(b)) => Some(if a.entry.before(b.entry) { a.entry } else { b.entry }),
                (only, _) => only.map(|head| head.entry),
            };
            let Some(block) = self.runs.get(head.run).and_then(|run| run.block().get(head.at..)) else { break };
            let length = match rival {
                None => block.len(),
                Some(rival) => slice_before(block, rival),
            };
            if length >= LEAST_SLICE && !self.collected.is_empty() {
                break;
            }
            if length < LEAST_SLICE && self.heads.len() == 2 {
                if self.collect_two()? {
                    continue;
                }
                break;
            }
            let next = block.get(length).copied();
            if length < LEAST_SLICE {
                // The entries are few, often one.
                for entry in block.get(..length).unwrap_or_default() {
                    self.collected.push(*entry);
                }
            }
            match next {
                Some(entry) => self.replace(Head { entry, at: head.at + length, ..head }),
                None => {
                    self.remove();
                    self.spent = Some(head.run);
                }
            }
            if length >= LEAST_SLICE {
                let block = self.runs.get(head.run).map(Run::block).unwrap_or_default();
                return Ok(block.get(head.at..head.at + length).unwrap_or_default());
            }
            if let Some(run) = self.spent.take() {
                self.advance(run)?;
            }
        }
        Ok(&self.collected)
    }

    /// Collects from the last two runs until enough are collected or a block is used up. The order is unpredictable
    /// here, so the loop has no branch on it. Returns false if there was nothing to collect, which only happens if a
    /// run has changed its block.
    fn collect_two(&mut self) -> Result<bool, R::Error> {
        let &[mut a, mut b] = self.heads.as_slice() else { return Ok(false) };
        let block = |head: &Head<W>| self.runs.get(head.run).and_then(|run| run.block().get(head.at..));
        let (Some(left), Some(right)) = (block(&a), block(&b)) else { return Ok(false) };
        let (mut i, mut j) = (0, 0);
        while self.collected.len() < COLLECT
            && let (Some(&x), Some(&y)) = (left.get(i), right.get(j))
        {
            let is_left = x.is_before(y);
            self.collected.push(if is_left { x } else { y });
            i += usize::from(is_left);
            j += usize::from(!is_left);
        }
        if i + j == 0 {
            return Ok(false);
        }
        let (next_a, next_b) = (left.get(i).copied(), right.get(j).copied());
        (a.at, b.at) = (a.at + i, b.at + j);
        self.heads.clear();
        for (head, next) in [(a, next_a), (b, next_b)] {
            match next {
                Some(entry) => self.heads.push(Head { entry, ..head }),
                // At most one of them.
                None => self.spent = Some(head.run),
            }
        }
        self.sink();
        if let Some(run) = self.spent.take() {
            self.advance(run)?;
        }
        Ok(true)
    }

    /// Returns the runs.
    #[must_use]
    pub fn runs(&self) -> &[R] {
        &self.runs
    }

    /// Reads a run's next block and adds its first entry to the heads.
    fn advance(&mut self, run: usize) -> Result<(), R::Error> {
        let Some(source) = self.runs.get_mut(run) else { return Ok(()) };
        source.advance()?;
        let Some(entry) = source.block().first().copied() else { return Ok(()) };
        self.heads.push(Head { entry, run, at: 0 });
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
    fn replace(&mut self, head: Head<W>) {
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
            (Some(a), Some(b)) => a.entry.before(b.entry),
            _ => false,
        }
    }
}

/// Number of entries at the start of a block that are before the entry `rival`. The first one is known to be.
#[inline]
fn slice_before<W: Word>(block: &[Entry<W>], rival: Entry<W>) -> usize {
    let mut step = 1;
    // The entry at `from` is before the rival; the one at `to` is not.
    let (mut from, mut to) = (0, block.len());
    while let Some(entry) = block.get(from + step) {
        if !entry.before(rival) {
            to = from + step;
            break;
        }
        from += step;
        step *= 2;
    }
    from + 1 + block.get(from + 1..to).unwrap_or_default().partition_point(|entry| entry.before(rival))
}
