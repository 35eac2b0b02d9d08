//! `test`: a number, a hash, a timestamp with microseconds; CSV with every field quoted.

use crate::decimal;
use crate::random::Random;

/// Appends one row in CSV.
#[inline]
pub(super) fn row(out: &mut Vec<u8>, random: &mut Random, id: u64) {
    out.push(b'"');
    decimal::integer(out, id);
    out.extend_from_slice(b"\",\"");
    random.md5(out);
    out.extend_from_slice(b"\",\"");
    decimal::date_and_time(out, random.number());
    out.push(b'.');
    decimal::padded(out, random.below(1_000_000), 6);
    out.extend_from_slice(b"\"\n");
}
