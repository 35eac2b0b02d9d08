//! Compares decoders of text fields with the types' input functions.
//!
//! A decoder may return nothing. If it returns a value, that must equal the input function's byte for byte, in
//! databases of each kind of encoding and under all settings that input functions depend on.

use std::cell::RefCell;
use std::collections::HashMap;

use pg_bulk_types::arena::Arena;
use pg_bulk_text::json_text::Charset;
use pg_bulk_types::convert::{Decoder, Session};
use pg_bulk_fuzz::decode::Case;
use pgrx::pg_sys;

use crate::trial_input::Input;
use crate::version;

thread_local! {
    /// Input functions by type and typmod. There are not many.
    static INPUTS: RefCell<HashMap<(u32, i32), Input>> = RefCell::new(HashMap::new());
}

/// Decodes one input and calls the input function.
pub fn run(input: &[u8]) {
    let Some(case) = Case::of(input).filter(Case::is_of_a_column) else { return };
    let Case { type_oid, typmod, session, text, more, .. } = case;
    if !enter(session.charset, text) {
        return;
    }
    set(&session, more);
    // If letters may be names of time zones in this version, they may be here, for any input.
    let session = Session { zone_letters: session.zone_letters || version::ZONE_LETTERS, ..session };
    let Some(decoder) = Decoder::for_type(type_oid, typmod, &session) else { return };
    let mut arena = Arena::new();
    arena.alloc(usize::from(more % 64));
    let Some(found) = decoder.decode(text, &mut arena) else { return };
    INPUTS.with_borrow_mut(|inputs| {
        let input = inputs.entry((type_oid, typmod)).or_insert_with(|| Input::new(type_oid.into(), typmod));
        // SAFETY: the decoder made a value of this type, which lives as long as the arena.
        let decoded = unsafe { input.bytes(pg_sys::Datum::from(found as usize)) };
        let read = input.read(text);
        assert_eq!(
            Ok(decoded),
            read,
            "{decoder:?}, typmod {typmod}, {session:?}, of {:?}",
            String::from_utf8_lossy(text)
        );
    });
}

/// Sets a database encoding of this kind. Returns false if the text is invalid in it.
fn enter(charset: Charset, text: &[u8]) -> bool {
    let encoding = match charset {
        Charset::Utf8 => pg_sys::pg_enc::PG_UTF8,
        Charset::SingleByte => pg_sys::pg_enc::PG_LATIN1,
        Charset::MultiByte => pg_sys::pg_enc::PG_EUC_JP,
    } as i32;
    let Ok(len) = i32::try_from(text.len()) else { return false };
    // SAFETY: `len` bytes; the encoding is one that servers can have. This process stores no text afterwards.
    unsafe {
        pg_sys::SetDatabaseEncoding(encoding);
        pg_sys::pg_verify_mbstr(encoding, text.as_ptr().cast(), len, true)
    }
}

/// Applies the session's settings, and further ones, chosen by `more`, that decoders do not get.
fn set(session: &Session, more: u8) {
    let zone = match (session.utc, more >> 6) {
        (true, _) => c"UTC",
        (false, 0) => c"Europe/Berlin",
        (false, 1) => c"America/St_Johns",
        (false, _) => c"Asia/Tokyo",
    };
    let order = match more >> 6 {
        0 => pg_sys::DATEORDER_YMD,
        1 => pg_sys::DATEORDER_DMY,
        _ => pg_sys::DATEORDER_MDY,
    };
    let style = if session.interval_sql_standard { pg_sys::INTSTYLE_SQL_STANDARD } else { pg_sys::INTSTYLE_POSTGRES };
    // SAFETY: these are variables of this process that SET would change, with valid values; time zones stay in memory
    // once loaded.
    unsafe {
        pg_sys::session_timezone = pg_sys::pg_tzset(zone.as_ptr());
        pg_sys::DateOrder = order as i32;
        pg_sys::IntervalStyle = style as i32;
    }
}
