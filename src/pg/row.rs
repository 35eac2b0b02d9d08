//! From records to datums: one row at a time.
//!
//! A row is made in two steps. [`Rows::decode`], in a guarded frame, fills what the native decoders are sure of and
//! queues the rest. [`Rows::convert`], in a plain frame, works the queue off: input functions and default expressions,
//! in the order of the file, so that the first bad column is the one that COPY would name. Decoders never raise, so
//! the order of errors is the queue's.
//!
//! Values made natively live in the row's arena, until the next row.

use std::ffi::{CString, c_char};
use std::time::Instant;

use pg_bulk_format::arena::Arena;
use pg_bulk_format::binary::Fields;
use pg_bulk_format::block::{self, Block, Run};
use pg_bulk_format::convert::{Datum, Decoder};
use pg_bulk_format::reader::{Reader, Value};
use pg_bulk_format::tuple::Source;
use pgrx::pg_sys;

use super::column::{self, Column, Taken};
use super::context::Elsewhere;
use super::encoding::{
    EncodingErrors, invalid_in_server_encoding, is_valid_in_server_encoding, verify_in_server_encoding,
};
use super::header::FirstHeader;
use super::line_parts::{Given, LineParts};
use super::received;
use super::refined::refuse;
use super::stages::Stage;
use super::stream::{Advance, Header, Stream};
use super::unguarded;
use crate::error::{self, Result};

/// A record of more bytes is not taken for granted.
const LARGE: usize = 4 << 20;
/// Bytes of a buffer that are kept from row to row.
const KEPT: usize = 1 << 20;

/// A conversion that the server has to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queued {
    pub(super) column: usize,
    pub(super) what: What,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    /// The string at this place of `strings`.
    Input(usize),
    /// The string at one place, made of the one at another, which is what messages show.
    Made { input: usize, shown: usize },
    /// None can be made of the one at this place: an error.
    Refused(usize),
    /// The binary field at this place of `strings`, of so many bytes.
    Field(usize, usize),
    /// NULL, for an input function that wants to see it.
    Null,
    /// The default expression.
    Default,
}

/// What a message is about, besides the line.
#[derive(Debug)]
pub struct Attention {
    /// Name of the column that is being converted, or null.
    pub column: *const c_char,
    /// Its value, null for NULL.
    pub value: *const c_char,
}

impl Attention {
    pub const NONE: Attention = Attention { column: std::ptr::null(), value: std::ptr::null() };
}

/// Arrays of a row, as long as the tuple descriptor.
#[derive(Debug, Clone, Copy)]
pub struct RowArrays {
    pub values: *mut pg_sys::Datum,
    pub nulls: *mut bool,
}

impl RowArrays {
    /// # Safety
    /// `attribute` is one of the descriptor's.
    #[inline(always)]
    pub unsafe fn set(self, attribute: usize, value: Option<pg_sys::Datum>) {
        // SAFETY: the caller vouches for the index.
        unsafe {
            *self.nulls.add(attribute) = value.is_none();
            *self.values.add(attribute) = value.unwrap_or(pg_sys::Datum::from(0usize));
        }
    }

    /// Those of a row that was decoded together with others.
    fn of(row: block::Row<'_>) -> RowArrays {
        // A datum is a usize on a 64-bit server.
        RowArrays { values: row.values.as_mut_ptr().cast(), nulls: row.nulls.as_mut_ptr() }
    }

    /// # Safety
    /// Both are at least so long, and not the same.
    pub unsafe fn copy_from(self, other: RowArrays, attributes: usize) {
        // SAFETY: the caller vouches for it.
        unsafe {
            std::ptr::copy_nonoverlapping(other.values, self.values, attributes);
            std::ptr::copy_nonoverlapping(other.nulls, self.nulls, attributes);
        }
    }
}

const _: () = assert!(size_of::<pg_sys::Datum>() == size_of::<Datum>());

/// What has changed since rows were decoded last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Which columns the fields are for.
    Columns,
    /// It is another file.
    File,
}

