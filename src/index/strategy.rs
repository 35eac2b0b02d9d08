//! How an index gets the new rows.

/// How an index gets the new rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexStrategy {
    /// Not at all: another session is building it, or has left it half built.
    None,
    /// Inserted in the order of keys.
    InsertSorted,
    /// Inserted in the order of keys, which were collected.
    InsertKeys,
    /// Inserted in the order of the heap.
    InsertRows,
    /// Rebuilt from the whole heap.
    Rebuild,
    /// Built from the collected keys.
    Build,
    /// Merged from the collected keys and the old entries.
    Merge,
    /// Inserted row by row in the order of the file, each after a search for conflicts.
    InsertChecked,
    /// Inserted row by row, after it is known which rows stay.
    InsertLate,
    /// Not at all: the index is only searched.
    SearchOnly,
}

impl IndexStrategy {
    /// Does the index get a new file?
    pub fn makes_file(self) -> bool {
        matches!(self, IndexStrategy::Rebuild | IndexStrategy::Build | IndexStrategy::Merge)
    }
}
