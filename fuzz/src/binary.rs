//! Records of COPY's binary format, compared with a loop that reads one number after the other.
//!
//! Files are read in order, and in chunks as the processes of a load read them. The head chooses the number of fields
//! of each record, and how the file is read. The target puts the file's header before the data, unless the head says
//! that the data have one. The values of native decoders are compared with the bytes of the fields.

use pg_bulk_text::binary::{Fault, Fields, SIGNATURE};
use pg_bulk_text::dialect::Dialect;
use pg_bulk_text::json_text::Charset;
use pg_bulk_text::naive::Row;
use pg_bulk_text::naive::chunks::{Plan, in_chunks, in_order};
use pg_bulk_text::reader::{ReadError, Settings};
use pg_bulk_text::scan::Level;
use pg_bulk_types::arena::Arena;
use pg_bulk_types::convert::{Datum, Wire};

use super::decode::{body, bytes_at};

/// Length of the head, in bytes.
pub const HEAD: usize = 5;

/// The fields before the damage, and the fault behind them.
type There = (Vec<Option<Vec<u8>>>, Option<(usize, Fault)>);
/// The contents of a record, or its wrong count of fields.
type Content = Result<There, i16>;

/// A record with its position and contents.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    number: u64,
    offset: u64,
    content: Content,
}

/// The error that ends the records.
#[derive(Debug, PartialEq, Eq)]
enum Wrong {
    Header,
    AfterMarker,
}

fn take<'a>(data: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (taken, rest) = data.split_at_checked(n)?;
    *data = rest;
    Some(taken)
}

fn int32(data: &mut &[u8]) -> Option<i32> {
    Some(i32::from_be_bytes(take(data, 4)?.try_into().ok()?))
}

/// `CopyReadBinaryAttribute` for each field.
fn fields(data: &mut &[u8], count: usize) -> There {
    let (mut fields, mut so_far) = (Vec::new(), 2);
    while fields.len() < count {
        let fault = |fault| Some((fields.len(), fault));
        let Some(size) = int32(data) else { return (fields.clone(), fault(Fault::Missing)) };
        so_far += 4;
        if size == -1 {
            fields.push(None);
            continue;
        }
        let Ok(size) = u64::try_from(size) else { return (fields.clone(), fault(Fault::Size)) };
        // A StringInfo ends below 1 GB. A record of more than one and a half times that counts as too long, too.
        if size >= 0x3fff_ffff {
            return (fields.clone(), fault(Fault::TooLong { containing: 0, more: size }));
        }
        if so_far + size >= 0x3fff_ffff / 2 * 3 {
            return (fields.clone(), fault(Fault::TooLong { containing: so_far, more: size }));
        }
        so_far += size;
        match take(data, size as usize) {
            Some(value) => fields.push(Some(value.to_vec())),
            None => return (fields.clone(), fault(Fault::Missing)),
        }
    }
    (fields, None)
}

/// Reads the whole file.
fn walk(data: &[u8], count: usize) -> (Vec<Found>, Option<Wrong>) {
    let mut rest = data;
    let header = (|| {
        let good = take(&mut rest, SIGNATURE.len())? == SIGNATURE && (0..65536).contains(&int32(&mut rest)?);
        let length = usize::try_from(int32(&mut rest)?).ok()?;
        take(&mut rest, length).filter(|_| good)
    })();
    if header.is_none() {
        return (Vec::new(), Some(Wrong::Header));
    }
    let mut records = Vec::new();
    loop {
        let offset = (data.len() - rest.len()) as u64;
        let number = records.len() as u64 + 1;
        let Some(head) = take(&mut rest, 2) else { return (records, None) };
        let content = match i16::from_be_bytes([head[0], head[1]]) {
            -1 => return (records, (!rest.is_empty()).then_some(Wrong::AfterMarker)),
            n if usize::try_from(n) != Ok(count) => Err(n),
            _ => Ok(fields(&mut rest, count)),
        };
        let is_last = !matches!(content, Ok((_, None)));
        records.push(Found { number, offset, content });
        if is_last {
            return (records, None);
        }
    }
}

fn found(row: &Row, count: usize) -> Found {
    let mut fields = Fields::default();
    let line = &row.line[..];
    let content = fields.read(line, count).map(|()| {
        let there = (0..).map_while(|i| fields.get(i, line)).map(|field| field.map(<[u8]>::to_vec));
        (there.collect(), fields.fault())
    });
    Found { number: row.number, offset: row.offset, content }
}

