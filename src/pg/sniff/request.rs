//! What somebody wants to know of a file, and what he knows already.
//!
//! What he says is an option of COPY's, and is checked as one, by itself and with what was guessed besides.

use std::ffi::CString;

use pgrx::pg_sys;

use super::NAMES;
use crate::error::Result;
use crate::pg::copy_options::Draft;
use crate::pg::option_value::{Caller, Value, invalid, text};

/// Bytes that are read unless somebody says how many.
const USUAL_SAMPLE: u64 = 4 << 20;

/// How much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Amount {
    Bytes(u64),
    All,
}

/// What somebody wants to know, and what he knows.
#[derive(Debug, Clone)]
pub struct Request {
    caller: Caller,
    pub(super) given: Vec<(String, Vec<u8>)>,
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

    /// Take an option that says what the file is, or how much of it is to be read; false if it is none.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<bool> {
        if name == "sample" {
            self.amount = amount(&text(value.one(name)?))?;
            return Ok(true);
        }
        if !NAMES.contains(&name) {
            return Ok(false);
        }
        self.given.push((name.to_owned(), value.one(name)?.to_vec()));
        Ok(true)
    }

    pub(super) fn bytes_of(&self, name: &str) -> Option<&[u8]> {
        self.given.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_slice())
    }

    /// One character, or a complaint that is made later, when all is known.
    pub(super) fn one_byte(&self, name: &str) -> Option<u8> {
        self.bytes_of(name).and_then(|value| value.first().copied())
    }

    /// What is given, and what was guessed besides, as COPY would read it.
    pub(super) fn draft(&self) -> Result<Draft> {
        let mut draft = Draft::new(self.caller);
        for (name, value) in &self.given {
            draft.set(name, &Value::Text(value.clone()))?;
        }
        Ok(draft)
    }
}

/// `all`, or a number of bytes, with a unit if one likes. Guarded.
fn amount(value: &str) -> Result<Amount> {
    if value.eq_ignore_ascii_case("all") {
        return Ok(Amount::All);
    }
    let (mut bytes, mut hint) = (0, std::ptr::null());
    let string = CString::new(value).unwrap_or_default();
    let unit = pg_sys::GUC_UNIT_BYTE.cast_signed();
    // SAFETY: a guarded call with a string, which fills what it is given.
    let is_number = unsafe { pg_sys::parse_int(string.as_ptr(), &raw mut bytes, unit, &raw mut hint) };
    match u64::try_from(bytes) {
        Ok(bytes @ 1..) if is_number => Ok(Amount::Bytes(bytes)),
        _ => Err(invalid(format!("sample \"{value}\" not recognized"))
            .hint("Valid values are \"all\" and numbers of bytes, such as \"16MB\".")),
    }
}
