//! Decodes arrays of one dimension in the form that array_out prints: `{1,2,3}`, `{a,"b c"}`.
//!
//! ```text
//!  length | ndim = 1 | dataoffset = 0 | elemtype | number of elements | lower bound = 1 | element, padded | ...
//! ```
//!
//! The decoders of the element types make the elements, and the padding is that of att_align_nominal (tupmacs.h).
//! Arrays with white space, NULLs, escapes, bounds or nested braces, and all errors, are left to array_in
//! (arrayfuncs.c).
#![allow(unsafe_code, reason = "elements are datums")]

use super::{Datum, Decoder, oids, varlena};
use crate::arena::Arena;

/// The most elements of an array; longer ones go to the server.
const MOST: usize = 64;
/// Length of an array without elements, in bytes: ndim, dataoffset, elemtype.
const EMPTY: usize = 12;
/// Length with one dimension and its lower bound, in bytes. The varlena header makes it a multiple of 8.
const HEADER: usize = EMPTY + 8;

/// How elements are stored.
enum Storage {
    ByValue(usize),
    Fixed(usize),
    Varlena,
}

impl Storage {
    /// None for other types than those of [`oids::ARRAYS`].
    fn of(element: u32) -> Option<Storage> {
        Some(match element {
            oids::BOOL => Storage::ByValue(1),
            oids::INT2 => Storage::ByValue(2),
            oids::INT4 | oids::DATE => Storage::ByValue(4),
            oids::INT8 | oids::FLOAT8 | oids::TIMESTAMP | oids::TIMESTAMPTZ => Storage::ByValue(8),
            oids::UUID => Storage::Fixed(16),
            oids::NUMERIC | oids::TEXT | oids::VARCHAR => Storage::Varlena,
            _ => return None,
        })
    }
}

/// Splits off the next element behind a `{` or a comma. Returns it and the bytes behind it.
#[inline(always)]
fn next(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    if let [b'"', rest @ ..] = rest {
        let at = memchr::memchr2(b'"', b'\\', rest).filter(|&at| rest.get(at) == Some(&b'"'))?;
        return Some((rest.get(..at)?, rest.get(at + 1..)?));
    }
    let is_end = |b: &u8| matches!(b, b',' | b'}' | b'{' | b'"' | b'\\' | b' ' | b'\t'..=b'\r');
    let at = rest.iter().position(is_end)?;
    let (element, rest) = rest.split_at_checked(at)?;
    (!element.is_empty() && !element.eq_ignore_ascii_case(b"null")).then_some((element, rest))
}

