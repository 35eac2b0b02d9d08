//! The leaf level of an existing index, as one more sorted run.
//!
//! It is read through shared buffers, because the newest pages may not be in the file yet. It is read by the old file's
//! name, since the index has a new file by then. The index is locked, so no other session uses it.
//!
//! All entries are kept, including those of dead rows and items that are marked as dead: snapshots on a standby may
//! still see their rows.

use std::cell::Cell;
use std::rc::Rc;

use pg_bulk_storage::btree::descend::{Metapage, child_at};
use pg_bulk_storage::btree::entry::{Entry, Word};
use pg_bulk_storage::btree::family::KeyFamily;
use pg_bulk_storage::btree::key::KeyShape;
use pg_bulk_storage::btree::leaf::Leaf;
use pg_bulk_storage::btree::merge::Run;
use pg_bulk_storage::btree::{DEFAULT_FILLFACTOR, METAPAGE, NO_BLOCK};
use pg_bulk_storage::page::{LINE_POINTER, PAGE_SIZE};
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::server::compat;
use crate::server::locked_page::LockedPage;
use crate::server::relation::Relation;
use crate::server::unguarded::guard;

/// Most leaves that are read to find the last entry of an index.
const MOST_EMPTY: u32 = 16;

/// The beginning of the leaf level of an index.
#[derive(Debug, Clone, Copy)]
pub struct Leaves {
    file: compat::Locator,
    first: u32,
    permanent: bool,
    /// Pages of the whole index.
    pages: u32,
}

impl Leaves {
    /// The leaf level of a B-tree that is locked exclusively and not temporary. Guarded.
    pub fn of(index: Relation<'_>) -> Leaves {
        Leaves {
            file: compat::locator(index),
            first: compat::first_leaf(index).unwrap_or(NO_BLOCK),
            permanent: index.persistence() == pg_sys::RELPERSISTENCE_PERMANENT,
            pages: index.pages(),
        }
    }

    /// Makes a reader of the leaf level.
    pub fn reader<F: KeyFamily>(&self, shape: F::Shape, unfit: Rc<Cell<bool>>) -> LeafReader<F> {
        let strategy = bulk_read();
        let (file, next, permanent) = (self.file, self.first, self.permanent);
        LeafReader { file, next, permanent, strategy, shape, unfit, count: 0, entries: 0, block: Vec::new() }
    }

    /// The leaf level from another leaf on.
    pub fn from(self, first: u32) -> Leaves {
        Leaves { first, ..self }
    }

    /// Estimated number of entries, if keys of this shape are distinct.
    pub fn entries(&self, shape: &KeyShape) -> f64 {
        f64::from(self.pages) * entries_of_page(shape)
    }

    /// A position to divide the index at: the leaf after this part of it, and a key on the leaf that is greater than
    /// all keys before. None if the leaf has no two keys, or a page is damaged. Guarded.
    pub fn divide<W: Word>(&self, shape: &KeyShape, part: f64) -> Option<(u32, W)> {
        let strategy = bulk_read();
        let page = |block| read_page(self.file, block, strategy, self.permanent);
        let Metapage { root, mut level, .. } = Metapage::new(&page(METAPAGE))?;
        let (mut block, mut part) = (root, part);
        while level > 0 {
            (block, part) = child_at(&page(block), level, part)?;
            level -= 1;
        }
        let mut entries: Vec<Entry<W>> = Vec::new();
        Leaf::new(&page(block)).and_then(|leaf| Entry::read_leaf(shape, &leaf, &mut entries)).ok()?;
        let first = entries.first()?.key();
        let other = entries.iter().find(|entry| entry.key() > first)?;
        Some((block, other.key()))
    }
}

/// About the number of entries on a leaf.
pub fn entries_of_page(shape: &KeyShape) -> f64 {
    (PAGE_SIZE * DEFAULT_FILLFACTOR / 100 / (shape.tuple_size() + LINE_POINTER)) as f64
}

/// Few buffers for many pages. Guarded.
fn bulk_read() -> pg_sys::BufferAccessStrategy {
    // SAFETY: a guarded call.
    unsafe { pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD) }
}

/// A copy of a page. Guarded.
fn read_page(
    file: compat::Locator,
    block: u32,
    strategy: pg_sys::BufferAccessStrategy,
    permanent: bool,
) -> [u8; PAGE_SIZE] {
    // SAFETY: the file of an index that is not temporary (see [`Leaves::of`]), which no other session changes.
    unsafe { compat::read_block(file, block, strategy, permanent) }
}

/// The last entry of an index; None without an entry, or for a version whose leaves are not supported. Guarded.
///
/// From the end, it goes back over a few empty leaves, which VACUUM may leave. No other session changes the pages of the index.
pub fn last_entry<W: Word>(index: Relation<'_>, shape: &KeyShape) -> Option<Entry<W>> {
    // SAFETY: a B-tree, since it has a metapage; the closure owns nothing.
    let mut page = if can_read(index) { unsafe { guard(|| compat::end_of_level(index, 0, true)) } } else { None };
    let (mut entries, mut looked): (Vec<Entry<W>>, _) = (Vec::new(), 0);
    while let Some(locked) = page.take() {
        let bytes = locked.copy();
        locked.release();
        let leaf = Leaf::new(&bytes).ok()?;
        Entry::read_leaf(shape, &leaf, &mut entries).ok()?;
        looked += 1;
        if entries.is_empty() && leaf.prev() != NO_BLOCK && looked < MOST_EMPTY {
            page = Some(LockedPage::read(index, leaf.prev()));
        }
    }
    entries.last().copied()
}

/// Is the index of a version whose leaves are supported here? After pg_upgrade from a version before 12, equal keys may
/// be in any order. Guarded.
pub fn can_read(index: Relation<'_>) -> bool {
    let page = LockedPage::read(index, METAPAGE);
    let bytes = page.copy();
    page.release();
    Metapage::new(&bytes).is_some()
}

/// Reader of the entries of a leaf level. Guarded.
#[derive(Debug)]
pub struct LeafReader<F: KeyFamily> {
    file: compat::Locator,
    next: u32,
    permanent: bool,
    strategy: pg_sys::BufferAccessStrategy,
    shape: F::Shape,
    /// Set if an item is not a key of this shape.
    unfit: Rc<Cell<bool>>,
    /// Number of pages read, to detect a circular chain of leaves.
    count: u32,
    entries: u64,
    block: Vec<F>,
}

impl<F: KeyFamily> LeafReader<F> {
    /// Number of entries that were read.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Is set if the entries cannot be merged.
    pub fn unfit(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.unfit)
    }
}

impl<F: KeyFamily> Run<F> for LeafReader<F> {
    type Error = Error;

    fn block(&self) -> &[F] {
        &self.block
    }

    fn advance(&mut self) -> Result<()> {
        self.block.clear();
        while self.next != NO_BLOCK && self.block.len() < F::LEAF_BLOCK {
            pgrx::check_for_interrupts!();
            let page = read_page(self.file, self.next, self.strategy, self.permanent);
            let next = Leaf::new(&page).and_then(|leaf| {
                self.entries += F::read_leaf(&self.shape, &leaf, &mut self.block)?;
                Ok(leaf.next())
            });
            self.count = self.count.saturating_add(1);
            let Some(next) = next.ok().filter(|_| self.count < u32::MAX) else {
                self.unfit.set(true);
                return Err(Error::new(Code::ERRCODE_INDEX_CORRUPTED, "an index cannot be merged"));
            };
            self.next = next;
        }
        Ok(())
    }
}
