//! Decoders: convert the bytes of fields to datums, for the most frequent types.
//!
//! Every decoder is *sure or silent*: it returns exactly the datum that PostgreSQL's input function would return, or
//! `None`. After `None` the caller calls the input function, which returns its value or raises its error. So a decoder
//! raises no errors. It may support any subset of the values but must never be wrong.
//!
//! [`Decoder::for_type`] is called once per column and [`Decoder::decode`] once per field. The former stores the
//! settings of the session (encoding, TimeZone, IntervalStyle) in the decoder, so a decoder must not outlive a change
//! of those settings. By-reference values live in the [`Arena`] until it is reset. All values have the layout of a
//! 64-bit little-endian server.

mod array;
mod bit;
mod date;
mod digits;
mod float;
mod inet;
mod integer;
mod interval;
#[cfg(test)]
#[path = "../../text/src/json_text/cases.rs"]
mod json_cases;
#[cfg(test)]
mod json_tests;
mod jsonb;
mod numeric;
mod oids;
mod range;
mod text;
mod time;
mod timestamp;
mod uuid;
pub(crate) mod varlena;
mod wire;
pub(crate) mod words;

use crate::arena::Arena;
pub use numeric::NumericTypmod;
use pg_bulk_text::json_text::Charset;
pub use varlena::copy_short;
pub use wire::Wire;
use words::Short;

/// A by-value datum, or the address of a by-reference one in the arena it was built in.
pub type Datum = u64;

const _: () =
    assert!(cfg!(target_endian = "little") && size_of::<usize>() == 8, "datums are laid out for 64-bit little endian");

/// Settings of the session that decoders depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Characters of the server encoding.
    pub charset: Charset,
    /// The letters T and Z may be names of time zones in the session's TimeZone, as is possible from PostgreSQL 18 on.
    pub zone_letters: bool,
    /// TimeZone is exactly UTC or GMT, without an offset.
    pub utc: bool,
    /// IntervalStyle is sql_standard, which changes the meaning of a leading sign.
    pub interval_sql_standard: bool,
}

/// A decoder for values of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decoder {
    /// bool
    Bool,
    /// float4
    Float4,
    /// float8
    Float8,
    /// json
    Json,
    /// jsonb
    Jsonb,
    /// inet
    Inet,
    /// interval
    Interval,
    /// bit
    Bit {
        /// Number of bits, if declared.
        length: Option<usize>,
    },
    /// varbit
    Varbit {
        /// The most bits, if declared.
        length: Option<usize>,
    },
    /// int2
    Int2,
    /// int4
    Int4,
    /// int8
    Int8,
    /// oid
    Oid,
    /// numeric
    Numeric {
        /// Precision and scale, if declared.
        typmod: Option<NumericTypmod>,
    },
    /// text, and varchar and bpchar without a length
    Text,
    /// varchar(n)
    Varchar {
        /// n
        max_chars: usize,
        /// Characters of the server encoding.
        charset: Charset,
    },
    /// bpchar(n)
    Bpchar {
        /// n
        chars: usize,
        /// Characters of the server encoding.
        charset: Charset,
    },
    /// "char"
    Char,
    /// Arrays of some types.
    Array {
        /// The element type.
        element: u32,
        /// The typmod of the elements.
        typmod: i32,
        /// The settings for their decoder.
        session: Session,
    },
    /// int4range
    Int4Range,
    /// int8range
    Int8Range,
    /// bytea
    Bytea,
    /// uuid
    Uuid,
    /// date
    Date,
    /// time
    Time {
        /// Number of fractional digits kept.
        precision: usize,
    },
    /// timestamp
    Timestamp {
        /// Number of fractional digits kept.
        precision: usize,
    },
    /// timestamptz
    Timestamptz {
        /// Number of fractional digits kept.
        precision: usize,
        /// TimeZone is UTC.
        utc: bool,
        /// The letters T and Z cannot be time zones of the session.
        letters: bool,
    },
}

