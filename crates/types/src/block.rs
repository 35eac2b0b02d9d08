//! A block of rows, decoded a column at a time.
//!
//! ```text
//!  batch of records                 block
//!   1 , a , 2.5                      odd   values            nulls
//!   2 ,   , 3.5      column 0  ──►   no    1   ptr  ptr      0 0 0
//!   x , b , 4        column 1  ──►   no    2   -    ptr      0 1 0
//!                    column 2  ──►   yes   -   ptr  ptr
//! ```
//!
//! A loop over rows must test type, NULL and length of each field anew. If the results are random, the processor
//! mispredicts half of these branches, which costs more than decoding. A loop over one column runs the same
//! instructions for each row, and most decoders have no branches. So a block takes some of the records that the kernels
//! have split, few enough for their values to stay in the first-level cache.
//!
//! The tricky point is the order of errors: an error of one row must not be raised before the rows ahead of it are
//! done. So a block raises no errors. A row is *odd* if it has a DEFAULT marker, a NULL that the column forbids, a
//! value that the decoder leaves to the server, or an escape that may make an invalid character. The values of an odd
//! row are not used; the caller decodes it as a single row, which handles all cases. A record with another number of
//! fields ends the block.
//!
//! Values are made for `pg_bulk_storage::tuple::Layout::form_decoded`, see [`ColumnForm`].
#![allow(unsafe_code, reason = "calls of what only some machines can do")]

mod column;

use column::{Down, NOTHING, Span};

use crate::arena::Arena;
use crate::convert::words::{Marker, Words};
use crate::convert::{Datum, Decoder, varlena};
use crate::raw;
use pg_bulk_text::reader::Reader;
use pg_bulk_text::scan::RecordEnd;

/// The form of a column's values in rows that were decoded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnForm {
    /// Datums as the server has them.
    Exact,
    /// Addresses of varlenas with a header of four bytes, not compressed. [`SLACK`](crate::arena::SLACK) bytes can be
    /// read from the start of each. This includes NULLs, which have at most sixteen bytes.
    Padded,
    /// The bytes of a varlena without a header, packed by [`raw::pack`]. [`SLACK`](crate::arena::SLACK) bytes can be
    /// read from the start of each. A NULL is empty.
    Raw,
}

/// The most rows of a block.
const ROWS: usize = 32;
/// The most bytes of a block's records. A longer record makes a block alone.
const BYTES: usize = 32 << 10;
/// The largest value, in bytes, of which a block is made: larger ones take too much memory for many rows, however short
/// their fields are.
const MOST_PADDED: usize = 4096;
/// Number of records that are decoded one by one after a block in which most rows were odd. Odd rows are decoded twice,
/// so such blocks waste time.
const PAUSE: usize = 1000;

/// The target of a field.
#[derive(Debug, Clone, Copy)]
pub struct FieldTarget {
    /// Converts the field.
    pub decoder: Decoder,
    /// Index of the value in a row.
    pub attribute: usize,
    /// NULL makes the row odd.
    pub not_null: bool,
}

/// Rows that are decoded together.
#[derive(Debug)]
pub struct Block {
    /// The target of each field of a record; `None` for a field that is not needed.
    columns: Box<[Option<FieldTarget>]>,
    /// The form of each attribute's values.
    column_forms: Box<[ColumnForm]>,
    /// Values of all rows, row by row.
    values: Box<[Datum]>,
    nulls: Box<[bool]>,
    odd: [bool; ROWS],
    arena: Arena,
    /// A value without its escapes.
    unescaped: Vec<u8>,
    /// Number of records until the next block is tried.
    pause: usize,
    /// The batch of the block's records, the first record's index in it, and the number of records.
    batch: u64,
    first: usize,
    rows: usize,
}

/// A row of a block.
#[derive(Debug)]
pub struct BlockRow<'a> {
    /// The values; those of a [`ColumnForm::Raw`] attribute are made by [`raw::pack`].
    pub values: &'a mut [Datum],
    /// Whether each value is NULL.
    pub nulls: &'a mut [bool],
}

