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
mod finding;
mod proposal;
mod request;
mod sample;

use std::ffi::{CStr, CString};

use pg_bulk_format::dialect::{Dialect, Eol, Format};
use pg_bulk_format::sniff::dialect::Given;
use pgrx::PgSqlErrorCode as Code;

use self::evidence::Judge;
pub use self::evidence::{Evidence, Place, RuledOut};
use self::feed::Feed;
pub use self::proposal::{identifier, table_name};
use self::request::Amount;
pub use self::request::Request;
use super::column;
use super::compat;
use super::copy_options;
use super::encoding::Encodings;
use super::files::FileList;
use super::option_value::{HeaderOption, Value};
use super::source::{Location, Source};
use crate::error::{Error, Result};

/// Options that say what a file is, in the order in which they are proposed.
pub const NAMES: &[&str] = &["format", "delimiter", "quote", "escape", "null", "header", "encoding", "compression"];

/// Bytes of one of many files, at least.
const FEWEST: u64 = 64 * 1024;

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
    /// Records that have another number of fields.
    pub odd_records: u64,
    /// Each record was read.
    pub complete: bool,
    pub columns: Vec<SniffedColumn>,
    /// The names of the files, if they are several.
    pub files: Vec<CString>,
    pub notes: Vec<String>,
    /// Where a foreign table is not what a table is.
    pub foreign_notes: Vec<String>,
}

impl Sniffed {
    /// The file that a piece of evidence is from, if there are several.
    pub fn file_of(&self, ruled: &RuledOut) -> Option<&CStr> {
        self.files.get(ruled.file).map(CString::as_c_str)
    }
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
            .hint("Such a file does not say where its columns are."));
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
    dialect: Dialect,
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
