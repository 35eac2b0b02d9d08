//! `lineitem`: the largest table of TPC-H, as its generator writes it, without the delimiter at the end of each line;
//! and `lineitem_quoted`: the same rows in CSV with every field quoted.
//!
//! It differs from TPC-H in one property: each order has four lines instead of one to seven, so that a row's key
//! follows from its number.

use crate::decimal;
use crate::random::Random;

const INSTRUCTIONS: [&[u8]; 4] = [b"DELIVER IN PERSON", b"COLLECT COD", b"NONE", b"TAKE BACK RETURN"];
const MODES: [&[u8]; 7] = [b"REG AIR", b"AIR", b"RAIL", b"SHIP", b"TRUCK", b"MAIL", b"FOB"];

/// Number of lines of an order.
const LINES: u64 = 4;

/// How fields are separated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Bare, with bars between them.
    Bars,
    /// Quoted, with commas between them.
    Quotes,
}

/// Appends one row.
#[inline]
pub(super) fn row(out: &mut Vec<u8>, random: &mut Random, id: u64, style: Style) {
    let next = |out: &mut Vec<u8>| {
        let between: &[u8] = if style == Style::Bars { b"|" } else { b"\",\"" };
        out.extend_from_slice(between);
    };
    if style == Style::Quotes {
        out.push(b'"');
    }
    let number = id - 1;
    decimal::integer(out, number / LINES + 1);
    next(out);
    decimal::integer(out, random.between(1, 200_000));
    next(out);
    decimal::integer(out, random.between(1, 10_000));
    next(out);
    decimal::integer(out, number % LINES + 1);
    next(out);
    // Quantity, price, discount, tax.
    decimal::integer(out, random.between(1, 50));
    out.extend_from_slice(b".00");
    next(out);
    decimal::fixed(out, random.between(90_000, 10_500_000), 2);
    next(out);
    decimal::fixed(out, random.below(11), 2);
    next(out);
    decimal::fixed(out, random.below(9), 2);
    next(out);
    out.push(b"NRA"[random.below(3) as usize]);
    next(out);
    out.push(b"OF"[random.below(2) as usize]);
    // Shipped, promised, received.
    for _ in 0..3 {
        next(out);
        decimal::date_and_time(out, random.number());
        out.truncate(out.len() - b" 00:00:00".len());
    }
    next(out);
    out.extend_from_slice(INSTRUCTIONS[random.below(4) as usize]);
    next(out);
    out.extend_from_slice(MODES[random.below(7) as usize]);
    next(out);
    random.text_between(out, 10, 43);
    if style == Style::Quotes {
        out.push(b'"');
    }
    out.push(b'\n');
}
