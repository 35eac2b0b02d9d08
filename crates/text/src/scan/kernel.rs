//! The algorithm, generic over the instruction set.
//!
//! [`split`] finds the field ends of complete records; [`cut`] finds the last line end of a buffer; [`super::tally`]
//! only counts records. All use [`marks`], block by block.
//!
//! A field is *plain* if its value is the raw bytes, or the raw bytes without the quotes at both ends. Any other field
//! gets [`FLAG`]: it has an escape, or a quote that neither opens nor closes it (doubled, or in the middle). Most
//! fields of most files are plain, so their bytes are read only once.

use super::Isa;
use super::delimiter::Delimiters;
use super::marks::{Carry, load, marks};
use super::needles::{LINES, Mode, Needles, PLAIN, RICH, SKIPS, TEXT, UNQUOTED, has_a_record_a_line, in_mode};
use super::skip::Skipped;
use crate::separator::Separator;

/// Flag in a field's end: the field is not plain.
pub const FLAG: u32 = 1 << 31;

/// The end of a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordEnd {
    /// Index behind the record's last field end in the batch.
    pub fields: u32,
    /// Offset of the next record.
    pub next: u32,
}

/// Records that [`split`] has split into fields.
#[derive(Debug)]
pub struct Batch {
    /// The end of each field (offset of the delimiter or line end), with [`FLAG`] if it is not plain.
    pub ends: Box<[u32]>,
    /// The end of each record.
    pub records: Box<[RecordEnd]>,
    /// Number of records.
    pub len: usize,
    /// Start of the first record.
    pub start: usize,
    /// Start of the first record that is not in the batch.
    pub resume: usize,
    /// The exact reader must read the record at `resume`.
    pub odd: bool,
    /// The lines that are no records, before the records that follow them.
    pub skipped: Vec<Skipped>,
}

impl Batch {
    /// Creates a batch of at most `fields` fields and `records` records (each at least 64).
    #[must_use]
    pub fn new(fields: usize, records: usize) -> Batch {
        Batch {
            ends: vec![0; fields.max(64)].into_boxed_slice(),
            records: vec![RecordEnd::default(); records.max(64)].into_boxed_slice(),
            len: 0,
            start: 0,
            resume: 0,
            odd: false,
            skipped: Vec::new(),
        }
    }

    /// Number of field ends.
    fn fields(&self) -> usize {
        self.len.checked_sub(1).and_then(|last| self.records.get(last)).map_or(0, |end| end.fields as usize)
    }

    /// Adds the odd record at `resume`, which ends at `next`, and whose field ends are `ends`. False if it does not fit.
    #[must_use]
    pub fn add(&mut self, ends: &[u32], next: usize) -> bool {
        let fields = self.fields();
        let upto = fields + ends.len();
        let (Some(out), Some(record)) = (self.ends.get_mut(fields..upto), self.records.get_mut(self.len)) else {
            return false;
        };
        out.copy_from_slice(ends);
        *record = RecordEnd { fields: upto as u32, next: next as u32 };
        (self.len, self.resume, self.odd) = (self.len + 1, next, false);
        true
    }
}

/// Splits records into fields; see [`super::Scanner::split`].
#[inline(always)]
pub(crate) fn split<I: Isa>(isa: I, n: &Needles, data: &[u8], batch: &mut Batch) {
    match n.part() {
        PLAIN => in_mode!(@ n, 0, split_mode, I, (isa, n, data, batch)),
        SKIPS => in_mode!(@ n, 1, split_mode, I, (isa, n, data, batch)),
        _ => in_mode!(@ n, 2, split_mode, I, (isa, n, data, batch)),
    }
}

/// Whether a `\.`, or the backslash of one at the end of the data, is at `at`.
#[inline(always)]
fn marker_at(data: &[u8], at: usize) -> bool {
    data.get(at) == Some(&b'\\') && data.get(at + 1).is_none_or(|&c| c == b'.')
}

