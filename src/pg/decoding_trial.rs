//! Native decoders on trial: made-up fields, and what the type's input function makes of each. Not in releases.
//!
//! A decoder may say nothing; then the input function is asked, and nothing can go wrong. What it does say must be the datum
//! that the input function returns, to the last byte, under whatever settings the session has. Fields are what the caller
//! gives, spliced and changed at random, but by a seed: so that millions are tried in seconds, this happens here and not in SQL.
//!
//! The function is not part of the extension; a test declares it (pg_test/t/012_made_up_values.t):
//!
//! ```text
//! CREATE FUNCTION decoding_trial(samples text[], type oid, typmod int4, seed int8, fields int8) RETURNS int8 …
//! ```

use std::ffi::CString;

use pg_bulk_format::arena::Arena;
use pg_bulk_format::convert::{Charset, Decoder};
use pgrx::memcxt::PgMemoryContexts;
use pgrx::pg_sys::PgTryBuilder;
use pgrx::{FromDatum, PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::column;
use crate::error::Error;

static VERSION_1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };

/// The record that the server asks for before it calls a function of version 1.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_finfo_bulk_decoding_trial() -> *const pg_sys::Pg_finfo_record {
    &raw const VERSION_1
}

/// How many fields the decoder was sure of. An error if one of them is something else to the input function.
///
/// # Safety
/// Called by the executor, with five arguments as above, none of them NULL.
#[unsafe(no_mangle)]
#[pg_guard]
pub unsafe extern "C-unwind" fn bulk_decoding_trial(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the caller vouches for the arguments.
    let (samples, oid, typmod, seed, fields) = unsafe {
        let argument = |index| (*(*fcinfo).args.as_ptr().add(index)).value;
        (
            Vec::<String>::from_datum(argument(0), false).unwrap_or_default(),
            pg_sys::Oid::from_datum(argument(1), false).unwrap_or(pg_sys::InvalidOid),
            i32::from_datum(argument(2), false).unwrap_or(-1),
            i64::from_datum(argument(3), false).unwrap_or(0),
            i64::from_datum(argument(4), false).unwrap_or(0),
        )
    };
    let Some(decoder) = Decoder::for_type(oid.to_u32(), typmod, &column::session(Charset::Utf8)) else {
        return pg_sys::Datum::from(-1i64);
    };
    let samples: Vec<Vec<char>> = samples.iter().map(|sample| sample.chars().collect()).collect();
    let random = &mut Random(seed.cast_unsigned());
    let mut arena = Arena::new();
    // SAFETY: guarded calls; the type has an input function.
    let input = unsafe { Input::new(oid, typmod) };
    let mut sure = 0i64;
    for number in 0..fields {
        let field = random.field(&samples);
        arena.reset();
        let Some(found) = decoder.decode(field.as_bytes(), &mut arena) else { continue };
        sure += 1;
        let datum = pg_sys::Datum::from(found);
        // SAFETY: values of this type; what they point to is there until the next one.
        let as_decoded = unsafe { input.bytes(datum) };
        let as_read = input.read(&field);
        if as_read.as_ref() != Ok(&as_decoded) {
            let as_read = as_read.map(|bytes| format!("{bytes:02x?}"));
            Error::new(Code::ERRCODE_DATA_EXCEPTION, format!("field {number}: {decoder:?} of {field:?}"))
                .detail(format!("decoded {as_decoded:02x?}, read {as_read:?}"))
                .raise();
        }
    }
    pg_sys::Datum::from(sure)
}

/// A type's input function, or the one that receives.
pub(super) struct Input {
    function: pg_sys::FmgrInfo,
    pub(super) typioparam: pg_sys::Oid,
    pub(super) typmod: i32,
    length: i16,
    by_value: bool,
    /// For what it makes of one field.
    memory: PgMemoryContexts,
}

impl Input {
    /// # Safety
    /// Guarded; a type that is there.
    unsafe fn new(oid: pg_sys::Oid, typmod: i32) -> Input {
        let (mut id, mut typioparam) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
        // SAFETY: a catalog lookup that fills what it is given.
        unsafe { pg_sys::getTypeInputInfo(oid, &raw mut id, &raw mut typioparam) };
        // SAFETY: its function.
        unsafe { Input::of(oid, typmod, id, typioparam) }
    }

