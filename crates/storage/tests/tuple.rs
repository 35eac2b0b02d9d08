//! Heap tuples compared with a twin that forms them as the manual's chapter on page layout describes.
//!
//! The twin processes one attribute at a time and builds a new vector for each row. The buffer of the tested code has
//! held another row before, whose bytes must not appear in the tuple.

#![allow(unsafe_code, reason = "datums are addresses")]

use pg_bulk_storage::tuple::{Attribute, FormBuffer, Formed, Layout, MAX_TUPLE_SIZE, Stamp, TOAST_TUPLE_THRESHOLD};
use pg_bulk_types::block::ColumnForm;
use proptest::prelude::*;

/// A value in the tests. The memory of a by-reference value has exactly its bytes.
#[derive(Clone, Debug)]
enum Value {
    Null,
    Word(u64),
    Bytes(VarlenaForm, Box<[u8]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VarlenaForm {
    NoVarlena,
    /// With a header of four bytes.
    Long,
    Compressed,
    /// With a header of one byte.
    Short,
    External,
}

impl Value {
    fn datum(&self) -> u64 {
        match self {
            // An address that must not be read.
            Value::Null => 1,
            Value::Word(word) => *word,
            Value::Bytes(_, bytes) => bytes.as_ptr().expose_provenance() as u64,
        }
    }
}

type Row = Vec<(Attribute, Value)>;

fn form<'b>(row: &[(Attribute, Value)], stamp: Stamp, limit: usize, buffer: &'b mut FormBuffer) -> Formed<'b> {
    let attributes: Vec<Attribute> = row.iter().map(|(attribute, _)| *attribute).collect();
    let values: Vec<u64> = row.iter().map(|(_, value)| value.datum()).collect();
    let nulls: Vec<bool> = row.iter().map(|(_, value)| matches!(value, Value::Null)).collect();
    let layout = Layout::new(&attributes, stamp, limit).unwrap();
    // SAFETY: the values are those of the attributes, and live until the end of the test.
    unsafe { layout.form(values.as_ptr(), nulls.as_ptr(), buffer) }
}

// Varlenas in both byte orders.

fn long(bytes: &[u8]) -> Value {
    let size = bytes.len() as u32 + 4;
    let header = if cfg!(target_endian = "big") { size.to_be_bytes() } else { (size * 4).to_le_bytes() };
    Value::Bytes(VarlenaForm::Long, [&header, bytes].concat().into())
}

fn compressed(bytes: &[u8]) -> Value {
    let size = bytes.len() as u32 + 4;
    let header =
        if cfg!(target_endian = "big") { (size + 0x4000_0000).to_be_bytes() } else { (size * 4 + 2).to_le_bytes() };
    Value::Bytes(VarlenaForm::Compressed, [&header, bytes].concat().into())
}

fn short(bytes: &[u8]) -> Value {
    Value::Bytes(VarlenaForm::Short, short_bytes(bytes).into())
}

fn short_bytes(bytes: &[u8]) -> Vec<u8> {
    let size = bytes.len() as u8 + 1;
    let header = if cfg!(target_endian = "big") { 0x80 + size } else { size * 2 + 1 };
    [&[header], bytes].concat()
}

fn external(tag: u8) -> Value {
    let mut pointer = vec![0xee; if tag == 18 { 18 } else { 10 }];
    pointer[0] = if cfg!(target_endian = "big") { 0x80 } else { 0x01 };
    pointer[1] = tag;
    Value::Bytes(VarlenaForm::External, pointer.into())
}

