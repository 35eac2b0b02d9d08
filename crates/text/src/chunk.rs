//! Chunks: parts of a file, cut at record ends, that several processes work on at once.
//!
//! ```text
//!   range k-1            | range k                      | range k+1
//!   ...records... record_|record record record record_re|cord ...
//!                 ^ Edge.record            ^ next Edge.record
//! ```
//!
//! The file is divided into ranges of equal length. Chunk k is the records that end in range k; the bytes of its
//! first record may begin in the ranges before.
//!
//! A process can read any range at any time. But only the bytes before a range decide where its first record begins,
//! and whether its first byte is quoted. So ranges are *cut* in order: the process that has range k waits for the
//! [`Edge`] before it and passes on the edge behind it. All work that does not depend on the edge is done before that,
//! in parallel: a [`Survey`] of all bytes adds up quotes and line ends ([`Scanner::survey`]). The cut then only looks
//! at the end of the range.
//!
//! A cut is exact in all cases:
//!
//! - In text with backslashes, the survey is valid if no escape and no carriage return crosses the edge. Otherwise it
//!   is not used.
//! - In CSV with a separate escape character, only the cut can find some record ends.
//!
//! In these cases the cut scans all bytes, at memory speed. Line numbers are exact, too.
//!
//! With lenient quotes, a quote that does not count changes the meaning of an earlier one, perhaps before the range. But
//! a line start within a quoted field is followed by the closing quote, and this one by a delimiter or a line end. If the
//! bytes behind a line start are others, it is the start of a record, whatever the bytes before are. The survey looks for
//! such a line start near the end of the range, and searches from there ([`Cutter::known_start`]). A range without quotes
//! is cut like any other. If neither is possible, the bytes are searched from the edge's record on.
//!
//! Records of COPY's binary format have no ends that a survey could count. Their ranges are not surveyed, and the cut
//! goes from size to size ([`crate::walk`]). This takes a small part of the time that it takes to convert the records.
//!
//! The tricky point is `\.`, which ends the data at any position, so that no row behind it may be loaded. A cut does
//! not look for record starts. It reports bytes that may be such a marker, and one process then reads the rest of the
//! file in order.
//!
//! A comment across the edge changes the meaning of quotes. Then, too, the bytes are searched from the edge's record on.
//!
//! A chunk comes with a few bytes of what follows in the file ([`crate::reader::LOOKAHEAD`]). The message about an
//! invalid character shows as many bytes as the character should have, even across a line end. And in CSV, COPY finds
//! an invalid byte behind a carriage return before it processes the line that the carriage return ends.

use memchr::memmem;

use crate::dialect::{Dialect, EndMarker, Eol};
use crate::field::{self, Opening};
use crate::line::{lenient_line, skip_line};
use crate::reader::RecordStart;
use crate::scan::{self, Carry, CutState, Scanner};
use crate::walk::Walk;

/// The length of a range is a multiple of this many bytes.
pub const BLOCK: usize = 64;
/// Most bytes between the edge's record and a range whose record ends do not follow from the edge.
const AGAIN: u64 = 64 << 20;

/// State at the boundary between two ranges. Only plain numbers: it is copied through shared memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Edge {
    /// Quotes and escapes that cross the edge.
    carry: Carry,
    /// Offset in the file of the first record that does not end before the edge.
    pub record: u64,
    /// COPY's count of lines before that record.
    pub lines_before_record: u64,
    /// COPY's count of lines before the edge itself.
    lines: u64,
    /// Binary format: progress within the record that crosses the edge.
    walk: Walk,
    /// `carry` is not known: a comment or a line end may cross the edge, or a quote whose meaning is not known yet.
    is_unsure: bool,
}

impl Edge {
    /// Returns the edge at the start of a record.
    #[must_use]
    pub fn at(place: RecordStart) -> Edge {
        let RecordStart { offset, lines, .. } = place;
        let walk = Walk::at(offset);
        Edge { record: offset, lines_before_record: lines, lines, walk, ..Edge::default() }
    }

    /// Returns the start of the record at the edge.
    #[must_use]
    pub fn place(&self, eol: Eol) -> RecordStart {
        RecordStart { eol, offset: self.record, lines: self.lines_before_record }
    }
}

