//! `bad001`, `bad1`, `bad10`: the rows of `test`, of which 0.01, 1 or 10 of 100 have a value that its type does not accept: a
//! number that is none, one that is too large, a date of a thirteenth month.
//!
//! What a load must leave in the table is what is left of the file without these rows; so that can be generated, too.

use super::test;
use crate::random::Random;

/// Appends one row in CSV, bad in so many of 10,000 cases; nothing for a bad one where only good ones are wanted.
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
        // The digits of the id are followed by ten more.
        1 => {
            let end = start + 1 + out[start + 1..].iter().position(|byte| *byte == b'"').unwrap_or(0);
            out.splice(end..end, *b"0000000000");
        }
        _ => {
            // "YYYY-MM-…" with its quote is at the end.
            let month = out.len() - b"12-01 00:00:00.000000\"\n".len();
            out[month..month + 2].copy_from_slice(b"13");
        }
    }
}
