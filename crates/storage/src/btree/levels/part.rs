//! Parts of a tree that several processes build in parallel, and the tree that is made of them.
//!
//! ```text
//!   process 1:   first ─ leaf ─ leaf ─ last          first ─ leaf ─ last           written, but for first and last
//!   process 2:                           first ─ leaf ─ last
//!                                 links ─┴─► join: first and last of each, the levels above, metapage
//! ```
//!
//! A leaf needs the blocks of its neighbors, and its high key, which is known when the next leaf is begun. At the
//! borders of a part they are unknown. So its first and last leaf are held back and written when the parts are joined.
//!
//! The tricky point is the high key of the last leaf: the leaf must have room for any possible one. Within a part, the
//! high key replaces an item that moves to the next leaf. A leaf that is too full at the end of a part is ended
//! likewise, and a further leaf gets that one item.

use super::super::entry::Tid;
use super::super::sink::{BlockSource, BuildError, Built, Options, Page, PageSink};
use super::super::{
    INDEX_SIZE_MASK, NO_BLOCK, P_FIRSTKEY, P_HIKEY, SPECIAL_START, TUPLE_HEADER, item_id, put, u16_at, u32_at,
};
use super::{Level, Levels, lead_to, new_page};
use crate::page::{LINE_POINTER, PAGE_HEADER};

/// A part of a tree: leaves in order.
#[derive(Clone, Debug, Default)]
pub struct TreePart {
    /// The first leaf, unless it is also the last one. Its left neighbor is not set.
    pub first: Option<Box<Page>>,
    /// The last leaf. Its right neighbor and its high key are not set. `None` without entries.
    pub last: Option<Box<Page>>,
    /// For each leaf the tuple of the level above: its block, and the high key of the leaf before it. The first one has
    /// only the block.
    pub links: Vec<u8>,
    /// Number of entries.
    pub entries: u64,
}

/// State of a part under construction.
#[derive(Debug, Default)]
pub(super) struct Unlinked {
    pub(super) first: Option<Box<Page>>,
    pub(super) links: Vec<u8>,
}

impl Unlinked {
    pub(super) fn add_link<E>(&mut self, link: &[u8]) -> Result<(), BuildError<E>> {
        self.links.try_reserve(link.len()).map_err(|_| BuildError::Memory)?;
        self.links.extend_from_slice(link);
        Ok(())
    }
}

/// Iterates over consecutive tuples.
pub(in super::super) struct Links<'a>(pub(in super::super) &'a [u8]);

impl<'a> Iterator for Links<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let size = usize::from(u16_at(self.0.get(..TUPLE_HEADER)?, 6) & INDEX_SIZE_MASK);
        let (link, rest) = self.0.split_at_checked(size.max(TUPLE_HEADER))?;
        self.0 = rest;
        Some(link)
    }
}

fn block_of(link: &[u8]) -> u32 {
    link.first_chunk().map_or(NO_BLOCK, |tid| Tid::from_bytes(*tid).block())
}

impl TreePart {
    /// The leaf that needs a left neighbor.
    fn head(&self) -> Option<&Page> {
        self.first.as_deref().or(self.last.as_deref())
    }

    /// Its first item, behind the line pointer of the high key, which may be unused.
    fn first_item(&self) -> &[u8] {
        let Some(page) = self.head() else { return &[] };
        let (at, _, length) = item_id(u32_at(&page.0, PAGE_HEADER + (P_FIRSTKEY - 1) * LINE_POINTER));
        page.0.get(at..at + length).unwrap_or_default()
    }

    fn first_block(&self) -> u32 {
        Links(&self.links).next().map_or(NO_BLOCK, block_of)
    }
}

impl Level {
    /// Opens a last leaf, to complete it.
    pub(in super::super) fn reopen(page: Box<Page>, link: &[u8]) -> Level {
        let (lower, upper) = (usize::from(u16_at(&page.0, 12)), usize::from(u16_at(&page.0, 14)));
        let (prev, low_key) = (u32_at(&page.0, SPECIAL_START), link.to_vec());
        let last = (lower.saturating_sub(PAGE_HEADER) / LINE_POINTER).max(P_HIKEY);
        Level { page, block: block_of(link), prev, level: 0, lower, upper, last, last_extra: 0, full: 0, low_key }
    }
}

