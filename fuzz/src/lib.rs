//! What the fuzz targets do with an input, as plain functions.
//!
//! ```text
//! tools/fuzz reader decode         those targets, a minute in all; PG_BULK_SECONDS=600 for longer
//! tools/fuzz                       all of them
//! ```
//!
//! A function panics where something is wrong; the sanitizer sees the rest. An input is a head of a few bytes that
//! chooses dialect, sizes or type, and the data, so that the fuzzer can change one without the other. The parser's
//! tests include this file and run all on random inputs (src/format/tests/fuzz_smoke.rs), so that it neither rots nor
//! waits for a fuzzer to find what is easy to find; they also run all that is in `corpus/`. The target `frames`, which needs
//! the decoders of compressed files, is for itself.
//!
//! Where a server's own functions are to say what is right, the target runs in one: the crate in server/.

pub mod binary;
pub mod block;
pub mod count;
pub mod decode;
pub mod forms;
pub mod json;
pub mod page;
pub mod reader;
mod reference;
pub mod scan;
pub mod sniff;
pub mod stretches;
