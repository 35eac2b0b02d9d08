//! Bench tools of pg_bulk.
