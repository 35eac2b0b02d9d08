//! Builds the tree of sorted records, as [`crate::btree::build`] does for integers.
//!
//! The tricky point is that tuples differ in size. A page may be full long before its fillfactor is reached, a posting
//! list holds fewer rows if its key is long, and a tuple may be too long for any page.

use std::cmp::Ordering;
use std::mem;

use super::record::Records;
use super::shape::ByteShape;
use super::tuple::Formed;
use crate::btree::MAX_ITEM;
use crate::btree::build::most_tids;
use crate::btree::entry::Tid;
use crate::btree::levels::Levels;
use crate::btree::sink::{BuildError, Built, Options, PageSink};

/// A tree under construction.
#[derive(Debug)]
pub struct Builder {
    shape: ByteShape,
    deduplicate: bool,
    levels: Levels,
    entries: u64,
    /// Key and row of the last record.
    last: Vec<u8>,
    last_tid: Tid,
    /// The tuple of the last record.
    formed: Formed,
    /// Rows of that key that are not in the tree yet. Only with `deduplicate`.
    pending: Vec<Tid>,
    /// The most rows of a posting list of that key.
    most: usize,
}

impl Builder {
    /// Creates a tree of keys of this shape.
    #[must_use]
    pub fn new(shape: &ByteShape, options: Options) -> Self {
        Self {
            shape: shape.clone(),
            deduplicate: options.deduplicate,
            levels: Levels::new(options),
            entries: 0,
            last: Vec::new(),
            last_tid: Tid::default(),
            formed: Formed::default(),
            pending: Vec::new(),
            most: 0,
        }
    }

    /// Adds records, which must be in order and behind all earlier ones.
    ///
    /// # Errors
    /// An error of the sink; the records are out of order, or the server's collation orders them differently; or one is
    /// too long.
    pub fn push<S: PageSink>(&mut self, records: &[u8], sink: &mut S) -> Result<(), BuildError<S::Error>> {
        if records.is_empty() {
            return Ok(());
        }
        self.levels.begin()?;
        let last = mem::take(&mut self.last);
        let (mut key, mut tid) = (last.as_slice(), self.last_tid);
        let mut left = Records(records);
        for record in left.by_ref() {
            let order = if self.entries == 0 { Ordering::Less } else { key.cmp(record.key) };
            if order.then(tid.cmp(&record.tid)) != Ordering::Less && self.entries > 0 {
                return Err(BuildError::Order);
            }
            if order == Ordering::Less && self.entries > 0 && !self.shape.confirms(key, record.key) {
                return Err(BuildError::Collation);
            }
            (key, tid) = (record.key, record.tid);
            self.entries += 1;
            if order == Ordering::Equal && self.deduplicate && self.pending.len() < self.most {
                self.pending.push(tid);
                continue;
            }
            self.flush_pending(sink)?;
            if !self.shape.form(key, tid, &mut self.formed) {
                return Err(BuildError::Order);
            }
            let size = self.formed.bytes().len();
            if self.deduplicate {
                self.pending.push(tid);
                self.most = most_tids(size);
            } else {
                self.add_item(tid, 0, sink)?;
            }
        }
        if !left.rest().is_empty() {
            return Err(BuildError::Order);
        }
        let key = key.to_vec();
        (self.last, self.last_tid) = (key, tid);
        Ok(())
    }

    /// Completes the open pages and adds the metapage.
    ///
    /// # Errors
    /// An error of the sink, or the last record is too long.
    pub fn finish<S: PageSink>(mut self, sink: &mut S) -> Result<Built, BuildError<S::Error>> {
        self.flush_pending(sink)?;
        self.levels.finish(self.entries, sink)
    }

    /// _bt_sort_dedup_finish_pending
    #[inline(always)]
    fn flush_pending<S: PageSink>(&mut self, sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let extra = match *self.pending.as_slice() {
            [] => return Ok(()),
            [_] => 0,
            ref tids => self.formed.posting(tids).1,
        };
        let first = self.pending.first().copied().unwrap_or_default();
        self.pending.clear();
        self.add_item(first, extra, sink)
    }

    /// Adds the formed tuple.
    #[inline(always)]
    fn add_item<S: PageSink>(&mut self, tid: Tid, extra: usize, sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let tuple = self.formed.bytes();
        if tuple.len() > MAX_ITEM {
            return Err(BuildError::TooLong { size: tuple.len(), tid });
        }
        let shape = &self.shape;
        self.levels.add_item(tuple, extra, |left, right| shape.high_key(left, right), sink)
    }
}
