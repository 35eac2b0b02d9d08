//! Rows of files: options, columns, the error filter, and the pump.
//!
//! ```text
//!   record ─► row: fields, decoders, defaults ─► row::pump: policy and sink
//!                                └─► soft: errors that belong to one record
//! ```
//!
//! The tricky point: input functions and defaults are user code. They run in plain frames, in the order of the file.

pub mod chunks;
pub mod column;
pub mod context;
pub mod copy_options;
#[cfg(feature = "points")]
pub mod decoding_trial;
pub mod file_chunks;
pub mod file_switch;
pub mod hazard;
pub mod hive;
pub mod line_parts;
pub mod objects;
pub mod parts;
pub mod ragged;
#[cfg(feature = "points")]
pub mod receiving_trial;
pub mod row;
pub mod sniff;
pub mod soft;
#[cfg(feature = "points")]
pub mod trial_input;
pub mod type_parts;
