//! Decodes values in the binary form of the types' send functions: mostly the stored bytes in network byte order.
//!
//! As with text, a decoder is sure or silent. Values that the type's receive function would reject or change are left
//! to that function. These include values of another size than the type's, and values out of the ranges of `date_recv`,
//! `time_recv` and `timestamp_recv`. Strings are verified here, because the bytes of the file were not verified before.
//! If strings must be converted, only ASCII ones are accepted, which have the same bytes in every encoding.

use super::{Datum, Decoder, oids, uuid, varlena};
use crate::arena::Arena;
use pg_bulk_text::fixed::is_plain;
use pg_bulk_text::json_text::Charset;
use pg_bulk_text::verify::utf8_valid_up_to;

/// Julian day of 2000-01-01. The tables of valid dates count Julian days (datatype/timestamp.h).
const EPOCH: i32 = 2_451_545;
/// `DATE_END_JULIAN`
const DATES_END: i32 = 2_147_483_494;
/// `USECS_PER_DAY`
const DAY: i64 = 86_400_000_000;
/// `MIN_TIMESTAMP`
const TIMESTAMPS_BEGIN: i64 = -211_813_488_000_000_000;
/// `END_TIMESTAMP`
const TIMESTAMPS_END: i64 = 9_223_371_331_200_000_000;

/// A decoder for values of one type in binary form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    kind: WireType,
    /// Strings of the file are UTF-8 and need no conversion.
    utf8: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WireType {
    Bool,
    Int2,
    /// Also float4, whose bits are copied.
    Int4,
    /// Also float8, whose bits are copied.
    Int8,
    Oid,
    Bytea,
    Uuid,
    Date,
    Time,
    Timestamp,
    /// text, varchar and bpchar, which have the decoder of their text form.
    Text(Decoder),
}

impl Wire {
    /// Returns the decoder for a type, if there is one. `charset`: characters of the server encoding; `utf8`: the file
    /// is UTF-8 and needs no conversion.
    #[must_use]
    pub fn for_type(type_oid: u32, typmod: i32, charset: Charset, utf8: bool) -> Option<Wire> {
        // With other typmods, values are rounded (AdjustTimeForTypmod, AdjustTimestampForTypmod).
        let is_exact = typmod == -1 || typmod == 6;
        let kind = match type_oid {
            oids::BOOL => WireType::Bool,
            oids::INT2 => WireType::Int2,
            oids::INT4 | oids::FLOAT4 => WireType::Int4,
            oids::INT8 | oids::FLOAT8 => WireType::Int8,
            oids::OID => WireType::Oid,
            oids::BYTEA => WireType::Bytea,
            oids::UUID => WireType::Uuid,
            oids::DATE => WireType::Date,
            oids::TIME if is_exact => WireType::Time,
            oids::TIMESTAMP | oids::TIMESTAMPTZ if is_exact => WireType::Timestamp,
            oids::TEXT | oids::VARCHAR | oids::BPCHAR => WireType::Text(Decoder::of_string(type_oid, typmod, charset)),
            _ => return None,
        };
        Some(Wire { kind, utf8 })
    }

    /// Returns the datum of a field, or `None` if only PostgreSQL's receive function can decide.
    #[inline]
    #[must_use]
    pub fn decode(&self, field: &[u8], arena: &mut Arena) -> Option<Datum> {
        match self.kind {
            WireType::Bool => one(field).map(|[byte]| Datum::from(byte != 0)),
            WireType::Int2 => one(field).map(|bytes| i16::from_be_bytes(bytes) as Datum),
            WireType::Int4 => one(field).map(|bytes| i32::from_be_bytes(bytes) as Datum),
            WireType::Int8 => one(field).map(|bytes| i64::from_be_bytes(bytes) as Datum),
            WireType::Oid => one(field).map(|bytes| Datum::from(u32::from_be_bytes(bytes))),
            WireType::Bytea => varlena::copy(field, arena),
            WireType::Uuid => uuid::stored(&one::<16>(field)?, arena),
            WireType::Date => {
                let days = i32::from_be_bytes(one(field)?);
                let valid = matches!(days, i32::MIN | i32::MAX) || (-EPOCH..DATES_END - EPOCH).contains(&days);
                valid.then_some(days as Datum)
            }
            WireType::Time => {
                let micros = i64::from_be_bytes(one(field)?);
                (0..=DAY).contains(&micros).then_some(micros as Datum)
            }
            WireType::Timestamp => {
                let micros = i64::from_be_bytes(one(field)?);
                let valid =
                    matches!(micros, i64::MIN | i64::MAX) || (TIMESTAMPS_BEGIN..TIMESTAMPS_END).contains(&micros);
                valid.then_some(micros as Datum)
            }
            _ if !(is_plain(field) || (self.utf8 && utf8_valid_up_to(field) == field.len())) => None,
            WireType::Text(decoder) => decoder.decode(field, arena),
        }
    }
}

