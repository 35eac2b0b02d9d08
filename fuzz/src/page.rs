//! Tuples on pages, read back as a server reads them: the checks of verify_heapam, and each value by its address.
//!
//! The parser's tests compare pages with a twin that builds them. This target checks them with independent code, by the
//! rules of bufpage.h, htup_details.h and heap_deform_tuple.

use pg_bulk_storage::page::{PAGE_SIZE, PageBatch};
use pg_bulk_storage::tuple::{Attribute, FormBuffer, Formed, Layout, MAX_TUPLE_SIZE, Stamp, TOAST_TUPLE_THRESHOLD};

use super::reader::chosen;

/// Length of the head, in bytes.
pub const HEAD: usize = 6;

const XMIN: u32 = 0x0102_0304;

/// Settings of a run, and a second check of its pages.
pub struct Look<'a> {
    /// The inserting transaction.
    pub xmin: u32,
    /// Block of the first page; chosen by the input if `None`.
    pub first_block: Option<u32>,
    /// Gets complete pages, from this block on.
    pub pages: &'a mut dyn FnMut(u32, &[u8]),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Null,
    Word(u64),
    /// With its header, which has four bytes if the value is a varlena.
    Bytes(Vec<u8>),
}

/// The attribute that a byte chooses: those of real types, and others that CREATE TYPE allows.
fn attribute(by: u8) -> Attribute {
    let align = chosen(&[1, 2, 4, 8], by >> 3);
    match by & 7 {
        0..3 => Attribute { len: i16::from(align), align, by_value: true, packable: false },
        3 => Attribute { len: 1 + i16::from(by >> 5) * 5, align, by_value: false, packable: false },
        4 => Attribute { len: -2, align: 1, by_value: false, packable: false },
        5 => Attribute { len: -1, align: align.max(4), by_value: false, packable: false },
        _ => Attribute { len: -1, align: align.max(4), by_value: false, packable: true },
    }
}

/// Makes a value of that attribute of the next bytes of the input.
fn value(attribute: Attribute, input: &mut &[u8]) -> Value {
    let Some((&by, rest)) = input.split_first() else { return Value::Null };
    *input = rest;
    if by >= 250 {
        return Value::Null;
    }
    let filled = |length: usize| (0..length).map(|i| by.wrapping_add(i as u8) | 1).collect::<Vec<u8>>();
    match attribute.len {
        -1 => {
            // Near the longest value with a header of one byte, and near the longest that fits onto a page.
            let length = match by {
                0..100 => usize::from(by),
                100..200 => usize::from(by) + 20,
                200..240 => usize::from(by) * 9,
                _ => 1900 + usize::from(by) * 25,
            };
            Value::Bytes([&((length as u32 + 4) << 2).to_le_bytes()[..], &filled(length)].concat())
        }
        -2 => Value::Bytes([filled(usize::from(by & 63)), vec![0]].concat()),
        len if attribute.by_value => {
            let word = u64::from(by).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            Value::Word(if len == 8 { word } else { word & ((1 << (len * 8)) - 1) })
        }
        len => Value::Bytes(filled(len.unsigned_abs().into())),
    }
}

/// Puts the rows of one input onto pages.
pub fn run(input: &[u8]) {
    if let Some(attributes) = attributes(input) {
        run_for(input, &attributes, Look { xmin: XMIN, first_block: None, pages: &mut |_, _| () });
    }
}

/// Returns the attributes of the rows in an input.
pub fn attributes(input: &[u8]) -> Option<Vec<Attribute>> {
    let (&[_, _, _, columns, _, _], rest) = input.split_first_chunk::<HEAD>()?;
    let types = rest.get(..usize::from(columns) % 40)?;
    Some(types.iter().map(|&by| attribute(by)).collect())
}

