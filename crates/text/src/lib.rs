//! The text of files: from bytes to records and fields, without a server.
//!
//! ```text
//!   bytes ──► window ──► scan::cut ──► scan::split ──► reader ──► fields
//!             verified   last line     field ends
//!             encoding   end
//!                 │          │              │
//!                 └──────────┴─ anything unusual ─► line, field: COPY's rules, one byte at a time
//! ```
//!
//! This crate does no I/O, does not allocate per record and does not call PostgreSQL: the extension passes bytes in and
//! takes fields. The fast path may leave input to the exact path but must never be wrong. The exact path supports
//! everything. Tests compare the two at every buffer size, and both with a naive reader of one page of code.

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

pub mod binary;
pub mod chunk;
pub mod dialect;
pub mod field;
pub mod file_kind;
pub mod fixed;
pub mod json_lines;
pub mod json_object;
pub mod json_text;
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
pub mod pattern;
pub mod reader;
pub mod record;
pub mod refine;
pub mod scan;
pub mod separator;
pub mod sniff;
pub mod template;
pub mod utf16;
pub mod verify;
pub mod walk;
pub mod window;
