//! Reads keys from heap tuples.
//!
//! A key's attribute begins where the attributes before it end. That is a constant if they have fixed width and are not
//! null. Then a key is read with a load or two. Otherwise the attributes are walked: from the first one of variable
//! width on, or, in a tuple with nulls, from the start.
//!
//! The tricky point is the alignment of a varlena (att_align_pointer): with a header of one byte it is not aligned. The
//! byte behind the attribute before it decides: padding is zero, and a header of one byte is not.

use super::entry::{Entry, Tid, Word};
use super::key::{EncodedColumn, KeyShape};
use super::{LP_NORMAL, item_id, u16_at};
use crate::page::{LINE_POINTER, PAGE_HEADER, PAGE_SIZE};
use crate::tuple::{Attribute, HEAP_HASNULL, T_HOFF, T_INFOMASK, T_INFOMASK2, TUPLE_HEADER};

/// HEAP_NATTS_MASK
const NATTS_MASK: u16 = 0x07ff;

/// A reader of keys from a table's tuples.
#[derive(Clone, Debug)]
pub struct KeyReader {
    shape: KeyShape,
    layout: Layout<EncodedColumn>,
}

/// Where the columns `C` of a key are in a table's tuples.
#[derive(Clone, Debug)]
pub(super) struct Layout<C> {
    /// The columns, in the order of their attributes, with their offsets in the data of a tuple without nulls, if
    /// constant.
    wanted: Box<[(C, usize)]>,
    /// The attributes from the first one to the last key column.
    steps: Box<[AttributeStep]>,
    /// Number of attributes at the start with constant offsets.
    fixed: usize,
    /// End of these attributes.
    fixed_end: usize,
    /// Number of key columns among them.
    fixed_wanted: usize,
}

/// An attribute to walk over.
#[derive(Clone, Copy, Debug)]
struct AttributeStep {
    /// attlen
    len: i16,
    /// Alignment minus one.
    mask: u8,
    /// The range of key columns that this attribute is.
    first: u8,
    last: u8,
}

impl<C: Copy> Layout<C> {
    /// Finds the columns. `numbers`: their attribute numbers, counted from 1; `attributes`: the table's first attributes.
    ///
    /// Returns `None` if an attribute does not exist or does not fit its column.
    pub(super) fn new(
        attributes: &[Attribute],
        numbers: &[u16],
        columns: impl ExactSizeIterator<Item = C>,
        fits: impl Fn(C, &Attribute) -> bool,
    ) -> Option<Self> {
        if numbers.len() != columns.len() {
            return None;
        }
        let mut wanted = Vec::with_capacity(numbers.len());
        for (number, column) in numbers.iter().zip(columns) {
            let index = usize::from(*number).checked_sub(1)?;
            if !fits(column, attributes.get(index)?) {
                return None;
            }
            wanted.push((index, column));
        }
        wanted.sort_by_key(|(index, _)| *index);
        let attributes = attributes.get(..=wanted.last()?.0)?;
        if attributes.iter().any(|attribute| !matches!(attribute.align, 1 | 2 | 4 | 8) || attribute.len == 0) {
            return None;
        }
        let (mut places, mut fixed_end) = (Vec::new(), 0usize);
        for attribute in attributes.iter().take_while(|attribute| attribute.len > 0) {
            let place = fixed_end.next_multiple_of(usize::from(attribute.align));
            places.push(place);
            fixed_end = place + usize::try_from(attribute.len).ok()?;
        }
        let step = |(i, attribute): (usize, &Attribute)| AttributeStep {
            len: attribute.len,
            mask: attribute.align - 1,
            first: wanted.partition_point(|(index, _)| *index < i) as u8,
            last: wanted.partition_point(|(index, _)| *index <= i) as u8,
        };
        let place = |(index, column): &(usize, C)| (*column, places.get(*index).copied().unwrap_or_default());
        Some(Self {
            wanted: wanted.iter().map(place).collect(),
            steps: attributes.iter().enumerate().map(step).collect(),
            fixed: places.len(),
            fixed_end,
            fixed_wanted: wanted.partition_point(|(index, _)| *index < places.len()),
        })
    }

