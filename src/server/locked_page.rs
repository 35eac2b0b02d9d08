//! Pages in shared buffers that this process has pinned and locked.
//!
//! A [`LockedPage`] holds the content lock of its buffer, at least for reading, and a pin; an [`ExclusivePage`] holds it
//! for writing. Both end with [`LockedPage::release`]. They have no destructor, so that plain frames may own them: after
//! an error, the abort of the transaction releases locks and pins.
//!
//! Under a lock for reading, other processes may set hint bits. So accessors return copies. They check offsets
//! against the size of a page, because the contents of a page may be damaged.

use std::mem::offset_of;
use std::ops::Deref;
use std::ptr::NonNull;

use pg_bulk_storage::page::{LINE_POINTER, PAGE_HEADER, PAGE_SIZE, item_id};
use pgrx::pg_sys::{self, PageHeaderData};

use super::relation::Relation;
use super::unguarded as c;

/// A page that is locked, at least for reading.
#[derive(Debug)]
pub struct LockedPage {
    buffer: pg_sys::Buffer,
    page: NonNull<u8>,
}

/// A page that is locked for writing.
#[derive(Debug)]
pub struct ExclusivePage(LockedPage);

impl LockedPage {
    /// # Safety
    /// This process has pinned the buffer and has locked its contents, and leaves both to this value.
    pub unsafe fn from_buffer(buffer: pg_sys::Buffer) -> LockedPage {
        // SAFETY: a pinned buffer has a page.
        LockedPage { buffer, page: unsafe { NonNull::new_unchecked(pg_sys::BufferGetPage(buffer).cast()) } }
    }

    /// Reads and locks a page of the main fork. Guarded.
    pub fn read(relation: Relation<'_>, block: u32) -> LockedPage {
        // SAFETY: guarded calls on an open relation. The buffer is pinned, then locked.
        unsafe {
            let buffer = pg_sys::ReadBuffer(relation.as_ptr(), block);
            pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE.cast_signed());
            LockedPage::from_buffer(buffer)
        }
    }

    pub fn block(&self) -> u32 {
        // SAFETY: the buffer is pinned; raises nothing.
        unsafe { c::BufferGetBlockNumber(self.buffer) }
    }

    /// Unlocks and unpins the page.
    pub fn release(self) {
        // SAFETY: this value has the lock and the pin, and ends here; raises nothing.
        unsafe { c::UnlockReleaseBuffer(self.buffer) }
    }

    /// Copies bytes of the page; None beyond its end.
    #[inline]
    pub fn get<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        // SAFETY: the bytes are within the page, which is pinned and locked.
        (at <= PAGE_SIZE.checked_sub(N)?).then(|| unsafe { self.page.add(at).cast().read() })
    }

    /// Copies the page.
    pub fn copy(&self) -> [u8; PAGE_SIZE] {
        self.get(0).unwrap_or([0; PAGE_SIZE])
    }

    #[inline]
    fn header_field(&self, at: usize) -> u16 {
        self.get(at).map_or(0, u16::from_ne_bytes)
    }

    /// Returns the pointer for functions of the server.
    #[inline]
    pub fn as_ptr(&self) -> pg_sys::Page {
        self.page.as_ptr().cast()
    }

    /// PageIsNew (bufpage.h)
    pub fn is_new(&self) -> bool {
        self.header_field(offset_of!(PageHeaderData, pd_upper)) == 0
    }

    /// Offset of the special space.
    pub fn special(&self) -> usize {
        self.header_field(offset_of!(PageHeaderData, pd_special)).into()
    }

    /// Number of line pointers (PageGetMaxOffsetNumber, bufpage.h).
    pub fn count(&self) -> u16 {
        let lower = usize::from(self.header_field(offset_of!(PageHeaderData, pd_lower)));
        (lower.saturating_sub(PAGE_HEADER) / LINE_POINTER) as u16
    }

    /// Free bytes for tuples and their line pointers (PageGetExactFreeSpace, bufpage.c).
    pub fn free_space(&self) -> usize {
        let lower = self.header_field(offset_of!(PageHeaderData, pd_lower));
        self.header_field(offset_of!(PageHeaderData, pd_upper)).saturating_sub(lower).into()
    }

    /// Offset and length of an item, from 1 (PageGetItem, bufpage.h).
    pub fn item(&self, number: u16) -> Option<(usize, usize)> {
        let pointer = PAGE_HEADER + usize::from(number.checked_sub(1)?) * LINE_POINTER;
        let (at, _, length) = item_id(u32::from_ne_bytes(self.get(pointer)?));
        Some((at, length))
    }

    /// PageGetLSN (bufpage.h)
    pub fn lsn(&self) -> u64 {
        self.get(offset_of!(PageHeaderData, pd_lsn)).map_or(0, |[a, b, c, d, e, f, g, h]| {
            u64::from(u32::from_ne_bytes([a, b, c, d])) << 32 | u64::from(u32::from_ne_bytes([e, f, g, h]))
        })
    }
}

