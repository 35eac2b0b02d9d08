//! `bad001`, `bad1`, `bad10`: the rows of `test`, of which 0.01, 1 or 10 percent have an invalid value: not a number, a
//! number that is too large, or a date with month 13.
//!
//! A load must leave the other rows in the table, so a file of these can be generated, too.

use super::test;
use crate::random::Random;

/// Appends one row in CSV, which is invalid in `bad` of 10,000 cases. With `good_only`, appends nothing in these cases.
#[inline]
pub(super) fn row(out: &mut Vec<u8>, random: &mut Random, id: u64, bad: u64, good_only: bool) {
    let start = out.len();
    test::row(out, random, id);
    if random.below(10_000) >= bad {
        return;
    }
    if good_only {
        out.truncate(start);
        return;
    }
    match random.below(3) {
        0 => out[start + 1] = b'x',
        // Ten more digits follow those of the id.
        1 => {
            let end = start + 1 + out[start + 1..].iter().position(|byte| *byte == b'"').unwrap_or(0);
            out.splice(end..end, *b"0000000000");
        }
        _ => {
            // The row ends with "YYYY-MM-…" and its quote.
            let month = out.len() - b"12-01 00:00:00.000000\"\n".len();
            out[month..month + 2].copy_from_slice(b"13");
        }
    }
}
