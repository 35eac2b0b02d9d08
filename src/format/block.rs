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

use crate::arena::{Arena, SLACK};
use crate::convert::words::{self, Marker, SLOT, Short, WINDOW};
use crate::convert::{Datum, Decoder, Fields, varlena};
use crate::dialect::Dialect;
use crate::field::{unescape_csv, unescape_text};
use crate::raw;
use crate::reader::Reader;
use crate::record::{Value, value_of};
use crate::scan::RecordEnd;
use crate::scan::kernel::FLAG;
use crate::tuple::Source;

/// Rows of a block at most.
const ROWS: usize = 32;
/// Bytes of its records at most. A longer record is for itself.
const BYTES: usize = 32 << 10;
/// So many records go without blocks when most rows of a block were odd: they are decoded twice.
const PAUSE: usize = 1000;

/// Something to point to for a NULL: an empty value with its header, and what may be read behind it.
#[repr(align(8))]
struct Nothing([u8; SLACK + 8]);

static NOTHING: Nothing = {
    let mut nothing = [0; SLACK + 8];
    nothing[0] = 4 << 2;
    Nothing(nothing)
};

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

impl Block {
    /// For records with these fields and rows of so many attributes; those that no field sets are NULL.
    ///
    /// None if a column has an attribute that rows do not have, or one that another column has.
    #[must_use]
    pub fn new(columns: Vec<Option<Column>>, attributes: usize) -> Option<Block> {
        let mut sources = vec![Source::Exact; attributes];
        for column in columns.iter().flatten() {
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

    /// Make datums of a row's raw values. `None` if there is no memory for them.
    ///
    /// # Safety
    /// The arrays are those of the row that was asked for last, and this is done for the first time.
    pub unsafe fn make_datums(&mut self, values: *mut Datum, nulls: *const bool) -> Option<()> {
        for (i, _) in self.sources.iter().enumerate().filter(|&(_, &source)| source == Source::Raw) {
            // SAFETY: the caller vouches for the arrays, which are as long as `sources`; the values were packed, and their
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
        let mut span = Span { bytes: reader.bytes(), ends, records, start, fields, field: 0, dialect };
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
                None => fields.decode(|_, _| Some(0)),
            }
        }
        let odd = self.odd.iter().take(self.rows).filter(|&&odd| odd).count();
        if odd * 2 > self.rows {
            self.pause = PAUSE;
        }
    }
}

#[inline(always)]
fn set<T>(values: &mut [T], at: usize, value: T) {
    if let Some(to) = values.get_mut(at) {
        *to = value;
    }
}

/// Records with the same number of fields, and a field of each.
struct Span<'a> {
    bytes: &'a [u8],
    ends: &'a [u32],
    records: &'a [RecordEnd],
    start: usize,
    fields: usize,
    field: usize,
    dialect: &'a Dialect,
}

/// Where a field is.
#[derive(Clone, Copy)]
struct At {
    start: usize,
    end: usize,
    plain: bool,
}

impl Span<'_> {
    /// Where the field of a row is.
    #[inline(always)]
    fn at(&self, row: usize) -> At {
        let at = row * self.fields + self.field;
        let end = self.ends.get(at).copied().unwrap_or_default();
        let start = match (row, self.field) {
            (0, 0) => self.start,
            (_, 0) => self.records.get(row - 1).map_or(0, |before| before.next as usize),
            _ => self.ends.get(at - 1).map_or(0, |&e| (e & !FLAG) as usize + 1),
        };
        At { start, end: (end & !FLAG) as usize, plain: end & FLAG == 0 }
    }

    /// [`Span::at`], for a row that there is.
    ///
    /// # Safety
    /// There is.
    #[inline(always)]
    unsafe fn at_unchecked(&self, row: usize) -> At {
        let at = row * self.fields + self.field;
        // SAFETY: there are `fields` ends for each row, and one record.
        unsafe {
            let end = *self.ends.get_unchecked(at);
            let start = match (row, self.field) {
                (0, 0) => self.start,
                (_, 0) => self.records.get_unchecked(row - 1).next as usize,
                _ => (*self.ends.get_unchecked(at - 1) & !FLAG) as usize + 1,
            };
            At { start, end: (end & !FLAG) as usize, plain: end & FLAG == 0 }
        }
    }

    /// Can a window be looked at from any of its bytes on?
    fn is_roomy(&self) -> bool {
        self.records.last().is_some_and(|last| last.next as usize + SLACK.max(WINDOW) <= self.bytes.len())
    }

    /// What it says.
    #[inline(always)]
    fn value(&self, at: At) -> Value<'_> {
        let raw = self.bytes.get(at.start..at.end).unwrap_or_default();
        value_of(raw, at.plain, self.dialect, self.dialect.is_csv())
    }
}

