//! Finds the dialect, header, columns and types of a file from a sample of it.
//!
//! ```text
//!   first bytes ─► dialect, width, header      (pg_bulk_text::sniff: guesses)
//!   records     ─► Evidence of each column     (Validator: the server accepts or rejects each value)
//!   elsewhere   ─► more records, where the beginning of one is certain
//! ```
//!
//! Options of the caller override guesses. The sample has a limited number of bytes. A smaller file is read to its end,
//! and then the result holds for each of its rows ([`Sniffed::complete`]). If there are several files, the first one
//! with a record determines the dialect, and all are sampled. If headers have the same names in another order, fields
//! are matched by name, as in loads (`rows::row::header`).
//!
//! This is not a load. A record that a load would reject is counted, and a note has its line.

mod encoding;
mod evidence;
mod feed;
mod finding;
mod keys;
mod proposal;
mod rejects;
mod request;
mod sample;

use std::ffi::{CStr, CString};

use pg_bulk_text::dialect::{Dialect, Eol, Format};
use pg_bulk_text::file_kind::{self, FileKind};
use pg_bulk_text::fixed::Trim;
use pg_bulk_text::json_lines;
use pg_bulk_text::separator::Separator;
use pg_bulk_text::sniff::dialect::GivenOptions;
use pg_bulk_text::utf16::Order;
use pgrx::PgSqlErrorCode as Code;

use self::evidence::Validator;
pub use self::evidence::{Evidence, RuledOut, ValuePosition};
use self::feed::Feed;
use self::keys::Keys;
pub use self::proposal::{identifier, table_name};
use self::rejects::Trial;
use self::request::Amount;
pub use self::request::Request;
use super::column;
use super::copy_options::RecordShape;
use super::ragged::RaggedOptions;
use crate::error::{Error, Result};
use crate::input::coding::Utf16;
use crate::input::encoding::{Encodings, shown};
use crate::input::files::FileList;
use crate::input::source::{Location, Source};
use crate::server::compat;
use crate::server::option_value::{HeaderOption, OptionValue};

/// Options that describe a file, in the order of the result.
pub const NAMES: &[&str] = &[
    "format", "delimiter", "trailing_delimiter", "skip_blank_lines", "comment", "line_end", "quote", "escape",
    "lenient_quotes", "null", "default", "trim", "null_if", "header", "encoding", "compression", "short_rows",
    "long_rows",
];

/// Bytes that show the encoding, and whether a file is JSON.
const FIRST: usize = 64 * 1024;
/// Smallest number of bytes that are read of one of several files.
const FEWEST: u64 = 64 * 1024;

/// The result.
#[derive(Debug)]
pub struct Sniffed {
    /// Options for loads and foreign tables that read the file.
    pub options: Vec<(String, OptionValue)>,
    pub dialect: Dialect,
    pub header: bool,
    /// The encoding in which the file was read.
    pub encoding: String,
    pub eol: Option<Eol>,
    pub compression: Option<&'static str>,
    pub records: u64,
    /// Records that a load rejects.
    pub rejects: u64,
    /// Each record was read.
    pub complete: bool,
    pub columns: Vec<SniffedColumn>,
    /// The names of the files, if there are several.
    pub files: Vec<CString>,
    pub notes: Vec<String>,
    /// Notes about differences between the foreign table and the table.
    pub foreign_notes: Vec<String>,
}

impl Sniffed {
    /// The quote; None if quotes are ordinary characters.
    pub fn quote(&self) -> Option<u8> {
        Some(self.dialect.quote).filter(|_| self.dialect.is_csv())
    }

    pub fn escape(&self) -> Option<u8> {
        Some(self.dialect.escape).filter(|_| self.dialect.is_csv())
    }

    /// The file in which a type was ruled out, if there are several.
    pub fn file_of(&self, ruled: &RuledOut) -> Option<&CStr> {
        self.files.get(ruled.file).map(CString::as_c_str)
    }
}

/// A column of a file.
#[derive(Debug)]
pub struct SniffedColumn {
    pub name: Vec<u8>,
    /// The key in JSON, if it is not the name.
    pub key: Option<Vec<u8>>,
    pub evidence: Evidence,
}

impl SniffedColumn {
    pub fn type_name(&self) -> &'static str {
        self.evidence.column_type().map_or("text", |one| one.name())
    }

    /// The type in a foreign table, which other users read later, under settings of their own.
    pub fn foreign_type_name(&self) -> &'static str {
        self.evidence.lasting_type().map_or("text", |one| one.name())
    }
}