/// Facts about a range that do not depend on the edge before it.
#[derive(Debug, Clone, Copy)]
pub struct Survey {
    ends: scan::Survey,
    /// The range may contain an end marker. In CSV, one at its first byte is left out; in text, the first byte is taken
    /// not to be escaped.
    suspicious: bool,
    /// The last record end, if it does not depend on the edge.
    known: Option<Found>,
}

/// The last record end in some bytes, and the state behind them.
#[derive(Debug, Clone, Copy)]
struct Found {
    /// Offset of the record that does not end, from the first of these bytes.
    record: usize,
    /// COPY's counts of lines, from the first of these bytes: before that record, and of all of them.
    lines: (u64, u64),
    /// [`Edge::carry`]
    carry: Carry,
    is_unsure: bool,
}

/// The result of a cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cut {
    /// The edge behind the range.
    pub edge: Edge,
    /// Offset in the range behind its last record end, if the range has one.
    pub end: Option<usize>,
    /// Upper bound of the number of records that end in the range.
    pub most_records: u64,
    /// The data end with the range's last record.
    pub ended: bool,
    /// The range may contain an end marker or a broken record of the binary format.
    pub suspicious: bool,
    /// The range must be searched from the edge's record on: the result is that of [`Cutter::cut_again`].
    pub unsure: bool,
}

impl Cut {
    /// Whether the range, of `len` bytes, ends at the end of a record or of the data.
    #[must_use]
    pub fn ends_with_record(&self, len: usize) -> bool {
        self.ended || self.end == Some(len)
    }
}

/// The cut of a range at `offset`, with the edges before and behind it.
fn between(offset: u64, edge: Edge, next: Edge) -> Cut {
    let end = usize::try_from(next.record.saturating_sub(offset)).ok().filter(|&end| end > 0);
    let most_records = next.lines_before_record.saturating_sub(edge.lines_before_record);
    Cut { edge: next, end, most_records, ..Cut::default() }
}

/// [`Cutter::cut`] of a range of `len` bytes, in a file whose records have `length` bytes each.
fn measure(len: usize, offset: u64, edge: Edge, length: u64) -> Cut {
    let count = (offset + len as u64).saturating_sub(edge.record) / length;
    let (record, lines_before_record) = (edge.record + count * length, edge.lines_before_record + count);
    between(offset, edge, Edge { record, lines_before_record, ..edge })
}

/// [`Cutter::cut`] of a range of the binary format.
fn walk(range: &[u8], offset: u64, edge: Edge, fields: Option<usize>) -> Cut {
    let mut walk = edge.walk;
    let walked = walk.pass(range, offset, edge.record, fields);
    let lines_before_record = edge.lines_before_record + walked.records;
    let next = Edge { record: walked.record, lines_before_record, walk, ..edge };
    Cut { ended: walked.ended, suspicious: walked.is_odd, ..between(offset, edge, next) }
}

/// [`Cutter::cut`] of a range with the last record end `found`, in bytes from `base` on. `lines`: COPY's count of lines
/// before them.
fn pass(offset: u64, edge: Edge, base: u64, lines: u64, found: Found) -> Cut {
    let mut next = Edge { carry: found.carry, lines: lines + found.lines.1, is_unsure: found.is_unsure, ..edge };
    let record = base + found.record as u64;
    // Records that end before the range belong to the first range in which a record ends.
    if record > offset {
        (next.record, next.lines_before_record) = (record, lines + found.lines.0);
    } else {
        next.is_unsure |= found.record > 0;
    }
    between(offset, edge, next)
}

/// How record ends are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Line ends.
    Lines,
    /// All records have this length, in bytes.
    Stride(u64),
    /// From size to size. The number of fields of each record, if it is known.
    Sizes(Option<usize>),
}

/// Cuts the ranges of a file.
#[derive(Debug)]
pub struct Cutter {
    scanner: Scanner,
    csv: bool,
    /// `\.` ends the data.
    marker: bool,
    ends: Ends,
    finder: memmem::Finder<'static>,
    /// For [`Cutter::cut_again`].
    dialect: Dialect,
}

