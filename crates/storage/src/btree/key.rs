//! Encodes keys as integers whose order is the order of an index, and from which the values can be restored.
//!
//! ```text
//!   (a int4 NOT NULL, b int2 DESC)                        NULLS FIRST, as DESC has it by default
//!
//!   63                   49 48                        17  16   15              0
//!   0 ................... 0 | a, its sign bit inverted  | 1 ? | b, all bits but the sign bit inverted
//!                                                         └ 0: b is null, and the bits after this one are 0
//! ```
//!
//! Each column has a number of bits; the first column has the highest ones. Signed integers have their sign bit
//! inverted; descending columns have all bits inverted. A nullable column has one more bit in front. If all bits fit
//! into 64, the key's integer, its *word*, is a u64, or else a u128. Longer keys have no word: [`KeyShape::new`]
//! returns `None`.
//!
//! The tricky point is that a word must be the value's image and its rank at the same time. For some values that is
//! impossible: a float's negative zero equals zero but has other bits, and NaNs have several images. They have no word
//! ([`KeyShape::encode`] returns `None`), and the caller builds the index in another way. A nullable uuid column has no
//! bit left for NULL. NULL gets the word of the uuid at its end of the order, all zeros or all ones, and that uuid has
//! no word.

use super::entry::Word;
use super::{MAX_KEYS, TUPLE_HEADER, TUPLE_HEADER_WITH_NULLS};
use crate::tuple::{Attribute, max_align};

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
    /// float4; NaN is the largest value
    Float4,
    /// float8
    Float8,
    /// uuid
    Uuid,
    /// bool
    Bool,
    /// "char", compared as unsigned
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

    /// Whether an attribute stores its values in this way.
    pub(super) fn fits(self, attribute: &Attribute) -> bool {
        usize::try_from(attribute.len) == Ok(self.size())
            && usize::from(attribute.align) == self.align()
            && attribute.by_value == self.by_value()
    }

    /// Number of bits of a value in a word.
    const fn bits(self) -> u32 {
        match self {
            Self::Bool => 1,
            _ => self.size() as u32 * 8,
        }
    }

    /// Whether the highest bit is a sign.
    const fn signed(self) -> bool {
        matches!(self, Self::Int2 | Self::Int4 | Self::Int8)
    }

    /// Converts a value's stored bytes to a number.
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
    /// The column may have nulls. Costs a bit even if it has none.
    pub nullable: bool,
}

/// One value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyValue {
    /// NULL
    Null,
    /// The datum of a by-value type.
    Datum(u64),
    /// The bytes of a uuid.
    Uuid([u8; 16]),
}

/// The type of a shape's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// u64
    Narrow,
    /// u128
    Wide,
}

/// The encoding of a column.
#[derive(Clone, Copy, Debug)]
pub(super) struct EncodedColumn {
    pub(super) kind: KeyKind,
    descending: bool,
    nulls_first: bool,
    nullable: bool,
    /// Number of bits behind it.
    shift: u32,
    /// Bits to invert to convert a value to its rank, or a rank to its value, unless it is a float.
    flip: u128,
    /// Offset in the data of an index tuple without nulls.
    pub(super) offset: usize,
}

/// The shape of the keys of an index.
#[derive(Clone, Debug)]
pub struct KeyShape {
    columns: Box<[EncodedColumn]>,
    width: Width,
    /// The word that means NULL, for a column without a bit for it.
    null_word: Option<u128>,
    /// The bits for nulls, and their values in a key without nulls.
    null_bits: u128,
    no_nulls: u128,
    /// Length of an index tuple's data without nulls, in bytes.
    data_len: usize,
}

/// The longest index tuple without posting list and heap TID, in bytes.
pub const MAX_TUPLE: usize = 64;

