//! Keys as integers: one whose order is the order of an index, and which can be taken apart again.
//!
//! ```text
//!   (a int4 NOT NULL, b int2 DESC)                        NULLS FIRST, as DESC has it by default
//!
//!   63                   49 48                        17  16   15              0
//!   0 ................... 0 | a, its sign bit inverted  | 1 ? | b, all bits but the sign bit inverted
//!                                                         └ 0: b is null, and the bits after this one are 0
//! ```
//!
//! A column is a number of bits, the first column the highest ones. Signed integers have their sign bit inverted; what
//! is in descending order has all of them inverted. A nullable column has one more bit in front. If all of them fit into
//! 64 bits the word is a u64, else a u128, else there is no word: [`KeyShape::new`] says None.
//!
//! The tricky point is that the word must be the value's image and its rank at the same time. A few values are neither:
//! a float's negative zero equals zero but has other bits, as do NaNs. No word is made of them
//! ([`KeyShape::encode`] says None), and the index is for others to build. The same holds for one uuid of a nullable
//! column of them, where there is no bit left to tell NULL: NULL takes the place of the uuid at that end of the order,
//! all zeros or all ones.

use super::entry::Word;
use super::{MAX_KEYS, TUPLE_HEADER, TUPLE_HEADER_WITH_NULLS};
use crate::tuple::max_align;

/// How the values of a column are stored and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// int2
    Int2,
    /// int4, date
    Int4,
    /// int8, timestamp, timestamptz, time, money
    Int8,
    /// oid
    Oid,
    /// float4: NaN is the largest.
    Float4,
    /// float8
    Float8,
    /// uuid
    Uuid,
    /// bool
    Bool,
    /// "char", compared without sign
    Char,
}

impl KeyKind {
    /// attlen
    #[inline(always)]
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::Char => 1,
            Self::Int2 => 2,
            Self::Int4 | Self::Oid | Self::Float4 => 4,
            Self::Int8 | Self::Float8 => 8,
            Self::Uuid => 16,
        }
    }

    /// attalign in bytes
    #[inline(always)]
    #[must_use]
    pub const fn align(self) -> usize {
        match self {
            Self::Uuid => 1,
            _ => self.size(),
        }
    }

    /// attbyval
    #[must_use]
    pub const fn by_value(self) -> bool {
        !matches!(self, Self::Uuid)
    }

    /// Bits of a word that a value takes.
    const fn bits(self) -> u32 {
        match self {
            Self::Bool => 1,
            _ => self.size() as u32 * 8,
        }
    }

    /// Is the first bit a sign?
    const fn signed(self) -> bool {
        matches!(self, Self::Int2 | Self::Int4 | Self::Int8)
    }

    /// A value's stored bytes as a number.
    #[inline(always)]
    pub(super) fn load<W: Word>(self, bytes: &[u8]) -> Option<W> {
        Some(match self {
            Self::Bool | Self::Char => W::from_u64(u64::from(*bytes.first()?)),
            Self::Int2 => W::from_u64(u64::from(u16::from_ne_bytes(*bytes.first_chunk()?))),
            Self::Int4 | Self::Oid | Self::Float4 => W::from_u64(u64::from(u32::from_ne_bytes(*bytes.first_chunk()?))),
            Self::Int8 | Self::Float8 => W::from_u64(u64::from_ne_bytes(*bytes.first_chunk()?)),
            Self::Uuid => W::from_u128(u128::from_be_bytes(*bytes.first_chunk()?)),
        })
    }
}

/// A column of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    /// Its type.
    pub kind: KeyKind,
    /// DESC
    pub descending: bool,
    /// NULLS FIRST
    pub nulls_first: bool,
    /// There may be nulls. To say so of a column that has none costs a bit.
    pub nullable: bool,
}

/// A value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyValue {
    /// NULL
    Null,
    /// The datum of a type that is passed by value.
    Datum(u64),
    /// The bytes that the datum of a uuid points to.
    Uuid([u8; 16]),
}

/// Which word a shape is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// u64
    Narrow,
    /// u128
    Wide,
}

/// A column, in the terms of its bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) kind: KeyKind,
    descending: bool,
    nulls_first: bool,
    nullable: bool,
    /// Bits after it.
    shift: u32,
    /// What makes a value that is no float its rank, and a rank its value: bits to be inverted.
    flip: u128,
    /// Where it is in the data of an index tuple without nulls.
    pub(super) offset: usize,
}

/// What the keys of an index look like.
#[derive(Clone, Debug)]
pub struct KeyShape {
    columns: Box<[Column]>,
    width: Width,
    /// The word that is NULL, of a column that has no bit to tell.
    null_word: Option<u128>,
    /// Bits that tell nulls, and what they are if nothing is null.
    null_bits: u128,
    no_nulls: u128,
    /// Bytes of an index tuple's data without nulls.
    data_len: usize,
}

/// Bytes of an index tuple, posting list and heap TID left out, at most.
pub const MAX_TUPLE: usize = 64;

