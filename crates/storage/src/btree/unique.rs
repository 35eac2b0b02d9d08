//! Finds equal keys of a unique index.
//!
//! Items pass through this module between the merge and the build. The last one is held back until the next key is
//! known. If both keys are equal, the caller decides which rows are kept. It may keep several: an index has entries of
//! dead rows, and only the table shows which rows are dead.

use super::entry::Tid;
use super::family::KeyFamily;

/// Finds equal keys among sorted items that come a block at a time.
#[derive(Debug)]
pub struct Unique<F: KeyFamily> {
    shape: F::Shape,
    /// NULLs are equal to each other.
    nulls_equal: bool,
    /// The key that is held back, if `holds`, and its rows that are kept so far.
    key: F::Held,
    tids: Vec<Tid>,
    holds: bool,
    out: Vec<F>,
}

impl<F: KeyFamily> Unique<F> {
    /// Creates it for an index of this shape. With `nulls_equal` (NULLS NOT DISTINCT), nulls are equal to each other.
    /// Otherwise a key with a null is not equal to any key.
    #[must_use]
    pub fn new(shape: &F::Shape, nulls_equal: bool) -> Self {
        let (key, shape) = (F::Held::default(), shape.clone());
        Self { shape, nulls_equal, key, tids: Vec::new(), holds: false, out: Vec::new() }
    }

    /// Takes a block of items and passes on, in order, those that are kept.
    ///
    /// `on_equal` is called for each further row of a key. It gets the key, the rows that are kept so far, ascending,
    /// and the new row. It removes rows or adds the new one.
    ///
    /// # Errors
    /// Those of `on_equal` and of `pass`.
    #[inline]
    pub fn push<E>(
        &mut self,
        units: &[F],
        mut on_equal: impl FnMut(F::Key<'_>, &mut Vec<Tid>, Tid) -> Result<(), E>,
        mut pass: impl FnMut(&[F]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = units;
        loop {
            // Is the key equal to the one that was held back?
            while self.holds
                && let Some((key, tid, size)) = F::first(rest)
                && key == F::held(&self.key)
                && self.matters(key)
            {
                on_equal(key, &mut self.tids, tid)?;
                rest = rest.get(size..).unwrap_or_default();
            }
            let Some(mut last) = F::first(rest) else { return Ok(()) };
            self.finish(&mut pass)?;
            // Items that are followed by another key are passed on at once.
            let (mut distinct, mut end) = (0, last.2);
            while let Some(item) = rest.get(end..).and_then(F::first) {
                if item.0 == last.0 && self.matters(last.0) {
                    break;
                }
                (distinct, end, last) = (end, end + item.2, item);
            }
            if let Some(distinct) = rest.get(..distinct).filter(|distinct| !distinct.is_empty()) {
                pass(distinct)?;
            }
            F::hold(&mut self.key, last.0);
            self.tids.push(last.1);
            self.holds = true;
            rest = rest.get(end..).unwrap_or_default();
        }
    }

    /// Passes on the key that was held back.
    ///
    /// # Errors
    /// Those of `pass`.
    pub fn finish<E>(&mut self, mut pass: impl FnMut(&[F]) -> Result<(), E>) -> Result<(), E> {
        if std::mem::take(&mut self.holds) {
            self.out.clear();
            for tid in self.tids.drain(..) {
                F::append(&mut self.out, F::held(&self.key), tid);
            }
            if !self.out.is_empty() {
                pass(&self.out)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn matters(&self, key: F::Key<'_>) -> bool {
        self.nulls_equal || !F::has_null(&self.shape, key)
    }
}
