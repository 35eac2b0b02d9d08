//! JSON lines: conversion of an object's members to the text for each column.
//!
//! For the reader such a line is one field, which belongs to no column. A column's value is a part of the line, as in
//! records of fixed length ([`super::line_parts`]). The crate `text` finds it in the line ([`json_object`]). This module
//! converts it to the text that the column's type reads. A string loses its quotes and escapes. An array becomes an
//! array literal if the type is an array. All other values remain as they are, and so does every value for json and
//! jsonb.
//!
//! The tricky point is a line that the crate `text` cannot decide about. Then the server's parser checks the line,
//! including escapes, as `json_populate_record` does. Its error is an error of the record. Without an error the line is
//! valid, and is parsed once more.

use pg_bulk_text::json_object::{self, Object, ValueKind};
use pg_bulk_types::json_array::{self, Element};
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::column::{Column, MemberKey, Taken};
use super::ragged::Remark;
use crate::error::{self, Error, Result, is_data_exception};
use crate::input::encoding::Encodings;
use crate::server::attempt::error_of;
use crate::server::copy_errors;
use crate::server::lookup::{CatalogRow, base_type, element_type};
use crate::server::memory_context::MemoryContext;
use crate::server::server_text::server_encoding;
use crate::server::unguarded;

/// Value of a column in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given<'a> {
    Value(&'a [u8]),
    Null,
    /// The record has no value: the column gets its default.
    Missing,
}

const UTF8: i32 = pg_sys::pg_enc::PG_UTF8 as i32;

/// The members of a line that a column takes.
#[derive(Debug, Clone, Copy)]
enum Take {
    /// None.
    Nothing,
    /// The value of a key.
    Value(usize, Form),
    /// The members that no other column takes.
    Rest,
}

/// The kind of text that a column's type reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
    Array(Element),
}

/// The keys of the columns, and the members of the current line.
#[derive(Debug, Default)]
pub struct Objects {
    object: Object,
    /// For each column, in the order of [`super::row::Rows::columns`].
    takes: Vec<Take>,
    /// A value that differs from its text in the line.
    text: Vec<u8>,
}

/// Whether a type, or the base type of a domain, is json or jsonb. Guarded.
fn is_json(type_oid: pg_sys::Oid) -> bool {
    matches!(base_type(type_oid), pg_sys::JSONOID | pg_sys::JSONBOID)
}

/// Returns the kind of text that a type reads. Guarded.
fn form_of(type_oid: pg_sys::Oid) -> Form {
    if is_json(type_oid) {
        return Form::Json;
    }
    let element = element_type(base_type(type_oid));
    CatalogRow::<pg_sys::FormData_pg_type>::find(element)
        .map_or(Form::Text, |row| Form::Array(Element { delimiter: row.typdelim as u8, json: is_json(element) }))
}

/// Fails if a column with the option `rest` is not of type json or jsonb. Guarded.
pub fn check_rest(columns: &[Column]) -> Result<()> {
    match columns.iter().find(|column| column.key == Some(MemberKey::Rest) && !is_json(column.type_oid)) {
        Some(column) => {
            let message =
                format!("column \"{}\" with the option rest must be of type json or jsonb", column.display_name());
            Err(Error::new(Code::ERRCODE_DATATYPE_MISMATCH, message))
        }
        None => Ok(()),
    }
}

