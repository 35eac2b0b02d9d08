//! The decoders, compared with std or with short reference code.
//!
//! A decoder may always return nothing. So a value is checked if [`reference`] supports the text. A missing value is a
//! mistake only for numbers in PostgreSQL's own output format. By-reference values are read to their end, so that the
//! sanitizer finds invalid addresses.

use super::reference;
use pg_bulk_text::json_text::Charset;
use pg_bulk_text::verify::utf8_valid_up_to;
use pg_bulk_types::arena::Arena;
use pg_bulk_types::convert::{Datum, Decoder, Session};

/// Length of the head, in bytes.
pub const HEAD: usize = 6;

const BOOL: u32 = 16;
const BYTEA: u32 = 17;
const CHAR: u32 = 18;
const INT8: u32 = 20;
const INT2: u32 = 21;
const INT4: u32 = 23;
const TEXT: u32 = 25;
const OID: u32 = 26;
const JSON: u32 = 114;
const FLOAT4: u32 = 700;
const FLOAT8: u32 = 701;
const INET: u32 = 869;
const BPCHAR: u32 = 1042;
const VARCHAR: u32 = 1043;
const DATE: u32 = 1082;
const TIME: u32 = 1083;
const TIMESTAMP: u32 = 1114;
const TIMESTAMPTZ: u32 = 1184;
const INTERVAL: u32 = 1186;
const BIT: u32 = 1560;
const VARBIT: u32 = 1562;
const NUMERIC: u32 = 1700;
const UUID: u32 = 2950;
const JSONB: u32 = 3802;
const INT4RANGE: u32 = 3904;
const INT8RANGE: u32 = 3926;

/// Array types and their element types.
const ARRAYS: [(u32, u32); 12] = [
    (1000, BOOL),
    (1005, INT2),
    (1007, INT4),
    (1009, TEXT),
    (1015, VARCHAR),
    (1016, INT8),
    (1022, FLOAT8),
    (1115, TIMESTAMP),
    (1182, DATE),
    (1185, TIMESTAMPTZ),
    (1231, NUMERIC),
    (2951, UUID),
];

/// All types with a decoder, except arrays.
pub const TYPES: [u32; 26] = [
    BOOL, BYTEA, CHAR, INT8, INT2, INT4, TEXT, OID, JSON, FLOAT4, FLOAT8, INET, BPCHAR, VARCHAR, DATE, TIME, TIMESTAMP,
    TIMESTAMPTZ, INTERVAL, BIT, VARBIT, NUMERIC, UUID, JSONB, INT4RANGE, INT8RANGE,
];

/// The contents of an input: a type, the settings of its decoder, and a field.
#[derive(Debug)]
pub struct Case<'a> {
    /// A type that has a decoder.
    pub type_oid: u32,
    /// The element type of an array.
    pub of: Option<u32>,
    /// -1, or a number that may be invalid for the type.
    pub typmod: i32,
    /// The session's settings.
    pub session: Session,
    /// Valid UTF-8, if that is the charset; otherwise any bytes without NULs.
    pub text: &'a [u8],
    /// Independent of the other fields, except that its lower six bits choose the offset of the first value.
    pub more: u8,
}

impl Case<'_> {
    /// Parses an input; `None` if it is too short.
    pub fn of(input: &[u8]) -> Option<Case<'_>> {
        let (&[which, flags, a, b, c, more], text) = input.split_first_chunk::<HEAD>()?;
        let which = usize::from(which) % (TYPES.len() + ARRAYS.len());
        let (type_oid, of) = match which.checked_sub(TYPES.len()) {
            Some(array) => (ARRAYS[array].0, Some(ARRAYS[array].1)),
            None => (TYPES[which], None),
        };
        // Lengths stay short: padding values to megabytes takes time and finds no mistakes.
        let typmod = match (flags & 7, of.unwrap_or(type_oid)) {
            (0..3, _) => -1,
            (3..6, NUMERIC) => (i32::from(a) << 16 | i32::from(b % 64)) + 4,
            (6.., NUMERIC) => (i32::from(a) << 16 | i32::from(b) << 3 | i32::from(c & 7)) + 4,
            (3, _) => i32::from(a % 7),
            _ => i32::from(a) + i32::from(b % 8),
        };
        let charset = [Charset::Utf8, Charset::SingleByte, Charset::MultiByte][usize::from(flags >> 3 & 3) % 3];
        let session = Session {
            charset,
            zone_letters: flags & 96 == 96,
            utc: flags & 128 != 0,
            interval_sql_standard: c & 1 != 0,
        };
        // Fields have no NUL. Only UTF-8 can have invalid text; in the other encodings all bytes are allowed.
        let text = match charset {
            Charset::Utf8 => &text[..utf8_valid_up_to(text)],
            _ => text.split(|&byte| byte == 0).next().unwrap_or_default(),
        };
        Some(Case { type_oid, of, typmod, session, text, more })
    }

    /// Whether a column can have that typmod. A server must support only those.
    #[must_use]
    pub fn is_of_a_column(&self) -> bool {
        match self.of.unwrap_or(self.type_oid) {
            _ if self.typmod == -1 => true,
            BPCHAR | VARCHAR => self.typmod > 4,
            BIT | VARBIT => self.typmod > 0,
            TIME | TIMESTAMP | TIMESTAMPTZ => self.typmod <= 6,
            NUMERIC => self.typmod >= 1 << 16,
            _ => true,
        }
    }
}

