//! Code shared by the bench programs of pg_bulk.
//!
//! Two programs use this crate. `generate` writes the input files of the side-by-side harness: [`generate`] has the
//! workloads, and [`random`] and [`decimal`] make it faster than a disk. `floor` does only the steps that no loader can
//! leave out: read, split, convert, build pages, write heap and WAL, sync. [`record`] reads the rows of the workload
//! `test`, and [`heap`] makes pages of them. The harness itself is `load/run`.

pub mod decimal;
pub mod generate;
pub mod heap;
pub mod random;
pub mod record;
