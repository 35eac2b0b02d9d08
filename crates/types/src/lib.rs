//! Types: from fields to datums, without a server.
//!
//! ```text
//!   fields ──► convert: one decoder a type ──► datums in an arena
//!   records ─► block: many rows, a column at a time
//! ```
//!
//! A decoder returns the datum that the type's input function would return, or nothing. Then the server's function decides.

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

pub mod arena;
pub mod block;
pub mod convert;
pub mod json_array;
pub mod raw;
