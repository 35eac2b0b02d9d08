//! Rows that are decoded in blocks equal rows that are decoded one by one: the same tuples, for all kinds of files and
//! at every level. No row is odd without a reason.

#![allow(unsafe_code, reason = "datums are addresses")]

use pg_bulk_storage::tuple::{Attribute, FormBuffer, Formed, Layout, Stamp, TOAST_TUPLE_THRESHOLD};
use pg_bulk_text::dialect::{Dialect, EndMarker, FormatOptions};
use pg_bulk_text::json_text::Charset;
use pg_bulk_text::naive;
use pg_bulk_text::reader::{Event, Reader, Settings, Value};
use pg_bulk_text::scan::Level;
use pg_bulk_types::arena::Arena;
use pg_bulk_types::block::{Block, FieldTarget};
use pg_bulk_types::convert::{Decoder, Session};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

/// Oid, typmod, and storage of a value.
const TYPES: &[(u32, i32, Attribute)] = {
    const fn by_value(len: i16) -> Attribute {
        Attribute { len, align: len as u8, by_value: true, packable: false }
    }
    const VARLENA: Attribute = Attribute { len: -1, align: 4, by_value: false, packable: true };
    const PLAIN: Attribute = Attribute { len: -1, align: 4, by_value: false, packable: false };
    &[
        (23, -1, by_value(4)),
        (25, -1, VARLENA),
        (21, -1, by_value(2)),
        (1043, 5 + 4, VARLENA),
        (16, -1, by_value(1)),
        (1700, ((10 << 16) | 2) + 4, VARLENA),
        (20, -1, by_value(8)),
        (1042, 3 + 4, VARLENA),
        (1700, -1, VARLENA),
        (2950, -1, Attribute { len: 16, align: 1, by_value: false, packable: false }),
        (1114, -1, by_value(8)),
        (25, -1, PLAIN),
        (1082, -1, by_value(4)),
    ]
};

/// A text that the column's type accepts, or NULL, or sometimes any text.
fn field(column: usize, odd: u32) -> BoxedStrategy<String> {
    let good = match TYPES[column].0 {
        23 | 20 => "-?[0-9]{1,9}",
        21 => "-?[0-9]{1,4}",
        1043 => "[a-zä]{0,5}",
        25 => "[a-z ]{0,70}|[a-z]{120,140}|[a-z]{1000}",
        16 => "t|f|true",
        1700 => "-?[0-9]{1,8}(\\.[0-9]{1,2})?|[0-9]{9,20}\\.5",
        1042 => "[a-z]{3}|[a-zß]{1,2}",
        2950 => "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        1114 => "20[0-9]{2}-0[1-9]-1[0-9] 1[0-9]:[0-5][0-9]:00(\\.[0-9]{1,6})?",
        _ => "19[0-9]{2}-0[1-9]-1[0-9]",
    };
    prop_oneof![600 => good, 200 => "NULL", odd => "[-a-z0-9.\"\\\\ ]{0,20}"].boxed()
}

/// A record. With `odd`, it sometimes lacks a field.
fn record(odd: u32) -> impl Strategy<Value = Vec<String>> {
    let fields: Vec<_> = (0..TYPES.len()).map(|column| field(column, odd)).collect();
    (fields, 0..60u32).prop_map(move |(mut fields, chance)| {
        if chance < odd {
            fields.pop();
        }
        fields
    })
}

/// Writes CSV with or without quotes, text, CSV with a digit as the quote, with a long delimiter, or with no quote and
/// a delimiter at the end of lines.
fn spell(records: &[Vec<String>], style: usize) -> Vec<u8> {
    let spell_field = |f: &String| match style {
        0 | 4 if f == "NULL" => String::new(),
        0 | 4 => format!("\"{}\"", f.replace('"', "\"\"")),
        1 => f.replace('"', ""),
        // Here 5 is the quote and may open and close at any position, so its number must be even.
        3 if f.matches('5').count() % 2 == 1 => format!("{f}5"),
        3 | 5 => f.clone(),
        _ if f == "NULL" => "\\N".into(),
        _ => f.replace('\\', "\\\\"),
    };
    let delimiter = DELIMITERS[style];
    let end = if style == 5 { "\t\n" } else { "\n" };
    let line = |r: &Vec<String>| r.iter().map(spell_field).collect::<Vec<_>>().join(delimiter) + end;
    // The first record shows how lines end.
    records.iter().map(line).collect::<String>().into_bytes()
}

const DELIMITERS: [&str; 6] = [",", ",", "\t", ",", "~|~", "\t"];

fn dialect(style: usize) -> Dialect {
    let options = FormatOptions {
        csv: style != 2,
        delimiter: Some(DELIMITERS[style].into()),
        quote: (style == 3).then(|| b"5".to_vec()),
        unquoted: style == 5,
        trailing: style == 5,
        null: Some(match style {
            0 | 4 => Vec::new(),
            2 => b"\\N".to_vec(),
            _ => b"NULL".to_vec(),
        }),
        ..FormatOptions::default()
    };
    Dialect::check(&options, EndMarker::Until17).unwrap()
}