impl KeyShape {
    /// The shape of keys with these columns; None if a word does not hold them.
    #[must_use]
    pub fn new(columns: &[KeyColumn]) -> Option<Self> {
        if columns.is_empty() || columns.len() > MAX_KEYS {
            return None;
        }
        let bits = |column: &KeyColumn| column.kind.bits() + u32::from(column.nullable);
        let mut total = columns.iter().map(bits).sum::<u32>();
        let mut null_word = None;
        if let [only] = columns
            && total > u128::BITS
        {
            total = only.kind.bits();
            null_word = Some(if only.nulls_first { 0 } else { u128::MAX });
        }
        let width = match total {
            0..=64 => Width::Narrow,
            65..=128 => Width::Wide,
            _ => return None,
        };
        let (mut shift, mut data_len) = (total, 0usize);
        let (mut null_bits, mut no_nulls) = (0, 0);
        let columns = columns.iter().map(|column| {
            let KeyColumn { kind, descending, nulls_first, nullable } = *column;
            let nullable = nullable && null_word.is_none();
            shift -= kind.bits();
            if nullable {
                shift -= 1;
                let bit = 1u128 << (shift + kind.bits());
                null_bits |= bit;
                no_nulls |= if nulls_first { bit } else { 0 };
            }
            let offset = data_len.next_multiple_of(kind.align());
            data_len = offset + kind.size();
            let (sign, all) = (1u128 << (kind.bits() - 1), u128::MAX >> (u128::BITS - kind.bits()));
            let flip = if kind.signed() { sign } else { 0 } ^ if descending { all } else { 0 };
            Column { kind, descending, nulls_first, nullable, shift, flip, offset }
        });
        let columns = columns.collect();
        let longest = max_align(TUPLE_HEADER_WITH_NULLS + data_len);
        (longest <= MAX_TUPLE).then_some(Self { columns, width, null_word, null_bits, no_nulls, data_len })
    }

    /// Which word its keys are.
    #[must_use]
    pub fn width(&self) -> Width {
        self.width
    }

    /// Has each key a word? Not every float has.
    #[must_use]
    pub fn has_all(&self) -> bool {
        !self.columns.iter().any(|column| matches!(column.kind, KeyKind::Float4 | KeyKind::Float8))
    }

    /// How many columns it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// It has at least one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Bytes of an index tuple without nulls.
    #[must_use]
    pub fn tuple_size(&self) -> usize {
        max_align(TUPLE_HEADER + self.data_len)
    }

    #[inline(always)]
    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Bits that say that no column is null.
    #[inline(always)]
    pub(super) fn no_nulls<W: Word>(&self) -> W {
        W::from_u128(self.no_nulls)
    }

    /// The only column, if it is a number of this many bytes with one image for each value.
    #[inline(always)]
    pub(super) fn only_integer(&self, size: usize) -> Option<&Column> {
        match &*self.columns {
            [only] if matches!(only.kind, KeyKind::Int4 | KeyKind::Oid | KeyKind::Int8) && only.kind.size() == size => {
                Some(only)
            }
            _ => None,
        }
    }

    /// Bytes of a tuple's data without nulls.
    #[inline(always)]
    pub(super) fn data_len(&self) -> usize {
        self.data_len
    }

    /// Is any column of this key null?
    #[inline(always)]
    #[must_use]
    pub fn has_null<W: Word>(&self, key: W) -> bool {
        (key ^ W::from_u128(self.no_nulls)) & W::from_u128(self.null_bits) != W::default()
            || self.null_word.is_some_and(|null| key == W::from_u128(null))
    }

    /// Can any column be null?
    #[inline(always)]
    #[must_use]
    pub fn nullable(&self) -> bool {
        self.null_bits != 0 || self.null_word.is_some()
    }

    /// The word of a key whose columns' stored bytes, as numbers, are given in their order. None if there is no such
    /// word: a null where there can be none, or one of the values that have none.
    #[inline(always)]
    pub(super) fn gather<W: Word>(&self, mut raw: impl FnMut(usize, &Column) -> Option<Option<W>>) -> Option<W> {
        let mut word = W::default();
        for (i, column) in self.columns.iter().enumerate() {
            word = word | self.part(column, raw(i, column)?)?;
        }
        Some(word)
    }

    /// The bits of a value, in their place; None if there are none.
    #[inline(always)]
    pub(super) fn part<W: Word>(&self, column: &Column, raw: Option<W>) -> Option<W> {
        let Some(raw) = raw else {
            return match self.null_word {
                None if column.nullable => Some(column.null_bit(!column.nulls_first)),
                null_word => null_word.map(W::from_u128),
            };
        };
        let value = column.rank(raw)?;
        if self.null_word.is_some_and(|null| value == W::from_u128(null)) {
            return None;
        }
        let value = value << column.shift;
        Some(if column.nullable { value | column.null_bit(column.nulls_first) } else { value })
    }