impl Decoder {
    /// Returns the decoder for a type, if there is one. `type_oid` and `typmod` are as in pg_attribute. For other
    /// types, PostgreSQL's input function converts all values.
    #[must_use]
    pub fn for_type(type_oid: u32, typmod: i32, session: &Session) -> Option<Decoder> {
        let bits = usize::try_from(typmod).ok().filter(|&t| t > 0);
        let precision = time::precision(typmod);
        Some(match type_oid {
            oids::BOOL => Decoder::Bool,
            oids::FLOAT4 => Decoder::Float4,
            oids::FLOAT8 => Decoder::Float8,
            oids::JSON => Decoder::Json,
            oids::JSONB => Decoder::Jsonb,
            oids::INET => Decoder::Inet,
            oids::INTERVAL if typmod == -1 && !session.interval_sql_standard => Decoder::Interval,
            oids::BIT => Decoder::Bit { length: bits },
            oids::VARBIT => Decoder::Varbit { length: bits },
            oids::INT2 => Decoder::Int2,
            oids::INT4 => Decoder::Int4,
            oids::INT8 => Decoder::Int8,
            oids::OID => Decoder::Oid,
            oids::NUMERIC => Decoder::Numeric { typmod: NumericTypmod::decode(typmod)? },
            oids::TEXT | oids::VARCHAR | oids::BPCHAR => Decoder::of_string(type_oid, typmod, session.charset),
            oids::CHAR => Decoder::Char,
            oids::BYTEA => Decoder::Bytea,
            oids::UUID => Decoder::Uuid,
            oids::DATE => Decoder::Date,
            oids::TIME => Decoder::Time { precision },
            oids::TIMESTAMP => Decoder::Timestamp { precision },
            oids::TIMESTAMPTZ => {
                let letters = session.utc || !session.zone_letters;
                Decoder::Timestamptz { precision, utc: session.utc, letters }
            }
            oids::INT4RANGE => Decoder::Int4Range,
            oids::INT8RANGE => Decoder::Int8Range,
            _ => {
                let &(_, element) = oids::ARRAYS.iter().find(|&&(array, _)| array == type_oid)?;
                Decoder::for_type(element, typmod, session)?;
                Decoder::Array { element, typmod, session: *session }
            }
        })
    }

    /// Returns the decoder for text, varchar or bpchar.
    fn of_string(type_oid: u32, typmod: i32, charset: Charset) -> Decoder {
        // The typmod of varchar and bpchar includes the varlena header; a smaller value means no length.
        let length = usize::try_from(typmod).ok().and_then(|t| t.checked_sub(varlena::HEADER));
        match (type_oid, length) {
            (oids::VARCHAR, Some(max_chars)) => Decoder::Varchar { max_chars, charset },
            (oids::BPCHAR, Some(chars)) => Decoder::Bpchar { chars, charset },
            _ => Decoder::Text,
        }
    }

    /// Returns the datum of a field, or `None` if only PostgreSQL's input function can decide. `field`: its bytes after
    /// unescaping, valid in the server encoding, without NUL bytes, and not SQL's NULL.
    #[inline]
    #[must_use]
    pub fn decode(&self, field: &[u8], arena: &mut Arena) -> Option<Datum> {
        let mut one = One { field, arena, datum: None };
        self.decode_all(&mut one);
        one.datum
    }

    /// Whether a value is the bytes of its field behind a header.
    pub(crate) fn is_bytes(&self) -> bool {
        matches!(self, Decoder::Text | Decoder::Varchar { .. } | Decoder::Bpchar { .. })
    }

    /// Minimum size of a value in bytes, even for a short field.
    pub(crate) fn least_size(&self) -> usize {
        match *self {
            Decoder::Bpchar { chars, .. } => chars,
            _ => 0,
        }
    }