/// Puts the rows of one input, with these attributes, onto pages, which `look` also gets.
#[allow(unsafe_code, reason = "datums are addresses")]
pub fn run_for(input: &[u8], attributes: &[Attribute], mut look: Look) {
    let Some((&[flags, fill, pages, _, every, first], rest)) = input.split_first_chunk::<HEAD>() else { return };
    let Some(mut rest) = rest.get(attributes.len()..) else { return };
    let frozen = flags & 1 != 0;
    let limit = if flags & 2 != 0 { MAX_TUPLE_SIZE } else { TOAST_TUPLE_THRESHOLD };
    let Some(layout) = Layout::new(attributes, Stamp { xmin: look.xmin, cid: 5, frozen }, limit) else {
        panic!("a layout")
    };
    let reserve = PAGE_SIZE * (100 - usize::from(fill.clamp(10, 100))) / 100;
    let Some(mut batch) = PageBatch::new(1 + usize::from(pages % 8), reserve, frozen) else { panic!("memory") };
    let mut block = look.first_block.unwrap_or(u32::from(first) << 10 | 0xfff0);
    let (mut buffer, mut rows, mut taken) = (FormBuffer::new(), Vec::new(), 0);
    for number in 0..5000 {
        if rest.is_empty() {
            break;
        }
        let row: Vec<Value> = attributes.iter().map(|&attribute| value(attribute, &mut rest)).collect();
        if attributes.is_empty() {
            rest = &rest[1..];
        }
        let datums: Vec<u64> = row.iter().map(datum).collect();
        let nulls: Vec<bool> = row.iter().map(|value| *value == Value::Null).collect();
        // SAFETY: there is a value for each attribute, of the required length.
        let Formed::Tuple(tuple) = (unsafe { layout.form(datums.as_ptr(), nulls.as_ptr(), &mut buffer) }) else {
            continue;
        };
        if batch.add(tuple).is_none() {
            take(&mut batch, attributes, &rows, &mut taken, &mut block, reserve, &mut look);
            assert!(batch.add(tuple).is_some(), "an empty batch has room");
        }
        rows.push(row);
        if every != 0 && number % usize::from(every) == 0 {
            take(&mut batch, attributes, &rows, &mut taken, &mut block, reserve, &mut look);
            if flags & 4 != 0 {
                batch.shrink();
            }
        }
    }
    batch.finish();
    take(&mut batch, attributes, &rows, &mut taken, &mut block, reserve, &mut look);
    assert_eq!(taken, rows.len(), "all are on a page");
}

fn datum(value: &Value) -> u64 {
    match value {
        // An address that must not be read.
        Value::Null => 1,
        Value::Word(word) => *word,
        Value::Bytes(bytes) => bytes.as_ptr().expose_provenance() as u64,
    }
}

/// Checks the complete pages and removes them.
fn take(
    batch: &mut PageBatch,
    attributes: &[Attribute],
    rows: &[Vec<Value>],
    taken: &mut usize,
    block: &mut u32,
    reserve: usize,
    look: &mut Look,
) {
    batch.set_block_numbers(*block);
    (look.pages)(*block, batch.pages());
    for page in batch.pages().chunks(PAGE_SIZE) {
        *taken += check_page(page, attributes, &rows[*taken..], *block, reserve, look.xmin);
        *block += 1;
    }
    batch.take_full();
}