impl Objects {
    /// Sets the columns whose values are taken from lines. Guarded.
    pub fn lay_out(&mut self, columns: &[Column], encodings: &Encodings) {
        let key = |column: &'_ Column| match (&column.key, column.taken) {
            (Some(MemberKey::Named(key)), Taken::Part) => Some(key.clone()),
            (None, Taken::Part) => Some(column.name.as_bytes().to_vec()),
            _ => None,
        };
        let keys: Vec<Option<Vec<u8>>> = columns.iter().map(key).collect();
        let rest = columns.iter().any(|column| column.key == Some(MemberKey::Rest));
        let named: Vec<&[u8]> = keys.iter().flatten().map(Vec::as_slice).collect();
        self.object = Object::new(&named, rest, encodings.charset());
        let take = |(column, key): (&Column, &Option<Vec<u8>>)| {
            if column.taken == Taken::Part && column.key == Some(MemberKey::Rest) {
                return Take::Rest;
            }
            let key = key.as_ref().and_then(|key| self.object.key(key));
            // A column that is ignored has no type.
            let form = |column: &Column| if column.ignored { Form::Text } else { form_of(column.type_oid) };
            key.map_or(Take::Nothing, |key| Take::Value(key, form(column)))
        };
        self.takes = columns.iter().zip(&keys).map(take).collect();
    }

    /// Parses a line. An error concerns this record. Guarded.
    #[inline]
    pub fn read(&mut self, line: &[u8]) -> Result<()> {
        read(&mut self.object, line)
    }

    /// What is to be reported about the line that was parsed last.
    #[inline]
    pub fn remark(&self) -> Option<Remark> {
        let is_foreign = self.object.is_foreign().then_some(Remark::ForeignKeys);
        if self.object.repeats_key() { Some(Remark::RepeatedKey) } else { is_foreign }
    }

    /// Returns the value of a column in the line that was parsed last.
    #[inline]
    pub fn value<'a>(&'a mut self, column: usize, line: &'a [u8]) -> Given<'a> {
        let (key, form) = match self.takes.get(column) {
            Some(Take::Value(key, form)) => (*key, *form),
            Some(Take::Rest) => {
                self.text.clear();
                self.object.write_others(line, &mut self.text);
                return Given::Value(&self.text);
            }
            _ => return Given::Null,
        };
        let (kind, raw) = self.object.value(key, line);
        let inside = |raw: &'a [u8]| raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
        match (kind, form) {
            (ValueKind::Missing, _) => Given::Missing,
            (ValueKind::Null, _) => Given::Null,
            (ValueKind::Text, Form::Text | Form::Array(_)) => Given::Value(inside(raw)),
            (ValueKind::Escaped, Form::Text | Form::Array(_)) => {
                self.text.clear();
                json_object::unescape(inside(raw), &mut self.text, &mut encode);
                Given::Value(&self.text)
            }
            (ValueKind::Array, Form::Array(element)) => {
                self.text.clear();
                match json_array::write(raw, element, &mut self.text, &mut encode) {
                    Some(()) => Given::Value(&self.text),
                    None => Given::Value(raw),
                }
            }
            // An empty object would look like an empty array.
            (ValueKind::Object, Form::Array(_)) if json_object::is_blank(inside(raw)) => Given::Value(b"\"{}\""),
            _ => Given::Value(raw),
        }
    }

    /// Frees the memory of a large value.
    pub fn shrink(&mut self, most: usize) {
        if self.text.capacity() > most {
            self.text = Vec::new();
        }
    }
}

/// Parses a line. An error concerns this record. Guarded.
#[inline]
pub fn read(object: &mut Object, line: &[u8]) -> Result<()> {
    match object.read(line) {
        Some(()) => Ok(()),
        None => ask(object, line),
    }
}

#[cold]
fn ask(object: &mut Object, line: &[u8]) -> Result<()> {
    if object.lacks_memory() {
        return Err(error::out_of_memory());
    }
    check(line)?;
    let what = match line.trim_ascii_start().first() {
        Some(b'{') => match object.read_known(line, &mut encode) {
            Some(()) => return Ok(()),
            None if object.lacks_memory() => return Err(error::out_of_memory()),
            None => "an object that could not be read",
        },
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a Boolean value",
        Some(b'n') => "null",
        _ => "a number",
    };
    Err(copy_errors::no_object().detail(format!("It is {what}.")))
}

/// Appends a character in the server's encoding, which contains it. Guarded.
pub fn encode(code: u32, out: &mut Vec<u8>) {
    if code < 0x80 || server_encoding() == UTF8 {
        return json_object::encode_utf8(code, out);
    }
    let mut string = [0u8; pg_sys::MAX_UNICODE_EQUIVALENT_STRING as usize + 1];
    // SAFETY: a guarded call; the buffer has the length that it requires, with a NUL at the end.
    unsafe { pg_sys::pg_unicode_to_server(code, string.as_mut_ptr()) };
    out.extend_from_slice(string.split(|byte| *byte == 0).next().unwrap_or_default());
}

/// Fails with the server's error if a line is not valid JSON. Guarded.
fn check(line: &[u8]) -> Result<()> {
    let memory = MemoryContext::current().child(c"line of JSON");
    let entered = memory.enter();
    let length = i32::try_from(line.len()).unwrap_or(i32::MAX);
    // SAFETY: a guarded call with bytes and their number. The parser reads a string and allocates in its memory context,
    // of which nothing is used later. It parses JSON, including escapes, and does little else, in all versions.
    let error = unsafe {
        let json = pg_sys::Datum::from(pg_sys::cstring_to_text_with_len(line.as_ptr().cast(), length));
        let error = error_of(|| {
            unguarded::DirectFunctionCall1Coll(Some(unguarded::json_strip_nulls), pg_sys::InvalidOid, json);
        });
        drop(entered);
        memory.delete();
        error
    };
    match error {
        None => Ok(()),
        // A lack of stack or memory is not the record's fault: the next record would fail as well.
        Some(error) if is_data_exception(error.sqlstate() as i32) => Err(error.about_record()),
        Some(error) => Err(error),
    }
}
