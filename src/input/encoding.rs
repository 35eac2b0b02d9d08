//! Verifies a file's bytes, or converts them to the server's encoding.
//!
//! The rules are those of COPY (BeginCopyFrom, CopyConvertBuf). The file's encoding is the value of the option, or else
//! client_encoding. Bytes are only verified if both encodings are equal or one of them is SQL_ASCII. All other files
//! are converted before line ends are searched: in client-only encodings (SJIS, BIG5, GB18030 …) the second byte of a
//! character may look like a delimiter.

use std::ffi::{CStr, CString, c_int};

use pg_bulk_text::json_text::Charset;
use pg_bulk_text::utf16;
use pg_bulk_text::verify::{mend_utf8, utf8_valid_up_to};
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::server::attempt::error_of;
use crate::server::call::calls;
use crate::server::compat;
use crate::server::server_text::{from_server, server_encoding, valid_up_to};
use crate::server::unguarded;

const UTF8: c_int = pg_sys::pg_enc::PG_UTF8 as c_int;
const SQL_ASCII: c_int = pg_sys::pg_enc::PG_SQL_ASCII as c_int;

/// A conversion must receive at least this many bytes before it may report them as invalid
/// (`MAX_CONVERSION_INPUT_LENGTH`).
const CONVERSION_INPUT: usize = pg_sys::MAX_CONVERSION_INPUT_LENGTH as usize;
/// A conversion produces at most this many bytes from one (`MAX_CONVERSION_GROWTH`).
const CONVERSION_GROWTH: usize = pg_sys::MAX_CONVERSION_GROWTH as usize;

/// Encodings of a file and of the server.
#[derive(Debug, Clone, Copy)]
pub struct Encodings {
    file: c_int,
    server: c_int,
    conversion: Option<pg_sys::Oid>,
    /// Treats a byte order mark as data.
    keeps_bom: bool,
    /// Parts of a record are verified or converted one by one, when they are used.
    by_part: bool,
}

/// Treatment of the file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// The reader verifies UTF-8.
    Utf8,
    /// The server verifies ([`Encodings::valid_up_to`]).
    Verify,
    /// The server converts ([`Encodings::convert`]).
    Convert,
    /// No verification and no conversion.
    Nothing,
}

/// Action for bytes that are not valid in the file's encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodingErrors {
    /// Fails with an error.
    Stop,
    /// Replaces them by U+FFFD, or by a question mark where the server's encoding lacks that character.
    Replace,
    /// Rejects the record.
    Reject,
}

/// Returns the encoding with this name, if it exists.
pub fn encoding_by_name(name: &str) -> Option<c_int> {
    let name = CString::new(name).ok()?;
    let encoding = compat::char_to_encoding(&name);
    (encoding >= 0).then_some(encoding)
}

/// Returns the client's encoding. Raises nothing.
pub fn client_encoding() -> c_int {
    // SAFETY: the function reads a variable of this process.
    unsafe { unguarded::pg_get_client_encoding() }
}

/// Returns the encoding of a file with this option.
fn of_file(encoding: Option<c_int>) -> c_int {
    encoding.unwrap_or_else(client_encoding)
}

/// Whether a file with this option is in UTF-8. Guarded.
pub fn is_utf8(encoding: Option<c_int>) -> bool {
    of_file(encoding) == UTF8
}

/// Whether no byte of a multi-byte character in a file with this option equals a single-byte character. This holds for
/// all encodings that a database can have (`PG_VALID_BE_ENCODING`). Guarded.
pub fn is_safe(encoding: Option<c_int>) -> bool {
    of_file(encoding) <= pg_sys::pg_enc::PG_KOI8U as c_int
}

/// Whether a byte search for a string in the server's encoding finds only the string. In UTF-8 no character begins
/// within another. In other multi-byte encodings the end of one character and the beginning of the next may look like a
/// third one.
pub fn is_found(string: &[u8]) -> bool {
    string.is_ascii() || longest(server_encoding()) == 1 || server_encoding() == UTF8
}

/// Returns the maximum length of a character of an encoding in bytes.
fn longest(encoding: c_int) -> usize {
    usize::try_from(max_length(encoding)).unwrap_or(1)
}

// SAFETY: a table lookup, and one in the catalogs.
calls! {
    fn max_length(encoding: c_int) -> c_int = pg_encoding_max_length(encoding);
    fn default_conversion(from: c_int, to: c_int) -> pg_sys::Oid = FindDefaultConversionProc(from, to);
}

