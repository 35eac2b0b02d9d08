//! An array of JSON as the text of an array of the server's.
//!
//! ```text
//!   [[1, null], ["a\"b", {"c": 2}]]   ──►   {{1,NULL},{"a\"b","{\"c\": 2}"}}
//! ```
//!
//! So the array's own input function, or its decoder, makes the value, and says what is wrong with it. As in
//! `json_populate_record` (populate_array_json, jsonfuncs.c), the first element that is no array says how many dimensions there
//! are, and arrays deeper than that are elements: so an array of jsonb may have arrays in it.

use crate::convert::json_text::{Scalar, Token, Tokens, Unicode};
use crate::json_object::{Encode, pass, unescape};

/// What the elements of an array are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    /// Between elements.
    pub delimiter: u8,
    /// They are JSON: a string keeps its quotes.
    pub json: bool,
}

/// Append the text of an array that is known to be good.
pub fn write(raw: &[u8], element: Element, out: &mut Vec<u8>, encode: Encode<'_>) -> Option<()> {
    let start = out.len();
    let mut tokens = Tokens::new(raw, Unicode::Any);
    let (mut level, mut dimensions, mut elements) = (0usize, None::<usize>, 0usize);
    loop {
        tokens.skip_blanks();
        let from = tokens.at;
        let token = tokens.next()?;
        match token {
            Token::Comma => {
                out.push(element.delimiter);
                continue;
            }
            Token::OpenArray if dimensions.is_none_or(|dimensions| level < dimensions) => {
                level += 1;
                out.push(b'{');
                continue;
            }
            Token::CloseArray => {
                dimensions.get_or_insert(level);
                level = level.checked_sub(1)?;
                out.push(b'}');
                if level > 0 {
                    continue;
                }
                if elements == 0 {
                    out.truncate(start);
                    out.extend_from_slice(b"{}");
                }
                return Some(());
            }
            Token::OpenArray | Token::OpenObject => pass(&mut tokens)?,
            Token::Scalar(_) => (),
            Token::Colon | Token::CloseObject => return None,
        }
        dimensions.get_or_insert(level);
        elements += 1;
        match token {
            Token::Scalar(Scalar::Null) => out.extend_from_slice(b"NULL"),
            Token::Scalar(Scalar::Bool(_) | Scalar::Number(..)) => {
                out.extend_from_slice(raw.get(from..tokens.at).unwrap_or_default());
            }
            Token::Scalar(Scalar::Text(text)) if !element.json => {
                quote(out, |out| unescape(text.raw, out, encode));
            }
            _ => quote(out, |out| out.extend_from_slice(raw.get(from..tokens.at).unwrap_or_default())),
        }
    }
}

/// Append what `write` appends, between quotes and with escapes.
fn quote(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    let start = out.len();
    write(out);
    let special = |b: &&u8| matches!(**b, b'"' | b'\\');
    let mut escapes = out.get(start..).unwrap_or_default().iter().filter(special).count();
    let mut from = out.len();
    out.resize(from + escapes, 0);
    // From the end on, so that nothing is in the way.
    let mut to = out.len();
    while escapes > 0 && from > start {
        (from, to) = (from - 1, to - 1);
        let Some(&byte) = out.get(from) else { break };
        if let Some(place) = out.get_mut(to) {
            *place = byte;
        }
        if special(&&byte) {
            (to, escapes) = (to - 1, escapes - 1);
            if let Some(place) = out.get_mut(to) {
                *place = b'\\';
            }
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_object::encode_utf8;

    fn text(raw: &str, element: Element) -> Option<String> {
        let mut out = b"-".to_vec();
        write(raw.as_bytes(), element, &mut out, &mut encode_utf8)?;
        Some(String::from_utf8(out).unwrap()[1..].into())
    }

    #[test]
    fn as_the_server_writes_them() {
        let plain = Element { delimiter: b',', json: false };
        for (raw, expected) in [
            ("[]", "{}"),
            ("[ ]", "{}"),
            ("[[], []]", "{}"),
            ("[1, 2.5e3,true ,null]", "{1,2.5e3,true,NULL}"),
            ("[[1],[null]]", "{{1},{NULL}}"),
            (r#"["a","", "NULL", "a\"b\\c\n\u00e9{},"]"#, "{\"a\",\"\",\"NULL\",\"a\\\"b\\\\c\né{},\"}"),
            (r#"["\\\"\\\"", "x"]"#, r#"{"\\\"\\\"","x"}"#),
            (r#"[1, [2, "x"]]"#, r#"{1,"[2, \"x\"]"}"#),
            (r#"[{"a": [1, 2]}, {}]"#, r#"{"{\"a\": [1, 2]}","{}"}"#),
            ("[[1], 2]", "{{1},2}"),
            ("[[[[[[[7]]]]]]]", "{{{{{{{7}}}}}}}"),
        ] {
            assert_eq!(text(raw, plain).as_deref(), Some(expected), "{raw}");
        }
        let boxes = Element { delimiter: b';', json: false };
        assert_eq!(text(r#"["(1,2),(3,4)", null]"#, boxes).as_deref(), Some(r#"{"(1,2),(3,4)";NULL}"#));
        let json = Element { delimiter: b',', json: true };
        assert_eq!(
            text(r#"["a\n", 1, null, [2], {"b": "\""}]"#, json).as_deref(),
            Some(r#"{"\"a\\n\"",1,NULL,"[2]","{\"b\": \"\\\"\"}"}"#)
        );
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(text(&deep, plain).as_deref(), Some("{}"));
    }
}
