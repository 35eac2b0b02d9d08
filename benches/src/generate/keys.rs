//! Tables for benchmarks of keys. `uuids`: a random uuid and a number. `words`: text in random order, with prefixes
//! that many rows share, as names and paths have them, so that comparing two takes more than their first bytes.

use crate::decimal;
use crate::random::Random;

const BEGINNINGS: [&[u8]; 8] =
    [b"customer/", b"customer/new/", b"supplier/", b"Archive/", b"archive/", b"x-", b"Z", b"order "];

/// Appends a row of `uuids` in CSV.
#[inline]
pub(super) fn uuid_row(out: &mut Vec<u8>, random: &mut Random, id: u64) {
    decimal::integer(out, id);
    out.push(b',');
    let start = out.len();
    random.md5(out);
    // 8-4-4-4-12 digits, version 4.
    for (at, byte) in [(8, b'-'), (13, b'-'), (18, b'-'), (23, b'-')] {
        out.insert(start + at, byte);
    }
    out[start + 14] = b'4';
    out[start + 19] = b"89ab"[random.below(4) as usize];
    out.push(b',');
    decimal::integer(out, random.below(1_000_000));
    out.push(b'\n');
}

/// Appends a row of `words` in CSV. The row's number at the end makes the key unique.
#[inline]
pub(super) fn word_row(out: &mut Vec<u8>, random: &mut Random, id: u64) {
    decimal::integer(out, id);
    out.push(b',');
    out.extend_from_slice(BEGINNINGS[random.below(8) as usize]);
    random.text_between(out, 4, 24);
    out.push(b'_');
    decimal::integer(out, id);
    out.push(b',');
    decimal::integer(out, random.below(1_000_000));
    out.push(b'\n');
}