/// Forms a tuple; `None` if a value is external.
fn twin(row: &[(Attribute, Value)], stamp: Stamp) -> Option<Vec<u8>> {
    let nulls = row.iter().any(|(_, value)| matches!(value, Value::Null));
    let mut bitmap = vec![0u8; if nulls { row.len().div_ceil(8) } else { 0 }];
    let mut infomask = 0x0800 + u16::from(nulls) + if stamp.frozen { 0x0300 } else { 0 };
    let mut data = Vec::new();
    for (i, (attribute, value)) in row.iter().enumerate() {
        let (bytes, aligned) = match value {
            Value::Null => continue,
            Value::Word(word) if cfg!(target_endian = "big") => {
                (word.to_be_bytes()[8 - attribute.len as usize..].to_vec(), true)
            }
            Value::Word(word) => (word.to_le_bytes()[..attribute.len as usize].to_vec(), true),
            Value::Bytes(kind, bytes) => {
                if attribute.len < 0 {
                    infomask |= 2;
                }
                match kind {
                    VarlenaForm::External => return None,
                    VarlenaForm::Long if attribute.packable && bytes.len() <= 130 => (short_bytes(&bytes[4..]), false),
                    VarlenaForm::Short => (bytes.to_vec(), false),
                    // C strings are not aligned.
                    _ => (bytes.to_vec(), attribute.len != -2),
                }
            }
        };
        if nulls {
            bitmap[i / 8] |= 1 << (i % 8);
        }
        while aligned && data.len() % usize::from(attribute.align) != 0 {
            data.push(0);
        }
        data.extend(bytes);
    }
    let hoff = (23 + bitmap.len()).div_ceil(8) * 8;
    let mut tuple = Vec::new();
    tuple.extend(stamp.xmin.to_ne_bytes());
    tuple.extend(0u32.to_ne_bytes());
    tuple.extend(stamp.cid.to_ne_bytes());
    tuple.extend([0xff, 0xff, 0xff, 0xff, 0, 0]);
    tuple.extend((row.len() as u16).to_ne_bytes());
    tuple.extend(infomask.to_ne_bytes());
    tuple.push(hoff as u8);
    tuple.extend(bitmap);
    tuple.resize(hoff, 0);
    tuple.extend(data);
    Some(tuple)
}

/// Checks that the tuple equals the twin's, or that a missing tuple has a valid reason.
fn check(row: &[(Attribute, Value)], stamp: Stamp, limit: usize, formed: Formed) {
    let expected = twin(row, stamp);
    match formed {
        Formed::Tuple(tuple) => {
            assert!(tuple.len() <= limit);
            assert_eq!(tuple, expected.expect("no external value"));
            assert!(tuple.as_ptr().addr().is_multiple_of(8));
        }
        Formed::External => assert_eq!(expected, None),
        Formed::TooBig => match expected {
            Some(tuple) => assert!(tuple.len() > limit),
            None => {
                // The columns before the external value are too big, except that the bitmap may have another size.
                let external =
                    |(_, value): &(Attribute, Value)| matches!(value, Value::Bytes(VarlenaForm::External, _));
                let before = &row[..row.iter().position(external).unwrap()];
                assert!(twin(before, stamp).unwrap().len() + 8 > limit);
            }
        },
    }
}

fn attribute(len: i16, align: u8, by_value: bool, packable: bool) -> Attribute {
    Attribute { len, align, by_value, packable }
}

/// Attributes of real types, and of types that CREATE TYPE allows.
fn any_attribute() -> impl Strategy<Value = Attribute> {
    prop_oneof![
        4 => prop::sample::select(vec![1u8, 2, 4, 8]).prop_map(|n| attribute(i16::from(n), n, true, false)),
        1 => (prop::sample::select(vec![1i16, 2, 4, 8]), prop::sample::select(vec![1u8, 2, 4, 8]))
            .prop_map(|(len, align)| attribute(len, align, true, false)),
        2 => (1i16..80, prop::sample::select(vec![1u8, 2, 4, 8]))
            .prop_map(|(len, align)| attribute(len, align, false, false)),
        6 => (prop::sample::select(vec![4u8, 8, 1, 2]), prop::bool::weighted(0.8))
            .prop_map(|(align, packable)| attribute(-1, align, false, packable)),
        1 => Just(attribute(-2, 1, false, false)),
    ]
}

/// Makes bytes of which none is zero.
fn some_bytes(length: impl Strategy<Value = usize>) -> impl Strategy<Value = Vec<u8>> {
    (length, any::<u8>()).prop_map(|(length, seed)| (0..length).map(|i| seed.wrapping_add(i as u8) | 1).collect())
}

