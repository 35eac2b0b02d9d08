//! bool: the words of boolin, all in lower case or all in upper case.
//!
//! boolin itself also accepts mixed case, unique prefixes (`tr`, `of`) and white space at the ends.

use super::Datum;

/// bool
#[inline]
pub(super) fn bool(field: &[u8]) -> Option<Datum> {
    match field {
        b"t" | b"1" | b"true" | b"T" | b"TRUE" | b"y" | b"yes" | b"Y" | b"YES" | b"on" | b"ON" => Some(1),
        b"f" | b"0" | b"false" | b"F" | b"FALSE" | b"n" | b"no" | b"N" | b"NO" | b"off" | b"OFF" => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words() {
        for (yes, no) in [("t", "f"), ("true", "false"), ("y", "n"), ("yes", "no"), ("on", "off"), ("1", "0")] {
            for (word, v) in [(yes, 1), (no, 0)] {
                assert_eq!(bool(word.as_bytes()), Some(v), "{word}");
                assert_eq!(bool(word.to_uppercase().as_bytes()), Some(v), "{word}");
            }
        }
        for t in ["", "o", "of", "tr", "True", " t", "t ", "2", "01", "null", "truee", "tf"] {
            assert_eq!(bool(t.as_bytes()), None, "{t}");
        }
    }

    proptest! {
        #[test]
        fn the_first_letter_decides(field in "[tfyno10]?(rue|alse|es|o|n|ff)?") {
            if let Some(v) = bool(field.as_bytes()) {
                prop_assert_eq!(v == 1, matches!(&*field, "on") || field.starts_with(['t', 'y', '1']));
            }
        }
    }
}
