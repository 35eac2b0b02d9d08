//! Heap files: pages appended past shared buffers, TOAST, and the removal of rows of this transaction.
//!
//! ```text
//!   rows ─► toast ─► pages ─► append: WAL, then the segment
//!   rejects and duplicates ─► removal
//! ```
//!
//! The tricky point: a page past the end of the file has no buffer. It must not be visible before its WAL is written.

pub mod append;
pub mod append_lock;
pub mod freeze;
pub mod leaves;
pub mod removal;
pub mod segment;
pub mod toast;
