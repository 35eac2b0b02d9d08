//! Equal keys of a unique index.
//!
//! Entries pass on their way from the merge to the build. The last one is kept back until it is known whether the next
//! one has the same key: if so, somebody else judges which of them remain. That may be more than one: an index has entries
//! of dead rows, and who is dead only the table can tell.

use super::entry::{Entry, Tid, Word};
use super::key::KeyShape;

/// Finds equal keys among sorted entries that come a block at a time.
#[derive(Debug)]
pub struct Unique<W: Word> {
    shape: KeyShape,
    /// NULLs are equal to each other.
    nulls_equal: bool,
    /// The latest key, unless its entry has been handed on.
    key: Option<W>,
    /// Its rows that remain.
    tids: Vec<Tid>,
}

impl<W: Word> Unique<W> {
    /// For an index of this shape. With `nulls_equal`, NULLS NOT DISTINCT, nulls are equal to each other; otherwise a key
    /// with a null in it equals none.
    #[must_use]
    pub fn new(shape: &KeyShape, nulls_equal: bool) -> Self {
        Self { shape: shape.clone(), nulls_equal, key: None, tids: Vec::new() }
    }

    /// Takes a block of entries and hands on, in their order, those that remain.
    ///
    /// `judge` is given a key, the rows that have remained so far of those that have it, ascending, and the next row that
    /// has it. It removes rows or adds that one. It is not called for a key's first row.
    ///
    /// # Errors
    /// Those of `judge` and of `pass`.
    #[inline]
    pub fn push<E>(
        &mut self,
        entries: &[Entry<W>],
        mut judge: impl FnMut(W, &mut Vec<Tid>, Tid) -> Result<(), E>,
        mut pass: impl FnMut(&[Entry<W>]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = entries;
        while let Some((first, others)) = rest.split_first() {
            if self.key == Some(first.key()) && self.matters(first.key()) {
                judge(first.key(), &mut self.tids, first.tid())?;
                rest = others;
                continue;
            }
            self.finish(&mut pass)?;
            // All that are followed by another key go on at once.
            let distinct = rest.windows(2).take_while(|pair| match pair {
                [a, b] => a.key() != b.key() || !self.matters(a.key()),
                _ => false,
            });
            let (distinct, tail) = rest.split_at_checked(distinct.count()).unwrap_or((rest, &[]));
            pass(distinct)?;
            let Some((last, others)) = tail.split_first() else { return Ok(()) };
            self.key = Some(last.key());
            self.tids.push(last.tid());
            rest = others;
        }
        Ok(())
    }

    /// Hands on what has been kept back.
    ///
    /// # Errors
    /// Those of `pass`.
    pub fn finish<E>(&mut self, mut pass: impl FnMut(&[Entry<W>]) -> Result<(), E>) -> Result<(), E> {
        if let Some(key) = self.key.take() {
            for tid in self.tids.drain(..) {
                pass(&[Entry::new(key, tid)])?;
            }
        }
        Ok(())
    }

    fn matters(&self, key: W) -> bool {
        self.nulls_equal || !self.shape.has_null(key)
    }
}
