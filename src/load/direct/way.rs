//! How an index comes by the rows.

use pgrx::pg_sys;

use super::index_keys::KeyStream;

/// How an index comes by the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It does not: it is being built, or was left half built, by somebody else.
    None,
    /// In the order of keys.
    Sorted(*mut pg_sys::Tuplesortstate),
    /// In the order of keys, out of those that were collected.
    Keyed(*mut KeyStream),
    /// In the order of the heap.
    RowByRow,
    /// From the whole heap.
    Rebuilt,
    /// From the keys that were collected.
    Built,
    /// From these and what it had.
    Merged,
    /// Row by row in the order of the file, once nothing is found in the way.
    Careful,
    /// Row by row, when it is known which rows stay.
    Late,
    /// It does not: it is only asked.
    Asked,
}

impl Way {
    /// Does the index get a new file?
    pub fn makes_file(self) -> bool {
        matches!(self, Way::Rebuilt | Way::Built | Way::Merged)
    }
}
