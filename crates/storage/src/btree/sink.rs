//! Options of a build, the target of its pages, and its result.

use super::DEFAULT_FILLFACTOR;
use super::entry::Tid;
pub use crate::page::Page;

/// Takes the pages of a tree.
pub trait PageSink {
    /// Why a page cannot be written.
    type Error;

    /// Takes a complete page, whose pd_lsn and pd_checksum are 0 and may be set in place. Pages come in any order of
    /// blocks, each one once, and none is missing in the end.
    ///
    /// # Errors
    /// An error of the sink, which ends the build.
    fn page(&mut self, block: u32, page: &mut Page) -> Result<(), Self::Error>;
}

/// The blocks of a tree under construction, each returned once.
pub trait BlockSource: std::fmt::Debug {
    /// Returns the next block; `None` if there are no more.
    fn next(&mut self) -> Option<u32>;
}

/// Properties of an index that affect its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Storage parameter fillfactor, 10 to 100.
    pub fillfactor: usize,
    /// Equal keys get a posting list: _bt_allequalimage is true, deduplicate_items is on, and the index is not unique.
    pub deduplicate: bool,
    /// The result of _bt_allequalimage, for the metapage.
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
    /// An error of the sink.
    Sink(E),
    /// An entry is not behind the one before it.
    Order,
    /// A row's tuple is longer than [`super::MAX_ITEM`]: _bt_check_third_page.
    TooLong {
        /// Its size in bytes.
        size: usize,
        /// The row.
        tid: Tid,
    },
    /// An entry is behind the one before it by its sort key, but not by comparing the strings.
    Collation,
    /// The tree needs more pages than there are block numbers.
    Full,
    /// Memory for the tuples above the leaves of a part is exhausted.
    Memory,
}

impl<E> From<E> for BuildError<E> {
    fn from(error: E) -> Self {
        Self::Sink(error)
    }
}

/// A completed tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    /// Number of pages, with the metapage.
    pub pages: u32,
    /// Number of entries.
    pub entries: u64,
    /// Number of levels; 0 without entries.
    pub levels: u32,
}
