//! Reads keys from heap tuples.

use super::shape::{ByteShape, StoredValue};
use super::store::Store;
use crate::btree::MAX_KEYS;
use crate::btree::collect::{CollectedFamily, KeyStore as _, Value};
use crate::btree::entry::Tid;
use crate::btree::form::Storage;
use crate::btree::read::{Layout, tuples, varlena};
use crate::page::PAGE_SIZE;
use crate::tuple::Attribute;

/// TOAST_INDEX_TARGET: longer values, with their headers, are compressed.
const TOAST_INDEX_TARGET: usize = 510;

/// A reader of keys from a table's tuples.
#[derive(Clone, Debug)]
pub struct ByteKeyReader {
    shape: ByteShape,
    /// Each column with its number.
    layout: Layout<(usize, Storage)>,
}

impl ByteKeyReader {
    /// Creates a reader of keys. `numbers`: the attribute numbers of the columns, counted from 1; `attributes`: the
    /// table's first attributes.
    ///
    /// Returns `None` if an attribute does not exist or is not of the shape's type.
    #[must_use]
    pub fn new(attributes: &[Attribute], numbers: &[u16], shape: &ByteShape) -> Option<Self> {
        let columns = shape.parts().iter().map(|part| part.storage).enumerate();
        let layout = Layout::new(attributes, numbers, columns, |(_, storage), attribute| match storage {
            Storage::Fixed(column) => column.kind.fits(attribute),
            Storage::Varlena { .. } => attribute.len == -1 && attribute.align == 4,
        });
        Some(Self { shape: shape.clone(), layout: layout? })
    }

    /// The shape of the keys.
    #[must_use]
    pub fn shape(&self) -> &ByteShape {
        &self.shape
    }

    /// Puts the columns of a heap tuple into `values`. `None` if one is not stored as it would be in the index, or if
    /// the tuple is not from this table.
    #[inline]
    fn read<'t>(&self, tuple: &'t [u8], values: &mut [StoredValue<'t>; MAX_KEYS]) -> Option<()> {
        let (data, nulls) = self.layout.data(tuple)?;
        if !nulls {
            self.layout.fixed_part(data, |&(number, storage), bytes| {
                *values.get_mut(number)? = stored_value(storage, bytes)?;
                Some(())
            })?;
        }
        self.layout.others(tuple, (data, nulls), |&(number, storage), bytes| {
            *values.get_mut(number)? = match bytes {
                Some(bytes) => stored_value(storage, bytes)?,
                None => StoredValue::Null,
            };
            Some(())
        })
    }

    /// Adds the key of a heap tuple to the store, which must have room. False if the tuple has no key: see [`super`].
    #[inline]
    #[must_use]
    pub fn read_tuple(&self, tuple: &[u8], tid: Tid, store: &mut Store) -> bool {
        let mut values = [StoredValue::Null; MAX_KEYS];
        self.read(tuple, &mut values).is_some()
            && store.push(&self.shape, values.get(..self.shape.len()).unwrap_or_default(), tid)
    }

    /// Adds the keys of all tuples of a heap page, which is block `block`, to the store, which must have room
    /// ([`ByteShape::page_room`]). Returns their number; `None` if a tuple has no key.
    #[must_use]
    pub fn read_page(&self, page: &[u8; PAGE_SIZE], block: u32, store: &mut Store) -> Option<usize> {
        let before = store.count();
        for (offset, tuple) in tuples(page) {
            if !self.read_tuple(tuple?, Tid::new(block, offset), store) {
                return None;
            }
        }
        Some(store.count() - before)
    }
}

/// The value at the start of these bytes. `None` if the index would store it in another form.
#[inline(always)]
fn stored_value(storage: Storage, bytes: &[u8]) -> Option<StoredValue<'_>> {
    Some(StoredValue::Bytes(match storage {
        Storage::Fixed(column) => bytes.get(..column.kind.size())?,
        Storage::Varlena { packable, compressible } => {
            let (size, payload) = varlena(bytes)?;
            let short = size == payload.len() + 1;
            if short && !packable || compressible && size > TOAST_INDEX_TARGET {
                return None;
            }
            payload
        }
    }))
}

impl CollectedFamily for u8 {
    type Reader = ByteKeyReader;
    type Store = Store;

    fn shape(reader: &ByteKeyReader) -> &ByteShape {
        reader.shape()
    }

    fn add_page(reader: &ByteKeyReader, page: &[u8; PAGE_SIZE], block: u32, store: &mut Store) -> Option<usize> {
        reader.read_page(page, block, store)
    }

    fn add_tuple(reader: &ByteKeyReader, tuple: &[u8], tid: Tid, store: &mut Store) -> bool {
        reader.read_tuple(tuple, tid, store)
    }

    fn decode(shape: &ByteShape, key: &[u8], take: &mut dyn FnMut(usize, Value<'_>)) {
        shape.decode(key, |column, value| match value {
            StoredValue::Null => take(column, Value::Null),
            StoredValue::Bytes(bytes) => take(column, Value::Bytes(bytes)),
        });
    }
}
