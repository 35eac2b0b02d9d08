//! Errors with COPY's messages, and the only place that passes them to `ereport`.
//!
//! Code below the callbacks returns `Result<_, Error>`; a callback raises it. An error has no CONTEXT lines: the
//! callbacks push an error context callback, as COPY does, and the server calls it (`pg::context`).

use std::ffi::CString;

use pg_bulk_format::binary::{Fault, HeaderError};
use pg_bulk_format::dialect::{DialectError, Format};
use pg_bulk_format::field::FieldError;
use pg_bulk_format::line::LineError;
use pg_bulk_format::reader::ReadError;
use pg_bulk_format::separator::LONGEST;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode as Code};

use crate::pg::compat::copy_words;
use crate::pg::server_text::from_server;

/// An error to be raised or reported.
#[derive(Debug)]
pub struct Error {
    code: Code,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    /// The error is about one record, and the caller may continue with the next one.
    record: bool,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), detail: None, hint: None, record: false }
    }

    /// Marks the error as one about a single record, after which the caller may continue.
    pub fn about_record(mut self) -> Error {
        self.record = true;
        self
    }

    pub fn is_about_record(&self) -> bool {
        self.record
    }

    pub fn sqlstate(&self) -> Code {
        self.code
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn code(mut self, code: Code) -> Error {
        self.code = code;
        self
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Error {
        self.detail = Some(detail.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// `message` followed by ": " and the words for `error`, with the SQLSTATE of `errcode_for_file_access`.
    pub fn file_access(message: &str, error: &std::io::Error) -> Error {
        let code = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES | libc::EROFS) => Code::ERRCODE_INSUFFICIENT_PRIVILEGE,
            Some(libc::ENOENT) => Code::ERRCODE_UNDEFINED_FILE,
            Some(libc::EEXIST) => Code::ERRCODE_DUPLICATE_FILE,
            Some(libc::ENOTDIR | libc::EISDIR | libc::ENOTEMPTY) => Code::ERRCODE_WRONG_OBJECT_TYPE,
            Some(libc::ENOSPC) => Code::ERRCODE_DISK_FULL,
            Some(libc::ENFILE | libc::EMFILE) => Code::ERRCODE_INSUFFICIENT_RESOURCES,
            Some(libc::EIO) => Code::ERRCODE_IO_ERROR,
            _ => Code::ERRCODE_INTERNAL_ERROR,
        };
        // std appends the number to strerror's words; core does not.
        let words = error.to_string();
        let words = words.split(" (os error").next().unwrap_or_default();
        Error::new(code, format!("{message}: {words}"))
    }

    /// Reports it as a PANIC, which stops the server.
    pub fn raise_panic(self) {
        ErrorReport::new(self.code, self.message, "pg_bulk").report(PgLogLevel::PANIC);
    }

    /// Reports it as a WARNING. Guarded.
    pub fn warn(self) {
        self.report(PgLogLevel::WARNING);
    }

    /// Reports it as a NOTICE. Guarded.
    pub fn notice(self) {
        self.report(PgLogLevel::NOTICE);
    }

    /// Raises it. Rust frames up to the guard are unwound.
    #[expect(clippy::unreachable, reason = "the server does not come back from it")]
    pub fn raise(self) -> ! {
        self.report(PgLogLevel::ERROR);
        unreachable!("an ERROR does not return")
    }

    fn report(self, level: PgLogLevel) {
        let mut report = ErrorReport::new(self.code, self.message, "pg_bulk");
        if let Some(detail) = self.detail {
            report = report.set_detail(detail);
        }
        if let Some(hint) = self.hint {
            report = report.set_hint(hint);
        }
        report.report(level);
    }
}

/// Returns the value, or raises the error.
pub trait OrRaise<T> {
    fn or_raise(self) -> T;
}

impl<T> OrRaise<T> for Result<T> {
    #[inline]
    fn or_raise(self) -> T {
        match self {
            Ok(value) => value,
            Err(error) => error.raise(),
        }
    }
}

/// Out of memory for a record.
pub fn out_of_memory() -> Error {
    Error::new(Code::ERRCODE_OUT_OF_MEMORY, "out of memory")
}

fn bad_format(message: impl Into<String>) -> Error {
    Error::new(Code::ERRCODE_BAD_COPY_FILE_FORMAT, message)
}

/// extra data after last expected column
pub fn extra_data() -> Error {
    bad_format("extra data after last expected column").about_record()
}

/// missing data for column "x"
pub fn missing_data(column: &str) -> Error {
    bad_format(format!("missing data for column \"{column}\"")).about_record()
}

/// missing data at the end of a record
pub fn record_too_short() -> Error {
    bad_format("missing data after last column").about_record()
}

/// record is not a JSON object
pub fn no_object() -> Error {
    bad_format("record is not a JSON object").about_record()
}

/// row field count is n, expected m
pub fn field_count(count: i16, expected: usize) -> Error {
    bad_format(format!("row field count is {count}, expected {expected}"))
}

/// An error in a field of the binary format, in COPY's words.
pub fn bad_field(fault: Fault) -> Error {
    match fault {
        Fault::Missing => bad_format("unexpected EOF in COPY data"),
        Fault::Size => bad_format("invalid field size"),
        Fault::TooLong { containing, more } => too_long(containing, more),
    }
}

/// A value exceeds COPY's buffer.
fn too_long(containing: u64, more: u64) -> Error {
    let detail = format!("Cannot enlarge string buffer containing {containing} bytes by {more} more bytes.");
    Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, copy_words::STRING_TOO_LONG).detail(detail)
}

