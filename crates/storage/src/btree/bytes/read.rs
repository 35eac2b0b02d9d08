//! Reads keys from heap tuples.

use super::shape::{ByteShape, StoredValue};
use super::store::Store;
use crate::btree::MAX_KEYS;
use crate::btree::entry::Tid;
use crate::btree::form::Storage;
use crate::btree::read::{AttributeStep, data, steps, tuples, varlena};
use crate::page::PAGE_SIZE;
use crate::tuple::{Attribute, TUPLE_HEADER};

/// TOAST_INDEX_TARGET: longer values, with their headers, are compressed.
const TOAST_INDEX_TARGET: usize = 510;

/// A reader of keys from a table's tuples.
#[derive(Clone, Debug)]
pub struct ByteKeyReader {
    shape: ByteShape,
    /// The columns of the key, in the order of their attributes, with their offsets in the data of a tuple without
    /// nulls, if constant.
    wanted: Box<[Wanted]>,
    /// The attributes from the first one to the last key column.
    steps: Box<[AttributeStep]>,
    /// Number of attributes at the start with constant offsets, and where they end.
    fixed: usize,
    fixed_end: usize,
    /// Number of key columns among them.
    fixed_wanted: usize,
}

#[derive(Clone, Copy, Debug)]
struct Wanted {
    column: usize,
    storage: Storage,
    place: usize,
}

impl ByteKeyReader {
    /// Creates a reader of keys. `numbers`: the attribute numbers of the columns, counted from 1; `attributes`: the
    /// table's first attributes.
    ///
    /// Returns `None` if an attribute does not exist or is not of the shape's type.
    #[must_use]
    pub fn new(attributes: &[Attribute], numbers: &[u16], shape: &ByteShape) -> Option<Self> {
        if numbers.len() != shape.len() {
            return None;
        }
        let mut columns = Vec::with_capacity(numbers.len());
        for (column, (number, part)) in numbers.iter().zip(shape.parts()).enumerate() {
            let index = usize::from(*number).checked_sub(1)?;
            let attribute = attributes.get(index)?;
            let fits = match part.storage {
                Storage::Fixed(fixed) => {
                    usize::try_from(attribute.len) == Ok(fixed.kind.size())
                        && usize::from(attribute.align) == fixed.kind.align()
                        && attribute.by_value == fixed.kind.by_value()
                }
                Storage::Varlena { .. } => attribute.len == -1 && attribute.align == 4,
            };
            if !fits {
                return None;
            }
            columns.push((index, column, part.storage));
        }
        columns.sort_by_key(|(index, ..)| *index);
        let attributes = attributes.get(..=columns.last()?.0)?;
        if attributes.iter().any(|attribute| !matches!(attribute.align, 1 | 2 | 4 | 8) || attribute.len == 0) {
            return None;
        }
        let (mut places, mut fixed_end) = (Vec::new(), 0usize);
        for attribute in attributes.iter().take_while(|attribute| attribute.len > 0) {
            let place = fixed_end.next_multiple_of(usize::from(attribute.align));
            places.push(place);
            fixed_end = place + usize::try_from(attribute.len).ok()?;
        }
        let numbers: Vec<usize> = columns.iter().map(|(index, ..)| *index).collect();
        let wanted = columns.iter().map(|(index, column, storage)| Wanted {
            column: *column,
            storage: *storage,
            place: places.get(*index).copied().unwrap_or_default(),
        });
        Some(Self {
            shape: shape.clone(),
            wanted: wanted.collect(),
            steps: steps(attributes, &numbers),
            fixed: places.len(),
            fixed_end,
            fixed_wanted: numbers.partition_point(|index| *index < places.len()),
        })
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
        let (data, nulls) = data(tuple, self.steps.len())?;
        let (mut at, passed) = if nulls { (0, 0) } else { (self.fixed_end, self.fixed) };
        if !nulls {
            for wanted in self.wanted.get(..self.fixed_wanted)? {
                *values.get_mut(wanted.column)? = wanted.value(data, wanted.place)?;
            }
        }
        for (i, step) in self.steps.iter().enumerate().skip(passed) {
            let null = nulls && tuple.get(TUPLE_HEADER + i / 8)? >> (i % 8) & 1 == 0;
            let mut start = at;
            if !null {
                (start, at) = step.place(data, at)?;
            }
            for wanted in self.wanted.get(usize::from(step.first)..usize::from(step.last))? {
                let to = values.get_mut(wanted.column)?;
                *to = if null { StoredValue::Null } else { wanted.value(data, start)? };
            }
        }
        Some(())
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

impl Wanted {
    #[inline(always)]
    fn value<'t>(&self, data: &'t [u8], start: usize) -> Option<StoredValue<'t>> {
        let bytes = data.get(start..)?;
        Some(StoredValue::Bytes(match self.storage {
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
}
