//! A file of the load that is done, when there are others behind it.
//!
//! It is closed: a program has told by then how it ended, and there may be more files than a process can have open. If a row
//! of it turns out to be wrong, it is opened once more, and if that is the same file by then, read from where the row was.

use std::ffi::CString;

use pgrx::pg_sys;

use super::find::{Source, Target};
use super::{Origins, Place, Traces};
use crate::error::Result;
use crate::load::options::LoadOptions;
use crate::load::source::{self, Mapping};
use crate::pg::chunk::{Identity, changed};

/// What is kept of it.
#[derive(Debug)]
pub struct Earlier {
    pub options: LoadOptions,
    pub mapping: Mapping,
    pub identity: Option<Identity>,
    pub source: Source,
    pub traces: Traces,
    pub anchors: Vec<(u64, u64)>,
    /// What messages call the table and the file.
    pub relation: CString,
    pub described: CString,
}

impl Earlier {
    /// The line of a record, and what messages call the file that it is in. Guarded.
    pub fn line_of(&mut self, place: Place, target: pg_sys::Relation) -> Result<(u64, CString)> {
        if self.traces == Traces::Lines {
            return Ok((place.position + place.behind, self.described.clone()));
        }
        let mut rows = source::open_rows(target, &self.options, Some(&self.mapping))?;
        let is_same = rows.stream().identity().zip(self.identity).is_some_and(|(now, then)| now.continues(then));
        // Of a list, each file is compared when it is opened.
        if !is_same && rows.stream().files().is_none() {
            return Err(changed(&self.source.name));
        }
        let mut origins = Origins::new(0);
        origins.anchors = std::mem::take(&mut self.anchors);
        origins.settle();
        origins.find(&mut Target::default(), &self.source, &mut rows, place)?;
        let found = (rows.reader().line_number(), rows.described.clone());
        rows.close()?;
        Ok(found)
    }
}
