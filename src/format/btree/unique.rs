//! Finds equal keys of a unique index.
//!
//! Entries pass through this module between the merge and the build. The last one is held back until the next key is
//! known. If both keys are equal, the caller decides which rows are kept. It may keep several: an index has entries of
//! dead rows, and only the table shows which rows are dead.

use super::entry::{Entry, Tid, Word};
use super::key::KeyShape;

/// Finds equal keys among sorted entries that come a block at a time.
#[derive(Debug)]
pub struct Unique<W: Word> {
    shape: KeyShape,
    /// NULLs are equal to each other.
    nulls_equal: bool,
    /// The last key, unless its entry was passed on.
    key: Option<W>,
    /// Its rows that are kept so far.
    tids: Vec<Tid>,
}

impl<W: Word> Unique<W> {
    /// Creates it for an index of this shape. With `nulls_equal` (NULLS NOT DISTINCT), nulls are equal to each other.
    /// Otherwise a key with a null is not equal to any key.
    #[must_use]
    pub fn new(shape: &KeyShape, nulls_equal: bool) -> Self {
        Self { shape: shape.clone(), nulls_equal, key: None, tids: Vec::new() }
    }

    /// Takes a block of entries and passes on, in order, those that are kept.
    ///
    /// `on_equal` is called for each further row of a key. It gets the key, the rows that are kept so far, ascending,
    /// and the new row. It removes rows or adds the new one.
    ///
    /// # Errors
    /// Those of `on_equal` and of `pass`.
    #[inline]
    pub fn push<E>(
        &mut self,
        entries: &[Entry<W>],
        mut on_equal: impl FnMut(W, &mut Vec<Tid>, Tid) -> Result<(), E>,
        mut pass: impl FnMut(&[Entry<W>]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = entries;
        while let Some((first, others)) = rest.split_first() {
            if self.key == Some(first.key()) && self.matters(first.key()) {
                on_equal(first.key(), &mut self.tids, first.tid())?;
                rest = others;
                continue;
            }
            self.finish(&mut pass)?;
            // Entries that are followed by another key are passed on at once.
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

    /// Passes on the key that was held back.
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
