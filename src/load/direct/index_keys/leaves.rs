//! The leaf level of an index that is there already, as one more sorted run.
//!
//! It is read through shared buffers, for the latest of it may not be in the file yet; by the file's own name, since the
//! index has a new file by then. Nobody else has the index: it is locked.
//!
//! All entries are kept, also of rows that are dead, and items that are marked as dead: on a standby there may be somebody
//! to whom they are not.

use std::cell::Cell;
use std::rc::Rc;

use pg_bulk_format::btree::bytes;
use pg_bulk_format::btree::bytes::shape::ByteShape;
use pg_bulk_format::btree::descend::{Metapage, child_at};
use pg_bulk_format::btree::entry::{Entry, Word};
use pg_bulk_format::btree::key::KeyShape;
use pg_bulk_format::btree::leaf::{Leaf, LeafError};
use pg_bulk_format::btree::merge;
use pg_bulk_format::btree::{DEFAULT_FILLFACTOR, METAPAGE, NO_BLOCK};
use pg_bulk_format::page::{LINE_POINTER, PAGE_SIZE};
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::pg::compat;
use crate::pg::unguarded::guard;

/// So many leaves are looked at for the last entry of an index.
const MOST_EMPTY: u32 = 16;

/// What is made of a leaf.
pub trait LeafKeys<B> {
    /// So much of it is wanted at once.
    const BLOCK: usize;

    /// Append a page's entries.
    fn read(&self, leaf: &Leaf<'_>, block: &mut Vec<B>) -> std::result::Result<(), LeafError>;
}

impl<W: Word> LeafKeys<Entry<W>> for KeyShape {
    const BLOCK: usize = 4096;

    fn read(&self, leaf: &Leaf<'_>, block: &mut Vec<Entry<W>>) -> std::result::Result<(), LeafError> {
        leaf.entries(self, |key, tid, _| block.push(Entry::new(key, tid)))
    }
}

impl LeafKeys<u8> for ByteShape {
    const BLOCK: usize = 64 * 1024;

    fn read(&self, leaf: &Leaf<'_>, block: &mut Vec<u8>) -> std::result::Result<(), LeafError> {
        leaf.records(self, block).map(|_| ())
    }
}

/// Where the leaf level of an index begins.
#[derive(Debug, Clone, Copy)]
pub struct Leaves {
    file: compat::Locator,
    first: u32,
    permanent: bool,
    /// Of the whole index.
    pages: u32,
}

impl Leaves {
    /// Of an open index that is locked exclusively, and not temporary. Guarded.
    ///
    /// # Safety
    /// A B-tree.
    pub unsafe fn of(index: pg_sys::Relation) -> Leaves {
        // SAFETY: this function's contract covers the index.
        unsafe {
            Leaves {
                file: compat::locator(index),
                first: compat::first_leaf(index).unwrap_or(NO_BLOCK),
                permanent: (*(*index).rd_rel).relpersistence.cast_unsigned() == pg_sys::RELPERSISTENCE_PERMANENT,
                pages: pg_sys::RelationGetNumberOfBlocksInFork(index, pg_sys::ForkNumber::MAIN_FORKNUM),
            }
        }
    }

    /// Read it.
    pub fn reader<S: LeafKeys<B>, B>(&self, shape: S, unfit: Rc<Cell<bool>>) -> LeafReader<S, B> {
        // SAFETY: a guarded call.
        let strategy = unsafe { pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD) };
        let (file, next, permanent) = (self.file, self.first, self.permanent);
        LeafReader { file, next, permanent, strategy, shape, unfit, count: 0, block: Vec::new() }
    }
}

impl Leaves {
    /// The same from another leaf on.
    pub fn from(self, first: u32) -> Leaves {
        Leaves { first, ..self }
    }

    /// How many entries there may be, of keys of this shape that are not the same.
    pub fn entries(&self, shape: &KeyShape) -> f64 {
        f64::from(self.pages) * entries_of_page(shape)
    }

    /// A leaf behind so much of the index, and a key of it that is greater than all before: a place to divide it. None if
    /// the leaf has no two keys, or something is not as it should be. Guarded.
    pub fn divide<W: Word>(&self, shape: &KeyShape, part: f64) -> Option<(u32, W)> {
        // SAFETY: a guarded call.
        let strategy = unsafe { pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD) };
        let page = |block| read_page(self.file, block, strategy, self.permanent);
        let Metapage { root, mut level, .. } = Metapage::new(&page(METAPAGE))?;
        let (mut block, mut part) = (root, part);
        while level > 0 {
            (block, part) = child_at(&page(block), level, part)?;
            level -= 1;
        }
        let mut entries: Vec<Entry<W>> = Vec::new();
        Leaf::new(&page(block)).and_then(|leaf| shape.read(&leaf, &mut entries)).ok()?;
        let first = entries.first()?.key();
        let other = entries.iter().find(|entry| entry.key() > first)?;
        Some((block, other.key()))
    }
}

