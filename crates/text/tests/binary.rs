//! Records of COPY's binary format, read in parts of any size, equal those of a loop over the whole file.

use pg_bulk_text::binary::{Fault, Fields, SIGNATURE};
use pg_bulk_text::dialect::Dialect;
use pg_bulk_text::naive::chunks::{Plan, in_chunks, in_order};
use pg_bulk_text::naive::settings as plain_settings;
use pg_bulk_text::reader::{Event, ReadError, Reader, RecordStart, Settings};
use pg_bulk_text::scan::Level;
use proptest::prelude::*;

/// A value, or NULL.
type Field = Option<Vec<u8>>;

/// A record: its number, its offset, and the fields that it contains.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    number: u64,
    offset: u64,
    fields: Vec<Field>,
}

/// The end of the data.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Good,
    Header,
    AfterMarker,
    Count(i16),
    Field(usize, Fault),
}

fn settings(read_size: usize) -> Settings {
    let settings = plain_settings(&Dialect::binary(), read_size, Level::best());
    Settings { utf8: false, skip_bom: true, header_lines: 1, max_fields: 1, ..settings }
}

fn reader(fields: usize, read_size: usize) -> Reader {
    let mut reader = Reader::new(settings(read_size));
    reader.expect_fields(fields);
    reader
}

/// Reads the rest of `data`, `piece` bytes at a time.
fn read(reader: &mut Reader, count: usize, mut data: &[u8], piece: usize) -> (Vec<Row>, End) {
    let (mut rows, mut fields) = (Vec::new(), Fields::default());
    loop {
        match reader.advance() {
            Event::NeedData => {
                let given = reader.give(&mut data, piece).unwrap();
                reader.verified(given);
            }
            Event::Record => {
                let line = reader.raw_line().unwrap();
                if let Err(count) = fields.read(line, count) {
                    return (rows, End::Count(count));
                }
                assert_eq!(reader.fields(), usize::from(fields.fault().is_none()));
                let there = (0..).map_while(|i| fields.get(i, line)).map(|field| field.map(<[u8]>::to_vec)).collect();
                rows.push(Row { number: reader.line_number(), offset: reader.record_offset(), fields: there });
                if let Some((field, fault)) = fields.fault() {
                    assert_eq!(reader.advance(), Event::End);
                    return (rows, End::Field(field, fault));
                }
            }
            Event::End => return (rows, End::Good),
            Event::Error(ReadError::AfterMarker) => return (rows, End::AfterMarker),
            Event::Error(ReadError::Header(_)) => return (rows, End::Header),
            other => panic!("{other:?}"),
        }
    }
}

/// Reads as `NextCopyFrom` does: a number, a value, a number.
fn by_hand(count: usize, data: &[u8]) -> (Vec<Row>, End) {
    fn take<'a>(data: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = data.split_at_checked(n)?;
        *data = rest;
        Some(taken)
    }
    fn int32(data: &mut &[u8]) -> Option<i32> {
        Some(i32::from_be_bytes(take(data, 4)?.try_into().unwrap()))
    }
    let mut rest = data;
    let header = (|| {
        let good = take(&mut rest, SIGNATURE.len())? == SIGNATURE && (0..65536).contains(&int32(&mut rest)?);
        let length = usize::try_from(int32(&mut rest)?).ok()?;
        take(&mut rest, length).filter(|_| good)
    })();
    if header.is_none() {
        return (Vec::new(), End::Header);
    }
    let mut rows = Vec::new();
    loop {
        let offset = (data.len() - rest.len()) as u64;
        let Some(head) = take(&mut rest, 2) else { return (rows, End::Good) };
        match i16::from_be_bytes(head.try_into().unwrap()) {
            -1 => return (rows, if rest.is_empty() { End::Good } else { End::AfterMarker }),
            n if n != i16::try_from(count).unwrap() => return (rows, End::Count(n)),
            _ => (),
        }
        let mut row = Row { number: rows.len() as u64 + 1, offset, fields: Vec::new() };
        for field in 0..count {
            let fault = match int32(&mut rest) {
                None => Fault::Missing,
                Some(-1) => {
                    row.fields.push(None);
                    continue;
                }
                Some(size @ 0..0x3fff_0000) => match take(&mut rest, usize::try_from(size).unwrap()) {
                    Some(value) => {
                        row.fields.push(Some(value.to_vec()));
                        continue;
                    }
                    None => Fault::Missing,
                },
                Some(size) if size < 0 => Fault::Size,
                Some(size) => Fault::TooLong { containing: 0, more: size.unsigned_abs().into() },
            };
            rows.push(row);
            return (rows, End::Field(field, fault));
        }
        rows.push(row);
    }
}

