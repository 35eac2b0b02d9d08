//! Decodes one column of a block.
//!
//! For short types, and for types whose values are the bytes of their fields, a first pass finds which fields are NULL,
//! and the positions of the others. A second pass decodes only the others, all in the same way. Any unusual field is
//! then decoded alone.

use super::ROWS;
use crate::arena::{Arena, SLACK};
use crate::convert::words::{Marker, SLOT, Short, WINDOW};
use crate::convert::{Datum, Fields, varlena};
use crate::raw;
use pg_bulk_text::dialect::Dialect;
use pg_bulk_text::field::{unescape_csv, unescape_text};
use pg_bulk_text::record::{Value, value_of};
use pg_bulk_text::scan::RecordEnd;
use pg_bulk_text::scan::kernel::FLAG;

/// Target of the datum of a NULL: an empty value with its header, and the bytes behind it that may be read.
#[repr(align(8))]
pub(super) struct Nothing(pub(super) [u8; SLACK + 8]);

pub(super) static NOTHING: Nothing = {
    let mut nothing = [0; SLACK + 8];
    nothing[0] = 4 << 2;
    Nothing(nothing)
};

#[inline(always)]
fn set<T>(values: &mut [T], at: usize, value: T) {
    if let Some(to) = values.get_mut(at) {
        *to = value;
    }
}

/// Records with the same number of fields, and the index of one field.
pub(super) struct Span<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) ends: &'a [u32],
    pub(super) records: &'a [RecordEnd],
    pub(super) start: usize,
    pub(super) fields: usize,
    pub(super) field: usize,
    pub(super) dialect: &'a Dialect,
    /// Length of a delimiter, in bytes.
    pub(super) separator: usize,
    /// The quote of CSV, if the records contain it.
    pub(super) quote: Option<u8>,
}

/// Position of a field.
#[derive(Clone, Copy)]
struct At {
    start: usize,
    end: usize,
    plain: bool,
}

impl Span<'_> {
    /// Position of the field in a row.
    #[inline(always)]
    fn at(&self, row: usize) -> At {
        let at = row * self.fields + self.field;
        let end = self.ends.get(at).copied().unwrap_or_default();
        let start = match (row, self.field) {
            (0, 0) => self.start,
            (_, 0) => self.records.get(row - 1).map_or(0, |before| before.next as usize),
            _ => self.ends.get(at - 1).map_or(0, |&e| (e & !FLAG) as usize + self.separator),
        };
        At { start, end: (end & !FLAG) as usize, plain: end & FLAG == 0 }
    }

    /// [`Span::at`] without bounds checks.
    ///
    /// # Safety
    /// The span has this row.
    #[inline(always)]
    unsafe fn at_unchecked(&self, row: usize) -> At {
        let at = row * self.fields + self.field;
        // SAFETY: the span has `fields` ends and one record for each row.
        unsafe {
            let end = *self.ends.get_unchecked(at);
            let start = match (row, self.field) {
                (0, 0) => self.start,
                (_, 0) => self.records.get_unchecked(row - 1).next as usize,
                _ => (*self.ends.get_unchecked(at - 1) & !FLAG) as usize + self.separator,
            };
            At { start, end: (end & !FLAG) as usize, plain: end & FLAG == 0 }
        }
    }

    /// Whether a window of bytes can be read from each byte of the records.
    pub(super) fn is_roomy(&self) -> bool {
        self.records.last().is_some_and(|last| last.next as usize + SLACK.max(WINDOW) <= self.bytes.len())
    }

    /// Returns the contents of the field at this position.
    #[inline(always)]
    fn value(&self, at: At) -> Value<'_> {
        let raw = self.bytes.get(at.start..at.end).unwrap_or_default();
        value_of(raw, at.plain, self.dialect, self.dialect.is_csv())
    }
}

