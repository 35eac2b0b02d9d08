//! COPY's options for all readers of a file: names, meanings and errors.
//!
//! A [`Draft`] collects the options one by one. [`Draft::finish`] then checks them together, in the order of
//! `ProcessCopyOptions` (copy.c). Names, defaults and messages are equal for foreign tables and functions. The syntax
//! of values and the SQLSTATEs of invalid ones differ (`option_value`).

mod dialect_options;
pub mod field_options;
pub mod key_options;
pub mod slice_options;

use std::ffi::CStr;
use std::rc::Rc;

use pg_bulk_text::dialect::{Dialect, Eol, Format, FormatOptions, LineContent};
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::field_options::FieldDraft;
use super::column::Column;
use super::ragged::{LongRows, RaggedOptions, ShortRows};
use super::row::received;
use super::soft::{Limit, OnError, Tolerance, Verbosity};
use crate::error::{Error, Result};
use crate::input::coding::{Coding, Utf16};
use crate::input::compression::Compressed;
use crate::input::encoding::{self, EncodingErrors, Encodings, Treatment, encoding_by_name};
use crate::input::files::FileList;
use crate::input::source::{Location, Source};
use crate::input::stream::{Header, Stream};
use crate::server::compat::copy_words;
use crate::server::lookup::{column_number, is_generated, relation_name};
use crate::server::option_value::{Caller, ColumnSet, HeaderOption, OptionValue, count, invalid, text, word};

pub fn unsupported(message: &str) -> Error {
    Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
}

/// Names of the options that a [`Draft`] accepts.
pub const NAMES: &[&str] = &[
    "format", "header", "delimiter", "trailing_delimiter", "skip_blank_lines", "comment", "line_end", "quote",
    "escape", "lenient_quotes", "null", "default", "encoding", "force_not_null", "force_null", "on_error",
    "reject_limit", "log_verbosity", "skip", "limit", "compression", "match_by", "record_length", "line_ends", "units",
    "trim", "null_if", "encoding_errors", "short_rows", "long_rows",
];

/// Values of the option `line_end`.
pub const LINE_ENDS: &[(&str, Eol)] = &[("lf", Eol::Nl), ("crlf", Eol::CrNl), ("cr", Eol::Cr), ("any", Eol::Any)];

/// Structure of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordShape {
    /// Fields separated by delimiters: COPY's text and CSV formats.
    Delimited,
    /// Fields at fixed positions ([`super::parts`]).
    Fixed,
    /// JSON objects ([`super::objects`]).
    Json,
    /// Fields preceded by their length ([`received`]): COPY's binary format.
    Binary,
}

/// How columns find their fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchBy {
    /// By position. Names in headers are ignored.
    Position,
    /// By name: the header names the column of each field. It has one line then.
    Name,
}

/// Rules for columns: whether their fields are compared with the NULL marker, and how they find their fields.
#[derive(Debug, Clone, Default)]
struct ColumnRules {
    not_null: ColumnSet,
    null: ColumnSet,
    match_by: Option<MatchBy>,
}

/// Format of a file, and the selection of its rows.
#[derive(Debug, Clone)]
pub struct CopyOptions {
    pub dialect: Dialect,
    /// Options for the text of fields, for columns without options of their own.
    pub fields: FieldDraft,
    pub header: HeaderOption,
    pub encoding: Option<i32>,
    /// Action for invalid bytes, if the option is given.
    pub encoding_errors: Option<EncodingErrors>,
    columns: ColumnRules,
    pub on_error: OnError,
    /// Limit of rejects. In percent not for foreign tables.
    pub reject_limit: Option<Limit>,
    pub verbosity: Verbosity,
    pub skip: u64,
    pub limit: Option<u64>,
    /// As given; see [`CopyOptions::coding`].
    coding: Coding,
    /// Treats a byte order mark as data.
    pub keeps_bom: bool,
    pub ragged: RaggedOptions,
    /// The file name is literal: it is no pattern.
    pub is_literal: bool,
}

/// Options that are being collected.
#[derive(Debug, Clone)]
pub struct Draft {
    caller: Caller,
    shape: RecordShape,
    format: FormatOptions,
    record_length: Option<usize>,
    line_ends: Option<bool>,
    /// `units`: positions count characters.
    characters: Option<bool>,
    header: Option<HeaderOption>,
    /// The options that have their final values. [`Draft::finish`] replaces the dialect and the header.
    copy: CopyOptions,
}

