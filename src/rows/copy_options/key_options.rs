//! Options that assign a member of a JSON object to a column.
//!
//! A column of a foreign table has them as column options. A function takes them in objects of its `columns`. They are
//! collected along with those of other formats ([`super::slice_options`]), and [`keys`] checks them together.

use super::super::column::MemberKey;
use super::{CopyOptions, RecordShape};
use crate::error::Result;
use crate::server::option_value::{Caller, invalid};

/// Options of a column that are being collected.
#[derive(Debug, Clone, Default)]
pub struct KeyDraft {
    /// Name of an option that was given.
    given: Option<&'static str>,
    key: Option<Vec<u8>>,
    rest: bool,
}

/// Names of the options that a [`KeyDraft`] accepts.
pub const NAMES: &[&str] = &["key", "rest"];

impl KeyDraft {
    /// Sets an option. Returns false if the option is not one of these.
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

/// Returns the keys of the columns with these names, for a file with these options. None where the key is the column's
/// name.
pub fn keys<'a>(
    copy: &CopyOptions,
    drafts: impl Iterator<Item = (&'a str, &'a KeyDraft)>,
) -> Result<Vec<Option<MemberKey>>> {
    let mut rests = 0;
    let mut key = |(column, draft): (&str, &KeyDraft)| match draft {
        KeyDraft { given: Some(name), .. } if copy.shape() != RecordShape::Json => {
            Err(invalid(format!("option {name} of column \"{column}\" requires format \"json\"")))
        }
        KeyDraft { key: Some(_), rest: true, .. } => {
            Err(invalid(format!("cannot specify both key and rest of column \"{column}\"")))
        }
        KeyDraft { rest: true, .. } if rests > 0 => Err(invalid("only one column can have the option rest")),
        KeyDraft { rest: true, .. } => {
            rests += 1;
            Ok(Some(MemberKey::Rest))
        }
        KeyDraft { key, .. } => Ok(key.clone().map(MemberKey::Named)),
    };
    drafts.map(&mut key).collect()
}
