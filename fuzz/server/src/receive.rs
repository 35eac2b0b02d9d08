//! Compares decoders of binary fields with the types' receive functions.
//!
//! If a decoder returns a value, that must equal the receive function's value, and the receive function must have read
//! all bytes. Strings are in the client encoding: in UTF-8, which the decoder verifies, or in another one, of which it
//! accepts ASCII only.

use std::cell::RefCell;
use std::collections::HashMap;

use pg_bulk_types::arena::Arena;
use pg_bulk_text::json_text::Charset;
use pg_bulk_types::convert::Wire;
use pgrx::pg_sys;

use crate::trial_input::Input;

/// bool, bytea, int8, int2, int4, text, oid, float4, float8, bpchar, varchar, date, time, timestamp, timestamptz, uuid
const TYPES: [u32; 16] = [16, 17, 20, 21, 23, 25, 26, 700, 701, 1042, 1043, 1082, 1083, 1114, 1184, 2950];

thread_local! {
    static INPUTS: RefCell<HashMap<(u32, i32), Input>> = RefCell::new(HashMap::new());
}

/// Receives one field. The first byte chooses the type, the second one the encoding and whether there is a typmod, the
/// third one the typmod.
pub fn run(input: &[u8]) {
    let Some((&[which, how, length], field)) = input.split_first_chunk() else { return };
    let Some(&type_oid) = TYPES.get(usize::from(which) % TYPES.len()) else { return };
    let typmod = match (how & 1, type_oid) {
        (0, _) | (_, 16..=26 | 700 | 701 | 1082 | 2950) => -1,
        (_, 1083 | 1114 | 1184) => i32::from(length % 7),
        _ => 5 + i32::from(length),
    };
    let utf8 = how & 2 == 0;
    let client = if utf8 { pg_sys::pg_enc::PG_UTF8 } else { pg_sys::pg_enc::PG_LATIN1 } as i32;
    // SAFETY: the database has the encoding that initdb chose; the server converts between it and both client
    // encodings.
    unsafe {
        if pg_sys::pg_get_client_encoding() != client {
            pg_sys::PrepareClientEncoding(client);
            pg_sys::SetClientEncoding(client);
        }
    }
    let Some(decoder) = Wire::for_type(type_oid, typmod, Charset::Utf8, utf8) else { return };
    let mut arena = Arena::new();
    let Some(found) = decoder.decode(field, &mut arena) else { return };
    INPUTS.with_borrow_mut(|inputs| {
        let input = inputs.entry((type_oid, typmod)).or_insert_with(|| Input::received(type_oid.into(), typmod));
        // SAFETY: the decoder made a value of this type, which lives as long as the arena.
        let decoded = unsafe { input.bytes(pg_sys::Datum::from(found as usize)) };
        assert_eq!(Ok(decoded), input.receive(field), "{decoder:?}, typmod {typmod}, of {field:02x?}");
    });
}
