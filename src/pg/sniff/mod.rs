//! What a file is, found out by reading some of it: dialect, header, columns, types.
//!
//! ```text
//!   first bytes ─► dialect, width, header      (pg_bulk_format::sniff: guesses)
//!   records     ─► Evidence of each column     (Judge: the server's word on each value)
//!   elsewhere   ─► more of it, where a record's beginning is beyond doubt
//! ```
//!
//! A guess that the file's own user makes wins. A sample has so many bytes in all; a file that has no more is read to its end, and
//! then what is said of it holds for each of its rows ([`Sniffed::complete`]). Of several files the first one that has a record says what they
//! are, and all are sampled; with a header that has the same names in another order, the fields of a file are those of the names, as
//! loads have it (`pg::header`).
//!
//! Nothing of this is a load: what is wrong with a line is COPY's error, but lines with more or fewer fields than others are
//! only told of.

mod evidence;
mod feed;
mod proposal;

use std::ffi::{CStr, CString};

use pg_bulk_format::dialect::{Eol, Format};
use pg_bulk_format::reader::{Reader, Value as Field};
use pg_bulk_format::sniff::dialect::{Given, dialect};
use pg_bulk_format::sniff::header::{self, Header};
use pg_bulk_format::sniff::names::names;
use pg_bulk_format::sniff::place::first_record;
use pg_bulk_format::sniff::preamble::preamble;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::evidence::Judge;
pub use self::evidence::{Evidence, Place, RuledOut};
use self::feed::{Feed, Next};
use self::proposal::{LONGEST, clip};
pub use self::proposal::{identifier, table_name};
use super::column;
use super::compat;
use super::copy_options::{self, Draft};
use super::encoding::{Encodings, shown, verify_in_server_encoding};
use super::files::FileList;
use super::option_value::{Caller, HeaderOption, Value, invalid, text};
use super::server_text::from_server;
use super::source::{Location, Source};
use crate::error::{Error, Result};

/// Options that say what a file is, in the order in which they are proposed.
pub const NAMES: &[&str] = &["format", "delimiter", "quote", "escape", "null", "header", "encoding", "compression"];

/// Bytes that are read unless somebody says how many.
const USUAL_SAMPLE: u64 = 4 << 20;
/// Bytes that tell the dialect.
const FIRST: usize = 256 * 1024;
/// Samples from the middle of a file, and bytes of each.
const PLACES: u64 = 8;
const PIECE: u64 = 128 * 1024;
/// Bytes of one of many files, at least.
const FEWEST: u64 = 64 * 1024;

/// How much is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    Bytes(u64),
    All,
}

/// What somebody wants to know, and what he knows.
#[derive(Debug, Clone)]
pub struct Request {
    caller: Caller,
    given: Vec<(String, Vec<u8>)>,
    amount: Amount,
}

/// What was found.
#[derive(Debug)]
pub struct Sniffed {
    /// Options of loads and foreign tables that read the file so.
    pub options: Vec<(String, Vec<u8>)>,
    pub format: Format,
    pub delimiter: u8,
    /// None if quotes are characters like others.
    pub quote: Option<u8>,
    pub escape: Option<u8>,
    pub header: bool,
    pub eol: Option<Eol>,
    pub compression: Option<&'static str>,
    pub records: u64,
    /// Each record was read.
    pub complete: bool,
    pub columns: Vec<SniffedColumn>,
    /// The names of the files, if they are several.
    pub files: Vec<CString>,
    pub notes: Vec<String>,
    /// Where a foreign table is not what a table is.
    pub foreign_notes: Vec<String>,
}

/// A column of a file.
#[derive(Debug)]
pub struct SniffedColumn {
    pub name: Vec<u8>,
    pub evidence: Evidence,
}

