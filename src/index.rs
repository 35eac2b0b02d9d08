//! Indexes: keys collected and sorted, new files, and leaves of indexes in use.
//!
//! ```text
//!   rows ─► index_keys: runs of sorted keys ─┬► index_file: a new file, page by page
//!                                            └► leaf: many tuples at once into an index that others use
//! ```
//!
//! The tricky point: a new file may have any page in any order, but an index in use keeps nbtree's rules at every step.

pub mod index_file;
pub mod index_keys;
pub mod key_conflicts;
pub mod leaf;
pub mod number_sort;
pub mod shared_sorts;
pub mod sorted_tuples;
pub mod strategy;
pub mod tuple_sort;
pub mod violating_row;
