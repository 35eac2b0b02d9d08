//! Chunks: equal stretches of a file, cut at record ends, for several processes to work on at once.
//!
//! ```text
//!   stretch k-1          | stretch k                    | stretch k+1
//!   ...records... record_|record record record record_re|cord ...
//!                 ^ Edge.record            ^ next Edge.record
//! ```
//!
//! A stretch may be read by anybody at any time, but where its first record begins, and whether its first byte is
//! quoted, only the bytes before it can tell. So stretches are *cut* in order: whoever has stretch k waits for the
//! [`Edge`] before it, and hands on the edge behind it. Whatever does not depend on that edge is done before the turn comes,
//! by as many processes as there are: a [`Survey`] runs over all bytes and adds up quotes and line ends
//! ([`Scanner::survey`]). The cut itself then only looks at the end of the stretch. Nothing of what it says is guessed: in
//! text with backslashes the survey says what holds if no escape and no carriage return crosses the edge, and if one does, it
//! is not used; in CSV with an escape of its own there are stretches of which only the cut can tell. Then the cut runs over all
//! bytes, at memory speed. Line numbers are known either way. The chunk that goes with stretch k are the records that end in
//! it; their beginning is fetched from the stretches before.
//!
//! Records of COPY's binary format have no ends that could be counted: of those nothing is done before the turn, and a cut goes from size
//! to size ([`crate::walk`]), which takes a small part of the time that it takes to make rows of them.
//!
//! The tricky point is `\.`, which ends the data wherever it stands, so that nothing behind it may be loaded. A cut
//! does not look for record starts; it reports bytes that may be such a marker, and the rest of the file is then read
//! by one process in order.
//!
//! A chunk comes with the few bytes behind it ([`crate::reader::LOOKAHEAD`]): a message shows as many bytes as an invalid
//! character should have, though a line end be among them, and in CSV COPY finds what is invalid behind a carriage return
//! before it takes the line that this ends.

use memchr::memmem;

use crate::dialect::{Dialect, EndMarker, Eol};
use crate::reader::Place;
use crate::scan::{self, Carry, Scanner};
use crate::walk::Walk;

/// Stretches are a multiple of this long.
pub const BLOCK: usize = 64;

/// What is known at the edge between two stretches. Plain numbers: it travels through shared memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Edge {
    /// Quotes and escapes that cross the edge.
    carry: Carry,
    /// Position in the file of the first record that does not end before the edge.
    pub record: u64,
    /// COPY's lines before that record.
    pub lines_before_record: u64,
    /// COPY's lines before the edge itself.
    lines: u64,
    /// Of the binary format: what is known of the record that crosses the edge.
    walk: Walk,
}

impl Edge {
    /// The edge at a place where a record begins.
    #[must_use]
    pub fn at(place: Place) -> Edge {
        let Place { offset, lines, .. } = place;
        Edge { carry: Carry::default(), record: offset, lines_before_record: lines, lines, walk: Walk::at(offset) }
    }

    /// Where the record at the edge begins.
    #[must_use]
    pub fn place(&self, eol: Eol) -> Place {
        Place { eol, offset: self.record, lines: self.lines_before_record }
    }
}

/// What is known of a stretch before its turn.
#[derive(Debug, Clone, Copy)]
pub struct Survey {
    ends: scan::Survey,
    /// There may be an end marker in it, whatever is at its edge in CSV, and in text if its first byte is not taken.
    suspicious: bool,
}

/// What a cut found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The edge behind the stretch.
    pub edge: Edge,
    /// Offset in the stretch behind its last record end, if it has one.
    pub end: Option<usize>,
    /// Records that end in the stretch, at most.
    pub most_records: u64,
    /// The data end with it, behind its last record.
    pub ended: bool,
    /// There may be an end marker in it, or a record of the binary format with which something is wrong.
    pub suspicious: bool,
}

impl Cut {
    /// Does the stretch, of `len` bytes, end where a record does, or the data?
    #[must_use]
    pub fn ends_with_record(&self, len: usize) -> bool {
        self.ended || self.end == Some(len)
    }
}

/// [`Cutter::cut`] of a stretch of so many bytes, where records are so long.
fn measure(len: usize, offset: u64, edge: Edge, length: u64) -> Cut {
    let count = (offset + len as u64).saturating_sub(edge.record) / length;
    let record = edge.record + count * length;
    let next = Edge { record, lines_before_record: edge.lines_before_record + count, ..edge };
    let end = usize::try_from(record.saturating_sub(offset)).ok().filter(|_| count > 0);
    Cut { edge: next, end, most_records: count, ended: false, suspicious: false }
}