    /// The word of a key. None if there is none: see the module.
    #[must_use]
    pub fn encode<W: Word>(&self, values: &[KeyValue]) -> Option<W> {
        if values.len() != self.columns.len() {
            return None;
        }
        self.gather(|i, column| {
            Some(match *values.get(i)? {
                KeyValue::Null => None,
                KeyValue::Datum(datum) if column.kind.by_value() => {
                    Some(W::from_u64(datum & (u64::MAX >> (64 - 8 * column.kind.size()))))
                }
                KeyValue::Uuid(bytes) if column.kind == KeyKind::Uuid => Some(W::from_u128(u128::from_be_bytes(bytes))),
                _ => return None,
            })
        })
    }

    /// A column of a key, as a datum. Null if there is no such column.
    #[must_use]
    pub fn decode<W: Word>(&self, key: W, column: usize) -> KeyValue {
        let Some(column) = self.columns.get(column) else { return KeyValue::Null };
        let Some(raw) = self.raw(key, column) else { return KeyValue::Null };
        let low = raw.to_u64();
        match column.kind {
            KeyKind::Uuid => KeyValue::Uuid(raw.to_u128().to_be_bytes()),
            KeyKind::Bool | KeyKind::Oid | KeyKind::Int8 | KeyKind::Float8 => KeyValue::Datum(low),
            // Int32GetDatum and its like extend the sign, and so do those of float4 and "char".
            KeyKind::Char => KeyValue::Datum(low as i8 as u64),
            KeyKind::Int2 => KeyValue::Datum(low as i16 as u64),
            KeyKind::Int4 | KeyKind::Float4 => KeyValue::Datum(low as i32 as u64),
        }
    }

    /// A column's stored bytes as a number; None if it is null.
    #[inline(always)]
    pub(super) fn raw<W: Word>(&self, key: W, column: &Column) -> Option<W> {
        if self.nullable() && self.is_null(key, column) {
            return None;
        }
        Some(column.restore(key))
    }

    fn is_null<W: Word>(&self, key: W, column: &Column) -> bool {
        if column.nullable {
            let bit = key >> (column.shift + column.kind.bits()) & W::from_u64(1);
            return (bit == W::default()) == column.nulls_first;
        }
        self.null_word.is_some_and(|null| key == W::from_u128(null))
    }

    /// How many columns two keys have in common, from the first one on.
    #[inline]
    pub(super) fn common<W: Word>(&self, a: W, b: W) -> usize {
        if a == b {
            return self.columns.len();
        }
        let highest = W::BITS - 1 - (a ^ b).leading_zeros();
        self.columns.iter().take_while(|column| column.shift > highest).count()
    }
}

impl Column {
    #[inline(always)]
    fn null_bit<W: Word>(&self, one: bool) -> W {
        if one { W::from_u64(1) << (self.shift + self.kind.bits()) } else { W::default() }
    }

    /// A value's place in the order.
    #[inline(always)]
    pub(super) fn rank<W: Word>(&self, raw: W) -> Option<W> {
        match self.kind {
            KeyKind::Float4 | KeyKind::Float8 => {
                if !plain_float(self.kind, raw.to_u64()) {
                    return None;
                }
                let (sign, all) = (self.sign::<W>(), self.all::<W>());
                let rank = raw ^ if raw & sign == W::default() { sign } else { all };
                Some(if self.descending { rank ^ all } else { rank })
            }
            KeyKind::Bool if raw > W::from_u64(1) => None,
            _ => Some(raw ^ self.flip()),
        }
    }

    /// The value of a key that has this place in the order.
    #[inline(always)]
    pub(super) fn restore<W: Word>(&self, key: W) -> W {
        let rank = (key >> self.shift) & self.all();
        match self.kind {
            KeyKind::Float4 | KeyKind::Float8 => {
                let (sign, all) = (self.sign::<W>(), self.all::<W>());
                let rank = if self.descending { rank ^ all } else { rank };
                rank ^ if rank & sign == W::default() { all } else { sign }
            }
            _ => rank ^ self.flip(),
        }
    }

    /// What makes a value that is no float its rank, and the other way round.
    #[inline(always)]
    pub(super) fn flip<W: Word>(&self) -> W {
        W::from_u128(self.flip)
    }

    #[inline(always)]
    fn sign<W: Word>(&self) -> W {
        W::from_u64(1) << (self.kind.bits() - 1)
    }

    #[inline(always)]
    fn all<W: Word>(&self) -> W {
        !W::default() >> (W::BITS - self.kind.bits())
    }
}

/// Is no other float equal to this one? Negative zero equals zero, and all NaNs are equal: of them only the ones that
/// PostgreSQL makes are taken.
#[inline(always)]
fn plain_float(kind: KeyKind, bits: u64) -> bool {
    // get_float4_nan and get_float8_nan: the C compiler's NAN.
    const NAN4: u64 = 0x7fc0_0000;
    const NAN8: u64 = 0x7ff8_0000_0000_0000;
    const INFINITY4: u64 = f32::INFINITY.to_bits() as u64;
    const INFINITY8: u64 = f64::INFINITY.to_bits();
    let (sign, infinity, nan) =
        if kind == KeyKind::Float4 { (1 << 31, INFINITY4, NAN4) } else { (1 << 63, INFINITY8, NAN8) };
    bits != sign && (bits & !sign <= infinity || bits == nan)
}