/// Consecutive rows of a block.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The values, row by row; those of a [`ColumnForm::Raw`] attribute are made by [`raw::pack`].
    pub values: &'a [Datum],
    /// Whether each value is NULL.
    pub nulls: &'a [bool],
    /// Number of values of a row.
    pub attributes: usize,
    /// Number of rows.
    pub rows: usize,
}

impl Block {
    /// Creates a block for records with the fields `columns` and rows of `attributes` values. Attributes without a
    /// field are NULL.
    ///
    /// Returns `None` if a column names an attribute that does not exist or that another column has, or if values are
    /// much larger than their fields: a block has many.
    #[must_use]
    pub fn new(columns: Vec<Option<FieldTarget>>, attributes: usize) -> Option<Block> {
        let mut column_forms = vec![ColumnForm::Exact; attributes];
        for column in columns.iter().flatten() {
            if column.decoder.least_size() > MOST_PADDED {
                return None;
            }
            let column_form =
                column_forms.get_mut(column.attribute).filter(|column_form| **column_form == ColumnForm::Exact)?;
            *column_form = if column.decoder.is_bytes() { ColumnForm::Raw } else { ColumnForm::Padded };
        }
        (!columns.is_empty()).then(|| Block {
            columns: columns.into(),
            column_forms: column_forms.into(),
            values: vec![0; ROWS * attributes].into(),
            nulls: vec![true; ROWS * attributes].into(),
            odd: [false; ROWS],
            arena: Arena::new(),
            unescaped: Vec::new(),
            pause: 0,
            batch: 0,
            first: 0,
            rows: 0,
        })
    }

    /// The form of each attribute's values.
    #[must_use]
    pub fn column_forms(&self) -> &[ColumnForm] {
        &self.column_forms
    }

    /// Whether the reader's current record is in the block, so that [`Block::row`] need not decode it.
    #[must_use]
    pub fn has(&self, reader: &Reader) -> bool {
        let is_here = |(batch, record)| batch == self.batch && (self.first..self.first + self.rows).contains(&record);
        reader.place_in_batch().is_some_and(is_here)
    }

    /// Whether the record behind the reader's current one is a row of the block and not odd. Then [`Reader::advance`]
    /// is certain to go to it, and [`Block::row`] returns it.
    #[inline]
    #[must_use]
    pub fn has_next(&self, reader: &Reader) -> bool {
        let Some((batch, record)) = reader.next_in_batch() else { return false };
        let row = record.wrapping_sub(self.first);
        batch == self.batch && row < self.rows && self.odd.get(row).is_some_and(|&odd| !odd)
    }

