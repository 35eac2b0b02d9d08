//! The leaf level of an index that is there already, as one more sorted run.
//!
//! It is read through shared buffers, for the latest of it may not be in the file yet; by the file's own name, since the
//! index has a new file by then. Nobody else has the index: it is locked.
//!
//! All entries are kept, also of rows that are dead, and items that are marked as dead: on a standby there may be somebody
//! to whom they are not.

use std::cell::Cell;
use std::rc::Rc;

use pg_bulk_format::btree::descend::Metapage;
use pg_bulk_format::btree::entry::{Entry, Word};
use pg_bulk_format::btree::key::KeyShape;
use pg_bulk_format::btree::leaf::Leaf;
use pg_bulk_format::btree::merge;
use pg_bulk_format::btree::{METAPAGE, NO_BLOCK};
use pg_bulk_format::page::PAGE_SIZE;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::pg::compat;

/// Entries that are wanted at once.
const BLOCK: usize = 4096;

/// Where the leaf level of an index begins.
#[derive(Debug, Clone, Copy)]
pub struct Leaves {
    file: compat::Locator,
    first: u32,
    permanent: bool,
}

impl Leaves {
    /// Of an open index that is locked exclusively, and not temporary. Guarded.
    ///
    /// # Safety
    /// A B-tree.
    pub unsafe fn of(index: pg_sys::Relation) -> Leaves {
        // SAFETY: the caller vouches for the index.
        unsafe {
            Leaves {
                file: compat::locator(index),
                first: compat::first_leaf(index).unwrap_or(NO_BLOCK),
                permanent: (*(*index).rd_rel).relpersistence.cast_unsigned() == pg_sys::RELPERSISTENCE_PERMANENT,
            }
        }
    }

    /// Read it.
    pub fn reader<W: Word>(&self, shape: &KeyShape, unfit: Rc<Cell<bool>>) -> LeafReader<W> {
        // SAFETY: a guarded call.
        let strategy = unsafe { pg_sys::GetAccessStrategy(pg_sys::BufferAccessStrategyType::BAS_BULKREAD) };
        let (file, next, permanent) = (self.file, self.first, self.permanent);
        LeafReader { file, next, permanent, strategy, shape: shape.clone(), unfit, count: 0, block: Vec::new() }
    }
}

/// Is an index of a version whose leaves are read here? One that came by pg_upgrade from before 12 has equal keys in any
/// order. Guarded.
///
/// # Safety
/// An open B-tree.
pub unsafe fn can_read(index: pg_sys::Relation) -> bool {
    // SAFETY: the caller vouches for the index; guarded calls. A page is looked at under a pin and a lock.
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
pub struct LeafReader<W: Word> {
    file: compat::Locator,
    next: u32,
    permanent: bool,
    strategy: pg_sys::BufferAccessStrategy,
    shape: KeyShape,
    /// Set if there is something that is no key of this shape.
    unfit: Rc<Cell<bool>>,
    /// Pages that were read: a chain that is longer than a relation can be is a circle.
    count: u32,
    block: Vec<Entry<W>>,
}

impl<W: Word> LeafReader<W> {
    /// Set if there is something that cannot be merged.
    pub fn unfit(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.unfit)
    }
}

impl<W: Word> merge::Run<W> for LeafReader<W> {
    type Error = Error;

    fn block(&self) -> &[Entry<W>] {
        &self.block
    }

    fn advance(&mut self) -> Result<()> {
        self.block.clear();
        while self.next != NO_BLOCK && self.block.len() < BLOCK {
            pgrx::check_for_interrupts!();
            let mut page = [0u8; PAGE_SIZE];
            // SAFETY: guarded calls; a page has so many bytes.
            unsafe {
                let buffer = compat::read_block(self.file, self.next, self.strategy, self.permanent);
                pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE.cast_signed());
                std::ptr::copy_nonoverlapping(pg_sys::BufferGetPage(buffer).cast::<u8>(), page.as_mut_ptr(), PAGE_SIZE);
                pg_sys::UnlockReleaseBuffer(buffer);
            }
            let entries = &mut self.block;
            let next = Leaf::new(&page).and_then(|leaf| {
                leaf.entries(&self.shape, |key, tid, _| entries.push(Entry::new(key, tid)))?;
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
