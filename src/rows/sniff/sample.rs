//! Reads the sample of a file: dialect and header from the first bytes, then records, up to the budget.
//!
//! Of a larger file, part of the budget is for positions in its middle. The tricky point is the beginning of a record
//! there: if it is not certain, the position is skipped, and a note says so.

use pg_bulk_text::dialect::Dialect;
use pg_bulk_text::fixed::Trim;
use pg_bulk_text::reader::{ReadError, Reader, Value as Field};
use pg_bulk_text::sniff::dialect::detect;
use pg_bulk_text::sniff::finding::{Finding, Oddity};
use pg_bulk_text::sniff::header::{self, Header};
use pg_bulk_text::sniff::place::first_record;
use pgrx::pg_sys;

use super::evidence::{Evidence, ValuePosition};
use super::feed::{Feed, FeedStep};
use super::{FileFindings, Sniffer};
use crate::error::Result;
use crate::input::encoding::mend_in_server_encoding;
use crate::rows::ragged::{LongRows, ShortRows};
use crate::server::copy_errors::read_error;
use crate::server::option_value::HeaderOption;

/// The most columns of a table.
pub(super) const MOST_COLUMNS: usize = pg_sys::MaxHeapAttributeNumber as usize;
/// Bytes that determine the dialect.
const FIRST: usize = 256 * 1024;
/// Number of samples from the middle of a file, and bytes of each.
const PLACES: u64 = 8;
const PIECE: u64 = 128 * 1024;

impl Sniffer {
    pub(super) fn take_file(&mut self, feed: &mut Feed, file: usize, budget: u64) -> Result<()> {
        let middle = feed.source().size().filter(|&size| {
            budget != u64::MAX
                && !self.several
                && self.keys.is_none()
                && feed.has_offsets()
                && size > budget
                && budget > 2 * PLACES * PIECE
        });
        // The budget of the middle is not spent on the start.
        let known = match self.known.clone() {
            Some(known) => known,
            None => match self.begin(feed)? {
                Some(known) => known,
                None => return Ok(()),
            },
        };
        let mut reader = Feed::reader(&known.dialect, known.header_lines);
        let mut order: Vec<usize> = Vec::new();
        let mut headers = 0;
        let start_budget = middle.map_or(u64::MAX, |_| budget - PLACES * PIECE);
        loop {
            match feed.advance(&mut reader)? {
                FeedStep::Header => {
                    headers += 1;
                    self.note_replaced(feed, &reader, file, None);
                    // The last header line is next to the data.
                    if headers < known.header_lines || !known.has_names {
                        continue;
                    }
                    let names = header::fields(&reader);
                    self.header_line = reader.raw_line().map(<[u8]>::to_vec);
                    match self.known.as_ref().and_then(|known| known.names.as_ref()) {
                        Some(first) => order = order_of(first, &names),
                        None => self.name(names),
                    }
                }
                FeedStep::Record => {
                    if self.eol.is_none() {
                        self.eol = reader.place_behind().map(|place| place.eol);
                    }
                    self.note_replaced(feed, &reader, file, None);
                    self.take_record(&reader, file, &order, None)?;
                    if start_budget != u64::MAX && reader.record_offset() > start_budget {
                        self.complete = false;
                        break;
                    }
                }
                FeedStep::Error(error) => {
                    self.take_error(error, &reader, file, None);
                    if !reader.goes_on() {
                        self.complete = false;
                        break;
                    }
                }
                FeedStep::End => {
                    if feed.ended_early(&reader)? {
                        let reason = || "ends the data: it is \\.".to_owned();
                        self.trial.marker.add(file, || ValuePosition::Line(reader.line_number()), reason);
                    }
                    break;
                }
                FeedStep::Enough => {
                    self.complete = false;
                    break;
                }
            }
        }
        if self.columns.is_empty() && !feed.is_whole() {
            self.notes.push("no record ends within the sample: allow more bytes with the option \"sample\"".to_owned());
        }
        if let Some(size) = middle.filter(|_| !self.complete) {
            self.take_middle(feed, &known, file, start_budget, size)?;
        }
        Ok(())
    }