/// Decodes one input.
pub fn run(input: &[u8]) {
    let Some(Case { type_oid, of, typmod, session, text, more }) = Case::of(input) else { return };
    let Some(decoder) = Decoder::for_type(type_oid, typmod, &session) else { return };
    let mut arena = Arena::new();
    // An allocation of odd size first, so that not every value is at the start of a block.
    arena.alloc(usize::from(more % 64));
    let found = decoder.decode(text, &mut arena);
    match of.and_then(|of| Some((of, Decoder::for_type(of, typmod, &session)?))) {
        Some((of, element)) => check_array(of, element, text, found),
        None => check(decoder, typmod, session.utc, text, found),
    }
}

/// Checks that each element equals the value that its own decoder makes of its text.
fn check_array(of: u32, element: Decoder, text: &[u8], found: Option<Datum>) {
    let Some(datum) = found else { return };
    let shown = || format!("{element:?}[] of {:?}", String::from_utf8_lossy(text));
    let elements = reference::elements(text).unwrap_or_else(|| panic!("{}: accepted", shown()));
    let mut expected = vec![u32::from(!elements.is_empty()), 0, of];
    if !elements.is_empty() {
        expected.extend([elements.len() as u32, 1]);
    }
    let mut expected: Vec<u8> = expected.into_iter().flat_map(u32::to_le_bytes).collect();
    for text in elements {
        let mut arena = Arena::new();
        let datum = element.decode(&text, &mut arena).unwrap_or_else(|| panic!("{}: {text:?} is not decoded", shown()));
        match of {
            BOOL => expected.push(datum as u8),
            INT2 => expected.extend((datum as u16).to_le_bytes()),
            INT4 | DATE => expected.extend((datum as u32).to_le_bytes()),
            INT8 | FLOAT8 | TIMESTAMP | TIMESTAMPTZ => expected.extend(datum.to_le_bytes()),
            UUID => expected.extend(bytes_at(datum, 16)),
            _ => {
                let body = body(datum);
                expected.extend(((body.len() as u32 + 4) << 2).to_le_bytes());
                expected.extend(body);
                expected.resize(expected.len().next_multiple_of(4), 0);
            }
        }
    }
    assert_eq!(body(datum), expected, "{}", shown());
}

