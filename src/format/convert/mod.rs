//! Field bytes to datums, for the types that make up most files.
//!
//! Every decoder is *sure or silent*: it returns exactly what PostgreSQL's own input function would, or `None`,
//! and then the caller asks that function: same answer, same error. So a decoder never raises, never guesses, and
//! may be as narrow as it likes; it must only never be wrong.
//!
//! [`Decoder::for_type`] is asked once per column and [`Decoder::decode`] once per field. What depends on the
//! session (encoding, TimeZone, IntervalStyle) is settled in the former and carried in the decoder, so a decoder must
//! not outlive a change of those settings. By-reference values live in the [`Arena`] until it is reset. Everything is
//! laid out for a 64-bit little-endian server.

mod bit;
mod boolean;
mod bytea;
mod date;
mod digits;
mod float;
mod inet;
mod integer;
mod interval;
mod json;
mod json_text;
mod jsonb;
mod numeric;
mod oids;
mod text;
mod time;
mod timestamp;
mod uuid;
mod varlena;

use crate::arena::Arena;
pub use numeric::NumericTypmod;

/// A by-value datum, or the address of a by-reference one in the arena it was built in.
pub type Datum = u64;

const _: () =
    assert!(cfg!(target_endian = "little") && size_of::<usize>() == 8, "datums are laid out for 64-bit little endian");

/// What is known of the server encoding's characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// UTF-8.
    Utf8,
    /// One byte, one character (also SQL_ASCII).
    SingleByte,
    /// Any other; ASCII bytes stand for themselves only, as in every server encoding.
    MultiByte,
}

/// What decoders need to know of the session.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// Of the server encoding.
    pub charset: Charset,
    /// Major version of the server, 15 to 18.
    pub server_major: u32,
    /// TimeZone is exactly UTC or GMT, without an offset.
    pub utc: bool,
    /// IntervalStyle is sql_standard, which reads a leading sign differently.
    pub interval_sql_standard: bool,
}

/// How to build values of one type.
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
        /// Bits, if declared.
        length: Option<usize>,
    },
    /// varbit
    Varbit {
        /// Bits at most, if declared.
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
        /// Of the server encoding.
        charset: Charset,
    },
    /// bpchar(n)
    Bpchar {
        /// n
        chars: usize,
        /// Of the server encoding.
        charset: Charset,
    },
    /// "char"
    Char,
    /// bytea
    Bytea,
    /// uuid
    Uuid,
    /// date
    Date,
    /// time
    Time {
        /// Fractional digits kept.
        precision: usize,
    },
    /// timestamp
    Timestamp {
        /// Fractional digits kept.
        precision: usize,
    },
    /// timestamptz
    Timestamptz {
        /// Fractional digits kept.
        precision: usize,
        /// TimeZone is UTC.
        utc: bool,
        /// The letters T and Z cannot be the session's own names of zones.
        letters: bool,
    },
}

impl Decoder {
    /// The decoder for a type, if there is one; `type_oid` and `typmod` as in pg_attribute. Without one PostgreSQL's
    /// own input function does it all.
    #[must_use]
    pub fn for_type(type_oid: u32, typmod: i32, session: &Session) -> Option<Decoder> {
        let charset = session.charset;
        // varchar and bpchar count the varlena header in; anything below it is no length at all.
        let length = usize::try_from(typmod).ok().and_then(|t| t.checked_sub(varlena::HEADER));
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
            oids::TEXT => Decoder::Text,
            oids::VARCHAR => length.map_or(Decoder::Text, |max_chars| Decoder::Varchar { max_chars, charset }),
            oids::BPCHAR => length.map_or(Decoder::Text, |chars| Decoder::Bpchar { chars, charset }),
            oids::CHAR => Decoder::Char,
            oids::BYTEA => Decoder::Bytea,
            oids::UUID => Decoder::Uuid,
            oids::DATE => Decoder::Date,
            oids::TIME => Decoder::Time { precision },
            oids::TIMESTAMP => Decoder::Timestamp { precision },
            oids::TIMESTAMPTZ => {
                let letters = session.utc || session.server_major < 18;
                Decoder::Timestamptz { precision, utc: session.utc, letters }
            }
            _ => return None,
        })
    }

    /// The datum of a field, if this is sure what PostgreSQL would make of it. `field`: its bytes after unescaping,
    /// valid in the server encoding, without NUL bytes, and not SQL's NULL.
    #[inline]
    #[must_use]
    pub fn decode(&self, field: &[u8], arena: &mut Arena) -> Option<Datum> {
        match *self {
            Decoder::Bool => boolean::bool(field),
            Decoder::Float4 => float::float4(field),
            Decoder::Float8 => float::float8(field),
            Decoder::Json => json::json(field, arena),
            Decoder::Jsonb => jsonb::jsonb(field, arena),
            Decoder::Inet => inet::inet(field, arena),
            Decoder::Interval => interval::interval(field, arena),
            Decoder::Bit { length } => bit::bit(field, length, arena),
            Decoder::Varbit { length } => bit::varbit(field, length, arena),
            Decoder::Int4 => integer::int4(field),
            Decoder::Int8 => integer::int8(field),
            Decoder::Int2 => integer::int2(field),
            Decoder::Oid => integer::oid(field),
            Decoder::Numeric { typmod } => numeric::numeric(field, typmod, arena),
            Decoder::Text => varlena::copy(field, arena),
            Decoder::Varchar { max_chars, charset } => text::varchar(field, max_chars, charset, arena),
            Decoder::Bpchar { chars, charset } => text::bpchar(field, chars, charset, arena),
            Decoder::Char => text::char(field),
            Decoder::Bytea => bytea::bytea(field, arena),
            Decoder::Uuid => uuid::uuid(field, arena),
            Decoder::Date => date::date(field),
            Decoder::Time { precision } => time::time(field, precision),
            Decoder::Timestamp { precision } => timestamp::timestamp(field, precision),
            Decoder::Timestamptz { precision, utc, letters } => timestamp::timestamptz(field, precision, utc, letters),
        }
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
