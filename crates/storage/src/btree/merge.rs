//! Merges several sorted runs.
//!
//! Runs of a load overlap in long parts: each process had other chunks of the file, and the keys of the existing index
//! are often apart from both. So the current run is followed as long as its items are before the first item of all other
//! runs. The whole part is returned in place if it is long. Short parts are collected, so that the caller gets many
//! items at once.

use std::mem;

use super::family::KeyFamily;

/// A sorted run: items in ascending order, a block at a time.
pub trait Run<F: KeyFamily> {
    /// Why reading a block fails.
    type Error;

    /// The current block of complete items; empty before the first block and after the last one.
    fn block(&self) -> &[F];

    /// Reads the next block. Its items follow those of the current one. After the last block it is empty.
    ///
    /// # Errors
    /// An error of the run.
    fn advance(&mut self) -> Result<(), Self::Error>;
}

/// A run in memory.
#[derive(Clone, Debug)]
pub struct Slice<'e, F> {
    units: Option<&'e [F]>,
    block: &'e [F],
}

impl<'e, F: KeyFamily> Slice<'e, F> {
    /// Creates a run of these items.
    #[must_use]
    pub fn new(units: &'e [F]) -> Self {
        Self { units: Some(units), block: &[] }
    }
}

impl<F: KeyFamily> Run<F> for Slice<'_, F> {
    type Error = std::convert::Infallible;

    fn block(&self) -> &[F] {
        self.block
    }

    fn advance(&mut self) -> Result<(), Self::Error> {
        self.block = self.units.take().unwrap_or_default();
        Ok(())
    }
}

/// Runs that are being merged.
#[derive(Debug)]
pub struct Merge<F: KeyFamily, R> {
    runs: Vec<R>,
    /// The next item of each run that is not at its end, with its position: a heap, with the first one on top.
    heads: Vec<Head<F>>,
    /// The run whose block is used up. It must be advanced before anything else.
    spent: Option<usize>,
    begun: bool,
    collected: Vec<F>,
}

#[derive(Clone, Copy, Debug)]
struct Head<F: KeyFamily> {
    item: F::Head,
    run: usize,
    at: usize,
}

impl<F: KeyFamily, R: Run<F>> Merge<F, R> {
    /// Creates the merge of these runs.
    #[must_use]
    pub fn new(runs: Vec<R>) -> Self {
        let heads = Vec::with_capacity(runs.len());
        Self { runs, heads, spent: None, begun: false, collected: Vec::with_capacity(F::COLLECT + F::LEAST_SLICE) }
    }

    /// Returns the next items; none at the end. Must not be called after an error.
    ///
    /// # Errors
    /// An error of a run.
    #[allow(clippy::should_implement_trait, reason = "what is returned is borrowed")]
    pub fn next(&mut self) -> Result<&[F], R::Error> {
        self.collected.clear();
        if !mem::replace(&mut self.begun, true) {
            for run in 0..self.runs.len() {
                self.advance(run)?;
            }
        }
        if let Some(run) = self.spent.take() {
            self.advance(run)?;
        }
        while self.collected.len() < F::COLLECT {
            let Some(head) = self.heads.first().copied() else { break };
            let rival = if self.is_before(2, 1) { self.heads.get(2) } else { self.heads.get(1) };
            let Some(block) = self.runs.get(head.run).and_then(|run| run.block().get(head.at..)) else { break };
            let length = match rival {
                None => block.len(),
                Some(rival) => F::units_before(block, rival.item, || self.rest(*rival)),
            };
            if length >= F::LEAST_SLICE && !self.collected.is_empty() {
                break;
            }
            if F::ALTERNATES && length < F::LEAST_SLICE && self.heads.len() == 2 {
                if self.collect_two()? {
                    continue;
                }
                break;
            }
            let (now, later) = block.split_at_checked(length).unwrap_or((block, &[]));
            let next = F::head(later);
            if length < F::LEAST_SLICE {
                F::collect(&mut self.collected, now);
            }
            match next {
                Some(item) => self.replace(Head { item, at: head.at + length, ..head }),
                None => {
                    self.remove();
                    self.spent = Some(head.run);
                }
            }
            if length >= F::LEAST_SLICE {
                return Ok(self.rest(head).get(..length).unwrap_or_default());
            }
            if let Some(run) = self.spent.take() {
                self.advance(run)?;
            }
        }
        Ok(&self.collected)
    }

    /// Collects from the last two runs until enough are collected or a block is used up. Returns false if there was
    /// nothing to collect, which only happens if a run has changed its block.
    fn collect_two(&mut self) -> Result<bool, R::Error> {
        let &[mut a, mut b] = self.heads.as_slice() else { return Ok(false) };
        let block = |head: &Head<F>| self.runs.get(head.run).and_then(|run| run.block().get(head.at..));
        let (Some(left), Some(right)) = (block(&a), block(&b)) else { return Ok(false) };
        let (i, j) = F::alternate(left, right, &mut self.collected);
        if i + j == 0 {
            return Ok(false);
        }
        let rest = |block: &[F], from| block.get(from..).and_then(F::head);
        let (next_a, next_b) = (rest(left, i), rest(right, j));
        (a.at, b.at) = (a.at + i, b.at + j);
        self.heads.clear();
        for (head, next) in [(a, next_a), (b, next_b)] {
            match next {
                Some(item) => self.heads.push(Head { item, ..head }),
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

    /// The units of a head's block from its item on.
    #[inline(always)]
    fn rest(&self, head: Head<F>) -> &[F] {
        self.runs.get(head.run).and_then(|run| run.block().get(head.at..)).unwrap_or_default()
    }

    /// Reads a run's next block and adds its first item to the heads.
    fn advance(&mut self, run: usize) -> Result<(), R::Error> {
        let Some(source) = self.runs.get_mut(run) else { return Ok(()) };
        source.advance()?;
        let Some(item) = F::head(source.block()) else { return Ok(()) };
        self.heads.push(Head { item, run, at: 0 });
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
    fn replace(&mut self, head: Head<F>) {
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

    #[inline(always)]
    fn is_before(&self, a: usize, b: usize) -> bool {
        match (self.heads.get(a), self.heads.get(b)) {
            (Some(a), Some(b)) => F::is_before(a.item, b.item, || (self.rest(*a), self.rest(*b))),
            _ => false,
        }
    }
}
