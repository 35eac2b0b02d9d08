//! Bitmaps of the special bytes in one block of 64 bytes, and the state that crosses its edge: quotes, an escape, a
//! carriage return.

use super::Isa;
use super::needles::{LINES, Needles, TEXT, UNQUOTED, has_a_record_a_line, has_an_escape, is_lenient};
use crate::dialect::Eol;

/// State at the edge of a block. Only plain numbers: between chunks it is copied through shared memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Carry {
    /// All ones inside quotes, else 0.
    in_quote: u64,
    /// 1 if the block before ended in an escape character that escapes the next byte.
    escape: u64,
    /// 1 if the block before ended in a free carriage return.
    cr: u64,
    /// 1 if no field starts with the next block, where quotes count only at both ends of a field.
    within: u64,
    /// 1 if the block before ended in a closing quote, likewise.
    closed: u64,
}

impl Carry {
    /// Creates a state without an escape: quotes are open or not, and the byte before was a free carriage return or
    /// not.
    pub(super) fn of(in_quote: bool, cr: bool) -> Carry {
        Carry { in_quote: if in_quote { !0 } else { 0 }, cr: u64::from(cr), ..Carry::default() }
    }

    pub(crate) fn is_in_quote(self) -> bool {
        self.in_quote != 0
    }

    /// Whether the byte before is a free carriage return.
    #[must_use]
    pub fn is_behind_cr(&self) -> bool {
        self.cr != 0
    }

    /// Whether the bytes before ended in an escape character that escapes the next byte.
    #[must_use]
    pub fn escapes_next(&self) -> bool {
        self.escape != 0
    }
}

/// Bitmaps of one block. A byte is "free" if it is neither quoted nor escaped.
#[derive(Clone, Copy)]
pub(super) struct Marks {
    /// Free delimiters.
    pub(super) delimiter: u64,
    /// Free line ends of the file's kind (the `\n` of `\r\n`).
    pub(super) line_end: u64,
    /// All free `\r` and `\n`; those of line ends if the line end is given.
    pub(super) any_end: u64,
    /// Line ends of two bytes.
    pub(super) two: u64,
    /// Bytes that count as lines ([`Eol::counted`]). Where each line end ends a record, no others.
    pub(super) counted: u64,
    /// Bytes that only the exact reader can decide on.
    pub(super) odd: u64,
    /// Where quotes count only at both ends of a field: quotes that open elsewhere, and bytes other than an end behind
    /// a closing quote. They are odd, too.
    pub(super) misplaced: u64,
    /// Quotes that open or close (escaped ones are left out).
    pub(super) quote: u64,
    /// Bytes inside quotes, the opening quote included.
    pub(super) inside: u64,
    /// Escape characters that are part of an escape.
    pub(super) escape: u64,
}

/// Returns the bits of bytes that an unescaped backslash before them escapes. `carry` is the state between blocks.
#[inline(always)]
fn escaped(backslash: u64, carry: &mut u64) -> u64 {
    if backslash == 0 {
        return std::mem::take(carry);
    }
    const EVEN: u64 = 0x5555_5555_5555_5555;
    let backslash = backslash & !*carry;
    let follows = backslash << 1 | *carry;
    let odd_starts = backslash & !EVEN & !follows;
    let (sequences, overflow) = odd_starts.overflowing_add(backslash);
    *carry = u64::from(overflow);
    (EVEN ^ (sequences << 1)) & follows
}

/// Returns the quotes that open or close, for an escape other than the quote. Mirrors `CopyReadLineText`, over the set
/// bits only.
#[cold]
#[inline(never)]
fn toggling(quote: u64, escape: u64, carry: &mut Carry) -> u64 {
    let mut inside = carry.in_quote != 0;
    let mut pending = carry.escape != 0;
    let mut last: Option<u32> = None;
    let mut toggles = 0;
    let mut bits = quote | escape;
    while bits != 0 {
        let i = bits.trailing_zeros();
        let bit = 1u64 << i;
        bits ^= bit;
        if last.map_or(i != 0, |l| l + 1 != i) {
            pending = false;
        }
        last = Some(i);
        if escape & bit != 0 {
            pending = inside && !pending;
        } else {
            if !pending {
                toggles |= bit;
                inside = !inside;
            }
            pending = false;
        }
    }
    carry.escape = u64::from(pending && last == Some(63));
    toggles
}

