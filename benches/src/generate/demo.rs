//! `demo`: a number, a short word, a number. With 16 bytes a row, it measures the cost per row.

use crate::decimal;
use crate::random::Random;

/// Appends one row in text format.
#[inline]
pub(super) fn row(out: &mut Vec<u8>, random: &mut Random, id: u64) {
    decimal::integer(out, id);
    out.push(b'\t');
    random.text_between(out, 1, 7);
    out.push(b'\t');
    decimal::integer(out, random.below(1200));
    out.push(b'\n');
}
