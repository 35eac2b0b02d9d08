//! Reads a jsonb object with the server's iterator, and makes one. Names and values are in the server's encoding, which
//! need not be UTF-8.

use std::ffi::{CStr, CString};
use std::fmt::Display;
use std::marker::PhantomData;

use pgrx::pg_sys;
use pgrx::pg_sys::JsonbIteratorToken::{WJB_BEGIN_OBJECT, WJB_DONE, WJB_ELEM, WJB_KEY, WJB_VALUE};
use pgrx::pg_sys::jbvType;

use super::server_text::{copied, to_server};

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

impl Json {
    pub fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
        Json::Object(members.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    /// Text in the server's encoding. Guarded.
    pub fn text(text: &str) -> Json {
        Json::Text(to_server(text).into_bytes())
    }

    /// A number or a boolean.
    pub fn literal(value: impl Display) -> Json {
        Json::Literal(value.to_string().into_bytes())
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Json::Null => out.extend(b"null"),
            Json::Literal(text) => out.extend(text),
            Json::Text(text) => write_string(text, out),
            Json::Array(elements) => {
                for (i, element) in elements.iter().enumerate() {
                    out.push(if i == 0 { b'[' } else { b',' });
                    element.write(out);
                }
                out.extend(if elements.is_empty() { "[]" } else { "]" }.bytes());
            }
            Json::Object(members) => {
                for (i, (name, value)) in members.iter().enumerate() {
                    out.push(if i == 0 { b'{' } else { b',' });
                    write_string(name, out);
                    out.push(b':');
                    value.write(out);
                }
                out.extend(if members.is_empty() { "{}" } else { "}" }.bytes());
            }
        }
    }
}

fn write_string(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            0..b' ' => out.extend(format!("\\u{byte:04x}").bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// A jsonb that this value owns, as the server stores it without compression. Words keep it aligned.
#[derive(Debug, Clone)]
pub struct Jsonb {
    words: Vec<u32>,
    len: usize,
}

impl Jsonb {
    /// A copy of a datum. Guarded.
    ///
    /// # Safety
    /// A datum of type jsonb.
    pub unsafe fn from_datum(datum: pg_sys::Datum) -> Jsonb {
        // SAFETY: the datum is a jsonb; a guarded call returns it with a header of four bytes, which has its length.
        unsafe {
            let value = pg_sys::pg_detoast_datum(datum.cast_mut_ptr());
            Jsonb::from_bytes(std::slice::from_raw_parts(value.cast::<u8>(), pgrx::varsize_any(value)))
        }
    }

    /// # Safety
    /// The [`Jsonb::bytes`] of a jsonb.
    pub unsafe fn from_bytes(bytes: &[u8]) -> Jsonb {
        let word = |part: &[u8]| {
            let mut word = [0; 4];
            word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            u32::from_ne_bytes(word)
        };
        Jsonb { words: bytes.chunks(4).map(word).collect(), len: bytes.len() }
    }

    /// Parses JSON in the server's encoding. Guarded.
    pub fn parse(json: &CStr) -> Jsonb {
        let (function, kind) = (pg_sys::F_JSONB_IN.into(), pg_sys::JSONBOID);
        // SAFETY: a guarded call of the type's input function, which only reads the string.
        unsafe { Jsonb::from_datum(pg_sys::OidInputFunctionCall(function, json.as_ptr().cast_mut(), kind, -1)) }
    }

    /// Makes a jsonb. Guarded.
    pub fn of(json: &Json) -> Jsonb {
        let mut text = Vec::new();
        json.write(&mut text);
        Jsonb::parse(&CString::new(text).unwrap_or_default())
    }

    /// All bytes, with the header.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the words have at least this many bytes.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }

    /// A copy as a datum. Guarded; allocates in the current memory context.
    pub fn copy(&self) -> pg_sys::Datum {
        // SAFETY: a guarded call allocates the memory that is written.
        unsafe {
            let copy = pg_sys::palloc(self.len).cast::<u8>();
            copy.copy_from_nonoverlapping(self.bytes().as_ptr(), self.len);
            pg_sys::Datum::from(copy)
        }
    }

    /// The text of the value, in the server's encoding. Guarded.
    pub fn text(&self) -> CString {
        // SAFETY: a guarded call of the type's output function, which returns a string.
        unsafe { copied(pg_sys::OidOutputFunctionCall(pg_sys::F_JSONB_OUT.into(), self.copy())) }.unwrap_or_default()
    }

    /// Returns the members of an object; None for any other value. Guarded.
    pub fn members(&self) -> Option<Vec<(Vec<u8>, Json)>> {
        let jsonb = self.words.as_ptr().cast::<pg_sys::Jsonb>().cast_mut();
        // SAFETY: the words are a jsonb, which has a root.
        match (Container(unsafe { &raw mut (*jsonb).root }, PhantomData)).read() {
            Json::Object(members) => Some(members),
            _ => None,
        }
    }
}

/// An object or an array in a jsonb that exists as long as `'a`.
struct Container<'a>(*mut pg_sys::JsonbContainer, PhantomData<&'a Jsonb>);

impl Container<'_> {
    fn read(self) -> Json {
        // SAFETY: guarded calls on a valid container; the iterator fills `value`. The type of a value says which member
        // of the union is valid, a key is a string, and a string has its length.
        unsafe {
            // The server's parser accepts deeper values than this function has stack for.
            pg_sys::check_stack_depth();
            let string = |value: &pg_sys::JsonbValue| {
                let string = value.val.string;
                let len = usize::try_from(string.len).unwrap_or(0);
                if len == 0 { Vec::new() } else { std::slice::from_raw_parts(string.val.cast::<u8>(), len).to_vec() }
            };
            let read = |value: &pg_sys::JsonbValue| match value.type_ {
                jbvType::jbvNull => Json::Null,
                jbvType::jbvString => Json::Text(string(value)),
                jbvType::jbvBool => Json::Literal(if value.val.boolean { b"true".to_vec() } else { b"false".to_vec() }),
                jbvType::jbvNumeric => {
                    let datum = pg_sys::Datum::from(value.val.numeric);
                    let text = pg_sys::OidOutputFunctionCall(pg_sys::F_NUMERIC_OUT.into(), datum);
                    Json::Literal(CStr::from_ptr(text).to_bytes().to_vec())
                }
                jbvType::jbvBinary => Container(value.val.binary.data, PhantomData).read(),
                _ => Json::Object(Vec::new()),
            };
            let mut iterator = pg_sys::JsonbIteratorInit(self.0);
            let mut value = pg_sys::JsonbValue::default();
            let is_object = pg_sys::JsonbIteratorNext(&raw mut iterator, &raw mut value, false) == WJB_BEGIN_OBJECT;
            let (mut members, mut elements, mut key) = (Vec::new(), Vec::new(), Vec::new());
            loop {
                match pg_sys::JsonbIteratorNext(&raw mut iterator, &raw mut value, true) {
                    WJB_KEY => key = string(&value),
                    WJB_VALUE => members.push((std::mem::take(&mut key), read(&value))),
                    WJB_ELEM => elements.push(read(&value)),
                    WJB_DONE if is_object => return Json::Object(members),
                    WJB_DONE => return Json::Array(elements),
                    _ => (),
                }
            }
        }
    }
}
