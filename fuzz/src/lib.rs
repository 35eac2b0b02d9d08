//! What the fuzz targets do with an input, as plain functions.
//!
//! ```text
//! cargo install cargo-fuzz
//! cargo +nightly fuzz run reader -- -max_len=4096 -max_total_time=600
//! cargo +nightly fuzz run stretches -- -max_len=4096 -max_total_time=600
//! cargo +nightly fuzz run decode -- -max_len=256 -max_total_time=600
//! ```
//!
//! A function panics where something is wrong; the sanitizer sees the rest. An input is a head of a few bytes that
//! chooses dialect, sizes or type, and the data, so that the fuzzer can change one without the other. The parser's
//! tests include this file and run all on random inputs (src/format/tests/fuzz_smoke.rs), so that it neither rots nor
//! waits for a nightly toolchain to find what is easy to find.

pub mod decode;
pub mod reader;
mod reference;
pub mod stretches;
