//! Values in the directories of a file's path, as Hive and Spark name them: `year=2024/month=01/x.csv`.
//!
//! These programs write some characters of a value as `%` and two hexadecimal digits, and NULL as a directory of its own.

use std::borrow::Cow;
use std::ffi::{CStr, CString};

use pgrx::PgSqlErrorCode as Code;

use super::column::{Column, Taken};
use crate::error::Error;
use crate::input::encoding::invalid_in_server_encoding;
use crate::server::server_text::from_server;

/// The value for NULL.
const NULL: &[u8] = b"__HIVE_DEFAULT_PARTITION__";

/// The values of columns in the path of the open file.
#[derive(Debug, Default)]
pub struct Directories {
    /// By column; None for NULL.
    values: Vec<Option<Vec<u8>>>,
    /// A column whose directory the path lacks.
    pub missing: Option<usize>,
}

impl Directories {
    pub fn of(path: &[u8], columns: &[Column]) -> Directories {
        let mut directories = Directories::default();
        for (number, column) in columns.iter().enumerate().filter(|(_, column)| column.taken == Taken::Hive) {
            let value = value(path, column.name.as_bytes());
            if value.is_none() {
                directories.missing.get_or_insert(number);
            }
            directories.values.resize(number, None);
            directories.values.push(value.flatten().map(Cow::into_owned));
        }
        directories
    }

    /// The value of a column; None for NULL.
    #[inline]
    pub fn value(&self, column: usize) -> Option<&[u8]> {
        self.values.get(column)?.as_deref()
    }
}

/// Returns the value of the innermost directory `column=value`. None if there is none, `Some(None)` if it means NULL.
fn value<'a>(path: &'a [u8], column: &[u8]) -> Option<Option<Cow<'a, [u8]>>> {
    let of_column = |part: &'a [u8]| part.strip_prefix(column).and_then(|rest| rest.strip_prefix(b"="));
    let value = path.rsplit(|byte| *byte == b'/').skip(1).find_map(of_column)?;
    if value == NULL {
        return Some(None);
    }
    if !value.contains(&b'%') {
        return Some(Some(Cow::Borrowed(value)));
    }
    let decoded = decoded(value);
    // The bytes of another encoding stay as they are.
    let is_text = invalid_in_server_encoding(&decoded).is_none();
    Some(Some(if is_text { Cow::Owned(decoded) } else { Cow::Borrowed(value) }))
}

fn decoded(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&byte, behind)) = rest.split_first() {
        let digits =
            behind.first_chunk::<2>().filter(|digits| byte == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        out.push(code.unwrap_or(byte));
        rest = if code.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
    }
    out
}

/// The error for a file without such a directory.
pub fn missing(path: &[u8], column: &CStr) -> Error {
    let (path, column) = (from_server(&CString::new(path).unwrap_or_default()), from_server(column));
    let message = format!("path \"{path}\" has no directory for column \"{column}\"");
    Error::new(Code::ERRCODE_BAD_COPY_FILE_FORMAT, message)
        .hint(format!("The value is that of a directory with a name such as \"{column}=value\"."))
        .about_record()
}
