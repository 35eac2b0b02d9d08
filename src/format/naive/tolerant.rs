//! The slow twin of a reader that passes lines with errors ([`Reader::tolerate`]).

use super::{Row, record, row};
use crate::dialect::{Dialect, Eol};
use crate::line::{self, Line};
use crate::reader::{Event, ReadError, Reader, Settings};
use crate::verify::utf8_valid_up_to;

/// What there is of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// A record.
    Row(Row),
    /// Something is wrong with it.
    Wrong {
        /// What.
        error: ReadError,
        /// COPY's number of the line, and of that which is passed.
        number: u64,
        /// Where it starts.
        offset: u64,
        /// As much as is passed, if anything is.
        line: Option<Vec<u8>>,
    },
}

/// COPY's blocks.
const BLOCK: usize = 65536;

/// What the lines of `data` say, if those of `limit` bytes are too long. Dialects have line ends.
#[must_use]
pub fn lines(d: &Dialect, limit: usize, data: &[u8]) -> Vec<Said> {
    let mut all = Vec::new();
    let (mut eol, mut at, mut number): (Option<Eol>, usize, u64) = (None, 0, 0);
    loop {
        let rest = &data[at..];
        number += 1;
        let (content, next, embedded, wrong) = match line::read_line(d, &mut eol, rest, true) {
            Line::Complete { content, next, embedded } => (content, next, embedded, None),
            Line::End { content: 0, .. } => return all,
            Line::End { content, next, embedded } => (content, next, embedded, None),
            Line::NeedMore { .. } => panic!("there is no more"),
            Line::Error { kind, .. } => {
                let (content, next, _) = line::skip_line(d, eol, rest, true).expect("all there is");
                (content, next, line_ends(d, eol, &rest[..content]), Some(ReadError::Line(kind)))
            }
        };
        if next >= limit {
            // COPY has seen it up to the end of the block in which it gets too long.
            let noticed = (at + limit).div_ceil(BLOCK) * BLOCK - at;
            let (seen, containing) = (next.min(noticed), noticed.saturating_sub(BLOCK));
            let error = ReadError::TooLong { containing: containing as u64, more: (seen - containing) as u64 };
            number += line_ends(d, eol, &rest[..seen.min(content)]);
            all.push(Said::Wrong { error, number, offset: at as u64, line: None });
            return all;
        }
        number += embedded;
        let is_valid = utf8_valid_up_to(&rest[..next]) == next;
        let wrong = wrong.or((!is_valid).then_some(ReadError::Encoding));
        all.push(match wrong.map_or_else(|| record(d, number, at, &rest[..content]), Err) {
            Ok(row) => Said::Row(row),
            Err(error) => Said::Wrong { error, number, offset: at as u64, line: Some(rest[..content].to_vec()) },
        });
        at += next;
    }
}

/// Line ends within a line that COPY counts.
fn line_ends(d: &Dialect, eol: Option<Eol>, line: &[u8]) -> u64 {
    if d.is_csv() { line.iter().filter(|&&b| b == Eol::counted(eol)).count() as u64 } else { 0 }
}

/// The same from a [`Reader`] that is fed `piece` bytes at a time, for which lines of `limit` bytes are too long. The most
/// bytes behind a line's start that it asked for comes with it.
#[must_use]
pub fn read_in_pieces(settings: Settings, limit: usize, data: &[u8], piece: usize) -> (Vec<Said>, usize) {
    let mut reader = Reader::new(settings);
    reader.tolerate();
    reader.limit_lines(limit);
    let (mut fed, mut most) = (0, 0);
    let mut all = Vec::new();
    loop {
        match reader.advance() {
            Event::NeedData => {
                let space = reader.space();
                let n = (data.len() - fed).min(piece).min(space.len());
                space[..n].copy_from_slice(&data[fed..fed + n]);
                fed += n;
                most = most.max(fed - usize::try_from(reader.record_offset()).expect("a position in memory"));
                reader.filled(n);
            }
            Event::Record => all.push(Said::Row(row(&reader))),
            Event::Header => (),
            Event::End => return (all, most),
            Event::Error(error) => {
                let (number, offset) = (reader.line_number(), reader.record_offset());
                all.push(Said::Wrong { error, number, offset, line: reader.raw_line().map(<[u8]>::to_vec) });
                if !reader.goes_on() {
                    return (all, most);
                }
            }
        }
    }
}
