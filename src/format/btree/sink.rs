//! What a build is told, where its pages go, and how it ends.

use super::DEFAULT_FILLFACTOR;
use super::entry::Tid;
use crate::page::PAGE_SIZE;

/// A page, aligned as direct I/O wants it.
#[derive(Clone, Debug)]
#[repr(C, align(4096))]
pub struct Page(pub [u8; PAGE_SIZE]);

/// Takes the pages of a tree.
pub trait PageSink {
    /// Why a page cannot be taken.
    type Error;

    /// A complete page, whose pd_lsn and pd_checksum are 0; they may be set where it is. Pages do not come in the order
    /// of their blocks, but each comes once, and in the end there is none missing.
    ///
    /// # Errors
    /// The sink's own; the build is then at its end.
    fn page(&mut self, block: u32, page: &mut Page) -> Result<(), Self::Error>;
}

/// Gives out the blocks of a tree under construction, each once.
pub trait BlockSource: std::fmt::Debug {
    /// The next one; none if there are no more.
    fn next(&mut self) -> Option<u32>;
}

/// What an index's definition says of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Storage parameter fillfactor, 10 to 100.
    pub fillfactor: usize,
    /// Equal keys share a posting list: _bt_allequalimage, deduplicate_items is on, and the index is not unique.
    pub deduplicate: bool,
    /// What _bt_allequalimage says, for the metapage.
    pub all_equal_image: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { fillfactor: DEFAULT_FILLFACTOR, deduplicate: true, all_equal_image: true }
    }
}

/// Why a build has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError<E> {
    /// The sink's reason.
    Sink(E),
    /// An entry is not behind the one before it.
    Order,
    /// A row's tuple is longer than [`super::MAX_ITEM`]: _bt_check_third_page.
    TooLong {
        /// Its bytes.
        size: usize,
        /// The row.
        tid: Tid,
    },
    /// An entry is behind the one before it by its sort key only.
    Collation,
    /// More pages than there are block numbers.
    Full,
    /// There is no memory for what is to be known above the leaves of a part.
    Memory,
}

impl<E> From<E> for BuildError<E> {
    fn from(error: E) -> Self {
        Self::Sink(error)
    }
}

/// What has been built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    /// Pages, the metapage among them.
    pub pages: u32,
    /// Entries.
    pub entries: u64,
    /// Levels; 0 if there is no entry.
    pub levels: u32,
}
