//! Finds equal keys of a unique index among records, as [`crate::btree::unique`] does among integers.

use super::record::{Record, Records, append};
use super::shape::ByteShape;
use crate::btree::entry::Tid;

/// Finds equal keys among sorted records that come a block at a time.
#[derive(Debug)]
pub struct Unique {
    shape: ByteShape,
    /// NULLs are equal to each other.
    nulls_equal: bool,
    /// The last key, and its rows that are kept so far; none if they were passed on.
    key: Vec<u8>,
    tids: Vec<Tid>,
    /// There is a key that was held back.
    kept: bool,
    out: Vec<u8>,
}

impl Unique {
    /// Creates it for an index of this shape. With `nulls_equal` (NULLS NOT DISTINCT), nulls are equal to each other.
    /// Otherwise a key with a null is not equal to any key.
    #[must_use]
    pub fn new(shape: &ByteShape, nulls_equal: bool) -> Self {
        Self { shape: shape.clone(), nulls_equal, key: Vec::new(), tids: Vec::new(), kept: false, out: Vec::new() }
    }

    /// Takes a block of records and passes on, in order, those that are kept.
    ///
    /// `on_equal` is called for each further row of a key. It gets the key, the rows that are kept so far, ascending,
    /// and the new row. It removes rows or adds the new one.
    ///
    /// # Errors
    /// Those of `on_equal` and of `pass`.
    #[inline]
    pub fn push<E>(
        &mut self,
        records: &[u8],
        mut on_equal: impl FnMut(&[u8], &mut Vec<Tid>, Tid) -> Result<(), E>,
        mut pass: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = records;
        loop {
            // Is the key equal to the one that was held back?
            while self.kept
                && let Some(record) = Records(rest).next()
                && record.key == self.key
                && self.matters(record.key)
            {
                on_equal(&self.key, &mut self.tids, record.tid)?;
                rest = rest.get(record.size()..).unwrap_or_default();
            }
            if rest.is_empty() {
                return Ok(());
            }
            self.finish(&mut pass)?;
            // Records that are followed by another key are passed on at once.
            let mut all = Records(rest);
            let Some(mut last) = all.next() else { return Ok(()) };
            let mut distinct = 0;
            for record in all {
                if record.key == last.key && self.matters(last.key) {
                    break;
                }
                distinct += last.size();
                last = record;
            }
            let (now, later) = rest.split_at_checked(distinct).unwrap_or((rest, &[]));
            if !now.is_empty() {
                pass(now)?;
            }
            self.key.clear();
            self.key.extend_from_slice(last.key);
            self.tids.push(last.tid);
            self.kept = true;
            rest = later.get(last.size()..).unwrap_or_default();
        }
    }

    /// Passes on the key that was held back.
    ///
    /// # Errors
    /// Those of `pass`.
    pub fn finish<E>(&mut self, mut pass: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if std::mem::take(&mut self.kept) {
            self.out.clear();
            for tid in self.tids.drain(..) {
                append(&mut self.out, Record { key: &self.key, tid });
            }
            if !self.out.is_empty() {
                pass(&self.out)?;
            }
        }
        Ok(())
    }

    fn matters(&self, key: &[u8]) -> bool {
        self.nulls_equal || !self.shape.has_null(key)
    }
}
