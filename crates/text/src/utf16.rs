//! Turns UTF-16 into UTF-8.
//!
//! Invalid units become invalid UTF-8, so that the code that verifies UTF-8 finds them at their line. [`damaged_unit`] returns
//! the bytes of the file that such a sequence stands for.

use crate::verify::utf8_valid_up_to;

/// Order of the bytes of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The lower byte first.
    Little,
    /// The higher byte first.
    Big,
}

impl Order {
    /// Returns the order that a byte order mark at the start of a file declares.
    #[must_use]
    pub fn of_mark(first: &[u8]) -> Option<Order> {
        match first {
            [0xff, 0xfe, ..] => Some(Order::Little),
            [0xfe, 0xff, ..] => Some(Order::Big),
            _ => None,
        }
    }

    /// Returns the order of text without a byte order mark that begins with `first`. None if it is no UTF-16, or has
    /// too few characters of ASCII to tell.
    #[must_use]
    pub fn by_evidence(first: &[u8]) -> Option<Order> {
        let (units, _) = first.as_chunks::<2>();
        let little = units.iter().filter(|[_, high]| *high == 0).count();
        let big = units.iter().filter(|[high, _]| *high == 0).count();
        let order = if big > little { Order::Big } else { Order::Little };
        let (few, many) = (big.min(little), big.max(little));
        let mut text = Vec::new();
        order.append_utf8(first, false, false, &mut text);
        let is_text = |byte: &u8| *byte >= b' ' || byte.is_ascii_whitespace();
        let is_sure = many > 2 && 4 * many >= units.len() && 8 * few <= many;
        (is_sure && utf8_valid_up_to(&text) == text.len() && text.iter().all(is_text)).then_some(order)
    }

    fn unit(self, bytes: [u8; 2]) -> u16 {
        match self {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        }
    }

    /// Appends the characters at the start of `raw` as UTF-8, and returns how many bytes they have. Without `ended`,
    /// a character that is incomplete waits for more bytes. With `mends`, U+FFFD replaces an invalid unit.
    pub fn append_utf8(self, raw: &[u8], ended: bool, mends: bool, out: &mut Vec<u8>) -> usize {
        let (units, odd) = raw.as_chunks::<2>();
        let mut done = 0;
        while let Some(rest) = units.get(done..).filter(|rest| !rest.is_empty()) {
            done += self.append_ascii(rest, out);
            for _ in 0..RUN {
                let Some(rest @ [first, ..]) = units.get(done..) else { break };
                let (first, next) = (self.unit(*first), rest.get(1).map(|next| self.unit(*next)));
                if next.is_none() && matches!(first, 0xd800..=0xdbff) && !ended {
                    return 2 * done;
                }
                let Some(character) = char::decode_utf16([first].into_iter().chain(next)).next() else { break };
                done += character.as_ref().map_or(1, |character| character.len_utf16());
                match character {
                    Ok(character) => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
                    Err(_) if mends => out.extend_from_slice(MENDED),
                    Err(_) => {
                        let [high, low] = first.to_be_bytes();
                        // As UTF-8 would write a surrogate, which it forbids.
                        out.extend([0xed, 0x80 | (high & 0xf) << 2 | low >> 6, 0x80 | low & 0x3f]);
                    }
                }
            }
        }
        match odd {
            [byte] if ended => {
                let shown = mark(*byte);
                out.extend_from_slice(if mends { MENDED } else { &shown });
                raw.len()
            }
            _ => 2 * done,
        }
    }

    /// Appends the ASCII characters at the start, and returns their number, rounded down to whole runs.
    fn append_ascii(self, units: &[[u8; 2]], out: &mut Vec<u8>) -> usize {
        let (runs, _) = units.as_chunks::<RUN>();
        for (i, run) in runs.iter().enumerate() {
            let run = run.map(|bytes| self.unit(bytes));
            if run.iter().fold(0, |all, unit| all | unit) >= 0x80 {
                return i * RUN;
            }
            out.extend_from_slice(&run.map(|unit| unit as u8));
        }
        runs.len() * RUN
    }
}