/// A column of a block that is being filled.
struct Down<'a> {
    span: &'a Span<'a>,
    /// The NULL marker, where short fields may be decoded by [`Short`]: it is available, and the span roomy.
    null: Option<Marker>,
    not_null: bool,
    /// The value where there is none.
    nothing: Datum,
    /// From the first row's value on.
    values: &'a mut [Datum],
    nulls: &'a mut [bool],
    odd: &'a mut [bool; ROWS],
    attributes: usize,
    arena: &'a mut Arena,
    unescaped: &'a mut Vec<u8>,
}

impl Down<'_> {
    #[inline(always)]
    fn put(&mut self, row: usize, value: Datum, null: bool) {
        set(self.values, row * self.attributes, value);
        set(self.nulls, row * self.attributes, null);
        if null & self.not_null {
            set(self.odd, row, true);
        }
    }

    /// One field, whatever it is.
    #[inline(always)]
    fn field(&mut self, row: usize, at: At, decode: impl Fn(&[u8], &mut Arena) -> Option<Datum>) {
        let span = self.span;
        let datum = match span.value(at) {
            Value::Null => return self.put(row, self.nothing, true),
            Value::Plain(bytes) => decode(bytes, self.arena),
            Value::Escaped(raw) => {
                self.unescaped.clear();
                let doubtful = if span.dialect.is_csv() {
                    unescape_csv(span.dialect, raw, self.unescaped);
                    false
                } else {
                    unescape_text(raw, self.unescaped)
                };
                if doubtful { None } else { decode(self.unescaped, self.arena) }
            }
            Value::Default => None,
        };
        match datum {
            Some(datum) => self.put(row, datum, false),
            None => set(self.odd, row, true),
        }
    }

    #[inline(always)]
    fn rows(&self) -> std::ops::Range<usize> {
        0..self.span.records.len()
    }

    /// Note which rows have NULL, and where the field of each of the others is. Returns how many there are.
    ///
    /// # Safety
    /// [`words::available`] says yes; the span is roomy.
    #[inline(always)]
    unsafe fn sort_out(&mut self, quote: Option<u8>, null: Marker, others: &mut [Other; ROWS]) -> usize {
        let span = self.span;
        let mut count = 0;
        for row in 0..span.records.len().min(ROWS) {
            // SAFETY: the kernels' offsets are those of bytes, and behind each of these there is a window in a roomy span.
            // There is a value for each row.
            unsafe {
                let at = span.at_unchecked(row);
                let window = &*span.bytes.as_ptr().add(at.start).cast::<[u8; WINDOW]>();
                let len = at.end.wrapping_sub(at.start);
                let quoted = quote.is_some_and(|quote| at.plain & (window[0] == quote) & (len >= 2));
                let is_null = (len == null.len) & !quoted & (null.len == 0 || words::starts_with(window, null));
                *self.values.as_mut_ptr().add(row * self.attributes) = self.nothing;
                *self.nulls.as_mut_ptr().add(row * self.attributes) = is_null;
                *self.odd.as_mut_ptr().add(row) |= is_null & self.not_null;
                let start = (at.start + usize::from(quoted)) as u32;
                let len = len.wrapping_sub(2 * usize::from(quoted)) as u32;
                *others.as_mut_ptr().add(count) = Other { row: row as u16, plain: at.plain, start, len };
                count += usize::from(!is_null);
            }
        }
        count
    }

    /// [`Fields::decode_words`] for one kind of file.
    ///
    /// # Safety
    /// [`words::available`] says yes; the span is roomy.
    #[inline(always)]
    unsafe fn words<S: Short>(
        &mut self,
        quote: Option<u8>,
        null: Marker,
        short: &S,
        decode: impl Fn(&[u8], &mut Arena) -> Option<Datum>,
    ) {
        let mut others = [Other::default(); ROWS];
        // SAFETY: the caller's promise.
        let count = unsafe { self.sort_out(quote, null, &mut others) };
        let slots = if S::NEEDS_SLOT { count * SLOT } else { 0 };
        let mut unused = [0; SLOT];
        let slots = self.arena.alloc(slots).as_mut_ptr().cast::<[u8; SLOT]>();
        for (i, other) in others.iter().enumerate().take(count) {
            // SAFETY: as in `sort_out`; there is a slot for each.
            let sure = unsafe {
                let window = &*self.span.bytes.as_ptr().add(other.start as usize).cast::<[u8; WINDOW]>();
                let slot = if S::NEEDS_SLOT { &mut *slots.add(i) } else { &mut unused };
                let (sure, datum) = short.decode(window, other.len as usize, slot);
                *self.values.as_mut_ptr().add(usize::from(other.row) * self.attributes) = datum;
                sure
            };
            if !sure {
                let row = usize::from(other.row);
                self.field(row, self.span.at(row), &decode);
            }
        }
    }
}