/// Decodes an array of elements of this type, which the decoder converts.
pub(super) fn array(field: &[u8], element: u32, decoder: Decoder, arena: &mut Arena) -> Option<Datum> {
    let mut rest = field.strip_prefix(b"{")?;
    let oid = element.to_le_bytes();
    if rest == b"}" {
        let (datum, body) = varlena::alloc(EMPTY, arena)?;
        body.fill(0);
        body.last_chunk_mut::<4>().map(|to| *to = oid)?;
        return Some(datum);
    }
    let storage = Storage::of(element)?;
    let stored = |datum: Datum| match storage {
        Storage::ByValue(_) => &[],
        // SAFETY: the decoder has made this value, of that length, in the arena below.
        Storage::Fixed(len) => unsafe { varlena::fixed(datum, len) },
        // SAFETY: the decoder has made this varlena in the arena below.
        Storage::Varlena => unsafe { varlena::body(datum) },
    };
    let mut datums = [0; MOST];
    let mut count = 0;
    // Total size of the elements, with padding.
    let mut size = 0usize;
    loop {
        let (text, behind) = next(rest)?;
        let datum = decoder.decode(text, arena)?;
        *datums.get_mut(count)? = datum;
        count += 1;
        size += match storage {
            Storage::ByValue(len) | Storage::Fixed(len) => len,
            Storage::Varlena => (varlena::HEADER + stored(datum).len()).next_multiple_of(4),
        };
        match behind {
            [b',', more @ ..] => rest = more,
            b"}" => break,
            _ => return None,
        }
    }
    let (array, body) = varlena::alloc(HEADER + size, arena)?;
    body.fill(0);
    let (header, mut body) = body.split_first_chunk_mut::<HEADER>()?;
    header[0] = 1;
    header[8..12].copy_from_slice(&oid);
    header[12..16].copy_from_slice(&(count as u32).to_le_bytes());
    header[16] = 1;
    for &datum in datums.get(..count)? {
        let value = stored(datum);
        let len = match storage {
            Storage::ByValue(len) => {
                body.get_mut(..len)?.copy_from_slice(datum.to_le_bytes().get(..len)?);
                len
            }
            Storage::Fixed(len) => {
                body.get_mut(..len)?.copy_from_slice(value);
                len
            }
            Storage::Varlena => {
                let len = varlena::HEADER + value.len();
                body.get_mut(..varlena::HEADER)?.copy_from_slice(&((len as u32) << 2).to_le_bytes());
                body.get_mut(varlena::HEADER..len)?.copy_from_slice(value);
                len.next_multiple_of(4)
            }
        };
        body = body.get_mut(len..)?;
    }
    Some(array)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{SESSION, varlena_bytes};
    use super::*;

    fn decode(oid: u32, text: &str, a: &mut Arena) -> Option<Vec<u8>> {
        Decoder::for_type(oid, -1, &SESSION).unwrap().decode(text.as_bytes(), a).map(varlena_bytes)
    }

    #[test]
    fn as_the_server_keeps_them() {
        let a = &mut Arena::new();
        let header = |size: u32, oid: u32, n: u32| [size << 2, 1, 0, oid, n, 1].map(u32::to_le_bytes).concat();
        let ints = [header(32, 23, 2), 7u32.to_le_bytes().to_vec(), (-1i32).to_le_bytes().to_vec()].concat();
        assert_eq!(decode(1007, "{7,-1}", a), Some(ints));
        // text: each with its header, padded to four bytes.
        let texts = [header(40, 25, 2), vec![5 << 2, 0, 0, 0, b'a', 0, 0, 0], vec![8 << 2, 0, 0, 0], b"b, c".to_vec()];
        assert_eq!(decode(1009, "{a,\"b, c\"}", a), Some(texts.concat()));
        assert_eq!(decode(1009, "{}", a), Some([16 << 2, 0, 0, 25].map(u32::to_le_bytes).concat()));
        assert_eq!(decode(1000, "{t,f,t}", a), Some([header(27, 16, 3), vec![1, 0, 1]].concat()));
        assert_eq!(decode(1016, "{5}", a), Some([header(32, 20, 1), 5u64.to_le_bytes().to_vec()].concat()));
    }

    #[test]
    fn others_are_the_servers() {
        let a = &mut Arena::new();
        for t in "|{|}|{1|1}|{1,}|{,1}|{1,,2}|{ 1}|{1 }|{1} |{NULL}|{Null,1}|{{1}}|[1:1]={1}|{1}}|{1\"2\"}|{\"1\"2}|\
            {\\1}|{\"\\1\"}|{\"1}"
            .split('|')
        {
            assert_eq!(decode(1007, t, a), None, "{t}");
            assert_eq!(decode(1009, t, a), None, "{t}");
        }
        assert!(decode(1009, "{\"NULL\",\"\"}", a).is_some());
        let many = |n: usize| format!("{{{}}}", vec!["1"; n].join(","));
        assert!(decode(1007, &many(MOST), a).is_some());
        assert_eq!(decode(1007, &many(MOST + 1), a), None);
    }

    proptest! {
        #[test]
        fn elements_are_in_it(values in prop::collection::vec(any::<i64>(), 1..20)) {
            let a = &mut Arena::new();
            let list = values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let bytes = decode(1016, &format!("{{{list}}}"), a).unwrap();
            let read: Vec<i64> = bytes[24..].as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b)).collect();
            prop_assert_eq!(read, values);
        }

        #[test]
        fn nothing_panics(text in "[{}\",a-c1 \\\\]{0,20}", of in 0..12usize) {
            let a = &mut Arena::new();
            let _ = decode(oids::ARRAYS[of].0, &text, a);
        }
    }
}
