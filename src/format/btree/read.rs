//! Keys out of heap tuples.
//!
//! A key's attribute is where the attributes before it end: a constant, if they are of fixed width and none of them is
//! null. Then a key is read with a load or two; otherwise the attributes are walked, from the first one of variable
//! width on or, with nulls, from the start.
//!
//! The tricky point is the alignment of a varlena (att_align_pointer): one with a header of one byte has none. What
//! tells is the byte where the attribute before it ends: padding is zero and no header of one byte is.

use super::entry::{Entry, Tid, Word};
use super::key::{Column, KeyShape};
use super::{MAX_KEYS, item_id, u16_at};
use crate::page::{LINE_POINTER, PAGE_HEADER, PAGE_SIZE};
use crate::tuple::{Attribute, HEAP_HASNULL, T_HOFF, T_INFOMASK, T_INFOMASK2, TUPLE_HEADER};

/// HEAP_NATTS_MASK
const NATTS_MASK: u16 = 0x07ff;

/// How to read keys from a table's tuples.
#[derive(Clone, Debug)]
pub struct KeyReader {
    shape: KeyShape,
    /// For each column, which of the `wanted` it is.
    slots: Box<[usize]>,
    /// Attributes that are read, ascending.
    wanted: Box<[Wanted]>,
    /// Attributes up to the last one of them.
    attributes: Box<[Attribute]>,
    /// How many of them, from the first one on, are where they are whatever the values.
    fixed: usize,
    /// Where those end.
    fixed_end: usize,
}

#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// Counted from 0.
    attribute: usize,
    /// Where it is in the data of a tuple without nulls, if that is a constant.
    offset: usize,
}

impl KeyReader {
    /// A reader of keys whose columns are the attributes with these numbers, counted from 1, of a table that has these
    /// attributes at least. None if there are no such attributes, or not of the shape's types.
    #[must_use]
    pub fn new(attributes: &[Attribute], numbers: &[u16], shape: &KeyShape) -> Option<Self> {
        if numbers.len() != shape.len() {
            return None;
        }
        let mut wanted: Vec<usize> = Vec::with_capacity(numbers.len());
        for (number, column) in numbers.iter().zip(shape.columns()) {
            let index = usize::from(*number).checked_sub(1)?;
            let attribute = attributes.get(index)?;
            let kind = column.kind;
            let fits = usize::try_from(attribute.len) == Ok(kind.size())
                && usize::from(attribute.align) == kind.align()
                && attribute.by_value == kind.by_value();
            if !fits {
                return None;
            }
            wanted.push(index);
        }
        let slot_of = wanted.clone();
        wanted.sort_unstable();
        wanted.dedup();
        let slots = slot_of.iter().map(|index| wanted.binary_search(index).ok()).collect::<Option<_>>()?;
        let attributes: Box<[Attribute]> = attributes.get(..=*wanted.last()?)?.into();
        if attributes.iter().any(|attribute| !matches!(attribute.align, 1 | 2 | 4 | 8) || attribute.len == 0) {
            return None;
        }
        let (mut fixed, mut fixed_end) = (0, 0usize);
        let mut offsets = Vec::new();
        for attribute in attributes.iter().take_while(|attribute| attribute.len > 0) {
            let offset = fixed_end.next_multiple_of(usize::from(attribute.align));
            offsets.push(offset);
            (fixed, fixed_end) = (fixed + 1, offset + usize::try_from(attribute.len).ok()?);
        }
        let wanted = wanted
            .iter()
            .map(|index| Wanted { attribute: *index, offset: offsets.get(*index).copied().unwrap_or_default() });
        Some(Self { shape: shape.clone(), slots, wanted: wanted.collect(), attributes, fixed, fixed_end })
    }

    /// The shape of its keys.
    #[must_use]
    pub fn shape(&self) -> &KeyShape {
        &self.shape
    }

