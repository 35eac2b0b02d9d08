//! From the file's encoding to the server's.
//!
//! As in COPY (BeginCopyFrom, CopyConvertBuf): the file's encoding is the option's or the client's; equal encodings,
//! and SQL_ASCII on either side, are verified only; all others are converted before anything looks for lines, since
//! in the client-only encodings (SJIS, BIG5, GB18030 …) the second byte of a character may look like a delimiter.

use std::ffi::{CStr, CString, c_char, c_int};

use pg_bulk_format::convert::Charset;
use pg_bulk_format::verify::mend_utf8;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::attempt::complaint;
use super::compat;
use super::server_text::from_server;
use super::unguarded::{self, Opaque};
use crate::error::{Error, Result};

const UTF8: c_int = pg_sys::pg_enc::PG_UTF8 as c_int;
const SQL_ASCII: c_int = pg_sys::pg_enc::PG_SQL_ASCII as c_int;

/// A conversion is given at least this many bytes before it may say that they are invalid
/// (`MAX_CONVERSION_INPUT_LENGTH`).
const CONVERSION_INPUT: usize = pg_sys::MAX_CONVERSION_INPUT_LENGTH as usize;
/// A conversion makes at most this many bytes of one (`MAX_CONVERSION_GROWTH`).
const CONVERSION_GROWTH: usize = pg_sys::MAX_CONVERSION_GROWTH as usize;

/// Which encodings meet, and how.
#[derive(Debug, Clone, Copy)]
pub struct Encodings {
    file: c_int,
    server: c_int,
    conversion: Option<pg_sys::Oid>,
    /// A byte order mark is data.
    keeps_bom: bool,
    /// Nobody but who looks at the parts of a record looks at its bytes.
    by_part: bool,
}

/// What happens to bytes on their way in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// The reader verifies UTF-8.
    Utf8,
    /// The server verifies ([`Encodings::valid_up_to`]).
    Verify,
    /// The server converts ([`Encodings::convert`]).
    Convert,
    /// Nothing.
    Nothing,
}

/// What bytes that are not valid in the file's encoding lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodingErrors {
    /// An error, which is the end.
    Stop,
    /// U+FFFD in their place, or a question mark where the server's encoding has no such character.
    Replace,
    /// The record is left out.
    Reject,
}

/// The encoding of a name, if there is one.
pub fn encoding_by_name(name: &str) -> Option<c_int> {
    let name = CString::new(name).ok()?;
    // SAFETY: a guarded call with a valid string.
    let encoding = unsafe { compat::char_to_encoding(name.as_ptr()) };
    (encoding >= 0).then_some(encoding)
}

/// Is a string in the server's encoding found wherever its bytes are? In UTF-8 no character begins within another. In other
/// encodings with longer characters the end of one and the beginning of the next may look like a third one.
pub fn is_found(string: &[u8]) -> bool {
    // SAFETY: guarded calls without arguments.
    let (server, longest) = unsafe { (pg_sys::GetDatabaseEncoding(), pg_sys::pg_database_encoding_max_length()) };
    string.is_ascii() || longest == 1 || server == UTF8
}

fn name_of(encoding: c_int) -> String {
    // SAFETY: the table of names answers every number, with an empty string if need be.
    unsafe { CStr::from_ptr(compat::encoding_to_char(encoding)) }.to_string_lossy().into_owned()
}

impl Encodings {
    /// Those of a file in `encoding`, or else in the client's. Guarded.
    pub fn new(encoding: Option<c_int>) -> Result<Encodings> {
        // SAFETY: guarded calls without arguments that could be wrong.
        let (file, server) =
            unsafe { (encoding.unwrap_or_else(|| pg_sys::pg_get_client_encoding()), pg_sys::GetDatabaseEncoding()) };
        if file == server || file == SQL_ASCII || server == SQL_ASCII {
            return Ok(Encodings { file, server, conversion: None, keeps_bom: false, by_part: false });
        }
        // SAFETY: a guarded catalog lookup.
        let conversion = unsafe { pg_sys::FindDefaultConversionProc(file, server) };
        if conversion == pg_sys::InvalidOid {
            let (from, to) = (name_of(file), name_of(server));
            let message = format!("default conversion function for encoding \"{from}\" to \"{to}\" does not exist");
            return Err(Error::new(Code::ERRCODE_UNDEFINED_FUNCTION, message));
        }
        Ok(Encodings { file, server, conversion: Some(conversion), keeps_bom: false, by_part: false })
    }

    /// Can it be said in the server's encoding what is wrong with bytes of the file? In SQL_ASCII nothing is.
    pub fn are_mended(&self) -> bool {
        self.server != SQL_ASCII || self.file == SQL_ASCII
    }