    /// Returns a tuple's data, and whether any attribute is null. `None` if it has fewer attributes than the key needs.
    #[inline(always)]
    pub(super) fn data<'t>(&self, tuple: &'t [u8]) -> Option<(&'t [u8], bool)> {
        let header = tuple.first_chunk::<TUPLE_HEADER>()?;
        let infomask = u16::from_ne_bytes([header[T_INFOMASK], header[T_INFOMASK + 1]]);
        let natts = u16::from_ne_bytes([header[T_INFOMASK2], header[T_INFOMASK2 + 1]]) & NATTS_MASK;
        let data = tuple.get(usize::from(header[T_HOFF])..)?;
        (usize::from(natts) >= self.steps.len()).then_some((data, infomask & HEAP_HASNULL != 0))
    }

    /// Passes each column at a constant offset to `take`, with the data from there on.
    #[inline(always)]
    pub(super) fn fixed_part<'t>(
        &self,
        data: &'t [u8],
        mut take: impl FnMut(&C, &'t [u8]) -> Option<()>,
    ) -> Option<()> {
        for (column, place) in self.wanted.get(..self.fixed_wanted)? {
            take(column, data.get(*place..)?)?;
        }
        Some(())
    }

    /// Passes each other column of a tuple with this data to `take`, with the data from there on, or `None` for a null.
    /// All columns, if any attribute is null.
    #[inline(always)]
    pub(super) fn others<'t>(
        &self,
        tuple: &[u8],
        (data, nulls): (&'t [u8], bool),
        mut take: impl FnMut(&C, Option<&'t [u8]>) -> Option<()>,
    ) -> Option<()> {
        let (mut at, passed) = if nulls { (0, 0) } else { (self.fixed_end, self.fixed) };
        for (i, step) in self.steps.iter().enumerate().skip(passed) {
            let null = nulls && tuple.get(TUPLE_HEADER + i / 8)? >> (i % 8) & 1 == 0;
            let mut start = at;
            if !null {
                (start, at) = step.place(data, at)?;
            }
            if step.first == step.last {
                continue;
            }
            for (column, _) in self.wanted.get(usize::from(step.first)..usize::from(step.last))? {
                take(column, if null { None } else { Some(data.get(start..)?) })?;
            }
        }
        Some(())
    }
}

impl KeyReader {
    /// Creates a reader of keys. `numbers`: the attribute numbers of the columns, counted from 1; `attributes`: the
    /// table's first attributes.
    ///
    /// Returns `None` if an attribute does not exist or is not of the shape's type.
    #[must_use]
    pub fn new(attributes: &[Attribute], numbers: &[u16], shape: &KeyShape) -> Option<Self> {
        let layout = Layout::new(attributes, numbers, shape.columns().iter().copied(), |column, attribute| {
            column.kind.fits(attribute)
        });
        Some(Self { shape: shape.clone(), layout: layout? })
    }

    /// The shape of the keys.
    #[must_use]
    pub fn shape(&self) -> &KeyShape {
        &self.shape
    }

    /// Reads the key of a heap tuple. `None` if it has no word ([`KeyShape::encode`]), or if the tuple is not from this
    /// table.
    #[inline]
    pub fn read<W: Word>(&self, tuple: &[u8]) -> Option<W> {
        let (data, nulls) = self.layout.data(tuple)?;
        if nulls || self.layout.fixed < self.layout.steps.len() {
            return self.walk(tuple, data, nulls);
        }
        self.fixed_part(data)
    }

    /// [`Self::read`] for the few tuples of a page that have no single integer without nulls: not a part of its loop.
    #[inline(never)]
    fn read_other<W: Word>(&self, tuple: &[u8]) -> Option<W> {
        self.read(tuple)
    }

    /// Reads the columns of a key at constant offsets.
    #[inline(always)]
    fn fixed_part<W: Word>(&self, data: &[u8]) -> Option<W> {
        let mut word = W::default();
        self.layout.fixed_part(data, |column, bytes| {
            word = word | self.shape.part(column, Some(column.kind.load(bytes)?))?;
            Some(())
        })?;
        Some(word)
    }

    #[inline(never)]
    fn walk<W: Word>(&self, tuple: &[u8], data: &[u8], nulls: bool) -> Option<W> {
        let mut word = if nulls { W::default() } else { self.fixed_part(data)? };
        self.layout.others(tuple, (data, nulls), |column, bytes| {
            let raw = match bytes {
                Some(bytes) => Some(column.kind.load(bytes)?),
                None => None,
            };
            word = word | self.shape.part(column, raw)?;
            Some(())
        })?;
        Some(word)
    }

    /// Appends the keys of all tuples of a heap page, which is block `block`, and returns their number. `None` if a key
    /// has no word; the appended entries are garbage then.
    pub fn read_page<W: Word>(&self, page: &[u8; PAGE_SIZE], block: u32, entries: &mut Vec<Entry<W>>) -> Option<usize> {
        if let Some(column) = self.shape.only_integer(4) {
            let (flip, no_nulls) = (column.flip::<W>(), self.shape.no_nulls::<W>());
            let word = |bytes: &[u8; 4]| W::from_u64(u64::from(u32::from_ne_bytes(*bytes))) ^ flip | no_nulls;
            return self.read_each(page, block, entries, |tuple| match self.only_attribute(tuple) {
                Some(bytes) => Some(word(bytes)),
                None => self.read_other(tuple),
            });
        }
        if let Some(column) = self.shape.only_integer(8) {
            let (flip, no_nulls) = (column.flip::<W>(), self.shape.no_nulls::<W>());
            let word = |bytes: &[u8; 8]| W::from_u64(u64::from_ne_bytes(*bytes)) ^ flip | no_nulls;
            return self.read_each(page, block, entries, |tuple| match self.only_attribute(tuple) {
                Some(bytes) => Some(word(bytes)),
                None => self.read_other(tuple),
            });
        }
        self.read_each(page, block, entries, |tuple| self.read(tuple))
    }