    /// Returns the reader's current record as a row, or `None` if it is odd. The values keep their contents and
    /// addresses until this function is called for a record outside the block, provided that the reader gets no other
    /// bytes.
    #[inline]
    pub fn row(&mut self, reader: &Reader) -> Option<BlockRow<'_>> {
        let (batch, record) = reader.place_in_batch()?;
        if batch != self.batch || !(self.first..self.first + self.rows).contains(&record) {
            if self.pause > 0 {
                self.pause -= 1;
                return None;
            }
            self.fill(reader, batch, record);
        }
        let row = record - self.first;
        // An empty block has no row that is not odd.
        if self.odd.get(row).is_none_or(|&odd| odd) {
            return None;
        }
        let attributes = self.column_forms.len();
        let at = row * attributes..(row + 1) * attributes;
        Some(BlockRow { values: self.values.get_mut(at.clone())?, nulls: self.nulls.get_mut(at)? })
    }

    /// Returns the reader's current record, which [`Block::row`] has returned before, and the rows behind it that are
    /// not odd; at most `most` rows. The reader advances to the last row of the run.
    pub fn run(&self, reader: &mut Reader, most: usize) -> Option<Run<'_>> {
        let (batch, record) = reader.place_in_batch()?;
        let first = record.checked_sub(self.first).filter(|_| batch == self.batch)?;
        let rest = self.odd.get(first..self.rows)?;
        let rows = rest.iter().take(most).take_while(|&&odd| !odd).count();
        reader.pass_known(rows.checked_sub(1)?);
        let attributes = self.column_forms.len();
        let at = first * attributes..(first + rows) * attributes;
        Some(Run { values: self.values.get(at.clone())?, nulls: self.nulls.get(at)?, attributes, rows })
    }

    /// Makes datums of a row's raw values. `None` if memory is exhausted.
    ///
    /// # Safety
    /// The arrays are those of the row that [`Block::row`] returned last, and this is the first call for that row.
    pub unsafe fn make_datums(&mut self, values: *mut Datum, nulls: *const bool) -> Option<()> {
        for (i, _) in self.column_forms.iter().enumerate().filter(|&(_, &column_form)| column_form == ColumnForm::Raw) {
            // SAFETY: this function's contract covers the arrays, which are as long as `column_forms`; the values were
            // packed, and their bytes live as long as the row.
            unsafe {
                if !*nulls.add(i) {
                    *values.add(i) = varlena::copy(raw::bytes(*values.add(i)), &mut self.arena)?;
                }
            }
        }
        Some(())
    }

    /// Decodes the current record, number `record` of a batch, and those behind it into the block.
    #[inline(never)]
    fn fill(&mut self, reader: &Reader, batch: u64, record: usize) {
        let dialect = reader.dialect();
        match Words::of(reader.level()).filter(|_| dialect.default.is_none()) {
            // SAFETY: `Words` exist only on a machine with these features.
            Some(words) => unsafe { self.fill_fast(reader, batch, record, Marker::new(words, &dialect.null)) },
            None => self.fill_columns(reader, batch, record, None),
        }
    }

    /// [`Block::fill_columns`], compiled with the CPU features that [`Words`] stand for.
    ///
    /// # Safety
    /// The machine has the features.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt"))]
    unsafe fn fill_fast(&mut self, reader: &Reader, batch: u64, record: usize, null: Option<Marker>) {
        self.fill_columns(reader, batch, record, null);
    }

    /// Fills the block column by column, with [`Words`] if there is a NULL marker.
    #[inline(always)]
    fn fill_columns(&mut self, reader: &Reader, batch: u64, record: usize, null: Option<Marker>) {
        (self.batch, self.first) = (batch, record);
        self.arena.reset();
        let records = reader.rest_of_batch();
        let start = reader.record_start();
        let fields = self.columns.len();
        let first_end = reader.first_end();
        let regular = |(i, end): &(usize, &RecordEnd)| {
            end.fields as usize == first_end + (i + 1) * fields && end.next as usize - start <= BYTES
        };
        self.rows = records.iter().enumerate().take(ROWS).take_while(regular).count();
        self.odd = [self.rows == 0; ROWS];
        let ends = reader.batch_ends().get(first_end..first_end + self.rows * fields).unwrap_or_default();
        let records = records.get(..self.rows).unwrap_or_default();
        let dialect = reader.dialect();
        let bytes = reader.bytes();
        let block = records.last().and_then(|last| bytes.get(start..last.next as usize)).unwrap_or_default();
        // One search for a quote in all records is faster than one in each field.
        let quote = dialect.is_csv().then_some(dialect.quote).filter(|&quote| memchr::memchr(quote, block).is_some());
        let separator = dialect.separator.len();
        let mut span = Span { bytes, ends, records, start, fields, field: 0, dialect, separator, quote };
        let null = null.filter(|_| span.is_roomy());
        for field in 0..fields {
            span.field = field;
            let mut fields = Down {
                span: &span,
                null,
                not_null: false,
                nothing: 0,
                values: &mut [],
                nulls: &mut [],
                odd: &mut self.odd,
                attributes: self.column_forms.len(),
                arena: &mut self.arena,
                unescaped: &mut self.unescaped,
            };
            match self.columns.get(field).copied().flatten() {
                Some(column) => {
                    fields.not_null = column.not_null;
                    fields.values = self.values.get_mut(column.attribute..).unwrap_or_default();
                    fields.nulls = self.nulls.get_mut(column.attribute..).unwrap_or_default();
                    fields.nothing = NOTHING.0.as_ptr().expose_provenance() as u64;
                    column.decoder.decode_all(&mut fields);
                }
                None => fields.pass_over(),
            }
        }
        let odd = self.odd.iter().take(self.rows).filter(|&&odd| odd).count();
        if odd * 2 > self.rows {
            self.pause = PAUSE;
        }
    }
}