fn value_of(attribute: Attribute, big: bool) -> BoxedStrategy<Value> {
    let long_size = prop_oneof![0usize..40, 120usize..132, Just(if big { 3000 } else { 300 })];
    match attribute.len {
        -1 => prop_oneof![
            6 => some_bytes(long_size).prop_map(|bytes| long(&bytes)),
            2 => some_bytes(0usize..127).prop_map(|bytes| short(&bytes)),
            1 => some_bytes(4usize..200).prop_map(|bytes| compressed(&bytes)),
            u32::from(big) => prop::sample::select(vec![1, 2, 3, 18]).prop_map(external),
        ]
        .boxed(),
        -2 => some_bytes(0usize..50)
            .prop_map(|bytes| Value::Bytes(VarlenaForm::NoVarlena, [&bytes[..], &[0]].concat().into()))
            .boxed(),
        _ if attribute.by_value => any::<u64>().prop_map(Value::Word).boxed(),
        len => {
            some_bytes(Just(len as usize)).prop_map(|bytes| Value::Bytes(VarlenaForm::NoVarlena, bytes.into())).boxed()
        }
    }
}

/// Columns, some of which are null in some rows; big and external ones only in some rows.
fn any_row() -> impl Strategy<Value = Row> {
    let nulls = prop_oneof![2 => Just(0.0), 1 => Just(0.1), 1 => Just(0.9)];
    (nulls, prop::bool::weighted(0.2), 0usize..if cfg!(miri) { 9 } else { 40 }).prop_flat_map(|(nulls, big, count)| {
        let column = any_attribute().prop_flat_map(move |attribute| {
            let value = (value_of(attribute, big), prop::bool::weighted(nulls));
            let value = value.prop_map(|(value, null)| if null { Value::Null } else { value });
            (Just(attribute), value)
        });
        prop::collection::vec(column, count)
    })
}

const STAMP: Stamp = Stamp { xmin: 0x0102_0304, cid: 0x0506_0708, frozen: false };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 1000 }))]

    #[test]
    fn tuples_are_the_twins(before in any_row(), row in any_row(), toast: bool, frozen: bool) {
        let mut buffer = FormBuffer::new();
        let stamp = Stamp { frozen, ..STAMP };
        let limit = if toast { TOAST_TUPLE_THRESHOLD } else { MAX_TUPLE_SIZE };
        check(&before, STAMP, limit, form(&before, STAMP, limit, &mut buffer));
        check(&row, stamp, limit, form(&row, stamp, limit, &mut buffer));
    }
}

/// Replaces the header of a formed tuple, if the tuple can be stored.
fn given(row: &[(Attribute, Value)], tuple: &[u8], limit: usize) -> Option<Vec<u8>> {
    let attributes: Vec<Attribute> = row.iter().map(|(attribute, _)| *attribute).collect();
    let layout = Layout::new(&attributes, STAMP, limit).unwrap();
    // In memory that ends at the end of the tuple.
    let exact: Box<[u8]> = tuple.into();
    let header = layout.header_for(&exact).ok()?;
    Some([&header[..], &exact[23..]].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 1000 }))]

    /// A tuple is stored unchanged. A tuple of other columns, one that ends too early or too late, or random bytes are
    /// rejected.
    #[test]
    fn given_tuples_are_stored_as_they_are(
        row in any_row(), other in any_row(), cut in 0usize..40, place in any::<prop::sample::Index>(), byte: u8,
    ) {
        let theirs = Stamp { xmin: 77, cid: 78, frozen: true };
        let Some(tuple) = twin(&row, theirs) else { return Ok(()) };
        let is_table = row.iter().all(|(attribute, _)| attribute.len != -2);
        let own = twin(&row, STAMP).unwrap();
        let fits = tuple.len() <= MAX_TUPLE_SIZE;
        let formed = given(&row, &tuple, MAX_TUPLE_SIZE);
        prop_assert_eq!(formed.is_some(), fits && (is_table || row.iter().all(|(a, v)| a.len != -2 || matches!(v, Value::Null))));
        if let Some(formed) = formed {
            prop_assert_eq!(formed, own);
        }
        prop_assert_eq!(given(&row, &tuple, (tuple.len() - 1).min(MAX_TUPLE_SIZE)), None);
        let cut = cut.clamp(1, tuple.len() - 23);
        if !row.is_empty() && cut < tuple.len() - tuple[22].min(tuple.len() as u8) as usize {
            prop_assert_eq!(given(&row, &tuple[..tuple.len() - cut], MAX_TUPLE_SIZE), None);
        }
        let longer = [&tuple[..], &[0; 8]].concat();
        prop_assert_eq!(given(&row, &longer, MAX_TUPLE_SIZE), None);
        if other.len() != row.len() {
            prop_assert_eq!(given(&other, &tuple, MAX_TUPLE_SIZE), None);
        } else {
            given(&other, &tuple, MAX_TUPLE_SIZE);
        }
        // With any contents, no byte outside of the tuple is read.
        let mut wrong = tuple;
        let place = place.index(wrong.len());
        wrong[place] = byte;
        given(&row, &wrong, MAX_TUPLE_SIZE);
    }
}

