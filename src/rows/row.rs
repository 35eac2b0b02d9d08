//! Turns records into datums, one row at a time.
//!
//! A row is made in two steps. [`Rows::decode`], in a guarded frame, fills the values that native decoders can convert
//! and queues the others. [`Rows::convert`], in a plain frame, runs the queue: input functions and default expressions.
//! It works in the order of the file, so that the first bad column is the one that COPY would name. Decoders never
//! raise, so errors occur in the queue's order.
//!
//! Values made by native decoders live in the row's arena, until the next row.
//!
//! This file has the row: its state, the step to the next row, and the decoding of fields. `record` finds and checks
//! the record, `others` fills columns without a field, `queue` runs the queue, and `block` decodes many rows together
//! where that is possible. The loop over the rows is in [`pump`].

mod block;
mod early;
mod header;
mod leaders;
mod others;
pub mod pump;
mod queue;
mod record;
mod session;

use std::ffi::{CStr, CString, c_char};

use pg_bulk_text::binary::Fields;
use pg_bulk_text::reader::{Reader, Value};
use pg_bulk_types::arena::Arena;
use pg_bulk_types::block::Block;
use pgrx::pg_sys;

use self::header::FirstHeader;
pub use self::leaders::leaders_rows;
pub use self::queue::{Queued, What};
pub use self::queue::{received, refined};
use self::record::LARGE;
use self::session::SessionMark;
use super::column::{Column, Taken};
use super::hive::Directories;
use super::line_parts::LineParts;
use super::ragged::{LongRows, Ragged, RaggedOptions, ShortRows};
use crate::error::Result;
use crate::input::encoding::{EncodingErrors, mend_in_server_encoding};
use crate::input::stream::{Header, Stream};
use crate::server::copy_errors;
use crate::server::elsewhere::Elsewhere;
pub use crate::server::slot::RowArrays;

/// Capacity in bytes that a buffer keeps from row to row. A larger buffer is shrunk to it.
const KEPT: usize = 1 << 20;

/// The part of a message's CONTEXT after the line number.
#[derive(Debug)]
pub struct Attention {
    column: *const c_char,
    value: *const c_char,
}

impl Attention {
    pub const NONE: Attention = Attention { column: std::ptr::null(), value: std::ptr::null() };

    /// # Safety
    /// Two strings, or null, that stay as they are until another attention replaces this one.
    pub const unsafe fn new(column: *const c_char, value: *const c_char) -> Attention {
        Attention { column, value }
    }

    /// Name of the column that is being converted.
    pub const fn column(&self) -> Option<&CStr> {
        // SAFETY: a string, or null.
        if self.column.is_null() { None } else { Some(unsafe { CStr::from_ptr(self.column) }) }
    }

    /// Its value; None for NULL.
    pub const fn value(&self) -> Option<&CStr> {
        // SAFETY: a string, or null.
        if self.value.is_null() { None } else { Some(unsafe { CStr::from_ptr(self.value) }) }
    }
}

/// The columns that the fields of a record belong to. A header or the next file may change it.
#[derive(Debug, Default)]
pub struct FieldLayout {
    /// The columns of the fields, in order, and then those without a field.
    pub columns: Vec<Column>,
    /// Number of fields.
    pub fields: usize,
    /// Number of fields that a record must have. If `fills`, fields missing at its end get their defaults.
    required: usize,
    fills: bool,
    /// What a record with another number of fields is.
    pub short_rows: ShortRows,
    long_rows: LongRows,
    /// For records that are one field: finds the values in the line.
    parts: Option<LineParts>,
    /// For the binary format: finds the fields in a record.
    pub binary: Option<Fields>,
    /// Records are checked before values are made of them: for DEFAULT markers, the fields in their lines, or the
    /// directories of their file.
    is_checked: bool,
    /// The values from the path of the open file.
    directories: Directories,
    /// Texts of some columns are refined, or invalid bytes replaced, before conversion.
    is_refined: bool,
    /// The DEFAULT marker.
    pub default: Option<CString>,
    /// The header must name the columns.
    match_header: bool,
    /// The columns that the header of each file may name.
    known: Option<Vec<Column>>,
    /// The first file's header, for several files whose fields are matched by position.
    first_header: Option<FirstHeader>,
}

