//! The algorithm, generic over the instruction set.
//!
//! [`split`] turns the bytes of complete records into field ends; [`cut`] finds the last line end of a buffer;
//! [`super::tally`] only counts records. All go through [`marks`], block by block.
//!
//! A field is *plain* when its value is the raw bytes, or the raw bytes without the quotes at both ends. Only what
//! is not plain gets [`FLAG`]: a quote that neither opens nor closes its field (a doubled one, one in mid-field), an
//! escape. Most fields of most files are plain, so nothing looks at their bytes a second time.

use super::Isa;
use super::delimiter::Delimiters;
use super::marks::{Carry, load, marks};
use super::needles::{CSV, CSV_ESCAPE, LINES, Mode, Needles, TEXT, UNQUOTED, has_a_record_a_line};
use crate::dialect::Eol;

/// Set in a field's end: the field is not plain.
pub const FLAG: u32 = 1 << 31;

/// Where a record ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordEnd {
    /// Index in the batch's field ends, one past the record's last.
    pub fields: u32,
    /// Offset of the next record.
    pub next: u32,
}

/// Some records, split: what [`split`] fills.
#[derive(Debug)]
pub struct Batch {
    /// Where each field ends (offset of the delimiter or line end), with [`FLAG`] if it is not plain.
    pub ends: Box<[u32]>,
    /// Where each record ends.
    pub records: Box<[RecordEnd]>,
    /// How many records there are.
    pub len: usize,
    /// Where the first record starts.
    pub start: usize,
    /// Where the first record that is not in the batch starts.
    pub resume: usize,
    /// That record wants the exact reader.
    pub odd: bool,
}

impl Batch {
    /// A batch of at most `fields` fields and `records` records (each at least 64).
    #[must_use]
    pub fn new(fields: usize, records: usize) -> Batch {
        Batch {
            ends: vec![0; fields.max(64)].into_boxed_slice(),
            records: vec![RecordEnd::default(); records.max(64)].into_boxed_slice(),
            len: 0,
            start: 0,
            resume: 0,
            odd: false,
        }
    }
}

/// Split records into fields; see [`super::Scanner::split`].
///
/// # Safety
/// `I`'s instructions are there.
#[inline(always)]
pub(crate) unsafe fn split<I: Isa>(n: &Needles, data: &[u8], from: usize, batch: &mut Batch) {
    // SAFETY: this function's contract covers the instruction set.
    unsafe {
        match (n.mode, n.is_rich()) {
            (Mode::Text, false) => split_mode::<I, TEXT, false>(n, data, from, batch),
            (Mode::Csv, false) => split_mode::<I, CSV, false>(n, data, from, batch),
            (Mode::CsvEscape, false) => split_mode::<I, CSV_ESCAPE, false>(n, data, from, batch),
            (Mode::Unquoted, false) => split_mode::<I, UNQUOTED, false>(n, data, from, batch),
            (Mode::Lines, _) => split_mode::<I, LINES, false>(n, data, from, batch),
            (Mode::Text, true) => split_mode::<I, TEXT, true>(n, data, from, batch),
            (Mode::Csv, true) => split_mode::<I, CSV, true>(n, data, from, batch),
            (Mode::CsvEscape, true) => split_mode::<I, CSV_ESCAPE, true>(n, data, from, batch),
            (Mode::Unquoted, true) => split_mode::<I, UNQUOTED, true>(n, data, from, batch),
        }
    }
}

/// Does a `\.`, or the first half of one, stand at `at`?
#[inline(always)]
fn marker_at(data: &[u8], at: usize) -> bool {
    data.get(at) == Some(&b'\\') && data.get(at + 1).is_none_or(|&c| c == b'.')
}

