//! The direct writer: several processes build heap pages from records and append them past shared buffers.
//!
//! ```text
//!                      ┌ leader: prepare ─ first record ─ start ─┐                          ┌─ finalize
//!   file ─► chunks ────┤                                         ├─ process ─ heap ─ append ┤
//!            (shared)  └ worker: attach ─────────────────────────┘   (one each)             └─ leave
//! ```
//!
//! `spec` holds what the processes of a load share: the chunk of each process, the current ticket (the chunk that is
//! cut next), and the error that comes first in the file. `chunks` splits chunks into records, and `process` makes rows
//! of a `heap` from records. `wide` handles rows that TOAST must shorten; `defaults` computes columns that the file
//! does not have. `finalize` finalizes the load after the rows: indexes, foreign keys, triggers, statistics.
//!
//! Without workers, the leader alone reads the file in order and does the same steps.

mod executor;
mod finalize;
mod foreign_keys;
mod heap;
mod held;
mod indexes;
mod join;
mod key_check;
mod key_query;
pub mod leader;
mod new_files;
mod new_rows;
mod origin;
mod process;
mod rebuild;
mod rejects;
mod removed_rows;
mod row_loop;
mod spec;
pub mod steps;
mod wide;
mod worker;
pub mod workers;

pub use crate::heap::freeze::check_freeze;
pub use executor::Statement;
pub use join::Joined;
pub use join::leaf::{Columns, in_place_of, register as register_leaf};
pub use leader::prepare::workers_for;
pub use new_files::{WORTH_EXCLUSIVE, renew};
pub use steps::load;
