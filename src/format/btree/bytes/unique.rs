//! Equal keys of a unique index, as [`crate::btree::unique`] finds them among integers.

use super::record::{Record, Records, append};
use super::shape::ByteShape;
use crate::btree::entry::Tid;

/// Finds equal keys among sorted records that come a block at a time.
#[derive(Debug)]
pub struct Unique {
    shape: ByteShape,
    /// NULLs are equal to each other.
    nulls_equal: bool,
    /// The latest key, and its rows that remain; none if it has been handed on.
    key: Vec<u8>,
    tids: Vec<Tid>,
    /// There is a key that was kept back.
    kept: bool,
    out: Vec<u8>,
}

impl Unique {
    /// For an index of this shape. With `nulls_equal`, NULLS NOT DISTINCT, nulls are equal to each other; otherwise a key
    /// with a null in it equals none.
    #[must_use]
    pub fn new(shape: &ByteShape, nulls_equal: bool) -> Self {
        Self { shape: shape.clone(), nulls_equal, key: Vec::new(), tids: Vec::new(), kept: false, out: Vec::new() }
    }

    /// Takes a block of records and hands on, in their order, those that remain.
    ///
    /// `judge` is given a key, the rows that have remained so far of those that have it, ascending, and the next row that
    /// has it. It removes rows or adds that one. It is not called for a key's first row.
    ///
    /// # Errors
    /// Those of `judge` and of `pass`.
    #[inline]
    pub fn push<E>(
        &mut self,
        records: &[u8],
        mut judge: impl FnMut(&[u8], &mut Vec<Tid>, Tid) -> Result<(), E>,
        mut pass: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = records;
        loop {
            // Equal to what was kept back?
            while self.kept
                && let Some(record) = Records(rest).next()
                && record.key == self.key
                && self.matters(record.key)
            {
                judge(&self.key, &mut self.tids, record.tid)?;
                rest = rest.get(record.size()..).unwrap_or_default();
            }
            if rest.is_empty() {
                return Ok(());
            }
            self.finish(&mut pass)?;
            // All that are followed by another key go on at once.
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

    /// Hands on what has been kept back.
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
