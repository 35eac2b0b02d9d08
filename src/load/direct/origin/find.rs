//! Finds records of a file by reading it again.
//!
//! A file of the load that is done, while further files follow.
//!
//! The file is closed: a program must report its exit status, and the number of a process's open files is limited. If a
//! row of the file has an error, the file is opened again and compared with the old one, then read from the row's
//! position on.

use std::ffi::CString;

use pg_bulk_text::dialect::Eol;
use pg_bulk_text::reader;

use super::{Origins, RecordPosition, Traces, file_of, in_file};
use crate::error::{Error, Result};
use crate::input::file_identity::{Identity, changed};
use crate::input::stream::{Advance, Header};
use crate::load::options::LoadOptions;
use crate::load::source;
use crate::program::mapping::Mapping;
use crate::rows::row::Rows;
use crate::server::relation::Relation;

/// Position of the reader while records are looked up.
#[derive(Debug, Default)]
pub struct ReadPosition {
    /// The current record.
    at: Option<RecordPosition>,
}

/// Properties of the file that are needed to read it again.
#[derive(Debug)]
pub struct FileProperties {
    pub header: Header,
    pub eol: Option<Eol>,
    pub name: String,
}

impl Origins {
    /// The last position before a record from which the file can be read.
    fn anchor(&self, position: u64) -> Option<(u64, u64)> {
        let behind = self.anchors.partition_point(|&(offset, _)| offset <= position);
        behind.checked_sub(1).and_then(|last| self.anchors.get(last)).copied()
    }

    /// Sorts the positions when all are known.
    pub fn sort_anchors(&mut self) {
        self.anchors.sort_unstable();
    }

    /// Makes the record at a place the current one. Fastest in the order of the file. Guarded.
    pub fn find(
        &self,
        target: &mut ReadPosition,
        source: &FileProperties,
        rows: &mut Rows,
        place: RecordPosition,
    ) -> Result<()> {
        if rows.stream().files().is_some() {
            return self.find_in_files(target, source, rows, place);
        }
        let lost = || changed(&source.name);
        let here = target.at.filter(|at| *at <= place);
        let anchor = self.anchor(place.position).zip(source.eol);
        // A compressed file would have to be decompressed from its start again.
        let goes_on = rows.stream().size().is_none();
        let is_near = |at: RecordPosition| goes_on || anchor.is_none_or(|((offset, _), _)| offset <= at.position);
        let mut at = match here.filter(|at| is_near(*at)) {
            Some(at) => at,
            None => {
                match anchor {
                    Some(((offset, lines), eol)) => {
                        rows.stream_mut().resume(reader::RecordStart { eol, offset, lines })?;
                    }
                    None => rows.restart(source.header, || Err(lost()))?,
                }
                self.next(rows, place.file)?.ok_or_else(lost)?
            }
        };
        while at.position < place.position {
            at = self.next(rows, place.file)?.ok_or_else(lost)?;
        }
        if at.position > place.position {
            return Err(lost());
        }
        for _ in at.behind..place.behind {
            self.next(rows, place.file)?.ok_or_else(lost)?;
        }
        target.at = Some(place);
        Ok(())
    }

    /// Finds a record in a list of files: each file is read from its start.
    fn find_in_files(
        &self,
        target: &mut ReadPosition,
        source: &FileProperties,
        rows: &mut Rows,
        place: RecordPosition,
    ) -> Result<()> {
        let lost = || changed(&source.name);
        let file = file_of(place.position);
        let here = target.at.filter(|at| *at <= place && file_of(at.position) == file);
        let next_of = |rows: &mut Rows| {
            let found = self.next(rows, place.file)?.ok_or_else(lost)?;
            Ok::<_, Error>(RecordPosition { position: in_file(file as u64, found.position), ..found })
        };
        let mut at = match here {
            Some(at) => at,
            None => {
                rows.switch_to_file(file)?;
                next_of(rows)?
            }
        };
        while at.position < place.position {
            at = next_of(rows)?;
        }
        if at.position > place.position {
            return Err(lost());
        }
        for _ in at.behind..place.behind {
            self.next(rows, place.file)?.ok_or_else(lost)?;
        }
        target.at = Some(place);
        Ok(())
    }

    /// Goes to the next record and returns its place; None at the end.
    fn next(&self, rows: &mut Rows, file: u32) -> Result<Option<RecordPosition>> {
        loop {
            pgrx::check_for_interrupts!();
            let advanced = rows.stream_mut().advance();
            let position = rows.reader().record_offset();
            let key = in_file(rows.stream().file_number() as u64, position);
            let early = self.early_ends.get(&(file, key)).and_then(|&length| usize::try_from(length).ok());
            match advanced {
                Ok(Advance::Record) if rows.is_no_record() => (),
                Ok(Advance::Header) => (),
                Ok(Advance::End) => return Ok(None),
                Err(error) if !rows.reader().goes_on() => return Err(error),
                Ok(Advance::Record) | Err(_) if early.is_some() => {
                    rows.stream_mut().reader.end_early_at(early.unwrap_or_default());
                }
                Ok(Advance::Record) => return Ok(Some(RecordPosition { file, position, behind: 0 })),
                // The record was rejected in the first reading, too.
                Err(_) => (),
            }
        }
    }
}

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
    pub fn line_of(&mut self, place: RecordPosition, target: Relation) -> Result<(u64, CString)> {
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
