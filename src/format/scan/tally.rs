//! Records that are only counted.
//!
//! A record counts if it has as many fields as it should. Where ends of fields and line ends of a block stand, is of no
//! matter: their order is. Of the ends in a row every so manieth is a line end and no other, so a block is compared with
//! what is expected of it at once, without a look at one record after the other ([`Isa::compress`]). The block where that
//! fails, and all on a machine that cannot gather bits, are gone through record by record.

use super::Isa;
use super::delimiter::Delimiters;
use super::kernel::LastEnd;
use super::marks::{load, marks};
use super::needles::{CSV, CSV_ESCAPE, LINES, Mode, Needles, TEXT, UNQUOTED};
use crate::dialect::Eol;

/// Records that were counted: what [`tally`] finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub records: u64,
    /// Where the first record that was not counted starts.
    pub resume: usize,
    /// Lines up to there, as COPY counts them in CSV: line ends of the counted kind, quoted or not.
    pub lines: u64,
}

/// Count records of so many fields; see [`super::Scanner::tally`].
///
/// # Safety
/// `I`'s instructions are there.
#[inline(always)]
pub(crate) unsafe fn tally<I: Isa>(n: &Needles, data: &[u8], from: usize, fields: usize) -> Tally {
    // SAFETY: this function's contract covers the instruction set.
    unsafe {
        match (n.mode, n.is_rich()) {
            (Mode::Text, false) => tally_mode::<I, TEXT, false>(n, data, from, fields),
            (Mode::Csv, false) => tally_mode::<I, CSV, false>(n, data, from, fields),
            (Mode::CsvEscape, false) => tally_mode::<I, CSV_ESCAPE, false>(n, data, from, fields),
            (Mode::Unquoted, false) => tally_mode::<I, UNQUOTED, false>(n, data, from, fields),
            (Mode::Lines, _) => tally_mode::<I, LINES, false>(n, data, from, fields),
            (Mode::Text, true) => tally_mode::<I, TEXT, true>(n, data, from, fields),
            (Mode::Csv, true) => tally_mode::<I, CSV, true>(n, data, from, fields),
            (Mode::CsvEscape, true) => tally_mode::<I, CSV_ESCAPE, true>(n, data, from, fields),
            (Mode::Unquoted, true) => tally_mode::<I, UNQUOTED, true>(n, data, from, fields),
        }
    }
}

/// What is expected of the ends in a block, by the number of fields that have ended of the record that goes on.
struct Rhythm {
    /// Which ends are line ends.
    line_ends: [u64; 64],
    /// How many fields will have ended, by the sum of those and the block's ends.
    ended: [u8; 128],
}

impl Rhythm {
    /// That of records of so many fields. `None` if there are too few or too many of them.
    fn new(fields: usize) -> Option<Rhythm> {
        if !(1..=64).contains(&fields) {
            return None;
        }
        let every = (fields - 1..64 + fields).step_by(fields).fold(0u128, |bits, i| bits | 1 << i);
        let mut rhythm = Rhythm { line_ends: [0; 64], ended: [0; 128] };
        rhythm.line_ends.iter_mut().take(fields).enumerate().for_each(|(ended, bits)| *bits = (every >> ended) as u64);
        rhythm.ended.iter_mut().zip((0..fields as u8).cycle()).for_each(|(to, ended)| *to = ended);
        Some(rhythm)
    }
}

/// Whatever [`super::kernel::split`] would flag is no matter in CSV; in text it ends the count. So does a backslash at the
/// start of a record where `\.` matters. `RICH`: with [`Delimiters`].
///
/// # Safety
/// `I`'s instructions are there.
#[inline(always)]
unsafe fn tally_mode<I: Isa, const MODE: u8, const RICH: bool>(
    n: &Needles,
    data: &[u8],
    from: usize,
    fields: usize,
) -> Tally {
    let check_marker = MODE != TEXT && MODE != LINES && MODE != UNQUOTED && n.marker;
    let counted = Eol::counted(Some(n.eol));
    // Line ends that end no field are not expected in it.
    let mut rhythm = if I::COMPRESSES && !(RICH && n.trailing) { Rhythm::new(fields) } else { None };
    let mut delimiters = Delimiters::new(n);
    let mut carry = super::Carry::default();
    // 1 if a record starts with the block.
    let mut start = 1;
    let mut records = 0;
    let mut last = LastEnd::default();
    // Counted line ends in the blocks before, and fields that have ended of the record that goes on.
    let (mut seen, mut ended) = (0u64, 0usize);
    let mut at = from;
    'blocks: while at < data.len() {
        // SAFETY: at < data.len(); this function's contract covers the instruction set.
        let (m, no_ends, lines, backslash) = unsafe {
            let block = load::<I>(data, at);
            let mut m = marks::<I, MODE>(n, block, &mut carry);
            let no_ends = if RICH { delimiters.sort_out::<I>(n, data, at, &mut m) } else { 0 };
            let backslash = if check_marker { I::eq(block, b'\\') } else { 0 };
            (m, no_ends, if MODE == TEXT { 0 } else { I::eq(block, counted) }, backslash)
        };
        let starts = m.line_end << 1 | start;
        start = m.line_end >> 63;
        if m.odd | (starts & backslash) | (if MODE == TEXT { m.escape } else { 0 }) != 0 {
            break;
        }
        let ends = m.delimiter | m.line_end;
        let count = ends.count_ones();
        if let Some(expected) = &rhythm {
            // SAFETY: this function's contract covers the instruction set.
            let found = unsafe { I::compress(m.line_end, ends) };
            // `ended` is below `fields`, which is not above 64, and so is `count`.
            #[expect(clippy::indexing_slicing, reason = "masked to their lengths")]
            let expected =
                (expected.line_ends[ended & 63] & low(count), expected.ended[(ended + count as usize) & 127]);
            if found == expected.0 {
                records += u64::from(m.line_end.count_ones());
                last.see(at, m.line_end, lines, seen);
                ended = expected.1.into();
                seen += u64::from(lines.count_ones());
                at += 64;
                continue;
            }
            rhythm = None;
        }
        let (mut delimiter, mut bits) = (m.delimiter, m.line_end);
        while bits != 0 {
            let end = bits & bits.wrapping_neg();
            ended += (delimiter & (end - 1)).count_ones() as usize + usize::from(!RICH || no_ends & end == 0);
            if ended != fields {
                break 'blocks;
            }
            ended = 0;
            delimiter &= !(end - 1);
            records += 1;
            last.see(at, end, lines, seen);
            bits &= bits - 1;
        }
        ended += delimiter.count_ones() as usize;
        seen += u64::from(lines.count_ones());
        at += 64;
    }
    let (resume, lines) = last.end().unwrap_or((from, 0));
    Tally { records, resume, lines }
}

/// So many of the lowest bits.
#[inline(always)]
fn low(bits: u32) -> u64 {
    1u64.checked_shl(bits).map_or(!0, |bit| bit - 1)
}