/// A column of a block that is being filled.
pub(super) struct Down<'a> {
    pub(super) span: &'a Span<'a>,
    /// The NULL marker, if [`Short`] may decode short fields: the span is roomy.
    pub(super) null: Option<Marker>,
    pub(super) not_null: bool,
    /// The datum of a NULL.
    pub(super) nothing: Datum,
    /// The values, starting with that of the first row.
    pub(super) values: &'a mut [Datum],
    pub(super) nulls: &'a mut [bool],
    pub(super) odd: &'a mut [bool; ROWS],
    pub(super) attributes: usize,
    pub(super) arena: &'a mut Arena,
    pub(super) unescaped: &'a mut Vec<u8>,
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

    /// Decodes one field, with any contents.
    #[inline(always)]
    fn field(&mut self, row: usize, at: At, decode: impl Fn(&[u8], &mut Arena) -> Option<Datum>) {
        let span = self.span;
        let datum = match span.value(at) {
            Value::Null => return self.put(row, self.nothing, true),
            Value::Plain(bytes) => decode(bytes, self.arena),
            Value::Escaped(raw) => {
                self.unescaped.clear();
                let doubtful = if span.dialect.is_csv() {
                    unescape_csv(span.dialect, raw, self.unescaped)
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

    /// Skips a column that is not needed, except for fields that may make a row odd. These are the escaped fields in
    /// text, and all fields if there is a DEFAULT marker. In CSV, no field alone can be invalid.
    pub(super) fn pass_over(&mut self) {
        let marked = self.span.dialect.default.is_some();
        if self.span.dialect.is_csv() && !marked {
            return;
        }
        for row in self.rows() {
            let at = self.span.at(row);
            if !at.plain || marked {
                self.field(row, at, |_, _| Some(0));
            }
        }
    }

    #[inline(always)]
    fn rows(&self) -> std::ops::Range<usize> {
        0..self.span.records.len()
    }

    /// Stores which rows have NULL, and the position of the field in each other row. Returns the number of the others.
    ///
    /// # Safety
    /// The span is roomy.
    #[inline(always)]
    unsafe fn sort_out(&mut self, quote: Option<u8>, null: Marker, others: &mut [Other; ROWS]) -> usize {
        let span = self.span;
        let mut count = 0;
        for row in 0..span.records.len().min(ROWS) {
            // SAFETY: the kernels' offsets are within the bytes, and in a roomy span a window follows each of them.
            // There is a value for each row.
            unsafe {
                let at = span.at_unchecked(row);
                let window = &*span.bytes.as_ptr().add(at.start).cast::<[u8; WINDOW]>();
                let len = at.end.wrapping_sub(at.start);
                let quoted = quote.is_some_and(|quote| at.plain & (window[0] == quote) & (len >= 2));
                let is_null = (len == null.len) & !quoted & (null.len == 0 || null.begins(window));
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

    /// [`Fields::decode_words`], compiled separately for files with and without quotes.
    ///
    /// # Safety
    /// The span is roomy.
    #[inline(always)]
    unsafe fn words<S: Short>(
        &mut self,
        quote: Option<u8>,
        null: Marker,
        short: &S,
        decode: impl Fn(&[u8], &mut Arena) -> Option<Datum>,
    ) {
        let mut others = [Other::default(); ROWS];
        // SAFETY: the span is roomy, by this function's contract.
        let count = unsafe { self.sort_out(quote, null, &mut others) };
        let slots = if S::NEEDS_SLOT { count * SLOT } else { 0 };
        let mut unused = [0; SLOT];
        let Some(slots) = self.arena.alloc(slots) else { return self.decode(decode) };
        let slots = slots.as_mut_ptr().cast::<[u8; SLOT]>();
        for (i, other) in others.iter().enumerate().take(count) {
            // SAFETY: as in `sort_out`; there is a slot for each field.
            let sure = unsafe {
                let window = &*self.span.bytes.as_ptr().add(other.start as usize).cast::<[u8; WINDOW]>();
                let slot = if S::NEEDS_SLOT { &mut *slots.add(i) } else { &mut unused };
                let (sure, datum) = short.decode(null.words, window, other.len as usize, slot);
                *self.values.as_mut_ptr().add(usize::from(other.row) * self.attributes) = datum;
                sure
            };
            // The quote may be a digit, and the decoder would read quotes as digits. So only plain fields count.
            if !(sure & other.plain) {
                let row = usize::from(other.row);
                self.field(row, self.span.at(row), &decode);
            }
        }
    }
}

/// Position of a field that is not NULL, without its quotes.
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
        let Some(null) = self.null else { return self.decode(decode) };
        let quote = self.span.quote;
        // SAFETY: there is a marker only if the span is roomy. The second variant omits the test for quotes.
        unsafe {
            match quote {
                Some(_) => self.words(quote, null, short, decode),
                None => self.words(None, null, short, decode),
            }
        }
    }

    #[inline(always)]
    fn decode_bytes(&mut self, fits: impl Fn(&[u8]) -> bool, decode: impl Fn(&[u8], &mut Arena) -> Option<Datum>) {
        self.nothing = NOTHING.0.get(..0).and_then(raw::pack).unwrap_or_default();
        let slow = |this: &mut Self, row: usize| {
            this.field(row, this.span.at(row), |bytes, arena| {
                let datum = decode(bytes, arena)?;
                // SAFETY: the decoder has returned a valid varlena.
                raw::pack(unsafe { varlena::body(datum) })
            });
        };
        let Some(null) = self.null else {
            for row in self.rows() {
                slow(self, row);
            }
            return;
        };
        let mut others = [Other::default(); ROWS];
        // SAFETY: there is a marker only if the span is roomy.
        let count = unsafe {
            match self.span.quote {
                Some(_) => self.sort_out(self.span.quote, null, &mut others),
                None => self.sort_out(None, null, &mut others),
            }
        };
        for other in others.iter().take(count) {
            let row = usize::from(other.row);
            let start = other.start as usize;
            let bytes = self.span.bytes.get(start..start + other.len as usize).unwrap_or_default();
            // Forming a tuple may read bytes behind the value; the span is roomy enough for that.
            match raw::pack(bytes) {
                Some(value) if other.plain && fits(bytes) => set(self.values, row * self.attributes, value),
                _ => slow(self, row),
            }
        }
    }
}
