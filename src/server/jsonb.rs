//! Reads a jsonb object with the server's iterator. Names and values are in the server's encoding, which need not be
//! UTF-8.

use pgrx::pg_sys;
use pgrx::pg_sys::JsonbIteratorToken::{WJB_BEGIN_OBJECT, WJB_DONE, WJB_ELEM, WJB_KEY, WJB_VALUE};
use pgrx::pg_sys::jbvType;

/// A value. Booleans and numbers are represented by their text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Json {
    Null,
    Text(Vec<u8>),
    /// Text of a boolean or number.
    Literal(Vec<u8>),
    Array(Vec<Json>),
    Object(Vec<(Vec<u8>, Json)>),
}

/// Returns the members of an object; None for any other value. Guarded.
///
/// # Safety
/// A datum of type jsonb.
pub unsafe fn members(datum: pg_sys::Datum) -> Option<Vec<(Vec<u8>, Json)>> {
    // SAFETY: this function's contract covers the datum; the iterator fills local variables, and the detoasted copy
    // outlives it.
    unsafe {
        let jsonb = pg_sys::pg_detoast_datum(datum.cast_mut_ptr()).cast::<pg_sys::Jsonb>();
        let mut iterator = pg_sys::JsonbIteratorInit(&raw mut (*jsonb).root);
        let mut value = pg_sys::JsonbValue::default();
        if pg_sys::JsonbIteratorNext(&raw mut iterator, &raw mut value, false) != WJB_BEGIN_OBJECT {
            return None;
        }
        Some(read_members(iterator))
    }
}

/// Returns the members of an object.
///
/// # Safety
/// An iterator that has just returned the beginning of the object.
unsafe fn read_members(mut iterator: *mut pg_sys::JsonbIterator) -> Vec<(Vec<u8>, Json)> {
    let (mut members, mut key) = (Vec::new(), Vec::new());
    let mut value = pg_sys::JsonbValue::default();
    loop {
        // SAFETY: this function's contract covers the iterator; guarded calls. A key is a string.
        unsafe {
            match pg_sys::JsonbIteratorNext(&raw mut iterator, &raw mut value, true) {
                WJB_KEY => key = string(&value),
                WJB_VALUE => members.push((std::mem::take(&mut key), read(&value))),
                WJB_DONE => return members,
                _ => (),
            }
        }
    }
}

/// # Safety
/// A value of type jbvString.
unsafe fn string(value: &pg_sys::JsonbValue) -> Vec<u8> {
    // SAFETY: this function's contract covers the type; the string has this length.
    unsafe {
        let string = value.val.string;
        let len = usize::try_from(string.len).unwrap_or(0);
        if len == 0 { Vec::new() } else { std::slice::from_raw_parts(string.val.cast::<u8>(), len).to_vec() }
    }
}

/// # Safety
/// A value of a jsonb that still exists.
unsafe fn read(value: &pg_sys::JsonbValue) -> Json {
    // SAFETY: the type says which member of the union is valid; guarded calls.
    unsafe {
        match value.type_ {
            jbvType::jbvNull => Json::Null,
            jbvType::jbvString => Json::Text(string(value)),
            jbvType::jbvBool => Json::Literal(if value.val.boolean { b"true".to_vec() } else { b"false".to_vec() }),
            jbvType::jbvNumeric => {
                let datum = pg_sys::Datum::from(value.val.numeric);
                let text = pg_sys::OidOutputFunctionCall(pg_sys::F_NUMERIC_OUT.into(), datum);
                Json::Literal(std::ffi::CStr::from_ptr(text).to_bytes().to_vec())
            }
            jbvType::jbvBinary => {
                let mut iterator = pg_sys::JsonbIteratorInit(value.val.binary.data);
                let mut element = pg_sys::JsonbValue::default();
                let first = pg_sys::JsonbIteratorNext(&raw mut iterator, &raw mut element, false);
                if first == WJB_BEGIN_OBJECT {
                    return Json::Object(read_members(iterator));
                }
                let mut elements = Vec::new();
                loop {
                    match pg_sys::JsonbIteratorNext(&raw mut iterator, &raw mut element, true) {
                        WJB_ELEM => elements.push(read(&element)),
                        WJB_DONE => return Json::Array(elements),
                        _ => (),
                    }
                }
            }
            _ => Json::Object(Vec::new()),
        }
    }
}