/// Makes the bitmaps of the block at `at`. `cr_ends`: a carriage return at the end of the data ends a line.
#[inline(always)]
pub(super) fn marks<I: Isa, const MODE: u8>(
    isa: I,
    n: &Needles,
    data: &[u8],
    at: usize,
    cr_ends: bool,
    carry: &mut Carry,
) -> Marks {
    let block = load(isa, data, at);
    let (mut quote, mut inside, mut escape, mut odd) = (0, 0, 0, 0);
    let free;
    if MODE == TEXT {
        escape = isa.eq(block, b'\\');
        let taken = escaped(escape, &mut carry.escape);
        if taken != 0 {
            // An unescaped backslash and a dot.
            odd = taken & isa.eq(block, b'.');
        }
        free = !taken;
    } else if MODE == LINES || MODE == UNQUOTED {
        free = !0;
    } else {
        quote = isa.eq(block, n.quote);
        if has_an_escape(MODE) {
            escape = isa.eq(block, n.escape);
            if escape | carry.escape != 0 {
                quote = toggling(quote, escape, carry);
            }
        }
        inside = isa.prefix_xor(quote) ^ carry.in_quote;
        carry.in_quote = (inside.cast_signed() >> 63).cast_unsigned();
        escape &= inside;
        free = !inside;
    }
    let delimiter = if MODE == LINES { 0 } else { isa.eq(block, n.delimiter) & free };
    let (newlines, crs) = (isa.eq(block, b'\n'), isa.eq(block, b'\r'));
    let (newline, cr) = (newlines & free, crs & free);
    let (newlines, crs) = if MODE == TEXT { (newline, cr) } else { (newlines, crs) };
    let (mut two, mut after) = (0, 0);
    if matches!(n.eol, Eol::CrNl | Eol::Any) {
        // Any line end counts, also in quotes. These do not part its bytes.
        let crs = if n.eol == Eol::Any { crs } else { cr };
        after = crs << 1 | carry.cr;
        carry.cr = crs >> 63;
        two = newline & after;
    }
    let (line_end, other, counted) = match n.eol {
        Eol::Nl => (newline, cr, newlines),
        Eol::Cr => (cr, newline, crs),
        Eol::CrNl => (two, newline ^ after, if has_a_record_a_line(MODE) { two } else { crs }),
        Eol::Any => {
            // The byte behind the last one decides on it.
            let last = 63.min(data.len() - at - 1);
            let is_open = data.get(at + last + 1).map_or(!cr_ends, |&next| next == b'\n');
            (newline | cr & !(newline >> 1 | u64::from(is_open) << last), 0, crs | newlines & !after)
        }
    };
    let mut any_end = newline | cr;
    if !n.given {
        odd |= other;
    } else if n.eol != Eol::Any {
        // A carriage return at the end of the block is left out: the byte behind it decides.
        any_end = line_end | two >> 1;
    }
    let mut misplaced = 0;
    if is_lenient(MODE) {
        let (opening, closing) = (quote & inside, quote & !inside);
        // A doubled quote closes and opens.
        let doubled = if has_an_escape(MODE) { 0 } else { quote };
        let starts = delimiter | line_end | closing & doubled;
        let behind = closing << 1 | carry.closed;
        misplaced = opening & !(starts << 1 | (carry.within ^ 1)) | behind & !(delimiter | any_end | doubled);
        (carry.within, carry.closed) = (starts >> 63 ^ 1, closing >> 63);
        odd |= misplaced;
    }
    Marks { delimiter, line_end, any_end, two, counted, odd, misplaced, quote, inside, escape }
}

/// Loads the 64 bytes at `at`. Bytes behind the end of `data` become NULs, which are never a needle.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "less than a block is left")]
pub(super) fn load<I: Isa>(isa: I, data: &[u8], at: usize) -> I::Block {
    let rest = data.get(at..).unwrap_or_default();
    if let Some(block) = rest.first_chunk() {
        isa.load(block)
    } else {
        let mut padded = [0u8; 64];
        padded[..rest.len()].copy_from_slice(rest);
        isa.load(&padded)
    }
}