    /// # Safety
    /// Guarded; a type that is there, and has a receive function.
    pub(super) unsafe fn received(oid: pg_sys::Oid, typmod: i32) -> Input {
        let (mut id, mut typioparam) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
        // SAFETY: a catalog lookup that fills what it is given.
        unsafe { pg_sys::getTypeBinaryInputInfo(oid, &raw mut id, &raw mut typioparam) };
        // SAFETY: its function.
        unsafe { Input::of(oid, typmod, id, typioparam) }
    }

    /// # Safety
    /// Guarded; a type that is there, and a function of it.
    unsafe fn of(oid: pg_sys::Oid, typmod: i32, id: pg_sys::Oid, typioparam: pg_sys::Oid) -> Input {
        let mut function = pg_sys::FmgrInfo::default();
        let (mut length, mut by_value) = (0, false);
        // SAFETY: catalog lookups that fill what they are given.
        unsafe {
            pg_sys::fmgr_info(id, &raw mut function);
            pg_sys::get_typlenbyval(oid, &raw mut length, &raw mut by_value);
        }
        Input { function, typioparam, typmod, length, by_value, memory: PgMemoryContexts::new("decoding trial") }
    }

    /// The bytes of a value. Those of one by value are what the server looks at.
    ///
    /// # Safety
    /// A value of this type.
    pub(super) unsafe fn bytes(&self, datum: pg_sys::Datum) -> Vec<u8> {
        let length = usize::try_from(self.length).ok();
        match length {
            Some(length) if self.by_value => {
                // As store_att_byval writes it; all of it must be as DatumGet… and …GetDatum leave it.
                (datum.value() as u64).to_ne_bytes().into_iter().take(length.max(8)).collect()
            }
            // SAFETY: the caller vouches for the value; a varlena says how long it is.
            _ => unsafe {
                let address = datum.cast_mut_ptr::<u8>();
                let length = length.unwrap_or_else(|| pgrx::varsize_any(address.cast()));
                std::slice::from_raw_parts(address, length).to_vec()
            },
        }
    }

    /// The function, for a call.
    pub(super) fn function(&self) -> *mut pg_sys::FmgrInfo {
        (&raw const self.function).cast_mut()
    }

    /// From now on memory is what goes with the next field. Returns what it was.
    ///
    /// # Safety
    /// Guarded; nothing is needed any more of what was made of the last one.
    pub(super) unsafe fn begin(&self) -> pg_sys::MemoryContext {
        // SAFETY: a context of ours, which nobody has put anything into but the one before.
        unsafe {
            pg_sys::MemoryContextReset(self.memory.value());
            pg_sys::MemoryContextSwitchTo(self.memory.value())
        }
    }

    /// What the function makes of a field, or says of it.
    fn read(&self, field: &str) -> Result<Vec<u8>, String> {
        let text = CString::new(field).map_err(|_| "a NUL".to_owned())?;
        // SAFETY: the function gets a string; what it returns is copied before it goes.
        let read = || unsafe {
            let before = self.begin();
            let text = text.as_ptr().cast_mut();
            let datum = pg_sys::InputFunctionCall(self.function(), text, self.typioparam, self.typmod);
            pg_sys::MemoryContextSwitchTo(before);
            Ok(self.bytes(datum))
        };
        // The transaction ends with the error that comes of it.
        PgTryBuilder::new(read).catch_others(|error| Err(format!("{error:?}"))).execute()
    }
}

/// SplitMix64.
pub(super) struct Random(pub(super) u64);

/// What changes are made of.
const CHARACTERS: &[char] = &[
    '0',
    '1',
    '2',
    '5',
    '9',
    '-',
    '+',
    '.',
    ',',
    ':',
    '/',
    'e',
    'E',
    'T',
    'Z',
    'x',
    'n',
    'a',
    'N',
    'f',
    ' ',
    ' ',
    '\t',
    '\n',
    '"',
    '\'',
    '\\',
    '{',
    '}',
    '[',
    ']',
    '(',
    ')',
    'ä',
    '€',
    '\u{1f600}',
    '\u{a0}',
    '\u{1}',
    '\u{7f}',
    '\u{b}',
];

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ x >> 31) % bound.max(1) as u64) as usize
    }

    pub(super) fn one<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let at = self.below(of.len());
        of.get(at).cloned()
    }

    /// A sample, or the beginning of one and the end of another, with some changes.
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
