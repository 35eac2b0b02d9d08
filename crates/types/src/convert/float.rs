//! float4 and float8: `[+-]digits[.digits][e[+-]digits]`.
//!
//! std's parser rounds correctly, as does the C library's parser in the server. So both return the same bits for each
//! text that both accept. A float4 is rounded once, from the text. Texts that the parsers treat differently are left to
//! the server: NaN, infinities, hexadecimal digits, white space. Overflow and underflow to zero are errors in the
//! server.

use super::{Datum, digits, numeric};

/// Checks that the text matches the grammar above, where digits before the point may be missing. Returns whether all
/// digits are zero.
#[inline]
fn grammar(field: &[u8]) -> Option<bool> {
    let body = match field {
        [b'+' | b'-', rest @ ..] => rest,
        _ => field,
    };
    let (whole, rest) = run(body);
    let (fraction, rest) = match rest {
        [b'.', rest @ ..] => run(rest),
        _ => (&[][..], rest),
    };
    if let [b'e' | b'E', rest @ ..] = rest {
        let exponent = match rest {
            [b'+' | b'-', rest @ ..] => rest,
            _ => rest,
        };
        // Longer exponents are out of range, except with zero.
        if !(1..=4).contains(&exponent.len()) || !run(exponent).1.is_empty() {
            return None;
        }
    } else if !rest.is_empty() {
        return None;
    }
    // strtod accepts `5.`, but it is rare.
    if fraction.is_empty() && (whole.is_empty() || body.get(whole.len()) == Some(&b'.')) {
        return None;
    }
    Some(whole.iter().chain(fraction).all(|&b| b == b'0'))
}

/// Splits off the digits at the start.
#[inline]
fn run(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, &[]))
}

/// Reads `[+-]digits[.digits]` with at most eight and seven digits. Returns the sign, all digits as one number, and the
/// number of digits behind the point.
///
/// The number is below 2^53, and so is the power of ten. So one division rounds once, correctly.
#[inline(always)]
fn short(field: &[u8]) -> Option<(bool, u64, usize)> {
    let (negative, whole, fraction) = numeric::split(field)?;
    let places = fraction.len();
    // The point is a part of the field, which shows that this is `5.`.
    if !(1..=8).contains(&whole.len()) || places > 7 || (places == 0 && field.last() == Some(&b'.')) {
        return None;
    }
    let (x, y) = (digits::at_end(whole), digits::at_end(fraction));
    if !digits::are_digits(x) || !digits::are_digits(y) {
        return None;
    }
    let unit = *POWERS.get(places)?;
    Some((negative, digits::value(x) * unit + digits::value(y), places))
}

/// The powers of ten for the decimal places of a short number.
const POWERS: [u64; 8] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000];

/// float8
#[inline]
pub(super) fn float8(field: &[u8]) -> Option<Datum> {
    if let Some((negative, number, places)) = short(field) {
        let v = number as f64 / *POWERS.get(places)? as f64;
        return Some((if negative { -v } else { v }).to_bits());
    }
    let zero = grammar(field)?;
    let v: f64 = std::str::from_utf8(field).ok()?.parse().ok()?;
    (v.is_finite() && (v != 0.0 || zero)).then(|| v.to_bits())
}

/// float4, sign-extended in the datum as an int4 is.
#[inline]
pub(super) fn float4(field: &[u8]) -> Option<Datum> {
    if let Some((negative, number, places)) = short(field)
        && number < 1 << 24
    {
        // Both operands are exact in single precision, too.
        let v = number as f32 / *POWERS.get(places)? as f32;
        return Some((if negative { -v } else { v }).to_bits() as i32 as Datum);
    }
    let zero = grammar(field)?;
    let v: f32 = std::str::from_utf8(field).ok()?.parse().ok()?;
    (v.is_finite() && (v != 0.0 || zero)).then(|| v.to_bits() as i32 as Datum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepted() {
        for (t, v) in [
            ("0", 0.0),
            ("-0", -0.0),
            ("0e9", 0.0),
            ("1", 1.0),
            ("+1.5", 1.5),
            (".5", 0.5),
            ("-.5e1", -5.0),
            ("1E-2", 0.01),
            ("1e+3", 1000.0),
            ("123456789.125", 123_456_789.125),
        ] {
            assert_eq!(float8(t.as_bytes()), Some(f64::to_bits(v)), "{t}");
            assert_eq!(float4(t.as_bytes()), Some((v as f32).to_bits() as i32 as Datum), "{t}");
        }
        assert_eq!(float8(b"1e308"), Some(1e308f64.to_bits()));
        assert_eq!(float8(b"5e-324"), Some(1));
        assert_eq!(float4(b"1e-45"), Some(1));
        // Rounding to a double first would make the result one bit lower.
        assert_eq!(float4(b"1.00000017881393432617187499"), Some(0x3f80_0001));
        assert_eq!(float4(b"1.00000017881393432617187501"), Some(0x3f80_0002));
    }

    #[test]
    fn refused() {
        for t in [
            "", "+", "-", ".", "5.", "5.e1", "e5", ".e5", "1e", "1e+", "1e5.0", "1e12345", "nan", "NaN", "inf",
            "infinity", "-inf", "0x10", "0x1p3", "1_0", " 1", "1 ", "1,5", "1f", "--1", "1e--1", "1.2.3", "1e400",
            "-1e400", "1e-400", "\u{661}",
        ] {
            assert_eq!(float8(t.as_bytes()), None, "{t}");
            assert_eq!(float4(t.as_bytes()), None, "{t}");
        }
        assert_eq!(float4(b"1e39"), None);
        assert_eq!(float4(b"1e-46"), None);
    }

    proptest! {
        #[test]
        fn shortest_text_reads_back(bits in any::<u64>(), small in any::<u32>()) {
            let (v, w) = (f64::from_bits(bits), f32::from_bits(small));
            for t in [format!("{v}"), format!("{v:e}")] {
                prop_assert_eq!(float8(t.as_bytes()), v.is_finite().then_some(bits));
            }
            for t in [format!("{w}"), format!("{w:e}")] {
                prop_assert_eq!(float4(t.as_bytes()), w.is_finite().then_some(small as i32 as Datum));
            }
        }

        #[test]
        fn quotients_are_rounded_once(m in 0..1u64 << 53, places in 0..=22usize) {
            // Both operands are exact, so their quotient is the correctly rounded value of the text.
            let t = format!("{m}e-{places}");
            let expected = m as f64 / 10f64.powi(places as i32);
            prop_assert_eq!(float8(t.as_bytes()), Some(expected.to_bits()));
        }

        #[test]
        fn short_is_std(text in "[+-]?[0-9]{1,9}(\\.[0-9]{1,8})?") {
            prop_assert_eq!(float8(text.as_bytes()), text.parse::<f64>().ok().map(f64::to_bits));
            prop_assert_eq!(float4(text.as_bytes()), text.parse::<f32>().ok().map(|v| v.to_bits() as i32 as Datum));
        }

        #[test]
        fn anything(field in prop::collection::vec(prop::sample::select(b"0123456789.-+eEx_ naif\xe9".to_vec()), 0..16)) {
            prop_assert!(float8(&field).is_some() || float4(&field).is_none_or(|_| field.contains(&b'e') || field.contains(&b'E')));
        }
    }
}