/// The values of the current row, and the buffers that are used again for each row.
#[derive(Debug)]
pub struct RowValues {
    arena: Arena,
    /// The rows around the current one, if they are decoded together.
    block: Option<Block>,
    /// The current row in the block.
    decoded: Option<RowArrays<'static>>,
    /// A value with its escapes removed.
    unescaped: Vec<u8>,
    /// NUL-terminated inputs of the queue.
    pub strings: Vec<u8>,
    pub queue: Vec<Queued>,
    /// The settings for which the decoders were made.
    session_mark: SessionMark,
}

impl RowValues {
    /// Queue a conversion by the server.
    #[inline]
    fn push(&mut self, column: usize, what: What) {
        self.queue.push(Queued { column, what });
    }

    /// Set a column to NULL, which its input function may have to see.
    #[inline]
    fn set_null(&mut self, i: usize, column: &Column, arrays: RowArrays<'_>) {
        arrays.set(column.attribute, None);
        if column.input.wants_null {
            self.push(i, What::Null);
        }
    }

    /// A text that is given, or else the strings from `start` on.
    #[inline(always)]
    fn text<'a>(&'a self, plain: Option<&'a [u8]>, start: usize) -> &'a [u8] {
        plain.unwrap_or_else(|| self.strings.get(start..).unwrap_or_default())
    }

    /// Convert a text that is given, or else the strings from `start` on, with the native decoder, or queue it.
    #[inline(always)]
    fn convert(&mut self, i: usize, column: &Column, plain: Option<&[u8]>, start: usize, arrays: RowArrays<'_>) {
        let bytes = plain.unwrap_or_else(|| self.strings.get(start..).unwrap_or_default());
        if let Some(decoder) = &column.decoder
            && let Some(datum) = decoder.decode(bytes, &mut self.arena)
        {
            self.strings.truncate(start);
            // The server is a 64-bit one, so a datum is a usize.
            arrays.set(column.attribute, Some(pg_sys::Datum::from(datum as usize)));
            return;
        }
        if let Some(bytes) = plain {
            self.strings.reserve(bytes.len() + 1);
            self.strings.extend_from_slice(bytes);
        }
        self.strings.push(0);
        self.push(i, What::Input(start));
    }
}

/// Position of the work, for the CONTEXT of messages ([`copy_context`](super::context::copy_context)).
#[derive(Debug)]
pub struct RowContext {
    /// The column and value for messages.
    pub attention: Attention,
    /// Set while a message concerns rows other than the current one.
    pub elsewhere: Elsewhere,
    /// Messages show the line only while its values are converted. Later they show its number, because a message about
    /// a converted row may reach a user without the privilege to read the whole line.
    pub is_discreet: bool,
    /// A query makes the rows: no file is read, and messages give the row's number.
    pub is_query: bool,
    /// The current work concerns no line, so messages name none.
    pub is_quiet: bool,
    /// Values of the current line are being converted.
    pub is_converting: bool,
    pub relation_name: CString,
    /// The CONTEXT line that names the source.
    pub described: CString,
}

/// The rows of one file, or of several files in order.
#[derive(Debug)]
pub struct Rows {
    pub stream: Stream,
    pub layout: FieldLayout,
    pub values: RowValues,
    pub context: RowContext,
    /// Name of the file that is open, if a column needs it.
    pub file_name: Vec<u8>,
    /// Records that are reported.
    pub ragged: Ragged,
    /// The row that was reported last because of its values.
    remarked: u64,
    /// The fields belong to other columns, or the records come from another file.
    pub(super) has_changed: bool,
    rows: u64,
}

impl Rows {
    pub fn new(
        stream: Stream,
        columns: Vec<Column>,
        relation_name: CString,
        described: CString,
        match_header: bool,
    ) -> Rows {
        let default = stream.reader.dialect().default.clone();
        let parts = LineParts::new(stream.reader.dialect());
        let is_binary = stream.reader.dialect().is_binary();
        let mut rows = Rows {
            layout: FieldLayout {
                is_checked: default.is_some() || parts.is_some() || is_binary,
                parts,
                binary: is_binary.then(Fields::default),
                default: default.map(|marker| CString::new(marker).unwrap_or_default()),
                match_header,
                ..FieldLayout::default()
            },
            values: RowValues {
                arena: Arena::new(),
                block: None,
                decoded: None,
                unescaped: Vec::new(),
                strings: Vec::new(),
                queue: Vec::new(),
                session_mark: SessionMark::now(),
            },
            context: RowContext {
                attention: Attention::NONE,
                elsewhere: Elsewhere::default(),
                is_discreet: false,
                is_query: false,
                is_quiet: false,
                is_converting: true,
                relation_name,
                described,
            },
            stream,
            file_name: Vec::new(),
            ragged: Ragged::default(),
            remarked: 0,
            has_changed: false,
            rows: 0,
        };
        rows.set_columns(columns);
        rows.name_file();
        rows
    }

