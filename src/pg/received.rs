//! Values of COPY's binary format: fields that say how long they are, for the types' receive functions.
//!
//! To the reader such a record is one field, its line, which no column takes, as in [`super::parts`]; what is in it,
//! [`pg_bulk_format::binary`] says. A field becomes a datum by a native decoder, or is queued for its type's receive function,
//! which gets it in a buffer of its own that ends in a zero byte, since some write into it.
//!
//! The tricky point is the encoding. Receive functions convert strings from client_encoding, whatever COPY's option ENCODING
//! says, and there is no other way to tell them. So that is the encoding of a binary file: the option may only say the same,
//! somebody who does not have the client's encoding (a parallel worker) does not read such files, and who changes it while one
//! is being read is told so.

use std::ffi::c_char;

use pg_bulk_format::convert::{Charset, Wire};
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::column::{Column, Taken};
use super::encoding::{Encodings, Treatment};
use super::row::{Attention, Queued, RowArrays, Rows, What};
use super::unguarded;
use crate::error::{self, Error, Result};

/// From now on fields of these columns are binary. Guarded; memory as in [`Column::of_relation`].
pub fn receive(columns: &mut [Column], encodings: &Encodings) {
    let (charset, utf8) = (encodings.charset(), encodings.conversion() == Treatment::Utf8);
    for column in columns.iter_mut().filter(|column| column.taken == Taken::Field && !column.ignored) {
        column.receive(charset, utf8);
    }
}

impl Column {
    /// From now on its fields are binary.
    fn receive(&mut self, charset: Charset, utf8: bool) {
        // SAFETY: guarded catalog lookups that fill what they are given.
        unsafe {
            let mut function = pg_sys::InvalidOid;
            pg_sys::getTypeBinaryInputInfo(self.type_oid, &raw mut function, &raw mut self.typioparam);
            pg_sys::fmgr_info(function, &raw mut self.input);
        }
        self.wants_null = !self.input.fn_strict;
        self.decoder = None;
        self.is_received = true;
        self.wire = Wire::for_type(self.type_oid.to_u32(), self.typmod, charset, utf8);
    }
}

impl Rows {
    /// Tell the reader how many fields records have.
    pub(super) fn expect_fields(&mut self) {
        if self.binary.is_some() {
            let fields = self.columns.iter().filter(|column| column.taken == Taken::Part).count();
            self.stream.reader.expect_fields(fields);
        }
    }

    /// Look at the current record. An error is about it. Guarded.
    pub(super) fn read_fields(&mut self) -> Result<()> {
        let Some(fields) = &mut self.binary else { return Ok(()) };
        let line = self.stream.reader.raw_line().unwrap_or_default();
        let wanted = self.stream.reader.dialect().record_length.unwrap_or(0);
        fields.read(line, wanted).map_err(|count| error::field_count(count, wanted))?;
        // SAFETY: reads a variable of this process.
        if unsafe { unguarded::pg_get_client_encoding() } != self.stream.encoding() {
            let message = "client_encoding changed while a file in BINARY mode was being read";
            return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        Ok(())
    }

    /// The error about the first field that is not there, if there is one.
    #[cold]
    pub(super) fn check_fields(&mut self) -> Result<()> {
        let Some((field, fault)) = self.binary.as_ref().and_then(|fields| fields.fault()) else { return Ok(()) };
        if let Some(column) = self.columns.get(field + 1) {
            self.attention = Attention { column: column.name.as_ptr(), value: std::ptr::null() };
        }
        Err(error::bad_field(fault))
    }

    /// Decode the field of a column, or queue it. Nothing is done for one that the record lacks: an error follows.
    ///
    /// # Safety
    /// As [`Rows::decode`].
    #[inline]
    pub(super) unsafe fn decode_field(&mut self, i: usize, arrays: RowArrays) {
        let line = self.stream.reader.raw_line().unwrap_or_default();
        let (Some(fields), Some(column)) = (&self.binary, self.columns.get(i)) else { return };
        // The first column is the line.
        let Some(value) = i.checked_sub(1).and_then(|field| fields.get(field, line)) else { return };
        let Some(bytes) = value else {
            // SAFETY: this function's contract covers the arrays.
            unsafe { arrays.set(column.attribute, None) };
            if column.wants_null {
                self.queue.push(Queued { column: i, what: What::Null });
            }
            return;
        };
        if let Some(datum) = column.wire.and_then(|wire| wire.decode(bytes, &mut self.arena)) {
            // SAFETY: as above; the server is a 64-bit one, so a datum is a usize.
            unsafe { arrays.set(column.attribute, Some(pg_sys::Datum::from(datum as usize))) };
            return;
        }
        let start = self.strings.len();
        self.strings.extend_from_slice(bytes);
        self.strings.push(0);
        self.queue.push(Queued { column: i, what: What::Field(start, bytes.len()) });
    }
}

/// What a column's receive function makes of so many bytes, which a zero byte follows, or of NULL, which has no address
/// (`CopyReadBinaryAttribute`).
///
/// # Safety
/// A plain frame; a valid column that is received; bytes that are there.
pub(super) unsafe fn call(column: *mut Column, bytes: *mut c_char, len: usize) -> pg_sys::Datum {
    // SAFETY: this function's contract covers the argument. Nothing here has a destructor.
    unsafe {
        let (typioparam, typmod) = ((*column).typioparam, (*column).typmod);
        let function = &raw mut (*column).input;
        if bytes.is_null() {
            return unguarded::ReceiveFunctionCall(function, std::ptr::null_mut(), typioparam, typmod);
        }
        // A field is shorter than LINE_LIMIT.
        let len = len as i32;
        let mut buffer = pg_sys::StringInfoData { data: bytes, len, maxlen: len + 1, cursor: 0 };
        let datum = unguarded::ReceiveFunctionCall(function, &raw mut buffer, typioparam, typmod);
        if buffer.cursor != buffer.len {
            raise_left_over();
        }
        datum
    }
}

/// A receive function has not taken all bytes.
#[cold]
#[pg_guard]
unsafe extern "C-unwind" fn raise_left_over() {
    Error::new(Code::ERRCODE_INVALID_BINARY_REPRESENTATION, "incorrect binary data format").raise()
}