/// [`split`] for one mode, and one [`Needles::part`].
#[inline(always)]
fn split_mode<I: Isa, const MODE: u8, const PART: u8>(isa: I, n: &Needles, data: &[u8], batch: &mut Batch) {
    let is_rich = PART == RICH;
    // An offset and FLAG share a word.
    let data = data.get(..FLAG as usize - 64).unwrap_or(data);
    let (mut fields, mut records) = (batch.fields(), batch.len);
    let mut from = batch.resume;
    let skip = n.skip.as_ref().filter(|_| PART != PLAIN);
    if let Some(skip) = skip {
        (from, batch.odd) = skip.pass(data, from, records, &mut batch.skipped);
        batch.resume = from;
        match batch.records.get_mut(..records) {
            Some([.., before]) => before.next = from as u32,
            _ => batch.start = from,
        }
        if batch.odd {
            return;
        }
    }
    let check_marker = !has_a_record_a_line(MODE) && n.marker;
    if check_marker && marker_at(data, from) {
        batch.odd = true;
        return;
    }
    let mut carry = Carry::default();
    let mut delimiters = Delimiters::new(n);
    let mut field_start = 1u64;
    let mut unplain = false;
    let mut at = from;
    'blocks: while at < data.len() {
        if fields + 64 > batch.ends.len() || records + 64 > batch.records.len() {
            // The batch is full, or one record has more fields than a table can have columns.
            batch.odd = records == 0;
            break;
        }
        let mut m = marks::<I, MODE>(isa, n, data, at, true, &mut carry);
        let no_ends = if is_rich { delimiters.sort_out(isa, n, data, at, &mut m) } else { 0 };
        let mut ends = m.delimiter | m.line_end;
        if m.odd != 0 {
            ends &= (m.odd & m.odd.wrapping_neg()) - 1;
        }
        // The other ends are those of records only.
        let field_ends = ends & !no_ends;
        let count = field_ends.count_ones() as usize;

        let base = at as u32;
        let mut bits = field_ends;
        // SAFETY: at least 64 elements are left, checked above, and a word has at most 64 bits.
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
                if is_rich { m.delimiter << n.separator.len() | m.line_end << 1 } else { ends << 1 } | field_start;
            let is_delimiter =
                |c: u8| c == n.delimiter && (!is_rich || data.get(at + 64..).is_some_and(|b| n.separator.begins(b)));
            let next = data.get(at + 64).is_some_and(|&c| is_delimiter(c) || n.may_end(c));
            let before_end = (ends | m.any_end) >> 1 | u64::from(next) << 63;
            m.escape | m.quote & !(starts | before_end & !m.inside)
        };
        field_start = if is_rich { m.delimiter >> (64 - n.separator.len()) | m.line_end >> 63 } else { ends >> 63 };
        if odd_bytes != 0 || unplain {
            // SAFETY: the elements written above.
            let out = unsafe { std::slice::from_raw_parts_mut(out, count) };
            flag(out, field_ends, odd_bytes, &mut unplain);
        }

        let mut bits = m.line_end & ends;
        while bits != 0 {
            let i = bits.trailing_zeros();
            let ends_field = !is_rich || no_ends >> i & 1 == 0;
            let upto = (field_ends & ((1u64 << i) - 1)).count_ones() as usize + usize::from(ends_field);
            if m.two >> i & 1 != 0 && ends_field {
                // SAFETY: the element of this line end, written above. The `\r` is not data.
                unsafe { *out.add(upto - 1) -= 1 };
            }
            let end = at + i as usize + 1;
            let (mut next, mut is_odd) = (end, false);
            if let Some(skip) = skip
                && let Some(&byte) = data.get(end)
                && skip.may_begin(byte)
            {
                (next, is_odd) = skip.pass(data, end, records + 1, &mut batch.skipped);
            }
            // SAFETY: at least 64 elements are left, checked above.
            unsafe {
                *batch.records.as_mut_ptr().add(records) =
                    RecordEnd { fields: (fields + upto) as u32, next: next as u32 };
            }
            records += 1;
            batch.resume = next;
            bits &= bits - 1;
            if is_odd || (check_marker && marker_at(data, next)) {
                batch.odd = true;
                batch.len = records;
                return;
            }
            if PART != PLAIN && next != end {
                fields += upto;
                (carry, delimiters) = (Carry::default(), Delimiters::new(n));
                (field_start, unplain) = (1, false);
                at = next;
                continue 'blocks;
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

/// Flags the fields that contain a bit of `odd_bytes`. `unplain`: the field that continues in the next block needs the
/// flag.
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

/// Returns those of the `starts` of lines in the block at `at` that begin a comment.
#[inline(always)]
fn comments(mut starts: u64, comment: &Separator, data: &[u8], at: usize) -> u64 {
    let mut comments = 0;
    while starts != 0 {
        let rest = data.get(at + starts.trailing_zeros() as usize..).unwrap_or_default();
        comments |= if comment.begins(rest) { starts & starts.wrapping_neg() } else { 0 };
        starts &= starts - 1;
    }
    comments
}

/// The last block with a line end. The position is computed once, at the end, so that the loop over blocks has no
/// branch that depends on line ends.
#[derive(Clone, Copy, Default)]
pub(super) struct LastEnd {
    at: usize,
    line_end: u64,
    /// Counted line ends in it, and in the blocks before it.
    lines: u64,
    seen: u64,
}

impl LastEnd {
    /// Processes the block at `at`, which follows blocks with `seen` counted line ends.
    #[inline(always)]
    pub(super) fn see(&mut self, at: usize, line_end: u64, lines: u64, seen: u64) {
        let is_later = line_end != 0;
        self.at = if is_later { at } else { self.at };
        self.line_end = if is_later { line_end } else { self.line_end };
        self.lines = if is_later { lines } else { self.lines };
        self.seen = if is_later { seen } else { self.seen };
    }

    /// Offset behind the last line end, and the number of lines up to there.
    #[inline(always)]
    pub(super) fn end(&self) -> Option<(usize, u64)> {
        let top = self.line_end.checked_ilog2()?;
        Some((self.at + top as usize + 1, self.seen + u64::from((self.lines << (63 - top)).count_ones())))
    }
}

/// State of a search for the last line end of a buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CutState {
    /// Number of searched bytes, in whole blocks.
    scanned: usize,
    carry: Carry,
    /// Counted line ends in the searched bytes.
    seen: u64,
    /// Offset behind the last line end.
    pub last: Option<usize>,
    /// COPY's number of lines up to there: line ends of the counted kind, quoted or not; in text, records.
    pub lines: u64,
    /// The caller needs `odd`.
    watches: bool,
    /// The searched whole blocks have an odd byte behind the last line end.
    odd_before: bool,
    /// An odd byte is behind the last line end, so the exact reader need not wait for the next line end.
    pub odd: bool,
    /// The search ends before a comment. It began at the start of a line.
    stops: bool,
    /// The search has ended in the line behind the last line end. The line is a comment; or a quote is not at an end of its
    /// field, where quotes count only there. So the line ends behind are not certain.
    pub stopped: bool,
}

impl CutState {
    /// Starts a search that also finds odd bytes behind the last line end.
    #[must_use]
    pub fn watching() -> CutState {
        CutState { watches: true, ..CutState::default() }
    }

    /// Starts a search in bytes behind the edge with the state `carry`.
    #[must_use]
    pub fn behind(carry: Carry) -> CutState {
        CutState { carry, ..CutState::default() }
    }

    /// Starts a search that begins with a line, and ends before a comment.
    #[must_use]
    pub fn stopping() -> CutState {
        CutState { stops: true, ..CutState::default() }
    }

    /// Starts a search in bytes behind the edge with the state `carry` and `seen` counted line ends before it.
    pub(super) fn behind_lines(carry: Carry, seen: u64) -> CutState {
        CutState { carry, seen, ..CutState::default() }
    }

    /// State at the end of the bytes, if they were whole blocks.
    #[must_use]
    pub fn carry(&self) -> Carry {
        self.carry
    }

    /// Counted line ends in the bytes, if they were whole blocks.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Moves all offsets: the searched bytes follow `by` others.
    pub(super) fn moved(&mut self, by: usize) {
        self.scanned += by;
        self.last = self.last.map(|last| last + by);
    }

    /// Removes the bytes up to `self.last` from the state.
    pub fn taken(&mut self) {
        let Some(last) = self.last.take() else { return };
        if last > self.scanned {
            // Found in a partial block: the bytes behind it are searched again from the start of their record.
            *self = CutState { watches: self.watches, ..CutState::default() };
        } else {
            self.scanned -= last;
            self.seen -= self.lines;
            self.lines = 0;
        }
    }
}

/// Finds the last line end; see [`super::Scanner::cut`].
#[inline(always)]
pub(crate) fn cut<I: Isa>(isa: I, n: &Needles, data: &[u8], state: &mut CutState) {
    in_mode!(n, state.watches, cut_mode, I, (isa, n, data, state))
}

/// [`cut`] for one mode. `WATCH`: find odd bytes, too.
#[inline(always)]
fn cut_mode<I: Isa, const MODE: u8, const WATCH: bool>(isa: I, n: &Needles, data: &[u8], state: &mut CutState) {
    let mut carry = state.carry;
    let mut last = LastEnd::default();
    let (mut at, mut seen) = (state.scanned, state.seen);
    let mut odd = state.odd_before;
    let comment = if state.stops { n.comment() } else { None };
    // Whether a line starts with the block, and the state behind the whole blocks.
    let (mut start, mut edge) = (u64::from(at == 0), carry);
    while at < data.len() {
        let whole = at + 64 <= data.len();
        let m = marks::<I, MODE>(isa, n, data, at, false, &mut carry);
        let lines = m.counted;
        if !WATCH {
            let mut stop = m.misplaced;
            if let Some(comment) = &comment {
                let starts = m.line_end << 1 | start;
                start = m.line_end >> 63;
                stop |= comments(starts & isa.eq(load(isa, data, at), comment.first()), comment, data, at);
            }
            if stop != 0 {
                let certain = (stop & stop.wrapping_neg()) - 1;
                if certain.count_ones() as usize + at < data.len() {
                    last.see(at, m.line_end & certain, lines, seen);
                    state.stopped = true;
                    break;
                }
            }
        }
        last.see(at, m.line_end, lines, seen);
        if WATCH {
            // Odd bytes before a line end are found when that record is split.
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
        edge = carry;
    }
    (state.carry, state.scanned, state.seen) = (edge, at, seen);
    if WATCH {
        state.odd = odd;
    }
    if let Some((end, lines)) = last.end() {
        (state.last, state.lines) = (Some(end), lines);
    }
}
