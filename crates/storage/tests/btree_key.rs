//! Words of keys compared with the order of their columns, and keys read from heap tuples.

use std::cmp::Ordering;

use pg_bulk_storage::btree::entry::{Entry, Tid, Word};
use pg_bulk_storage::btree::key::{KeyColumn, KeyKind, KeyShape, KeyValue, Width};
use pg_bulk_storage::btree::read::KeyReader;
use pg_bulk_storage::page::{PAGE_SIZE, PageBatch};
use pg_bulk_storage::tuple::{Attribute, FormBuffer, Formed, Layout, Stamp, TOAST_TUPLE_THRESHOLD};
use proptest::collection::vec;
use proptest::prelude::*;

const KINDS: [KeyKind; 9] = [
    KeyKind::Int2,
    KeyKind::Int4,
    KeyKind::Int8,
    KeyKind::Oid,
    KeyKind::Float4,
    KeyKind::Float8,
    KeyKind::Uuid,
    KeyKind::Bool,
    KeyKind::Char,
];

fn column() -> impl Strategy<Value = KeyColumn> {
    (0..KINDS.len(), any::<[bool; 3]>()).prop_map(|(kind, [descending, nulls_first, nullable])| KeyColumn {
        kind: KINDS[kind],
        descending,
        nulls_first,
        nullable,
    })
}