fn name_of(encoding: c_int) -> String {
    compat::encoding_to_char(encoding).to_string_lossy().into_owned()
}

impl Encodings {
    /// Returns the encodings for a file in `encoding`, or in the client's encoding. Guarded.
    pub fn new(encoding: Option<c_int>) -> Result<Encodings> {
        let (file, server) = (of_file(encoding), server_encoding());
        if file == server || file == SQL_ASCII || server == SQL_ASCII {
            return Ok(Encodings { file, server, conversion: None, keeps_bom: false, by_part: false });
        }
        let conversion = default_conversion(file, server);
        if conversion == pg_sys::InvalidOid {
            let (from, to) = (name_of(file), name_of(server));
            let message = format!("default conversion function for encoding \"{from}\" to \"{to}\" does not exist");
            return Err(Error::new(Code::ERRCODE_UNDEFINED_FUNCTION, message));
        }
        Ok(Encodings { file, server, conversion: Some(conversion), keeps_bom: false, by_part: false })
    }

    /// Whether invalid bytes can be replaced. If only the database has SQL_ASCII, they cannot: no bytes are invalid
    /// there.
    pub fn are_mended(&self) -> bool {
        self.server != SQL_ASCII || self.file == SQL_ASCII
    }

    /// Returns the treatment of all bytes of the file.
    pub fn treatment(&self) -> Treatment {
        if self.by_part { Treatment::Nothing } else { self.conversion() }
    }

    /// Returns the treatment of bytes of the file that are used.
    pub fn conversion(&self) -> Treatment {
        match self.conversion {
            Some(_) => Treatment::Convert,
            None if self.file == UTF8 => Treatment::Utf8,
            None => Treatment::Verify,
        }
    }

    /// As [`is_safe`].
    pub fn is_safe(&self) -> bool {
        is_safe(Some(self.file))
    }

    /// Returns the file's encoding.
    pub fn of_file(&self) -> c_int {
        self.file
    }

    /// Whether the file has the server's encoding.
    pub fn are_servers(&self) -> bool {
        self.file == self.server
    }

    /// Returns the name of the file's encoding.
    pub fn name(&self) -> String {
        name_of(self.file)
    }

    /// Returns the name of the file's encoding, if it differs from the server's.
    pub fn foreign_name(&self) -> Option<String> {
        (self.file != self.server).then(|| self.name())
    }

    /// Returns the name of the server's encoding.
    pub fn server_name() -> String {
        name_of(server_encoding())
    }

    /// Treats a byte order mark as data, as COPY does.
    pub fn keeping_bom(self, keeps_bom: bool) -> Encodings {
        Encodings { keeps_bom, ..self }
    }

    /// Verifies or converts the parts of a record, not the whole file ([`crate::rows::parts`]).
    pub fn by_part(self, by_part: bool) -> Encodings {
        Encodings { by_part, ..self }
    }

    /// Whether a byte order mark at the start of the file is skipped.
    pub fn has_bom(&self) -> bool {
        self.file == UTF8 && !self.keeps_bom
    }

    /// Whether the file is in UTF-8.
    pub fn is_utf8(&self) -> bool {
        self.file == UTF8
    }

    /// Returns the maximum length of a character of the file in bytes.
    pub fn max_char(&self) -> usize {
        longest(self.file)
    }

    /// Returns the server's character set for decoders. Unverified bytes may be invalid UTF-8: then decoders may rely
    /// on ASCII only, and input functions count all other characters.
    pub fn charset(&self) -> Charset {
        match self.server {
            UTF8 if self.file == UTF8 || self.conversion.is_some() => Charset::Utf8,
            UTF8 => Charset::MultiByte,
            _ if longest(self.server) == 1 => Charset::SingleByte,
            _ => Charset::MultiByte,
        }
    }

    /// Whether any bytes but zeros are accepted, so that bytes are no evidence for another encoding.
    pub fn reads_all_bytes(&self) -> bool {
        self.file == SQL_ASCII || self.server == SQL_ASCII
    }

    /// Appends the valid characters at the start of `raw` to `out`, in the server's encoding. Returns the number of bytes
    /// used up. Guarded.
    pub fn take(&self, raw: &[u8], out: &mut Vec<u8>) -> usize {
        if self.conversion.is_some() {
            return self.convert(raw, out);
        }
        let valid = if self.file == UTF8 { utf8_valid_up_to(raw) } else { self.valid_up_to(raw) };
        out.extend_from_slice(raw.get(..valid).unwrap_or_default());
        valid
    }