fn decoders() -> Vec<Decoder> {
    let session = Session { charset: Charset::Utf8, zone_letters: false, utc: true, interval_sql_standard: false };
    TYPES.iter().map(|&(oid, typmod, _)| Decoder::for_type(oid, typmod, &session).unwrap()).collect()
}

fn tuple(formed: Formed<'_>) -> Option<Vec<u8>> {
    match formed {
        Formed::Tuple(bytes) => Some(bytes.to_vec()),
        _ => None,
    }
}

/// The columns that are needed, one bit each.
const ALL: u32 = u32::MAX;

/// Reads a file and compares each row of a block. Returns the number of these rows, and of all rows that could be in a
/// block.
fn compare(
    data: &[u8],
    style: usize,
    level: Level,
    read_size: usize,
    not_null: Option<usize>,
    wanted: u32,
) -> (usize, usize) {
    let decoders = decoders();
    let attributes: Vec<Attribute> = TYPES.iter().map(|t| t.2).collect();
    let stamp = Stamp { xmin: 7, cid: 3, frozen: false };
    let layout = Layout::new(&attributes, stamp, TOAST_TUPLE_THRESHOLD).unwrap();
    let columns = decoders.iter().enumerate();
    let is_wanted = |i: usize| wanted >> i & 1 != 0;
    let columns = columns.map(|(attribute, &decoder)| {
        is_wanted(attribute).then_some(FieldTarget { decoder, attribute, not_null: not_null == Some(attribute) })
    });
    let mut block = Block::new(columns.collect(), TYPES.len()).unwrap();
    let column_forms = block.column_forms().to_vec();
    let settings = naive::settings(&dialect(style), read_size, level);
    let mut reader = Reader::new(Settings { skip_bom: true, max_fields: TYPES.len() + 1, ..settings });
    let (mut rest, mut arena, mut buffer) = (data, Arena::new(), FormBuffer::new());
    let (mut there, mut possible) = (0, 0);
    loop {
        let has_next = block.has_next(&reader);
        match reader.advance() {
            Event::NeedData => {
                assert!(!has_next);
                reader.give(&mut rest, usize::MAX).unwrap();
            }
            Event::Record => {
                arena.reset();
                let was_there = block.has(&reader);
                let mut values = vec![0; TYPES.len()];
                let mut nulls = vec![false; TYPES.len()];
                let mut good = reader.fields() == TYPES.len();
                for i in 0..reader.fields().min(TYPES.len()) {
                    let mut unescaped = Vec::new();
                    let bytes = match reader.value(i) {
                        Value::Null => {
                            nulls[i] = true;
                            good &= not_null != Some(i) || !is_wanted(i);
                            continue;
                        }
                        Value::Plain(bytes) => bytes,
                        Value::Escaped(raw) => {
                            // Quotes that are dropped in a column that is not wanted are not looked at.
                            let unusual = reader.unescape(raw, &mut unescaped);
                            good &= !unusual || (reader.dialect().is_csv() && !is_wanted(i));
                            &unescaped
                        }
                        Value::Default => unreachable!(),
                    };
                    if !is_wanted(i) {
                        nulls[i] = true;
                        continue;
                    }
                    match decoders[i].decode(bytes, &mut arena) {
                        Some(datum) => values[i] = datum,
                        None => good = false,
                    }
                }
                possible += usize::from(good);
                let Some(row) = block.row(&reader) else {
                    assert!(!has_next);
                    continue;
                };
                assert_eq!(has_next, was_there);
                assert!(good, "a row that should be odd: {:?}", reader.raw_line().map(String::from_utf8_lossy));
                there += 1;
                let (together, row_nulls) = (row.values.as_mut_ptr(), row.nulls.as_ptr());
                // SAFETY: values of these types, which live long enough; those of the row have the forms in its
                // column forms.
                unsafe {
                    let expected = tuple(layout.form(values.as_ptr(), nulls.as_ptr(), &mut buffer));
                    let formed = tuple(layout.form_decoded(&column_forms, together, row_nulls, &mut buffer));
                    assert_eq!(formed, expected);
                    block.make_datums(together, row_nulls).unwrap();
                    assert_eq!(tuple(layout.form(together, row_nulls, &mut buffer)), expected);
                }
            }
            Event::End => return (there, possible),
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rows_are_the_same(
        records in prop::collection::vec(record(1), 1..150),
        style in 0..6usize,
        read_size in prop::sample::select(vec![100usize, 5000, 1 << 20]),
        not_null in prop::option::of(0..13usize),
        wanted in prop_oneof![Just(ALL), Just(0), any::<u32>()],
    ) {
        let data = spell(&records, style);
        for level in Level::available() {
            compare(&data, style, level, read_size, not_null, wanted);
        }
    }
}

#[test]
fn no_row_is_odd_without_a_reason() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for style in [0, 1, 2, 4, 5] {
        let records = prop::collection::vec(record(0), 300);
        let records = records.new_tree(&mut runner).unwrap().current();
        let data = spell(&records, style);
        for level in Level::available() {
            for wanted in [ALL, 0] {
                let (there, possible) = compare(&data, style, level, 1 << 20, None, wanted);
                // The kernels do not read the first record, and the last ones have too few bytes behind them.
                assert!(
                    possible > 150 && there + 12 >= possible,
                    "{there} of {possible} rows, style {style}, {level:?}"
                );
            }
        }
    }
}
