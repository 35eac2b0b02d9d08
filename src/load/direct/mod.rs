//! The direct writer: rows into heap pages, by several processes, past shared buffers.
//!
//! ```text
//!                     ┌ leader: prepare ─ first record ─ start ─┐                          ┌─ settle
//!   file ─► stretches ┤                                         ├─ process ─ heap ─ append ┤
//!            (shared) └ worker: attach ─────────────────────────┘   (one each)             └─ leave
//! ```
//!
//! `shared` is what they share: who takes which stretch of the file, whose turn it is, which error counts. `chunks` turns
//! stretches into records, `process` records into rows of a `heap`, `wide` sees to the rows that are not for pages,
//! `defaults` to what the file does not say. `settle` does what has to wait for the rows: indexes, triggers, statistics.
//!
//! A load without workers is the same with one process, which reads the file in order.

mod call;
mod course;
mod defaults;
mod exclusive;
mod executor;
mod failure;
mod foreign_keys;
mod freeze;
mod heap;
mod held;
mod index_keys;
mod indexes;
mod join;
mod key_check;
mod key_query;
mod leader;
mod leaves;
mod losers;
mod new_files;
mod new_rows;
mod nodes;
mod offender;
mod origin;
mod orphans;
mod process;
mod projection;
mod rebuild;
mod rejects;
mod row_loop;
mod row_value;
mod settle;
mod shared;
mod spec;
mod statement;
mod suspects;
mod way;
mod wide;
mod worker;
mod workers;

pub use course::load;
pub use exclusive::{WORTH_EXCLUSIVE, renew};
pub use freeze::check_freeze;
pub use join::Joined;
pub use join::leaf::{Columns, in_place_of, register as register_leaf};
pub use leader::reading::workers_for;
pub use nodes::Nodes;
pub use projection::{Made, Projection, compute_read, filter};
pub use statement::Statement;