    /// The key of a heap tuple. None if there is no word for it ([`KeyShape::encode`]), or if the tuple is not one of
    /// this table.
    #[inline]
    pub fn read<W: Word>(&self, tuple: &[u8]) -> Option<W> {
        let header = tuple.first_chunk::<TUPLE_HEADER>()?;
        let data = tuple.get(usize::from(header[T_HOFF])..)?;
        let nulls = u16::from_ne_bytes([header[T_INFOMASK], header[T_INFOMASK + 1]]) & HEAP_HASNULL != 0;
        let natts = u16::from_ne_bytes([header[T_INFOMASK2], header[T_INFOMASK2 + 1]]) & NATTS_MASK;
        if usize::from(natts) < self.attributes.len() {
            return None;
        }
        if !nulls && self.fixed == self.attributes.len() {
            return self.shape.gather(|i, column| {
                let wanted = self.wanted.get(*self.slots.get(i)?)?;
                load(column, data, wanted.offset).map(Some)
            });
        }
        self.walk(tuple, data, nulls)
    }

    #[inline(never)]
    fn walk<W: Word>(&self, tuple: &[u8], data: &[u8], nulls: bool) -> Option<W> {
        let mut offsets = [None; MAX_KEYS];
        let mut slots = self.wanted.iter().zip(&mut offsets).peekable();
        let (mut next, mut at) = (0, 0);
        if !nulls {
            while let Some((wanted, offset)) = slots.next_if(|(wanted, _)| wanted.attribute < self.fixed) {
                *offset = Some(wanted.offset);
            }
            (next, at) = (self.fixed, self.fixed_end);
        }
        for (i, attribute) in self.attributes.iter().enumerate().skip(next) {
            let null = nulls && tuple.get(TUPLE_HEADER + i / 8)? >> (i % 8) & 1 == 0;
            let mut start = at;
            if !null {
                (start, at) = place(attribute, data, at)?;
            }
            if let Some((_, offset)) = slots.next_if(|(wanted, _)| wanted.attribute == i)
                && !null
            {
                *offset = Some(start);
            }
        }
        self.shape.gather(|i, column| match *offsets.get(*self.slots.get(i)?)? {
            Some(offset) => load(column, data, offset).map(Some),
            None => Some(None),
        })
    }

    /// Appends the keys of all tuples of a heap page, with the TIDs they have if it is this block. None if one of them
    /// has no word; what has been appended then is of no use.
    pub fn read_page<W: Word>(&self, page: &[u8; PAGE_SIZE], block: u32, entries: &mut Vec<Entry<W>>) -> Option<usize> {
        let before = entries.len();
        let lower = usize::from(u16_at(page, 12));
        let pointers = page.get(PAGE_HEADER..lower).unwrap_or_default();
        for (pointer, offset) in pointers.as_chunks::<LINE_POINTER>().0.iter().zip(1u16..) {
            let (at, flags, length) = item_id(u32::from_ne_bytes(*pointer));
            if flags == super::LP_NORMAL {
                let key = self.read(page.get(at..at + length)?)?;
                entries.push(Entry::new(key, Tid::new(block, offset)));
            }
        }
        Some(entries.len() - before)
    }
}

#[inline(always)]
fn load<W: Word>(column: &Column, data: &[u8], offset: usize) -> Option<W> {
    column.kind.load(data.get(offset..)?)
}

/// Where an attribute behind others that end at `at` begins and ends.
#[inline(always)]
fn place(attribute: &Attribute, data: &[u8], at: usize) -> Option<(usize, usize)> {
    let aligned = at.next_multiple_of(usize::from(attribute.align));
    match attribute.len {
        -2 => {
            let length = data.get(at..)?.iter().position(|byte| *byte == 0)?;
            Some((at, at + length + 1))
        }
        -1 => {
            let start = if *data.get(at)? == 0 { aligned } else { at };
            Some((start, start + varlena_size(data.get(start..)?)?))
        }
        len => Some((aligned, aligned + usize::try_from(len).ok()?)),
    }
}

/// VARSIZE_ANY
#[inline(always)]
fn varlena_size(bytes: &[u8]) -> Option<usize> {
    let first = *bytes.first()?;
    let (short, external) =
        if cfg!(target_endian = "big") { (first & 0x80 != 0, first == 0x80) } else { (first & 1 != 0, first == 1) };
    if external {
        // VARTAG_ONDISK: the only kind that is stored.
        return (*bytes.get(1)? == 18).then_some(2 + 16);
    }
    if short {
        return Some(usize::from(if cfg!(target_endian = "big") { first & 0x7f } else { first >> 1 }));
    }
    let header = u32::from_ne_bytes(*bytes.first_chunk()?);
    let size = (if cfg!(target_endian = "big") { header & 0x3fff_ffff } else { header >> 2 }) as usize;
    (size >= 4).then_some(size)
}
