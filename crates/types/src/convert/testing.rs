//! Helpers of tests that read by-reference values.

use pg_bulk_text::json_text::Charset;

use super::{Datum, Session};

/// UTF-8, and settings under which no text has a special meaning.
pub(crate) const SESSION: Session =
    Session { charset: Charset::Utf8, zone_letters: false, utc: false, interval_sql_standard: false };

/// Returns the `len` bytes at a datum. Their arena must still exist.
#[allow(unsafe_code, reason = "the server reads values by their address, and so must a test")]
pub(crate) fn bytes_at(datum: Datum, len: usize) -> Vec<u8> {
    assert_eq!(datum % 8, 0, "aligned");
    // SAFETY: every caller passes the datum of a value of `len` bytes in an arena that it still holds.
    unsafe { std::slice::from_raw_parts(datum as *const u8, len) }.to_vec()
}

/// Returns a whole varlena with its header.
pub(crate) fn varlena_bytes(datum: Datum) -> Vec<u8> {
    let header = u32::from_le_bytes(bytes_at(datum, 4).try_into().unwrap());
    assert_eq!(header & 3, 0, "a plain four-byte header");
    bytes_at(datum, (header >> 2) as usize)
}

/// Returns a varlena without its header.
pub(crate) fn body(datum: Datum) -> Vec<u8> {
    varlena_bytes(datum).split_off(4)
}
