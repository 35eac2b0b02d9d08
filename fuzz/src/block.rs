//! Rows that are decoded in blocks, a column at a time, compared with the same decoders called field by field, and the
//! tuples that are formed of both.

use pg_bulk_storage::tuple::{Attribute, FormBuffer, Formed, Layout, Stamp, TOAST_TUPLE_THRESHOLD};
use pg_bulk_text::json_text::Charset;
use pg_bulk_text::reader::{Event, Reader, Settings, Value};
use pg_bulk_text::scan::Level;
use pg_bulk_types::arena::Arena;
use pg_bulk_types::block::{Block, FieldTarget};
use pg_bulk_types::convert::{Decoder, Session};

use super::reader::{chosen, dialect};

/// Length of the head, in bytes.
pub const HEAD: usize = 12;

const fn by_value(len: u8) -> Attribute {
    Attribute { len: len as i16, align: len, by_value: true, packable: false }
}
const fn fixed(len: i16, align: u8) -> Attribute {
    Attribute { len, align, by_value: false, packable: false }
}
const fn varlena(align: u8) -> Attribute {
    Attribute { len: -1, align, by_value: false, packable: true }
}

/// Types with a decoder: oid, typmod, and storage of values.
const TYPES: [(u32, i32, Attribute); 33] = [
    (23, -1, by_value(4)),
    (25, -1, varlena(4)),
    (20, -1, by_value(8)),
    (1700, -1, varlena(4)),
    (1700, (10 << 16 | 2) + 4, varlena(4)),
    (1082, -1, by_value(4)),
    (1114, -1, by_value(8)),
    (21, -1, by_value(2)),
    (16, -1, by_value(1)),
    (701, -1, by_value(8)),
    (1043, 5 + 4, varlena(4)),
    (1042, 3 + 4, varlena(4)),
    (2950, -1, fixed(16, 1)),
    (26, -1, by_value(4)),
    (700, -1, by_value(4)),
    (18, -1, by_value(1)),
    (17, -1, varlena(4)),
    (1184, -1, by_value(8)),
    (1083, -1, by_value(8)),
    (1186, -1, fixed(16, 8)),
    (114, -1, varlena(4)),
    (3802, -1, varlena(4)),
    (869, -1, varlena(4)),
    (1560, 4, varlena(4)),
    (1562, -1, varlena(4)),
    (3904, -1, varlena(4)),
    (3926, -1, varlena(8)),
    (1007, -1, varlena(4)),
    (1009, -1, varlena(4)),
    (1231, -1, varlena(4)),
    (1185, -1, varlena(8)),
    (1115, -1, varlena(8)),
    // A text column with storage plain.
    (25, -1, Attribute { len: -1, align: 4, by_value: false, packable: false }),
];

/// Runs one input: flags and characters of the dialect, how it is read, the number of columns and their types, the
/// data.
#[allow(unsafe_code, reason = "datums are addresses")]
pub fn run(input: &[u8]) {
    let Some((&[flags, delimiter, quote, escape, markers, how, room, level, a, b, c, d], data)) =
        input.split_first_chunk::<HEAD>()
    else {
        return;
    };
    // Without a DEFAULT marker, which needs defaults.
    let Some(dialect) = dialect([flags & !32, delimiter, quote, escape, markers]) else { return };
    let session =
        Session { charset: Charset::Utf8, zone_letters: false, utc: how & 8 == 0, interval_sql_standard: false };
    let types: Vec<_> = [a, b, c, d].iter().take(1 + usize::from(how & 3)).map(|&by| chosen(&TYPES, by)).collect();
    let decoders: Vec<Decoder> =
        types.iter().filter_map(|&(oid, typmod, _)| Decoder::for_type(oid, typmod, &session)).collect();
    assert_eq!(decoders.len(), types.len(), "a decoder for each");
    let attributes: Vec<Attribute> = types.iter().map(|&(.., attribute)| attribute).collect();
    // For some inputs one column is not needed, or does not allow NULL.
    let is_wanted = |i: usize| how >> 4 != i as u8 + 1;
    let not_null = |i: usize| how & 4 != 0 && i == 0;
    let columns = decoders.iter().enumerate().map(|(attribute, &decoder)| {
        is_wanted(attribute).then_some(FieldTarget { decoder, attribute, not_null: not_null(attribute) })
    });
    let Some(mut block) = Block::new(columns.collect(), decoders.len()) else { return };
    let stamp = Stamp { xmin: 7, cid: 3, frozen: false };
    let Some(layout) = Layout::new(&attributes, stamp, TOAST_TUPLE_THRESHOLD) else { panic!("a layout") };
    let column_forms = block.column_forms().to_vec();
    let mut reader = Reader::new(Settings {
        dialect,
        read_size: 1 + usize::from(room) * 40,
        utf8: true,
        max_char: 4,
        skip_bom: false,
        header_lines: 0,
        header_fields: false,
        max_fields: decoders.len() + 1,
        level: chosen(&Level::available(), level),
    });
    let (mut rest, mut arena, mut buffer) = (data, Arena::new(), FormBuffer::new());
    loop {
        let has_next = block.has_next(&reader);
        match reader.advance() {
            Event::NeedData => {
                assert!(!has_next);
                reader.give(&mut rest, usize::MAX).unwrap();
            }
            Event::Record => {
                arena.reset();
                let (mut values, mut nulls) = (vec![0; decoders.len()], vec![true; decoders.len()]);
                // The row, if the decoders are sure of all values.
                let mut sure = reader.fields() == decoders.len();
                for (i, decoder) in decoders.iter().enumerate().take(reader.fields()) {
                    let mut unescaped = Vec::new();
                    let bytes = match reader.value(i) {
                        Value::Null | Value::Default => {
                            sure &= !(not_null(i) && is_wanted(i));
                            continue;
                        }
                        Value::Plain(bytes) => bytes,
                        Value::Escaped(raw) => {
                            // Quotes that are dropped in a column that is not wanted are not looked at.
                            let unusual = reader.unescape(raw, &mut unescaped);
                            sure &= !unusual || (reader.dialect().is_csv() && !is_wanted(i));
                            &unescaped
                        }
                    };
                    if is_wanted(i) && sure {
                        match decoder.decode(bytes, &mut arena) {
                            Some(datum) => (values[i], nulls[i]) = (datum, false),
                            None => sure = false,
                        }
                    }
                }
                let Some(row) = block.row(&reader) else {
                    assert!(!has_next);
                    continue;
                };
                assert!(sure, "should be odd: {:?}", reader.raw_line().map(String::from_utf8_lossy));
                let (together, row_nulls) = (row.values.as_mut_ptr(), row.nulls.as_ptr());
                // SAFETY: values of these types, which live long enough; those of the row have the forms in its
                // column forms.
                unsafe {
                    let expected = tuple(layout.form(values.as_ptr(), nulls.as_ptr(), &mut buffer));
                    let found = tuple(layout.form_decoded(&column_forms, together, row_nulls, &mut buffer));
                    assert_eq!(found, expected, "{decoders:?}");
                    assert!(block.make_datums(together, row_nulls).is_some());
                    let made = tuple(layout.form(together, row_nulls, &mut buffer));
                    assert_eq!(made, expected, "{decoders:?}, as datums");
                }
            }
            Event::Header => (),
            Event::End | Event::Error(_) => return,
        }
    }
}

fn tuple(formed: Formed<'_>) -> Option<Vec<u8>> {
    match formed {
        Formed::Tuple(bytes) => Some(bytes.to_vec()),
        _ => None,
    }
}
