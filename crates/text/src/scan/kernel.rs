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
use super::marks::{Carry, LinePosition, marks};
use super::needles::{LINES, Mode, Needles, TEXT, UNQUOTED, has_a_record_a_line, in_mode, is_lenient};
use super::skip::Skipped;

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
}

/// Splits records into fields; see [`super::Scanner::split`].
#[inline(always)]
pub(crate) fn split<I: Isa>(isa: I, n: &Needles, data: &[u8], from: usize, batch: &mut Batch) {
    in_mode!(n, n.is_rich(), split_mode, I, (isa, n, data, from, batch))
}

/// Whether a `\.`, or the backslash of one at the end of the data, is at `at`.
#[inline(always)]
fn marker_at(data: &[u8], at: usize) -> bool {
    data.get(at) == Some(&b'\\') && data.get(at + 1).is_none_or(|&c| c == b'.')
}

/// [`split`] for one mode. `RICH`: with [`Delimiters`].
#[inline(always)]
fn split_mode<I: Isa, const MODE: u8, const RICH: bool>(
    isa: I,
    n: &Needles,
    data: &[u8],
    from: usize,
    batch: &mut Batch,
) {
    // An offset and FLAG share a word.
    let data = data.get(..FLAG as usize - 64).unwrap_or(data);
    batch.skipped.clear();
    let skip = n.skip.as_ref().filter(|_| RICH);
    let (from, is_odd) = skip.map_or((from, false), |skip| skip.pass(data, from, 0, &mut batch.skipped));
    batch.len = 0;
    batch.start = from;
    batch.resume = from;
    batch.odd = is_odd;
    if is_odd {
        return;
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
    let (mut fields, mut records) = (0usize, 0usize);
    let mut at = from;
    'blocks: while at < data.len() {
        if fields + 64 > batch.ends.len() || records + 64 > batch.records.len() {
            // The batch is full, or one record has more fields than a table can have columns.
            batch.odd = records == 0;
            break;
        }
        let mut m = marks::<I, MODE>(isa, n, data, at, true, &mut carry);
        let no_ends = if RICH { delimiters.sort_out(isa, n, data, at, &mut m) } else { 0 };
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
                if RICH { m.delimiter << n.separator.len() | m.line_end << 1 } else { ends << 1 } | field_start;
            let is_delimiter =
                |c: u8| c == n.delimiter && (!RICH || data.get(at + 64..).is_some_and(|b| n.separator.begins(b)));
            let next = data.get(at + 64).is_some_and(|&c| is_delimiter(c) || n.may_end(c));
            let before_end = (ends | m.any_end) >> 1 | u64::from(next) << 63;
            m.escape | m.quote & !(starts | before_end & !m.inside)
        };
        field_start = if RICH { m.delimiter >> (64 - n.separator.len()) | m.line_end >> 63 } else { ends >> 63 };
        if odd_bytes != 0 || unplain {
            // SAFETY: the elements written above.
            let out = unsafe { std::slice::from_raw_parts_mut(out, count) };
            flag(out, field_ends, odd_bytes, &mut unplain);
        }

        let mut bits = m.line_end & ends;
        while bits != 0 {
            let i = bits.trailing_zeros();
            let ends_field = !RICH || no_ends >> i & 1 == 0;
            let upto = (field_ends & ((1u64 << i) - 1)).count_ones() as usize + usize::from(ends_field);
            if m.two >> i & 1 != 0 && ends_field {
                // SAFETY: the element of this line end, written above. The `\r` is not data.
                unsafe { *out.add(upto - 1) -= 1 };
            }
            let end = at + i as usize + 1;
            let (next, is_odd) =
                skip.map_or((end, false), |skip| skip.pass(data, end, records + 1, &mut batch.skipped));
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
            if RICH && next != end {
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
    /// Where quotes count only at both ends of a field: a quote is at another position. The search has ended there, because
    /// the line ends behind it are not certain.
    pub misplaced: bool,
    /// Likewise: a quote is open at the end. It is data if the bytes end here.
    pub unclosed: bool,
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

    /// Sets the position within the line at the end of the bytes.
    pub(super) fn set_line(&mut self, line: LinePosition) {
        self.carry.line = line;
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
    while at < data.len() {
        let whole = at + 64 <= data.len();
        let m = marks::<I, MODE>(isa, n, data, at, false, &mut carry);
        let lines = m.counted;
        if is_lenient(MODE) && !WATCH && m.misplaced != 0 {
            let certain = (m.misplaced & m.misplaced.wrapping_neg()) - 1;
            if certain.count_ones() as usize + at < data.len() {
                last.see(at, m.line_end & certain, lines, seen);
                state.misplaced = true;
                break;
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
        state.carry = carry;
        state.scanned = at;
        state.seen = seen;
    }
    if WATCH {
        state.odd = odd;
    }
    if is_lenient(MODE) {
        state.unclosed = carry.is_in_quote();
    }
    if let Some((end, lines)) = last.end() {
        (state.last, state.lines) = (Some(end), lines);
    }
}
