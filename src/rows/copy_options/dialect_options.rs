//! The dialect of the options that are collected, or the error of options that the format cannot have.

use pg_bulk_text::dialect::{Dialect, DialectError, LineContent};
use pgrx::PgSqlErrorCode as Code;

use super::{Draft, RecordShape, unsupported};
use crate::error::{Error, Result};
use crate::input::encoding::{self, Encodings};
use crate::rows::soft::OnError;
use crate::server::compat::{self, copy_words};
use crate::server::option_value::{Caller, HeaderOption, invalid};

/// Longest record without a line end: any buffer holds several of them.
const LONGEST: usize = 1 << 24;

impl Draft {
    fn has_header(&self) -> bool {
        self.header.is_some_and(|header| header != HeaderOption::Lines(0))
    }

    pub(super) fn dialect(&self) -> Result<Dialect> {
        if self.shape == RecordShape::Fixed {
            return self.lines("FIXED");
        }
        let given = [
            (self.record_length.is_some(), "record_length"),
            (self.line_ends.is_some(), "line_ends"),
            (self.characters.is_some(), "units"),
        ];
        if let Some((_, name)) = given.iter().find(|(given, _)| *given) {
            return Err(invalid(format!("{name} requires format \"fixed\"")));
        }
        match self.shape {
            RecordShape::Json => return self.objects(),
            RecordShape::Binary => return self.binary(),
            _ => (),
        }
        let dialect = Dialect::check(&self.format, compat::end_marker()).map_err(|e| {
            use DialectError as D;
            // COPY reports a character that is too long as a missing feature; for a function it is a bad value.
            let bad_value = matches!(e, D::DelimiterLength | D::QuoteLength | D::EscapeLength);
            let error = Error::from(e);
            if bad_value && self.caller == Caller::Function {
                return error.code(Code::ERRCODE_INVALID_PARAMETER_VALUE);
            }
            error
        })?;
        if dialect.separator.is_long() && !encoding::is_found(dialect.separator.bytes()) {
            let server = Encodings::server_name();
            let message =
                format!("a delimiter with characters other than ASCII is not supported in encoding \"{server}\"");
            return Err(unsupported(&message));
        }
        Ok(dialect)
    }

    /// Returns the binary dialect. Options without a meaning there are rejected in the order of `ProcessCopyOptions`;
    /// pg_bulk's own options follow.
    fn binary(&self) -> Result<Dialect> {
        let format = &self.format;
        let refused =
            |name: &str| Err(Error::new(Code::ERRCODE_SYNTAX_ERROR, format!("cannot specify {name} in BINARY mode")));
        let requires_csv = |name: &str| Err(unsupported(&copy_words::requires_csv(name)));
        match () {
            () if format.delimiter.is_some() => refused("DELIMITER"),
            () if format.null.is_some() => refused("NULL"),
            () if format.default.is_some() => refused("DEFAULT"),
            () if self.copy.on_error != OnError::Stop => {
                Err(Error::new(Code::ERRCODE_SYNTAX_ERROR, "only ON_ERROR STOP is allowed in BINARY mode"))
            }
            () if self.has_header() => Err(unsupported("cannot specify HEADER in BINARY mode")),
            () if format.quote.is_some() || format.unquoted => requires_csv("QUOTE"),
            () if format.escape.is_some() => requires_csv("ESCAPE"),
            () if format.force_not_null => requires_csv("FORCE_NOT_NULL"),
            () if format.force_null => requires_csv("FORCE_NULL"),
            () if self.copy.columns.match_by.is_some() => refused("MATCH_BY"),
            () if self.copy.skip > 0 => refused("SKIP"),
            () if format.trailing => refused("TRAILING_DELIMITER"),
            () if self.copy.ragged.short_rows.is_some() => refused("SHORT_ROWS"),
            () if self.copy.ragged.long_rows.is_some() => refused("LONG_ROWS"),
            () if format.skip_blank_lines => refused("SKIP_BLANK_LINES"),
            () if format.comment.is_some() => refused("COMMENT"),
            () if format.line_end.is_some() => refused("LINE_END"),
            () if format.lenient_quotes => refused("LENIENT_QUOTES"),
            () if self.copy.fields.trim().is_some() => refused("TRIM"),
            () if self.copy.fields.has_nulls() => refused("NULL_IF"),
            () if self.copy.encoding_errors.is_some() => refused("ENCODING_ERRORS"),
            () => Ok(Dialect::binary()),
        }
    }

    /// Returns the dialect of records without delimiters. Options without a meaning there are rejected as COPY does for
    /// BINARY.
    fn lines(&self, mode: &str) -> Result<Dialect> {
        let format = &self.format;
        let refused = [
            (format.delimiter.is_some(), "DELIMITER"),
            (format.trailing, "TRAILING_DELIMITER"),
            (format.skip_blank_lines, "SKIP_BLANK_LINES"),
            (format.comment.is_some(), "COMMENT"),
            (format.line_end.is_some(), "LINE_END"),
            (format.lenient_quotes, "LENIENT_QUOTES"),
            (format.quote.is_some() || format.unquoted, "QUOTE"),
            (format.escape.is_some(), "ESCAPE"),
            (format.default.is_some(), "DEFAULT"),
            (format.force_not_null, "FORCE_NOT_NULL"),
            (format.force_null, "FORCE_NULL"),
            (self.header == Some(HeaderOption::Match), "HEADER MATCH"),
            (self.copy.columns.match_by.is_some(), "MATCH_BY"),
            (self.copy.ragged.short_rows.is_some(), "SHORT_ROWS"),
            (self.copy.ragged.long_rows.is_some(), "LONG_ROWS"),
        ];
        match refused.iter().find(|(given, _)| *given) {
            Some((_, name)) => {
                Err(Error::new(Code::ERRCODE_SYNTAX_ERROR, format!("cannot specify {name} in {mode} mode")))
            }
            None if self.line_ends != Some(false) => {
                let characters = self.characters == Some(true);
                let content = if characters { LineContent::Characters } else { LineContent::Bytes };
                Ok(Dialect { content, ..Dialect::lines(self.record_length) })
            }
            None if self.characters == Some(true) => Err(invalid("units \"characters\" requires line_ends to be true")),
            None if self.has_header() => Err(invalid("header requires line_ends to be true")),
            None => match self.record_length {
                Some(length) if length <= LONGEST => Ok(Dialect::records(length)),
                Some(_) => Err(invalid(format!("record_length must be at most {LONGEST} where line_ends is false"))),
                None => Err(invalid("line_ends \"false\" requires record_length")),
            },
        }
    }

    /// Returns the dialect of JSON objects.
    fn objects(&self) -> Result<Dialect> {
        self.lines("JSON")?;
        let refused = [
            (self.format.null.is_some(), "NULL"),
            (self.has_header(), "HEADER"),
            (self.copy.fields.trim().is_some(), "TRIM"),
            (self.copy.encoding_errors.is_some(), "ENCODING_ERRORS"),
        ];
        match refused.iter().find(|(given, _)| *given) {
            Some((_, name)) => {
                Err(Error::new(Code::ERRCODE_SYNTAX_ERROR, format!("cannot specify {name} in JSON mode")))
            }
            None => Ok(Dialect::json()),
        }
    }
}