/// `RICH`: with [`Delimiters`].
///
/// # Safety
/// `I`'s instructions are there.
#[inline(always)]
unsafe fn split_mode<I: Isa, const MODE: u8, const RICH: bool>(
    n: &Needles,
    data: &[u8],
    from: usize,
    batch: &mut Batch,
) {
    // Offsets share their word with FLAG.
    let data = data.get(..FLAG as usize - 64).unwrap_or(data);
    batch.len = 0;
    batch.start = from;
    batch.resume = from;
    batch.odd = false;
    let check_marker = !has_a_record_a_line(MODE) && n.marker;
    if check_marker && marker_at(data, from) {
        batch.odd = true;
        return;
    }
    let mut carry = Carry::default();
    let mut delimiters = Delimiters::new(n);
    let mut field_start = 1u64;
    let mut unplain = false;
    let (mut fields, mut records) = (0usize, 0usize);
    let mut at = from;
    while at < data.len() {
        if fields + 64 > batch.ends.len() || records + 64 > batch.records.len() {
            // A full batch, or one record with more fields than any table has columns.
            batch.odd = records == 0;
            break;
        }
        // SAFETY: at < data.len(); this function's contract covers the instruction set.
        let mut m = unsafe { marks::<I, MODE>(n, load::<I>(data, at), &mut carry) };
        // SAFETY: as above.
        let no_ends = if RICH { unsafe { delimiters.sort_out::<I>(n, data, at, &mut m) } } else { 0 };
        let mut ends = m.delimiter | m.line_end;
        if m.odd != 0 {
            ends &= (m.odd & m.odd.wrapping_neg()) - 1;
        }
        // The ends of fields; the others are those of records only.
        let field_ends = ends & !no_ends;
        let count = field_ends.count_ones() as usize;

        let base = at as u32;
        let mut bits = field_ends;
        // SAFETY: at least 64 places are left, checked above, and a word has at most 64 bits.
        let out = unsafe { batch.ends.as_mut_ptr().add(fields) };
        let mut i = 0;
        while bits != 0 {
            // SAFETY: i < count <= 64.
            unsafe { out.add(i).write(base + bits.trailing_zeros()) };
            bits &= bits.wrapping_sub(1);
            i += 1;
        }

        let odd_bytes = if MODE == TEXT {
            m.escape
        } else if MODE == LINES || MODE == UNQUOTED {
            0
        } else {
            let starts =
                if RICH { m.delimiter << n.separator.len() | m.line_end << 1 } else { ends << 1 } | field_start;
            let is_delimiter =
                |c: u8| c == n.delimiter && (!RICH || data.get(at + 64..).is_some_and(|b| n.separator.begins(b)));
            let next = data.get(at + 64).is_some_and(|&c| is_delimiter(c) || c == b'\n' || c == b'\r');
            let before_end = (ends | m.any_end) >> 1 | u64::from(next) << 63;
            m.escape | m.quote & !(starts | before_end & !m.inside)
        };
        field_start = if RICH { m.delimiter >> (64 - n.separator.len()) | m.line_end >> 63 } else { ends >> 63 };
        if odd_bytes != 0 || unplain {
            // SAFETY: the same places as above.
            let out = unsafe { std::slice::from_raw_parts_mut(out, count) };
            flag(out, field_ends, odd_bytes, &mut unplain);
        }

        let mut bits = m.line_end & ends;
        while bits != 0 {
            let i = bits.trailing_zeros();
            let ends_field = !RICH || no_ends >> i & 1 == 0;
            let upto = (field_ends & ((1u64 << i) - 1)).count_ones() as usize + usize::from(ends_field);
            if n.eol == Eol::CrNl && ends_field {
                // SAFETY: the place of this line end, written above. The `\r` is no data.
                unsafe { *out.add(upto - 1) -= 1 };
            }
            let next = at + i as usize + 1;
            // SAFETY: at least 64 places are left, checked above.
            unsafe {
                *batch.records.as_mut_ptr().add(records) =
                    RecordEnd { fields: (fields + upto) as u32, next: next as u32 };
            }
            records += 1;
            batch.resume = next;
            bits &= bits - 1;
            if check_marker && marker_at(data, next) {
                batch.odd = true;
                batch.len = records;
                return;
            }
        }
        fields += count;
        if m.odd != 0 {
            batch.odd = true;
            break;
        }
        at += 64;
    }
    batch.len = records;
}

/// Flag the fields that own a bit of `odd_bytes`; `unplain` says it of the field that goes on in the next block.
#[cold]
#[inline(never)]
fn flag(out: &mut [u32], mut ends: u64, odd_bytes: u64, unplain: &mut bool) {
    let mut seen = 0u64;
    for end in out {
        let bit = ends & ends.wrapping_neg();
        let upto = bit | (bit - 1);
        if *unplain || odd_bytes & upto & !seen != 0 {
            *end |= FLAG;
        }
        *unplain = false;
        seen = upto;
        ends ^= bit;
    }
    *unplain |= odd_bytes & !seen != 0;
}

/// The last block with a line end, as it was seen. What it comes to is worked out once, at the end, so that there is
/// nothing to guess about each block on the way.
#[derive(Clone, Copy, Default)]
pub(super) struct LastEnd {
    at: usize,
    line_end: u64,
    /// Counted line ends in it, and in the blocks before.
    lines: u64,
    seen: u64,
}

impl LastEnd {
    /// The block at `at` was seen, behind blocks with `seen` counted line ends.
    #[inline(always)]
    pub(super) fn see(&mut self, at: usize, line_end: u64, lines: u64, seen: u64) {
        let is_later = line_end != 0;
        self.at = if is_later { at } else { self.at };
        self.line_end = if is_later { line_end } else { self.line_end };
        self.lines = if is_later { lines } else { self.lines };
        self.seen = if is_later { seen } else { self.seen };
    }

    /// Offset just behind the line end, and lines up to there.
    #[inline(always)]
    pub(super) fn end(&self) -> Option<(usize, u64)> {
        let top = self.line_end.checked_ilog2()?;
        Some((self.at + top as usize + 1, self.seen + u64::from((self.lines << (63 - top)).count_ones())))
    }
}

