//! Storage: from datums to heap tuples, pages and B-trees, without a server.
//!
//! ```text
//!   datums ──► tuple ──► page: a heap page, and the WAL that describes it
//!   keys ────► btree: sort, merge, uniqueness, the pages that CREATE INDEX would write
//! ```
//!
//! The bytes are those of the server, and tests compare them with files that the server wrote.

// Code that SQL reaches must not panic. Each exception states why it cannot fail.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::todo,
        clippy::unimplemented,
        clippy::indexing_slicing
    )
)]

pub mod btree;
pub mod id_range;
pub mod page;
pub mod tuple;
