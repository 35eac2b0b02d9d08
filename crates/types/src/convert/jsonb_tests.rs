use super::super::json_cases::{REFUSED, value};
use super::super::testing::body;
use super::*;
use proptest::prelude::*;

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|w| w.iter().rev().fold(0, |v, &b| v << 8 | u32::from(b))).collect()
}

fn read(text: &str) -> Option<Vec<u8>> {
    jsonb(text.as_bytes(), &mut Arena::new()).map(body)
}

#[test]
fn scalars_are_arrays_of_one() {
    assert_eq!(words(&read("true").unwrap()), [0x5000_0001, 0xb000_0000]);
    assert_eq!(words(&read(" false ").unwrap()), [0x5000_0001, 0xa000_0000]);
    assert_eq!(words(&read("null").unwrap()), [0x5000_0001, 0xc000_0000]);
    assert_eq!(words(&read("\"a\"").unwrap()), [0x5000_0001, 0x8000_0001, 0x61]);
    // A numeric is a varlena of its own: header, short form, digit.
    assert_eq!(words(&read("7").unwrap()), [0x5000_0001, 0x9000_0008, 0x20, 0x0007_8000]);
}

#[test]
fn containers() {
    assert_eq!(words(&read("[]").unwrap()), [0x4000_0000]);
    assert_eq!(words(&read("{}").unwrap()), [0x2000_0000]);
    // Aligned behind the one byte of the string; the padding counts as part of the value.
    let expected = [0x4000_0002, 0x8000_0001, 0x1000_000b, 0x61, 0x20, 0x0007_8000];
    assert_eq!(words(&read("[\"a\", 7]").unwrap()), expected);
    let expected = [0x4000_0002, 0x8000_0001, 0x5000_0007, 0x61, 0x2000_0000];
    assert_eq!(words(&read("[\"a\", {}]").unwrap()), expected);
}

#[test]
fn keys_by_length_and_the_last_one_wins() {
    let one = read("{\"bb\":true, \"a\":1, \"ab\":null, \"a\":false}").unwrap();
    let two = read("{\"a\":false,\"ab\":null,\"bb\":true}").unwrap();
    assert_eq!(one, two);
    assert_eq!(words(&one)[..4], [0x2000_0003, 0x8000_0001, 2, 2]);
    assert_eq!(words(&one)[4..7], [0x2000_0000, 0x4000_0000, 0x3000_0000]);
    assert_eq!(one[28..], *b"aabbb");
    // Keys that are equal only after their escapes are replaced.
    assert_eq!(read("{\"\\/\":1,\"/\":2}"), read("{\"/\":2}"));
}

#[test]
fn every_32nd_entry_is_an_offset() {
    let text = format!("[{}]", vec!["\"ab\""; 70].join(","));
    let w = words(&read(&text).unwrap());
    for (i, w) in w[1..71].iter().enumerate() {
        let expected = if i % 32 == 0 { HAS_OFFSET | (2 * (i as u32 + 1)) } else { 2 };
        assert_eq!(*w, expected, "{i}");
    }
}

#[test]
fn refused() {
    for t in REFUSED {
        assert_eq!(read(t), None, "{t}");
    }
    for t in ["1e5", "[1E0]", "{\"a\":1e1,\"a\":2}", &"1".repeat(80), &"[".repeat(65)] {
        assert_eq!(read(t), None, "{t}");
    }
    // The remains of a text that ended early do not affect the next value.
    assert_eq!(read("{\"a\":[1,\"\\n\",{\"b\":"), None);
    assert_eq!(words(&read("[]").unwrap()), [0x4000_0000]);
}

#[test]
fn huge_values_leave_nothing_behind() {
    let text = format!("[{}]", vec!["1.5"; 200_000].join(","));
    assert!(read(&text).is_some());
    assert_eq!(SCRATCH.take().data.capacity(), 0);
}

/// An independent reader of the format: makes text with sorted keys and without blanks.
fn show(container: &[u8], out: &mut String) {
    let word = |i: usize| u32::from_le_bytes(container[4 * i..4 * i + 4].try_into().unwrap());
    let count = (word(0) & 0x0fff_ffff) as usize;
    let object = word(0) & OBJECT != 0;
    let children = if object { 2 * count } else { count };
    let base = 4 + 4 * children;
    let mut end = 0usize;
    let parts: Vec<String> = (1..=children)
        .map(|i| {
            let (kind, start) = (word(i) & 0x7000_0000, end);
            let n = (word(i) & 0x0fff_ffff) as usize;
            assert_eq!(word(i) & HAS_OFFSET != 0, (i - 1) % 32 == 0);
            end = if word(i) & HAS_OFFSET != 0 { n } else { start + n };
            let aligned = start.next_multiple_of(4);
            match kind {
                IS_STRING => format!("{:?}", std::str::from_utf8(&container[base + start..base + end]).unwrap()),
                IS_NUMERIC => {
                    assert!(container[base + start..base + aligned].iter().all(|&b| b == 0));
                    let n = &container[base + aligned..base + end];
                    assert_eq!(u32::from_le_bytes(n[..4].try_into().unwrap()) as usize, n.len() << 2);
                    format!("{:x?}", &n[4..])
                }
                IS_CONTAINER => {
                    let mut inner = String::new();
                    show(&container[base + aligned..base + end], &mut inner);
                    inner
                }
                kind => {
                    assert_eq!(start, end);
                    [(IS_FALSE, "false"), (IS_TRUE, "true"), (IS_NULL, "null")]
                        .iter()
                        .find(|(k, _)| *k == kind)
                        .unwrap()
                        .1
                        .to_owned()
                }
            }
        })
        .collect();
    assert_eq!(base + end, container.len());
    if object {
        let pairs: Vec<_> = (0..count).map(|i| format!("{}:{}", parts[i], parts[count + i])).collect();
        *out += &format!("{{{}}}", pairs.join(","));
    } else {
        *out += &format!("[{}]", parts.join(","));
    }
}

