//! `extract`: 29 columns, as a ledger exports them. Values are short and often missing, so it measures the cost per
//! field.
//!
//! The columns in order: 12 integers, one text, one bit, eight numerics of scale 2, seven of scale 6. All but the id
//! may be null, which is the empty string.

use crate::decimal;
use crate::random::Random;

/// Upper bounds of the integers behind the id: keys and codes of different widths, flags and counters.
const INTEGERS: [u64; 11] = [500, 1_000_000, 40, 366, 24, 10, 2, 100, 5, 20, 3];

/// Number of amounts with two decimals, and of rates with six.
const AMOUNTS: usize = 8;
const RATES: usize = 7;

/// Appends one row in text format.
#[inline]
pub(super) fn row(out: &mut Vec<u8>, random: &mut Random, id: u64) {
    decimal::integer(out, id);
    for bound in INTEGERS {
        out.push(b'\t');
        if !random.chance(5) {
            decimal::integer(out, random.below(bound));
        }
    }
    out.push(b'\t');
    if !random.chance(10) {
        random.text_between(out, 4, 16);
    }
    out.push(b'\t');
    if !random.chance(5) {
        out.push(b'0' + random.below(2) as u8);
    }
    for _ in 0..AMOUNTS {
        out.push(b'\t');
        if !random.chance(40) {
            if random.chance(20) {
                out.push(b'-');
            }
            decimal::fixed(out, random.below(100_000), 2);
        }
    }
    for _ in 0..RATES {
        out.push(b'\t');
        if !random.chance(60) {
            decimal::fixed(out, random.below(5_000_000), 6);
        }
    }
    out.push(b'\n');
}