/// The rows of a file, or of several in turn.
#[derive(Debug)]
pub struct Rows {
    pub(super) stream: Stream,
    /// Those of the fields, in their order, and then those that no field is for.
    pub(super) columns: Vec<Column>,
    /// How many fields there are.
    pub(super) fields: usize,
    /// How many of them a record must have; those that it lacks behind get their defaults, if so it is said.
    required: usize,
    fills: bool,
    /// Of records that are one field, which no column takes.
    parts: Option<LineParts>,
    /// The same in the binary format.
    pub(super) binary: Option<Fields>,
    /// Records are looked at before values are made of them: for DEFAULT markers, or for what is in them.
    is_checked: bool,
    /// Texts of some columns, or invalid ones, are refined before they are converted.
    is_refined: bool,
    /// What the header of each file may name.
    pub(super) known: Option<Vec<Column>>,
    /// Of several files whose fields are matched by position.
    pub(super) first_header: Option<FirstHeader>,
    /// The file that is open, where a column wants to know.
    pub(super) file_name: Vec<u8>,
    /// Columns are others than before, or it is another file.
    pub(super) turned: Option<Turn>,
    pub(super) arena: Arena,
    /// The rows around the current one, if they are decoded together.
    block: Option<Block>,
    /// The current row in it.
    decoded: Option<RowArrays>,
    /// A value with its escapes removed.
    pub(super) unescaped: Vec<u8>,
    /// NUL-terminated inputs of the queue.
    pub(super) strings: Vec<u8>,
    pub(super) queue: Vec<Queued>,
    /// What messages are about.
    pub attention: Attention,
    /// ... unless it is about other rows.
    pub elsewhere: Elsewhere,
    /// Messages show the line only while values are made of it: who may not see all of it may hear of what becomes of the
    /// values.
    pub is_discreet: bool,
    /// Rows are made by a query: nothing is read, and messages number the rows.
    pub is_query: bool,
    /// What is done now is about no line at all.
    pub is_quiet: bool,
    /// Values are made of the current line.
    pub is_converting: bool,
    pub relation_name: CString,
    /// The CONTEXT line that names the source.
    pub described: CString,
    /// The header must name the columns.
    pub(super) match_header: bool,
    /// The DEFAULT marker.
    pub(super) default: Option<CString>,
    /// The settings for which the decoders were made.
    session_mark: SessionMark,
    rows: u64,
}

/// What of the session may change between two rows and matters to decoders: by address and number, cheap to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SessionMark {
    time_zone: *mut pg_sys::pg_tz,
    interval_style: i32,
}

impl SessionMark {
    #[inline(always)]
    fn now() -> SessionMark {
        // SAFETY: reads two settings of this backend.
        unsafe { SessionMark { time_zone: pg_sys::session_timezone, interval_style: pg_sys::IntervalStyle } }
    }
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
            stream,
            columns: Vec::new(),
            fields: 0,
            required: 0,
            fills: false,
            is_checked: default.is_some() || parts.is_some() || is_binary,
            is_refined: false,
            parts,
            binary: is_binary.then(Fields::default),
            known: None,
            first_header: None,
            file_name: Vec::new(),
            turned: None,
            arena: Arena::new(),
            block: None,
            decoded: None,
            unescaped: Vec::new(),
            strings: Vec::new(),
            queue: Vec::new(),
            attention: Attention::NONE,
            elsewhere: Elsewhere::default(),
            is_discreet: false,
            is_query: false,
            is_quiet: false,
            is_converting: true,
            relation_name,
            described,
            match_header,
            default: default.map(|marker| CString::new(marker).unwrap_or_default()),
            session_mark: SessionMark::now(),
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

    /// Nothing is left to be read, until a chunk begins.
    pub fn end_stream(&mut self) {
        let _ = self.stream.reader.chunk_space(0);
        self.attention = Attention::NONE;
    }

