//! The columns of a table that the fields of a file are for.

use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::rows::column::Taken;
use crate::server::relation::{Relation, name_of};
use crate::server::server_text::from_server;

/// Which column each field of the file belongs to.
#[derive(Debug, Clone, Default)]
pub struct Mapping {
    /// The attribute's number; None for a field that no attribute takes.
    pub fields: Vec<Option<i16>>,
    /// The names of the fields, in the server's encoding.
    pub names: Vec<CString>,
    /// Attributes that no field is for, and their values.
    pub others: Vec<(i16, Taken)>,
    pub notes: Vec<String>,
    /// Attributes whose values are not unchanged fields.
    pub computed: Vec<i16>,
    /// With such attributes, the columns of the foreign table that are read. They keep their positions.
    pub wanted: Option<Vec<i16>>,
    /// The filter function, which takes the fields as arguments and makes the row.
    pub function: Option<pg_sys::Oid>,
}

impl Mapping {
    /// Maps the fields of a foreign table's file to attributes by `place`.
    pub fn of_foreign(foreign: Relation<'_>, place: impl Fn(i16) -> Option<i16>) -> Mapping {
        let mut mapping = Mapping::default();
        attributes(foreign).for_each(|(attnum, name)| mapping.push(name, place(attnum)));
        mapping
    }

    /// The position of an expression's input in the input row.
    pub fn input(&self, name: &CStr, relation: Relation<'_>) -> Option<usize> {
        let at = self.names.iter().position(|known| known.as_c_str() == name)?;
        if let Some(attnum) = self.fields.get(at)? {
            return usize::try_from(attnum - 1).ok();
        }
        let natts = relation.descriptor().len();
        Some(natts + self.fields.iter().take(at).filter(|field| field.is_none()).count())
    }

    pub fn push(&mut self, name: CString, attnum: Option<i16>) {
        self.names.push(name);
        self.fields.push(attnum);
    }

    /// The numbers of all attributes that the load sets.
    pub fn attributes(&self) -> impl Iterator<Item = i16> {
        let others = self.others.iter().map(|(attnum, _)| *attnum);
        self.fields.iter().copied().flatten().chain(others).chain(self.computed.iter().copied())
    }

    pub fn add(&mut self, name: CString, attnum: i16) -> Result<()> {
        if self.attributes().any(|a| a == attnum) {
            return Err(twice(&name));
        }
        self.push(name, Some(attnum));
        Ok(())
    }
}

/// Error for a column that is named twice.
pub fn twice(name: &CStr) -> Error {
    let message = format!("column \"{}\" specified more than once", from_server(name));
    Error::new(Code::ERRCODE_DUPLICATE_COLUMN, message)
}

/// Numbers and names of the attributes that a file can have fields for (`CopyGetAttnums`).
pub fn attributes(relation: Relation<'_>) -> impl Iterator<Item = (i16, CString)> {
    let live = relation.descriptor().live().filter(|form| form.attgenerated == 0);
    live.map(|form| (form.attnum, name_of(form).to_owned()))
}
