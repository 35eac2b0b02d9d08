//! `documents`: a number, a word, a time, and a JSON document in pretty-printed form, with many line ends. In CSV its
//! quotes are doubled, and most line ends of the file are within a record.

use crate::decimal;
use crate::random::Random;

const KINDS: [&[u8]; 4] = [b"order", b"offer", b"invoice", b"return"];

/// Appends one row in CSV.
#[inline]
pub(super) fn row(out: &mut Vec<u8>, random: &mut Random, id: u64) {
    let kind = KINDS[random.below(4) as usize];
    decimal::integer(out, id);
    out.push(b',');
    out.extend_from_slice(kind);
    out.push(b',');
    decimal::date_and_time(out, random.number());
    out.extend_from_slice(b",\"{\n  \"\"kind\"\": \"\"");
    out.extend_from_slice(kind);
    out.extend_from_slice(b"\"\",\n  \"\"number\"\": ");
    decimal::integer(out, random.below(1_000_000_000));
    out.extend_from_slice(b",\n  \"\"customer\"\": {\n    \"\"name\"\": \"\"");
    random.text_between(out, 8, 30);
    out.extend_from_slice(b"\"\",\n    \"\"regular\"\": ");
    out.extend_from_slice(if random.chance(50) { b"true" } else { b"false" });
    out.extend_from_slice(b"\n  },\n  \"\"items\"\": [");
    for item in 0..random.between(1, 6) {
        out.extend_from_slice(if item == 0 { b"\n    {\n" } else { b",\n    {\n" });
        out.extend_from_slice(b"      \"\"article\"\": \"\"");
        random.text_between(out, 6, 20);
        out.extend_from_slice(b"\"\",\n      \"\"count\"\": ");
        decimal::integer(out, random.between(1, 20));
        out.extend_from_slice(b",\n      \"\"price\"\": ");
        decimal::fixed(out, random.below(100_000), 2);
        out.extend_from_slice(b"\n    }");
    }
    out.extend_from_slice(b"\n  ]\n}\"\n");
}