/// Sniff the file at a location. The caller has checked the privilege to read it. Guarded, and interruptible.
pub fn sniff(location: &Location, request: &Request) -> Result<Sniffed> {
    let (mut request, csv) = (request.clone(), OptionValue::Text(b"csv".to_vec()));
    let is_open = |name: &str| request.bytes_of(name).is_none();
    let lenient = request.bytes_of("lenient_quotes").is_some_and(|value| !matches!(value, b"false" | b"off" | b"0"));
    if is_open("format") && (lenient || !is_open("quote") || !is_open("escape")) {
        request.set("format", &csv)?;
    }
    // Invalid options are reported before a file is opened.
    let mut draft = request.draft()?;
    let mut known = draft.clone();
    if request.bytes_of("format").is_none() {
        known.set("format", &csv)?;
    }
    let mut known = known.finish()?;
    if !matches!(known.shape(), RecordShape::Delimited | RecordShape::Json) {
        let format = if known.dialect.is_binary() { "binary" } else { "fixed" };
        let message = format!("format \"{format}\" is not sniffed");
        return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
            .hint("Such a file does not say where its columns are."));
    }
    // An explicit number of header lines counts lines that are no records, too.
    let counts_lines = request.bytes_of("header").is_some() && matches!(known.header, HeaderOption::Lines(2..));
    let is_open = |name: &str| request.bytes_of(name).is_none() && !counts_lines;
    let options = GivenOptions {
        format: match request.bytes_of("format") {
            _ if known.dialect.format == Format::Unquoted => Some(Format::Unquoted),
            Some(b"csv") => Some(Format::Csv),
            Some(_) => Some(Format::Text),
            None => None,
        },
        delimiter: request.bytes_of("delimiter").and_then(Separator::new),
        quote: request.one_byte("quote").filter(|_| known.dialect.is_csv()),
        escape: request.one_byte("escape"),
        trailing: request.bytes_of("trailing_delimiter").map(|_| known.dialect.trailing),
        trim: known.fields.trim(),
        default: known.dialect.default.clone(),
        skip_blank_lines: (!is_open("skip_blank_lines")).then_some(known.dialect.skip_blank_lines),
        comment: (!is_open("comment")).then(|| known.dialect.comment.clone()),
        lenient_quotes: request.bytes_of("lenient_quotes").map(|_| known.dialect.lenient_quotes),
        line_end: known.dialect.line_end,
        null: request.bytes_of("null").map(<[u8]>::to_vec),
        end_marker: compat::end_marker(),
    };
    let header = request.bytes_of("header").is_some().then_some(known.header);
    let given = Given { options, header, ragged: known.ragged };
    let session = Encodings::new(None)?;
    let (mut encodings, mut is_known) = match known.encoding {
        Some(encoding) => (Encodings::new(Some(encoding))?, true),
        None => (session, false),
    };
    let files = location.files()?;
    let list: Vec<Location> = match &files {
        Some(list) => list.files.iter().map(|file| list.location(file)).collect(),
        None => vec![location.clone()],
    };
    let mut sniffer = Sniffer {
        known: None,
        given,
        validator: Validator::new(&column::session(encodings.charset()), known.fields.nulls().cloned()),
        columns: Vec::new(),
        records: 0,
        complete: true,
        eol: None,
        header_line: None,
        width: 0,
        trial: Trial::default(),
        keys: (known.shape() == RecordShape::Json).then(|| Keys::new(session.charset())),
        notes: Vec::new(),
        encoding: encodings.name(),
        encoding_option: None,
        several: list.len() > 1,
    };
    let (mut compression, mut utf16, mut is_mixed) = (None, None, false);
    // Other options say that the file has fields.
    let may_be_json =
        request.given.iter().all(|(name, _)| matches!(name.as_str(), "null_if" | "encoding" | "compression"));
    for (number, file) in list.iter().enumerate() {
        let mut source = Source::open(file, known.coding())?;
        let (of_encoding, of_format) = (known.encoding.is_none(), may_be_json && sniffer.known.is_none());
        if source.file_size().is_some() && (of_encoding || of_format) {
            let first = source.start(FIRST)?;
            if of_format && json_lines::has_objects(&first, first.len() < FIRST) {
                draft.set("format", &OptionValue::Text(b"json".to_vec()))?;
                known = draft.clone().finish()?;
                sniffer.keys = Some(Keys::new(session.charset()));
            }
            let mut coding = known.coding();
            if of_encoding && let Some(order) = Order::by_evidence(first.get(..4096).unwrap_or(&first)) {
                coding.utf16 = Utf16::Always(order);
            }
            source.read_anew(coding)?;
        }
        let size = files.as_deref().map(FileList::size).or(source.file_size());
        let budget = match request.amount {
            Amount::All => u64::MAX,
            // A file that is small enough is read whole.
            Amount::Bytes(bytes) if size.is_some_and(|size| size <= bytes) && source.size().is_some() => u64::MAX,
            Amount::Bytes(bytes) if sniffer.several => (bytes / list.len() as u64).max(FEWEST.min(bytes)),
            Amount::Bytes(bytes) => bytes,
        };
        let mut feed = Feed::new(source, encodings, is_known, budget);
        // When an error is raised, the server closes the files.
        sniffer.take_file(&mut feed, number, budget)?;
        let note = kind_note(&feed.source().first(), sniffer.keys.is_some());
        let note = note.filter(|note| !sniffer.notes.contains(note));
        sniffer.notes.extend(note);
        compression = compression.or(feed.source().compression());
        let was_known = std::mem::replace(&mut is_known, feed.encodings().1);
        encodings = feed.encodings().0;
        if is_known && !was_known && encodings.of_file() != session.of_file() {
            let (usual, found) = (session.name(), encodings.name());
            sniffer.notes.push(format!("encoding: bytes are not valid in {usual}, and look like {found}"));
        }
        sniffer.encoding = encodings.name();
        // The meaning of bytes that are not ASCII must be the same in another session, so the encoding becomes an
        // option.
        if feed.has_others() && !(encodings.are_servers() && session.are_servers()) {
            sniffer.encoding_option = Some(encodings.name());
        }
        if known.encoding.is_none() && feed.seems_utf8() && feed.source().utf16().is_none() {
            let found = encodings.name();
            sniffer.notes.push(format!(
                "encoding: a part of file \"{}\" is valid UTF8, and is read as {found}",
                shown(file.name())
            ));
        }
        let of_file = feed.source().utf16();
        is_mixed |= *utf16.get_or_insert(of_file) != of_file;
        if let Some(name) = of_file {
            sniffer.encoding = name.to_owned();
            sniffer.encoding_option = Some(name.to_owned());
        }
        feed.close()?;
    }
    if is_mixed {
        // A load fails on a file in UTF-16 without a byte order mark.
        sniffer.encoding_option = None;
        let message = "encoding: some files are in UTF-16. A load recognizes UTF-16 only by a byte order mark";
        sniffer.notes.push(message.to_owned());
    }
    let files = if sniffer.several { list.iter().map(|file| file.name().to_owned()).collect() } else { Vec::new() };
    sniffer.finish(&request, draft, compression, files)
}