impl Deref for ExclusivePage {
    type Target = LockedPage;

    fn deref(&self) -> &LockedPage {
        &self.0
    }
}

impl ExclusivePage {
    /// # Safety
    /// This process has pinned the buffer and has locked its contents for writing, and leaves both to this value.
    pub unsafe fn from_buffer(buffer: pg_sys::Buffer) -> ExclusivePage {
        // SAFETY: this function's contract includes that of a lock for reading.
        ExclusivePage(unsafe { LockedPage::from_buffer(buffer) })
    }

    /// Reads and locks a page of the main fork.
    ///
    /// # Safety
    /// A plain frame.
    pub unsafe fn read(relation: Relation<'_>, block: u32) -> ExclusivePage {
        let (fork, mode) = (pg_sys::ForkNumber::MAIN_FORKNUM, pg_sys::ReadBufferMode::RBM_NORMAL);
        // SAFETY: a plain frame, and an open relation. The buffer is pinned, then locked.
        unsafe {
            let buffer = c::ReadBufferExtended(relation.as_ptr(), fork, block, mode, std::ptr::null_mut());
            c::LockBuffer(buffer, pg_sys::BUFFER_LOCK_EXCLUSIVE.cast_signed());
            ExclusivePage::from_buffer(buffer)
        }
    }

    /// Locks a page of the main fork, without reading it if it is not in shared buffers. It is zeroed then. Guarded.
    ///
    /// # Safety
    /// The relation is not temporary: pages of these have no lock. This process has no other handle of the page.
    pub unsafe fn zeroed(relation: Relation<'_>, block: u32) -> ExclusivePage {
        let (fork, mode) = (pg_sys::ForkNumber::MAIN_FORKNUM, pg_sys::ReadBufferMode::RBM_ZERO_AND_LOCK);
        // SAFETY: a guarded call on an open relation, which pins and locks the buffer.
        unsafe {
            let buffer = pg_sys::ReadBufferExtended(relation.as_ptr(), fork, block, mode, std::ptr::null_mut());
            ExclusivePage::from_buffer(buffer)
        }
    }

    /// Unlocks and unpins the page.
    pub fn release(self) {
        self.0.release();
    }

    pub const fn buffer(&self) -> pg_sys::Buffer {
        self.0.buffer
    }

    #[inline]
    pub fn bytes(&mut self) -> &mut [u8; PAGE_SIZE] {
        // SAFETY: the page is pinned, and locked for writing by this value alone.
        unsafe { self.0.page.cast().as_mut() }
    }

    /// MarkBufferDirty; raises nothing.
    pub fn mark_dirty(&mut self) {
        // SAFETY: the buffer is pinned and locked for writing.
        unsafe { c::MarkBufferDirty(self.buffer()) }
    }

    /// PageSetLSN (bufpage.h)
    pub fn set_lsn(&mut self, lsn: pg_sys::XLogRecPtr) {
        let halves = [(lsn >> 32) as u32, lsn as u32].map(u32::to_ne_bytes);
        self.bytes()[..8].copy_from_slice(halves.as_flattened());
    }

    /// Adds an item before the one with this number (PageAddItem, bufpage.h). An inconsistent page, or one without
    /// room, must not be written: a PANIC.
    pub fn add(&mut self, item: &[u8], number: u16) {
        // SAFETY: the page is locked for writing, and the item is only read.
        unsafe {
            if c::PageAddItemExtended(self.as_ptr(), item.as_ptr().cast_mut().cast(), item.len(), number, 0) == 0 {
                c::errstart_cold(pg_sys::PANIC as i32, std::ptr::null());
                c::errmsg_internal(c"failed to add tuples to an index page".as_ptr());
                c::errfinish(c"leaf.rs".as_ptr(), 0, c"add".as_ptr());
            }
        }
    }
}