    /// Whether all bytes are valid, except for a character that their end cuts. Guarded.
    pub fn reads(&self, bytes: &[u8]) -> bool {
        let (mut rest, mut out) = (bytes, Vec::new());
        loop {
            out.clear();
            let used = self.take(rest, &mut out);
            rest = rest.get(used..).unwrap_or_default();
            if used == 0 || rest.is_empty() {
                return rest.len() < self.max_char();
            }
        }
    }

    /// Returns the length of the longest valid prefix.
    pub fn valid_up_to(&self, bytes: &[u8]) -> usize {
        valid_up_to(self.file, bytes)
    }

    /// Converts the complete and valid characters at the start of `raw`, and appends them to `out`. Returns the number
    /// of bytes used up. Guarded.
    pub fn convert(&self, raw: &[u8], out: &mut Vec<u8>) -> usize {
        self.run_conversion(raw, out, true)
    }

    /// Whether bytes of which nothing could be converted are invalid, even if more bytes follow.
    pub fn is_hopeless(raw: &[u8], at_end: bool) -> bool {
        !raw.is_empty() && (at_end || raw.len() >= CONVERSION_INPUT)
    }

    /// Returns the replacement for invalid bytes, in the server's encoding.
    pub fn replacement(&self) -> &'static [u8] {
        if self.server == UTF8 { "\u{fffd}".as_bytes() } else { b"?" }
    }

    /// Whether unconvertible bytes can be marked in the converted text ([`mark`]), so that they are errors of their
    /// records.
    pub fn are_marked(&self) -> bool {
        self.conversion.is_some() && self.server == UTF8
    }

    /// Returns the error about bytes that could not be converted and were marked at the start of `utf8`, as an error of
    /// a record. Guarded.
    pub fn unconvertible(&self, utf8: &[u8]) -> Error {
        let bytes = marked(utf8);
        let first = bytes.get(..self.hopeless_len(&bytes)).unwrap_or_default();
        if self.valid_up_to(first) < first.len() {
            return invalid_bytes(self.file, &bytes);
        }
        let shown: Vec<_> = first.iter().map(|byte| format!("0x{byte:02x}")).collect();
        let (shown, file, server) = (shown.join(" "), self.name(), Encodings::server_name());
        let message = format!(
            "character with byte sequence {shown} in encoding \"{file}\" has no equivalent in encoding \"{server}\""
        );
        Error::new(Code::ERRCODE_UNTRANSLATABLE_CHARACTER, message).about_record()
    }

    /// Returns how many bytes at the start of unconvertible ones are replaced or marked together: a character that the
    /// server's encoding lacks, or one byte.
    pub fn hopeless_len(&self, raw: &[u8]) -> usize {
        let is_whole = |&len: &usize| raw.get(..len).is_some_and(|character| self.valid_up_to(character) == len);
        (1..=self.max_char()).find(is_whole).unwrap_or(raw.len().min(1))
    }

    fn run_conversion(&self, raw: &[u8], out: &mut Vec<u8>, no_error: bool) -> usize {
        let Some(procedure) = self.conversion else { return 0 };
        // Converts a limited number of bytes: the result has at most four times as many.
        let raw = raw.get(..64 * 1024).unwrap_or(raw);
        let mut converted = vec![0u8; raw.len() * CONVERSION_GROWTH + 1];
        let (Ok(len), Ok(room)) = (c_int::try_from(raw.len()), c_int::try_from(converted.len())) else { return 0 };
        // SAFETY: a guarded call; source and destination have these lengths; the destination has at least
        // MAX_CONVERSION_GROWTH times the source plus the NUL.
        let used = unsafe {
            pg_sys::pg_do_encoding_conversion_buf(
                procedure,
                self.file,
                self.server,
                raw.as_ptr().cast_mut(),
                len,
                converted.as_mut_ptr(),
                room,
                no_error,
            )
        };
        let end = memchr::memchr(0, &converted).unwrap_or(0);
        out.extend_from_slice(converted.get(..end).unwrap_or_default());
        usize::try_from(used).unwrap_or(0)
    }

    /// Raises the server's error about `bytes`, which start with the invalid ones. Guarded.
    pub fn raise(&self, bytes: &[u8]) -> Error {
        if self.conversion.is_none() {
            raise_invalid(self.file, bytes);
        }
        self.run_conversion(bytes, &mut Vec::new(), false);
        Error::new(Code::ERRCODE_INTERNAL_ERROR, "encoding conversion failed without error")
    }
}

