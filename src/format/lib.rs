//! The pure part of pg_bulk: what a file means, and what its fields are worth, without a server.
//!
//! ```text
//!   bytes ──► window ──► scan::cut ──► scan::split ──► reader ──► convert ──► datums
//!             verified   last line     field ends      values     (arena)
//!             encoding   end
//!                 │          │              │
//!                 └──────────┴─ anything unusual ─► line, field: COPY's rules, one byte at a time
//! ```
//!
//! Datums become heap tuples in [`mod@tuple`], and these become pages and their WAL in [`page`].
//!
//! Nothing here does I/O, allocates per record, or knows PostgreSQL: the extension feeds bytes and takes datums.
//! The fast path must only ever be right; the exact path must know everything. Tests hold the two against each other
//! at every buffer size, and both against a naive reader that fits on a page.

// Nothing that SQL reaches may panic: where it is certain that a thing cannot fail, the place says why.
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
pub mod binary;
pub mod block;
pub mod btree;
pub mod chunk;
pub mod convert;
pub mod dialect;
pub mod field;
pub mod fixed;
pub mod id_range;
pub mod json_array;
pub mod json_object;
pub mod line;
#[doc(hidden)]
#[allow(
    clippy::missing_panics_doc,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "an oracle of tests"
)]
pub mod naive;
pub mod number;
pub mod page;
pub mod pattern;
pub mod raw;
pub mod reader;
pub mod record;
pub mod refine;
pub mod scan;
pub mod separator;
pub mod sniff;
pub mod template;
pub mod tuple;
pub mod verify;
pub mod walk;
pub mod window;
