//! Makes a page that equals one made by a server.
//!
//! `data/heap_page.hex` is block 0 of this table in PostgreSQL 15 on x86-64 after a COPY of the rows below. It has the
//! nonzero bytes with their offsets, from pageinspect's get_raw_page, before any query read the page:
//!
//! ```text
//! CREATE TABLE t (i2 int2, flag bool, t text, i8 int8, plain text, padded char(140), u uuid, c "char", n name,
//!                 f8 float8, b bytea);
//! ALTER TABLE t ALTER plain SET STORAGE plain;
//! ```
#![cfg(target_endian = "little")]
#![allow(unsafe_code, reason = "datums are addresses")]

use pg_bulk_storage::page::{PAGE_SIZE, PageBatch};
use pg_bulk_storage::tuple::{Attribute, FormBuffer, Formed, Layout, Stamp, TOAST_TUPLE_THRESHOLD};

const XID: u32 = 731;
const LSN: u64 = 0x015a_a6a0;

fn server_page() -> Vec<u8> {
    let mut page = vec![0; PAGE_SIZE];
    for line in include_str!("data/heap_page.hex").lines() {
        let (offset, bytes) = line.split_once(' ').unwrap();
        let offset = usize::from_str_radix(offset, 16).unwrap();
        for (i, digits) in bytes.as_bytes().chunks(2).enumerate() {
            page[offset + i] = u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
        }
    }
    page
}

#[derive(Clone)]
enum Value {
    Null,
    Word(u64),
    /// The bytes of a varlena without its header.
    Varlena(Vec<u8>),
    Fixed(Vec<u8>),
}

use Value::{Fixed, Null, Varlena, Word};

fn text(text: &str) -> Value {
    Varlena(text.into())
}

fn char140(text: &str) -> Value {
    Varlena(format!("{text:140}").into())
}

fn name(text: &str) -> Value {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(64, 0);
    Fixed(bytes)
}

fn uuid(number: u128) -> Value {
    Fixed(number.to_be_bytes().into())
}

fn float8(number: f64) -> Value {
    Word(number.to_bits())
}

#[rustfmt::skip]
fn rows() -> Vec<[Value; 11]> {
    let wide = |n: usize| [
        Null, Null, text(&"a".repeat(n)), Word(n as u64), text(&"b".repeat(n)), Null, Null, Word(u64::from(b'd')), Null,
        Null, Varlena(vec![12; n]),
    ];
    vec![
        [
            Word(1), Word(1), text("abc"), Word(72_623_859_790_382_856), text("plain"), char140("padded"),
            uuid(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff), Word(u64::from(b'x')), name("name"), float8(1.5),
            Varlena(vec![0, 1, 254]),
        ],
        [Null, Null, Null, Null, Null, Null, Null, Null, Null, Null, Null],
        [
            Word(-2i64 as u64), Word(0), text(""), Word(-1i64 as u64), text(""), char140(""), uuid(u128::MAX),
            Word(u64::from(b'y')), name(""), float8(0.0), Varlena(vec![]),
        ],
        [Word(3), Null, text("long"), Null, text("p"), Null, uuid(1), Null, Null, float8(-2.25), Null],
        [
            Null, Word(1), Null, Word(5), Null, Null, Null, Word(u64::from(b'z')), name("last"), Null,
            Varlena(vec![255]),
        ],
        // The longest text with a header of one byte, and the shortest without.
        wide(126),
        wide(127),
    ]
}

#[test]
fn the_server_s_page() {
    let by_value = |len: u8| Attribute { len: len.into(), align: len, by_value: true, packable: false };
    let varlena = |packable| Attribute { len: -1, align: 4, by_value: false, packable };
    let fixed = |len| Attribute { len, align: 1, by_value: false, packable: false };
    let attributes = [
        by_value(2),
        by_value(1),
        varlena(true),
        by_value(8),
        varlena(false),
        varlena(true),
        fixed(16),
        by_value(1),
        fixed(64),
        by_value(8),
        varlena(true),
    ];
    let stamp = Stamp { xmin: XID, cid: 0, frozen: false };
    let layout = Layout::new(&attributes, stamp, TOAST_TUPLE_THRESHOLD).unwrap();
    let mut buffer = FormBuffer::new();
    let mut batch = PageBatch::new(1, 0, false).unwrap();
    for row in rows() {
        let memory: Vec<Vec<u8>> = row
            .iter()
            .map(|value| match value {
                Varlena(bytes) => [&(bytes.len() as u32 * 4 + 16).to_le_bytes(), &bytes[..]].concat(),
                Fixed(bytes) => bytes.clone(),
                Null | Word(_) => Vec::new(),
            })
            .collect();
        let values: Vec<u64> = (row.iter().zip(&memory))
            .map(
                |(value, bytes)| if let Word(word) = value { *word } else { bytes.as_ptr().expose_provenance() as u64 },
            )
            .collect();
        let nulls = row.map(|value| matches!(value, Null));
        // SAFETY: there is a value of its type for each attribute.
        let formed = unsafe { layout.form(values.as_ptr(), nulls.as_ptr(), &mut buffer) };
        let Formed::Tuple(tuple) = formed else { panic!("a small row") };
        assert!(batch.add(tuple).is_some());
    }
    batch.finish();
    batch.set_block_numbers(0);
    batch.page_mut(0).unwrap().set_lsn(LSN);
    let expected = server_page();
    if let Some(at) = (0..PAGE_SIZE).find(|at| batch.pages()[*at] != expected[*at]) {
        panic!("byte {at} is {}, not {}", batch.pages()[at], expected[at]);
    }
}