fn check(count: usize, data: &[u8], pieces: &[usize]) -> (Vec<Row>, End) {
    let expected = by_hand(count, data);
    for &piece in pieces {
        assert_eq!(read(&mut reader(count, piece), count, data, piece), expected, "{piece}");
    }
    // By several processes, with ranges of any length.
    let settings = Settings { dialect: Dialect { record_length: Some(count), ..Dialect::binary() }, ..settings(100) };
    let reading = in_order(&settings, data);
    for len in pieces.iter().map(|piece| 1 + piece % 61).chain([2, 64]) {
        let plan = Plan { settings: settings.clone(), first: 1, len, room: 3, readers: 2, resume: None };
        assert_eq!(in_chunks(&plan, data), reading, "{len}");
    }
    // From each record on.
    for row in expected.0.iter().step_by(1 + expected.0.len() / 8) {
        let mut reader = reader(count, 100);
        let eol = pg_bulk_text::dialect::Eol::Nl;
        reader.resume(RecordStart { eol, offset: row.offset, lines: row.number - 1 });
        let at = usize::try_from(row.number - 1).unwrap();
        let rest = &data[usize::try_from(row.offset).unwrap()..];
        assert_eq!(read(&mut reader, count, rest, 100), (expected.0[at..].to_vec(), expected.1.clone()));
    }
    expected
}

fn file(extension: &[u8], records: &[Vec<Field>], marker: bool) -> Vec<u8> {
    let mut file = SIGNATURE.to_vec();
    file.extend([0; 4]);
    file.extend(u32::try_from(extension.len()).unwrap().to_be_bytes());
    file.extend(extension);
    for record in records {
        file.extend(u16::try_from(record.len()).unwrap().to_be_bytes());
        for field in record {
            file.extend(field.as_ref().map_or(-1, |value| i32::try_from(value.len()).unwrap()).to_be_bytes());
            file.extend(field.as_deref().unwrap_or_default());
        }
    }
    if marker {
        file.extend([0xff; 2]);
    }
    file
}

/// Files cut at any byte, with a surplus byte, and with each byte changed.
#[test]
fn damaged_anywhere() {
    let records = [vec![Some(b"ab".to_vec()), None], vec![Some(Vec::new()), Some(vec![0xff; 5])], vec![None, None]];
    let whole = file(b"xyz", &records, true);
    let pieces = [1, 2, 3, 7, 1000];
    assert_eq!(check(2, &whole, &pieces).1, End::Good);
    for length in 0..whole.len() {
        check(2, &whole[..length], &pieces);
    }
    check(2, &[&whole[..], &[0]].concat(), &pieces);
    for at in 0..whole.len() {
        for byte in [0, 1, 2, 0x40, 0x7f, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] = byte;
            check(2, &damaged, &pieces);
        }
    }
    check(0, &file(b"", &vec![Vec::new(); 3], true), &pieces);
}

/// More records than a batch holds, and one that is longer than a read.
#[test]
fn many_and_long_records() {
    let mut records: Vec<Vec<Field>> = (0..5000u32).map(|n| vec![Some(n.to_string().into_bytes())]).collect();
    records.insert(3000, vec![Some(vec![7; 300_000])]);
    let (rows, end) = check(1, &file(b"", &records, true), &[64, 4096, 1 << 20]);
    assert_eq!((rows.len(), end), (5001, End::Good));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 10 } else { 500 }))]

    #[test]
    fn random_records(
        count in 0usize..5,
        records in prop::collection::vec(prop::collection::vec(
            prop::option::weighted(0.8, prop::collection::vec(any::<u8>(), 0..20)), 5), 0..30),
        extension in prop::collection::vec(any::<u8>(), 0..50),
        marker in any::<bool>(),
        cut in prop::option::weighted(0.5, any::<prop::sample::Index>()),
        change in prop::option::weighted(0.5, (any::<prop::sample::Index>(), any::<u8>())),
        piece in 1usize..100,
    ) {
        let records: Vec<_> = records.iter().map(|record| record[..count].to_vec()).collect();
        let mut data = file(&extension, &records, marker);
        if let Some((at, byte)) = change {
            let at = at.index(data.len());
            data[at] = byte;
        }
        if let Some(cut) = cut {
            data.truncate(cut.index(data.len()));
        }
        check(count, &data, &[piece]);
    }
}
