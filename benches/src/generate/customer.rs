//! `customer`: the customer table of DBT-2 (TPC-C clause 4.3.3). Text makes up nine tenths of its bytes.
//!
//! Two columns differ from TPC-C because of the indexes. c_id ascends over the whole file instead of within a district,
//! so that it is a key on its own. c_payment_cnt is random, so that an index on it cannot profit from order.

use crate::decimal;
use crate::random::Random;

/// The syllables of a last name, one per decimal digit of its number (TPC-C clause 4.3.2.3).
const SYLLABLES: [&[u8]; 10] =
    [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];

/// Number of customers of a district, and of districts of a warehouse.
const CUSTOMERS: u64 = 3000;
const DISTRICTS: u64 = 10;

/// Appends one row in CSV. Fields are not quoted: no value contains a comma.
#[inline]
pub(super) fn row(out: &mut Vec<u8>, random: &mut Random, id: u64) {
    let district = id / CUSTOMERS;
    decimal::integer(out, id);
    out.push(b',');
    decimal::integer(out, 1 + district % DISTRICTS);
    out.push(b',');
    decimal::integer(out, 1 + district / DISTRICTS);
    out.push(b',');
    random.text_between(out, 8, 16);
    out.extend_from_slice(b",OE,");
    let name = random.below(1000);
    for digit in [name / 100, name / 10 % 10, name % 10] {
        out.extend_from_slice(SYLLABLES[digit as usize]);
    }
    // Two streets and a city.
    for _ in 0..3 {
        out.push(b',');
        random.text_between(out, 10, 20);
    }
    out.push(b',');
    out.push(b'A' + random.below(26) as u8);
    out.push(b'A' + random.below(26) as u8);
    out.push(b',');
    decimal::padded(out, random.below(10_000), 4);
    out.extend_from_slice(b"11111,");
    decimal::padded(out, random.below(10_000_000_000_000_000), 16);
    out.push(b',');
    decimal::date_and_time(out, random.number());
    out.extend_from_slice(if random.chance(10) { b",BC," } else { b",GC," });
    // c_credit_lim, c_discount, c_balance, c_ytd_payment
    out.extend_from_slice(b"50000.00,");
    decimal::fixed(out, random.below(5001), 4);
    out.extend_from_slice(b",-");
    decimal::fixed(out, random.between(100, 99_999), 2);
    out.push(b',');
    decimal::fixed(out, random.between(100, 99_999), 2);
    out.push(b',');
    // c_payment_cnt, c_delivery_cnt
    decimal::integer(out, random.below(1_000_000));
    out.push(b',');
    decimal::integer(out, random.below(10));
    out.push(b',');
    random.text_between(out, 300, 500);
    out.push(b'\n');
}