/// Units that are looked at together.
const RUN: usize = 16;
const MENDED: &[u8] = "\u{fffd}".as_bytes();

/// Returns invalid UTF-8 that stands for a byte. No character begins with it, and it has no ASCII.
#[must_use]
pub fn mark(byte: u8) -> [u8; 2] {
    [0xf8 | byte >> 6, 0x80 | byte & 0x3f]
}

/// Returns the byte for which such a pair stands.
#[must_use]
pub fn marked([first, second]: [u8; 2]) -> Option<u8> {
    (0xf8..=0xfb).contains(&first).then_some(first << 6 | second & 0x3f)
}

/// Returns the bytes of the file for which invalid UTF-8 at the start of `utf8` stands, the higher byte of a unit first.
/// None if it stands for none.
#[must_use]
pub fn damaged_unit(utf8: &[u8]) -> Option<Vec<u8>> {
    match *utf8 {
        [0, ..] => Some(vec![0, 0]),
        [0xed, a @ 0xa0..=0xbf, b, ..] => Some(vec![0xd0 | (a & 0x3f) >> 2, a << 6 | b & 0x3f]),
        [a, b, ..] => marked([a, b]).map(|byte| vec![byte]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn utf8(raw: &[u8], order: Order, mends: bool) -> Vec<u8> {
        let mut out = Vec::new();
        assert_eq!(order.append_utf8(raw, true, mends, &mut out), raw.len());
        out
    }

    #[test]
    fn invalid_units_are_found_again() {
        for (raw, shown) in [
            (&b"\xd8\x00"[..], &b"\xd8\x00"[..]),
            (b"\xdf\xff", b"\xdf\xff"),
            (b"\xdb\x01\x00a", b"\xdb\x01"),
            (b"\xd8\x00\xd8\x00\xdc\x00", b"\xd8\x00"),
            (b"\x00\x00", b"\x00\x00"),
            (b"a", b"a"),
            (b"\xff", b"\xff"),
        ] {
            let text = utf8(raw, Order::Big, false);
            assert_eq!(crate::verify::utf8_valid_up_to(&text), 0, "{raw:?}");
            assert_eq!(damaged_unit(&text).as_deref(), Some(shown), "{raw:?}");
        }
        assert_eq!(damaged_unit(b"\xff"), None);
        assert_eq!(utf8(b"\x00a\xd8\x00\x00b\x01", Order::Big, true), "a\u{fffd}b\u{fffd}".as_bytes());
    }

    #[test]
    fn orders_are_evident() {
        let bytes = |text: &str, order: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(order).collect::<Vec<u8>>();
        for text in ["id,name\n1,Zoë\n", "番号,名前\n1,日本\n2,東京\n"] {
            assert_eq!(Order::by_evidence(&bytes(text, u16::to_le_bytes)), Some(Order::Little), "{text}");
            assert_eq!(Order::by_evidence(&bytes(text, u16::to_be_bytes)), Some(Order::Big), "{text}");
            assert_eq!(Order::by_evidence(text.as_bytes()), None, "{text}");
        }
        for other in
            [&b""[..], b"a\0\0\0b\0\0\0", b"PK\x03\x04\x14\0\x08\0", b"\0a\xd8\0\0b", b"a,b\n1\x002,3\n", b"ab\0\0cd"]
        {
            assert_eq!(Order::by_evidence(other), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn text_is_what_it_was(text in any::<String>(), cuts in prop::collection::vec(0..9usize, 0..40), big in any::<bool>()) {
            // Runs of ASCII that are long enough to be taken together, too.
            let text = format!("{text}{}{text}", "x".repeat(text.len()));
            let order = if big { Order::Big } else { Order::Little };
            let raw: Vec<u8> =
                text.encode_utf16().flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect();
            let (mut out, mut at, mut end) = (Vec::new(), 0, 0);
            for cut in cuts {
                end = (end + cut).min(raw.len());
                at += order.append_utf8(&raw[at..end], false, false, &mut out);
                prop_assert!(end - at < 4);
            }
            at += order.append_utf8(&raw[at..], true, false, &mut out);
            prop_assert_eq!(at, raw.len());
            prop_assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