/// A field that is not NULL, without its quotes.
#[derive(Clone, Copy, Default)]
struct Other {
    row: u16,
    plain: bool,
    start: u32,
    len: u32,
}

impl Fields for Down<'_> {
    #[inline(always)]
    fn decode(&mut self, decode: impl Fn(&[u8], &mut Arena) -> Option<Datum>) {
        for row in self.rows() {
            self.field(row, self.span.at(row), &decode);
        }
    }

    #[inline(always)]
    fn decode_words(&mut self, short: &impl Short, decode: impl Fn(&[u8], &mut Arena) -> Option<Datum>) {
        let dialect = self.span.dialect;
        let Some(null) = self.null else { return self.decode(decode) };
        let quote = dialect.is_csv().then_some(dialect.quote);
        // SAFETY: there is a marker only if it is available and the span roomy.
        match quote {
            Some(_) => unsafe { self.words(quote, null, short, decode) },
            None => unsafe { self.words(None, null, short, decode) },
        }
    }

    #[inline(always)]
    fn decode_bytes(&mut self, fits: impl Fn(&[u8]) -> bool, decode: impl Fn(&[u8], &mut Arena) -> Option<Datum>) {
        self.nothing = NOTHING.0.get(..0).and_then(raw::pack).unwrap_or_default();
        let slow = |this: &mut Self, row: usize| {
            this.field(row, this.span.at(row), |bytes, arena| {
                let datum = decode(bytes, arena)?;
                // SAFETY: the decoder has just made it.
                raw::pack(unsafe { varlena::body(datum) })
            });
        };
        let Some(null) = self.null else {
            for row in self.rows() {
                slow(self, row);
            }
            return;
        };
        let dialect = self.span.dialect;
        let mut others = [Other::default(); ROWS];
        // SAFETY: there is a marker only if it is available and the span roomy.
        let count = unsafe { self.sort_out(dialect.is_csv().then_some(dialect.quote), null, &mut others) };
        for other in others.iter().take(count) {
            let row = usize::from(other.row);
            let start = other.start as usize;
            let bytes = self.span.bytes.get(start..start + other.len as usize).unwrap_or_default();
            // What forms tuples reads more than there is; there is room for that.
            match raw::pack(bytes) {
                Some(value) if other.plain && fits(bytes) => set(self.values, row * self.attributes, value),
                _ => slow(self, row),
            }
        }
    }
}