impl Levels {
    pub(in super::super) fn part(options: Options, blocks: Box<dyn BlockSource>) -> Self {
        Self { part: Some(Unlinked::default()), ..Self::with_blocks(options, blocks) }
    }

    /// Ends a part. Leaves `room` bytes for the high key of its last leaf.
    pub(in super::super) fn finish_part<S: PageSink>(
        mut self,
        entries: u64,
        room: usize,
        high_key: impl FnOnce(&[u8], &[u8]) -> Vec<u8>,
        sink: &mut S,
    ) -> Result<TreePart, BuildError<S::Error>> {
        if self.levels.first().is_some_and(|leaf| leaf.upper - leaf.lower < room) {
            self.next_leaf(high_key, sink)?;
        }
        let mut part = self.part.unwrap_or_default();
        let Some(mut leaf) = self.levels.pop() else { return Ok(TreePart::default()) };
        part.add_link(&leaf.take_downlink())?;
        leaf.complete(NO_BLOCK, 0);
        let Unlinked { first, links } = part;
        Ok(TreePart { first, last: Some(leaf.page), links, entries })
    }

    pub(in super::super) fn join<S: PageSink>(
        options: Options,
        blocks: Box<dyn BlockSource>,
        parts: Vec<TreePart>,
        high_key: impl Fn(&[u8], &[u8]) -> Vec<u8>,
        sink: &mut S,
    ) -> Result<Built, BuildError<S::Error>> {
        let mut levels = Self::with_blocks(options, blocks);
        let mut parts = parts.into_iter().filter(|part| part.entries > 0).peekable();
        let Some(only) = parts.peek().map(|part| part.first.is_none()) else { return levels.finish(0, sink) };
        let (mut entries, mut prev, mut border): (_, _, Option<Vec<u8>>) = (0, NO_BLOCK, None);
        let mut above = false;
        // A placeholder for the last leaf.
        levels.levels.push(Level::reopen(new_page(), &[]));
        while let Some(part) = parts.next() {
            entries += part.entries;
            let first_block = part.first_block();
            if !above && (!only || parts.peek().is_some()) {
                levels.add_level()?;
                above = true;
            }
            let (mut last_link, mut is_first) = (Vec::new(), true);
            for link in Links(&part.links) {
                levels.pages = levels.pages.max(block_of(link).saturating_add(1));
                if !last_link.is_empty() {
                    levels.add_pivot(1, &last_link, sink)?;
                }
                last_link = match &border {
                    Some(key) if is_first => with_block(key, first_block),
                    _ => link.to_vec(),
                };
                is_first = false;
            }
            let mut leaf = Level::reopen(part.last.unwrap_or_else(new_page), &last_link);
            match part.first {
                Some(mut first) => {
                    put(&mut first.0, SPECIAL_START, &prev.to_ne_bytes());
                    sink.page(first_block, &mut first)?;
                }
                None => leaf.prev = prev,
            }
            let Some(next) = parts.peek() else {
                if let Some(place) = levels.levels.first_mut() {
                    *place = leaf;
                }
                break;
            };
            levels.add_pivot(1, &last_link, sink)?;
            let key = high_key(leaf.last_item(), next.first_item());
            if leaf.upper.saturating_sub(leaf.lower) < key.len() {
                return Err(BuildError::Order);
            }
            leaf.put_high_key(&key);
            leaf.complete(next.first_block(), 0);
            sink.page(leaf.block, &mut leaf.page)?;
            (prev, border) = (leaf.block, Some(key));
        }
        levels.finish(entries, sink)
    }
}

/// Makes the tuple of the level above that leads to a block, of a high key.
fn with_block(key: &[u8], block: u32) -> Vec<u8> {
    let mut link = key.to_vec();
    lead_to(&mut link, block);
    link
}
