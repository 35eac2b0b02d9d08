//! Counts records without splitting them.
//!
//! A record counts if it has the expected number of fields. The positions of field and line ends do not matter, only
//! their order: every n-th end must be a line end, and no other. So a whole block is compared with the expected order
//! at once ([`Isa::compress`]). A block that does not match is processed record by record, as are all blocks on a
//! machine without such an instruction.

use super::Isa;
use super::delimiter::Delimiters;
use super::kernel::LastEnd;
use super::marks::{load, marks};
use super::needles::{LINES, Mode, Needles, PLAIN, TEXT, UNQUOTED, in_mode};

/// The result of [`tally`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Number of counted records.
    pub records: u64,
    /// Start of the first record that was not counted.
    pub resume: usize,
    /// COPY's number of lines up to there in CSV: line ends of the counted kind, quoted or not.
    pub lines: u64,
}

/// Counts records of `fields` fields; see [`super::Scanner::tally`].
#[inline(always)]
pub(crate) fn tally<I: Isa>(isa: I, n: &Needles, data: &[u8], from: usize, fields: usize) -> Tally {
    in_mode!(n, n.part() != PLAIN, tally_mode, I, (isa, n, data, from, fields))
}

/// The expected ends in a block, by the number of ended fields of the record that continues from the block before.
struct Rhythm {
    /// Bitmaps of the ends that are line ends.
    line_ends: [u64; 64],
    /// Number of ended fields at the end of a block, by their number at its start plus the block's ends.
    ended: [u8; 128],
}

impl Rhythm {
    /// Creates it for records of `fields` fields. `None` if there are none or more than 64.
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

/// [`tally`] for one mode. `RICH`: with [`Delimiters`].
///
/// Fields that [`super::kernel::split`] would flag count in CSV; in text they end the count. A backslash at the start
/// of a record ends it, too, if `\.` ends the data. So does a line that may have to be skipped.
#[inline(always)]
fn tally_mode<I: Isa, const MODE: u8, const RICH: bool>(
    isa: I,
    n: &Needles,
    data: &[u8],
    from: usize,
    fields: usize,
) -> Tally {
    let check_marker = MODE != TEXT && MODE != LINES && MODE != UNQUOTED && n.marker;
    // The expected order does not include line ends that end no field.
    let mut rhythm = if I::COMPRESSES && !(RICH && n.trailing) { Rhythm::new(fields) } else { None };
    let mut delimiters = Delimiters::new(n);
    let mut carry = super::Carry::default();
    // 1 if a record starts with the block.
    let mut start = 1;
    let mut records = 0;
    let mut last = LastEnd::default();
    // Counted line ends in the blocks before, and the number of ended fields of the record that continues.
    let (mut seen, mut ended) = (0u64, 0usize);
    let mut at = from;
    'blocks: while at < data.len() {
        let block = load(isa, data, at);
        let mut m = marks::<I, MODE>(isa, n, data, at, true, &mut carry);
        let no_ends = if RICH { delimiters.sort_out(isa, n, data, at, &mut m) } else { 0 };
        let backslash = if check_marker { isa.eq(block, b'\\') } else { 0 };
        let lines = if MODE == TEXT { 0 } else { m.counted };
        let starts = m.line_end << 1 | start;
        start = m.line_end >> 63;
        if RICH
            && let Some(skip) = &n.skip
            && starts & skip.candidates(isa, block) != 0
        {
            break;
        }
        if m.odd | (starts & backslash) | (if MODE == TEXT { m.escape } else { 0 }) != 0 {
            break;
        }
        let ends = m.delimiter | m.line_end;
        let count = ends.count_ones();
        if let Some(expected) = &rhythm {
            let found = isa.compress(m.line_end, ends);
            // `ended` is below `fields`; `fields` and `count` are at most 64.
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

/// Returns a word with the lowest `bits` bits set.
#[inline(always)]
fn low(bits: u32) -> u64 {
    1u64.checked_shl(bits).map_or(!0, |bit| bit - 1)
}
