//! Runs the functions of the fuzz targets on some thousand random inputs, which are the same in every run.
//!
//! Random bytes would rarely be a file or a number. So files are made of parts with special meaning, and texts are ones
//! that some decoder accepts, with a byte or two changed.

#[path = "../../../fuzz/src/lib.rs"]
#[allow(dead_code, reason = "what targets within a server take")]
mod fuzz;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    /// Returns one of the texts, with up to three bytes changed, removed or inserted.
    fn like(&mut self, texts: &[&str], bytes: &[u8]) -> Vec<u8> {
        let mut text = self.one(texts).as_bytes().to_vec();
        for _ in 0..self.below(4) {
            let (at, byte) = (self.below(text.len() + 1), bytes[self.below(bytes.len())]);
            match (self.below(3), text.get_mut(at)) {
                (0, Some(changed)) => *changed = byte,
                (1, Some(_)) => _ = text.remove(at),
                _ => text.insert(at, byte),
            }
        }
        text
    }
}

const INPUTS: u64 = if cfg!(miri) { 200 } else { 20_000 };

const PIECES: &[&[u8]] = &[
    b"a",
    b"bc",
    b"1",
    b"\"",
    b"\"",
    b"'",
    b",",
    b",",
    b"\t",
    b"|",
    b";",
    b"\\",
    b"\\N",
    b"NULL",
    b"N",
    b"e",
    b"A",
    b"\\x41",
    b"\\101",
    b"\\\\",
    b"\"\"",
    b"\xc3\xa4",
    b"\xe2\x82\xac",
    b"\xf0\x9f\x98\x80",
    b"||",
    b",x,",
    b"\t,\t",
    b"aa",
    b"q",
    b".",
    b" ",
    b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
];
// Rare, because the reader stops behind most of them.
const BREAKS: &[&[u8]] = &[b"\n", b"\r", b"\r\n", b"\\.", b"\\.\n", b"\xff", b"\xe2\x82", b"\0", b"\n\\.\n"];

const TEXTS: &[&str] = &[
    "t",
    "false",
    "0",
    "-1",
    "+7",
    "32767",
    "-32768",
    "2147483647",
    "-2147483648",
    "4294967295",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "3.14",
    "-0.5",
    "1e10",
    "2.5E-3",
    ".5",
    "123456789012345678901234567890.123456789",
    "0.00000000000000000001",
    "9999.9999",
    "99999999.99999999",
    "00012.3400",
    "12345.6785",
    "999.995",
    "abc",
    "blank  ",
    "äöü€😀",
    "\\x00ff",
    "\\xDEADBEEF0102030405",
    "2000-01-01",
    "1999-12-31",
    "2024-02-29",
    "1900-02-29",
    "0001-01-01",
    "9999-12-31",
    "12:34:56",
    "23:59:59.999999",
    "00:00",
    "2000-01-01 00:00:00",
    "2024-02-29T12:34:56.789",
    "1999-12-31 23:59:59.999999",
    "2000-01-01 00:00:00+00",
    "2000-01-01 05:30+05:30",
    "2000-01-01T00:00:00Z",
    "01234567-89ab-cdef-0123-456789abcdef",
    "1 day",
    "1 year 2 mons 3 days 04:05:06.789",
    "-00:00:01",
    "101",
    "0110100110010110",
    "x1F",
    "192.168.0.1",
    "10.0.0.0/8",
    "::1",
    "{}",
    "{1,2,3}",
    "{1.5,-0.25}",
    "{a,\"b c\"}",
    "{t,f}",
    "{\"2000-01-01 00:00:00\",2024-02-29}",
    "{01234567-89ab-cdef-0123-456789abcdef}",
    "[1,10)",
    "[-5,5000000000)",
    "[1, 2.5, null, true, \"a\\u00e9\\n\"]",
    "{\"a\": {\"b\": [], \"c\": -1e-7}, \"aa\": \"x\", \"a\": 1}",
    "",
];

/// A head of `head` bytes, and a file of at most `pieces` parts.
fn file(random: &mut Random, head: usize, pieces: usize) -> Vec<u8> {
    let mut input = random.number().to_le_bytes()[..head].to_vec();
    let line_end: &[u8] = random.one(&[b"\n", b"\n", b"\r\n", b"\r"]);
    for _ in 0..random.below(pieces) {
        match random.below(100) {
            0 => input.extend(random.one(BREAKS)),
            1..20 => input.extend(line_end),
            _ => input.extend(random.one(PIECES)),
        }
    }
    input
}

#[test]
fn reader() {
    for seed in 0..INPUTS {
        fuzz::reader::run(&file(&mut Random(seed), fuzz::reader::HEAD, 150));
    }
}