    /// What happens to all bytes of the file.
    pub fn treatment(&self) -> Treatment {
        if self.by_part { Treatment::Nothing } else { self.conversion() }
    }

    /// What happens to bytes of the file that are to be used.
    pub fn conversion(&self) -> Treatment {
        match self.conversion {
            Some(_) => Treatment::Convert,
            None if self.file == UTF8 => Treatment::Utf8,
            None => Treatment::Verify,
        }
    }

    /// Is no byte of a longer character one that a single character has? So it is with the encodings that a database can
    /// have (`PG_VALID_BE_ENCODING`).
    pub fn is_safe(&self) -> bool {
        self.file <= pg_sys::pg_enc::PG_KOI8U as c_int
    }

    /// The file's encoding.
    pub fn of_file(&self) -> c_int {
        self.file
    }

    /// Is the file's encoding the server's?
    pub fn are_servers(&self) -> bool {
        self.file == self.server
    }

    /// Its name, if the server's is another one.
    pub fn foreign_name(&self) -> Option<String> {
        (self.file != self.server).then(|| name_of(self.file))
    }

    /// What the server's encoding is called.
    pub fn server_name() -> String {
        // SAFETY: a guarded call without arguments.
        name_of(unsafe { pg_sys::GetDatabaseEncoding() })
    }

    /// A byte order mark is data, as COPY sees it.
    pub fn keeping_bom(self, keeps_bom: bool) -> Encodings {
        Encodings { keeps_bom, ..self }
    }

    /// The parts of a record are verified or converted, and not the file ([`super::parts`]).
    pub fn by_part(self, by_part: bool) -> Encodings {
        Encodings { by_part, ..self }
    }

    /// May the file start with a byte order mark?
    pub fn has_bom(&self) -> bool {
        self.file == UTF8 && !self.keeps_bom
    }

    /// Most bytes of one character of the file.
    pub fn max_char(&self) -> usize {
        // SAFETY: a table lookup.
        usize::try_from(unsafe { pg_sys::pg_encoding_max_length(self.file) }).unwrap_or(1)
    }

    /// The server's characters, as decoders want to know them. What nobody verifies as UTF-8 need not be any: then only ASCII is
    /// certain, and input functions count what else there is.
    pub fn charset(&self) -> Charset {
        // SAFETY: a table lookup.
        let max_char = unsafe { pg_sys::pg_database_encoding_max_length() };
        match self.server {
            UTF8 if self.file == UTF8 || self.conversion.is_some() => Charset::Utf8,
            UTF8 => Charset::MultiByte,
            _ if max_char == 1 => Charset::SingleByte,
            _ => Charset::MultiByte,
        }
    }

    /// Length of the longest valid prefix.
    pub fn valid_up_to(&self, bytes: &[u8]) -> usize {
        let len = c_int::try_from(bytes.len()).unwrap_or(c_int::MAX);
        // SAFETY: the bytes are there; the function only looks at them.
        let valid = unsafe { pg_sys::pg_encoding_verifymbstr(self.file, bytes.as_ptr().cast(), len) };
        usize::try_from(valid).unwrap_or(0)
    }

    /// Convert as much of `raw` as is complete and valid, appending to `out`. Returns the bytes used up. Guarded.
    pub fn convert(&self, raw: &[u8], out: &mut Vec<u8>) -> usize {
        self.run_conversion(raw, out, true)
    }

    /// Are these bytes, of which nothing could be converted, invalid, whatever comes?
    pub fn is_hopeless(raw: &[u8], at_end: bool) -> bool {
        !raw.is_empty() && (at_end || raw.len() >= CONVERSION_INPUT)
    }

    /// What stands in the place of bytes that cannot be converted, in the server's encoding.
    pub fn replacement(&self) -> &'static [u8] {
        if self.server == UTF8 { "\u{fffd}".as_bytes() } else { b"?" }
    }

    /// How many bytes at the start of these, which cannot be converted, the [`Encodings::replacement`] is for: a character that the
    /// server's encoding lacks, or one byte.
    pub fn hopeless_len(&self, raw: &[u8]) -> usize {
        let is_whole = |&len: &usize| raw.get(..len).is_some_and(|character| self.valid_up_to(character) == len);
        (1..=self.max_char()).find(is_whole).unwrap_or(raw.len().min(1))
    }

    fn run_conversion(&self, raw: &[u8], out: &mut Vec<u8>, no_error: bool) -> usize {
        let Some(procedure) = self.conversion else { return 0 };
        // A piece at a time: the conversion fills at most four times its input.
        let raw = raw.get(..64 * 1024).unwrap_or(raw);
        let mut converted = vec![0u8; raw.len() * CONVERSION_GROWTH + 1];
        let (Ok(len), Ok(room)) = (c_int::try_from(raw.len()), c_int::try_from(converted.len())) else { return 0 };
        // SAFETY: a guarded call; source and destination are as long as said, and the destination is at least
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

    /// Raise the server's error about `bytes`, which start with what is invalid. Guarded.
    pub fn raise(&self, bytes: &[u8]) -> Error {
        if self.conversion.is_none() {
            let len = c_int::try_from(bytes.len()).unwrap_or(c_int::MAX);
            // SAFETY: a guarded call that raises; the bytes are there.
            unsafe { pg_sys::report_invalid_encoding(self.file, bytes.as_ptr().cast(), len) };
        }
        self.run_conversion(bytes, &mut Vec::new(), false);
        Error::new(Code::ERRCODE_INTERNAL_ERROR, "encoding conversion failed without error")
    }
}

