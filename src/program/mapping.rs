//! The columns of a table that the fields of a file are for.

use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::rows::column::Taken;
use crate::server::compat;
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
    /// Maps the fields of a foreign table's file to attributes by `place`. Guarded.
    ///
    /// # Safety
    /// The open foreign table.
    pub unsafe fn of_foreign(foreign: pg_sys::Relation, place: impl Fn(i16) -> Option<i16>) -> Mapping {
        let mut mapping = Mapping::default();
        attributes(foreign).for_each(|(attnum, name)| mapping.push(name, place(attnum)));
        mapping
    }

    /// The position of an expression's input in the input row.
    pub fn input(&self, name: &CStr, relation: pg_sys::Relation) -> Option<usize> {
        let at = self.names.iter().position(|known| known.as_c_str() == name)?;
        if let Some(attnum) = self.fields.get(at)? {
            return usize::try_from(attnum - 1).ok();
        }
        Some(natts(relation) + self.fields.iter().take(at).filter(|field| field.is_none()).count())
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

pub fn natts(relation: pg_sys::Relation) -> usize {
    // SAFETY: an open relation.
    unsafe { usize::try_from((*(*relation).rd_att).natts).unwrap_or(0) }
}

/// Numbers and names of the attributes that a file can have fields for (`CopyGetAttnums`).
pub fn attributes(relation: pg_sys::Relation) -> impl Iterator<Item = (i16, CString)> {
    // SAFETY: an open relation, whose descriptor has natts attributes.
    let natts = unsafe { usize::try_from((*(*relation).rd_att).natts).unwrap_or(0) };
    (0..natts).filter_map(move |index| {
        // SAFETY: index < natts, and a name is NUL-terminated.
        unsafe {
            let form = &*compat::attribute((*relation).rd_att, index);
            let takes_values = !form.attisdropped && form.attgenerated == 0;
            takes_values.then(|| (form.attnum, CStr::from_ptr(form.attname.data.as_ptr()).to_owned()))
        }
    })
}
