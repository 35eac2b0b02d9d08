//! The naive twin of a reader that continues behind lines with errors ([`Reader::tolerate`]).

use super::{Row, record, row};
use crate::dialect::{Dialect, Eol};
use crate::line::{self, Line};
use crate::reader::{Event, ReadError, Reader, Settings};
use crate::verify::utf8_valid_up_to;

/// One line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineResult {
    /// A record.
    Row(Row),
    /// A line with an error.
    Wrong {
        /// The error.
        error: ReadError,
        /// COPY's number of the line, plus the line ends within the skipped bytes.
        number: u64,
        /// Offset of the line's start.
        offset: u64,
        /// The skipped bytes, if any are skipped.
        line: Option<Vec<u8>>,
    },
}

/// Size of the blocks in which COPY reads.
const BLOCK: usize = 65536;

/// Returns the lines of `data`, where lines of `limit` bytes are too long. The dialect must have line ends.
#[must_use]
pub fn lines(d: &Dialect, limit: usize, data: &[u8]) -> Vec<LineResult> {
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
            // COPY notices at the end of the block in which the line gets too long.
            let noticed = (at + limit).div_ceil(BLOCK) * BLOCK - at;
            let (seen, containing) = (next.min(noticed), noticed.saturating_sub(BLOCK));
            let error = ReadError::TooLong { containing: containing as u64, more: (seen - containing) as u64 };
            number += line_ends(d, eol, &rest[..seen.min(content)]);
            all.push(LineResult::Wrong { error, number, offset: at as u64, line: None });
            return all;
        }
        number += embedded;
        if wrong.is_none() && d.is_skipped(&rest[..content]) {
            at += next;
            continue;
        }
        let is_valid = utf8_valid_up_to(&rest[..next]) == next;
        let wrong = wrong.or((!is_valid).then_some(ReadError::Encoding));
        all.push(match wrong.map_or_else(|| record(d, number, at, &rest[..content]), Err) {
            Ok(row) => LineResult::Row(row),
            Err(error) => LineResult::Wrong { error, number, offset: at as u64, line: Some(rest[..content].to_vec()) },
        });
        at += next;
    }
}

/// Number of line ends within a line that COPY counts.
fn line_ends(d: &Dialect, eol: Option<Eol>, line: &[u8]) -> u64 {
    if d.is_csv() { (0..line.len()).filter(|&at| Eol::counts(eol, line, at)).count() as u64 } else { 0 }
}

/// Reads with a [`Reader`] that gets `piece` bytes at a time, where lines of `limit` bytes are too long. Also returns
/// the largest number of bytes behind a line's start that the reader requested.
#[must_use]
pub fn read_in_pieces(settings: Settings, limit: usize, data: &[u8], piece: usize) -> (Vec<LineResult>, usize) {
    let mut reader = Reader::new(settings);
    reader.tolerate();
    reader.limit_lines(limit);
    let (mut rest, mut most) = (data, 0);
    let mut all = Vec::new();
    loop {
        match reader.advance() {
            Event::NeedData => {
                reader.give(&mut rest, piece).expect("memory");
                let fed = data.len() - rest.len();
                most = most.max(fed - usize::try_from(reader.record_offset()).expect("a position in memory"));
            }
            Event::Record => all.push(LineResult::Row(row(&reader))),
            Event::Header => (),
            Event::End => return (all, most),
            Event::Error(error) => {
                let (number, offset) = (reader.line_number(), reader.record_offset());
                all.push(LineResult::Wrong { error, number, offset, line: reader.raw_line().map(<[u8]>::to_vec) });
                if !reader.goes_on() {
                    return (all, most);
                }
            }
        }
    }
}
