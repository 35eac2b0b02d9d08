//! The fuzz targets as plain functions of an input.
//!
//! ```text
//! tools/fuzz reader decode         those targets, a minute in all; PG_BULK_SECONDS=600 for longer
//! tools/fuzz                       all of them
//! ```
//!
//! A function panics if a result is wrong; the sanitizer finds invalid memory accesses. An input is a head of a few
//! bytes, which chooses dialect, sizes or type, and the data, so that the fuzzer can change one without the other. The
//! parser's tests include this file and run all targets on random inputs (crates/storage/tests/fuzz_smoke.rs). So the
//! targets always compile, and obvious mistakes are found without a fuzzer. These tests also run all inputs in
//! `corpus/`. The target `frames` is a program of its own, because it needs the decoders of compressed files.
//!
//! Targets that compare results with a server's own functions run within a server: the crate in server/.

pub mod binary;
pub mod block;
pub mod chunks;
pub mod count;
pub mod decode;
pub mod forms;
pub mod json;
pub mod page;
pub mod reader;
mod reference;
pub mod scan;
pub mod sniff;
