//! Converts a JSON array to the text form of a PostgreSQL array.
//!
//! ```text
//!   [[1, null], ["a\"b", {"c": 2}]]   ──►   {{1,NULL},{"a\"b","{\"c\": 2}"}}
//! ```
//!
//! The array's input function, or its decoder, then makes the value and reports its errors. As in
//! `json_populate_record` (populate_array_json, jsonfuncs.c), the depth of the first element that is not an array is
//! the number of dimensions. Deeper arrays are elements, so an array of jsonb may contain arrays.

use pg_bulk_text::json_object::{Encode, pass, unescape};
use pg_bulk_text::json_text::{Scalar, Token, Tokens, Unicode};

/// How elements of the array are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    /// The character between elements.
    pub delimiter: u8,
    /// Elements are JSON: a string keeps its quotes.
    pub json: bool,
}

/// Appends the text form of an array that is valid JSON.
pub fn write(raw: &[u8], element: Element, out: &mut Vec<u8>, encode: Encode<'_>) -> Option<()> {
    let start = out.len();
    let mut tokens = Tokens::new(raw, Unicode::Any);
    let (mut level, mut dimensions, mut elements) = (0usize, None::<usize>, 0usize);
    loop {
        tokens.skip_blanks();
        let from = tokens.at;
        let token = tokens.token()?;
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

/// Appends the output of `write` between quotes, with escapes.
fn quote(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    let start = out.len();
    write(out);
    let special = |b: &&u8| matches!(**b, b'"' | b'\\');
    let mut escapes = out.get(start..).unwrap_or_default().iter().filter(special).count();
    let mut from = out.len();
    out.resize(from + escapes, 0);
    // Backwards, so that no byte is overwritten before it is moved.
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
    use pg_bulk_text::json_object::encode_utf8;

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
