//! Options that say which member of an object of JSON a column is.
//!
//! A foreign table's column has them as its own options, a function's is an object among its `columns`. They are collected
//! along with those of other formats ([`super::slice_options`]), and [`keys`] makes sense of them together.

use super::copy_options::{CopyOptions, Shape};
use super::option_value::{Caller, invalid};
use crate::error::Result;

/// What a column takes of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// The value of this key, in the server's encoding.
    Named(Vec<u8>),
    /// All members that no column takes.
    Rest,
}

/// Options of a column that are being collected.
#[derive(Debug, Clone, Default)]
pub struct KeyDraft {
    /// One that was given.
    given: Option<&'static str>,
    key: Option<Vec<u8>>,
    rest: bool,
}

/// The names that a [`KeyDraft`] knows.
pub const NAMES: &[&str] = &["key", "rest"];

impl KeyDraft {
    /// Take an option; false if it is none of these.
    pub fn set(&mut self, name: &str, value: &[u8]) -> Result<bool> {
        let Some(known) = NAMES.iter().find(|known| **known == name) else { return Ok(false) };
        self.given.get_or_insert(known);
        match name {
            "key" => self.key = Some(value.to_vec()),
            _ => self.rest = Caller::Function.boolean(name, value)?,
        }
        Ok(true)
    }
}

/// The keys of columns, which have these names, in a file with these options. None where it is the column's name.
pub fn keys<'a>(copy: &CopyOptions, drafts: impl Iterator<Item = (&'a str, &'a KeyDraft)>) -> Result<Vec<Option<Key>>> {
    let mut rests = 0;
    let mut key = |(column, draft): (&str, &KeyDraft)| match draft {
        KeyDraft { given: Some(name), .. } if copy.shape != Shape::Json => {
            Err(invalid(format!("option {name} of column \"{column}\" requires format \"json\"")))
        }
        KeyDraft { key: Some(_), rest: true, .. } => {
            Err(invalid(format!("cannot specify both key and rest of column \"{column}\"")))
        }
        KeyDraft { rest: true, .. } if rests > 0 => Err(invalid("only one column can have the option rest")),
        KeyDraft { rest: true, .. } => {
            rests += 1;
            Ok(Some(Key::Rest))
        }
        KeyDraft { key, .. } => Ok(key.clone().map(Key::Named)),
    };
    drafts.map(&mut key).collect()
}