    #[inline(always)]
    fn read_each<W: Word>(
        &self,
        page: &[u8; PAGE_SIZE],
        block: u32,
        entries: &mut Vec<Entry<W>>,
        read: impl Fn(&[u8]) -> Option<W>,
    ) -> Option<usize> {
        let before = entries.len();
        let lower = usize::from(u16_at(page, 12));
        let pointers = page.get(PAGE_HEADER..lower).unwrap_or_default().as_chunks::<LINE_POINTER>().0;
        entries.reserve(pointers.len());
        for (pointer, offset) in pointers.iter().zip(1u16..) {
            let (at, flags, length) = item_id(u32::from_ne_bytes(*pointer));
            if flags == LP_NORMAL {
                entries.push(Entry::new(read(page.get(at..at + length)?)?, Tid::new(block, offset)));
            }
        }
        Some(entries.len() - before)
    }

    /// Returns the only key attribute if the tuple has no nulls. It is the last attribute of the walk.
    #[inline(always)]
    fn only_attribute<'t, const N: usize>(&self, tuple: &'t [u8]) -> Option<&'t [u8; N]> {
        let layout = &self.layout;
        let (data, nulls) = layout.data(tuple)?;
        if nulls {
            return None;
        }
        let &(_, mut place) = layout.wanted.first()?;
        if let Some((last, varying)) = layout.steps.get(layout.fixed..)?.split_last() {
            let mut at = layout.fixed_end;
            for step in varying {
                (_, at) = step.place(data, at)?;
            }
            (place, _) = last.place(data, at)?;
        }
        data.get(place..)?.first_chunk()
    }
}

/// Iterates over the tuples of a heap page with their offset numbers. `None` for a tuple that is not within the page.
#[inline(always)]
pub(super) fn tuples(page: &[u8; PAGE_SIZE]) -> impl Iterator<Item = (u16, Option<&[u8]>)> {
    let lower = usize::from(u16_at(page, 12));
    let pointers = page.get(PAGE_HEADER..lower).unwrap_or_default().as_chunks::<LINE_POINTER>().0;
    pointers.iter().zip(1u16..).filter_map(|(pointer, offset)| {
        let (at, flags, length) = item_id(u32::from_ne_bytes(*pointer));
        (flags == LP_NORMAL).then(|| (offset, page.get(at..at + length)))
    })
}

impl AttributeStep {
    /// Returns the start and end of the attribute behind those that end at `at`.
    #[inline(always)]
    fn place(self, data: &[u8], at: usize) -> Option<(usize, usize)> {
        let mask = usize::from(self.mask);
        let aligned = (at + mask) & !mask;
        match self.len {
            -1 => {
                let start = varlena_start(data, at, mask + 1)?;
                Some((start, start + varlena_size(data.get(start..)?)?))
            }
            -2 => {
                let length = data.get(at..)?.iter().position(|byte| *byte == 0)?;
                Some((at, at + length + 1))
            }
            len => Some((aligned, aligned + usize::try_from(len).ok()?)),
        }
    }
}

/// Returns the start of a varlena with this alignment behind an attribute that ends at `at`: att_align_pointer.
#[inline(always)]
pub(super) fn varlena_start(data: &[u8], at: usize, align: usize) -> Option<usize> {
    Some(if *data.get(at)? == 0 { at.next_multiple_of(align) } else { at })
}

/// Returns size and payload of a varlena; `None` if it is compressed or external.
#[inline(always)]
pub(super) fn varlena(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let first = *bytes.first()?;
    let big = cfg!(target_endian = "big");
    let (short, compressed) =
        if big { (first & 0x80 != 0, first & 0xc0 == 0x40) } else { (first & 1 != 0, first & 3 == 2) };
    let external = short && first == if big { 0x80 } else { 1 };
    if compressed || external {
        return None;
    }
    let size = varlena_size(bytes)?;
    Some((size, bytes.get(if short { 1 } else { 4 }..size)?))
}

/// VARSIZE_ANY
#[inline(always)]
fn varlena_size(bytes: &[u8]) -> Option<usize> {
    let first = *bytes.first()?;
    let (short, external) =
        if cfg!(target_endian = "big") { (first & 0x80 != 0, first == 0x80) } else { (first & 1 != 0, first == 1) };
    if external {
        // VARTAG_ONDISK: the only tag of stored values.
        return (*bytes.get(1)? == 18).then_some(2 + 16);
    }
    if short {
        return Some(usize::from(if cfg!(target_endian = "big") { first & 0x7f } else { first >> 1 }));
    }
    let header = u32::from_ne_bytes(*bytes.first_chunk()?);
    let size = (if cfg!(target_endian = "big") { header & 0x3fff_ffff } else { header >> 2 }) as usize;
    (size >= 4).then_some(size)
}