/// Forms a row as a composite value with the header of another value; `None` if that fails.
fn value(row: &[(Attribute, Value)], other: &[u8; 23], buffer: &mut FormBuffer) -> Option<Vec<u8>> {
    let attributes: Vec<Attribute> = row.iter().map(|(attribute, _)| *attribute).collect();
    // Decoded rows have zeros in place of NULLs.
    let values: Vec<u64> = row.iter().map(|(_, v)| if matches!(v, Value::Null) { 0 } else { v.datum() }).collect();
    let nulls: Vec<bool> = row.iter().map(|(_, value)| matches!(value, Value::Null)).collect();
    let layout = Layout::of_values(&attributes, other).unwrap();
    let column_forms = vec![ColumnForm::Exact; row.len()];
    // SAFETY: the values are those of the attributes, and live until the end of the test; the buffer has `size` bytes.
    unsafe {
        let value = layout.form_value(&column_forms, values.as_ptr(), nulls.as_ptr(), buffer)?;
        assert!(value.addr().is_multiple_of(8));
        let size = value.cast::<u32>().read();
        let size = if cfg!(target_endian = "big") { size } else { size >> 2 } as usize;
        Some(std::slice::from_raw_parts(value, size).to_vec())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 1000 }))]

    /// A value equals the table's tuple except for the start of its header, and a value made by a function can be
    /// stored as a tuple.
    #[test]
    fn values_are_tuples(before in any_row(), row in any_row(), other: [u8; 23]) {
        let mut buffer = FormBuffer::new();
        // Flags besides the number of attributes, and besides those that depend on the row.
        let header = |row: &[(Attribute, Value)]| {
            let mut header = other;
            let natts = u16::from_ne_bytes([other[18], other[19]]) & !0x07ff | row.len() as u16;
            header[18..20].copy_from_slice(&natts.to_ne_bytes());
            let infomask = u16::from_ne_bytes([other[20], other[21]]) & !0x000c;
            header[20..22].copy_from_slice(&infomask.to_ne_bytes());
            header
        };
        value(&before, &header(&before), &mut buffer);
        let other = header(&row);
        let twin = twin(&row, STAMP);
        let expected = twin.filter(|tuple| tuple.len() <= MAX_TUPLE_SIZE);
        let formed = value(&row, &other, &mut buffer);
        prop_assert_eq!(formed.is_some(), expected.is_some());
        if let (Some(formed), Some(mut expected)) = (formed, expected) {
            prop_assert_eq!(formed.len(), expected.len());
            prop_assert_eq!(&formed[4..20], &other[4..20]);
            if row.iter().all(|(attribute, _)| attribute.len != -2) {
                prop_assert_eq!(given(&row, &formed, MAX_TUPLE_SIZE), Some(expected.clone()));
            }
            // The flags for NULLs and variable width are those of this row.
            let infomask = |tuple: &[u8]| u16::from_ne_bytes([tuple[20], tuple[21]]);
            let flags = infomask(&other) & !3 | infomask(&expected) & 3;
            expected[20..22].copy_from_slice(&flags.to_ne_bytes());
            prop_assert_eq!(&formed[20..], &expected[20..]);
        }
    }
}

/// External values are rejected, whatever the header's flags are.
#[test]
fn given_values_are_in_line() {
    let text = attribute(-1, 4, false, true);
    for tag in [1u8, 2, 3, 18] {
        let Value::Bytes(_, pointer) = external(tag) else { panic!("bytes") };
        let whole = twin(&[(text, short(b"x"))], STAMP).unwrap();
        let tuple = [&whole[..24], &pointer[..]].concat();
        assert_eq!(given(&[(text, Value::Null)], &tuple, MAX_TUPLE_SIZE), None);
    }
    let row = [(text, short(b"x"))];
    let mut tuple = twin(&row, STAMP).unwrap();
    assert!(given(&row, &tuple, MAX_TUPLE_SIZE).is_some());
    tuple[20] |= 4;
    assert_eq!(given(&row, &tuple, MAX_TUPLE_SIZE), None);
}