    /// There is another row of the query.
    pub fn count_row_of_query(&mut self) {
        self.rows += 1;
        self.stream.reader.set_line_number(self.rows);
    }

    /// There is nothing for [`Rows::convert`] to do any more.
    pub fn clear_queue(&mut self) {
        self.queue.clear();
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Indexes of the columns that belong to an attribute.
    pub fn all(&self) -> Vec<usize> {
        let columns = self.columns.iter().enumerate();
        columns.filter_map(|(i, column)| (!column.ignored).then_some(i)).collect()
    }

    /// Say which columns the fields are for, once the header has told.
    pub fn set_columns(&mut self, columns: Vec<Column>) {
        self.is_refined = self.stream.invalid() == EncodingErrors::Replace
            || columns.iter().any(|column| column.refinement.is_some());
        let (mut fields, others): (Vec<_>, Vec<_>) = columns.into_iter().partition(|c| c.taken == Taken::Field);
        if self.parts.is_some() || self.binary.is_some() {
            let line = Column::ignored(CString::default());
            let of_line = fields.into_iter().map(|column| Column { taken: Taken::Part, ..column });
            self.columns = std::iter::once(line).chain(of_line).chain(others).collect();
            self.fields = 1;
            if let Some(parts) = &mut self.parts {
                parts.lay_out(&self.columns, self.stream.reader.dialect(), self.stream.encodings());
            }
            self.expect_fields();
            self.settle_required();
            return;
        }
        self.fields = fields.len();
        fields.extend(others);
        self.columns = fields;
        self.settle_required();
    }

    /// Fields that a record lacks at its end get the defaults of their columns, where these have some.
    pub fn fill_missing(&mut self) {
        self.fills = true;
        self.settle_required();
    }

    fn settle_required(&mut self) {
        let fields = self.columns.get(..self.fields).unwrap_or_default();
        let needs = |column: &Column| !self.fills || column.default.is_null();
        self.required = fields.iter().rposition(needs).map_or(0, |last| last + 1);
    }

    /// From now on, decode rows together where all of their columns can be decoded: rows of so many attributes, of which
    /// these must not be NULL. What decoders depend on must not change any more.
    pub fn decode_together(&mut self, attributes: usize, not_null: &[usize]) {
        let all = self.all();
        self.decode_some_together(attributes, not_null, &all);
    }

    /// The same, where only the columns at `wanted` are. Columns that it does not decode are NULL in these rows.
    pub fn decode_some_together(&mut self, attributes: usize, not_null: &[usize], wanted: &[usize]) {
        // The current row may be one of those that go now: the first one of another file.
        self.decoded = None;
        // A block finds the marker for the default where there are no blanks around it, and in all fields.
        if self.parts.is_some() || self.binary.is_some() || (self.is_refined && self.default.is_some()) {
            self.block = None;
            return;
        }
        let field = |column: &Column| {
            let attribute = column.attribute;
            let plain =
                !column.force_null && !column.force_not_null && !column.wants_null && column.refinement.is_none();
            let decoder = column.decoder.filter(|_| plain)?;
            Some(block::Column { decoder, attribute, not_null: not_null.contains(&attribute) })
        };
        let is_wanted = |i: usize| wanted.contains(&i);
        let rest = self.columns.iter().enumerate().skip(self.fields);
        let is_nothing = |column: &Column| column.taken == Taken::Null && !column.wants_null;
        if rest.clone().any(|(i, column)| is_wanted(i) && !is_nothing(column)) {
            self.block = None;
            return;
        }
        let columns = self.columns.iter().enumerate().take(self.fields);
        let fields: Vec<_> = columns.map(|(i, c)| if is_wanted(i) { field(c) } else { None }).collect();
        let complete = fields.iter().enumerate().all(|(i, field)| field.is_some() || !is_wanted(i));
        self.block = complete.then(|| Block::new(fields, attributes)).flatten();
    }

    /// The arrays of the current row, if it was decoded together with others: all is well with it, and there is nothing
    /// left to do for [`Rows::convert`]. Its values stay until the row behind it is asked for; they are what
    /// [`Rows::sources`] says.
    #[inline]
    pub fn decoded(&self) -> Option<RowArrays> {
        self.decoded
    }

    /// What the values of decoded rows are.
    #[inline]
    pub fn sources(&self) -> &[Source] {
        self.block.as_ref().map_or(&[], Block::sources)
    }

    /// Make datums of what is none in the current row, which was decoded together with others.
    ///
    /// # Safety
    /// The arrays are what [`Rows::decoded`] returned, and this is done once a row.
    pub unsafe fn make_datums(&mut self, arrays: RowArrays) -> Result<()> {
        let Some(block) = &mut self.block else { return Ok(()) };
        // SAFETY: the caller vouches for it; a datum is a usize.
        unsafe { block.make_datums(arrays.values.cast(), arrays.nulls) }.ok_or_else(error::out_of_memory)
    }

    /// The same, where nothing may be raised: false if there is no memory.
    ///
    /// # Safety
    /// As [`Rows::make_datums`].
    #[inline]
    pub unsafe fn has_made_datums(&mut self, arrays: RowArrays) -> bool {
        let Some(block) = &mut self.block else { return true };
        // SAFETY: the caller vouches for it; a datum is a usize.
        unsafe { block.make_datums(arrays.values.cast(), arrays.nulls) }.is_some()
    }

    /// Go to the next row if that was decoded together with the current one, which takes no more than to say so: it raises
    /// nothing and need not be guarded. The arrays are those of [`Rows::decoded`].
    #[inline]
    pub fn advance_decoded(&mut self) -> Option<RowArrays> {
        let block = self.block.as_mut()?;
        if self.session_mark != SessionMark::now() || !block.has_next(&self.stream.reader) {
            return None;
        }
        let _ = self.stream.reader.advance();
        self.rows += 1;
        self.queue.clear();
        self.attention = Attention::NONE;
        self.decoded = block.row(&self.stream.reader).map(RowArrays::of);
        self.decoded
    }

    /// The current row, which was decoded together with others, and those of them that are behind it, `most` at most: all is
    /// well with them. The last of them is the current one then.
    pub fn run(&mut self, most: usize) -> Option<Run<'_>> {
        let run = self.block.as_ref()?.run(&mut self.stream.reader, most)?;
        self.rows += run.rows as u64 - 1;
        Some(run)
    }

