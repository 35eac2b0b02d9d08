//! Changes to a field's text before its conversion.
//!
//! ```text
//!   raw field ─► trim ─► NULL marker, quotes, escapes ─► null_if ─► form ─► decoder or input function
//!                (as if the blanks were not in the file)
//! ```
//!
//! Blanks are removed from the raw field. So blanks within quotes, and escaped ones, belong to the value, and a field
//! of blanks only is an empty field. Only columns with a [`Refinement`] take this path
//! ([`crate::record::Record::trimmed`]). The kernels and the blocks do not support it.

use crate::fixed::Trim;
use crate::pattern::Pattern;
use crate::template::{Misfit, Template};

/// The changes to the fields of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refinement {
    /// The ends of a raw field from which blanks are removed.
    pub trim: Trim,
    /// Values that mean NULL.
    pub nulls: Vec<Vec<u8>>,
    /// How values are written in the file.
    pub form: Form,
}

/// How values are written in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// In the form that the type's input function reads.
    Own,
    /// Numbers with other separators.
    Number(Pattern),
    /// Dates and times in another order.
    Time(Template),
}

impl Form {
    /// Appends the text in the form that the type reads. On an error, the appended bytes are garbage.
    pub fn write(&self, text: &[u8], out: &mut Vec<u8>) -> Result<(), Misfit> {
        match self {
            Form::Own => {
                out.extend_from_slice(text);
                Ok(())
            }
            Form::Number(pattern) => pattern.write(text, out).ok_or(Misfit::Form),
            Form::Time(template) => template.write(text, out),
        }
    }
}

impl Default for Refinement {
    fn default() -> Refinement {
        Refinement { trim: Trim::None, nulls: Vec::new(), form: Form::Own }
    }
}

impl Refinement {
    /// Whether the refinement changes no text.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Refinement::default()
    }

    /// Whether this value means NULL.
    #[inline]
    #[must_use]
    pub fn is_null(&self, value: &[u8]) -> bool {
        self.nulls.iter().any(|null| null == value)
    }
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Returns a raw field without the blanks at these ends. With `escapes`, a blank behind a backslash is data.
#[must_use]
pub fn trimmed(raw: &[u8], trim: Trim, escapes: bool) -> &[u8] {
    let mut rest = raw;
    if matches!(trim, Trim::Left | Trim::Both) {
        while let [first, tail @ ..] = rest
            && is_blank(*first)
        {
            rest = tail;
        }
    }
    if matches!(trim, Trim::Right | Trim::Both) {
        let blanks = rest.iter().rev().take_while(|&&byte| is_blank(byte)).count();
        let end = rest.len() - blanks;
        let backslashes = rest.get(..end).unwrap_or_default().iter().rev().take_while(|&&byte| byte == b'\\').count();
        let escaped = escapes && blanks > 0 && backslashes % 2 == 1;
        rest = rest.get(..end + usize::from(escaped)).unwrap_or(rest);
    }
    rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blanks_go_at_the_ends_that_are_said() {
        let raw = b" \t a b\t ";
        assert_eq!(trimmed(raw, Trim::None, false), raw);
        assert_eq!(trimmed(raw, Trim::Left, false), b"a b\t ");
        assert_eq!(trimmed(raw, Trim::Right, false), b" \t a b");
        assert_eq!(trimmed(raw, Trim::Both, false), b"a b");
        assert_eq!(trimmed(b" \t ", Trim::Right, false), b"");
        assert_eq!(trimmed(b"\r\n\x0b\xa0", Trim::Both, false), b"\r\n\x0b\xa0");
    }

    #[test]
    fn an_escaped_blank_is_data() {
        assert_eq!(trimmed(br"a\  ", Trim::Both, true), br"a\ ");
        assert_eq!(trimmed(br"a\\  ", Trim::Both, true), br"a\\");
        assert_eq!(trimmed(br"a\\\ ", Trim::Right, true), br"a\\\ ");
        assert_eq!(trimmed(br"\", Trim::Right, true), br"\");
        assert_eq!(trimmed(br"a\  ", Trim::Both, false), br"a\");
    }

    proptest! {
        /// Compares trimming with the functions of std.
        #[test]
        fn trimmed_as_std_would(raw in "[ \ta\\\\\"]{0,10}") {
            let blank = [' ', '\t'];
            for (trim, expected) in [
                (Trim::None, raw.as_str()),
                (Trim::Left, raw.trim_start_matches(blank)),
                (Trim::Right, raw.trim_end_matches(blank)),
                (Trim::Both, raw.trim_matches(blank)),
            ] {
                prop_assert_eq!(trimmed(raw.as_bytes(), trim, false), expected.as_bytes());
            }
        }

        /// Escaped blanks stay; all others at the ends are removed.
        #[test]
        fn escapes_stay_whole(raw in "([ \tab]|\\\\[ \t\\\\a]){0,8}") {
            let left = trimmed(raw.as_bytes(), Trim::Both, true);
            let (mut all, mut rest) = (Vec::new(), Vec::new());
            crate::field::unescape_text(raw.as_bytes(), &mut all);
            crate::field::unescape_text(left, &mut rest);
            // Marks in place of escaped blanks.
            let marked = raw.replace("\\\\", "\u{1}").replace("\\ ", "\u{2}").replace("\\\t", "\u{3}");
            let expected = marked.trim_matches([' ', '\t']).replace('\u{1}', "\\\\").replace('\u{2}', "\\ ").replace('\u{3}', "\\\t");
            prop_assert_eq!(left, expected.as_bytes());
            prop_assert!(rest.len() <= all.len());
        }
    }
}