impl KeyShape {
    /// Creates the shape of keys with these columns; `None` if they do not fit into a word.
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
            EncodedColumn { kind, descending, nulls_first, nullable, shift, flip, offset }
        });
        let columns = columns.collect();
        let longest = max_align(TUPLE_HEADER_WITH_NULLS + data_len);
        (longest <= MAX_TUPLE).then_some(Self { columns, width, null_word, null_bits, no_nulls, data_len })
    }

    /// The type of its words.
    #[must_use]
    pub fn width(&self) -> Width {
        self.width
    }

    /// Whether all keys have words. Some floats have none.
    #[must_use]
    pub fn has_all(&self) -> bool {
        !self.columns.iter().any(|column| matches!(column.kind, KeyKind::Float4 | KeyKind::Float8))
    }

    /// Number of columns.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Always false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Size of an index tuple without nulls, in bytes.
    #[must_use]
    pub fn tuple_size(&self) -> usize {
        max_align(TUPLE_HEADER + self.data_len)
    }

    #[inline(always)]
    pub(super) fn columns(&self) -> &[EncodedColumn] {
        &self.columns
    }

    /// The bits for nulls of a key without nulls.
    #[inline(always)]
    pub(super) fn no_nulls<W: Word>(&self) -> W {
        W::from_u128(self.no_nulls)
    }

    /// The only column, if it is an integer of this many bytes.
    #[inline(always)]
    pub(super) fn only_integer(&self, size: usize) -> Option<&EncodedColumn> {
        match &*self.columns {
            [only] if matches!(only.kind, KeyKind::Int4 | KeyKind::Oid | KeyKind::Int8) && only.kind.size() == size => {
                Some(only)
            }
            _ => None,
        }
    }

    /// Length of a tuple's data without nulls, in bytes.
    #[inline(always)]
    pub(super) fn data_len(&self) -> usize {
        self.data_len
    }

    /// Whether any column of this key is null.
    #[inline(always)]
    #[must_use]
    pub fn has_null<W: Word>(&self, key: W) -> bool {
        (key ^ W::from_u128(self.no_nulls)) & W::from_u128(self.null_bits) != W::default()
            || self.null_word.is_some_and(|null| key == W::from_u128(null))
    }

    /// Whether any column may be null.
    #[inline(always)]
    #[must_use]
    pub fn nullable(&self) -> bool {
        self.null_bits != 0 || self.null_word.is_some()
    }

    /// Makes the word of a key. `raw` returns the stored bytes of each column as a number. `None` if the key has no
    /// word: a null in a column that is not nullable, or a value without a word.
    #[inline(always)]
    pub(super) fn gather<W: Word>(&self, mut raw: impl FnMut(usize, &EncodedColumn) -> Option<Option<W>>) -> Option<W> {
        let mut word = W::default();
        for (i, column) in self.columns.iter().enumerate() {
            word = word | self.part(column, raw(i, column)?)?;
        }
        Some(word)
    }

    /// Returns the bits of a value at their position in the word; `None` if the value has none.
    #[inline(always)]
    pub(super) fn part<W: Word>(&self, column: &EncodedColumn, raw: Option<W>) -> Option<W> {
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

    /// Returns the word of a key; `None` if it has none, see the module.
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

    /// Returns a column of a key as a datum. Null if there is no such column.
    #[must_use]
    pub fn decode<W: Word>(&self, key: W, column: usize) -> KeyValue {
        let Some(column) = self.columns.get(column) else { return KeyValue::Null };
        let Some(raw) = self.raw(key, column) else { return KeyValue::Null };
        let low = raw.to_u64();
        match column.kind {
            KeyKind::Uuid => KeyValue::Uuid(raw.to_u128().to_be_bytes()),
            KeyKind::Bool | KeyKind::Oid | KeyKind::Int8 | KeyKind::Float8 => KeyValue::Datum(low),
            // Int32GetDatum and similar functions extend the sign, also for float4 and "char".
            KeyKind::Char => KeyValue::Datum(low as i8 as u64),
            KeyKind::Int2 => KeyValue::Datum(low as i16 as u64),
            KeyKind::Int4 | KeyKind::Float4 => KeyValue::Datum(low as i32 as u64),
        }
    }

    /// Returns a column's stored bytes as a number; `None` if it is null.
    #[inline(always)]
    pub(super) fn raw<W: Word>(&self, key: W, column: &EncodedColumn) -> Option<W> {
        if self.nullable() && self.is_null(key, column) {
            return None;
        }
        Some(column.restore(key))
    }

    fn is_null<W: Word>(&self, key: W, column: &EncodedColumn) -> bool {
        if column.nullable {
            let bit = key >> (column.shift + column.kind.bits()) & W::from_u64(1);
            return (bit == W::default()) == column.nulls_first;
        }
        self.null_word.is_some_and(|null| key == W::from_u128(null))
    }
}

impl EncodedColumn {
    #[inline(always)]
    fn null_bit<W: Word>(&self, one: bool) -> W {
        if one { W::from_u64(1) << (self.shift + self.kind.bits()) } else { W::default() }
    }

    /// Returns the rank of a value.
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

    /// Returns the value of this column in a key.
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

    /// Bits to invert to convert a value to its rank or back, unless it is a float.
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

/// Whether no other float equals this one. Negative zero equals zero, and all NaNs are equal: only the NaNs that
/// PostgreSQL makes are accepted.
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