    pub fn reader(&self) -> &Reader {
        &self.stream.reader
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    pub fn stream_mut(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Drop all remaining input, until a chunk begins.
    pub fn end_stream(&mut self) {
        let _ = self.stream.reader.chunk_space(0);
        self.context.attention = Attention::NONE;
    }

    /// Count another row of the query.
    pub fn count_row_of_query(&mut self) {
        self.rows += 1;
        self.stream.reader.set_line_number(self.rows);
    }

    pub fn columns(&self) -> &[Column] {
        &self.layout.columns
    }

    /// Call [`Column::renew`] for all columns, also for those that headers are compared with and copied from. Guarded;
    /// allocates in the current memory context.
    pub fn renew_columns(&mut self) {
        let first = self.layout.first_header.as_mut().map(|first| &mut first.columns);
        let others = self.layout.known.iter_mut().chain(first).flatten();
        self.layout.columns.iter_mut().chain(others).for_each(Column::renew);
    }

    /// Indexes of the columns that belong to an attribute.
    pub fn all(&self) -> Vec<usize> {
        self.indexes(|_| true)
    }

    /// Indexes of some of the columns that belong to an attribute.
    pub fn indexes(&self, is_wanted: impl Fn(&Column) -> bool) -> Vec<usize> {
        let columns = self.layout.columns.iter().enumerate();
        columns.filter_map(|(i, column)| (!column.ignored && is_wanted(column)).then_some(i)).collect()
    }

    /// Set the columns of the fields, once the header is known.
    pub fn set_columns(&mut self, columns: Vec<Column>) {
        self.layout.is_refined = self.stream.invalid() == EncodingErrors::Replace
            || columns.iter().any(|column| column.refinement.is_some());
        self.layout.is_checked |= columns.iter().any(|column| column.taken == Taken::Hive);
        let (mut fields, others): (Vec<_>, Vec<_>) = columns.into_iter().partition(|c| c.taken == Taken::Field);
        if self.layout.parts.is_some() || self.layout.binary.is_some() {
            let line = Column::ignored(CString::default());
            let of_line = fields.into_iter().map(|column| Column { taken: Taken::Part, ..column });
            self.layout.columns = std::iter::once(line).chain(of_line).chain(others).collect();
            self.layout.fields = 1;
            if let Some(parts) = &mut self.layout.parts {
                parts.lay_out(&self.layout.columns, self.stream.reader.dialect(), self.stream.encodings());
            }
            self.expect_fields();
        } else {
            self.layout.fields = fields.len();
            fields.extend(others);
            self.layout.columns = fields;
        }
        self.count_required();
        self.find_directories();
    }

    /// Let fields that are missing at the end of a record get the defaults of their columns, if these have defaults.
    pub fn fill_missing(&mut self) {
        self.layout.fills = true;
        self.count_required();
    }

    /// Read records with another number of fields as the options say.
    pub fn treat_ragged(&mut self, options: &RaggedOptions) {
        self.layout.short_rows = options.short_rows.unwrap_or_default();
        self.layout.long_rows = options.long_rows.unwrap_or_default();
        self.count_required();
    }

    fn count_required(&mut self) {
        let fields = self.layout.columns.get(..self.layout.fields).unwrap_or_default();
        let needs = |column: &Column| {
            self.layout.short_rows == ShortRows::Error && (!self.layout.fills || column.default.is_none())
        };
        self.layout.required = fields.iter().rposition(needs).map_or(0, |last| last + 1);
    }

    /// Number of rows so far.
    pub fn count(&self) -> u64 {
        self.rows
    }

    /// Go to the next row; false at the end. Checks all that COPY checks before it converts the first field. Guarded.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        self.values.decoded = None;
        self.context.attention = Attention::NONE;
        let timed = self.stream.stages.is_on();
        if !(if timed { self.find_record_timed()? } else { self.find_record()? }) {
            return Ok(false);
        }
        self.rows += 1;
        self.values.decoded = if timed { self.row_of_block_timed() } else { self.row_of_block() };
        if self.values.decoded.is_some() {
            return Ok(true);
        }
        if self.reader().record_len() > LARGE {
            self.check_memory()?;
        }
        if !self.reader().dialect().is_csv() && self.reader().record().has_escapes() {
            self.check_escapes(false)?;
        }
        let fields = self.reader().fields();
        if self.layout.is_checked {
            self.check_record(fields)?;
        }
        if fields > self.layout.fields
            && self.layout.long_rows == LongRows::Error
            && (self.layout.fields > 0 || self.reader().raw_line() != Some(&[]))
        {
            return Err(copy_errors::extra_data());
        }
        Ok(true)
    }

    /// Free the values of the row before.
    #[inline]
    pub fn reset(&mut self) {
        self.values.arena.reset();
        for buffer in [&mut self.values.strings, &mut self.values.unescaped] {
            buffer.clear();
            buffer.shrink_to(KEPT);
        }
        if let Some(parts) = &mut self.layout.parts {
            parts.shrink(KEPT);
        }
    }

    /// Decode the columns at `wanted` (ascending indexes into the columns) of the current row with native decoders, and
    /// queue the others. Guarded, but nothing in it raises.
    #[inline]
    pub fn decode(&mut self, wanted: &[usize], arrays: RowArrays<'_>) {
        self.values.queue.clear();
        self.values.strings.clear();
        let reader = &self.stream.reader;
        let record = reader.record();
        let fields = reader.fields();
        let refines = self.layout.is_refined;
        let replaces = refines && self.stream.invalid() == EncodingErrors::Replace;
        let is_dirty = replaces && reader.is_dirty();
        let mut has_stray_quote = false;
        for (at, &i) in wanted.iter().enumerate() {
            if i >= fields {
                self.fill(wanted.get(at..).unwrap_or_default(), arrays);
                break;
            }
            let Some(column) = self.layout.columns.get(i) else { break };
            let refinement = if refines { column.refinement.as_deref() } else { None };
            let mut value = refinement.map_or_else(|| record.value(i), |refinement| record.trimmed(i, refinement.trim));
            let mut force_null = column.force_null;
            if column.force_not_null && value == Value::Null {
                value = Value::Plain(&reader.dialect().null);
                // As in COPY, if a column has both.
                force_null = false;
            }
            // The queue's inputs are concatenated in `strings`. A value without escapes is copied there only if it is
            // queued.
            let start = self.values.strings.len();
            let mut is_doubtful = is_dirty;
            let plain = match value {
                Value::Plain(bytes) => Some(bytes),
                Value::Escaped(raw) => {
                    let unusual = reader.unescape(raw, &mut self.values.strings);
                    has_stray_quote |= unusual;
                    is_doubtful |= unusual & replaces;
                    None
                }
                Value::Null => {
                    self.values.set_null(i, column, arrays);
                    continue;
                }
                Value::Default => {
                    self.values.push(i, What::Default);
                    continue;
                }
            };
            if force_null && self.values.text(plain, start) == reader.dialect().null {
                self.values.strings.truncate(start);
                self.values.set_null(i, column, arrays);
                continue;
            }
            if refinement.is_none() && !is_doubtful {
                self.values.convert(i, column, plain, start, arrays);
                continue;
            }
            self.values.strings.extend_from_slice(plain.unwrap_or_default());
            if is_doubtful {
                mend_in_server_encoding(&mut self.values.strings, start);
            }
            self.values.convert_refined(i, column, start, arrays);
        }
        if self.layout.fields < self.layout.columns.len() {
            self.take_others(wanted, arrays);
        }
        self.remark_stray_quote(has_stray_quote);
    }

    /// Go back to the start of the same file, or open a new stream with `open`. Guarded.
    pub fn restart(&mut self, header: Header, open: impl FnOnce() -> Result<Stream>) -> Result<()> {
        if !self.stream.restart(header)? {
            self.stream.close()?;
            self.stream = open()?;
            self.expect_fields();
        }
        self.rows = 0;
        (self.ragged, self.remarked) = (Ragged::default(), 0);
        self.values.queue.clear();
        self.context.attention = Attention::NONE;
        if self.stream.files().is_some() {
            self.name_file();
            self.note_change();
        }
        // The reader counts its batches from 0 again.
        self.forget_block();
        Ok(())
    }

    /// Close the source. Guarded.
    pub fn close(&mut self) -> Result<()> {
        self.stream.close()
    }
}