    /// Pass by rows behind the current one with which all is well as long as nobody wants to know their values. Returns how
    /// many there were.
    pub fn pass_by(&mut self) -> u64 {
        if self.fields == 0 || self.parts.is_some() || self.binary.is_some() {
            return 0;
        }
        let count = self.stream.reader.pass_by(self.fields);
        self.rows += count;
        count
    }

    /// Are there values among those decoded together of which [`Rows::make_datums`] makes something?
    pub fn has_raw(&self) -> bool {
        self.sources().contains(&Source::Raw)
    }

    /// Rows so far.
    pub fn count(&self) -> u64 {
        self.rows
    }

    /// Go to the next row; false at the end. What COPY checks before it converts anything is checked here. Guarded.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        self.decoded = None;
        self.attention = Attention::NONE;
        let timed = self.stream.stages.is_on();
        if !(if timed { self.find_record_timed()? } else { self.find_record()? }) {
            return Ok(false);
        }
        self.rows += 1;
        self.decoded = if timed { self.row_of_block_timed() } else { self.row_of_block() };
        if self.decoded.is_some() {
            return Ok(true);
        }
        if self.reader().record_len() > LARGE {
            self.check_memory()?;
        }
        if !self.reader().dialect().is_csv() && self.reader().record().has_escapes() {
            self.check_escapes()?;
        }
        let fields = self.reader().fields();
        if self.is_checked {
            self.check_record(fields)?;
        }
        if fields > self.fields && (self.fields > 0 || self.reader().raw_line() != Some(&[])) {
            return Err(error::extra_data());
        }
        Ok(true)
    }

    /// Go to the next record; false at the end.
    #[inline]
    fn find_record(&mut self) -> Result<bool> {
        loop {
            match self.stream.advance()? {
                Advance::Record if self.parts.is_some() && self.is_no_record() => (),
                Advance::Record => return Ok(true),
                Advance::Header => self.take_header()?,
                Advance::End => match self.stream.next_file() {
                    Some(next) => self.turn_to(next)?,
                    None => return Ok(false),
                },
            }
        }
    }

    /// Is the current line one that is passed over?
    pub fn is_no_record(&self) -> bool {
        let line = self.stream.reader.raw_line().unwrap_or_default();
        self.parts.as_ref().is_some_and(|parts| parts.skips(line))
    }

    /// The current record's row, if it is decoded together with others.
    #[inline]
    fn row_of_block(&mut self) -> Option<RowArrays> {
        self.block.as_mut()?.row(&self.stream.reader).map(RowArrays::of)
    }

    /// The same, where somebody wants to know the time of what is done for many records at once.
    #[cold]
    fn find_record_timed(&mut self) -> Result<bool> {
        if self.stream.reader.has_next() {
            return self.find_record();
        }
        let read = self.stream.stages.of(Stage::Read);
        let begin = Instant::now();
        let more = self.find_record();
        let spent = begin.elapsed();
        let stages = &mut self.stream.stages;
        // What was read meanwhile is told already.
        let read = stages.of(Stage::Read) - read;
        stages.add(Stage::Scan, spent.saturating_sub(read));
        more
    }

    #[cold]
    fn row_of_block_timed(&mut self) -> Option<RowArrays> {
        let block = self.block.as_ref()?;
        if block.has(&self.stream.reader) {
            return self.row_of_block();
        }
        let mut watch = self.stream.stages.watch();
        let row = self.row_of_block();
        self.stream.stages.lap(&mut watch, Stage::Convert);
        row
    }

    /// What is made of a large record is about as large; an allocation that fails on the way would be the end of the
    /// process.
    #[cold]
    fn check_memory(&self) -> Result<()> {
        let wanted = self.reader().record_len().saturating_mul(3);
        Vec::<u8>::new().try_reserve_exact(wanted).map_err(|_| error::out_of_memory())
    }

    /// Does the record lack fields? Then COPY converts those that are there and raises an error.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.reader().fields() < self.required
    }

    /// The error about the first missing field, if there is one.
    pub fn check_missing(&mut self) -> Result<()> {
        self.attention = Attention::NONE;
        if self.binary.is_some() {
            return self.check_fields();
        }
        match self.columns.get(..self.required).and_then(|columns| columns.get(self.reader().fields())) {
            Some(column) => Err(error::missing_data(&column.display_name())),
            None => Ok(()),
        }
    }

    /// Text: an octal or hexadecimal escape may make an invalid character, in any field, wanted or not.
    /// A line for a table without columns is not looked into.
    #[cold]
    pub(super) fn check_escapes(&mut self) -> Result<()> {
        let invalid = self.stream.invalid();
        if self.fields == 0 || invalid == EncodingErrors::Replace {
            return Ok(());
        }
        let reader = &self.stream.reader;
        for i in 0..reader.fields() {
            if let Value::Escaped(raw) = reader.value(i) {
                self.unescaped.clear();
                if reader.unescape(raw, &mut self.unescaped) {
                    if invalid == EncodingErrors::Reject {
                        invalid_in_server_encoding(&self.unescaped).map_or(Ok(()), Err)?;
                    } else {
                        verify_in_server_encoding(&self.unescaped);
                    }
                }
            }
        }
        Ok(())
    }

    fn check_record(&mut self, fields: usize) -> Result<()> {
        if self.binary.is_some() {
            return self.read_fields();
        }
        let Some(parts) = &mut self.parts else { return self.check_defaults(fields) };
        let line = self.stream.reader.raw_line().unwrap_or_default();
        parts.read(line, self.stream.encodings(), &self.columns, self.stream.invalid())
    }

    /// The current line, if it can be shown to somebody.
    pub fn line(&self) -> Option<&[u8]> {
        if self.binary.is_some() {
            return None;
        }
        let line = self.reader().raw_line()?;
        let is_valid = self.parts.is_none() && !self.reader().is_dirty();
        (is_valid || is_valid_in_server_encoding(line)).then_some(line)
    }

    #[cold]
    fn check_defaults(&self, fields: usize) -> Result<()> {
        let record = self.reader().record();
        for (i, column) in self.columns.iter().enumerate().take(fields) {
            let trim = column.refinement.as_ref().map(|refinement| refinement.trim);
            let value = || trim.map_or_else(|| record.value(i), |trim| record.trimmed(i, trim));
            if column.default.is_null() && !column.ignored && value() == Value::Default {
                return Err(error::unexpected_default(&column.display_name()));
            }
        }
        Ok(())
    }

    /// Forget the values of the row before.
    #[inline]
    pub fn reset(&mut self) {
        self.arena.reset();
        for buffer in [&mut self.strings, &mut self.unescaped] {
            buffer.clear();
            if buffer.capacity() > KEPT {
                buffer.shrink_to(KEPT);
            }
        }
        if let Some(parts) = &mut self.parts {
            parts.shrink(KEPT);
        }
    }

    /// Decode the columns at `wanted` (indexes into the columns, ascending) of the current row, as far as they are
    /// there; the rest is queued. Guarded, but nothing in it raises.
    ///
    /// # Safety
    /// `arrays` are as long as the descriptor the columns were made from, and no column at `wanted` is an ignored one
    /// (see [`Rows::all`]).
    #[inline]
    pub unsafe fn decode(&mut self, wanted: &[usize], arrays: RowArrays) {
        self.queue.clear();
        self.strings.clear();
        if self.is_refined {
            // SAFETY: passed on.
            return unsafe { self.decode_refined(wanted, arrays) };
        }
        let reader = &self.stream.reader;
        let record = reader.record();
        let fields = reader.fields();
        for (at, &i) in wanted.iter().enumerate() {
            if i >= fields {
                self.fill(wanted.get(at..).unwrap_or_default());
                break;
            }
            let Some(column) = self.columns.get(i) else { break };
            let mut value = record.value(i);
            let mut force_null = column.force_null;
            if column.force_not_null && value == Value::Null {
                value = Value::Plain(&reader.dialect().null);
                // As in COPY, where a column has both.
                force_null = false;
            }
            // Inputs of the queue stand one behind the other; a value without escapes need not go there unless it is
            // queued.
            let start = self.strings.len();
            let bytes = match value {
                Value::Plain(bytes) => bytes,
                Value::Escaped(raw) => {
                    reader.unescape(raw, &mut self.strings);
                    self.strings.get(start..).unwrap_or_default()
                }
                Value::Null => {
                    // SAFETY: the caller vouches for the arrays.
                    unsafe { arrays.set(column.attribute, None) };
                    if column.wants_null {
                        self.queue.push(Queued { column: i, what: What::Null });
                    }
                    continue;
                }
                Value::Default => {
                    self.queue.push(Queued { column: i, what: What::Default });
                    continue;
                }
            };
            if force_null && bytes == reader.dialect().null {
                self.strings.truncate(start);
                // SAFETY: the caller vouches for the arrays.
                unsafe { arrays.set(column.attribute, None) };
                if column.wants_null {
                    self.queue.push(Queued { column: i, what: What::Null });
                }
                continue;
            }
            if let Some(decoder) = &column.decoder
                && let Some(datum) = decoder.decode(bytes, &mut self.arena)
            {
                self.strings.truncate(start);
                // SAFETY: the caller vouches for the arrays; the server is a 64-bit one, so a datum is a usize.
                unsafe { arrays.set(column.attribute, Some(pg_sys::Datum::from(datum as usize))) };
                continue;
            }
            if let Value::Plain(bytes) = value {
                self.strings.reserve(bytes.len() + 1);
                self.strings.extend_from_slice(bytes);
            }
            self.strings.push(0);
            self.queue.push(Queued { column: i, what: What::Input(start) });
        }
        if self.fields < self.columns.len() {
            // SAFETY: as above.
            unsafe { self.take_others(wanted, arrays) };
        }
    }

    /// The record lacks the fields of these columns, which get their defaults if it may.
    pub(super) fn fill(&mut self, wanted: &[usize]) {
        if self.fills && self.stream.reader.fields() >= self.required {
            let missing = wanted.iter().filter(|&&i| i < self.fields);
            self.queue.extend(missing.map(|&column| Queued { column, what: What::Default }));
        }
    }

    /// The columns that no field is for.
    ///
    /// # Safety
    /// As [`Rows::decode`].
    #[inline(never)]
    pub(super) unsafe fn take_others(&mut self, wanted: &[usize], arrays: RowArrays) {
        let fields = self.fields;
        for &i in wanted.iter().filter(|&&i| i >= fields) {
            let Some(column) = self.columns.get(i) else { break };
            let start = self.strings.len();
            match column.taken {
                Taken::Field => continue,
                Taken::Part if self.binary.is_some() => {
                    // SAFETY: as above.
                    unsafe { self.decode_field(i, arrays) };
                    continue;
                }
                Taken::Part => {
                    let line = self.stream.reader.raw_line().unwrap_or_default();
                    let given = self.parts.as_mut().map_or(Given::Null, |parts| parts.value(i, line));
                    if given == Given::Missing && !column.default.is_null() {
                        self.queue.push(Queued { column: i, what: What::Default });
                        continue;
                    }
                    let Given::Value(value) = given else {
                        // SAFETY: the caller vouches for the arrays.
                        unsafe { arrays.set(column.attribute, None) };
                        if column.wants_null {
                            self.queue.push(Queued { column: i, what: What::Null });
                        }
                        continue;
                    };
                    if column.refinement.is_some() {
                        self.strings.extend_from_slice(value);
                        // SAFETY: as above.
                        unsafe { self.settle(i, start, arrays) };
                        continue;
                    }
                    if let Some(datum) = column.decoder.and_then(|decoder| decoder.decode(value, &mut self.arena)) {
                        // SAFETY: as above; the server is a 64-bit one, so a datum is a usize.
                        unsafe { arrays.set(column.attribute, Some(pg_sys::Datum::from(datum as usize))) };
                        continue;
                    }
                    self.strings.extend_from_slice(value);
                    self.strings.push(0);
                    self.queue.push(Queued { column: i, what: What::Input(start) });
                    continue;
                }
                Taken::FileName => self.strings.extend_from_slice(&self.file_name),
                Taken::LineNumber => {
                    self.stream.reader.settle_line_number();
                    self.strings.extend(self.stream.reader.line_number().to_string().into_bytes());
                }
                Taken::Default => {
                    self.queue.push(Queued { column: i, what: What::Default });
                    continue;
                }
                Taken::Null => {
                    // SAFETY: the caller vouches for the arrays.
                    unsafe { arrays.set(column.attribute, None) };
                    if column.wants_null {
                        self.queue.push(Queued { column: i, what: What::Null });
                    }
                    continue;
                }
            }
            let bytes = self.strings.get(start..).unwrap_or_default();
            if let Some(datum) = column.decoder.and_then(|decoder| decoder.decode(bytes, &mut self.arena)) {
                self.strings.truncate(start);
                // SAFETY: as above; the server is a 64-bit one, so a datum is a usize.
                unsafe { arrays.set(column.attribute, Some(pg_sys::Datum::from(datum as usize))) };
                continue;
            }
            self.strings.push(0);
            self.queue.push(Queued { column: i, what: What::Input(start) });
        }
    }

    /// Is there something for [`Rows::convert`] to do?
    #[inline]
    pub fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Work the queue off.
    ///
    /// # Safety
    /// A plain frame; `this` is valid and nobody else uses it; `arrays` as in [`Rows::decode`]; `econtext` is valid
    /// if there is a DEFAULT marker. The current memory context is the row's.
    pub unsafe fn convert(this: *mut Rows, arrays: RowArrays, econtext: *mut pg_sys::ExprContext) {
        // SAFETY: the caller vouches for all of it. A jump out of a call leaves `this` as it is: a valid value, with
        // `attention` set to what the message is to say.
        unsafe {
            let len = (*this).queue.len();
            for at in 0..len {
                let queued = *(*this).queue.as_ptr().add(at);
                let column = (*this).columns.as_mut_ptr().add(queued.column);
                let string: *mut c_char = match queued.what {
                    What::Input(start) | What::Made { input: start, .. } | What::Field(start, _) => {
                        (*this).strings.as_mut_ptr().add(start).cast()
                    }
                    _ => std::ptr::null_mut(),
                };
                let shown = match (queued.what, &(*this).default) {
                    (What::Default, Some(marker)) => marker.as_ptr(),
                    (What::Made { shown, .. } | What::Refused(shown), _) => (*this).strings.as_ptr().add(shown).cast(),
                    (What::Field(..), _) => std::ptr::null(),
                    _ => string.cast_const(),
                };
                (*this).attention = Attention { column: (*column).name.as_ptr(), value: shown };
                let mut is_null = matches!(queued.what, What::Null);
                let datum = match queued.what {
                    What::Default => unguarded::exec_eval_expr((*column).default, econtext, &raw mut is_null),
                    What::Refused(_) => refuse(column, shown),
                    What::Field(_, len) => received::call(column, string, len),
                    _ if (*column).is_received => received::call(column, string, 0),
                    _ => unguarded::InputFunctionCall(
                        &raw mut (*column).input,
                        string,
                        (*column).typioparam,
                        (*column).typmod,
                    ),
                };
                arrays.set((*column).attribute, (!is_null).then_some(datum));
            }
            (*this).attention = Attention::NONE;
        }
    }

    /// Start anew: at the start of the same file, or with what `open` opens. Guarded.
    pub fn restart(&mut self, header: Header, open: impl FnOnce(usize) -> Result<Stream>) -> Result<()> {
        let columns = self.columns.len();
        if !self.stream.restart(header, columns)? {
            self.stream.close()?;
            self.stream = open(columns)?;
            self.expect_fields();
        }
        self.rows = 0;
        self.queue.clear();
        self.attention = Attention::NONE;
        if self.stream.files().is_some() {
            self.name_file();
            self.note_turn(Turn::File);
        }
        // The reader counts its batches anew.
        self.forget_block();
        Ok(())
    }

    /// Rows that were decoded together are not the next ones any more.
    pub(super) fn forget_block(&mut self) {
        (self.block, self.decoded) = (None, None);
    }

    /// Decoders know TimeZone and IntervalStyle; make them anew if these have changed since. True if that was so: then rows are
    /// not decoded together any more, unless that is asked for again.
    #[inline]
    pub fn follow_settings(&mut self) -> bool {
        let now = SessionMark::now();
        let changed = now != self.session_mark;
        if changed {
            self.session_mark = now;
            let session = column::session(self.stream.charset());
            let known = self.known.as_mut().or_else(|| self.first_header.as_mut().map(|first| &mut first.columns));
            let columns = self.columns.iter_mut().chain(known.into_iter().flatten());
            for column in columns.filter(|column| !column.ignored && !column.is_received) {
                column.decoder = Decoder::for_type(column.type_oid.to_u32(), column.typmod, &session);
            }
            (self.block, self.decoded) = (None, None);
        }
        changed
    }

    /// Close the source. Guarded.
    pub fn close(&mut self) -> Result<()> {
        self.stream.close()
    }
}