impl Cutter {
    /// Creates a cutter. `scanner` is that of `dialect`.
    #[must_use]
    pub fn new(dialect: &Dialect, scanner: Scanner) -> Cutter {
        let csv = dialect.is_csv();
        let marker = !dialect.is_literal() && (!csv || dialect.end_marker == EndMarker::Until17);
        let ends = match dialect.stride() {
            _ if dialect.is_binary() => Ends::Sizes(dialect.record_length),
            Some(length) => Ends::Stride(length as u64),
            None => Ends::Lines,
        };
        Cutter { scanner, csv, marker, ends, finder: memmem::Finder::new(b"\\."), dialect: dialect.clone() }
    }

    /// Surveys a range, independent of its position in the file.
    #[must_use]
    pub fn survey(&self, range: &[u8]) -> Survey {
        let range = if self.ends == Ends::Lines { range } else { &[] };
        let ends = self.scanner.survey(range);
        let may_be = self.marker && self.scanner.has_backslash(&ends);
        let known = self.known_start(range, &ends).map(|start| {
            let found = self.search(range, start);
            let before = self.scanner.lines(range, &ends).saturating_sub(found.lines.1);
            Found { lines: (before + found.lines.0, before + found.lines.1), ..found }
        });
        Survey { ends, suspicious: may_be && self.has_marker(range, false), known }
    }

    /// Returns the start of a record in `range`, as near to its end as can be found cheaply, where quotes count only at
    /// both ends of a field. If a line starts within a quoted field, the next quote closes the field.
    fn known_start(&self, range: &[u8], ends: &scan::Survey) -> Option<usize> {
        let mut far = BLOCK;
        while ends.from_record && self.dialect.lenient_quotes && far < 4 * range.len() {
            let mut from = range.len().saturating_sub(far);
            while let Some(end) = memchr::memchr2(b'\n', b'\r', range.get(from..)?) {
                from += end + 1;
                let Some(start) = self.scanner.eol().behind(range, from - 1) else { continue };
                match field::opening(&self.dialect, range, start - 1, false) {
                    Opening::Data => return Some(start),
                    Opening::Quoted(end) => from = end,
                    Opening::NeedMore => break,
                }
            }
            far *= 4;
        }
        None
    }

    /// Whether the range consists of ASCII without a NUL.
    #[must_use]
    pub fn is_plain(&self, survey: &Survey) -> bool {
        self.ends == Ends::Lines && self.scanner.is_plain(&survey.ends)
    }

    /// Cuts the range at `offset` of the file, given its survey and the edge before it. The length of each range but
    /// the last one is a multiple of [`BLOCK`].
    #[must_use]
    pub fn cut(&self, range: &[u8], survey: &Survey, offset: u64, edge: Edge) -> Cut {
        match self.ends {
            Ends::Lines => (),
            Ends::Stride(length) => return measure(range.len(), offset, edge, length),
            Ends::Sizes(fields) => return walk(range, offset, edge, fields),
        }
        let suspicious = self.marker && self.is_suspicious(range, survey, offset, edge);
        let begins_comment = edge.record == offset && self.scanner.may_be_comment(range);
        // With lenient quotes, part of an end marker or of a line end may be before such a byte.
        let may_be_cut = self.dialect.lenient_quotes && matches!(range.first(), Some(b'.' | b'\\' | b'\n'));
        let found = match survey.known {
            Some(found) if !may_be_cut => found,
            _ if may_be_cut || edge.is_unsure || begins_comment || survey.ends.from_record => {
                let suspicious = suspicious || offset.saturating_sub(edge.record) > AGAIN;
                return Cut { edge, suspicious, unsure: true, ..Cut::default() };
            }
            _ => {
                let state = self.scanner.cut_surveyed(range, &survey.ends, edge.carry);
                let (record, lines) = (state.last.unwrap_or(0), (state.lines, state.seen()));
                Found { record, lines, carry: state.carry(), is_unsure: self.is_unsure(range, state.last) }
            }
        };
        Cut { suspicious, ..pass(offset, edge, offset, edge.lines, found) }
    }

    /// Whether the number of records behind this cut of the data's last range is unknown. With lenient quotes, an open quote
    /// may not count.
    #[must_use]
    pub fn is_undecided(&self, cut: &Cut) -> bool {
        let may_count = self.dialect.lenient_quotes && (cut.edge.is_unsure || cut.edge.carry.is_in_quote());
        may_count || (cut.end.is_none() && cut.edge.is_unsure)
    }