/// Runs one input.
pub fn run(input: &[u8]) {
    let Some((&[flags, how, room, len, kind], data)) = input.split_first_chunk::<HEAD>() else { return };
    let count = usize::from(flags & 3);
    let data = if flags & 4 == 0 { [SIGNATURE, &[0; 8], data].concat() } else { data.to_vec() };
    let settings = Settings {
        dialect: Dialect { record_length: Some(count), ..Dialect::binary() },
        read_size: 1 + usize::from(room) * 3,
        utf8: flags & 8 != 0,
        max_char: 4,
        skip_bom: true,
        header_lines: u64::from(flags >> 4 & 1),
        header_fields: false,
        max_fields: 1,
        level: Level::best(),
    };
    let (expected, wrong) = walk(&data, count);
    let reading = in_order(&settings, &data);
    let failure = reading.failure.as_ref().map(|failure| match failure.error {
        ReadError::Header(_) => Wrong::Header,
        ReadError::AfterMarker => Wrong::AfterMarker,
        other => panic!("{other:?}"),
    });
    let rows: Vec<Found> = reading.rows.iter().map(|row| found(row, count)).collect();
    assert_eq!((&rows, failure), (&expected, wrong));
    let plan = Plan {
        settings,
        first: 1 + usize::from(how & 1),
        len: 1 + usize::from(len),
        room: usize::from(room),
        readers: 1 + usize::from(how >> 1 & 1),
        resume: (how >> 6 == 3).then_some(usize::from(how >> 2 & 15)),
    };
    assert_eq!(in_chunks(&plan, &data), reading, "{plan:?}");
    let values = expected.iter().filter_map(|record| record.content.as_ref().ok()).flat_map(|(fields, _)| fields);
    decode(kind, values.flatten().map(|field| &field[..]));
}

/// Decodes fields of one type and checks the values.
fn decode<'a>(kind: u8, fields: impl Iterator<Item = &'a [u8]>) {
    // bool, int2, int4, int8, oid, float4, float8, date, time, timestamp, timestamptz; bytea, text, varchar, bpchar,
    // uuid
    const TYPES: [(u32, usize); 16] = [
        (16, 1),
        (21, 2),
        (23, 4),
        (20, 8),
        (26, 4),
        (700, 4),
        (701, 8),
        (1082, 4),
        (1083, 8),
        (1114, 8),
        (1184, 8),
        (17, 0),
        (25, 0),
        (1043, 0),
        (1042, 0),
        (2950, 16),
    ];
    let (type_oid, size) = TYPES[usize::from(kind & 15)];
    let length = kind >> 4;
    let typmod = if length > 0 && matches!(type_oid, 1042 | 1043) { 4 + i32::from(length) } else { -1 };
    let Some(wire) = Wire::for_type(type_oid, typmod, Charset::Utf8, true) else {
        panic!("there is one for {type_oid}")
    };
    let mut arena = Arena::new();
    for field in fields {
        let datum = wire.decode(field, &mut arena);
        if size > 0 && field.len() != size {
            assert_eq!(datum, None, "{type_oid}");
            continue;
        }
        let number = field.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let signed = || (number << (64 - 8 * size)).cast_signed() >> (64 - 8 * size);
        // Days and microseconds since 2000: 24:00, 4714-11-24 BC, 5874898-01-01, 294277-01-01.
        let is_day = |n: i64| n == i32::MIN.into() || n == i32::MAX.into() || (-2_451_545..2_145_031_949).contains(&n);
        let is_time = |n: i64| {
            n == i64::MIN || n == i64::MAX || (-211_813_488_000_000_000..9_223_371_331_200_000_000).contains(&n)
        };
        let expected = match type_oid {
            16 => Some(u64::from(number != 0)),
            26 => Some(number),
            1082 => Some(signed()).filter(|n| is_day(*n)).map(i64::cast_unsigned),
            1083 => Some(signed()).filter(|n| (0..=86_400_000_000).contains(n)).map(i64::cast_unsigned),
            1114 | 1184 => Some(signed()).filter(|n| is_time(*n)).map(i64::cast_unsigned),
            2950 => {
                assert_eq!(datum.map(|datum| bytes_at(datum, 16)).as_deref(), Some(field));
                continue;
            }
            17 => {
                assert_eq!(datum.map(body).as_deref(), Some(field));
                continue;
            }
            25 | 1042 | 1043 => {
                string(field, datum, typmod, type_oid == 1042);
                continue;
            }
            _ => Some(signed().cast_unsigned()),
        };
        assert_eq!(datum, expected, "{type_oid} of {field:02x?}");
    }
}

/// A string's value must be its bytes, if they are valid text, with blanks behind it if it is too short.
fn string(field: &[u8], datum: Option<Datum>, typmod: i32, is_padded: bool) {
    let text = std::str::from_utf8(field).ok().filter(|text| !text.contains('\0'));
    let most = usize::try_from(typmod - 4).unwrap_or(usize::MAX);
    let fits = text.filter(|text| text.chars().count() <= most);
    let Some(found) = datum.map(body) else {
        // If a text is too long, removing its trailing blanks may make it fit.
        assert!(fits.is_none(), "{text:?} is refused");
        return;
    };
    let text = fits.unwrap_or_else(|| panic!("{field:02x?} is accepted"));
    let blanks = if is_padded && typmod > 0 { most - text.chars().count() } else { 0 };
    assert_eq!(found, [field, &vec![b' '; blanks]].concat());
}