/// Entries that a leaf has about.
pub fn entries_of_page(shape: &KeyShape) -> f64 {
    (PAGE_SIZE * DEFAULT_FILLFACTOR / 100 / (shape.tuple_size() + LINE_POINTER)) as f64
}

/// A copy of a page. Guarded.
fn read_page(
    file: compat::Locator,
    block: u32,
    strategy: pg_sys::BufferAccessStrategy,
    permanent: bool,
) -> [u8; PAGE_SIZE] {
    let mut page = [0u8; PAGE_SIZE];
    // SAFETY: guarded calls; a page has so many bytes.
    unsafe {
        let buffer = compat::read_block(file, block, strategy, permanent);
        pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE.cast_signed());
        std::ptr::copy_nonoverlapping(pg_sys::BufferGetPage(buffer).cast::<u8>(), page.as_mut_ptr(), PAGE_SIZE);
        pg_sys::UnlockReleaseBuffer(buffer);
    }
    page
}

/// The last entry of an index whose leaf can be found by going back from the end over a few empty ones, which VACUUM leaves there.
/// None if there is none, or a version whose leaves are not read here. Guarded.
///
/// # Safety
/// An open B-tree, whose pages nobody changes.
pub unsafe fn last_entry<W: Word>(index: pg_sys::Relation, shape: &KeyShape) -> Option<Entry<W>> {
    // SAFETY: this function's contract covers the index; guarded calls. A page comes pinned and locked.
    unsafe {
        let mut buffer = if can_read(index) { guard(|| compat::last_of_level(index, 0)) } else { 0 };
        let (mut entries, mut looked): (Vec<Entry<W>>, _) = (Vec::new(), 0);
        while buffer != 0 {
            let page = *pg_sys::BufferGetPage(buffer).cast::<[u8; PAGE_SIZE]>();
            pg_sys::UnlockReleaseBuffer(std::mem::take(&mut buffer));
            let leaf = Leaf::new(&page).ok()?;
            shape.read(&leaf, &mut entries).ok()?;
            looked += 1;
            if entries.is_empty() && leaf.prev() != NO_BLOCK && looked < MOST_EMPTY {
                buffer = pg_sys::ReadBuffer(index, leaf.prev());
                pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE.cast_signed());
            }
        }
        entries.last().copied()
    }
}

/// Is an index of a version whose leaves are read here? One that came by pg_upgrade from before 12 has equal keys in any
/// order. Guarded.
///
/// # Safety
/// An open B-tree.
pub unsafe fn can_read(index: pg_sys::Relation) -> bool {
    // SAFETY: this function's contract covers the index; guarded calls. A page is looked at under a pin and a lock.
    unsafe {
        let buffer = pg_sys::ReadBuffer(index, METAPAGE);
        pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE.cast_signed());
        let fits = Metapage::new(&*pg_sys::BufferGetPage(buffer).cast::<[u8; PAGE_SIZE]>()).is_some();
        pg_sys::UnlockReleaseBuffer(buffer);
        fits
    }
}

/// The entries of a leaf level. Guarded.
#[derive(Debug)]
pub struct LeafReader<S, B> {
    file: compat::Locator,
    next: u32,
    permanent: bool,
    strategy: pg_sys::BufferAccessStrategy,
    shape: S,
    /// Set if there is something that is no key of this shape.
    unfit: Rc<Cell<bool>>,
    /// Pages that were read: a chain that is longer than a relation can be is a circle.
    count: u32,
    block: Vec<B>,
}

impl<S, B> LeafReader<S, B> {
    /// Set if there is something that cannot be merged.
    pub fn unfit(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.unfit)
    }
}

impl<W: Word> merge::Run<W> for LeafReader<KeyShape, Entry<W>> {
    type Error = Error;

    fn block(&self) -> &[Entry<W>] {
        &self.block
    }

    fn advance(&mut self) -> Result<()> {
        self.go_on()
    }
}

impl bytes::merge::Run for LeafReader<ByteShape, u8> {
    type Error = Error;

    fn block(&self) -> &[u8] {
        &self.block
    }

    fn advance(&mut self) -> Result<()> {
        self.go_on()
    }
}

impl<S: LeafKeys<B>, B> LeafReader<S, B> {
    fn go_on(&mut self) -> Result<()> {
        self.block.clear();
        while self.next != NO_BLOCK && self.block.len() < S::BLOCK {
            pgrx::check_for_interrupts!();
            let page = read_page(self.file, self.next, self.strategy, self.permanent);
            let next = Leaf::new(&page).and_then(|leaf| {
                self.shape.read(&leaf, &mut self.block)?;
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
