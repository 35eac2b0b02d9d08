//! JSON texts for tests of the parser, of json and of jsonb.

use proptest::prelude::*;

#[allow(dead_code, reason = "each crate takes what it needs")]
/// Texts that are not JSON, or that only the server can decide on.
pub(crate) const REFUSED: &[&str] = &[
    "", " ", "{", "}", "[", "]", "[1,]", "[,1]", "[1 2]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{\"a\" 1}",
    "{1:2}", "{\"a\":1 \"b\":2}", "[}", "{]", "[1}", "{\"a\":1]", "01", "-", "+1", ".5", "1.", "1e", "1e+", "0x1",
    "1a", "-a", "tru", "truex", "True", "nul", "nulll", "nan", "\"", "\"a", "\"\\", "\"\\\"", "\"\\x\"", "\"\\u0041\"",
    "\"a\nb\"", "\"\t\"", "'a'", "1 2", "[] []", "{}{}", "\u{a0}1", "//", "[true1]", "[truefalse]", "{\"a\"::1}", ",",
    ":", "[:]", "1,", "[1]]", "{\"a\":1}}", "\u{b}1", "[\"a\"\"b\"]", "[1\"b\"]", "[null{}]",
];

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
