//! Compares native decoders with the type's input function on generated fields. Not in releases.
//!
//! A decoder may return no value; then the input function is called, and no error is possible. A value that it does
//! return must equal the datum of the input function in every byte, under all settings of the session. The fields are
//! samples from the caller, spliced and changed at random, reproducibly by a seed. This happens here and not in SQL, so
//! that millions of fields are tried in seconds.
//!
//! The function is not part of the extension; a test declares it (pg_test/t/012_made_up_values.t):
//!
//! ```text
//! CREATE FUNCTION decoding_trial(samples text[], type oid, typmod int4, seed int8, fields int8) RETURNS int8 …
//! ```

use pg_bulk_text::json_text::Charset;
use pg_bulk_types::arena::Arena;
use pg_bulk_types::convert::Decoder;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::column;
use super::trial_input::Input;
use crate::error::{Error, Result};
use crate::server::function::{Call, sql_function};

sql_function!(pg_finfo_bulk_decoding_trial, bulk_decoding_trial, trial);

fn trial(call: &Call) -> Result<i64> {
    let (oid, typmod) = (call.argument(1)?.as_oid(), call.argument(2)?.small());
    let Some(decoder) = Decoder::for_type(oid.to_u32(), typmod, &column::session(Charset::Utf8)) else {
        return Ok(-1);
    };
    let samples = call.argument(0)?.into_texts();
    let samples: Vec<Vec<char>> = samples.iter().map(|sample| sample.to_string_lossy().chars().collect()).collect();
    let make = |random: &mut Random| random.field(&samples).into_bytes();
    let input = Input::new(oid, typmod);
    compare(call, make, |field, arena| decoder.decode(field, arena), &input, |field| input.read(field))
}

/// Returns the number of fields that the decoder decoded. Raises an error if the server's function returns another value
/// for one of them.
pub fn compare(
    call: &Call,
    make: impl Fn(&mut Random) -> Vec<u8>,
    decode: impl Fn(&[u8], &mut Arena) -> Option<u64>,
    input: &Input,
    read: impl Fn(&[u8]) -> std::result::Result<Vec<u8>, String>,
) -> Result<i64> {
    let random = &mut Random(call.argument(3)?.number().cast_unsigned());
    let mut arena = Arena::new();
    let mut sure = 0i64;
    for number in 0..call.argument(4)?.number() {
        let field = make(random);
        arena.reset();
        let Some(found) = decode(&field, &mut arena) else { continue };
        sure += 1;
        // SAFETY: a value of this type; the memory that it points to is valid until the next one.
        let as_decoded = unsafe { input.bytes(pg_sys::Datum::from(found as usize)) };
        let as_read = read(&field);
        if as_read.as_ref() != Ok(&as_decoded) {
            let as_read = as_read.map(|bytes| format!("{bytes:02x?}"));
            let field = field.escape_ascii();
            Error::new(Code::ERRCODE_DATA_EXCEPTION, format!("field {number}: \"{field}\""))
                .detail(format!("decoded {as_decoded:02x?}, read {as_read:?}"))
                .raise();
        }
    }
    Ok(sure)
}

/// SplitMix64.
pub struct Random(pub u64);

/// Characters for the changes.
const CHARACTERS: &[char] = &[
    '0', '1', '2', '5', '9', '-', '+', '.', ',', ':', '/', 'e', 'E', 'T', 'Z', 'x', 'n', 'a', 'N', 'f', ' ', ' ', '\t',
    '\n', '"', '\'', '\\', '{', '}', '[', ']', '(', ')', 'ä', '€', '\u{1f600}', '\u{a0}', '\u{1}', '\u{7f}', '\u{b}',
];

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ x >> 31) % bound.max(1) as u64) as usize
    }

    pub fn one<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let at = self.below(of.len());
        of.get(at).cloned()
    }

    /// Returns a sample, or the beginning of one and the end of another, with some changes.
    fn field(&mut self, samples: &[Vec<char>]) -> String {
        let mut field = self.one(samples).unwrap_or_default();
        if self.below(4) == 0 {
            let other = self.one(samples).unwrap_or_default();
            let cut = self.below(field.len() + 1);
            field.truncate(cut);
            let from = self.below(other.len() + 1);
            field.extend(other.iter().skip(from));
        }
        for _ in 0..self.below(4) {
            let (at, what) = (self.below(field.len() + 1), self.below(6));
            let other = self.below(field.len() + 1);
            let character = self.one(CHARACTERS).unwrap_or(' ');
            let digit = char::from(b'0' + self.below(10) as u8);
            match (what, field.get(at).copied()) {
                (0, Some(_)) => drop(field.remove(at)),
                (1, Some(_)) => field.iter_mut().skip(at).take(1).for_each(|one| *one = character),
                (2, Some(one)) if one.is_ascii_digit() => {
                    field.iter_mut().skip(at).take(1).for_each(|one| *one = digit)
                }
                (3, Some(_)) => {
                    let (from, to) = (at.min(other), at.max(other));
                    let again: Vec<char> = field.iter().skip(from).take(to - from).copied().collect();
                    drop(field.splice(from..from, again));
                }
                (4, Some(_)) => field.truncate(at),
                _ => field.insert(at, character),
            }
        }
        field.into_iter().collect()
    }
}
