use super::super::testing::body;
use super::*;
use proptest::prelude::*;

fn typmod(precision: i32, scale: i32) -> Option<NumericTypmod> {
    NumericTypmod::decode((precision << 16 | (scale & 0x7ff)) + 4).unwrap()
}

fn words(text: &str, typmod: Option<NumericTypmod>) -> Option<Vec<u16>> {
    let a = &mut Arena::new();
    let bytes = body(numeric(text.as_bytes(), typmod, a)?);
    Some(bytes.chunks(2).map(|w| u16::from_le_bytes([w[0], w[1]])).collect())
}

/// Makes text of the words of a value: an independent reader of the format.
fn show(words: &[u16]) -> String {
    let (negative, scale, weight, digits) = if words[0] & 0x8000 != 0 {
        let weight = (words[0] & 0x3f) as i32 - if words[0] & 0x40 != 0 { 64 } else { 0 };
        (words[0] & 0x2000 != 0, usize::from(words[0] >> 7 & 0x3f), weight, &words[1..])
    } else {
        (words[0] & 0x4000 != 0, usize::from(words[0] & 0x3fff), i32::from(words[1] as i16), &words[2..])
    };
    assert!(digits.first() != Some(&0) && digits.last() != Some(&0), "stripped");
    let at = |w: i32| usize::try_from(weight - w).ok().and_then(|i| digits.get(i)).copied().unwrap_or(0);
    let whole: String = (0..=weight.max(0)).rev().map(|w| format!("{:04}", at(w))).collect();
    let fraction: String = (1..=scale as i32 / 4 + 1).map(|w| format!("{:04}", at(-w))).collect();
    let whole = whole.trim_start_matches('0');
    let sign = if negative { "-" } else { "" };
    let whole = if whole.is_empty() { "0" } else { whole };
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{}", &fraction[..scale]) }
}

#[test]
fn accepted() {
    for (t, tm, expected) in [
        ("0", None, &[0x8000][..]),
        ("-0.00", None, &[0x8100]),
        ("1", None, &[0x8000, 1]),
        ("-1", None, &[0xa000, 1]),
        ("+12345.67", None, &[0x8101, 1, 2345, 6700]),
        ("10000", None, &[0x8001, 1]),
        ("0.0001", None, &[0x827f, 1]),
        ("0.00001", None, &[0x82fe, 1000]),
        (".5", None, &[0x80ff, 5000]),
        ("5.", None, &[0x8000, 5]),
        ("000012", None, &[0x8000, 12]),
        ("-12345.67", typmod(20, 2), &[0xa101, 1, 2345, 6700]),
        ("-12345.67", typmod(38, 6), &[0xa301, 1, 2345, 6700]),
        ("0", typmod(20, 2), &[0x8100]),
        ("1.005", typmod(20, 2), &[0x8100, 1, 100]),
        ("0.004", typmod(20, 2), &[0x8100]),
        ("-0.004", typmod(20, 2), &[0x8100]),
        ("9999.995", typmod(20, 2), &[0x8101, 1]),
        ("0.5", typmod(2, 0), &[0x8000, 1]),
        ("99.4", typmod(2, 0), &[0x8000, 99]),
        ("0.05", typmod(2, 2), &[0x817f, 500]),
        ("1", typmod(200, 100), &[100, 0, 1]),
    ] {
        assert_eq!(words(t, tm).as_deref(), Some(expected), "{t}");
    }
}

#[test]
fn refused() {
    for t in [
        "", "-", "+", ".", "-.", "1.2.3", "..", "1e3", "1E3", "NaN", "inf", "Infinity", " 1", "1 ", "0x1", "1_000",
        "--1", "1,5", "1.-5", "12345678x", "1.2345678x", "x", "\u{661}",
    ] {
        assert_eq!(words(t, None), None, "{t}");
        assert_eq!(words(t, typmod(38, 6)), None, "{t}");
        assert_eq!(words(t, typmod(38, 0)), None, "{t}");
    }
    assert_eq!(words("1.23x", typmod(20, 1)), None);
    assert_eq!(words("100", typmod(4, 2)), None);
    assert_eq!(words("99.995", typmod(4, 2)), None);
    assert_eq!(words("1", typmod(2, 2)), None);
    assert_eq!(words("0.995", typmod(2, 2)), None);
    assert_eq!(words(&"1".repeat(73), None), None);
    assert_eq!(words(&format!("0.{}", "1".repeat(73)), None), None);
}

