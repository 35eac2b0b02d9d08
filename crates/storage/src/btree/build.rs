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
use super::family::KeyFamily;
use super::form::TupleBuffer;
use super::key::KeyShape;
pub use super::levels::TreePart;
use super::levels::{HEAP_TID, Levels};
pub use super::sink::{BlockSource, BuildError, Built, Options, Page, PageSink};
use super::tuple::SHORT;
use super::tuples::TupleBuilder;
use super::{TUPLE_HEADER, TUPLE_HEADER_WITH_NULLS};

/// A family of which trees are built.
pub trait BuildFamily: KeyFamily {
    /// Adds items to a tree whose leaf level is begun: see [`Builder::push`].
    ///
    /// # Errors
    /// Those of [`Builder::push`].
    fn add<S: PageSink>(builder: &mut Builder<Self>, units: &[Self], sink: &mut S) -> Result<(), BuildError<S::Error>>;

    /// Makes the high key between two items of a leaf level.
    fn high_key(shape: &Self::Shape, left: &[u8], right: &[u8]) -> Vec<u8>;
}

/// A tree under construction.
#[derive(Debug)]
pub struct Builder<F: KeyFamily> {
    pub(super) shape: F::Shape,
    pub(super) tuples: TupleBuilder,
    /// The last key that was added, and its row.
    pub(super) last: F::Held,
    pub(super) last_tid: Tid,
}

impl<F: BuildFamily> Builder<F> {
    /// Creates a tree of keys of this shape.
    #[must_use]
    pub fn new(shape: &F::Shape, options: Options) -> Self {
        Self::with_levels(shape, options, Levels::new(options))
    }

    fn with_levels(shape: &F::Shape, options: Options, levels: Levels) -> Self {
        let (shape, tuples) = (shape.clone(), TupleBuilder::with_levels(options, levels));
        Self { shape, tuples, last: F::Held::default(), last_tid: Tid::default() }
    }

    /// Adds items, which must be in order and behind all earlier ones.
    ///
    /// # Errors
    /// An error of the sink; the items are out of order, or the server's collation orders them differently; or one is
    /// too long.
    #[inline]
    pub fn push<S: PageSink>(&mut self, units: &[F], sink: &mut S) -> Result<(), BuildError<S::Error>> {
        if units.is_empty() {
            return Ok(());
        }
        self.tuples.levels.begin()?;
        F::add(self, units, sink)
    }

    /// Completes the open pages and adds the metapage.
    ///
    /// # Errors
    /// An error of the sink.
    pub fn finish<S: PageSink>(self, sink: &mut S) -> Result<Built, BuildError<S::Error>> {
        let shape = &self.shape;
        self.tuples.finish(|left, right| F::high_key(shape, left, right), sink)
    }
}

impl<W: Word> BuildFamily for Entry<W> {
    fn add<S: PageSink>(
        builder: &mut Builder<Self>,
        entries: &[Self],
        sink: &mut S,
    ) -> Result<(), BuildError<S::Error>> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(()) };
        let follows = builder.tuples.entries == 0 || Entry::new(builder.last, builder.last_tid).before(*first);
        if !follows || !super::sort::is_ascending(entries) {
            return Err(BuildError::Order);
        }
        if builder.tuples.deduplicate {
            builder.deduplicate(entries, sink)?;
        } else {
            builder.add_entries(entries, sink)?;
        }
        (builder.last, builder.last_tid) = (last.key(), last.tid());
        Ok(())
    }

    fn high_key(shape: &KeyShape, left: &[u8], right: &[u8]) -> Vec<u8> {
        shape.high_key(left, right)
    }
}

impl<W: Word> Builder<Entry<W>> {
    /// Creates a part of such a tree: leaves between those of other parts, on blocks of this source. Ends with
    /// [`Self::finish_part`].
    #[must_use]
    pub fn part(shape: &KeyShape, options: Options, blocks: Box<dyn BlockSource>) -> Self {
        Self::with_levels(shape, options, Levels::part(options, blocks))
    }

