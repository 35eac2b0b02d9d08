//! Finds records of a file by reading it again.

use pg_bulk_text::dialect::Eol;
use pg_bulk_text::reader;

use super::{Origins, RecordPosition, file_of, in_file};
use crate::error::{Error, Result};
use crate::input::file_identity::changed;
use crate::input::stream::{Advance, Header};
use crate::rows::row::Rows;

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
