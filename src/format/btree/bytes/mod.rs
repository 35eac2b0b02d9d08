//! B-trees of keys that are bytes: bytea, text whose order is that of its bytes or that has sort keys, and columns of fixed
//! width beside them.
//!
//! ```text
//!   heap pages ──► read ──► store ──► runs ──► merge ──► unique ──► build ──► pages
//!                  Reader   records   sorted             judge      Builder   (block, bytes)
//!   leaf pages ──► leaf ────────────────┘
//! ```
//!
//! A key of several columns is one string of bytes whose order, that of memcmp, is the index's order, and from which the
//! columns' bytes can be had back: [`shape::ByteShape`]. So nothing between the heap and the index's pages knows of columns.
//! Keys travel with their rows in *records*, one after the other: [`record`]. What is in memory, in a temporary file and
//! between the steps are records.
//!
//! The tricky point is memory. Only records gather; what is needed to sort them is made when they are sorted, and counted
//! from the start ([`store::Store`]). Where keys come in order nothing of it is needed.
//!
//! Not every key is taken: core compresses long ones, and fetches those that are stored elsewhere. They are no keys here,
//! and the index is for others to build.

pub mod build;
pub mod collator;
pub mod leaf;
pub mod merge;
pub mod read;
pub mod record;
pub mod shape;
pub mod store;
mod tuple;
pub mod unique;
