//! Pure part of pg_bulk.

pub mod arena;
pub mod convert;
