//! json: the text itself, if it is valid JSON.

use super::json_text::{self, Scalar, Sink, Text};
use super::{Datum, varlena};
use crate::arena::Arena;

/// A sink that only validates.
pub(crate) struct Check;

impl<'a> Sink<'a> for Check {
    #[inline(always)]
    fn open(&mut self, _: bool) -> Option<()> {
        Some(())
    }
    #[inline(always)]
    fn close(&mut self) -> Option<()> {
        Some(())
    }
    #[inline(always)]
    fn key(&mut self, _: Text<'a>) -> Option<()> {
        Some(())
    }
    #[inline(always)]
    fn scalar(&mut self, _: Scalar<'a>) -> Option<()> {
        Some(())
    }
}

/// json
#[inline]
pub(super) fn json(field: &[u8], arena: &mut Arena) -> Option<Datum> {
    json_text::parse(field, &mut Check)?;
    varlena::copy(field, arena)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::testing::body;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepted() {
        let a = &mut Arena::new();
        for t in [
            "{}",
            "[]",
            "0",
            "-0",
            "1.5",
            "-1.25e+10",
            "1E5",
            "true",
            "false",
            "null",
            "\"\"",
            "\"a\\n\\\"\\\\\\/\\b\\f\\r\\t\"",
            " \t\n\r[ 1 , 2 ] \n",
            "{\"a\": {\"b\": [1, null, {\"c\": \"d\"}]}, \"a\": []}",
            "[[[[]]]]",
            "\"\u{7f}äöü🦀\"",
            "{\"\":\"\"}",
        ] {
            assert_eq!(json(t.as_bytes(), a).map(body).as_deref(), Some(t.as_bytes()), "{t}");
        }
        let deep = |n| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(json(deep(64).as_bytes(), a).is_some());
        assert!(json(deep(65).as_bytes(), a).is_none());
    }

    /// Texts that are not JSON, or that only the server can decide on.
    pub(crate) const REFUSED: &[&str] = &[
        "",
        " ",
        "{",
        "}",
        "[",
        "]",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{\"a\" 1}",
        "{1:2}",
        "{\"a\":1 \"b\":2}",
        "[}",
        "{]",
        "[1}",
        "{\"a\":1]",
        "01",
        "-",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "0x1",
        "1a",
        "-a",
        "tru",
        "truex",
        "True",
        "nul",
        "nulll",
        "nan",
        "\"",
        "\"a",
        "\"\\",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u0041\"",
        "\"a\nb\"",
        "\"\t\"",
        "'a'",
        "1 2",
        "[] []",
        "{}{}",
        "\u{a0}1",
        "//",
        "[true1]",
        "[truefalse]",
        "{\"a\"::1}",
        ",",
        ":",
        "[:]",
        "1,",
        "[1]]",
        "{\"a\":1}}",
        "\u{b}1",
        "[\"a\"\"b\"]",
        "[1\"b\"]",
        "[null{}]",
    ];

    #[test]
    fn refused() {
        let a = &mut Arena::new();
        for t in REFUSED {
            assert_eq!(json(t.as_bytes(), a), None, "{t}");
        }
    }

    /// JSON text of random shape and spacing, without exponents.
    pub(crate) fn value() -> impl Strategy<Value = String> {
        let string = || "\"([a-z \u{e9}日\u{7f}]|\\\\[\"\\\\/bfnrt]){0,5}\"";
        let number = "-?(0|[1-9][0-9]{0,12})(\\.[0-9]{1,9})?";
        let leaf = prop_oneof![number, string(), "true|false|null", "\\[ ?\\]|\\{ ?\\}"];
        leaf.prop_recursive(5, 200, 40, move |inner| {
            let blank = "[ \n\t\r]?";
            let member = (string(), blank, inner.clone()).prop_map(|(k, s, v)| format!("{k}{s}:{v}{s}"));
            prop_oneof![
                (prop::collection::vec(inner, 0..40), blank)
                    .prop_map(|(v, s)| format!("[{s}{}]", v.join(&format!("{s},{s}")))),
                (prop::collection::vec(member, 0..40), blank)
                    .prop_map(|(v, s)| format!("{{{s}{}}}", v.join(&format!(",{s}")))),
            ]
        })
    }

    proptest! {
        #[test]
        fn generated(t in value()) {
            prop_assert!(json(t.as_bytes(), &mut Arena::new()).is_some(), "{}", t);
        }

        #[test]
        fn broken(t in value(), at in any::<prop::sample::Index>()) {
            // Outside of strings, doubling one structural character makes the JSON invalid.
            let places: Vec<usize> = t.match_indices(['[', ']', '{', '}', ':']).map(|(i, _)| i).collect();
            if !t.contains('"') && !places.is_empty() {
                let i = places[at.index(places.len())];
                let doubled = format!("{}{}", &t[..=i], &t[i..]);
                prop_assert!(json(doubled.as_bytes(), &mut Arena::new()).is_none(), "{}", doubled);
            }
        }

        #[test]
        fn anything(t in "[\\[\\]{}:, \"\\\\0-9eE.truefalsn\u{e9}+-]{0,20}") {
            let _ = json(t.as_bytes(), &mut Arena::new());
        }
    }
}