/// A note if a file begins like one of another kind.
fn kind_note(first: &[u8], is_json: bool) -> Option<String> {
    let json = FileKind { name: "JSON", advice: "Set the option \"format\" to \"json\"." };
    let kind = file_kind::of(first).or((!is_json && json_lines::is_json(first)).then_some(json))?;
    Some(format!("a file begins like {}. {}", kind.name, kind.advice))
}

/// The findings of the first file, for all files.
#[derive(Debug, Clone)]
struct FileFindings {
    dialect: Dialect,
    header_lines: u64,
    /// The last header line has the names of the columns.
    has_names: bool,
    /// The ends of fields with blanks that are not part of them.
    trim: Trim,
    names: Option<Vec<Option<Vec<u8>>>>,
}

/// The given options.
struct Given {
    options: GivenOptions,
    header: Option<HeaderOption>,
    /// About records with another number of fields.
    ragged: RaggedOptions,
}

struct Sniffer {
    known: Option<FileFindings>,
    given: Given,
    validator: Validator,
    columns: Vec<Evidence>,
    records: u64,
    complete: bool,
    eol: Option<Eol>,
    /// The last line of the header.
    header_line: Option<Vec<u8>>,
    /// Number of fields of a record. More than `columns` if a table cannot have so many.
    width: usize,
    trial: Trial,
    /// The keys of JSON; None for records with fields.
    keys: Option<Keys>,
    notes: Vec<String>,
    /// The encoding in which the file is read.
    encoding: String,
    /// The encoding as an option, if the session's must be named.
    encoding_option: Option<String>,
    several: bool,
}