#[test]
fn typmods() {
    assert_eq!(NumericTypmod::decode(-1), Some(None));
    assert_eq!(typmod(20, 2), Some(NumericTypmod { precision: 20, scale: 2 }));
    assert_eq!(typmod(1000, 1000), Some(NumericTypmod { precision: 1000, scale: 1000 }));
    assert_eq!(NumericTypmod::decode((5 << 16 | (-2 & 0x7ff)) + 4), None);
    assert_eq!(NumericTypmod::decode((5 << 16 | 6) + 4), None);
}

#[test]
fn both_headers() {
    // 63 is the largest number of fractional digits in a short header.
    let text = |n: usize| format!("1.{}1", "0".repeat(n - 1));
    assert!(words(&text(63), None).unwrap()[0] & 0x8000 != 0);
    assert_eq!(words(&text(64), None).unwrap()[..2], [64, 0]);
    for t in [text(63), text(64), text(72), "9".repeat(72), format!("-{}", text(70))] {
        assert_eq!(show(&words(&t, None).unwrap()), t);
    }
}

proptest! {
    #[test]
    fn reads_back(whole in "0|[1-9][0-9]{0,71}", fraction in "[0-9]{0,72}", negative in any::<bool>()) {
        let text = if fraction.is_empty() { whole } else { format!("{whole}.{fraction}") };
        let zero = text.bytes().all(|b| b == b'0' || b == b'.');
        let text = if negative && !zero { format!("-{text}") } else { text };
        prop_assert_eq!(show(&words(&text, None).unwrap()), text);
    }

    #[test]
    fn typmod_is_integer_rounding(v in any::<i64>(), shift in 0..64u32, places in 0..=12u32, precision in 1..=30i32, scale in 0..=12i32) {
        let (v, scale) = (i128::from(v >> shift), scale.min(precision));
        let unit = 10i128.pow(places);
        let sign = if v < 0 { "-" } else { "" };
        let (whole, rest) = (v.unsigned_abs() / unit as u128, v.unsigned_abs() % unit as u128);
        let text = if places == 0 { v.to_string() } else { format!("{sign}{whole}.{rest:0w$}", w = places as usize) };
        // In units of the last kept place, half away from zero.
        let scaled = v.abs() * 10i128.pow(scale as u32);
        let rounded = (scaled + unit / 2) / unit;
        let expected = (rounded < 10i128.pow(precision as u32)).then(|| {
            let kept = 10i128.pow(scale as u32);
            let sign = if v < 0 && rounded != 0 { "-" } else { "" };
            let whole = format!("{sign}{}", rounded / kept);
            if scale == 0 { whole } else { format!("{whole}.{:0w$}", rounded % kept, w = scale as usize) }
        });
        prop_assert_eq!(words(&text, typmod(precision, scale)).map(|w| show(&w)), expected);
    }

    #[test]
    fn short_is_long(field in "[-+]?0{0,5}[0-9]{0,12}\\.?[0-9]{0,17}0{0,3}", precision in 1..=40i32, scale in 0..=20i32) {
        let a = &mut Arena::new();
        for t in [None, typmod(precision, scale.min(precision))] {
            if let Some(v) = short(field.as_bytes(), t, a) {
                prop_assert_eq!(Some(body(v)), long(field.as_bytes(), t, a).map(body));
            }
        }
    }

    #[test]
    fn anything(field in prop::collection::vec(prop::sample::select(b"0123456789.-+e\xe9 ".to_vec()), 0..40)) {
        let a = &mut Arena::new();
        let plain = numeric(&field, None, a).is_some();
        // A typmod can only reject more.
        prop_assert!(plain || numeric(&field, typmod(38, 6), a).is_none());
    }
}
