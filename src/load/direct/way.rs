//! How an index gets the new rows.

use pgrx::pg_sys;

use super::index_keys::KeyStream;

/// How an index gets the new rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Not at all: another session is building it, or has left it half built.
    None,
    /// Inserted in the order of keys.
    Sorted(*mut pg_sys::Tuplesortstate),
    /// Inserted in the order of keys, which were collected.
    Keyed(*mut KeyStream),
    /// Inserted in the order of the heap.
    RowByRow,
    /// Rebuilt from the whole heap.
    Rebuilt,
    /// Built from the collected keys.
    Built,
    /// Merged from the collected keys and the old entries.
    Merged,
    /// Inserted row by row in the order of the file, each after a search for conflicts.
    Careful,
    /// Inserted row by row, after it is known which rows stay.
    Late,
    /// Not at all: the index is only searched.
    Asked,
}

impl Way {
    /// Does the index get a new file?
    pub fn makes_file(self) -> bool {
        matches!(self, Way::Rebuilt | Way::Built | Way::Merged)
    }
}
