use super::json_cases::{REFUSED, value};
use super::testing::body;
use super::text::json;
use crate::arena::Arena;
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

#[test]
fn refused() {
    let a = &mut Arena::new();
    for t in REFUSED {
        assert_eq!(json(t.as_bytes(), a), None, "{t}");
    }
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
