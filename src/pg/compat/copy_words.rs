//! What COPY says of its options, where 17 has other words or another SQLSTATE (ProcessCopyOptions, copy.c), and of what is too long
//! for its buffers.

use pgrx::PgSqlErrorCode as Code;

use super::version::MAJOR;

/// An option, by its name in SQL, is given for the text format.
pub fn requires_csv(option: &str) -> String {
    if MAJOR >= 17 {
        return format!("COPY {option} requires CSV mode");
    }
    format!("COPY {} available only in CSV mode", option.to_ascii_lowercase().replace('_', " "))
}

/// The delimiter is part of a marker.
pub fn delimiter_in(marker: &str) -> String {
    let what = if MAJOR >= 17 { "delimiter character" } else { "delimiter" };
    format!("COPY {what} must not appear in the {marker} specification")
}

/// The SQLSTATE if the delimiter or the quote is part of the NULL marker. That of the DEFAULT marker has stayed.
pub const IN_NULL_MARKER: Code =
    if MAJOR >= 17 { Code::ERRCODE_INVALID_PARAMETER_VALUE } else { Code::ERRCODE_FEATURE_NOT_SUPPORTED };

/// What does not fit a buffer of the server's (enlargeStringInfo, stringinfo.c).
pub const STRING_TOO_LONG: &str =
    if MAJOR >= 18 { "string buffer exceeds maximum allowed length (1073741823 bytes)" } else { "out of memory" };