impl SniffedColumn {
    pub fn type_name(&self) -> &'static str {
        self.evidence.column_type().map_or("text", |one| one.name())
    }

    /// For a foreign table, which others read later, under settings of their own.
    pub fn foreign_type_name(&self) -> &'static str {
        self.evidence.lasting_type().map_or("text", |one| one.name())
    }
}

impl Request {
    pub fn new(caller: Caller) -> Request {
        Request { caller, given: Vec::new(), amount: Amount::Bytes(USUAL_SAMPLE) }
    }

    /// Take an option that says what the file is, or how much of it is to be read; false if it is none.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<bool> {
        if name == "sample" {
            self.amount = amount(&text(value.one(name)?))?;
            return Ok(true);
        }
        if !NAMES.contains(&name) {
            return Ok(false);
        }
        self.given.push((name.to_owned(), value.one(name)?.to_vec()));
        Ok(true)
    }

    fn bytes_of(&self, name: &str) -> Option<&[u8]> {
        self.given.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_slice())
    }

    /// One character, or a complaint that is made later, when all is known.
    fn one_byte(&self, name: &str) -> Option<u8> {
        self.bytes_of(name).and_then(|value| value.first().copied())
    }

    /// What is given, and what was guessed besides, as COPY would read it.
    fn draft(&self) -> Result<Draft> {
        let mut draft = Draft::new(self.caller);
        for (name, value) in &self.given {
            draft.set(name, &Value::Text(value.clone()))?;
        }
        Ok(draft)
    }
}

/// `all`, or a number of bytes, with a unit if one likes. Guarded.
fn amount(value: &str) -> Result<Amount> {
    if value.eq_ignore_ascii_case("all") {
        return Ok(Amount::All);
    }
    let (mut bytes, mut hint) = (0, std::ptr::null());
    let string = CString::new(value).unwrap_or_default();
    let unit = pg_sys::GUC_UNIT_BYTE.cast_signed();
    // SAFETY: a guarded call with a string, which fills what it is given.
    let is_number = unsafe { pg_sys::parse_int(string.as_ptr(), &raw mut bytes, unit, &raw mut hint) };
    match u64::try_from(bytes) {
        Ok(bytes @ 1..) if is_number => Ok(Amount::Bytes(bytes)),
        _ => Err(invalid(format!("sample \"{value}\" not recognized"))
            .hint("Valid values are \"all\" and numbers of bytes, such as \"16MB\".")),
    }
}

