//! The options of `bulk_sniff`: what the caller knows of the file, and the size of the sample.
//!
//! Each option of COPY is checked as COPY would, by itself and together with the guessed ones.

use std::ffi::CStr;

use pgrx::pg_sys;

use super::NAMES;
use super::proposal::c_string;
use crate::error::Result;
use crate::rows::copy_options::Draft;
use crate::rows::copy_options::field_options::strings;
use crate::server::call::calls;
use crate::server::option_value::{Caller, OptionValue, invalid, text};

/// Bytes of the sample by default.
const USUAL_SAMPLE: u64 = 4 << 20;

/// Size of the sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Amount {
    Bytes(u64),
    All,
}

/// The options of one call.
#[derive(Debug, Clone)]
pub struct Request {
    caller: Caller,
    pub(super) given: Vec<(String, OptionValue)>,
    pub(super) amount: Amount,
}

impl Request {
    pub fn new(caller: Caller) -> Request {
        Request { caller, given: Vec::new(), amount: Amount::Bytes(USUAL_SAMPLE) }
    }

    /// A request that reads only this many bytes at the beginning of the file.
    pub fn of_start(caller: Caller, bytes: u64) -> Request {
        Request { amount: Amount::Bytes(bytes), ..Request::new(caller) }
    }

    /// Reads an option that describes the file or the sample; false if the name is unknown.
    pub fn set(&mut self, name: &str, value: &OptionValue) -> Result<bool> {
        if name == "sample" {
            self.amount = amount(&text(value.one(name)?))?;
            return Ok(true);
        }
        if !NAMES.contains(&name) {
            return Ok(false);
        }
        let value = match name {
            "null_if" => {
                OptionValue::List(strings(self.caller, name, value)?.iter().map(|word| c_string(word)).collect())
            }
            _ => OptionValue::Text(value.one(name)?.to_vec()),
        };
        self.given.push((name.to_owned(), value));
        Ok(true)
    }

    pub(super) fn bytes_of(&self, name: &str) -> Option<&[u8]> {
        self.given.iter().find(|(given, _)| given == name).and_then(|(_, value)| value.one(name).ok())
    }

    /// The first byte of an option's value. Its validity is checked later, with all options.
    pub(super) fn one_byte(&self, name: &str) -> Option<u8> {
        self.bytes_of(name).and_then(|value| value.first().copied())
    }

    /// The given options as COPY's, to which guesses are added.
    pub(super) fn draft(&self) -> Result<Draft> {
        let mut draft = Draft::new(self.caller);
        for (name, value) in &self.given {
            draft.set(name, value)?;
        }
        Ok(draft)
    }
}

// SAFETY: a string and a variable. No hint is asked for.
calls! {
    fn parse_bytes(value: &CStr, bytes: &mut i32) -> bool
        = parse_int(value, bytes, (pg_sys::GUC_UNIT_BYTE.cast_signed()), (std::ptr::null_mut()));
}

/// Read the size of the sample: `all`, or a number of bytes, with an optional unit. Guarded.
fn amount(value: &str) -> Result<Amount> {
    if value.eq_ignore_ascii_case("all") {
        return Ok(Amount::All);
    }
    let mut bytes = 0;
    let is_number = parse_bytes(&c_string(value.as_bytes()), &mut bytes);
    match u64::try_from(bytes) {
        Ok(bytes @ 1..) if is_number => Ok(Amount::Bytes(bytes)),
        _ => Err(invalid(format!("sample \"{value}\" not recognized"))
            .hint("Valid values are \"all\" and numbers of bytes, such as \"16MB\".")),
    }
}