    /// Count a record that no load can read.
    fn take_error(&mut self, error: ReadError, reader: &Reader, file: usize, offset: Option<u64>) {
        let format = reader.dialect().format;
        self.trial.unreadable.add(
            file,
            || place(reader, offset),
            || {
                let error = read_error(error, format);
                format!("cannot be read: {}", error.message())
            },
        );
    }

    /// Count the record if bytes in it were replaced.
    fn note_replaced(&mut self, feed: &mut Feed, reader: &Reader, file: usize, offset: Option<u64>) {
        if feed.were_replaced(reader.record_offset() + reader.record_len() as u64) {
            let encoding = feed.encodings().0.name();
            self.trial.invalid.add(
                file,
                || place(reader, offset),
                || format!("has bytes that are invalid in encoding \"{encoding}\""),
            );
        }
    }

    /// Find the dialect and the header, from the first file that is not empty. None if this one is empty.
    fn begin(&mut self, feed: &mut Feed) -> Result<Option<FileFindings>> {
        let sample = feed.first(FIRST)?.to_vec();
        let whole = feed.is_whole();
        if sample.is_empty() {
            return Ok(None);
        }
        if self.keys.is_some() {
            let dialect = Dialect::json();
            let known = FileFindings { dialect, header_lines: 0, has_names: false, trim: Trim::None, names: None };
            self.known = Some(known.clone());
            return Ok(Some(known));
        }
        let found = detect(&sample, whole, &self.given.options);
        let (comments, line) = found.comments;
        if self.given.options.comment.is_none() && comments > 0 {
            let mark = String::from_utf8_lossy(&found.dialect.comment);
            self.notes.push(format!(
                "line {line} begins with \"{mark}\" (such lines: {comments}); they are not read (comment)"
            ));
        }
        let strays = || found.odd.iter().filter(|odd| odd.oddity == Oddity::StrayQuote);
        if self.given.options.lenient_quotes.is_none()
            && found.dialect.lenient_quotes
            && let Some(first) = strays().next()
        {
            let (line, count) = (first.line, strays().count());
            self.notes.push(format!(
                "line {line} has a quote within a field (such lines: {count}); it is kept (lenient_quotes)"
            ));
        }
        let (header_lines, has_names, names) = match self.given.header {
            Some(HeaderOption::Lines(lines)) => (lines, lines > 0, None),
            Some(HeaderOption::Match) => (1, true, None),
            None => {
                let (lines, header) = self.find_header(&sample, whole, &found);
                (lines, header.is_some(), header.and_then(|header| header.names))
            }
        };
        let known = FileFindings { dialect: found.dialect, header_lines, has_names, trim: found.trim, names: None };
        self.known = Some(known.clone());
        if let Some(mut names) = names {
            names.iter_mut().flatten().for_each(|name| mend_in_server_encoding(name, 0));
            self.name(names);
        }
        Ok(Some(known))
    }