/// Appends bytes that cannot be converted to text in UTF-8. What stands for them is invalid there, and is no ASCII: no
/// line end, delimiter or quote.
pub fn mark(raw: &[u8], utf8: &mut Vec<u8>) {
    utf8.extend(raw.iter().flat_map(|&byte| utf16::mark(byte)));
}

/// Returns text in which marked bytes are as they were.
pub fn unmark(utf8: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(utf8.len());
    let mut rest = utf8.iter();
    while let Some(&byte) = rest.next() {
        let is_marked = (0xf8..=0xfb).contains(&byte);
        bytes.push(if is_marked { byte << 6 | rest.next().map_or(0, |next| next & 0x3f) } else { byte });
    }
    bytes
}

/// Returns the bytes that were marked at the start of `utf8`.
fn marked(utf8: &[u8]) -> Vec<u8> {
    let (pairs, _) = utf8.as_chunks::<2>();
    pairs.iter().map_while(|&pair| utf16::marked(pair)).collect()
}

/// Returns the error about invalid UTF-8 that stands for invalid UTF-16; None if it stands for none.
pub fn invalid_utf16(utf8: &[u8]) -> Option<Error> {
    let unit: Vec<String> = utf16::damaged_unit(utf8)?.iter().map(|byte| format!("0x{byte:02x}")).collect();
    let message = format!("invalid byte sequence for encoding \"UTF16\": {}", unit.join(" "));
    Some(Error::new(Code::ERRCODE_CHARACTER_NOT_IN_REPERTOIRE, message))
}

/// Returns the server's error about bytes that begin with an invalid character, as an error of a record. Guarded.
pub fn invalid_bytes(encoding: c_int, bytes: &[u8]) -> Error {
    let (start, len) = (bytes.as_ptr().cast(), c_int::try_from(bytes.len()).unwrap_or(c_int::MAX));
    // SAFETY: the function reads the bytes and raises.
    let error = unsafe { error_of(|| unguarded::report_invalid_encoding(encoding, start, len)) };
    let unknown = || Error::new(Code::ERRCODE_CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence");
    error.unwrap_or_else(unknown).about_record()
}

/// Returns the error about `value` in the server's encoding; None if it is valid. Guarded.
pub fn invalid_in_server_encoding(value: &[u8]) -> Option<Error> {
    let encoding = server_encoding();
    let rest = value.get(valid_up_to(encoding, value)..).unwrap_or_default();
    (!rest.is_empty()).then(|| invalid_bytes(encoding, rest))
}

/// Replaces invalid bytes behind `start`, so that the string is valid in the server's encoding. Raises nothing.
pub fn mend_in_server_encoding(string: &mut Vec<u8>, start: usize) {
    let encoding = server_encoding();
    if encoding == UTF8 {
        let mended = string.get(start..).map(|bytes| {
            let mut mended = Vec::with_capacity(bytes.len() + 16);
            mend_utf8(bytes, &mut mended);
            mended
        });
        string.truncate(start);
        string.extend(mended.unwrap_or_default());
        return;
    }
    let mut at = start;
    while let Some(rest) = string.get_mut(at..).filter(|rest| !rest.is_empty()) {
        let valid = valid_up_to(encoding, rest);
        if let Some(invalid) = rest.get_mut(valid) {
            *invalid = b'?';
        }
        at += valid + 1;
    }
}

/// Returns the name of a file as text. File names are bytes: if they are invalid in the server's encoding, question
/// marks replace all but ASCII. Guarded.
pub fn shown(path: &CStr) -> String {
    if invalid_in_server_encoding(path.to_bytes()).is_none() {
        return from_server(path);
    }
    path.to_bytes().iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' }).collect()
}

/// Raises an error unless `value` is valid in the server's encoding, as `pg_verifymbstr`. Guarded.
pub fn verify_in_server_encoding(value: &[u8]) {
    let encoding = server_encoding();
    let rest = value.get(valid_up_to(encoding, value)..).unwrap_or_default();
    if !rest.is_empty() {
        raise_invalid(encoding, rest);
    }
}

/// Raises the server's error about bytes that begin with an invalid character. Guarded.
fn raise_invalid(encoding: c_int, bytes: &[u8]) {
    let len = c_int::try_from(bytes.len()).unwrap_or(c_int::MAX);
    // SAFETY: a guarded call that raises; the bytes are valid.
    unsafe { pg_sys::report_invalid_encoding(encoding, bytes.as_ptr().cast(), len) };
}
