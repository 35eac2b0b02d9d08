//! Values of COPY's binary format: fields with a length each, for the receive functions of their types.
//!
//! For the reader such a record is one field, its line, which belongs to no column, as in [`super::parts`].
//! [`pg_bulk_text::binary`] finds the fields in it. A native decoder converts a field to a datum, or the field is
//! queued for its type's receive function. The receive function gets a copy that ends in a zero byte, since some
//! receive functions write into their buffer.
//!
//! The tricky point is the encoding. Receive functions convert strings from client_encoding, and COPY's option ENCODING
//! does not change that. So client_encoding is the encoding of a binary file, and the option must be equal to it. A
//! process without that client_encoding (a parallel worker) does not read such files. A change of client_encoding while
//! a file is being read raises an error.

use std::ffi::c_char;

use pg_bulk_text::json_text::Charset;
use pg_bulk_types::convert::Wire;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::super::{Attention, RowArrays, Rows};
use super::What;
use crate::error::{Error, Result};
use crate::input::encoding::{Encodings, Treatment, client_encoding};
use crate::rows::column::{Column, Taken};
use crate::server::copy_errors;
use crate::server::lookup::{binary_type_input, prepare_function};
use crate::server::unguarded;

/// Make the fields of these columns binary. Guarded; memory as in [`Column::of_relation`].
pub fn receive(columns: &mut [Column], encodings: &Encodings) {
    let (charset, utf8) = (encodings.charset(), encodings.conversion() == Treatment::Utf8);
    for column in columns.iter_mut().filter(|column| column.taken == Taken::Field && !column.ignored) {
        column.receive(charset, utf8);
    }
}

impl Column {
    /// Make the fields of this column binary.
    fn receive(&mut self, charset: Charset, utf8: bool) {
        let mut function = pg_sys::InvalidOid;
        binary_type_input(self.type_oid, &mut function, &mut self.input.typioparam);
        prepare_function(function, &mut self.input.function);
        self.input.wants_null = !self.input.function.fn_strict;
        self.decoder = None;
        self.input.is_receive = true;
        self.wire = Wire::for_type(self.type_oid.to_u32(), self.input.typmod, charset, utf8);
    }
}

impl Rows {
    /// Set the reader's number of fields in a record.
    pub fn expect_fields(&mut self) {
        if self.layout.binary.is_some() {
            let fields = self.layout.columns.iter().filter(|column| column.taken == Taken::Part).count();
            self.stream.reader.expect_fields(fields);
        }
    }

    /// Read the current record. An error is an error of this record. Guarded.
    pub fn read_fields(&mut self) -> Result<()> {
        let Some(fields) = &mut self.layout.binary else { return Ok(()) };
        let line = self.stream.reader.raw_line().unwrap_or_default();
        let wanted = self.stream.reader.dialect().record_length.unwrap_or(0);
        fields.read(line, wanted).map_err(|count| copy_errors::field_count(count, wanted))?;
        if client_encoding() != self.stream.encoding() {
            let message = "client_encoding changed while a file in BINARY mode was being read";
            return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        Ok(())
    }

    /// Return an error for the first field that is missing, if there is one.
    #[cold]
    pub fn check_fields(&mut self) -> Result<()> {
        let Some((field, fault)) = self.layout.binary.as_ref().and_then(|fields| fields.fault()) else { return Ok(()) };
        if let Some(column) = self.layout.columns.get(field + 1) {
            self.context.attention = Attention { column: column.name.as_ptr(), value: std::ptr::null() };
        }
        Err(copy_errors::bad_field(fault))
    }

    /// Decode the field of a column, or queue it. A field that the record lacks is skipped here: [`Self::check_fields`]
    /// reports it.
    #[inline]
    pub fn decode_field(&mut self, i: usize, arrays: RowArrays<'_>) {
        let line = self.stream.reader.raw_line().unwrap_or_default();
        let (Some(fields), Some(column)) = (&self.layout.binary, self.layout.columns.get(i)) else { return };
        // The first column is the line.
        let Some(value) = i.checked_sub(1).and_then(|field| fields.get(field, line)) else { return };
        let Some(bytes) = value else {
            return self.values.set_null(i, column, arrays);
        };
        if let Some(datum) = column.wire.and_then(|wire| wire.decode(bytes, &mut self.values.arena)) {
            arrays.set(column.attribute, Some(pg_sys::Datum::from(datum as usize)));
            return;
        }
        let start = self.values.strings.len();
        self.values.strings.extend_from_slice(bytes);
        self.values.strings.push(0);
        self.values.push(i, What::Field(start, bytes.len()));
    }
}

/// Call a column's receive function for `len` bytes, which a zero byte follows, or for NULL: a null pointer
/// (`CopyReadBinaryAttribute`).
///
/// # Safety
/// A plain frame; a valid column whose fields are binary; `len` readable bytes.
pub(super) unsafe fn call(column: *mut Column, bytes: *mut c_char, len: usize) -> pg_sys::Datum {
    // SAFETY: this function's contract covers the argument. Nothing here has a destructor.
    unsafe {
        let (typioparam, typmod) = ((*column).input.typioparam, (*column).input.typmod);
        let function = &raw mut (*column).input.function;
        if bytes.is_null() {
            return unguarded::ReceiveFunctionCall(function, std::ptr::null_mut(), typioparam, typmod);
        }
        // A field is shorter than LINE_LIMIT.
        let len = len as i32;
        let mut buffer = pg_sys::StringInfoData { data: bytes, len, maxlen: len + 1, cursor: 0 };
        let datum = unguarded::ReceiveFunctionCall(function, &raw mut buffer, typioparam, typmod);
        if buffer.cursor != buffer.len {
            let message = "incorrect binary data format";
            unguarded::guarded::<()>(|| Error::new(Code::ERRCODE_INVALID_BINARY_REPRESENTATION, message).raise());
        }
        datum
    }
}
