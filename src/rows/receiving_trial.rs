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
use pg_bulk_types::convert::Wire;
use pgrx::FromDatum;

use super::decoding_trial::{Random, compare};
use super::trial_input::Input;
use crate::error::Result;
use crate::input::encoding::is_utf8;
use crate::server::function::{Call, sql_function};

sql_function!(pg_finfo_bulk_receiving_trial, bulk_receiving_trial, trial);

fn trial(call: &Call) -> Result<i64> {
    let (oid, typmod) = (call.argument(1)?.as_oid(), call.argument(2)?.small());
    let Some(decoder) = Wire::for_type(oid.to_u32(), typmod, Charset::Utf8, is_utf8(None)) else {
        return Ok(-1);
    };
    // SAFETY: an argument of type bytea[], which lasts as long as the call.
    let samples = unsafe { call.datum(0).and_then(|samples| pgrx::Array::<&[u8]>::from_datum(samples, false)) };
    let samples = samples.iter().flat_map(|samples| samples.iter().flatten());
    let samples: Vec<Vec<u8>> = samples.map(<[u8]>::to_vec).collect();
    let make = |random: &mut Random| random.bytes(&samples);
    let input = Input::received(oid, typmod);
    compare(call, make, |field, arena| decoder.decode(field, arena), &input, |field| input.receive(field))
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
