use super::testing::{SESSION, varlena_bytes};
use super::*;
use proptest::prelude::*;

const ALL: &[u32] = &[
    oids::BOOL,
    oids::JSON,
    oids::JSONB,
    oids::FLOAT4,
    oids::FLOAT8,
    oids::INET,
    oids::INTERVAL,
    oids::BIT,
    oids::VARBIT,
    oids::BYTEA,
    oids::UUID,
    oids::CHAR,
    oids::INT8,
    oids::INT2,
    oids::INT4,
    oids::TEXT,
    oids::OID,
    oids::BPCHAR,
    oids::VARCHAR,
    oids::DATE,
    oids::TIME,
    oids::TIMESTAMP,
    oids::TIMESTAMPTZ,
    oids::NUMERIC,
    oids::INT4RANGE,
    oids::INT8RANGE,
    1007,
    1009,
    1231,
];

#[test]
fn every_type_has_a_decoder() {
    for &oid in ALL {
        assert!(Decoder::for_type(oid, -1, &SESSION).is_some(), "{oid}");
    }
    // money, timetz, timetz[]
    for oid in [790, 1266, 1270, 0] {
        assert_eq!(Decoder::for_type(oid, -1, &SESSION), None, "{oid}");
    }
}

#[test]
fn typmods_are_read() {
    let of = |oid, typmod| Decoder::for_type(oid, typmod, &SESSION);
    let charset = Charset::Utf8;
    assert_eq!(of(oids::VARCHAR, -1), Some(Decoder::Text));
    assert_eq!(of(oids::VARCHAR, 14), Some(Decoder::Varchar { max_chars: 10, charset }));
    assert_eq!(of(oids::BPCHAR, 5), Some(Decoder::Bpchar { chars: 1, charset }));
    assert_eq!(of(oids::TIMESTAMP, -1), Some(Decoder::Timestamp { precision: 6 }));
    assert_eq!(of(oids::TIME, 0), Some(Decoder::Time { precision: 0 }));
    assert_eq!(of(oids::BIT, 3), Some(Decoder::Bit { length: Some(3) }));
    assert_eq!(of(oids::VARBIT, -1), Some(Decoder::Varbit { length: None }));
    // interval(3)
    assert_eq!(of(oids::INTERVAL, 0x7fff << 16 | 3), None);
    assert_eq!(Decoder::for_type(oids::INTERVAL, -1, &Session { interval_sql_standard: true, ..SESSION }), None);
    // numeric(3,-2)
    assert_eq!(of(oids::NUMERIC, (3 << 16 | (-2 & 0x7ff)) + 4), None);
}

#[test]
fn letters_that_can_be_names_of_zones_are_left_alone() {
    let letters = |zone_letters, utc| {
        let session = Session { zone_letters, utc, ..SESSION };
        let decoder = Decoder::for_type(oids::TIMESTAMPTZ, -1, &session).unwrap();
        decoder.decode(b"2000-01-01T00:00:00Z", &mut Arena::new()).is_some()
    };
    assert!(letters(false, false) && letters(true, true));
    assert!(!letters(true, false));
}

#[test]
fn decode_reaches_the_types() {
    let a = &mut Arena::new();
    let v = Decoder::for_type(oids::INT4, -1, &SESSION).unwrap().decode(b"-5", a);
    assert_eq!(v, Some(-5i64 as Datum));
    let v = Decoder::for_type(oids::NUMERIC, -1, &SESSION).unwrap().decode(b"1.5", a).unwrap();
    assert_eq!(varlena_bytes(v), [0x28, 0, 0, 0, 0x80, 0x80, 1, 0, 0x88, 0x13]);
}

proptest! {
    #[test]
    fn nothing_panics(field in prop::collection::vec(1..=255u8, 0..64), typmod in -1..70i32) {
        let a = &mut Arena::new();
        for &oid in ALL {
            if let Some(decoder) = Decoder::for_type(oid, typmod, &SESSION) {
                let _ = decoder.decode(&field, a);
            }
        }
    }
}
