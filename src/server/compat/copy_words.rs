//! Error texts of COPY that differ between versions. 17 changed option errors (ProcessCopyOptions, copy.c), 18 the
//! error for a string that is too long.

use pgrx::PgSqlErrorCode as Code;

use super::version::MAJOR;

/// Error for an option of the CSV format that is given for the text format. `option`: its name in SQL.
pub fn requires_csv(option: &str) -> String {
    if MAJOR >= 17 {
        return format!("COPY {option} requires CSV mode");
    }
    format!("COPY {} available only in CSV mode", option.to_ascii_lowercase().replace('_', " "))
}

/// Error for a marker that contains the delimiter.
pub fn delimiter_in(marker: &str) -> String {
    let what = if MAJOR >= 17 { "delimiter character" } else { "delimiter" };
    format!("COPY {what} must not appear in the {marker} specification")
}

/// SQLSTATE for a NULL marker that contains the delimiter or the quote. The SQLSTATE for the DEFAULT marker did not
/// change.
pub const IN_NULL_MARKER: Code =
    if MAJOR >= 17 { Code::ERRCODE_INVALID_PARAMETER_VALUE } else { Code::ERRCODE_FEATURE_NOT_SUPPORTED };

/// Error for a string that does not fit a buffer of the server (enlargeStringInfo, stringinfo.c).
pub const STRING_TOO_LONG: &str =
    if MAJOR >= 18 { "string buffer exceeds maximum allowed length (1073741823 bytes)" } else { "out of memory" };
