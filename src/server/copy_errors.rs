//! Errors with COPY's messages and SQLSTATEs.

use std::ffi::CString;

use pg_bulk_text::binary::{Fault, HeaderError};
use pg_bulk_text::dialect::{DialectError, Format};
use pg_bulk_text::field::FieldError;
use pg_bulk_text::line::LineError;
use pg_bulk_text::reader::ReadError;
use pg_bulk_text::separator::LONGEST;
use pgrx::PgSqlErrorCode as Code;

use super::compat::copy_words;
use super::server_text::from_server;
use crate::error::Error;

fn bad_format(message: impl Into<String>) -> Error {
    Error::new(Code::ERRCODE_BAD_COPY_FILE_FORMAT, message)
}

/// Message of [`extra_data`].
pub const EXTRA_DATA: &str = "extra data after last expected column";

/// extra data after last expected column
pub fn extra_data() -> Error {
    bad_format(EXTRA_DATA).about_record()
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

/// An error of the pure reader, in COPY's words. Encoding errors are in `input::encoding`.
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
            .detail(format!("The last record has {bytes} bytes instead of {length}.")),
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
            D::LenientUnquoted => invalid("lenient_quotes requires format \"csv\" and a quote other than \"none\""),
            D::CommentLength => invalid(&format!("comment must have one to {LONGEST} bytes")),
            D::CommentBreaksLine => invalid("comment cannot use newline or carriage return"),
            D::NullIsDefault => unsupported("NULL specification and DEFAULT specification cannot be the same"),
        }
    }
}