/// Bytes to be complained about.
struct Invalid {
    encoding: c_int,
    bytes: *const c_char,
    len: c_int,
}

/// # Safety
/// A plain frame, and bytes that are there.
unsafe extern "C-unwind" fn complain(invalid: Opaque) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let Invalid { encoding, bytes, len } = invalid.cast::<Invalid>().read();
        unguarded::report_invalid_encoding(encoding, bytes, len);
    }
}

/// What the server says of bytes that begin with an invalid character, as an error about a record. Guarded.
pub fn invalid_bytes(encoding: c_int, bytes: &[u8]) -> Error {
    let len = c_int::try_from(bytes.len()).unwrap_or(c_int::MAX);
    let mut invalid = Invalid { encoding, bytes: bytes.as_ptr().cast(), len };
    // SAFETY: the function looks at the bytes and raises; the error is nobody else's, so nobody reads its context.
    unsafe {
        let context = pg_sys::error_context_stack;
        pg_sys::error_context_stack = std::ptr::null_mut();
        let error = complaint(complain, (&raw mut invalid).cast());
        pg_sys::error_context_stack = context;
        match error.as_ref() {
            Some(error) => Error::new(error.sqlerrcode.into(), from_server(CStr::from_ptr(error.message))),
            None => Error::new(Code::ERRCODE_CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence"),
        }
        .about_record()
    }
}

/// What is wrong with `value` in the server's encoding; None if nothing is. Guarded.
pub fn invalid_in_server_encoding(value: &[u8]) -> Option<Error> {
    let len = c_int::try_from(value.len()).unwrap_or(c_int::MAX);
    // SAFETY: guarded calls that only look at the bytes.
    let (encoding, valid) = unsafe {
        let encoding = pg_sys::GetDatabaseEncoding();
        (encoding, pg_sys::pg_encoding_verifymbstr(encoding, value.as_ptr().cast(), len))
    };
    let rest = value.get(usize::try_from(valid).unwrap_or(0)..).unwrap_or_default();
    (!rest.is_empty()).then(|| invalid_bytes(encoding, rest))
}

/// Make a string of the server's of what is behind `start`. Raises nothing.
pub fn mend_in_server_encoding(string: &mut Vec<u8>, start: usize) {
    // SAFETY: the function only looks, and raises nothing.
    let encoding = unsafe { unguarded::GetDatabaseEncoding() };
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
        let len = c_int::try_from(rest.len()).unwrap_or(c_int::MAX);
        // SAFETY: as above; the bytes are there.
        let valid = unsafe { unguarded::pg_encoding_verifymbstr(encoding, rest.as_ptr().cast(), len) };
        let valid = usize::try_from(valid).unwrap_or(0);
        if let Some(invalid) = rest.get_mut(valid) {
            *invalid = b'?';
        }
        at += valid + 1;
    }
}

/// Is this a string of the server's?
pub fn is_valid_in_server_encoding(value: &[u8]) -> bool {
    let len = c_int::try_from(value.len()).unwrap_or(c_int::MAX);
    // SAFETY: the functions only look at the bytes, and raise nothing.
    unsafe { unguarded::pg_encoding_verifymbstr(unguarded::GetDatabaseEncoding(), value.as_ptr().cast(), len) == len }
}

/// The name of a file as text. Such names are bytes: where the server's encoding has no such characters, there are question marks. Guarded.
pub fn shown(path: &CStr) -> String {
    if invalid_in_server_encoding(path.to_bytes()).is_none() {
        return from_server(path);
    }
    path.to_bytes().iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' }).collect()
}

/// Raise an error unless `value` is valid in the server's encoding (`pg_verifymbstr`). Guarded.
pub fn verify_in_server_encoding(value: &[u8]) {
    let len = c_int::try_from(value.len()).unwrap_or(c_int::MAX);
    // SAFETY: a guarded call; the bytes are there.
    unsafe { pg_sys::pg_verifymbstr(value.as_ptr().cast::<c_char>(), len, false) };
}