#[test]
fn chunks() {
    for seed in 0..INPUTS {
        fuzz::chunks::run(&file(&mut Random(seed), fuzz::chunks::HEAD, 250));
    }
}

#[test]
fn scan() {
    for seed in 0..INPUTS / 4 {
        fuzz::scan::run(&file(&mut Random(seed), fuzz::scan::HEAD, 150));
    }
}

#[test]
fn count() {
    for seed in 0..INPUTS {
        fuzz::count::run(&file(&mut Random(seed), fuzz::count::HEAD, 150));
    }
}

/// Titles, names and values of a few types, mostly in records of equal length.
#[test]
fn sniff() {
    for seed in 0..INPUTS / 4 {
        let random = &mut Random(seed);
        let mut input = random.number().to_le_bytes()[..fuzz::sniff::HEAD].to_vec();
        let (columns, delimiter) = (1 + random.below(4), b",;\t|:"[random.below(5)]);
        for title in 0..random.below(3) {
            input.extend(random.one(&["# made at noon\n", "\n", "Report\n", "name,id\n"]).bytes().skip(title));
        }
        let (start, length) = (random.below(TEXTS.len()), 1 + random.below(8));
        for _ in 0..random.below(25) {
            for column in 0..columns + usize::from(random.below(20) == 0) {
                if column > 0 {
                    input.push(delimiter);
                }
                let text = TEXTS[(start + column * 7 + random.below(length)) % TEXTS.len()];
                match random.below(8) {
                    0 => input.extend(format!("\"{text}\"").bytes()),
                    _ => input.extend(text.bytes()),
                }
            }
            input.extend(random.one(&["\n", "\n", "\n", "\r\n", ""]).bytes());
        }
        fuzz::sniff::run(&input);
    }
}

/// Numbers and dates in other forms, most of them with some bytes changed.
#[test]
fn forms() {
    const TEXTS: &[&str] = &[
        "1.234.567,89",
        "1,234,567.89",
        "-12 345,5e-3",
        "+1'000.",
        ",5",
        "NaN",
        "1_000",
        "DD.MM.YYYY\x0031.12.2024",
        "MM/DD/YY HH12:MI AM\x0002/29/68 12:30 pm",
        "YYYYMMDDHH24MISSUS\x0020240102030405678901",
        "YYYY-DDMM\x002024-3112",
        "Month DD, YYYY\0september 1, 0001",
        "\"on \"DD-Mon-YYYY\" at \"HH24:MI:SS.MS\0on 5-OCT-1999 at 7:05:09.25",
        "HH24:MI\x0023:59",
        " \t a\\ \\\\ \t",
        "\u{7f}\u{1}\u{2}\u{3}\u{4}\u{5}\u{6}\u{7}",
        "\0\0\u{1}\0",
    ];
    const BYTES: &[u8] = b"0123456789+-.,:e /'_\\\"YMDHIS\0\t\xff";
    for seed in 0..INPUTS * 5 {
        let random = &mut Random(seed);
        let text = random.like(TEXTS, BYTES);
        let mut input = random.number().to_le_bytes()[..fuzz::forms::HEAD].to_vec();
        input.extend(text);
        fuzz::forms::run(&input);
    }
}

/// Lines of some members; in half of them a byte or two is changed.
#[test]
fn json() {
    const KEYS: &[&str] = &["a", "b", "", "ab", "\u{e9}", "c", "\\u0061", "\\u00e9", "a\\n"];
    const VALUES: &[&str] = &[
        "1",
        "-0.5e+7",
        "0",
        "true",
        "false",
        "null",
        "\"\"",
        "\"x\"",
        "\"\\u0041\\ud83e\\udd80\"",
        "\"\\\"\\\\\"",
        "[]",
        "{}",
        "[1, [2, {\"a\": \"]\"}], null]",
        "[[\"a,b\"], [\"\"]]",
        "{\"a\": {\"b\": []}, \"\": 1}",
        "\"\u{20ac}\"",
    ];
    const BYTES: &[u8] = b"{}[]:,\"\\u0123ea tfn.-+\t";
    for seed in 0..INPUTS {
        let random = &mut Random(seed);
        let mut input = vec![random.number() as u8];
        for _ in 0..random.below(6) {
            let start = input.len();
            input.push(b'{');
            for i in 0..random.below(6) {
                let (key, value, comma) = (random.one(KEYS), random.one(VALUES), if i == 0 { "" } else { "," });
                input.extend(format!("{comma} \"{key}\": {value}").bytes());
            }
            input.push(b'}');
            for _ in 0..random.below(2) * (1 + random.below(2)) {
                let at = start + random.below(input.len() - start);
                match random.below(3) {
                    0 => input[at] = BYTES[random.below(BYTES.len())],
                    1 if input.len() > start + 1 => _ = input.remove(at),
                    _ => input.insert(at, BYTES[random.below(BYTES.len())]),
                }
            }
            input.push(b'\n');
        }
        fuzz::json::run(&input);
    }
}

