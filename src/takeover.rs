//! Statements that pg_bulk runs as loads: `INSERT … SELECT`, `CREATE TABLE … AS`, and `COPY … FROM`.
//!
//! The tricky point: the statement's result, errors and rights must be those of the server. Each has an eligibility check.

pub mod copy;
pub mod insert_select;
