//! Loads: files into tables.

pub mod options;
pub mod report;
pub mod source;
