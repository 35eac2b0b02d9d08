//! Builds a tree from the leaves up: sorted entries in, pages out.
//!
//! ```text
//!                      ┌──────────────┐
//!   level 1            │ 3: -∞ k2 k4  │        entries of children: the first has no key, and
//!                      └──────────────┘        the next ones have the high key of the page to their left
//!   level 0   ┌─────────────┐ ┌────────────┐ ┌───────
//!             │ 1: k2│k0 k1 │ │ 2: k4│k2 k3│ │ 4: ...       high key │ items
//!             └─────────────┘ └────────────┘ └───────
//! ```
//!
//! One page of each level is open. When an item does not fit, or the fillfactor is reached, the page is completed as in
//! _bt_buildadd (nbtsort.c): its last item moves to the next page, a high key is made of that item, and the page is
//! added to the level above. Blocks are numbered when pages are begun and passed to the sink when pages are complete.
//! So a page of an upper level comes long after pages with higher numbers, and [`PageSink::page`] must accept any
//! order. The metapage comes last.
//!
//! The tricky point is the leaf's high key. It has as many columns of the last item as are needed to differ from the
//! item before it; if all are equal, the TID is added: _bt_truncate (nbtutils.c). The t_tid of a high key has the block
//! number of that item, which is not used.
//!
//! Equal keys become posting lists as in _bt_load: up to a tenth of a page, with any fillfactor.

use super::entry::{Entry, Tid, Word};
use super::key::KeyShape;
pub use super::levels::TreePart;
use super::levels::{HEAP_TID, Levels, max_tid, put};
pub use super::sink::{BlockSource, BuildError, Built, Options, Page, PageSink};
use super::tuple::{Formed, SHORT};
use super::{
    BT_IS_POSTING, BT_PIVOT_HEAP_TID, INDEX_ALT_TID, INDEX_SIZE_MASK, ITEM_POINTER, MAX_POSTING_SIZE, NO_BLOCK,
    TUPLE_HEADER, TUPLE_HEADER_WITH_NULLS,
};
use crate::tuple::max_align;

/// A tree under construction.
#[derive(Debug)]
pub struct Builder<W: Word> {
    shape: KeyShape,
    options: Options,
    levels: Levels,
    entries: u64,
    /// The last entry that was added.
    last: Entry<W>,
    /// Rows of that key that are not in the tree yet; at least one after the first entry. Only with `deduplicate`.
    pending: Vec<Tid>,
    /// The most rows of a posting list whose key has no nulls.
    most: usize,
    /// Size of a tuple without nulls, in bytes.
    size: usize,
    /// The data of a tuple without nulls are made in one step.
    short: bool,
}

impl<W: Word> Builder<W> {
    /// Creates a tree of keys of this shape.
    #[must_use]
    pub fn new(shape: &KeyShape, options: Options) -> Self {
        Self::with_levels(shape, options, Levels::new(options))
    }

    /// Creates a part of such a tree: leaves between those of other parts, on blocks of this source. Ends with
    /// [`Self::finish_part`].
    #[must_use]
    pub fn part(shape: &KeyShape, options: Options, blocks: Box<dyn BlockSource>) -> Self {
        Self::with_levels(shape, options, Levels::part(options, blocks))
    }

    fn with_levels(shape: &KeyShape, options: Options, levels: Levels) -> Self {
        let size = shape.tuple_size();
        Self {
            shape: shape.clone(),
            options,
            levels,
            entries: 0,
            last: Entry::default(),
            pending: Vec::new(),
            most: most_tids(size),
            size,
            short: shape.is_short(),
        }
    }