    /// The number of lines in front of the data, and the header among them.
    fn find_header(&mut self, sample: &[u8], whole: bool, found: &Finding) -> (u64, Option<Header>) {
        let lines_of = |wanted| found.odd.iter().filter(move |odd| odd.oddity == wanted).map(|odd| odd.line);
        // Several files have no preamble each.
        let ahead = if self.several { 0 } else { found.ahead };
        let header = header::header(sample, whole, &found.dialect, ahead);
        // The last line in front may have the names.
        let titles = header.as_ref().map_or(ahead, |header| header.ahead);
        let in_front = || lines_of(Oddity::Ahead);
        let place = |first, last| {
            let (first, last): (usize, usize) = (first?, last?);
            Some(if first == last { format!("line {first} is") } else { format!("lines {first} to {last} are") })
        };
        if let Some(lines) = place(in_front().next(), in_front().take(titles).last()).filter(|_| titles > 0) {
            self.notes.push(format!("{lines} in front of the table, and not read (header)"));
        }
        if let Some(lines) = place(lines_of(Oddity::Behind).next(), lines_of(Oddity::Behind).next_back()) {
            self.notes.push(format!("{lines} behind the table: a load reads them as rows"));
        }
        let Some(header) = header else { return (ahead as u64, None) };
        let line = in_front().nth(titles).unwrap_or(found.first_line);
        let last = line + header.lines - 1;
        let reason = match header.evidence {
            header::Evidence::Family(column) => {
                format!("header: field {} of line {line} is not like the values below it", column + 1)
            }
            header::Evidence::Form(column) => {
                format!("header: field {} of line {line} has another form than the values below it", column + 1)
            }
            header::Evidence::Bare => format!("header: below line {line} all fields are empty"),
        };
        self.notes.push(reason);
        if header.lines > 1 {
            self.notes.push(format!(
                "the header has lines {line} to {last}: names are from the line with most names, and gaps are filled from the others"
            ));
        }
        if header.lines == 1 && header.names.is_some() {
            self.notes.push(format!("line {line} has no name for the first column"));
        }
        ((titles + header.lines) as u64, Some(header))
    }

    fn name(&mut self, names: Vec<Option<Vec<u8>>>) {
        if let Some(known) = &mut self.known {
            if self.columns.is_empty() && self.records == 0 {
                self.columns.resize_with(names.len().min(MOST_COLUMNS), Evidence::default);
                self.width = names.len();
            }
            known.names = Some(names);
        }
    }

    fn take_record(&mut self, reader: &Reader, file: usize, order: &[usize], offset: Option<u64>) -> Result<()> {
        if self.records.is_multiple_of(1024) {
            pgrx::check_for_interrupts!();
        }
        if self.keys.is_some() {
            return self.take_object(reader, file);
        }
        let fields = reader.fields();
        if self.columns.is_empty() {
            self.columns.resize_with(fields.min(MOST_COLUMNS), Evidence::default);
            self.width = fields;
        }
        let place = || place(reader, offset);
        if self.header_line.is_some() && reader.raw_line() == self.header_line.as_deref() {
            self.trial.repeated.add(file, place, || "repeats the header".to_owned());
            return Ok(());
        }
        if fields != self.width {
            let (width, ragged) = (self.width, self.given.ragged);
            let reason = || format!("has {fields} fields instead of {width}");
            let is_row = if fields > width {
                self.trial.long.add(file, place, reason);
                if ragged.long_rows.is_none() && fields.min(MOST_COLUMNS) > self.columns.len() {
                    let known = self.columns.len();
                    self.columns.resize_with(fields.min(MOST_COLUMNS), Evidence::default);
                    // Rows before have no such fields.
                    let has_rows = self.records > 0;
                    self.columns.iter_mut().skip(known).filter(|_| has_rows).for_each(Evidence::take_null);
                }
                ragged.long_rows != Some(LongRows::Error)
            } else if ragged.short_rows.is_none() && is_blank(reader) {
                self.trial.blank.add(file, place, || "is blank".to_owned());
                false
            } else {
                self.trial.short.add(file, place, reason);
                ragged.short_rows != Some(ShortRows::Error)
            };
            if !is_row {
                return Ok(());
            }
        }
        self.records += 1;
        let is_csv = reader.dialect().is_csv();
        let has_line_end = |line: &[u8]| memchr::memchr2(b'\n', b'\r', line).is_some();
        if is_csv && !self.trial.spans_early && reader.raw_line().is_some_and(has_line_end) {
            if file == 0 && offset.is_none() && reader.record_offset() < FIRST as u64 {
                self.trial.spans_early = true;
            } else {
                self.trial.spanning.add(file, place, || "has line ends in quotes".to_owned());
            }
        }
        let can_force = is_csv && reader.dialect().null.is_empty();
        let mut unescaped = Vec::new();
        let record = reader.record();
        let trim = self.known.as_ref().map_or(Trim::None, |known| known.trim);
        for field in 0..fields.min(self.columns.len()) {
            let column = order.get(field).copied().unwrap_or(field);
            let Some(evidence) = self.columns.get_mut(column) else { continue };
            let value = match record.trimmed(field, trim) {
                Field::Null | Field::Default => {
                    evidence.take_null();
                    continue;
                }
                Field::Plain(value) => value,
                Field::Escaped(raw) => {
                    unescaped.clear();
                    if reader.unescape(raw, &mut unescaped) {
                        mend_in_server_encoding(&mut unescaped, 0);
                    }
                    &unescaped
                }
            };
            if can_force && value.is_empty() {
                evidence.take_empty_quotes();
            } else {
                evidence.take(&mut self.validator, value, file, place)?;
            }
        }
        // A short record has NULLs behind its fields.
        for field in fields..self.columns.len() {
            let column = order.get(field).copied().unwrap_or(field);
            self.columns.get_mut(column).into_iter().for_each(Evidence::take_null);
        }
        Ok(())
    }