/// Find out what is at a location. Whether it may be read was asked before. Guarded, and interruptible.
pub fn sniff(location: &Location, request: &Request) -> Result<Sniffed> {
    // What is wrong with an option by itself is said before a file is opened.
    let draft = request.draft()?;
    let csv_only = request.bytes_of("quote").is_some() || request.bytes_of("escape").is_some();
    let mut known = draft.clone();
    if request.bytes_of("format").is_none() {
        known.set("format", &Value::Text(b"csv".to_vec()))?;
    }
    let known = known.finish()?;
    if known.shape == copy_options::Shape::Json {
        let message = "format \"json\" is not sniffed";
        return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message));
    }
    if known.shape != copy_options::Shape::Delimited {
        let format = if known.dialect.is_binary() { "binary" } else { "fixed" };
        let message = format!("format \"{format}\" is not sniffed");
        return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
            .hint("Nothing in such a file says where columns are."));
    }
    if !known.dialect.is_copys() {
        let message = "delimiters of more than one byte, or behind the last field, and quote \"none\" are not sniffed";
        return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message));
    }
    let given = Given {
        format: match request.bytes_of("format") {
            Some(b"csv") => Some(Format::Csv),
            Some(_) => Some(Format::Text),
            None if csv_only => Some(Format::Csv),
            None => None,
        },
        delimiter: request.one_byte("delimiter"),
        quote: request.one_byte("quote"),
        escape: request.one_byte("escape"),
        null: request.bytes_of("null").map(<[u8]>::to_vec),
        end_marker: compat::end_marker(),
    };
    let encodings = Encodings::new(known.encoding)?;
    let files = location.files()?;
    let list: Vec<Location> = match &files {
        Some(list) => list.files.iter().map(|file| list.location(file)).collect(),
        None => vec![location.clone()],
    };
    let mut sniffer = Sniffer {
        known: None,
        given,
        header_option: request.bytes_of("header").is_some().then_some(known.header),
        judge: Judge::new(&column::session(encodings.charset())),
        columns: Vec::new(),
        records: 0,
        complete: true,
        eol: None,
        odd: None,
        odd_records: 0,
        notes: Vec::new(),
        encoding: None,
        several: list.len() > 1,
    };
    let mut compression = None;
    for (number, file) in list.iter().enumerate() {
        let source = Source::open(file, known.compressed)?;
        let size = files.as_deref().map(FileList::size).or(source.file_size());
        let budget = match request.amount {
            Amount::All => u64::MAX,
            // All of a file that is small enough.
            Amount::Bytes(bytes) if size.is_some_and(|size| size <= bytes) && source.size().is_some() => u64::MAX,
            Amount::Bytes(bytes) if sniffer.several => (bytes / list.len() as u64).max(FEWEST.min(bytes)),
            Amount::Bytes(bytes) => bytes,
        };
        let mut feed = Feed::new(source, encodings, budget);
        // An error closes what is open when it is raised.
        sniffer.take_file(&mut feed, number, budget)?;
        compression = compression.or(feed.source().compression());
        // What is said of bytes that mean the same in each encoding has to hold in another session.
        if feed.has_others() && sniffer.encoding.is_none() {
            sniffer.encoding = encodings.foreign_name();
        }
        feed.close()?;
    }
    let files = if sniffer.several { list.iter().map(|file| file.name().to_owned()).collect() } else { Vec::new() };
    sniffer.finish(request, draft, compression, files)
}

/// What the first file said, for all of them.
#[derive(Debug, Clone)]
struct Known {
    dialect: pg_bulk_format::dialect::Dialect,
    header_lines: u64,
    /// The last of them has the names of the columns.
    has_names: bool,
    names: Option<Vec<Option<Vec<u8>>>>,
}

struct Sniffer {
    known: Option<Known>,
    given: Given,
    header_option: Option<HeaderOption>,
    judge: Judge,
    columns: Vec<Evidence>,
    records: u64,
    complete: bool,
    eol: Option<Eol>,
    /// The first record that has another number of fields: its file, its line, how many.
    odd: Option<(usize, Place, usize)>,
    odd_records: u64,
    notes: Vec<String>,
    /// The encoding to be proposed: the session's, which decided what characters are.
    encoding: Option<String>,
    several: bool,
}

fn too_many(line: u64, fields: usize) -> Error {
    let most = pg_sys::MaxHeapAttributeNumber;
    Error::new(Code::ERRCODE_TOO_MANY_COLUMNS, format!("tables can have at most {most} columns"))
        .detail(format!("Line {line} has {fields} fields."))
}