/// Some records; in half of the files a byte or two is changed or the end is cut off.
#[test]
fn binary() {
    const VALUES: &[&[u8]] = &[
        b"",
        b"\x01",
        b"\0\x02",
        b"\0\0\0\x03",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"text",
        "\u{20ac}\u{20ac}".as_bytes(),
        &[7; 16],
        &[b'x'; 150],
    ];
    for seed in 0..INPUTS {
        let random = &mut Random(seed);
        let mut input = random.number().to_le_bytes()[..fuzz::binary::HEAD].to_vec();
        // Mostly with the header that the target makes.
        input[0] &= if random.below(8) == 0 { 7 } else { 3 };
        let count = input[0] & 3;
        for _ in 0..random.below(30) {
            input.extend([0, count]);
            for _ in 0..count {
                match random.below(VALUES.len() + 1).checked_sub(1) {
                    None => input.extend([0xff; 4]),
                    Some(i) => {
                        input.extend((VALUES[i].len() as u32).to_be_bytes());
                        input.extend(VALUES[i]);
                    }
                }
            }
        }
        if random.below(4) > 0 {
            input.extend([0xff; 2]);
        }
        for _ in 0..random.below(2) * (1 + random.below(2)) {
            let at = fuzz::binary::HEAD + random.below(input.len() + 1 - fuzz::binary::HEAD);
            match (random.below(4), at < input.len()) {
                (0, true) => input[at] = random.number() as u8,
                (1, true) => _ = input.remove(at),
                (2, true) => input.truncate(at),
                _ => input.insert(at, random.one(&[&0u8, &1, &2, &0x3f, &0xff]).to_owned()),
            }
        }
        fuzz::binary::run(&input);
    }
}

#[test]
fn page() {
    for seed in 0..INPUTS / 10 {
        let random = &mut Random(seed);
        let length = random.below(1500);
        let input: Vec<u8> = (0..length).map(|_| random.number() as u8).collect();
        fuzz::page::run(&input);
    }
}

/// Records of fields that some decoder accepts, most of them on a line of their own.
#[test]
fn block() {
    for seed in 0..INPUTS / 4 {
        let random = &mut Random(seed);
        let mut input = [random.number().to_le_bytes(), random.number().to_le_bytes()].concat();
        input.truncate(fuzz::block::HEAD);
        // Text or CSV, with their usual characters.
        input[0] &= 1;
        let (fields, delimiter) = (1 + usize::from(input[5] & 3), if input[0] == 1 { b',' } else { b'\t' });
        let columns: Vec<&[&str]> =
            (0..fields).map(|_| random.below(TEXTS.len() - 8)).map(|i| &TEXTS[i..i + 8]).collect();
        for _ in 0..random.below(80) {
            for (i, texts) in columns.iter().enumerate() {
                input.extend(random.one(texts).bytes());
                input.push(if i + 1 == fields { b'\n' } else { delimiter });
            }
        }
        fuzz::block::run(&input);
    }
}

/// Runs the inputs that fuzzing has found and that are kept.
#[test]
fn corpus() {
    type Target = (&'static str, fn(&[u8]));
    let targets: [Target; 11] = [
        ("binary", fuzz::binary::run),
        ("block", fuzz::block::run),
        ("count", fuzz::count::run),
        ("decode", fuzz::decode::run),
        ("forms", fuzz::forms::run),
        ("json", fuzz::json::run),
        ("page", fuzz::page::run),
        ("reader", fuzz::reader::run),
        ("scan", fuzz::scan::run),
        ("sniff", fuzz::sniff::run),
        ("chunks", fuzz::chunks::run),
    ];
    for (name, run) in targets {
        let directory = format!("{}/../../fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
        let files = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{directory}: {error}"));
        let mut count = 0;
        for file in files.take(if cfg!(miri) { 5 } else { usize::MAX }) {
            run(&std::fs::read(file.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count > 0, "{directory} is empty");
    }
}

#[test]
fn decode() {
    const BYTES: &[u8] = b"0123456789+-.,:eE /\\xTZabf\"{}[] n\0\xc3\xff";
    for seed in 0..INPUTS * 10 {
        let random = &mut Random(seed);
        let text = random.like(TEXTS, BYTES);
        let head = random.number().to_le_bytes();
        let mut input = head[..fuzz::decode::HEAD].to_vec();
        input.extend(text);
        fuzz::decode::run(&input);
    }
}
