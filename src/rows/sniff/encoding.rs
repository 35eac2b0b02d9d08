//! Finds the encoding of a file by its bytes.
//!
//! The first rule that applies decides:
//!
//! 1. The client or the server has SQL_ASCII: the session's encoding.
//! 2. All bytes are valid UTF-8: UTF-8.
//! 3. The session's encoding is another one, and reads all bytes: the session's.
//! 4. At least two characters are valid UTF-8 for each invalid sequence: UTF-8.
//! 5. The detector of web browsers (chardetng), then WIN1252, then LATIN1, if the server can convert the bytes. LATIN1
//!    accepts all bytes, so it is last.

use std::ffi::c_int;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use pgrx::pg_sys;

use crate::input::encoding::{Encodings, encoding_by_name};

/// The most bytes beyond the first one that is not ASCII that are examined.
const MOST: usize = 64 * 1024;
/// A file is UTF-8 with invalid bytes if it has at least this many valid characters beyond ASCII for each invalid one.
const VALID_FOR_EACH: usize = 2;
/// As many valid characters for each invalid one speak against an encoding that was found before.
const CLEARLY: usize = 8;
/// With fewer bytes beyond ASCII, the detector prefers the encoding of Western Europe to others with Latin letters.
const FEW: usize = 10;

/// The encoding of a file with these bytes, whose last character may be cut. `session`: the encoding that a load would
/// use. Guarded.
pub(super) fn by_evidence(bytes: &[u8], session: Encodings) -> Encodings {
    if session.reads_all_bytes() {
        return session;
    }
    let start = bytes.iter().position(|byte| !byte.is_ascii()).unwrap_or(bytes.len());
    let bytes: Vec<u8> = bytes
        .get(start..)
        .unwrap_or_default()
        .iter()
        .take(MOST)
        // A zero byte is invalid in every encoding of the server, so it is no evidence.
        .map(|&byte| if byte == 0 { b' ' } else { byte })
        .collect();
    let utf8 = pg_sys::pg_enc::PG_UTF8 as c_int;
    let (valid, invalid) = utf8_characters(&bytes);
    let detected = || {
        let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
        detector.feed(&bytes, true);
        let few = bytes.iter().filter(|byte| !byte.is_ascii()).count() < FEW;
        detector.guess(few.then_some(b"de".as_slice()), Utf8Detection::Deny).name()
    };
    let legacy = || {
        let name = detected();
        let wider = match name {
            "EUC-KR" => Some("UHC"),
            "GBK" => Some("GB18030"),
            _ => None,
        };
        [Some(name), wider, Some("WIN1252"), Some("LATIN1")].into_iter().flatten().filter_map(encoding_by_name)
    };
    let of = |encoding| Encodings::new(Some(encoding)).ok();
    if invalid == 0 {
        return of(utf8).unwrap_or(session);
    }
    if session.of_file() != utf8 && session.reads(&bytes) {
        return session;
    }
    if valid >= VALID_FOR_EACH * invalid {
        return of(utf8).unwrap_or(session);
    }
    legacy().filter_map(of).find(|encodings| encodings.reads(&bytes)).unwrap_or(session)
}

/// Whether bytes have characters of UTF-8 beyond ASCII, and no others. The ends may be cut.
pub(super) fn is_clearly_utf8(bytes: &[u8]) -> bool {
    let (valid, invalid) = utf8_characters(bytes);
    valid > CLEARLY * invalid
}

/// Number of the valid characters beyond ASCII in bytes of UTF-8, and of the invalid sequences. A character that the end
/// of the bytes cuts is not invalid behind a valid one.
fn utf8_characters(bytes: &[u8]) -> (usize, usize) {
    let (mut valid, mut invalid, mut at) = (0, 0, 0);
    for chunk in bytes.utf8_chunks() {
        at += chunk.valid().len() + chunk.invalid().len();
        valid += chunk.valid().bytes().filter(|&byte| byte >= 0xc0).count();
        let is_cut = at == bytes.len()
            && valid > 0
            && std::str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none());
        invalid += usize::from(!chunk.invalid().is_empty() && !is_cut);
    }
    (valid, invalid)
}