#[test]
fn a_row_of_the_table_test() {
    let row = vec![
        (attribute(4, 4, true, false), Value::Word(-2i32 as u32 as u64)),
        (attribute(-1, 4, false, true), long(b"0123456789abcdef0123456789abcdef")),
        (attribute(8, 8, true, false), Value::Word(0x1112_1314_1516_1718)),
    ];
    let mut buffer = FormBuffer::new();
    let Formed::Tuple(tuple) = form(&row, STAMP, TOAST_TUPLE_THRESHOLD, &mut buffer) else { panic!("a small row") };
    assert_eq!(tuple.len(), 72);
    assert_eq!(tuple[..24], twin(&row, STAMP).unwrap()[..24]);
    assert_eq!(tuple[24..28], (-2i32).to_ne_bytes());
    assert_eq!(&tuple[29..61], b"0123456789abcdef0123456789abcdef");
    assert_eq!(tuple[61..64], [0; 3]);
    assert_eq!(tuple[64..], 0x1112_1314_1516_1718u64.to_ne_bytes());
}

/// The limit is exact, for any kind of attribute and for the largest number of columns.
#[test]
fn limits_are_exact() {
    let mut buffer = FormBuffer::new();
    let text = attribute(-1, 4, false, true);
    for limit in [TOAST_TUPLE_THRESHOLD, MAX_TUPLE_SIZE] {
        for (length, fits) in [(limit - 28, true), (limit - 27, false), (1 << 20, false)] {
            let row = vec![(text, long(&vec![b'x'; length]))];
            let formed = form(&row, STAMP, limit, &mut buffer);
            assert_eq!(matches!(formed, Formed::Tuple(_)), fits, "{length}");
            check(&row, STAMP, limit, formed);
        }
        let int8 = attribute(8, 8, true, false);
        for (count, fits) in [((limit - 24) / 8, true), ((limit - 24) / 8 + 1, false), (1600, false)] {
            let row = vec![(int8, Value::Word(u64::MAX)); count];
            let formed = form(&row, STAMP, limit, &mut buffer);
            assert_eq!(matches!(formed, Formed::Tuple(_)), fits, "{count}");
            check(&row, STAMP, limit, formed);
        }
    }
    // Many small attributes: each is checked before it is written.
    let fixed = (attribute(100, 1, false, false), Value::Bytes(VarlenaForm::NoVarlena, vec![1; 100].into()));
    for column in [(text, long(&[b'x'; 126])), (text, short(&[b'x'; 126])), fixed] {
        assert_eq!(form(&vec![column; 1600], STAMP, MAX_TUPLE_SIZE, &mut buffer), Formed::TooBig);
    }
    let mut row = vec![(text, Value::Null); 1600];
    check(&row, STAMP, MAX_TUPLE_SIZE, form(&row, STAMP, MAX_TUPLE_SIZE, &mut buffer));
    row[1599].1 = short(b"last");
    check(&row, STAMP, MAX_TUPLE_SIZE, form(&row, STAMP, MAX_TUPLE_SIZE, &mut buffer));
}

#[test]
fn external_values_are_not_copied() {
    let mut buffer = FormBuffer::new();
    for tag in [1, 2, 3, 18] {
        for packable in [false, true] {
            let row = vec![(attribute(-1, 4, false, packable), external(tag))];
            assert_eq!(form(&row, STAMP, MAX_TUPLE_SIZE, &mut buffer), Formed::External);
        }
    }
}

#[test]
fn no_such_attributes() {
    let none = |attributes: &[Attribute]| Layout::new(attributes, STAMP, MAX_TUPLE_SIZE).is_none();
    assert!(none(&[attribute(4, 3, true, false)]));
    assert!(none(&[attribute(3, 4, true, false)]));
    assert!(none(&[attribute(0, 1, false, false)]));
    assert!(none(&[attribute(-1, 4, true, true)]));
    assert!(none(&[attribute(-3, 4, false, true)]));
    assert!(none(&[attribute(4, 4, true, false); 1601]));
    assert!(Layout::new(&[], STAMP, MAX_TUPLE_SIZE + 1).is_none());
    assert!(!none(&[]));
}