    /// Whether the bytes behind `range` decide one of these: a line ends in the range, the line that the edge cuts is a
    /// comment, or a quote at its end counts. The range's last line end is at `last`.
    fn is_unsure(&self, range: &[u8], last: Option<usize>) -> bool {
        let line = last.and_then(|last| range.get(last..));
        (self.scanner.eol() == Eol::Any && range.ends_with(b"\r"))
            || (self.dialect.lenient_quotes && range.last() == Some(&self.dialect.quote))
            || line.is_some_and(|line| self.scanner.may_be_comment(line))
    }

    /// Cuts a range whose [`Cut::unsure`] is set. `bytes` are those from the edge's record to the end of the range.
    #[must_use]
    pub fn cut_again(&self, cut: Cut, bytes: &[u8], offset: u64, edge: Edge) -> Cut {
        let found = self.search(bytes, 0);
        let suspicious = cut.suspicious || (self.marker && self.csv && self.has_marker(bytes, false));
        Cut { suspicious, ..pass(offset, edge, edge.record, edge.lines_before_record, found) }
    }

    /// Searches `bytes` for the last record end, from the record at `at` on. Lines count from there, too. Those with a
    /// quote that does not count are read one by one.
    fn search(&self, bytes: &[u8], mut at: usize) -> Found {
        let eol = self.scanner.eol();
        let (mut lines, mut ends) = (0, Vec::new());
        let stopped = loop {
            let mut state = CutState::stopping();
            self.scanner.cut(bytes.get(at..).unwrap_or_default(), &mut state);
            at += state.last.unwrap_or(0);
            lines += state.lines;
            if !state.stopped {
                break false;
            }
            let line = bytes.get(at..).unwrap_or_default();
            let next = lenient_line(&self.dialect, eol, line, &mut ends)
                .or_else(|| skip_line(&self.dialect, Some(eol), line, false).map(|(_, next, _)| next));
            let Some(next) = next else { break true };
            lines += if self.csv { Eol::count(Some(eol), line.get(..next).unwrap_or_default()) } else { 1 };
            at += next;
        };
        let behind = bytes.get(at..).unwrap_or_default();
        let lines = (lines, lines + if self.csv { Eol::count(Some(eol), behind) } else { 0 });
        let is_unsure = stopped || self.is_unsure(bytes, Some(at));
        let carry = if is_unsure { Carry::default() } else { self.scanner.carry_behind(behind) };
        Found { record: at, lines, carry, is_unsure }
    }

    /// Whether an end marker may end in `range`. In CSV a marker must begin a record; in text its backslash must not
    /// be escaped by another one. A marker that crosses the edge is found in the range behind it: its record does not
    /// end before the edge.
    fn is_suspicious(&self, range: &[u8], survey: &Survey, offset: u64, edge: Edge) -> bool {
        let crosses = if self.csv { edge.record + 1 == offset } else { edge.carry.escapes_next() };
        if crosses && range.starts_with(b".") {
            return true;
        }
        if self.csv {
            return survey.suspicious || (edge.record == offset && range.starts_with(b"\\."));
        }
        // Behind an unsure edge, the first byte may be escaped.
        ((crosses || edge.is_unsure) && self.has_marker(range, true)) || (!crosses && survey.suspicious)
    }

    /// Whether `range` may contain an end marker, not counting one at its first byte in CSV. `escape`: in text, the
    /// first byte is escaped.
    fn has_marker(&self, range: &[u8], escape: bool) -> bool {
        // Most files have no backslash, and a search for one byte takes half the time.
        let Some(first) = memchr::memchr(b'\\', range) else { return false };
        self.finder.find_iter(range.get(first..).unwrap_or_default()).any(|at| {
            let before = range.get(..first + at).unwrap_or_default();
            if self.csv {
                return before.last().is_some_and(|&b| b == b'\n' || b == b'\r');
            }
            let backslashes = before.iter().rev().take_while(|&&b| b == b'\\').count();
            let carried = backslashes == before.len() && escape;
            (backslashes + usize::from(carried)).is_multiple_of(2)
        })
    }
}
