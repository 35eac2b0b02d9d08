//! Simulates the processes of a load in one thread: a file in chunks, and the same file in order.
//!
//! ```text
//!   leader: first records | range 0   | range 1   | range 2   | ...
//!                           reader 0    reader 1    reader 0        cut, begin_chunk, or resume and read the rest
//! ```
//!
//! The result of [`in_chunks`] must equal that of [`in_order`]. Chunks behind a record that fails are read, too, as
//! other processes would do, and their results are dropped.

use super::{Row, row};
use crate::chunk::{Cutter, Edge};
use crate::line::LINE_LIMIT;
use crate::reader::{Event, LOOKAHEAD, ReadError, Reader, Settings};
use crate::scan::{Needles, Scanner};

/// Parameters of one simulation.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Settings of every reader.
    pub settings: Settings,
    /// Number of records that the leader reads before the first chunk.
    pub first: usize,
    /// Length of a range of the file.
    pub len: usize,
    /// Space for the beginning of a chunk's first record, before the other bytes must be moved.
    pub room: usize,
    /// Number of readers, which take the chunks in turn.
    pub readers: usize,
    /// The first range that is read in order in any case.
    pub resume: Option<usize>,
}

/// The contents of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// The records.
    pub rows: Vec<Row>,
    /// The error that ends the records.
    pub failure: Option<Failure>,
}

/// An error with the details of COPY's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The error.
    pub error: ReadError,
    /// COPY's number of the line.
    pub number: u64,
    /// Offset of the line's start.
    pub offset: u64,
    /// The line, if its end was found.
    pub line: Option<Vec<u8>>,
    /// The invalid bytes as a message shows them (`report_invalid_encoding`): as many as the first byte announces.
    pub invalid: Vec<u8>,
}

impl Reading {
    /// Adds the reader's next record. Reads from `source` if there is one. Returns false at the end.
    fn step(&mut self, reader: &mut Reader, source: &mut Option<&[u8]>) -> bool {
        loop {
            match reader.advance() {
                Event::NeedData => {
                    let rest = source.as_mut().expect("a chunk has all it needs");
                    reader.give(rest, usize::MAX).expect("memory");
                }
                Event::Record => {
                    self.rows.push(row(reader));
                    return true;
                }
                Event::Header => (),
                Event::End => return false,
                Event::Error(error) => {
                    let invalid = if error == ReadError::Encoding { reader.unverified() } else { b"" };
                    self.failure = Some(Failure {
                        error,
                        number: reader.line_number(),
                        offset: reader.record_offset(),
                        line: reader.raw_line().map(<[u8]>::to_vec),
                        invalid: invalid.iter().copied().take(announced(invalid)).collect(),
                    });
                    return false;
                }
            }
        }
    }

    /// Adds all records of the reader, and those of `source` if there is one.
    pub fn rest(&mut self, reader: &mut Reader, mut source: Option<&[u8]>) {
        while self.step(reader, &mut source) {}
    }

    fn append(&mut self, later: Reading) {
        if self.failure.is_none() {
            self.rows.extend(later.rows);
            self.failure = later.failure;
        }
    }
}

/// Length of the character that begins `bytes`, from its first byte (`pg_utf_mblen`).
fn announced(bytes: &[u8]) -> usize {
    match bytes.first().map_or(0, |byte| byte.leading_ones()) {
        ones @ 2..=4 => ones as usize,
        _ => 1,
    }
}

/// Reads the file with one reader.
#[must_use]
pub fn in_order(settings: &Settings, data: &[u8]) -> Reading {
    let mut reading = Reading::default();
    reading.rest(&mut Reader::new(settings.clone()), Some(data));
    reading
}

/// Reads the file in chunks. Panics if the cutter or a reader violates its contract.
#[must_use]
pub fn in_chunks(plan: &Plan, data: &[u8]) -> Reading {
    let Settings { dialect, level, .. } = &plan.settings;
    let mut reading = Reading::default();
    let mut leader = Reader::new(plan.settings.clone());
    let mut source = Some(data);
    while reading.rows.len() < plan.first {
        if !reading.step(&mut leader, &mut source) {
            return reading;
        }
    }
    let place = leader.place_behind();
    let cutter =
        place.and_then(|place| Some(Cutter::new(dialect, Scanner::new(Needles::new(dialect, place.eol)?, *level))));
    let (Some(place), Some(cutter)) = (place, cutter) else {
        reading.rest(&mut leader, source);
        return reading;
    };
    let mut readers: Vec<Reader> = (1..plan.readers).map(|_| Reader::new(plan.settings.clone())).collect();
    readers.push(leader);
    let mut edge = Edge::at(place);
    let mut offset = usize::try_from(place.offset).expect("a position in memory");
    for number in 0.. {
        if offset >= data.len() {
            break;
        }
        let len = plan.len.min(data.len() - offset);
        let (range, known) = (&data[offset..offset + len], (len + LOOKAHEAD).min(data.len() - offset));
        let is_last = offset + len == data.len();
        let reader = &mut readers[number % plan.readers];
        let space = plan.room..plan.room + known;
        reader.chunk_space(space.end).expect("memory")[space].copy_from_slice(&data[offset..offset + known]);
        let survey = cutter.survey(range);
        let mut cut = cutter.cut(range, &survey, offset as u64, edge);
        let place = edge.place(place.eol);
        let head = offset - usize::try_from(place.offset).expect("a position in memory");
        if cut.unsure {
            cut = cutter.cut_again(cut, &data[offset - head..offset + len], offset as u64, edge);
        }
        assert!(!cut.suspicious || dialect.is_binary() || data.contains(&b'\\'), "other ranges are cut");
        let mut chunk = Reading::default();
        let is_huge = head + len >= LINE_LIMIT;
        let is_open = is_last && !cut.ends_with_record(len);
        if cut.suspicious || (is_open && cutter.is_undecided(&cut)) || is_huge || plan.resume == Some(number) {
            reader.resume(place);
            chunk.rest(reader, Some(&data[offset - head..]));
            reading.append(chunk);
            return reading;
        }
        let end = if is_open { len } else { cut.end.unwrap_or(0) };
        if end > 0 {
            let mut at = plan.room;
            if head > at {
                reader.chunk_space(head + known).expect("memory").copy_within(at..at + known, head);
                at = head;
            }
            reader.chunk_space(0).expect("memory")[at - head..at].copy_from_slice(&data[offset - head..offset]);
            let plain = if cutter.is_plain(&survey) { at..at + len } else { 0..0 };
            reader.begin_chunk(at - head, at + end, at + known, plain, place);
            chunk.rest(reader, None);
            assert!(chunk.failure.is_some() || reader.advance() == Event::End, "the end stays");
            let most = cut.most_records + u64::from(is_open);
            assert!(chunk.rows.len() as u64 <= most, "{} records, not {most} at most", chunk.rows.len());
            reading.append(chunk);
        } else {
            assert_eq!(cut.most_records, 0);
        }
        edge = cut.edge;
        offset += len;
    }
    reading
}
