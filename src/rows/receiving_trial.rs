//! A test of native decoders for binary fields: made-up bytes, compared with the type's receive function. Not in
//! release builds.
//!
//! This is [`super::decoding_trial`] for [`Wire`]. If a decoder returns a datum, the receive function must return the
//! same bytes and must have read the whole field. Strings are in the client_encoding of the session.
//!
//! The function is not part of the extension; a test declares it (pg_test/t/012_made_up_values.t):
//!
//! ```text
//! CREATE FUNCTION receiving_trial(samples bytea[], type oid, typmod int4, seed int8, fields int8) RETURNS int8 …
//! ```

use pg_bulk_text::json_text::Charset;
use pg_bulk_types::arena::Arena;
use pg_bulk_types::convert::Wire;
use pgrx::{FromDatum, PgSqlErrorCode as Code, pg_sys};

use super::decoding_trial::Random;
use super::trial_input::Input;
use crate::error::{Error, Result};
use crate::server::function::{Call, sql_function};

sql_function!(pg_finfo_bulk_receiving_trial, bulk_receiving_trial, trial);

/// Return the number of fields that the decoder converted. An error if the receive function disagrees on one of them.
fn trial(call: &Call) -> Result<i64> {
    let number = |index| call.argument(index).map(|value| value.number());
    let (oid, typmod) = (call.argument(1)?.as_oid(), call.argument(2)?.small());
    let (seed, fields) = (number(3)?, number(4)?);
    // SAFETY: an argument of type bytea[], which lasts as long as the call.
    let samples = unsafe { call.datum(0).and_then(|samples| pgrx::Array::<&[u8]>::from_datum(samples, false)) };
    let samples = samples.iter().flat_map(|samples| samples.iter().flatten());
    let samples: Vec<Vec<u8>> = samples.map(<[u8]>::to_vec).collect();
    // SAFETY: reads a variable of this process.
    let utf8 = unsafe { pg_sys::pg_get_client_encoding() } == pg_sys::pg_enc::PG_UTF8 as i32;
    let Some(decoder) = Wire::for_type(oid.to_u32(), typmod, Charset::Utf8, utf8) else {
        return Ok(-1);
    };
    let random = &mut Random(seed.cast_unsigned());
    let mut arena = Arena::new();
    let input = Input::received(oid, typmod);
    let mut sure = 0i64;
    for number in 0..fields {
        let field = random.bytes(&samples);
        arena.reset();
        let Some(found) = decoder.decode(&field, &mut arena) else { continue };
        sure += 1;
        let datum = pg_sys::Datum::from(found as usize);
        // SAFETY: values of this type, valid until the next one is made.
        let as_decoded = unsafe { input.bytes(datum) };
        let as_received = input.receive(&field);
        if as_received.as_ref() != Ok(&as_decoded) {
            let as_received = as_received.map(|bytes| format!("{bytes:02x?}"));
            Error::new(Code::ERRCODE_DATA_EXCEPTION, format!("field {number}: {decoder:?} of {field:02x?}"))
                .detail(format!("decoded {as_decoded:02x?}, received {as_received:?}"))
                .raise();
        }
    }
    Ok(sure)
}

impl Random {
    /// A sample, or the beginning of one and the end of another, with some changes.
    fn bytes(&mut self, samples: &[Vec<u8>]) -> Vec<u8> {
        const BYTES: &[u8] = &[0, 1, 2, 0x20, 0x61, 0x7f, 0x80, 0xc3, 0xa4, 0xe2, 0x82, 0xed, 0xf4, 0xfe, 0xff];
        let mut field = self.one(samples).unwrap_or_default();
        if self.below(4) == 0 {
            let other = self.one(samples).unwrap_or_default();
            let cut = self.below(field.len().min(other.len()) + 1);
            field.truncate(cut);
            field.extend(other.iter().skip(cut));
        }
        for _ in 0..self.below(3) {
            let (at, what) = (self.below(field.len() + 1), self.below(8));
            let any = self.below(256) as u8;
            let byte = if self.below(2) == 0 { any } else { self.one(BYTES).unwrap_or(0) };
            match what {
                0 if at < field.len() => drop(field.remove(at)),
                1 => field.insert(at, byte),
                _ => field.iter_mut().skip(at).take(1).for_each(|one| *one = byte),
            }
        }
        field
    }
}