impl Draft {
    pub fn new(caller: Caller) -> Draft {
        Draft {
            caller,
            shape: RecordShape::Delimited,
            format: FormatOptions::default(),
            record_length: None,
            line_ends: None,
            characters: None,
            header: None,
            copy: CopyOptions {
                dialect: Dialect::lines(None),
                fields: FieldDraft::default(),
                header: HeaderOption::Lines(0),
                encoding: None,
                encoding_errors: None,
                columns: ColumnRules::default(),
                on_error: OnError::Stop,
                reject_limit: None,
                verbosity: Verbosity::Default,
                skip: 0,
                limit: None,
                coding: Coding { utf16: Utf16::Marked, ..Coding::default() },
                keeps_bom: false,
                ragged: RaggedOptions::default(),
                is_literal: false,
            },
        }
    }

    /// Sets an option. Returns false if its name is not in [`NAMES`].
    pub fn set(&mut self, name: &str, given: &OptionValue) -> Result<bool> {
        match name {
            "force_not_null" => {
                self.copy.columns.not_null = self.caller.column_set(name, given)?;
                return Ok(true);
            }
            "force_null" => {
                self.copy.columns.null = self.caller.column_set(name, given)?;
                return Ok(true);
            }
            "trim" | "null_if" => return self.copy.fields.set(self.caller, name, given),
            _ if !NAMES.contains(&name) => return Ok(false),
            _ => (),
        }
        let bytes = given.one(name)?;
        let value = &*text(bytes);
        let given = || Some(bytes.to_vec());
        match name {
            "format" => match value {
                "text" => (self.format.csv, self.shape) = (false, RecordShape::Delimited),
                "csv" => (self.format.csv, self.shape) = (true, RecordShape::Delimited),
                "fixed" => (self.format.csv, self.shape) = (false, RecordShape::Fixed),
                "json" => (self.format.csv, self.shape) = (false, RecordShape::Json),
                "binary" => (self.format.csv, self.shape) = (false, RecordShape::Binary),
                _ => return Err(invalid(format!("COPY format \"{value}\" not recognized"))),
            },
            "header" => self.header = Some(self.caller.header(value)?),
            "match_by" => {
                let words = [("position", MatchBy::Position), ("name", MatchBy::Name)];
                self.copy.columns.match_by = Some(word(name, bytes, &words)?);
            }
            "delimiter" => self.format.delimiter = given(),
            "trailing_delimiter" => self.format.trailing = self.caller.boolean(name, bytes)?,
            "skip_blank_lines" => self.format.skip_blank_lines = self.caller.boolean(name, bytes)?,
            "comment" => self.format.comment = given(),
            "line_end" => self.format.line_end = Some(word(name, bytes, LINE_ENDS)?),
            "lenient_quotes" => self.format.lenient_quotes = self.caller.boolean(name, bytes)?,
            "quote" => {
                self.format.unquoted = value.eq_ignore_ascii_case("none");
                self.format.quote = if self.format.unquoted { None } else { given() };
            }
            "escape" => self.format.escape = given(),
            "null" => self.format.null = given(),
            "default" => self.format.default = given(),
            "encoding" => {
                let bad = || invalid("argument to option \"encoding\" must be a valid encoding name");
                let (utf16, name) = Utf16::by_name(value).map_or((Utf16::Never, value), |utf16| (utf16, "UTF8"));
                self.copy.encoding = Some(encoding_by_name(name).ok_or_else(bad)?);
                self.copy.coding.utf16 = utf16;
            }
            "encoding_errors" => {
                use EncodingErrors::{Reject, Replace, Stop};
                let words = [("stop", Stop), ("replace", Replace), ("reject", Reject)];
                self.copy.encoding_errors = Some(word(name, bytes, &words)?);
            }
            "short_rows" => {
                let words = [("error", ShortRows::Error), ("null", ShortRows::Null), ("default", ShortRows::Default)];
                self.copy.ragged.short_rows = Some(word(name, bytes, &words)?);
            }
            "long_rows" => {
                let words = [("error", LongRows::Error), ("cut", LongRows::Cut)];
                self.copy.ragged.long_rows = Some(word(name, bytes, &words)?);
            }
            "on_error" => {
                self.copy.on_error = match value.to_ascii_lowercase().as_str() {
                    "stop" => OnError::Stop,
                    "ignore" => OnError::Ignore,
                    "set_null" => OnError::SetNull,
                    "table" if self.caller == Caller::Function => OnError::Table,
                    _ => return Err(invalid(format!("COPY ON_ERROR \"{value}\" not recognized"))),
                };
            }
            "reject_limit" if self.caller == Caller::Function && value.ends_with('%') => {
                let percent = value.trim_end_matches('%').parse().ok().filter(|p| (0.0..=100.0).contains(p));
                let bad = || invalid("reject_limit requires a percentage from 0% to 100%");
                self.copy.reject_limit = Some(Limit::Percent(percent.ok_or_else(bad)?));
            }
            "reject_limit" => match count(name, value)? {
                0 => return Err(invalid("REJECT_LIMIT (0) must be greater than zero")),
                rows => self.copy.reject_limit = Some(Limit::Rows(rows)),
            },
            "log_verbosity" => {
                self.copy.verbosity = match value.to_ascii_lowercase().as_str() {
                    "silent" => Verbosity::Silent,
                    "default" => Verbosity::Default,
                    "verbose" => Verbosity::Verbose,
                    _ => return Err(invalid(format!("COPY LOG_VERBOSITY \"{value}\" not recognized"))),
                };
            }
            "record_length" => self.record_length = Some(slice_options::bytes(name, bytes)?),
            "line_ends" => self.line_ends = Some(self.caller.boolean(name, bytes)?),
            "units" => {
                self.characters = Some(word(name, bytes, &[("bytes", false), ("characters", true)])?);
            }
            "skip" => self.copy.skip = count(name, value)?,
            "limit" => self.copy.limit = Some(count(name, value)?),
            "compression" => {
                let bad = || invalid(format!("compression \"{value}\" not recognized"));
                self.copy.coding.compressed = Compressed::by_name(&value.to_ascii_lowercase()).ok_or_else(bad)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks the options together. Of several errors, the one that COPY would raise comes first.
    pub fn finish(mut self) -> Result<CopyOptions> {
        self.format.force_not_null = self.copy.columns.not_null != ColumnSet::None;
        self.format.force_null = self.copy.columns.null != ColumnSet::None;
        let dialect = self.dialect()?;
        let leaves_out = matches!(self.copy.on_error, OnError::Ignore | OnError::Table);
        if self.copy.reject_limit.is_some() && !leaves_out {
            let or_table = if self.caller == Caller::Function { " or TABLE" } else { "" };
            let message = format!("COPY REJECT_LIMIT requires ON_ERROR to be set to IGNORE{or_table}");
            return Err(invalid(message));
        }
        if self.copy.encoding_errors == Some(EncodingErrors::Reject) && !leaves_out {
            let or_table = if self.caller == Caller::Function { " or \"table\"" } else { "" };
            return Err(invalid(format!("encoding_errors \"reject\" requires on_error \"ignore\"{or_table}")));
        }
        let header = match self.header {
            // Matching by name requires a header.
            None if self.copy.by_name() => HeaderOption::Lines(1),
            None => HeaderOption::Lines(0),
            Some(HeaderOption::Lines(1)) => HeaderOption::Lines(1),
            Some(_) if self.copy.by_name() => {
                return Err(invalid("match_by \"name\" requires a header of one line"));
            }
            Some(header) => header,
        };
        self.copy.fields.set_null(self.format.null);
        if self.copy.coding.utf16.name().is_some() && matches!(self.shape, RecordShape::Fixed | RecordShape::Binary) {
            let format = if self.shape == RecordShape::Fixed { "fixed" } else { "binary" };
            return Err(unsupported(&format!("encoding \"UTF16\" is not supported in format \"{format}\"")));
        }
        Ok(CopyOptions { dialect, header, ..self.copy })
    }
}

impl CopyOptions {
    /// Returns the structure of the records.
    pub fn shape(&self) -> RecordShape {
        match self.dialect.format {
            Format::Text | Format::Csv | Format::Unquoted => RecordShape::Delimited,
            Format::Lines if self.dialect.content == LineContent::Object => RecordShape::Json,
            Format::Lines | Format::Records => RecordShape::Fixed,
            Format::Binary => RecordShape::Binary,
        }
    }

    /// Whether the header names the columns of the fields.
    pub fn by_name(&self) -> bool {
        self.columns.match_by == Some(MatchBy::Name)
    }

    /// Whether a record may request the default of any column.
    pub fn takes_defaults(&self) -> bool {
        self.dialect.default.is_some() || self.ragged.short_rows == Some(ShortRows::Default)
    }

    /// Returns how the reader treats the header.
    pub fn header(&self) -> Header {
        match self.header {
            HeaderOption::Lines(lines) => Header { lines, fields: self.by_name() },
            HeaderOption::Match => Header { lines: 1, fields: true },
        }
    }

    /// Returns the error filter for bad values, with no reject counted yet.
    pub fn tolerance(&self) -> Tolerance {
        // COPY's ON_ERROR ignore stops at a wrong number of fields, unless an option says that it is an error of the row.
        let rejects = |is_given| self.on_error == OnError::Table || (self.on_error == OnError::Ignore && is_given);
        Tolerance {
            on_error: self.on_error,
            verbosity: self.verbosity,
            reject_limit: self.reject_limit.and_then(Limit::rows),
            rejects_short: rejects(self.ragged.short_rows.is_some()),
            rejects_long: rejects(self.ragged.long_rows.is_some()),
            bad_rows: 0,
            bad_value: None,
        }
    }

    /// Returns the encodings of file and server. Guarded.
    pub fn encodings(&self) -> Result<Encodings> {
        let encodings = Encodings::new(if self.shape() == RecordShape::Binary { None } else { self.encoding })?;
        if self.encoding.is_some_and(|encoding| encoding != encodings.of_file()) && self.shape() == RecordShape::Binary
        {
            let hint = "Values are converted from client_encoding. Set that instead.";
            return Err(unsupported("cannot specify another ENCODING than client_encoding in BINARY mode").hint(hint));
        }
        Ok(encodings
            .keeping_bom(self.keeps_bom)
            .by_part(matches!(self.shape(), RecordShape::Fixed | RecordShape::Binary)))
    }

    /// Returns how a file's bytes become text. Guarded.
    pub fn coding(&self) -> Coding {
        let is_text = matches!(self.shape(), RecordShape::Delimited | RecordShape::Json);
        let utf16 = match self.coding.utf16 {
            // The mark is valid text in other encodings, and COPY reports it.
            Utf16::Marked if !is_text || self.keeps_bom || !encoding::is_utf8(self.encoding) => Utf16::Never,
            utf16 => utf16,
        };
        let mends = self.encoding_errors == Some(EncodingErrors::Replace);
        let json = self.shape() == RecordShape::Json && encoding::is_safe(self.encoding);
        Coding { utf16, mends, json, ..self.coding }
    }

    /// Returns the name of the file's encoding, unless a byte order mark decides. Guarded.
    pub fn encoding_name(&self) -> Result<String> {
        match self.coding.utf16.name() {
            Some(name) => Ok(name.to_owned()),
            None => Ok(self.encodings()?.foreign_name().unwrap_or_else(Encodings::server_name)),
        }
    }

    /// Returns the files of a directory or pattern; None for a single file. Opens none of them. Guarded, and
    /// interruptible.
    pub fn files(&self, location: &Location) -> Result<Option<Rc<FileList>>> {
        if self.is_literal { Ok(None) } else { location.files() }
    }

    /// Opens the records of a location. Errors in the options are reported before anything
    /// is opened. Guarded.
    pub fn open(&self, location: &Location, mut header: Header) -> Result<Stream> {
        let encodings = self.encodings()?;
        self.check_encoding_errors(&encodings)?;
        let files = self.files(location)?;
        // Files may have their columns in different orders (`header.rs`).
        let has_names =
            header.lines == 1 && self.columns.match_by != Some(MatchBy::Position) && !self.dialect.is_lines();
        header.fields |= has_names && files.as_ref().is_some_and(|list| list.files.len() > 1);
        let listed = files.clone().map(Location::Files);
        let source = Source::open(listed.as_ref().unwrap_or(location), self.coding())?;
        let mut stream = Stream::new(source, self.dialect.clone(), encodings, header);
        if matches!(location, Location::Client(_)) {
            stream.reader.end_at_marker();
        }
        if let Some(files) = files {
            stream = stream.with_files(files, self.coding(), header);
        }
        stream.tolerate(self.on_error == OnError::Table, self.encoding_errors());
        Ok(stream)
    }

    /// Fails if the encodings do not support the action for invalid bytes.
    fn check_encoding_errors(&self, encodings: &Encodings) -> Result<()> {
        if self.encoding_errors == Some(EncodingErrors::Reject)
            && !matches!(encodings.treatment(), Treatment::Utf8 | Treatment::Nothing)
            && !encodings.are_marked()
        {
            let message = "encoding_errors \"reject\" requires format \"fixed\", a file in UTF8 that is not converted, or a database in UTF8";
            return Err(unsupported(message));
        }
        if self.encoding_errors() == EncodingErrors::Replace && !encodings.are_mended() {
            let server = Encodings::server_name();
            let message = format!("encoding_errors \"replace\" is not supported in encoding \"{server}\"");
            return Err(unsupported(&message));
        }
        Ok(())
    }

    /// Returns the action for invalid bytes. By default they are rejected where rejects are kept, and an error
    /// otherwise.
    fn encoding_errors(&self) -> EncodingErrors {
        let own = if self.on_error == OnError::Table { EncodingErrors::Reject } else { EncodingErrors::Stop };
        self.encoding_errors.unwrap_or(own)
    }

    /// Applies `force_null`, `force_not_null` and the format to the columns. An invalid `relid` stands for no relation.
    /// Guarded; memory as in [`Column::of_relation`].
    pub fn force(&self, relid: pg_sys::Oid, columns: &mut [Column]) -> Result<()> {
        mark(&self.columns.not_null, "FORCE_NOT_NULL", relid, columns, |c| c.force_not_null = true)?;
        mark(&self.columns.null, "FORCE_NULL", relid, columns, |c| c.force_null = true)?;
        if !matches!(self.dialect.format, Format::Csv | Format::Unquoted) {
            let forced = |f: fn(&Column) -> bool| columns.iter().any(f);
            if forced(|c| c.force_not_null) {
                return Err(unsupported(&copy_words::requires_csv("FORCE_NOT_NULL")));
            }
            if forced(|c| c.force_null) {
                return Err(unsupported(&copy_words::requires_csv("FORCE_NULL")));
            }
        }
        if self.shape() == RecordShape::Binary {
            received::receive(columns, &self.encodings()?);
        }
        Ok(())
    }
}

fn mark(
    set: &ColumnSet,
    option: &str,
    relid: pg_sys::Oid,
    columns: &mut [Column],
    mark: impl Fn(&mut Column),
) -> Result<()> {
    match set {
        ColumnSet::None => (),
        ColumnSet::All => columns.iter_mut().for_each(mark),
        ColumnSet::Named(names) => {
            for name in names {
                let Some(column) = columns.iter_mut().find(|c| c.name == *name) else {
                    if relid != pg_sys::InvalidOid {
                        attribute_number(relid, name)?;
                    }
                    let message = format!("{option} column \"{}\" not referenced by COPY", name.to_string_lossy());
                    return Err(Error::new(Code::ERRCODE_INVALID_COLUMN_REFERENCE, message));
                };
                mark(column);
            }
        }
    }
    Ok(())
}

/// Returns the attribute number of a column that can have a field, or the error of `CopyGetAttnums`. Guarded.
pub fn attribute_number(relid: pg_sys::Oid, name: &CStr) -> Result<i16> {
    let attnum = column_number(relid, name);
    let name = name.to_string_lossy();
    if is_generated(relid, attnum) {
        let message = format!("column \"{name}\" is a generated column");
        return Err(Error::new(Code::ERRCODE_INVALID_COLUMN_REFERENCE, message)
            .detail("Generated columns cannot be used in COPY."));
    }
    if attnum <= 0 {
        let relation = relation_name(relid).unwrap_or_else(|| c"?".to_owned());
        let relation = relation.to_string_lossy();
        let message = format!("column \"{name}\" of relation \"{relation}\" does not exist");
        return Err(Error::new(Code::ERRCODE_UNDEFINED_COLUMN, message));
    }
    Ok(attnum)
}
