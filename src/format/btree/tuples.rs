//! Builds the tree of index tuples that the caller has formed and sorted, because only the caller can compare them.
//!
//! The tricky point is the two decisions that the caller must make. One is whether a tuple has the same bytes as the
//! one before, once its values are detoasted (_bt_keep_natts_fast). The other is which columns distinguish two
//! neighbors (_bt_truncate).

use super::build::most_tids;
use super::entry::Tid;
use super::levels::{Levels, put};
use super::sink::{BuildError, Built, Options, PageSink};
use super::{BT_IS_POSTING, INDEX_ALT_TID, INDEX_SIZE_MASK, ITEM_POINTER, MAX_ITEM, TUPLE_HEADER, u16_at};
use crate::tuple::max_align;

/// A tree under construction.
#[derive(Debug)]
pub struct TupleBuilder {
    deduplicate: bool,
    levels: Levels,
    entries: u64,
    /// The last tuple, which is not in the tree yet. Only with `deduplicate`, as the fields below.
    base: Vec<u8>,
    /// Its rows.
    pending: Vec<Tid>,
    /// The most rows that it may have.
    most: usize,
}

impl TupleBuilder {
    /// Creates an empty tree.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            deduplicate: options.deduplicate,
            levels: Levels::new(options),
            entries: 0,
            base: Vec::new(),
            pending: Vec::new(),
            most: 0,
        }
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
        high_key: impl FnOnce(&[u8], &[u8]) -> Vec<u8>,
        sink: &mut S,
    ) -> Result<(), BuildError<S::Error>> {
        let tid = tuple.first_chunk().map_or_else(Tid::default, |tid| Tid::from_bytes(*tid));
        if tuple.len() > MAX_ITEM || tuple.len() < TUPLE_HEADER {
            return Err(BuildError::TooLong { size: tuple.len(), tid });
        }
        self.levels.begin()?;
        self.entries += 1;
        if !self.deduplicate {
            return self.levels.add_item(tuple, 0, high_key, sink);
        }
        if same && !self.pending.is_empty() && self.pending.len() < self.most {
            self.pending.push(tid);
            return Ok(());
        }
        self.flush_pending(high_key, sink)?;
        self.base.clear();
        self.base.extend_from_slice(tuple);
        self.pending.push(tid);
        self.most = most_tids(tuple.len());
        Ok(())
    }

    /// Completes the open pages and adds the metapage.
    ///
    /// # Errors
    /// An error of the sink.
    pub fn finish<S: PageSink>(
        mut self,
        high_key: impl FnOnce(&[u8], &[u8]) -> Vec<u8>,
        sink: &mut S,
    ) -> Result<Built, BuildError<S::Error>> {
        self.flush_pending(high_key, sink)?;
        self.levels.finish(self.entries, sink)
    }

    /// _bt_sort_dedup_finish_pending
    fn flush_pending<S: PageSink>(
        &mut self,
        high_key: impl FnOnce(&[u8], &[u8]) -> Vec<u8>,
        sink: &mut S,
    ) -> Result<(), BuildError<S::Error>> {
        let mut extra = 0;
        match *self.pending.as_slice() {
            [] => return Ok(()),
            [_] => (),
            ref tids => {
                // _bt_form_posting
                let start = self.base.len();
                let size = max_align(start + tids.len() * ITEM_POINTER);
                let info = u16_at(&self.base, 6) & !INDEX_SIZE_MASK | size as u16 | INDEX_ALT_TID;
                self.base.extend(tids.iter().flat_map(|tid| tid.to_bytes()));
                self.base.resize(size, 0);
                put(&mut self.base, 0, &Tid::new(start as u32, tids.len() as u16 | BT_IS_POSTING).to_bytes());
                put(&mut self.base, ITEM_POINTER, &info.to_ne_bytes());
                extra = size - start;
            }
        }
        self.pending.clear();
        self.levels.add_item(&self.base, extra, high_key, sink)
    }
}