/// Returns the bytes of a value that must have exactly N.
#[inline]
fn one<const N: usize>(field: &[u8]) -> Option<[u8; N]> {
    field.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::body;
    use super::*;

    fn decode(type_oid: u32, typmod: i32, field: &[u8]) -> Option<Datum> {
        Wire::for_type(type_oid, typmod, Charset::Utf8, true).unwrap().decode(field, &mut Arena::new())
    }

    #[test]
    fn numbers() {
        assert_eq!(decode(oids::BOOL, -1, b"\0"), Some(0));
        assert_eq!(decode(oids::BOOL, -1, b"\x80"), Some(1));
        assert_eq!(decode(oids::INT2, -1, b"\xff\xfe"), Some(-2i64 as Datum));
        assert_eq!(decode(oids::INT4, -1, b"\x80\0\0\0"), Some(i64::from(i32::MIN) as Datum));
        assert_eq!(decode(oids::INT8, -1, b"\0\0\0\0\0\0\x01\x02"), Some(258));
        assert_eq!(decode(oids::OID, -1, b"\xff\xff\xff\xff"), Some(0xffff_ffff));
        assert_eq!(decode(oids::FLOAT4, -1, &1.5f32.to_be_bytes()), Some(1.5f32.to_bits() as i32 as Datum));
        assert_eq!(decode(oids::FLOAT8, -1, &(-1.5f64).to_be_bytes()), Some((-1.5f64).to_bits()));
    }

    #[test]
    fn no_other_size() {
        for (type_oid, size) in [
            (oids::BOOL, 1),
            (oids::INT2, 2),
            (oids::INT4, 4),
            (oids::INT8, 8),
            (oids::OID, 4),
            (oids::FLOAT4, 4),
            (oids::FLOAT8, 8),
            (oids::UUID, 16),
            (oids::DATE, 4),
            (oids::TIME, 8),
            (oids::TIMESTAMP, 8),
            (oids::TIMESTAMPTZ, 8),
        ] {
            for length in 0..20 {
                let found = decode(type_oid, -1, &vec![0; length]);
                assert_eq!(found.is_some(), length == size, "{type_oid} {length}");
            }
        }
    }

    #[test]
    fn ranges() {
        let date = |days: i32| decode(oids::DATE, -1, &days.to_be_bytes());
        for (days, valid) in [
            (i32::MIN, true),
            (i32::MIN + 1, false),
            (-2_451_546, false),
            (-2_451_545, true),
            (2_145_031_948, true),
            (2_145_031_949, false),
            (i32::MAX - 1, false),
            (i32::MAX, true),
        ] {
            assert_eq!(date(days), valid.then_some(days as Datum), "{days}");
        }
        let time = |micros: i64| decode(oids::TIME, -1, &micros.to_be_bytes());
        assert_eq!([-1, 0, DAY, DAY + 1].map(|micros| time(micros).is_some()), [false, true, true, false]);
        for type_oid in [oids::TIMESTAMP, oids::TIMESTAMPTZ] {
            let found = |micros: i64| decode(type_oid, 6, &micros.to_be_bytes());
            for (micros, valid) in [
                (i64::MIN, true),
                (i64::MIN + 1, false),
                (TIMESTAMPS_BEGIN - 1, false),
                (TIMESTAMPS_BEGIN, true),
                (TIMESTAMPS_END - 1, true),
                (TIMESTAMPS_END, false),
                (i64::MAX - 1, false),
                (i64::MAX, true),
            ] {
                assert_eq!(found(micros), valid.then_some(micros as Datum), "{micros}");
            }
        }
        for type_oid in [oids::TIME, oids::TIMESTAMP, oids::TIMESTAMPTZ] {
            assert_eq!(Wire::for_type(type_oid, 3, Charset::Utf8, true), None);
        }
    }

    #[test]
    fn strings() {
        let arena = &mut Arena::new();
        let mut found = |type_oid, typmod, utf8, field: &str| {
            let wire = Wire::for_type(type_oid, typmod, Charset::Utf8, utf8).unwrap();
            wire.decode(field.as_bytes(), arena).map(body).map(|body| String::from_utf8(body).unwrap())
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(found(oids::TEXT, -1, true, "aä"), some("aä"));
        assert_eq!(found(oids::TEXT, -1, false, "aä"), None);
        assert_eq!(found(oids::TEXT, -1, false, "ab"), some("ab"));
        assert_eq!(found(oids::TEXT, -1, true, "a\0b"), None);
        assert_eq!(found(oids::VARCHAR, 6, true, "äö"), some("äö"));
        assert_eq!(found(oids::VARCHAR, 6, true, "abc"), None);
        assert_eq!(found(oids::BPCHAR, 7, true, "ä"), some("ä  "));
        assert_eq!(decode(oids::TEXT, -1, b"a\xff"), None);
    }

    proptest! {
        #[test]
        fn bytes_stay(field in prop::collection::vec(any::<u8>(), 0..40)) {
            let arena = &mut Arena::new();
            let wire = Wire::for_type(oids::BYTEA, -1, Charset::Utf8, true).unwrap();
            prop_assert_eq!(wire.decode(&field, arena).map(body), Some(field.clone()));
            let wire = Wire::for_type(oids::TEXT, -1, Charset::Utf8, true).unwrap();
            let valid = std::str::from_utf8(&field).is_ok() && !field.contains(&0);
            prop_assert_eq!(wire.decode(&field, arena).map(body), valid.then_some(field));
        }
    }
}
