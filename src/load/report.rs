//! What a load has to say when it is done.

/// What a writer counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Rows that are in the table now.
    pub loaded: u64,
    /// Rows with bad values, left out.
    pub rejected: u64,
    /// Rows whose key was there before, left out.
    pub duplicate: u64,
    /// Rows that `where` or a trigger left out.
    pub filtered: u64,
    pub bytes_read: u64,
    /// Processes besides the one that was called.
    pub workers: usize,
    /// What is worth knowing about how it went, one sentence each.
    pub notes: Vec<String>,
    pub indexes: Vec<IndexReport>,
}

/// How an index came by the new rows.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexReport {
    pub name: String,
    /// `insert`, `merge` or `rebuild`.
    pub method: &'static str,
    pub seconds: f64,
}