impl Sniffer {
    fn take_file(&mut self, feed: &mut Feed, file: usize, budget: u64) -> Result<()> {
        let middle = feed.source().size().filter(|&size| {
            budget != u64::MAX && !self.several && feed.has_offsets() && size > budget && budget > 2 * PLACES * PIECE
        });
        // What is for the middle is not for the start.
        let known = match self.known.clone() {
            Some(known) => known,
            None => match self.begin(feed)? {
                Some(known) => known,
                None => return Ok(()),
            },
        };
        let mut reader = feed.reader(&known.dialect, known.header_lines);
        let mut order: Vec<usize> = Vec::new();
        let mut headers = 0;
        let start_budget = middle.map_or(u64::MAX, |_| budget - PLACES * PIECE);
        loop {
            match feed.advance(&mut reader)? {
                Next::Header => {
                    headers += 1;
                    // The last one is next to the data.
                    if headers < known.header_lines || !known.has_names {
                        continue;
                    }
                    let names = header::fields(&reader);
                    if names.len() > pg_sys::MaxHeapAttributeNumber as usize {
                        return Err(too_many(reader.line_number(), names.len()));
                    }
                    names.iter().flatten().for_each(|name| verify_in_server_encoding(name));
                    match self.known.as_ref().and_then(|known| known.names.as_ref()) {
                        Some(first) => order = order_of(first, &names),
                        None => self.name(names),
                    }
                }
                Next::Record => {
                    if self.eol.is_none() {
                        self.eol = reader.place_behind().map(|place| place.eol);
                    }
                    self.take_record(&reader, file, &order, None)?;
                    if start_budget != u64::MAX && reader.record_offset() > start_budget {
                        self.complete = false;
                        break;
                    }
                }
                Next::End => break,
                Next::Enough => {
                    self.complete = false;
                    break;
                }
            }
        }
        if self.columns.is_empty() && !feed.is_whole() {
            let message = "no record ends within the sample";
            return Err(Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message)
                .hint("Say how many bytes may be read with the option \"sample\"."));
        }
        if let Some(size) = middle.filter(|_| !self.complete) {
            self.take_middle(feed, &known, file, start_budget, size)?;
        }
        Ok(())
    }

    /// The dialect and the header of the first file that has anything. None if this one has not.
    fn begin(&mut self, feed: &mut Feed) -> Result<Option<Known>> {
        let sample = feed.first(FIRST)?.to_vec();
        let whole = feed.is_whole();
        if sample.is_empty() {
            return Ok(None);
        }
        let dialect = dialect(&sample, whole, &self.given);
        let (header_lines, has_names) = match self.header_option {
            Some(HeaderOption::Lines(lines)) => (lines, lines > 0),
            Some(HeaderOption::Match) => (1, true),
            None => {
                // Not in front of each of several files.
                let ahead = if self.several { 0 } else { preamble(&sample, whole, &dialect) };
                self.find_header(&sample, whole, &dialect, ahead)
            }
        };
        let known = Known { dialect, header_lines, has_names, names: None };
        self.known = Some(known.clone());
        Ok(Some(known))
    }

    /// How many lines are in front of the data, and whether the last one has names.
    fn find_header(
        &mut self,
        sample: &[u8],
        whole: bool,
        dialect: &pg_bulk_format::dialect::Dialect,
        ahead: usize,
    ) -> (u64, bool) {
        match ahead {
            0 => (),
            1 => self.notes.push("line 1 is in front of the table".to_owned()),
            _ => self.notes.push(format!("lines 1 to {ahead} are in front of the table")),
        }
        let line = ahead + 1;
        let has_names = match header::header(sample, whole, dialect, ahead) {
            Header::Column(column) => {
                let field = column + 1;
                self.notes.push(format!("header: field {field} of line {line} is not like the values below it"));
                true
            }
            Header::Words => {
                self.notes.push(format!("header: the fields of line {line} are names that columns often have"));
                true
            }
            Header::None => false,
        };
        (ahead as u64 + u64::from(has_names), has_names)
    }

    fn name(&mut self, names: Vec<Option<Vec<u8>>>) {
        if let Some(known) = &mut self.known {
            if self.columns.len() < names.len() && self.records == 0 {
                self.columns.resize_with(names.len(), Evidence::default);
            }
            known.names = Some(names);
        }
    }

    fn take_record(&mut self, reader: &Reader, file: usize, order: &[usize], offset: Option<u64>) -> Result<()> {
        if self.records.is_multiple_of(1024) {
            pgrx::check_for_interrupts!();
        }
        let fields = reader.fields();
        if fields > pg_sys::MaxHeapAttributeNumber as usize {
            return Err(too_many(reader.line_number(), fields));
        }
        if self.columns.is_empty() {
            self.columns.resize_with(fields, Evidence::default);
        }
        let place =
            || offset.map_or_else(|| Place::Line(reader.line_number()), |_| Place::Offset(reader.record_offset()));
        if fields != self.columns.len() {
            self.odd_records += 1;
            if self.odd.is_none() {
                self.odd = Some((file, place(), fields));
            }
            return Ok(());
        }
        self.records += 1;
        let is_csv = reader.dialect().is_csv();
        let can_force = is_csv && reader.dialect().null.is_empty();
        let mut unescaped = Vec::new();
        let record = reader.record();
        for field in 0..fields {
            let column = order.get(field).copied().unwrap_or(field);
            let Some(evidence) = self.columns.get_mut(column) else { continue };
            let value = match record.value(field) {
                Field::Null | Field::Default => {
                    evidence.take_null();
                    continue;
                }
                Field::Plain(value) => value,
                Field::Escaped(raw) => {
                    unescaped.clear();
                    if reader.unescape(raw, &mut unescaped) {
                        verify_in_server_encoding(&unescaped);
                    }
                    &unescaped
                }
            };
            if can_force && value.is_empty() {
                evidence.take_empty_quotes();
            } else {
                evidence.take(&mut self.judge, value, file, place)?;
            }
        }
        Ok(())
    }

    /// Samples from the middle of a file, and from its end.
    fn take_middle(&mut self, feed: &mut Feed, known: &Known, file: usize, start: u64, size: u64) -> Result<()> {
        let Some(eol) = self.eol else { return Ok(()) };
        let (width, behind) = (self.columns.len(), size - start);
        let mut passed = 0;
        for place in 0..PLACES {
            // The last one ends with the file.
            let offset = start + behind / PLACES * place + behind % PLACES + (behind / PLACES).saturating_sub(PIECE);
            let bytes = feed.sample_at(offset, usize::try_from(PIECE).unwrap_or(0))?;
            let Some(first) = first_record(&bytes, &known.dialect, eol, width) else {
                passed += 1;
                continue;
            };
            let bytes = bytes.get(first..).unwrap_or_default();
            let offset = offset + first as u64;
            feed.each_record(bytes, &known.dialect, eol, offset, |reader| {
                self.take_record(reader, file, &[], Some(offset))
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

    fn finish(
        mut self,
        request: &Request,
        mut draft: Draft,
        compression: Option<&'static str>,
        files: Vec<CString>,
    ) -> Result<Sniffed> {
        let Some(known) = self.known.take() else { return self.nothing(request, draft, compression, files) };
        self.judge.close();
        let d = &known.dialect;
        let mut options = request.given.clone();
        let mut propose = |name: &str, value: Vec<u8>| -> Result<()> {
            if request.bytes_of(name).is_none() {
                draft.set(name, &Value::Text(value.clone()))?;
                options.push((name.to_owned(), value));
            }
            Ok(())
        };
        propose("format", if d.is_csv() { b"csv".to_vec() } else { b"text".to_vec() })?;
        propose("delimiter", vec![d.delimiter])?;
        if d.is_csv() && d.quote != b'"' {
            propose("quote", vec![d.quote])?;
        }
        if d.is_csv() && d.escape != d.quote {
            propose("escape", vec![d.escape])?;
        }
        let header = match known.header_lines {
            0 => "false".to_owned(),
            1 => "true".to_owned(),
            lines => lines.to_string(),
        };
        propose("header", header.into_bytes())?;
        if let Some(encoding) = &self.encoding {
            propose("encoding", encoding.clone().into_bytes())?;
        }
        let place = |name: &str| NAMES.iter().position(|known| *known == name);
        options.sort_by_key(|(name, _)| place(name));
        // COPY has the last word on what goes together.
        draft.finish()?;
        let names = names(known.names.as_deref(), self.columns.len(), LONGEST, clip);
        let columns: Vec<_> =
            names.into_iter().zip(self.columns).map(|(name, evidence)| SniffedColumn { name, evidence }).collect();
        let is_real = |character: u8| character >= b' ';
        if d.is_csv() && !is_real(d.quote) {
            self.notes
                .push("quotes are characters like others: the option quote is one that does not occur".to_owned());
        }
        for column in columns.iter().filter(|column| column.evidence.wants_force_null()) {
            let name = from_server(&CString::new(column.name.as_slice()).unwrap_or_default());
            self.notes.push(format!("column \"{name}\": empty values in quotes are NULL (force_null)"));
        }
        for column in columns.iter().filter(|column| column.evidence.is_ambiguous()) {
            let name = from_server(&CString::new(column.name.as_slice()).unwrap_or_default());
            self.notes
                .push(format!("column \"{name}\": it is not certain whether dates have the day or the month first"));
        }
        let mut foreign_notes = Vec::new();
        for column in columns.iter().filter(|column| column.type_name() != column.foreign_type_name()) {
            let name = from_server(&CString::new(column.name.as_slice()).unwrap_or_default());
            let kind = column.type_name();
            foreign_notes.push(format!(
                "column \"{name}\": {kind} by the datestyle of this session only, so it is text in a foreign table"
            ));
        }
        if let Some((file, place, fields)) = self.odd {
            let line = match place {
                Place::Line(line) => format!("line {line}"),
                Place::Offset(offset) => format!("the line at byte {offset}"),
            };
            let of = files.get(file).map(|file| format!(" of file \"{}\"", shown(file))).unwrap_or_default();
            let (all, expected) = (self.odd_records, columns.len());
            self.notes.push(format!(
                "fields of {line}{of}: {fields}, not {expected} (lines like that: {all}); a load fails there"
            ));
        }
        Ok(Sniffed {
            options,
            format: d.format,
            delimiter: d.delimiter,
            quote: Some(d.quote).filter(|&quote| d.is_csv() && is_real(quote)),
            escape: Some(d.escape).filter(|&escape| d.is_csv() && is_real(escape)),
            header: known.has_names,
            eol: self.eol,
            compression,
            records: self.records,
            complete: self.complete,
            columns,
            files,
            notes: self.notes,
            foreign_notes,
        })
    }

    /// There is not a byte.
    fn nothing(
        mut self,
        request: &Request,
        draft: Draft,
        compression: Option<&'static str>,
        files: Vec<CString>,
    ) -> Result<Sniffed> {
        self.judge.close();
        let dialect = draft.finish()?.dialect;
        self.notes.push("there is no data".to_owned());
        Ok(Sniffed {
            options: request.given.clone(),
            format: dialect.format,
            delimiter: dialect.delimiter,
            quote: Some(dialect.quote).filter(|_| dialect.is_csv()),
            escape: Some(dialect.escape).filter(|_| dialect.is_csv()),
            header: false,
            eol: None,
            compression,
            records: 0,
            complete: true,
            columns: Vec::new(),
            files,
            notes: self.notes,
            foreign_notes: Vec::new(),
        })
    }
}

/// Which column each field is for, where a header has the names of the first one in another order; else none.
fn order_of(first: &[Option<Vec<u8>>], names: &[Option<Vec<u8>>]) -> Vec<usize> {
    if first == names || first.len() != names.len() {
        return Vec::new();
    }
    let place = |name: &Option<Vec<u8>>| first.iter().position(|known| known == name && name.is_some());
    let places: Option<Vec<usize>> = names.iter().map(place).collect();
    places.filter(|places| (0..first.len()).all(|i| places.contains(&i))).unwrap_or_default()
}

impl Sniffed {
    /// The file that a piece of evidence is from, if there are several.
    pub fn file_of(&self, ruled: &RuledOut) -> Option<&CStr> {
        self.files.get(ruled.file).map(CString::as_c_str)
    }
}
