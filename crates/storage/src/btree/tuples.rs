//! Builds the tree of sorted index tuples. It does not look into their keys.
//!
//! The tricky point is the two decisions that the caller must make. One is whether a tuple has the same bytes as the
//! one before, once its values are detoasted (_bt_keep_natts_fast). The other is which columns distinguish two
//! neighbors (_bt_truncate).

use super::entry::Tid;
use super::form::TupleBuffer;
use super::levels::{Levels, TreePart};
use super::sink::{BuildError, Built, Options, PageSink};
use super::{ITEM_POINTER, MAX_ITEM, MAX_POSTING_SIZE, TUPLE_HEADER};

/// The most rows of a posting list whose key takes this many bytes: _bt_dedup_save_htid.
fn most_tids(size: usize) -> usize {
    (MAX_POSTING_SIZE / 8 * 8).saturating_sub(size) / ITEM_POINTER
}

/// A tree under construction.
#[derive(Debug)]
pub struct TupleBuilder {
    pub(super) deduplicate: bool,
    pub(super) levels: Levels,
    pub(super) entries: u64,
    /// The last tuple. With `deduplicate` it is not in the tree yet, and the fields below are used.
    last: TupleBuffer,
    /// Its rows.
    pending: Vec<Tid>,
    /// The most rows that it may have.
    most: usize,
}

impl TupleBuilder {
    /// Creates an empty tree.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self::with_levels(options, Levels::new(options))
    }

    pub(super) fn with_levels(options: Options, levels: Levels) -> Self {
        let (deduplicate, last) = (options.deduplicate, TupleBuffer::default());
        Self { deduplicate, levels, entries: 0, last, pending: Vec::new(), most: 0 }
    }

    /// Adds a tuple of one row, behind all earlier ones. `same`: it has the values of the last one. `high_key` gets two
    /// neighbors and returns the pivot tuple between them, which must not be longer than the right one, except by the
    /// space of a TID.
    ///
    /// # Errors
    /// An error of the sink, or the tuple is too long.
    pub fn push<S: PageSink>(
        &mut self,
        tuple: &[u8],
        same: bool,
        high_key: impl Fn(&[u8], &[u8]) -> Vec<u8>,
        sink: &mut S,
    ) -> Result<(), BuildError<S::Error>> {
        let tid = tuple.first_chunk().map_or_else(Tid::default, |tid| Tid::from_bytes(*tid));
        if tuple.len() > MAX_ITEM || tuple.len() < TUPLE_HEADER {
            return Err(BuildError::TooLong { size: tuple.len(), tid });
        }
        self.levels.begin()?;
        if same && self.add_row(tid) {
            return Ok(());
        }
        let form = |last: &mut TupleBuffer| {
            last.set(tuple);
            true
        };
        self.add(tid, form, high_key, sink)
    }

    /// Adds a row of the last tuple's key. False if a new tuple must be added for it.
    #[inline(always)]
    pub(super) fn add_row(&mut self, tid: Tid) -> bool {
        let has_room = self.is_pending() && self.pending.len() < self.most;
        if has_room {
            self.pending.push(tid);
            self.entries += 1;
        }
        has_room
    }

    /// Whether [`Self::add_row`] may have room.
    #[inline(always)]
    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Adds a tuple of one row, which `form` makes, unless it returns false.
    #[inline(always)]
    pub(super) fn add<S: PageSink>(
        &mut self,
        tid: Tid,
        form: impl FnOnce(&mut TupleBuffer) -> bool,
        high_key: impl Fn(&[u8], &[u8]) -> Vec<u8>,
        sink: &mut S,
    ) -> Result<(), BuildError<S::Error>> {
        self.flush_pending(&high_key, sink)?;
        if !form(&mut self.last) {
            return Err(BuildError::Order);
        }
        let size = self.last.bytes().len();
        if size > MAX_ITEM {
            return Err(BuildError::TooLong { size, tid });
        }
        self.entries += 1;
        if !self.deduplicate {
            return self.levels.add_item(self.last.bytes(), 0, &high_key, sink);
        }
        self.pending.push(tid);
        self.most = most_tids(size);
        Ok(())
    }

    /// Completes the open pages and adds the metapage: _bt_uppershutdown.
    ///
    /// # Errors
    /// An error of the sink.
    pub fn finish<S: PageSink>(
        mut self,
        high_key: impl Fn(&[u8], &[u8]) -> Vec<u8>,
        sink: &mut S,
    ) -> Result<Built, BuildError<S::Error>> {
        self.flush_pending(high_key, sink)?;
        self.levels.finish(self.entries, sink)
    }

    /// Completes a part. `room`: the size of the longest high key.
    pub(super) fn finish_part<S: PageSink>(
        mut self,
        room: usize,
        high_key: impl Fn(&[u8], &[u8]) -> Vec<u8>,
        sink: &mut S,
    ) -> Result<TreePart, BuildError<S::Error>> {
        self.flush_pending(&high_key, sink)?;
        self.levels.finish_part(self.entries, room, high_key, sink)
    }

    /// _bt_sort_dedup_finish_pending
    #[inline(always)]
    pub(super) fn flush_pending<S: PageSink>(
        &mut self,
        high_key: impl FnOnce(&[u8], &[u8]) -> Vec<u8>,
        sink: &mut S,
    ) -> Result<(), BuildError<S::Error>> {
        let extra = match *self.pending.as_slice() {
            [] => return Ok(()),
            [_] => 0,
            ref tids => self.last.add_posting_list(tids),
        };
        self.pending.clear();
        self.levels.add_item(self.last.bytes(), extra, high_key, sink)
    }
}
