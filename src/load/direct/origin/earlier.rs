//! A file of the load that is done, while further files follow.
//!
//! The file is closed: a program must report its exit status, and the number of a process's open files is limited. If a
//! row of the file has an error, the file is opened again and compared with the old one, then read from the row's
//! position on.

use std::ffi::CString;

use pgrx::pg_sys;

use super::find::{FileProperties, ReadPosition};
use super::{Origins, RecordPosition, Traces};
use crate::error::Result;
use crate::input::file_identity::{Identity, changed};
use crate::load::options::LoadOptions;
use crate::load::source;
use crate::program::mapping::Mapping;

/// The state to read an earlier file again.
#[derive(Debug)]
pub struct Earlier {
    pub options: LoadOptions,
    pub mapping: Mapping,
    pub identity: Option<Identity>,
    pub source: FileProperties,
    pub traces: Traces,
    pub anchors: Vec<(u64, u64)>,
    /// Names of the table and the file in messages.
    pub relation: CString,
    pub described: CString,
}

impl Earlier {
    /// The line of a record, and the file's name in messages. Guarded.
    pub fn line_of(&mut self, place: RecordPosition, target: pg_sys::Relation) -> Result<(u64, CString)> {
        if self.traces == Traces::Lines {
            return Ok((place.position + place.behind, self.described.clone()));
        }
        let mut rows = source::open_rows(target, &self.options, Some(&self.mapping))?;
        let is_same = rows.stream().identity().zip(self.identity).is_some_and(|(now, then)| now.continues(then));
        // In a list, each file is compared when it is opened.
        if !is_same && rows.stream().files().is_none() {
            return Err(changed(&self.source.name));
        }
        let mut origins = Origins::new(0);
        origins.anchors = std::mem::take(&mut self.anchors);
        origins.sort_anchors();
        origins.find(&mut ReadPosition::default(), &self.source, &mut rows, place)?;
        let found = (rows.reader().line_number(), rows.context.described.clone());
        rows.close()?;
        Ok(found)
    }
}
