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
//! Row by row, each field asks anew what its type is, whether it is NULL and how long it is, and where that is random
//! the processor guesses wrong every other time, which costs more than the decoding itself. Down a column the same
//! instructions run for every row, and for the types of most fields there is no branch among them. So the records that
//! the kernels have split are looked at some at a time, few enough for their values to stay in the first-level cache.
//!
//! The tricky point is that nothing may be decided ahead of its time: rows have an order, and so do their errors. What
//! is not beyond doubt makes a row *odd*: a DEFAULT marker, a NULL that may not be, a value that its decoder is not sure
//! of, an escape that may make an invalid character. Nothing of an odd row is used; when its turn comes it goes the way of
//! single rows, which knows what to do. A record with another number of fields ends the block.
//!
//! Values are made for [`crate::tuple::Layout::form_decoded`], see [`Source`].
#![allow(unsafe_code, reason = "calls of what only some machines can do")]

mod column;

use column::{Down, NOTHING, Span};

use crate::arena::Arena;
use crate::convert::words::{self, Marker};
use crate::convert::{Datum, Decoder, varlena};
use crate::raw;
use crate::reader::Reader;
use crate::scan::RecordEnd;
use crate::tuple::Source;

/// Rows of a block at most.
const ROWS: usize = 32;
/// Bytes of its records at most. A longer record is for itself.
const BYTES: usize = 32 << 10;
/// Values that are larger, however short their fields, are not made for many rows at a time.
const MOST_PADDED: usize = 4096;
/// So many records go without blocks when most rows of a block were odd: they are decoded twice.
const PAUSE: usize = 1000;

/// What becomes of a field.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// How its value is made.
    pub decoder: Decoder,
    /// Which value of a row it is.
    pub attribute: usize,
    /// NULL makes a row odd.
    pub not_null: bool,
}

/// Rows that were decoded together.
#[derive(Debug)]
pub struct Block {
    /// For each field of a record, what becomes of it; None for one that nobody wants.
    columns: Box<[Option<Column>]>,
    /// For each attribute.
    sources: Box<[Source]>,
    /// Row by row.
    values: Box<[Datum]>,
    nulls: Box<[bool]>,
    odd: [bool; ROWS],
    arena: Arena,
    /// A value without its escapes.
    unescaped: Vec<u8>,
    /// Records that are to go without a block.
    pause: usize,
    /// The batch that it is of, its first record in it, and how many there are.
    batch: u64,
    first: usize,
    rows: usize,
}

/// A row of a block.
#[derive(Debug)]
pub struct Row<'a> {
    /// Its values; where [`Source::Raw`] says so, what [`raw::pack`] makes.
    pub values: &'a mut [Datum],
    /// Which of them are NULL.
    pub nulls: &'a mut [bool],
}

/// Rows of a block one behind the other.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// Their values, row by row; where [`Source::Raw`] says so, what [`raw::pack`] makes.
    pub values: &'a [Datum],
    /// Which of them are NULL.
    pub nulls: &'a [bool],
    /// Values of each row.
    pub attributes: usize,
    /// How many rows.
    pub rows: usize,
}