fn short(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Checks one page, whose first tuple is the first of `rows`. Returns the number of its tuples.
fn check_page(
    page: &[u8],
    attributes: &[Attribute],
    rows: &[Vec<Value>],
    block: u32,
    reserve: usize,
    xmin: u32,
) -> usize {
    let (lower, upper) = (short(page, 12), short(page, 14));
    assert_eq!((short(page, 16), short(page, 18)), (PAGE_SIZE, PAGE_SIZE | 4), "special, size and version");
    assert!((24..=upper).contains(&lower) && upper <= PAGE_SIZE && (lower - 24).is_multiple_of(4), "{lower}, {upper}");
    assert!(page[lower..upper].iter().all(|&byte| byte == 0), "a hole of zeros");
    let count = (lower - 24) / 4;
    assert!(count == 1 || upper - lower >= reserve, "fillfactor");
    assert!((1..=291).contains(&count), "{count} line pointers");
    let mut end = PAGE_SIZE;
    for (i, row) in rows[..count].iter().enumerate() {
        let pointer = long(page, 24 + 4 * i);
        let (offset, flags, length) = (pointer as usize & 0x7fff, pointer >> 15 & 3, pointer as usize >> 17);
        assert_eq!(flags, 1, "LP_NORMAL");
        assert!(offset.is_multiple_of(8) && offset >= upper && offset + length <= end, "{offset} + {length}");
        assert!(page[offset + length..end].iter().all(|&byte| byte == 0), "padding");
        end = offset;
        let tuple = &page[offset..offset + length];
        let place = ((short(tuple, 12) as u32) << 16 | short(tuple, 14) as u32, short(tuple, 16));
        assert_eq!(place, (block, i + 1), "t_ctid");
        check_tuple(tuple, attributes, row, xmin);
    }
    assert_eq!(end, upper, "nothing else is on the page");
    count
}

/// heap_deform_tuple
fn check_tuple(tuple: &[u8], attributes: &[Attribute], row: &[Value], xmin: u32) {
    assert_eq!((long(tuple, 0), long(tuple, 4), long(tuple, 8)), (xmin, 0, 5), "xmin, xmax, cid");
    let (infomask, hoff) = (short(tuple, 20), usize::from(tuple[22]));
    assert_eq!(short(tuple, 18), attributes.len(), "attributes, and no other flag");
    let has_nulls = row.contains(&Value::Null);
    let varlena = |(attribute, value): (&Attribute, &Value)| attribute.len < 0 && *value != Value::Null;
    let has_varlena = attributes.iter().zip(row).any(varlena);
    assert_eq!(infomask & 3, usize::from(has_nulls) | usize::from(has_varlena) << 1);
    // HEAP_XMAX_INVALID, with or without HEAP_XMIN_FROZEN.
    assert!(matches!(infomask & !3, 0x0800 | 0x0b00), "{infomask:x}");
    let bitmap = if has_nulls { attributes.len().div_ceil(8) } else { 0 };
    assert_eq!(hoff, (23 + bitmap).next_multiple_of(8));
    let mut at = hoff;
    for (i, (attribute, value)) in attributes.iter().zip(row).enumerate() {
        if has_nulls {
            assert_eq!(tuple[23 + i / 8] >> (i % 8) & 1 == 0, *value == Value::Null, "the bitmap of {i}");
        }
        let align = usize::from(attribute.align);
        // att_align_pointer: a nonzero byte is a header of one byte.
        let is_short = attribute.len == -1 && at < tuple.len() && tuple[at] != 0;
        match value {
            Value::Null => continue,
            _ if is_short => (),
            _ => {
                let from = at;
                at = at.next_multiple_of(align);
                assert!(tuple[from..at].iter().all(|&byte| byte == 0), "padding before {i}");
            }
        }
        match value {
            Value::Null => (),
            Value::Word(word) => {
                let length = usize::from(attribute.align);
                assert_eq!(tuple[at..at + length], word.to_le_bytes()[..length], "value {i}");
                at += length;
            }
            Value::Bytes(bytes) if attribute.len == -1 && tuple[at] & 1 == 1 => {
                let length = usize::from(tuple[at] >> 1);
                assert!(attribute.packable, "a short header where none may be");
                assert_eq!(tuple[at + 1..at + length], bytes[4..], "value {i}");
                at += length;
            }
            Value::Bytes(bytes) => {
                assert!(attribute.len != -1 || !attribute.packable || bytes.len() > 130, "a header as short as may be");
                assert_eq!(tuple[at..at + bytes.len()], bytes[..], "value {i}");
                at += bytes.len();
            }
        }
    }
    assert_eq!(at, tuple.len(), "nothing behind the last value");
}
