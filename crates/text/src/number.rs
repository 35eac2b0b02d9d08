//! Binary numbers as other programs store them: integers of one to eight bytes, floats of four and eight, in either
//! byte order.
//!
//! They become text, which the types' decoders and input functions read. So a number out of a column's range fails with
//! the type's own message, and the column may also be of another type, such as text. Integers are exact. Floats have
//! the fewest digits that read back as the same value.

use std::io::Write;

/// Byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The lowest byte comes first.
    Little,
    /// The highest byte comes first.
    Big,
}

/// A kind of number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// An integer in two's complement.
    Signed(Order),
    /// An integer without a sign.
    Unsigned(Order),
    /// An IEEE 754 float, single or double by its number of bytes.
    Float(Order),
    /// A float for a column of double precision. A single gets the digits of the double that equals it.
    Double(Order),
}

impl Number {
    /// Appends the text of a number. `bytes`: up to eight of an integer, four or eight of a float.
    pub fn write(self, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(spare) = 8usize.checked_sub(bytes.len()) else { return };
        let (Number::Signed(order) | Number::Unsigned(order) | Number::Float(order) | Number::Double(order)) = self;
        let mut word = [0; 8];
        let at = if order == Order::Big { spare..8 } else { 0..bytes.len() };
        if let Some(to) = word.get_mut(at) {
            to.copy_from_slice(bytes);
        }
        let bits = if order == Order::Big { u64::from_be_bytes(word) } else { u64::from_le_bytes(word) };
        // Writing to a Vec cannot fail.
        let _ = match self {
            Number::Unsigned(_) => write!(out, "{bits}"),
            Number::Signed(_) => {
                let unused = 8 * spare as u32;
                // No bytes mean zero.
                let number = bits.checked_shl(unused).unwrap_or(0).cast_signed() >> unused.min(63);
                write!(out, "{number}")
            }
            Number::Float(_) if bytes.len() == 4 => write_single(f32::from_bits(bits as u32), out),
            Number::Double(_) if bytes.len() == 4 => write_double(f32::from_bits(bits as u32).into(), out),
            Number::Float(_) | Number::Double(_) => write_double(f64::from_bits(bits), out),
        };
    }
}

/// Numbers in this range are written without an exponent.
const PLAIN: std::ops::Range<f64> = 1e-5..1e15;

fn write_single(number: f32, out: &mut Vec<u8>) -> std::io::Result<()> {
    if is_plain(number.into()) { write!(out, "{number}") } else { write!(out, "{number:e}") }
}

fn write_double(number: f64, out: &mut Vec<u8>) -> std::io::Result<()> {
    if is_plain(number) { write!(out, "{number}") } else { write!(out, "{number:e}") }
}

fn is_plain(number: f64) -> bool {
    number == 0.0 || !number.is_finite() || PLAIN.contains(&number.abs())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(number: Number, bytes: &[u8]) -> String {
        let mut out = b"x".to_vec();
        number.write(bytes, &mut out);
        String::from_utf8(out).unwrap()[1..].to_owned()
    }

    #[test]
    fn edges() {
        use Number::{Double, Float, Signed, Unsigned};
        use Order::{Big, Little};
        for order in [Big, Little] {
            for length in 1..=8 {
                assert_eq!(text(Signed(order), &vec![0xff; length]), "-1");
                assert_eq!(text(Unsigned(order), &vec![0xff; length]), (u64::MAX >> (64 - 8 * length)).to_string());
                assert_eq!(text(Signed(order), &vec![0; length]), "0");
            }
        }
        assert_eq!(text(Signed(Big), &[0x80, 0, 0]), "-8388608");
        assert_eq!(text(Signed(Little), &[0, 0, 0x80]), "-8388608");
        assert_eq!(text(Unsigned(Big), &[1, 2, 3]), "66051");
        assert_eq!(text(Unsigned(Little), &[1, 2, 3]), "197121");
        assert_eq!(text(Signed(Big), &i64::MIN.to_be_bytes()), i64::MIN.to_string());
        assert_eq!(text(Float(Little), &0.1f32.to_le_bytes()), "0.1");
        assert_eq!(text(Double(Little), &0.1f32.to_le_bytes()), "0.10000000149011612");
        assert_eq!(text(Float(Big), &0.1f64.to_be_bytes()), "0.1");
        assert_eq!(text(Float(Big), &f64::MAX.to_be_bytes()), "1.7976931348623157e308");
        assert_eq!(text(Float(Big), &(-0.0f64).to_be_bytes()), "-0");
        assert_eq!(text(Float(Big), &f64::NEG_INFINITY.to_be_bytes()), "-inf");
        assert_eq!(text(Float(Big), &f32::NAN.to_be_bytes()), "NaN");
        assert_eq!(text(Float(Big), &[0, 0, 0, 1]), "1e-45");
    }

    proptest! {
        #[test]
        fn integers_as_arithmetic_says(bytes in prop::collection::vec(any::<u8>(), 1..=8)) {
            let big = bytes.iter().fold(0i128, |sum, &byte| sum * 256 + i128::from(byte));
            let little = bytes.iter().rev().fold(0i128, |sum, &byte| sum * 256 + i128::from(byte));
            let all = 1i128 << (8 * bytes.len());
            let signed = |number: i128| if number >= all / 2 { number - all } else { number };
            prop_assert_eq!(text(Number::Unsigned(Order::Big), &bytes), big.to_string());
            prop_assert_eq!(text(Number::Unsigned(Order::Little), &bytes), little.to_string());
            prop_assert_eq!(text(Number::Signed(Order::Big), &bytes), signed(big).to_string());
            prop_assert_eq!(text(Number::Signed(Order::Little), &bytes), signed(little).to_string());
        }

        #[test]
        fn floats_are_read_back(bits in any::<u64>()) {
            let (single, double) = (f32::from_bits(bits as u32), f64::from_bits(bits));
            let read: f32 = text(Number::Float(Order::Little), &single.to_le_bytes()).parse().unwrap();
            prop_assert!(read == single || (read.is_nan() && single.is_nan()));
            for order in [Order::Little, Order::Big] {
                let bytes = if order == Order::Big { double.to_be_bytes() } else { double.to_le_bytes() };
                let read: f64 = text(Number::Float(order), &bytes).parse().unwrap();
                prop_assert!(read == double || (read.is_nan() && double.is_nan()));
            }
            let wide: f64 = text(Number::Double(Order::Big), &single.to_be_bytes()).parse().unwrap();
            prop_assert!(wide == f64::from(single) || single.is_nan());
        }
    }
}