    /// Adds entries, which must be in order and behind all earlier ones.
    ///
    /// # Errors
    /// An error of the sink, or the entries are out of order.
    pub fn push<S: PageSink>(&mut self, entries: &[Entry<W>], sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(()) };
        if self.entries > 0 && !self.last.before(*first) || !super::sort::is_ascending(entries) {
            return Err(BuildError::Order);
        }
        self.levels.begin()?;
        if self.options.deduplicate {
            self.deduplicate(entries, sink)?;
        } else {
            self.add_entries(entries, sink)?;
        }
        self.entries += entries.len() as u64;
        self.last = *last;
        Ok(())
    }

    /// Completes the open pages and adds the metapage: _bt_uppershutdown.
    ///
    /// # Errors
    /// An error of the sink.
    pub fn finish<S: PageSink>(mut self, sink: &mut S) -> Result<Built, BuildError<S::Error>> {
        self.flush_pending(self.last.key(), sink)?;
        self.levels.finish(self.entries, sink)
    }

    /// Completes a part. Its first and last leaf are linked with others later, by [`join`].
    ///
    /// # Errors
    /// An error of the sink.
    pub fn finish_part<S: PageSink>(mut self, sink: &mut S) -> Result<TreePart, BuildError<S::Error>> {
        self.flush_pending(self.last.key(), sink)?;
        let shape = &self.shape;
        let room = border_size(shape);
        self.levels.finish_part(self.entries, room, |left, right| high_key::<W>(shape, left, right), sink)
    }

    /// The loop of _bt_load that deduplicates. Adds all entries with a distinct key at once; the last key waits for
    /// more rows.
    fn deduplicate<S: PageSink>(&mut self, entries: &[Entry<W>], sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let (mut key, mut rest) = (self.last.key(), entries);
        while let Some(first) = rest.first() {
            if key == first.key() && !self.pending.is_empty() {
                let most = self.most_of(key);
                let same = rest.iter().take_while(|entry| entry.key() == key).count();
                let (same, others) = rest.split_at_checked(same).unwrap_or((rest, &[]));
                for entry in same {
                    if self.pending.len() >= most {
                        self.flush_pending(key, sink)?;
                    }
                    self.pending.push(entry.tid());
                }
                rest = others;
                continue;
            }
            self.flush_pending(key, sink)?;
            let alone = rest.windows(2).take_while(|pair| matches!(pair, [a, b] if a.key() != b.key())).count();
            let (alone, others) = rest.split_at_checked(alone).unwrap_or((rest, &[]));
            self.add_entries(alone, sink)?;
            if let Some((last, others)) = others.split_first() {
                key = last.key();
                self.pending.push(last.tid());
                rest = others;
            }
        }
        Ok(())
    }

    /// The most rows of a posting list of this key: _bt_dedup_save_htid.
    fn most_of(&self, key: W) -> usize {
        if self.shape.nullable() && self.shape.has_null(key) {
            most_tids(self.shape.form(key, self.shape.len()).bytes().len())
        } else {
            self.most
        }
    }

    /// _bt_sort_dedup_finish_pending
    fn flush_pending<S: PageSink>(&mut self, key: W, sink: &mut S) -> Result<(), BuildError<S::Error>> {
        match *self.pending.as_slice() {
            [] => return Ok(()),
            [tid] => self.add_entries(&[Entry::new(key, tid)], sink)?,
            ref tids => {
                // _bt_form_posting
                let mut base = self.shape.form(key, self.shape.len());
                let start = base.bytes().len();
                let size = max_align(start + tids.len() * ITEM_POINTER);
                let info = base.info() & !INDEX_SIZE_MASK | size as u16 | INDEX_ALT_TID;
                base.set_header(Tid::new(start as u32, tids.len() as u16 | BT_IS_POSTING), info);
                let mut tuple = [0; max_align(MAX_POSTING_SIZE)];
                put(&mut tuple, 0, base.bytes());
                if let Some(list) = tuple.get_mut(start..) {
                    for (to, tid) in list.as_chunks_mut().0.iter_mut().zip(tids) {
                        *to = tid.to_bytes();
                    }
                }
                self.add_item(tuple.get(..size).unwrap_or_default(), size - start, sink)?;
            }
        }
        self.pending.clear();
        Ok(())
    }

    /// Adds the tuples of entries to the leaf level.
    fn add_entries<S: PageSink>(&mut self, entries: &[Entry<W>], sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let (size, nullable) = (self.size, self.shape.nullable());
        let mut rest = entries;
        while let Some(first) = rest.first() {
            if !self.short || nullable && self.shape.has_null(first.key()) {
                self.add_formed(*first, sink)?;
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let room = self.levels.leaf().map_or(0, |leaf| leaf.room(size));
            if room == 0 {
                let shape = &self.shape;
                self.levels.next_leaf(|left, right| high_key::<W>(shape, left, right), sink)?;
                continue;
            }
            let (mut now, _) = rest.split_at_checked(room).unwrap_or((rest, &[]));
            if nullable {
                let plain = now.iter().take_while(|entry| !self.shape.has_null(entry.key())).count();
                now = now.get(..plain).unwrap_or_default();
            }
            rest = rest.get(now.len()..).unwrap_or_default();
            let Some(leaf) = self.levels.leaf() else { return Ok(()) };
            let shape = &self.shape;
            if let Some(column) = shape.only_integer(8) {
                leaf.fill(now, |key| column.restore(key).to_u64().to_le_bytes());
            } else if let Some(column) = shape.only_integer(4) {
                leaf.fill(now, |key| column.restore(key).to_u64().to_le_bytes());
            } else if size == TUPLE_HEADER + SHORT {
                leaf.fill(now, |key| shape.short_data(key));
            } else {
                leaf.fill(now, |key| {
                    let [a, b, c, d, e, f, g, h, ..] = shape.short_data(key);
                    [a, b, c, d, e, f, g, h]
                });
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn add_formed<S: PageSink>(&mut self, entry: Entry<W>, sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let mut formed = self.shape.form(entry.key(), self.shape.len());
        formed.set_header(entry.tid(), formed.info());
        self.add_item(formed.bytes(), 0, sink)
    }

    /// Adds a tuple to the leaf level.
    fn add_item<S: PageSink>(&mut self, tuple: &[u8], extra: usize, sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let shape = &self.shape;
        self.levels.add_item(tuple, extra, |left, right| high_key::<W>(shape, left, right), sink)
    }
}

/// Makes one tree of parts: links their leaves and adds the levels above, on blocks of this source. All keys of a part
/// must be greater than those of the part before it. Parts without entries are ignored.
///
/// # Errors
/// An error of the sink, or the parts were not made by [`Builder::finish_part`] with keys of this shape.
pub fn join<W: Word, S: PageSink>(
    shape: &KeyShape,
    options: Options,
    parts: Vec<TreePart>,
    blocks: Box<dyn BlockSource>,
    sink: &mut S,
) -> Result<Built, BuildError<S::Error>> {
    Levels::join(options, blocks, parts, |left, right| high_key::<W>(shape, left, right), sink)
}

/// Upper bound of the size of a high key of this shape, in bytes: all columns, with nulls and a TID.
#[must_use]
pub fn border_size(shape: &KeyShape) -> usize {
    shape.tuple_size() + TUPLE_HEADER_WITH_NULLS - TUPLE_HEADER + HEAP_TID
}

/// The most rows of a posting list whose key takes this many bytes.
pub(super) fn most_tids(size: usize) -> usize {
    (MAX_POSTING_SIZE / 8 * 8).saturating_sub(size) / ITEM_POINTER
}

/// Makes the high key between two items of a leaf level: _bt_truncate. Its t_tid has the block number of the right
/// item.
pub(super) fn high_key<W: Word>(shape: &KeyShape, left: &[u8], right: &[u8]) -> Vec<u8> {
    // The items on the page are made of keys, so reading them succeeds.
    let key = |tuple| shape.read_tuple::<W>(tuple).unwrap_or_default();
    let (left_key, right_key) = (key(left), key(right));
    let common = shape.common(left_key, right_key);
    let block = right.first_chunk().map_or(NO_BLOCK, |tid| Tid::from_bytes(*tid).block());
    let mut formed: Formed = shape.form(right_key, (common + 1).min(shape.len()));
    if common < shape.len() {
        formed.set_header(Tid::new(block, common as u16 + 1), formed.info() | INDEX_ALT_TID);
        return formed.bytes().to_vec();
    }
    let size = formed.bytes().len() + HEAP_TID;
    let info = formed.info() & !INDEX_SIZE_MASK | size as u16 | INDEX_ALT_TID;
    formed.set_header(Tid::new(block, common as u16 | BT_PIVOT_HEAP_TID), info);
    let mut tuple = formed.bytes().to_vec();
    tuple.resize(size, 0);
    put(&mut tuple, size - ITEM_POINTER, &max_tid(left).to_bytes());
    tuple
}
