//! Index tuples of keys that are bytes: formed as by index_form_tuple, and read back.

use super::shape::{ByteShape, Scratch, StoredValue};
use crate::btree::entry::Tid;
use crate::btree::form::{Storage, TupleBuffer, Walk, high_key};

/// The longest payload with a header of one byte: VARATT_SHORT_MAX less the header.
const SHORT_MAX: usize = 126;

impl ByteShape {
    /// Forms the tuple of a key: index_form_tuple. False if the key is not of this shape.
    #[inline]
    pub(super) fn form(&self, key: &[u8], tid: Tid, scratch: &mut Scratch, formed: &mut TupleBuffer) -> bool {
        formed.begin();
        let (mut rest, mut bitmap, mut nulls, mut varlenas) = (key, 0u32, false, false);
        for (i, part) in self.parts().iter().enumerate() {
            let bytes = match part.decode(&mut rest, scratch) {
                Some(StoredValue::Bytes(bytes)) => bytes,
                Some(StoredValue::Null) => {
                    nulls = true;
                    continue;
                }
                None => return false,
            };
            bitmap |= 1 << i;
            match part.storage {
                Storage::Fixed(column) => {
                    align(&mut formed.bytes, column.kind.align());
                    formed.bytes.extend_from_slice(bytes);
                }
                Storage::Varlena { packable, .. } => {
                    varlenas = true;
                    put_varlena(&mut formed.bytes, packable, bytes);
                }
            }
        }
        formed.end(tid, bitmap, nulls, varlenas);
        rest.is_empty()
    }

    /// The high key between two items: [`high_key`].
    pub(super) fn high_key(&self, left: &[u8], right: &[u8]) -> Vec<u8> {
        high_key(self.parts().iter().map(|part| part.storage), left, right)
    }

    /// Reads the values of a tuple with all columns. False if it has not all, or if one is compressed or external.
    #[inline]
    pub(in crate::btree) fn read_tuple<'t>(&self, tuple: &'t [u8], values: &mut [StoredValue<'t>]) -> bool {
        let mut walk = Walk::new(tuple);
        self.parts().iter().zip(values).all(|(part, to)| match walk.next(&part.storage) {
            Some(value) => {
                *to = value;
                true
            }
            None => false,
        })
    }
}

fn align(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

/// Writes a varlena as heap_fill_tuple does.
#[inline(always)]
fn put_varlena(to: &mut Vec<u8>, packable: bool, payload: &[u8]) {
    let big = cfg!(target_endian = "big");
    if packable && payload.len() <= SHORT_MAX {
        let size = payload.len() as u8 + 1;
        to.push(if big { size | 0x80 } else { size << 1 | 1 });
    } else {
        align(to, 4);
        let size = payload.len() as u32 + 4;
        to.extend_from_slice(&(if big { size } else { size << 2 }).to_ne_bytes());
    }
    to.extend_from_slice(payload);
}