/// [`Cutter::cut`] of a stretch of the binary format.
fn walk(stretch: &[u8], offset: u64, edge: Edge, fields: Option<usize>) -> Cut {
    let mut walk = edge.walk;
    let walked = walk.pass(stretch, offset, edge.record, fields);
    let lines_before_record = edge.lines_before_record + walked.records;
    let end = usize::try_from(walked.record.saturating_sub(offset)).ok().filter(|_| walked.records > 0);
    let next = Edge { record: walked.record, lines_before_record, walk, ..edge };
    Cut { edge: next, end, most_records: walked.records, ended: walked.ended, suspicious: walked.is_odd }
}

/// How it is known where records end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// By line ends.
    Lines,
    /// They are so long.
    Stride(u64),
    /// From size to size; records have so many fields, if that is known.
    Sizes(Option<usize>),
}

/// Cuts the stretches of a file.
#[derive(Debug)]
pub struct Cutter {
    scanner: Scanner,
    csv: bool,
    /// `\.` matters in it.
    marker: bool,
    ends: Ends,
    finder: memmem::Finder<'static>,
}

impl Cutter {
    /// A cutter for a dialect whose scanner this is.
    #[must_use]
    pub fn new(dialect: &Dialect, scanner: Scanner) -> Cutter {
        let csv = dialect.is_csv();
        let marker = !dialect.is_literal() && (!csv || dialect.end_marker == EndMarker::Until17);
        let ends = match dialect.stride() {
            _ if dialect.is_binary() => Ends::Sizes(dialect.record_length),
            Some(length) => Ends::Stride(length as u64),
            None => Ends::Lines,
        };
        Cutter { scanner, csv, marker, ends, finder: memmem::Finder::new(b"\\.") }
    }

    /// Look at a stretch, wherever it is.
    #[must_use]
    pub fn survey(&self, stretch: &[u8]) -> Survey {
        let stretch = if self.ends == Ends::Lines { stretch } else { &[] };
        let ends = self.scanner.survey(stretch);
        let may_be = self.marker && self.scanner.has_backslash(&ends);
        Survey { ends, suspicious: may_be && self.has_marker(stretch, false) }
    }

    /// Is the stretch nothing but ASCII, without a NUL?
    #[must_use]
    pub fn is_plain(&self, survey: &Survey) -> bool {
        self.ends == Ends::Lines && self.scanner.is_plain(&survey.ends)
    }

    /// Cut the stretch at `offset` of the file, which was surveyed, and before which `edge` was reached. All but the last one
    /// of a file are a multiple of [`BLOCK`] long.
    #[must_use]
    pub fn cut(&self, stretch: &[u8], survey: &Survey, offset: u64, edge: Edge) -> Cut {
        match self.ends {
            Ends::Lines => (),
            Ends::Stride(length) => return measure(stretch.len(), offset, edge, length),
            Ends::Sizes(fields) => return walk(stretch, offset, edge, fields),
        }
        let state = self.scanner.cut_surveyed(stretch, &survey.ends, edge.carry);
        let mut next = Edge { carry: state.carry(), lines: edge.lines + state.seen(), ..edge };
        if let Some(end) = state.last {
            next.record = offset + end as u64;
            next.lines_before_record = edge.lines + state.lines;
        }
        Cut {
            edge: next,
            end: state.last,
            most_records: next.lines_before_record - edge.lines_before_record,
            ended: false,
            suspicious: self.marker && self.is_suspicious(stretch, survey, offset, edge),
        }
    }

    /// May an end marker end in `stretch`? In CSV it must begin a record; in text no other backslash may take its own.
    /// One that crosses the edge is found behind it: its record does not end before the edge.
    fn is_suspicious(&self, stretch: &[u8], survey: &Survey, offset: u64, edge: Edge) -> bool {
        let crosses = if self.csv { edge.record + 1 == offset } else { edge.carry.escapes_next() };
        if crosses && stretch.starts_with(b".") {
            return true;
        }
        if self.csv {
            return survey.suspicious || (edge.record == offset && stretch.starts_with(b"\\."));
        }
        if crosses { self.has_marker(stretch, true) } else { survey.suspicious }
    }

    /// May an end marker be in `stretch`, but for one that begins it in CSV? `escape`: in text, its first byte is taken.
    fn has_marker(&self, stretch: &[u8], escape: bool) -> bool {
        // Most files have no backslash at all, and to look for one byte takes half the time.
        let Some(first) = memchr::memchr(b'\\', stretch) else { return false };
        self.finder.find_iter(stretch.get(first..).unwrap_or_default()).any(|at| {
            let before = stretch.get(..first + at).unwrap_or_default();
            if self.csv {
                return before.last().is_some_and(|&b| b == b'\n' || b == b'\r');
            }
            let backslashes = before.iter().rev().take_while(|&&b| b == b'\\').count();
            let carried = backslashes == before.len() && escape;
            (backslashes + usize::from(carried)).is_multiple_of(2)
        })
    }
}