    /// Decodes many fields. The decoder is selected once for all of them.
    #[inline(always)]
    pub(crate) fn decode_all(&self, fields: &mut impl Fields) {
        match *self {
            Decoder::Bool => fields.decode(|field, _| bit::bool(field)),
            Decoder::Float4 => fields.decode(|field, _| float::float4(field)),
            Decoder::Float8 => fields.decode(|field, _| float::float8(field)),
            Decoder::Json => fields.decode(text::json),
            Decoder::Jsonb => fields.decode(jsonb::jsonb),
            Decoder::Inet => fields.decode(inet::inet),
            Decoder::Interval => fields.decode(interval::interval),
            Decoder::Bit { length } => fields.decode(|field, arena| bit::bit(field, length, arena)),
            Decoder::Varbit { length } => fields.decode(|field, arena| bit::varbit(field, length, arena)),
            Decoder::Int4 => {
                fields.decode_words(&words::Integer::<4>, |field, _| integer::int4(field));
            }
            Decoder::Int8 => {
                fields.decode_words(&words::Integer::<8>, |field, _| integer::int8(field));
            }
            Decoder::Int2 => {
                fields.decode_words(&words::Integer::<2>, |field, _| integer::int2(field));
            }
            Decoder::Oid => fields.decode(|field, _| integer::oid(field)),
            Decoder::Numeric { typmod } => {
                fields
                    .decode_words(&words::Numeric::new(typmod), |field, arena| numeric::numeric(field, typmod, arena));
            }
            Decoder::Text => fields.decode_bytes(|_| true, varlena::copy),
            Decoder::Varchar { max_chars, charset } => {
                fields.decode_bytes(
                    |field| text::fits(field, max_chars, charset),
                    |field, arena| text::varchar(field, max_chars, charset, arena),
                );
            }
            Decoder::Bpchar { chars, charset } => {
                fields.decode_bytes(
                    |field| text::fills(field, chars, charset),
                    |field, arena| text::bpchar(field, chars, charset, arena),
                );
            }
            Decoder::Char => fields.decode(|field, _| text::char(field)),
            Decoder::Array { element, typmod, session } => {
                let decoder = Decoder::for_type(element, typmod, &session);
                fields.decode(|field, arena| array::array(field, element, decoder?, arena));
            }
            Decoder::Int4Range => fields.decode(range::int4range),
            Decoder::Int8Range => fields.decode(range::int8range),
            Decoder::Bytea => fields.decode(text::bytea),
            Decoder::Uuid => fields.decode(uuid::uuid),
            Decoder::Date => fields.decode(|field, _| date::date(field)),
            Decoder::Time { precision } => fields.decode(|field, _| time::time(field, precision)),
            Decoder::Timestamp { precision } => fields.decode(|field, _| timestamp::timestamp(field, precision)),
            Decoder::Timestamptz { precision, utc, letters } => {
                fields.decode(|field, _| timestamp::timestamptz(field, precision, utc, letters));
            }
        }
    }
}

/// Fields of one column.
pub(crate) trait Fields {
    /// Calls `decode` for each field.
    fn decode(&mut self, decode: impl Fn(&[u8], &mut Arena) -> Option<Datum>);

    /// As [`Fields::decode`], for types whose fields are mostly short enough for `_short`.
    #[inline(always)]
    fn decode_words(&mut self, _short: &impl Short, decode: impl Fn(&[u8], &mut Arena) -> Option<Datum>) {
        self.decode(decode);
    }

    /// As [`Fields::decode`], for varlena types whose value is the bytes of the field if `fits` returns true.
    #[inline(always)]
    fn decode_bytes(&mut self, _fits: impl Fn(&[u8]) -> bool, decode: impl Fn(&[u8], &mut Arena) -> Option<Datum>) {
        self.decode(decode);
    }
}

/// A single field.
struct One<'a> {
    field: &'a [u8],
    arena: &'a mut Arena,
    datum: Option<Datum>,
}

impl Fields for One<'_> {
    #[inline(always)]
    fn decode(&mut self, decode: impl Fn(&[u8], &mut Arena) -> Option<Datum>) {
        self.datum = decode(self.field, self.arena);
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