/// unexpected default marker in COPY data
pub fn unexpected_default(column: &str) -> Error {
    let detail = format!("Column \"{column}\" has no default value.");
    bad_format("unexpected default marker in COPY data").detail(detail).about_record()
}

/// wrong number of fields in header line
pub fn header_fields(got: usize, expected: usize) -> Error {
    bad_format(format!("wrong number of fields in header line: got {got}, expected {expected}"))
}

/// column name mismatch in header line; `got` describes the field
pub fn header_mismatch(field: usize, got: &str, expected: &str) -> Error {
    bad_format(format!("column name mismatch in header line field {field}: got {got}, expected \"{expected}\""))
}

/// An error of the pure reader, in COPY's words. Encoding errors are in `pg::encoding`.
pub fn read_error(error: ReadError, format: Format) -> Error {
    let how = if format == Format::Csv { "unquoted" } else { "literal" };
    let found = |what: &str, escape: &str| {
        let error = bad_format(format!("{how} {what} found in data"));
        match format {
            Format::Csv => error.hint(format!("Use quoted CSV field to represent {what}.")),
            Format::Text => error.hint(format!("Use \"{escape}\" to represent {what}.")),
            Format::Unquoted | Format::Lines | Format::Records | Format::Binary => error,
        }
    };
    match error {
        ReadError::Line(LineError::CarriageReturn) => found("carriage return", "\\r"),
        ReadError::Line(LineError::Newline) => found("newline", "\\n"),
        ReadError::Line(LineError::MarkerCorrupt) => bad_format("end-of-copy marker corrupt"),
        ReadError::Line(LineError::MarkerNotAlone) => bad_format("end-of-copy marker is not alone on its line"),
        ReadError::Line(LineError::MarkerNewline) => {
            bad_format("end-of-copy marker does not match previous newline style")
        }
        ReadError::Field(FieldError::UnterminatedQuote) => bad_format("unterminated CSV quoted field"),
        ReadError::Partial { bytes, length } => bad_format("unexpected EOF in COPY data")
            .detail(format!("The last record has {bytes} bytes, and not {length}.")),
        ReadError::Header(error) => bad_format(match error {
            HeaderError::Signature => "COPY file signature not recognized",
            HeaderError::MissingFlags => "invalid COPY file header (missing flags)",
            HeaderError::Oids => "invalid COPY file header (WITH OIDS)",
            HeaderError::CriticalFlags => "unrecognized critical flags in COPY file header",
            HeaderError::MissingLength => "invalid COPY file header (missing length)",
            HeaderError::WrongLength => "invalid COPY file header (wrong length)",
        }),
        ReadError::AfterMarker => bad_format("received copy data after EOF marker"),
        ReadError::TooLong { containing, more } => too_long(containing, more),
        ReadError::Encoding => Error::new(Code::ERRCODE_CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence"),
    }
}

impl From<DialectError> for Error {
    fn from(error: DialectError) -> Error {
        use DialectError as D;
        let invalid = |m: &str| Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, m);
        let unsupported = |m: &str| Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, m);
        match error {
            D::DelimiterLength => unsupported(&format!("COPY delimiter must have one to {LONGEST} bytes")),
            D::DelimiterNewline => invalid("COPY delimiter cannot be newline or carriage return"),
            D::DelimiterBreaksLine => invalid("COPY delimiter cannot use newline or carriage return"),
            D::NullNewline => invalid("COPY null representation cannot use newline or carriage return"),
            D::DefaultNewline => invalid("COPY default representation cannot use newline or carriage return"),
            D::DelimiterUnsafe(delimiter) => {
                let delimiter = from_server(&CString::new(delimiter.bytes()).unwrap_or_default());
                invalid(&format!("COPY delimiter cannot be \"{delimiter}\""))
            }
            D::QuoteNotCsv => unsupported(&copy_words::requires_csv("QUOTE")),
            D::QuoteLength => unsupported("COPY quote must be a single one-byte character"),
            D::DelimiterIsQuote => invalid("COPY delimiter and quote must be different"),
            D::QuoteInDelimiter => invalid("CSV quote character must not appear in the delimiter"),
            D::EscapeUnquoted => invalid("COPY escape requires a quote other than \"none\""),
            D::EscapeNotCsv => unsupported(&copy_words::requires_csv("ESCAPE")),
            D::EscapeLength => unsupported("COPY escape must be a single one-byte character"),
            D::ForceNotNullNotCsv => unsupported(&copy_words::requires_csv("FORCE_NOT_NULL")),
            D::ForceNullNotCsv => unsupported(&copy_words::requires_csv("FORCE_NULL")),
            D::DelimiterInNull => invalid(&copy_words::delimiter_in("NULL")).code(copy_words::IN_NULL_MARKER),
            D::QuoteInNull => invalid("CSV quote character must not appear in the NULL specification")
                .code(copy_words::IN_NULL_MARKER),
            D::DelimiterInDefault => unsupported(&copy_words::delimiter_in("DEFAULT")),
            D::QuoteInDefault => unsupported("CSV quote character must not appear in the DEFAULT specification"),
            D::NullIsDefault => unsupported("NULL specification and DEFAULT specification cannot be the same"),
        }
    }
}
