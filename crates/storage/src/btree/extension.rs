//! Leaves that are appended behind the last leaf of a tree in use.
//!
//! ```text
//!   level 1             │ ... last │ + new + new + new
//!   level 0    ... ── last leaf ───── new ── new ── new         the last leaf is given a high key, the border
//! ```
//!
//! They are made before any page is locked, so neither their blocks nor their left neighbor are known. Leaves count
//! from 0 and get their blocks later.
//!
//! The tricky point is the border, which lies between an item of the tree and one of the new leaves. The item of the
//! tree was read from a page and may be invalid, so it is validated.

use std::convert::Infallible;

use super::build::Builder;
use super::entry::{Entry, Word};
use super::key::KeyShape;
pub use super::levels::lead_to;
use super::levels::{Ascending, Level, Links, TreePart, max_tid};
use super::sink::{BuildError, Options, Page, PageSink};
use super::tuple::item;
use super::{NO_BLOCK, SPECIAL_START, TUPLE_HEADER, TUPLE_HEADER_WITH_NULLS, item_id, put, u32_at};
use crate::page::{LINE_POINTER, PAGE_HEADER, PAGE_SIZE};

/// Leaves in order.
#[derive(Debug, Default)]
pub struct Extension {
    pages: Vec<Box<Page>>,
    /// The tuples for the level above; the first one has no key.
    links: Vec<Vec<u8>>,
}

/// A sink that keeps the pages. They come in order, because there are only leaves.
struct Pages(Vec<Box<Page>>);

impl PageSink for Pages {
    type Error = Infallible;

    fn page(&mut self, _: u32, page: &mut Page) -> Result<(), Infallible> {
        self.0.push(Box::new(page.clone()));
        Ok(())
    }
}

/// Lower bound of the number of entries that fit into `pages` leaves.
#[must_use]
pub fn entries_of(shape: &KeyShape, options: Options, pages: usize) -> usize {
    let fillfactor = options.fillfactor.clamp(10, 100);
    let usable = (SPECIAL_START - PAGE_HEADER - LINE_POINTER) - PAGE_SIZE * (100 - fillfactor) / 100;
    // A leaf moves its last item to the next one; the last leaf may be ended before it is full.
    (usable / (longest_tuple(shape) + LINE_POINTER)).saturating_sub(2).max(1) * pages.saturating_sub(1)
}

/// Upper bound of the size of a tuple of this shape, in bytes.
#[must_use]
pub fn longest_tuple(shape: &KeyShape) -> usize {
    shape.tuple_size() + if shape.nullable() { TUPLE_HEADER_WITH_NULLS - TUPLE_HEADER } else { 0 }
}

impl Extension {
    /// Builds leaves of entries, which must be in order.
    ///
    /// # Errors
    /// The entries are out of order.
    pub fn build<W: Word>(
        shape: &KeyShape,
        options: Options,
        entries: &[Entry<W>],
    ) -> Result<Extension, BuildError<Infallible>> {
        let mut sink = Pages(Vec::new());
        let mut builder = Builder::part(shape, options, Box::new(Ascending(0)));
        builder.push(entries, &mut sink)?;
        let TreePart { first, last, links, .. } = builder.finish_part(&mut sink)?;
        let links: Vec<Vec<u8>> = Links(&links).map(<[u8]>::to_vec).collect();
        let last = last.zip(links.last()).map(|(page, link)| {
            let mut level = Level::reopen(page, link);
            level.slide_left();
            level.complete(NO_BLOCK, 0);
            level.page
        });
        let pages: Vec<Box<Page>> = first.into_iter().chain(sink.0).chain(last).collect();
        Ok(Extension { pages, links })
    }

    /// Number of leaves.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether there are no leaves.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The leaves, in order.
    pub fn pages(&self) -> impl Iterator<Item = &[u8; PAGE_SIZE]> {
        self.pages.iter().map(|page| &page.0)
    }

    /// The tuples for the level above, without that of the first leaf: the border leads to it.
    pub fn links(&self) -> impl Iterator<Item = &[u8]> {
        self.links.iter().skip(1).map(Vec::as_slice)
    }

    /// The first item. It follows the high key, which a single leaf does not have.
    fn first_item(&self) -> &[u8] {
        let number = if self.pages.len() > 1 { 1 } else { 0 };
        let Some(page) = self.pages.first() else { return &[] };
        let (at, _, length) = item_id(u32_at(&page.0, PAGE_HEADER + number * LINE_POINTER));
        page.0.get(at..at + length).unwrap_or_default()
    }

    /// Writes the high key of the leaf before, whose last item is `left`, to `to`, and returns its length. `None` if
    /// that item has no key, if it is not before the new leaves, or if `to` is too short.
    #[must_use]
    pub fn border<W: Word>(&self, shape: &KeyShape, left: &[u8], to: &mut [u8]) -> Option<usize> {
        let right = self.first_item();
        let key = |tuple| item(tuple).and_then(|(_, attributes)| shape.read_tuple::<W>(attributes));
        let (a, b) = (Entry::new(key(left)?, max_tid(left)), Entry::new(key(right)?, max_tid(right)));
        if !a.before(b) {
            return None;
        }
        let border = shape.high_key(left, right);
        to.get_mut(..border.len())?.copy_from_slice(&border);
        Some(border.len())
    }

    /// Sets the blocks of the leaves. `before`: the block of the leaf before them.
    pub fn place(&mut self, blocks: &[u32], before: u32) {
        let mut prev = before;
        let mut later = blocks.iter().copied();
        let mut block = later.next().unwrap_or(NO_BLOCK);
        for (page, link) in self.pages.iter_mut().zip(&mut self.links) {
            let next = later.next().unwrap_or(NO_BLOCK);
            put(&mut page.0, SPECIAL_START, &prev.to_ne_bytes());
            put(&mut page.0, SPECIAL_START + 4, &next.to_ne_bytes());
            lead_to(link, block);
            (prev, block) = (block, next);
        }
    }
}