    /// Completes a part. Its first and last leaf are linked with others later, by [`join`].
    ///
    /// # Errors
    /// An error of the sink.
    pub fn finish_part<S: PageSink>(self, sink: &mut S) -> Result<TreePart, BuildError<S::Error>> {
        let shape = &self.shape;
        self.tuples.finish_part(border_size(shape), |left, right| shape.high_key(left, right), sink)
    }

    /// The loop of _bt_load that deduplicates. Adds all entries with a distinct key at once; the last key waits for
    /// more rows.
    fn deduplicate<S: PageSink>(&mut self, entries: &[Entry<W>], sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let (mut key, mut rest) = (self.last, entries);
        while let Some(first) = rest.first() {
            if key == first.key() && self.tuples.is_pending() {
                let same = rest.iter().take_while(|entry| entry.key() == key).count();
                let (same, others) = rest.split_at_checked(same).unwrap_or((rest, &[]));
                for entry in same {
                    if !self.tuples.add_row(entry.tid()) {
                        self.begin_key(*entry, sink)?;
                    }
                }
                rest = others;
                continue;
            }
            let shape = &self.shape;
            self.tuples.flush_pending(|left, right| shape.high_key(left, right), sink)?;
            let alone = rest.windows(2).take_while(|pair| matches!(pair, [a, b] if a.key() != b.key())).count();
            let (alone, others) = rest.split_at_checked(alone).unwrap_or((rest, &[]));
            self.add_entries(alone, sink)?;
            if let Some((last, others)) = others.split_first() {
                key = last.key();
                self.begin_key(*last, sink)?;
                rest = others;
            }
        }
        Ok(())
    }

    /// Adds an entry whose key waits for more rows.
    #[inline(never)]
    fn begin_key<S: PageSink>(&mut self, entry: Entry<W>, sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let shape = &self.shape;
        let form = |last: &mut TupleBuffer| {
            last.set(shape.form(entry).bytes());
            true
        };
        self.tuples.add(entry.tid(), form, |left, right| shape.high_key(left, right), sink)
    }

    /// Adds the tuples of entries to the leaf level.
    fn add_entries<S: PageSink>(&mut self, entries: &[Entry<W>], sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let shape = &self.shape;
        let (size, nullable, short) = (shape.tuple_size(), shape.nullable(), shape.is_short());
        self.tuples.entries += entries.len() as u64;
        let levels = &mut self.tuples.levels;
        let mut rest = entries;
        while let Some(first) = rest.first() {
            if !short || nullable && shape.has_null(first.key()) {
                levels.add_item(shape.form(*first).bytes(), 0, |left, right| shape.high_key(left, right), sink)?;
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let room = levels.leaf().map_or(0, |leaf| leaf.room(size));
            if room == 0 {
                levels.next_leaf(|left, right| shape.high_key(left, right), sink)?;
                continue;
            }
            let (mut now, _) = rest.split_at_checked(room).unwrap_or((rest, &[]));
            if nullable {
                let plain = now.iter().take_while(|entry| !shape.has_null(entry.key())).count();
                now = now.get(..plain).unwrap_or_default();
            }
            rest = rest.get(now.len()..).unwrap_or_default();
            let Some(leaf) = levels.leaf() else { return Ok(()) };
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
}

/// Makes one tree of parts: links their leaves and adds the levels above, on blocks of this source. All keys of a part
/// must be greater than those of the part before it. Parts without entries are ignored.
///
/// # Errors
/// An error of the sink, or the parts were not made by [`Builder::finish_part`] with keys of this shape.
pub fn join<S: PageSink>(
    shape: &KeyShape,
    options: Options,
    parts: Vec<TreePart>,
    blocks: Box<dyn BlockSource>,
    sink: &mut S,
) -> Result<Built, BuildError<S::Error>> {
    Levels::join(options, blocks, parts, |left, right| shape.high_key(left, right), sink)
}

/// Upper bound of the size of a high key of this shape, in bytes: all columns, with nulls and a TID.
#[must_use]
pub fn border_size(shape: &KeyShape) -> usize {
    shape.tuple_size() + TUPLE_HEADER_WITH_NULLS - TUPLE_HEADER + HEAP_TID
}