impl Block {
    /// For records with these fields and rows of so many attributes; those that no field sets are NULL.
    ///
    /// None if a column has an attribute that rows do not have, or one that another column has; and where values are much
    /// larger than their fields, since a block has many.
    #[must_use]
    pub fn new(columns: Vec<Option<Column>>, attributes: usize) -> Option<Block> {
        let mut sources = vec![Source::Exact; attributes];
        for column in columns.iter().flatten() {
            if column.decoder.least_size() > MOST_PADDED {
                return None;
            }
            let source = sources.get_mut(column.attribute).filter(|source| **source == Source::Exact)?;
            *source = if column.decoder.is_bytes() { Source::Raw } else { Source::Padded };
        }
        (!columns.is_empty()).then(|| Block {
            columns: columns.into(),
            sources: sources.into(),
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

    /// What the values of rows are.
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Is the reader's current record in the block, so that [`Block::row`] has nothing to decode?
    #[must_use]
    pub fn has(&self, reader: &Reader) -> bool {
        let is_here = |(batch, record)| batch == self.batch && (self.first..self.first + self.rows).contains(&record);
        reader.place_in_batch().is_some_and(is_here)
    }

    /// Is the record behind the reader's current one a row of the block that is not odd? Then [`Reader::advance`] goes to it
    /// whatever happens, and [`Block::row`] has it.
    #[inline]
    #[must_use]
    pub fn has_next(&self, reader: &Reader) -> bool {
        let Some((batch, record)) = reader.next_in_batch() else { return false };
        let row = record.wrapping_sub(self.first);
        batch == self.batch && row < self.rows && self.odd.get(row).is_some_and(|&odd| !odd)
    }

    /// The reader's current record as a row, if it is not odd. Its values stay as they are, and where they are, until this
    /// is called for a record that is not in the block, and as long as the reader is not given other bytes.
    #[inline]
    pub fn row(&mut self, reader: &Reader) -> Option<Row<'_>> {
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
        let attributes = self.sources.len();
        let at = row * attributes..(row + 1) * attributes;
        Some(Row { values: self.values.get_mut(at.clone())?, nulls: self.nulls.get_mut(at)? })
    }

    /// The reader's current record as a row, which [`Block::row`] has returned, and the rows behind it that are not odd, `most`
    /// at most. The reader goes to the last one.
    pub fn run(&self, reader: &mut Reader, most: usize) -> Option<Run<'_>> {
        let (batch, record) = reader.place_in_batch()?;
        let first = record.checked_sub(self.first).filter(|_| batch == self.batch)?;
        let rest = self.odd.get(first..self.rows)?;
        let rows = rest.iter().take(most).take_while(|&&odd| !odd).count();
        reader.pass_known(rows.checked_sub(1)?);
        let attributes = self.sources.len();
        let at = first * attributes..(first + rows) * attributes;
        Some(Run { values: self.values.get(at.clone())?, nulls: self.nulls.get(at)?, attributes, rows })
    }

    /// Make datums of a row's raw values. `None` if there is no memory for them.
    ///
    /// # Safety
    /// The arrays are those of the row that was asked for last, and this is done for the first time.
    pub unsafe fn make_datums(&mut self, values: *mut Datum, nulls: *const bool) -> Option<()> {
        for (i, _) in self.sources.iter().enumerate().filter(|&(_, &source)| source == Source::Raw) {
            // SAFETY: this function's contract covers the arrays, which are as long as `sources`; the values were packed, and their
            // bytes are there as long as the row.
            unsafe {
                if !*nulls.add(i) {
                    *values.add(i) = varlena::copy(raw::bytes(*values.add(i)), &mut self.arena)?;
                }
            }
        }
        Some(())
    }

    /// Make the block of the current record, which is that of a batch, and those behind it.
    #[inline(never)]
    fn fill(&mut self, reader: &Reader, batch: u64, record: usize) {
        let dialect = reader.dialect();
        if words::available(reader.level()) && dialect.default.is_none() {
            // SAFETY: available.
            unsafe { self.fill_fast(reader, batch, record, Marker::new(&dialect.null)) }
        } else {
            self.fill_columns(reader, batch, record, None);
        }
    }

    /// [`Block::fill_columns`], compiled for what [`Short`] wants.
    ///
    /// # Safety
    /// [`words::available`] says yes.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt"))]
    unsafe fn fill_fast(&mut self, reader: &Reader, batch: u64, record: usize, null: Option<Marker>) {
        self.fill_columns(reader, batch, record, null);
    }

    /// With a NULL marker, [`words::available`] says yes.
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
        // To look at each field for quotes takes longer than to look for one in all of them.
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
                attributes: self.sources.len(),
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