fn check(decoder: Decoder, typmod: i32, utc: bool, text: &[u8], found: Option<Datum>) {
    let shown = || format!("{decoder:?} of {:?}", String::from_utf8_lossy(text));
    let integer = |low: i64, high: i64| match reference::integer(text, low, high) {
        Some(value) => {
            assert!(found.is_none_or(|datum| datum == value as Datum), "{}: {found:?}", shown());
            assert!(found.is_some() || value.to_string().as_bytes() != text, "{}: refused", shown());
        }
        None => assert_eq!(found, None, "{}", shown()),
    };
    match decoder {
        Decoder::Int2 => return integer(i16::MIN.into(), i16::MAX.into()),
        Decoder::Int4 => return integer(i32::MIN.into(), i32::MAX.into()),
        Decoder::Int8 => return integer(i64::MIN, i64::MAX),
        Decoder::Oid => return integer(0, u32::MAX.into()),
        _ => (),
    }
    let Some(datum) = found else { return };
    let as_text = || std::str::from_utf8(text).unwrap_or_else(|_| panic!("{}: accepted", shown()));
    match decoder {
        Decoder::Float4 => {
            let value: f32 = as_text().parse().unwrap_or_else(|_| panic!("{}: accepted", shown()));
            assert_eq!(datum as u32, value.to_bits(), "{}", shown());
        }
        Decoder::Float8 => {
            let value: f64 = as_text().parse().unwrap_or_else(|_| panic!("{}: accepted", shown()));
            assert_eq!(datum, value.to_bits(), "{}", shown());
        }
        Decoder::Date => assert_eq!(Some(datum as i64), reference::date(text), "{}", shown()),
        Decoder::Timestamp { precision } => {
            assert_eq!(Some(datum as i64), reference::timestamp(text, precision), "{}", shown());
        }
        Decoder::Numeric { .. } => {
            let (value, scale) = reference::numeric_text(&body(datum));
            let rounded = reference::rounded(as_text(), scale).unwrap_or_else(|| panic!("{}: accepted", shown()));
            assert_eq!(value, rounded, "{}", shown());
            let places = text.iter().position(|&byte| byte == b'.').map_or(0, |point| text.len() - point - 1);
            // The precision is in the upper half, the scale in eleven bits.
            let (precision, declared) = if typmod < 4 {
                (usize::MAX, places)
            } else {
                ((typmod - 4) as usize >> 16 & 0xffff, (typmod - 4) as usize & 0x7ff)
            };
            assert_eq!(scale, declared, "{}", shown());
            let whole = value.trim_start_matches('-').find('.').unwrap_or_default();
            assert!(whole <= precision - scale.min(precision), "{}: {value} does not fit", shown());
        }
        Decoder::Text | Decoder::Json => assert_eq!(body(datum), text, "{}", shown()),
        Decoder::Varchar { max_chars, charset } => {
            assert_eq!(body(datum), text, "{}", shown());
            assert!(characters(text, charset) <= max_chars, "{}: too long", shown());
        }
        Decoder::Bpchar { chars, charset } => {
            let body = body(datum);
            let blanks = body.strip_prefix(text).unwrap_or_else(|| panic!("{}: {body:?}", shown()));
            assert!(blanks.iter().all(|&byte| byte == b' '), "{}: {blanks:?}", shown());
            assert_eq!(characters(&body, charset), chars, "{}", shown());
        }
        Decoder::Bytea => assert_eq!(Some(body(datum)), reference::bytea(text), "{}", shown()),
        Decoder::Uuid => assert_eq!(bytes_at(datum, 16), reference::hex(text, b'-'), "{}", shown()),
        Decoder::Interval => {
            let (micros, days, months) = reference::interval(text).unwrap_or_else(|| panic!("{}: accepted", shown()));
            let expected = [&micros.to_le_bytes()[..], &(days as i32).to_le_bytes(), &(months as i32).to_le_bytes()];
            assert_eq!(bytes_at(datum, 16), expected.concat(), "{}", shown());
        }
        Decoder::Bool => assert_eq!(Some(datum == 1), reference::bool(text), "{}", shown()),
        Decoder::Char => assert_eq!([datum as u8], text, "{}", shown()),
        Decoder::Time { precision } => {
            assert_eq!(Some(datum as i64), reference::time(text, precision), "{}", shown());
        }
        Decoder::Timestamptz { precision, .. } => {
            assert_eq!(Some(datum as i64), reference::timestamptz(text, precision, utc), "{}", shown());
        }
        Decoder::Inet => assert_eq!(Some(body(datum)), reference::inet(text), "{}", shown()),
        Decoder::Bit { length } => {
            assert!(length.is_none_or(|length| length == text.len()), "{}: of another length", shown());
            assert_eq!(Some(body(datum)), reference::bits(text), "{}", shown());
        }
        Decoder::Varbit { length } => {
            assert!(length.is_none_or(|length| length >= text.len()), "{}: too long", shown());
            assert_eq!(Some(body(datum)), reference::bits(text), "{}", shown());
        }
        Decoder::Int4Range => {
            let (low, high) = reference::range(text, i32::MIN.into(), i32::MAX.into())
                .unwrap_or_else(|| panic!("{}: accepted", shown()));
            let expected =
                [&INT4RANGE.to_le_bytes()[..], &(low as i32).to_le_bytes(), &(high as i32).to_le_bytes(), &[2]];
            assert_eq!(body(datum), expected.concat(), "{}", shown());
        }
        Decoder::Int8Range => {
            let (low, high) =
                reference::range(text, i64::MIN, i64::MAX).unwrap_or_else(|| panic!("{}: accepted", shown()));
            let expected = [&INT8RANGE.to_le_bytes()[..], &low.to_le_bytes(), &high.to_le_bytes(), &[2]];
            assert_eq!(body(datum), expected.concat(), "{}", shown());
        }
        Decoder::Jsonb => {
            // A number needs the most memory beside its text: a header, an entry, and padding.
            let room = 32 + 32 * text.len();
            assert!(body(datum).len() <= room, "{}", shown());
        }
        // Whole numbers are checked above.
        _ => (),
    }
}

/// Number of characters, where it is certain: in other encodings, only ASCII is decoded.
fn characters(text: &[u8], charset: Charset) -> usize {
    match charset {
        Charset::Utf8 => String::from_utf8_lossy(text).chars().count(),
        Charset::SingleByte | Charset::MultiByte => text.len(),
    }
}

/// Returns the `len` bytes at a datum, whose arena still exists.
#[allow(unsafe_code, reason = "the server reads values by their address, and so must a test")]
pub(super) fn bytes_at(datum: Datum, len: usize) -> Vec<u8> {
    assert_eq!(datum % 8, 0, "aligned");
    // SAFETY: a decoder returned the address of a value of at least that length; otherwise the sanitizer fails.
    unsafe { std::slice::from_raw_parts(datum as *const u8, len) }.to_vec()
}

/// Returns a varlena without its header.
pub(super) fn body(datum: Datum) -> Vec<u8> {
    let header = bytes_at(datum, 4).try_into().map_or(0, u32::from_le_bytes);
    assert_eq!(header & 3, 0, "a plain four-byte header");
    assert!(header >> 2 >= 4, "a length that counts the header in");
    bytes_at(datum, (header >> 2) as usize).split_off(4)
}
