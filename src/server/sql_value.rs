//! Values of SQL types, each with its type.
//!
//! A value owns or borrows its data outside of the server's memory, so the end of a memory context does not affect it.
//! [`SqlValue::datum`] makes a datum of the value's type. Only types that pg_bulk's own tables, statements and functions
//! use have values.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char};

use pgrx::{FromDatum, IntoDatum, PgSqlErrorCode as Code, pg_sys};

use super::jsonb::Jsonb;
use super::server_text::is_valid_in_server_encoding;
use crate::error::{Error, Result};

/// A value, or NULL. Text is in the server's encoding.
#[derive(Debug, Clone)]
pub struct SqlValue<'a> {
    kind: pg_sys::Oid,
    data: Data<'a>,
}

#[derive(Debug, Clone)]
enum Data<'a> {
    Null,
    /// A value of a type that is passed by value.
    Word(usize),
    Text(Cow<'a, CStr>),
    Texts(Cow<'a, [CString]>),
    Bytes(Cow<'a, [u8]>),
    Json(Cow<'a, Jsonb>),
    Interval(pg_sys::Interval),
}

impl<'a> SqlValue<'a> {
    pub fn null(kind: pg_sys::Oid) -> SqlValue<'a> {
        SqlValue { kind, data: Data::Null }
    }

    fn word(kind: pg_sys::Oid, datum: pg_sys::Datum) -> SqlValue<'a> {
        SqlValue { kind, data: Data::Word(datum.value()) }
    }

    pub fn bigint(value: i64) -> SqlValue<'a> {
        SqlValue::word(pg_sys::INT8OID, value.into())
    }

    /// A bigint; a larger number becomes the largest one.
    pub fn count(value: u64) -> SqlValue<'a> {
        SqlValue::bigint(i64::try_from(value).unwrap_or(i64::MAX))
    }

    pub fn integer(value: i32) -> SqlValue<'a> {
        SqlValue::word(pg_sys::INT4OID, value.into())
    }

    pub fn boolean(value: bool) -> SqlValue<'a> {
        SqlValue::word(pg_sys::BOOLOID, value.into())
    }

    pub fn double(value: f64) -> SqlValue<'a> {
        SqlValue::word(pg_sys::FLOAT8OID, value.to_bits().into())
    }

    pub fn oid(value: pg_sys::Oid) -> SqlValue<'a> {
        SqlValue::word(pg_sys::OIDOID, value.into())
    }

    pub fn xid(value: pg_sys::TransactionId) -> SqlValue<'a> {
        SqlValue::word(pg_sys::XIDOID, value.into_inner().into())
    }

    pub fn timestamp(value: pg_sys::TimestampTz) -> SqlValue<'a> {
        SqlValue::word(pg_sys::TIMESTAMPTZOID, value.into())
    }

    pub fn text(value: impl Into<Cow<'a, CStr>>) -> SqlValue<'a> {
        SqlValue { kind: pg_sys::TEXTOID, data: Data::Text(value.into()) }
    }

    /// Bytes as text; NULL if they are not valid in the server's encoding. Guarded.
    pub fn text_of(bytes: &[u8]) -> SqlValue<'a> {
        match CString::new(bytes) {
            Ok(text) if is_valid_in_server_encoding(bytes) => SqlValue::text(text),
            _ => SqlValue::null(pg_sys::TEXTOID),
        }
    }

    pub fn optional_text(value: Option<&'a CStr>) -> SqlValue<'a> {
        value.map_or_else(|| SqlValue::null(pg_sys::TEXTOID), SqlValue::text)
    }

    pub fn texts(values: impl Into<Cow<'a, [CString]>>) -> SqlValue<'a> {
        SqlValue { kind: pg_sys::TEXTARRAYOID, data: Data::Texts(values.into()) }
    }

    pub fn bytes(bytes: &'a [u8]) -> SqlValue<'a> {
        SqlValue { kind: pg_sys::BYTEAOID, data: Data::Bytes(bytes.into()) }
    }

    pub fn jsonb(json: &'a Jsonb) -> SqlValue<'a> {
        SqlValue { kind: pg_sys::JSONBOID, data: Data::Json(Cow::Borrowed(json)) }
    }

    pub fn owned_jsonb(json: Jsonb) -> SqlValue<'a> {
        SqlValue { kind: pg_sys::JSONBOID, data: Data::Json(Cow::Owned(json)) }
    }

    pub fn kind(&self) -> pg_sys::Oid {
        self.kind
    }

    pub fn is_null(&self) -> bool {
        matches!(self.data, Data::Null)
    }

    /// The number of a type that is passed by value; 0 for any other type and for NULL.
    pub fn number(&self) -> i64 {
        if let Data::Word(word) = self.data { word as i64 } else { 0 }
    }

    /// As a number, for types with 32 bits.
    pub fn small(&self) -> i32 {
        self.number() as i32
    }

    pub fn as_oid(&self) -> pg_sys::Oid {
        pg_sys::Oid::from_u32(self.number() as u32)
    }

    pub fn is_true(&self) -> bool {
        self.number() & 1 != 0
    }

    /// A text or a name; empty for any other type and for NULL.
    pub fn into_text(self) -> CString {
        self.into_optional_text().unwrap_or_default()
    }

    /// A text or a name; None for any other type and for NULL.
    pub fn into_optional_text(self) -> Option<CString> {
        if let Data::Text(text) = self.data { Some(text.into_owned()) } else { None }
    }

    /// The elements of an array of text that are not NULL; none for any other type.
    pub fn into_texts(self) -> Vec<CString> {
        if let Data::Texts(texts) = self.data { texts.into_owned() } else { Vec::new() }
    }

    pub fn into_jsonb(self) -> Option<Jsonb> {
        if let Data::Json(json) = self.data { Some(json.into_owned()) } else { None }
    }

    /// Whether this is a bytea with these bytes.
    pub fn is_bytes(&self, bytes: &[u8]) -> bool {
        matches!(&self.data, Data::Bytes(own) if **own == *bytes)
    }

    pub fn interval(&self) -> Option<pg_sys::Interval> {
        if let Data::Interval(interval) = self.data { Some(interval) } else { None }
    }

    /// Makes a datum of this type; None for NULL. Guarded; allocates in the current memory context.
    pub fn datum(&self) -> Option<pg_sys::Datum> {
        // SAFETY: a guarded call that copies the string.
        let copy = |text: &CStr| unsafe { pg_sys::Datum::from(pg_sys::cstring_to_text(text.as_ptr())) };
        match &self.data {
            Data::Null => None,
            Data::Word(word) => Some(pg_sys::Datum::from(*word)),
            Data::Text(text) => Some(copy(text)),
            Data::Texts(texts) => {
                let mut values: Vec<_> = texts.iter().map(|text| copy(text)).collect();
                let (len, align) = (i32::try_from(values.len()).unwrap_or(i32::MAX), pg_sys::TYPALIGN_INT as c_char);
                // SAFETY: a guarded call that copies this number of texts.
                let array =
                    unsafe { pg_sys::construct_array(values.as_mut_ptr(), len, pg_sys::TEXTOID, -1, false, align) };
                Some(array.into())
            }
            Data::Bytes(bytes) => bytes.as_ref().into_datum(),
            Data::Json(json) => Some(json.copy()),
            // SAFETY: a guarded call allocates the memory that is written.
            Data::Interval(interval) => unsafe {
                let copy = pg_sys::palloc(size_of::<pg_sys::Interval>()).cast::<pg_sys::Interval>();
                copy.write(*interval);
                Some(copy.into())
            },
        }
    }
}

impl SqlValue<'static> {
    /// A copy of a datum; `None` is NULL. Guarded; a type that has no values here raises an error.
    ///
    /// # Safety
    /// The datum is of the type `kind`.
    pub unsafe fn from_datum(kind: pg_sys::Oid, datum: Option<pg_sys::Datum>) -> Result<SqlValue<'static>> {
        let Some(datum) = datum else { return Ok(SqlValue::null(kind)) };
        // SAFETY: the datum has this type; guarded calls that copy it.
        let data = unsafe {
            match kind {
                pg_sys::TEXTOID => {
                    let value: *mut pg_sys::varlena = datum.cast_mut_ptr();
                    let plain = pg_sys::pg_detoast_datum_packed(value);
                    let string = pg_sys::text_to_cstring(plain.cast());
                    let text = CStr::from_ptr(string).to_owned();
                    pg_sys::pfree(string.cast());
                    if plain != value {
                        pg_sys::pfree(plain.cast());
                    }
                    Data::Text(text.into())
                }
                pg_sys::NAMEOID => Data::Text(CStr::from_ptr(datum.cast_mut_ptr()).to_owned().into()),
                pg_sys::TEXTARRAYOID => {
                    let array = pg_sys::pg_detoast_datum(datum.cast_mut_ptr()).cast();
                    let (mut elements, mut nulls, mut number) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
                    let (out, out_nulls, align) = (&raw mut elements, &raw mut nulls, pg_sys::TYPALIGN_INT as c_char);
                    let text = pg_sys::TEXTOID;
                    pg_sys::deconstruct_array(array, text, -1, false, align, out, out_nulls, &raw mut number);
                    let present = (0..usize::try_from(number).unwrap_or(0)).filter(|i| !*nulls.add(*i));
                    let texts = present.map(|i| SqlValue::from_datum(text, Some(*elements.add(i))));
                    Data::Texts(texts.map(|text| text.map(SqlValue::into_text)).collect::<Result<Vec<_>>>()?.into())
                }
                pg_sys::BYTEAOID => Data::Bytes(Vec::<u8>::from_datum(datum, false).unwrap_or_default().into()),
                pg_sys::JSONBOID => Data::Json(Cow::Owned(Jsonb::from_datum(datum))),
                pg_sys::INTERVALOID => Data::Interval(datum.cast_mut_ptr::<pg_sys::Interval>().read()),
                pg_sys::INT8OID
                | pg_sys::INT4OID
                | pg_sys::BOOLOID
                | pg_sys::FLOAT8OID
                | pg_sys::OIDOID
                | pg_sys::REGCLASSOID
                | pg_sys::XIDOID
                | pg_sys::TIMESTAMPTZOID => Data::Word(datum.value()),
                _ => {
                    let message = format!("pg_bulk does not support values of type {}", kind.to_u32());
                    return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
                }
            }
        };
        // A name is a text here.
        Ok(SqlValue { kind: if kind == pg_sys::NAMEOID { pg_sys::TEXTOID } else { kind }, data })
    }
}
