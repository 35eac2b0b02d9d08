//! Fuzz target: see [`pg_bulk_fuzz::chunks`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pg_bulk_fuzz::chunks::run(input));