/// Makes a value of a type. Extreme and adjacent values are frequent.
fn value(kind: KeyKind, number: u64) -> KeyValue {
    let few = |n: u64| -> i64 {
        match n % 8 {
            0 => i64::MIN,
            1 => i64::MAX,
            2 => 0,
            3 => -1,
            4 => 1,
            5 => (n >> 3) as i64 % 4,
            _ => (n >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64,
        }
    };
    let int = few(number);
    let float = |n: u64| -> f64 {
        match n % 8 {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => 0.0,
            4 => f64::MIN_POSITIVE / 2.0,
            5 => -f64::MIN_POSITIVE / 2.0,
            6 => ((n >> 3) as i32) as f64,
            _ => -1.5 * (n >> 3) as f64 - 1.0,
        }
    };
    KeyValue::Datum(match kind {
        KeyKind::Int2 => int.clamp(-32768, 32767) as u64,
        KeyKind::Int4 => int.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u64,
        KeyKind::Int8 => int as u64,
        KeyKind::Oid => u64::from(int as u32),
        KeyKind::Float4 => {
            let float = match number % 8 {
                4 => f32::MIN_POSITIVE / 2.0,
                5 => -f32::MIN_POSITIVE / 2.0,
                _ => float(number) as f32,
            };
            float.to_bits() as i32 as u64
        }
        KeyKind::Float8 => float(number).to_bits(),
        KeyKind::Bool => number & 1,
        KeyKind::Char => int as i8 as u64,
        KeyKind::Uuid => {
            // Without the two that have no word in a nullable column.
            let uuid = u128::from(int as u64) << 64 | u128::from(few(number / 5) as u64);
            return KeyValue::Uuid(uuid.clamp(1, u128::MAX - 1).to_be_bytes());
        }
    })
}

/// A comparison function of the type, such as btint4cmp.
fn compare_values(kind: KeyKind, a: KeyValue, b: KeyValue) -> Ordering {
    let (a, b) = match (a, b) {
        (KeyValue::Uuid(a), KeyValue::Uuid(b)) => return a.cmp(&b),
        (KeyValue::Datum(a), KeyValue::Datum(b)) => (a, b),
        _ => unreachable!(),
    };
    let float = |a: f64, b: f64| a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
    match kind {
        KeyKind::Int2 | KeyKind::Int4 | KeyKind::Int8 => (a as i64).cmp(&(b as i64)),
        KeyKind::Float4 => float(f64::from(f32::from_bits(a as u32)), f64::from(f32::from_bits(b as u32))),
        KeyKind::Float8 => float(f64::from_bits(a), f64::from_bits(b)),
        KeyKind::Char => (a as u8).cmp(&(b as u8)),
        _ => a.cmp(&b),
    }
}

/// The order of an index: _bt_compare without TIDs.
fn compare(columns: &[KeyColumn], a: &[KeyValue], b: &[KeyValue]) -> Ordering {
    for (i, column) in columns.iter().enumerate() {
        let nulls = |ordering: Ordering| if column.nulls_first { ordering } else { ordering.reverse() };
        let order = match (a[i], b[i]) {
            (KeyValue::Null, KeyValue::Null) => Ordering::Equal,
            (KeyValue::Null, _) => nulls(Ordering::Less),
            (_, KeyValue::Null) => nulls(Ordering::Greater),
            (a, b) if column.descending => compare_values(column.kind, b, a),
            (a, b) => compare_values(column.kind, a, b),
        };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

fn row(columns: &[KeyColumn], numbers: &[u64]) -> Vec<KeyValue> {
    let one = |(column, number): (&KeyColumn, &u64)| {
        if column.nullable && number.is_multiple_of(5) { KeyValue::Null } else { value(column.kind, number / 5) }
    };
    columns.iter().zip(numbers).map(one).collect()
}

fn check_order<W: Word>(columns: &[KeyColumn], shape: &KeyShape, rows: &[Vec<KeyValue>]) {
    let words: Vec<W> = rows.iter().map(|row| shape.encode(row).unwrap()).collect();
    for (a, row) in words.iter().zip(rows) {
        for (i, value) in row.iter().enumerate() {
            assert_eq!(shape.decode(*a, i), *value, "{columns:?} {row:?}");
        }
        assert_eq!(shape.has_null(*a), row.contains(&KeyValue::Null));
        for (b, other) in words.iter().zip(rows) {
            assert_eq!(a.cmp(b), compare(columns, row, other), "{columns:?} {row:?} {other:?}");
        }
    }
}

fn bits(columns: &[KeyColumn]) -> usize {
    let bits = |kind: KeyKind| if kind == KeyKind::Bool { 1 } else { 8 * kind.size() };
    columns.iter().map(|column| bits(column.kind) + usize::from(column.nullable)).sum()
}

proptest! {
    #[test]
    fn words_have_the_order_of_keys(
        columns in vec(column(), 1..5),
        rows in vec(vec(any::<u64>(), 4), 2..24),
    ) {
        let Some(shape) = KeyShape::new(&columns) else {
            prop_assert!(bits(&columns) > 128 && columns.len() > 1);
            return Ok(());
        };
        let rows: Vec<_> = rows.iter().map(|numbers| row(&columns, numbers)).collect();
        match shape.width() {
            Width::Narrow => check_order::<u64>(&columns, &shape, &rows),
            Width::Wide => check_order::<u128>(&columns, &shape, &rows),
        }
        prop_assert_eq!(shape.width() == Width::Narrow, bits(&columns) <= 64);
    }
}

fn only(kind: KeyKind, nullable: bool, nulls_first: bool) -> KeyShape {
    KeyShape::new(&[KeyColumn { kind, descending: false, nulls_first, nullable }]).unwrap()
}

#[test]
fn floats_without_an_image_have_no_word() {
    let shape = only(KeyKind::Float8, false, false);
    assert_eq!(shape.encode::<u64>(&[KeyValue::Datum((-0.0f64).to_bits())]), None);
    assert_eq!(shape.encode::<u64>(&[KeyValue::Datum(f64::NAN.to_bits() | 1)]), None);
    assert_eq!(shape.encode::<u64>(&[KeyValue::Datum(f64::NAN.to_bits() | 1 << 63)]), None);
    let nan: u64 = shape.encode(&[KeyValue::Datum(f64::NAN.to_bits())]).unwrap();
    assert!(nan > shape.encode(&[KeyValue::Datum(f64::INFINITY.to_bits())]).unwrap());
    let shape = only(KeyKind::Float4, false, false);
    assert_eq!(shape.encode::<u64>(&[KeyValue::Datum(u64::from((-0.0f32).to_bits()))]), None);
    assert_eq!(shape.encode::<u64>(&[KeyValue::Datum(u64::from(f32::NAN.to_bits() | 1))]), None);
}

#[test]
fn nulls_among_uuids_take_the_place_of_one() {
    let (least, greatest) = (KeyValue::Uuid([0; 16]), KeyValue::Uuid([255; 16]));
    let last = only(KeyKind::Uuid, true, false);
    assert_eq!(last.width(), Width::Wide);
    assert_eq!(last.encode::<u128>(&[greatest]), None);
    assert!(last.encode::<u128>(&[KeyValue::Null]) > last.encode(&[least]));
    let first = only(KeyKind::Uuid, true, true);
    assert_eq!(first.encode::<u128>(&[least]), None);
    assert!(first.encode::<u128>(&[KeyValue::Null]) < first.encode(&[greatest]));
    let without = only(KeyKind::Uuid, false, false);
    assert!(without.encode::<u128>(&[greatest]).is_some() && without.encode::<u128>(&[least]).is_some());
    assert_eq!(without.encode::<u128>(&[KeyValue::Null]), None);
}

#[test]
fn what_does_not_fit_has_no_shape() {
    let column = |kind| KeyColumn { kind, descending: false, nulls_first: false, nullable: false };
    assert!(KeyShape::new(&[]).is_none());
    assert!(KeyShape::new(&[column(KeyKind::Uuid), column(KeyKind::Bool)]).is_none());
    assert!(KeyShape::new(&[column(KeyKind::Int8), column(KeyKind::Int8), column(KeyKind::Bool)]).is_none());
    assert!(KeyShape::new(&[column(KeyKind::Bool); 33]).is_none());
    let shape = KeyShape::new(&[column(KeyKind::Bool); 32]).unwrap();
    assert_eq!((shape.width(), shape.tuple_size()), (Width::Narrow, 40));
}

/// An attribute of a table with a value.
#[derive(Clone, Debug)]
enum Cell {
    Key(KeyKind, KeyValue),
    Text(Option<Vec<u8>>),
    /// Never gets a header of one byte.
    PlainText(Option<Vec<u8>>),
    Name(u8),
}

fn attribute(cell: &Cell) -> Attribute {
    match cell {
        Cell::Key(kind, _) => {
            Attribute { len: kind.size() as i16, align: kind.align() as u8, by_value: kind.by_value(), packable: false }
        }
        Cell::Text(_) => Attribute { len: -1, align: 4, by_value: false, packable: true },
        Cell::PlainText(_) => Attribute { len: -1, align: 4, by_value: false, packable: false },
        Cell::Name(_) => Attribute { len: 64, align: 1, by_value: false, packable: false },
    }
}

fn cells() -> impl Strategy<Value = Vec<Cell>> {
    let text = || proptest::option::of(vec(any::<u8>(), 0..200));
    let cell = prop_oneof![
        5 => (0..KINDS.len(), any::<u64>()).prop_map(|(kind, number)| {
            let kind = KINDS[kind];
            Cell::Key(kind, if number.is_multiple_of(7) { KeyValue::Null } else { value(kind, number / 7) })
        }),
        2 => text().prop_map(Cell::Text),
        1 => text().prop_map(Cell::PlainText),
        1 => any::<u8>().prop_map(Cell::Name),
    ];
    vec(cell, 1..20)
}

/// A row's tuple, on a page of its own.
fn tuple(cells: &[Cell]) -> PageBatch {
    let attributes: Vec<_> = cells.iter().map(attribute).collect();
    let stamp = Stamp { xmin: 700, cid: 0, frozen: false };
    let layout = Layout::new(&attributes, stamp, TOAST_TUPLE_THRESHOLD * 4).unwrap();
    let mut kept: Vec<Vec<u64>> = Vec::new();
    let mut keep = |bytes: &[u8]| {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(whole);
        }
        kept.push(words);
        kept.last().unwrap().as_ptr().expose_provenance() as u64
    };
    let mut varlena = |bytes: &Vec<u8>| {
        let header = (bytes.len() as u32 + 4) << 2;
        keep(&[&header.to_ne_bytes()[..], bytes].concat())
    };
    let mut values = Vec::new();
    for cell in cells {
        values.push(match cell {
            Cell::Key(_, KeyValue::Null) | Cell::Text(None) | Cell::PlainText(None) => None,
            Cell::Key(_, KeyValue::Datum(datum)) => Some(*datum),
            Cell::Key(_, KeyValue::Uuid(bytes)) => Some(varlena(&bytes.to_vec()) + 4),
            Cell::Text(Some(bytes)) | Cell::PlainText(Some(bytes)) => Some(varlena(bytes)),
            Cell::Name(byte) => Some(varlena(&vec![*byte; 64]) + 4),
        });
    }
    let nulls: Vec<bool> = values.iter().map(Option::is_none).collect();
    let values: Vec<u64> = values.iter().map(|value| value.unwrap_or_default()).collect();
    let mut buffer = FormBuffer::new();
    // SAFETY: there is a value for each attribute, and the bytes that they point to are kept.
    #[allow(unsafe_code, reason = "datums are addresses")]
    let formed = unsafe { layout.form(values.as_ptr(), nulls.as_ptr(), &mut buffer) };
    let Formed::Tuple(tuple) = formed else { panic!("{formed:?}") };
    let mut batch = PageBatch::new(1, 0, false).unwrap();
    batch.add(tuple).unwrap();
    batch.add(tuple).unwrap();
    batch.finish();
    batch
}

#[test]
#[cfg(target_endian = "little")]
fn tuples_of_other_tables_have_no_keys() {
    let bool_of = |datum| vec![Cell::Name(7), Cell::Key(KeyKind::Bool, KeyValue::Datum(datum))];
    let shape = only(KeyKind::Bool, false, false);
    let attributes: Vec<_> = bool_of(0).iter().map(attribute).collect();
    let reader = KeyReader::new(&attributes, &[2], &shape).unwrap();
    let batch = tuple(&bool_of(1));
    let mut bytes = batch.tuples(0).next().unwrap().1.to_vec();
    assert_eq!(reader.read::<u64>(&bytes), Some(1));
    // t_infomask2: a row from before the column was added.
    bytes[18] = 1;
    assert_eq!(reader.read::<u64>(&bytes), None);
    assert_eq!(reader.read::<u64>(tuple(&bool_of(2)).tuples(0).next().unwrap().1), None);
    assert!(KeyReader::new(&attributes, &[1], &shape).is_none());
    assert!(KeyReader::new(&attributes, &[3], &shape).is_none());
    assert!(KeyReader::new(&attributes, &[0], &shape).is_none());
    assert!(KeyReader::new(&attributes, &[2, 2], &shape).is_none());

    let mut page: [u8; PAGE_SIZE] = batch.pages().try_into().unwrap();
    let mut entries = Vec::new();
    // LP_DEAD: a line pointer without a tuple.
    page[25] |= 0x80;
    page[26] |= 1;
    assert_eq!(reader.read_page::<u64>(&page, 9, &mut entries), Some(1));
    assert_eq!(entries, [Entry::new(1, Tid::new(9, 2))]);
}

#[cfg(target_endian = "little")]
proptest! {
    #[test]
    fn keys_are_read_from_tuples(
        cells in cells(),
        picks in vec((0usize..64, any::<[bool; 2]>()), 1..4),
        nullable in any::<bool>(),
    ) {
        let keys: Vec<usize> = (0..cells.len()).filter(|i| matches!(cells[*i], Cell::Key(..))).collect();
        prop_assume!(!keys.is_empty());
        let picked: Vec<usize> = picks.iter().map(|(pick, _)| keys[pick % keys.len()]).collect();
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        for (i, (_, [descending, nulls_first])) in picked.iter().zip(&picks) {
            let Cell::Key(kind, value) = cells[*i] else { unreachable!() };
            columns.push(KeyColumn { kind, descending: *descending, nulls_first: *nulls_first, nullable });
            values.push(value);
        }
        let shape = KeyShape::new(&columns);
        prop_assume!(shape.is_some());
        let shape = shape.unwrap();
        let attributes: Vec<_> = cells.iter().map(attribute).collect();
        let numbers: Vec<u16> = picked.iter().map(|i| *i as u16 + 1).collect();
        let reader = KeyReader::new(&attributes, &numbers, &shape).unwrap();
        let batch = tuple(&cells);
        let mut entries: Vec<Entry<u128>> = Vec::new();
        let read = reader.read_page(batch.pages().first_chunk().unwrap(), 7, &mut entries);
        match shape.encode::<u128>(&values) {
            None => prop_assert_eq!(read, None),
            Some(word) => {
                prop_assert_eq!(read, Some(2));
                prop_assert_eq!(entries, vec![
                    Entry::new(word, Tid::new(7, 1)),
                    Entry::new(word, Tid::new(7, 2)),
                ]);
                if shape.width() == Width::Narrow {
                    let (_, tuple) = batch.tuples(0).next().unwrap();
                    prop_assert_eq!(reader.read::<u64>(tuple), Some(word as u64));
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_a_tuple_or_none(cells in cells(), bytes in vec(any::<u8>(), 0..80), cut in 0usize..400) {
        let keys: Vec<usize> = (0..cells.len()).filter(|i| matches!(cells[*i], Cell::Key(..))).collect();
        prop_assume!(!keys.is_empty());
        let last = *keys.last().unwrap();
        let Cell::Key(kind, _) = cells[last] else { unreachable!() };
        let shape = only(kind, true, false);
        let attributes: Vec<_> = cells.iter().map(attribute).collect();
        let reader = KeyReader::new(&attributes, &[last as u16 + 1], &shape).unwrap();
        reader.read::<u128>(&bytes);
        let batch = tuple(&cells);
        let (_, tuple) = batch.tuples(0).next().unwrap();
        reader.read::<u128>(&tuple[..cut.min(tuple.len())]);
        let mut changed = tuple.to_vec();
        for (i, byte) in bytes.iter().enumerate() {
            let at = usize::from(*byte) * (i + 1) % changed.len();
            changed[at] ^= byte;
        }
        reader.read::<u128>(&changed);
    }
}
