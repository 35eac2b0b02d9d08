//! B-trees whose keys are bytes: bytea, text with a memcmp order or with sort keys, and columns of fixed width beside
//! them.
//!
//! ```text
//!   heap pages ──► read ──► store ──► runs ──► merge ──► unique ──► build ──► pages
//!                  reader   records   sorted             check      Builder   (block, bytes)
//!   leaf pages ──► leaf ────────────────┘
//! ```
//!
//! A key of several columns is one string of bytes whose memcmp order is the index's order, and from which the columns'
//! bytes can be restored: [`shape::ByteShape`]. So no step between the heap and the index pages deals with columns.
//! Keys and their rows are consecutive *records* ([`record`]), in memory, in temporary files and between the steps.
//!
//! The tricky point is memory. Only records are collected. The memory to sort them is allocated when they are sorted,
//! and is counted from the start ([`store::Store`]). If keys come in order, it is not needed.
//!
//! Not every key is supported. Core compresses long values and fetches those that are stored out of line. Such values
//! make the caller build the index without this module.

mod build;
pub mod collator;
pub mod read;
pub mod record;
pub mod shape;
pub mod store;
mod tuple;