/// How far a buffer was searched for line ends, and what was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CutState {
    /// Bytes looked at, in whole blocks.
    scanned: usize,
    carry: Carry,
    /// Counted line ends among the bytes looked at.
    seen: u64,
    /// Offset just behind the last line end.
    pub last: Option<usize>,
    /// Lines up to there, as COPY counts them: line ends of the counted kind, quoted or not; in text, records.
    pub lines: u64,
    /// Somebody wants to know of what is odd behind it.
    watches: bool,
    /// There is something odd behind it, among the bytes looked at in whole blocks.
    odd_before: bool,
    /// There is something odd behind it, so that the exact reader need not wait for a line end.
    pub odd: bool,
}

impl CutState {
    /// A search that also notices what is odd behind the last line end.
    #[must_use]
    pub fn watching() -> CutState {
        CutState { watches: true, ..CutState::default() }
    }

    /// A search in bytes before which `carry` was reached.
    #[must_use]
    pub fn behind(carry: Carry) -> CutState {
        CutState { carry, ..CutState::default() }
    }

    /// A search in bytes before which `carry` was reached, and so many counted line ends were seen.
    pub(super) fn behind_lines(carry: Carry, seen: u64) -> CutState {
        CutState { carry, seen, ..CutState::default() }
    }

    /// What crosses the end of the bytes, if they were whole blocks.
    #[must_use]
    pub fn carry(&self) -> Carry {
        self.carry
    }

    /// Counted line ends among the bytes, if they were whole blocks.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The bytes stand behind so many others.
    pub(super) fn moved(&mut self, by: usize) {
        self.scanned += by;
        self.last = self.last.map(|last| last + by);
    }

    /// The bytes up to `self.last` have been taken away.
    pub fn taken(&mut self) {
        let Some(last) = self.last.take() else { return };
        if last > self.scanned {
            // Found in a partial block; what follows is looked at from the record's start.
            *self = CutState { watches: self.watches, ..CutState::default() };
        } else {
            self.scanned -= last;
            self.seen -= self.lines;
            self.lines = 0;
        }
    }
}

/// Find the last line end; see [`super::Scanner::cut`].
///
/// # Safety
/// `I`'s instructions are there.
#[inline(always)]
pub(crate) unsafe fn cut<I: Isa>(n: &Needles, data: &[u8], state: &mut CutState) {
    // SAFETY: this function's contract covers the instruction set.
    unsafe {
        match (n.mode, state.watches) {
            (Mode::Text, false) => cut_mode::<I, TEXT, false>(n, data, state),
            (Mode::Csv, false) => cut_mode::<I, CSV, false>(n, data, state),
            (Mode::CsvEscape, false) => cut_mode::<I, CSV_ESCAPE, false>(n, data, state),
            (Mode::Lines | Mode::Unquoted, false) => cut_mode::<I, LINES, false>(n, data, state),
            (Mode::Text, true) => cut_mode::<I, TEXT, true>(n, data, state),
            (Mode::Csv, true) => cut_mode::<I, CSV, true>(n, data, state),
            (Mode::CsvEscape, true) => cut_mode::<I, CSV_ESCAPE, true>(n, data, state),
            (Mode::Lines | Mode::Unquoted, true) => cut_mode::<I, LINES, true>(n, data, state),
        }
    }
}

/// `WATCH`: what is odd matters.
///
/// # Safety
/// `I`'s instructions are there.
#[inline(always)]
unsafe fn cut_mode<I: Isa, const MODE: u8, const WATCH: bool>(n: &Needles, data: &[u8], state: &mut CutState) {
    let counted = Eol::counted(Some(n.eol));
    let mut carry = state.carry;
    let mut last = LastEnd::default();
    let (mut at, mut seen) = (state.scanned, state.seen);
    let mut odd = state.odd_before;
    while at < data.len() {
        let whole = at + 64 <= data.len();
        // SAFETY: at < data.len(); this function's contract covers the instruction set.
        let (m, lines) = unsafe {
            let block = load::<I>(data, at);
            let m = marks::<I, MODE>(n, block, &mut carry);
            (m, if has_a_record_a_line(MODE) { m.line_end } else { I::eq(block, counted) })
        };
        last.see(at, m.line_end, lines, seen);
        if WATCH {
            // What is before a line end is for whoever splits the record.
            let behind = m.line_end.checked_ilog2().map_or(!0, |top| (!0 << top) << 1);
            let there = if whole { !0 } else { !(!0 << (data.len() - at)) };
            odd = (odd && m.line_end == 0) || m.odd & behind & there != 0;
        }
        if !whole {
            break;
        }
        if WATCH {
            state.odd_before = odd;
        }
        seen += u64::from(lines.count_ones());
        at += 64;
        state.carry = carry;
        state.scanned = at;
        state.seen = seen;
    }
    if WATCH {
        state.odd = odd;
    }
    if let Some((end, lines)) = last.end() {
        (state.last, state.lines) = (Some(end), lines);
    }
}