    /// Read samples from the middle of a file, and from its end.
    fn take_middle(&mut self, feed: &mut Feed, known: &FileFindings, file: usize, start: u64, size: u64) -> Result<()> {
        let Some(eol) = self.eol else { return Ok(()) };
        let (width, behind) = (self.width, size - start);
        let mut passed = 0;
        for place in 0..PLACES {
            // The last sample ends with the file.
            let offset = start + behind / PLACES * place + behind % PLACES + (behind / PLACES).saturating_sub(PIECE);
            let bytes = feed.sample_at(offset, usize::try_from(PIECE).unwrap_or(0))?;
            let Some(first) = first_record(&bytes, &known.dialect, eol, width) else {
                passed += 1;
                continue;
            };
            let bytes = bytes.get(first..).unwrap_or_default();
            let offset = offset + first as u64;
            // Those in front of the first record are in none that is examined.
            let _ = feed.were_replaced(offset);
            Feed::each_record(bytes, &known.dialect, eol, offset, |reader, error| {
                self.note_replaced(feed, reader, file, Some(offset));
                match error {
                    None => self.take_record(reader, file, &[], Some(offset)),
                    Some(error) => {
                        self.take_error(error, reader, file, Some(offset));
                        Ok(())
                    }
                }
            })?;
        }
        if passed > 0 {
            let message = format!(
                "{passed} of {PLACES} places in the file were not sampled: it is not certain where a record begins there"
            );
            self.notes.push(message);
        }
        Ok(())
    }
}

/// The column of each field, if a header has the names of the first one in another order; else an empty list.
fn order_of(first: &[Option<Vec<u8>>], names: &[Option<Vec<u8>>]) -> Vec<usize> {
    if first == names || first.len() != names.len() {
        return Vec::new();
    }
    let place = |name: &Option<Vec<u8>>| first.iter().position(|known| known == name && name.is_some());
    let places: Option<Vec<usize>> = names.iter().map(place).collect();
    places.filter(|places| (0..first.len()).all(|i| places.contains(&i))).unwrap_or_default()
}

/// The position of the reader's record, by its offset if lines are not counted.
pub(super) fn place(reader: &Reader, offset: Option<u64>) -> ValuePosition {
    offset.map_or_else(|| ValuePosition::Line(reader.line_number()), |_| ValuePosition::Offset(reader.record_offset()))
}

/// Whether the current line has nothing but blanks and tabs that are no delimiters.
fn is_blank(reader: &Reader) -> bool {
    reader.raw_line().is_some_and(|line| line.iter().all(|&byte| reader.dialect().is_blank(byte)))
}