/// Makes the text that `show` makes, by recursion over valid JSON text.
fn naive(text: &[u8], at: &mut usize, out: &mut String) {
    let blanks = |at: &mut usize| *at += text[*at..].iter().take_while(|b| b" \t\n\r".contains(b)).count();
    blanks(at);
    let start = *at;
    match text[start] {
        open @ (b'[' | b'{') => {
            *at += 1;
            let mut parts: Vec<(String, String)> = Vec::new();
            loop {
                blanks(at);
                match text[*at] {
                    b']' | b'}' => break,
                    b',' => *at += 1,
                    _ => {
                        let (mut key, mut value) = (String::new(), String::new());
                        if open == b'{' {
                            naive(text, at, &mut key);
                            blanks(at);
                            *at += 1;
                        }
                        naive(text, at, &mut value);
                        parts.push((key, value));
                    }
                }
            }
            *at += 1;
            if open == b'{' {
                let mut unique: Vec<(String, String)> = Vec::new();
                for (k, v) in parts {
                    unique.retain(|(q, _)| *q != k);
                    unique.push((k, v));
                }
                unique.sort_by_key(|(k, _)| (unquote(k).len(), unquote(k)));
                let pairs: Vec<_> = unique.iter().map(|(k, v)| format!("{k}:{v}")).collect();
                *out += &format!("{{{}}}", pairs.join(","));
            } else {
                let values: Vec<_> = parts.into_iter().map(|(_, v)| v).collect();
                *out += &format!("[{}]", values.join(","));
            }
        }
        b'"' => {
            let mut plain = Vec::new();
            *at += 1;
            while text[*at] != b'"' {
                let mut b = text[*at];
                if b == b'\\' {
                    *at += 1;
                    b = text[*at];
                    if let Some(i) = b"bfnrt".iter().position(|&c| c == b) {
                        b = b"\x08\x0c\n\r\t"[i];
                    }
                }
                plain.push(b);
                *at += 1;
            }
            *at += 1;
            *out += &format!("{:?}", String::from_utf8(plain).unwrap());
        }
        b't' | b'f' | b'n' => {
            let n = if text[start] == b'f' { 5 } else { 4 };
            *at += n;
            *out += std::str::from_utf8(&text[start..*at]).unwrap();
        }
        _ => {
            *at += text[start..].iter().take_while(|b| b"-.0123456789".contains(b)).count();
            let a = &mut Arena::new();
            let n = body(super::super::numeric::numeric(&text[start..*at], None, a).unwrap());
            *out += &format!("{n:x?}");
        }
    }
}

/// Returns the string of a key in Rust's debug format.
fn unquote(quoted: &str) -> String {
    let mut out = String::new();
    let mut chars = quoted[1..quoted.len() - 1].chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next().unwrap() {
                'n' => out.push('\n'),
                'r' => out.push('\r'),
                't' => out.push('\t'),
                'u' => {
                    let hex: String = chars.by_ref().skip(1).take_while(|c| *c != '}').collect();
                    out.push(char::from_u32(u32::from_str_radix(&hex, 16).unwrap()).unwrap());
                }
                same => out.push(same),
            },
            c => out.push(c),
        }
    }
    out
}

proptest! {
    #[test]
    fn reads_back(t in value()) {
        let (mut expected, mut got) = (String::new(), String::new());
        naive(t.as_bytes(), &mut 0, &mut expected);
        show(&read(&t).unwrap(), &mut got);
        // A scalar is stored as an array of one element.
        let scalar = !t.trim_start().starts_with(['[', '{']);
        prop_assert_eq!(got, if scalar { format!("[{expected}]") } else { expected });
    }

    #[test]
    fn refuses_what_json_refuses(t in "[\\[\\]{}:, \"\\\\0-9e.truefalsn\u{e9}-]{0,20}") {
        let json = super::super::text::json(t.as_bytes(), &mut Arena::new());
        prop_assert!(json.is_some() || read(&t).is_none());
    }
}
