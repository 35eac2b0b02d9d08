//! Sorts entries.
//!
//! Loaded keys are often in order already, or in descending order, which one comparison per entry shows. If only a few
//! are out of order, these are sorted and merged with the others. All other entries are split into parts by the highest
//! bits in which keys differ. Each part is split again, until there are about as many parts as entries. Then each entry
//! is inserted among one or two neighbors. Each pass moves entries from one of two buffers to the other; random keys
//! take two passes.
//!
//! Passes are stable. So if TIDs ascend, as they do if one process has filled pages one after the other, only keys are
//! compared. Otherwise key and TID are treated as one long number.

use super::entry::{Entry, Word};

/// The order of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ascending: nothing to sort.
    Sorted,
    /// Strictly descending.
    Reversed,
    /// Neither ascending nor descending.
    Mixed,
}

/// Returns the order of entries.
#[must_use]
pub fn order<W: Word>(entries: &[Entry<W>]) -> Order {
    if is_ascending(entries) {
        Order::Sorted
    } else if entries.windows(2).all(|pair| matches!(pair, [a, b] if b.before(*a))) {
        Order::Reversed
    } else {
        Order::Mixed
    }
}

/// Whether entries are in ascending order.
#[inline]
#[must_use]
pub fn is_ascending<W: Word>(entries: &[Entry<W>]) -> bool {
    // In groups, so that the loop tests for its early exit once per group and not at each entry.
    let mut last = None;
    entries.chunks(GROUP).all(|group| {
        let border = last.is_none_or(|last: Entry<W>| group.first().is_some_and(|first| last.before(*first)));
        last = group.last().copied();
        let ascending = |all: bool, pair: &[Entry<W>]| all & matches!(pair, [a, b] if a.is_before(*b));
        border & group.windows(2).fold(true, ascending)
    })
}

const GROUP: usize = 64;

/// Sorts entries, which must have distinct TIDs. `scratch` has room for as many entries; it is used unless they are in
/// ascending or descending order. With a shorter one they are sorted in place, which takes some three times as long.
/// Allocates no other memory. Returns the order that they had.
pub fn sort<W: Word>(entries: &mut [Entry<W>], scratch: &mut [Entry<W>]) -> Order {
    let found = order(entries);
    match found {
        Order::Sorted => {}
        Order::Reversed => entries.reverse(),
        Order::Mixed => match scratch.get_mut(..entries.len()) {
            Some(scratch) if tids_ascend(entries) => split(entries, scratch, Home::Here, true),
            Some(scratch) => split(entries, scratch, Home::Here, false),
            None => entries.sort_unstable(),
        },
    }
    found
}

/// The largest number of strays, among this many entries, that [`mend`] accepts.
#[must_use]
pub const fn few(entries: usize) -> usize {
    entries / 16 + 16
}

/// Sorts entries of which only a few are out of order. `strays` is a buffer for these. Returns false if there are more;
/// the entries are then in another order than before and must be sorted otherwise.
pub fn mend<W: Word>(entries: &mut [Entry<W>], strays: &mut [Entry<W>]) -> bool {
    // Number of entries in order so far, the last two of them, and the number of strays.
    let (mut kept, mut last, mut before, mut count) = (0, None::<Entry<W>>, None::<Entry<W>>, 0);
    for at in 0..entries.len() {
        let Some(new) = entries.get(at).copied() else { break };
        if last.is_none_or(|last| last.before(new)) {
            if let Some(to) = entries.get_mut(kept) {
                *to = new;
            }
            (before, last) = (last, Some(new));
            kept += 1;
            continue;
        }
        // Give up early if too many entries are out of order.
        let Some(place) = strays.get_mut(count).filter(|_| count < few(at)) else {
            let (Some(to), Some(strays)) = (entries.get_mut(kept..at), strays.get(..count)) else { return false };
            to.copy_from_slice(strays);
            return false;
        };
        count += 1;
        *place = new;
        // One of two adjacent entries is out of order: the first one, if the others would be in order without it.
        if let Some(high) = last
            && before.is_none_or(|low| low.before(new))
            && let Some(to) = entries.get_mut(kept - 1)
        {
            (*place, *to) = (high, new);
            last = Some(new);
        }
    }
    let Some(strays) = strays.get_mut(..count) else { return false };
    strays.sort_unstable();
    let mut end = entries.len();
    for &stray in strays.iter().rev() {
        let from = entries.get(..kept).map_or(0, |kept| kept.partition_point(|entry| entry.before(stray)));
        end -= kept - from;
        entries.copy_within(from..kept, end);
        kept = from;
        end -= 1;
        if let Some(to) = entries.get_mut(end) {
            *to = stray;
        }
    }
    true
}

fn tids_ascend<W: Word>(entries: &[Entry<W>]) -> bool {
    entries.windows(2).all(|pair| matches!(pair, [a, b] if a.tid() < b.tid()))
}

/// The buffer for the sorted entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    /// The buffer that has them now.
    Here,
    /// The other buffer.
    There,
}

impl Home {
    fn other(self) -> Self {
        if self == Home::Here { Home::There } else { Home::Here }
    }
}

/// Up to this number of entries, insertion is faster than a pass.
const FEW: usize = 16;
/// The most bits of one pass.
const MOST_BITS: u32 = 11;
const MOST_PARTS: usize = 1 << MOST_BITS;
/// Number of entries of a part that fits twice into a processor's cache, as a power of 2.
const PART_BITS: u32 = 11;

/// Number of bits of a pass: first parts that fit into the cache, then parts of one entry.
fn bits(entries: usize) -> u32 {
    let bits = entries.max(2).ilog2();
    if bits <= PART_BITS { bits } else { (bits - PART_BITS).clamp(4, MOST_BITS) }
}

/// Sorts `here` into `here` or `there`. With `stable`, TIDs of equal keys are in order and stay so.
fn split<W: Word>(here: &mut [Entry<W>], there: &mut [Entry<W>], home: Home, stable: bool) {
    let mut finish = |here: &[Entry<W>]| {
        if home == Home::There {
            there.copy_from_slice(here);
        }
    };
    if here.len() <= FEW {
        insert(here, stable);
        return finish(here);
    }
    let Some(first) = here.first().copied() else { return };
    let keys = here.iter().fold(W::default(), |keys, entry| keys | (first.key() ^ entry.key()));
    let bits = bits(here.len());
    if keys == W::default() {
        let tids = here.iter().fold(0, |tids, entry| tids | (first.tid().to_u64() ^ entry.tid().to_u64()));
        if stable || tids == 0 || is_ascending(here) {
            return finish(here);
        }
        let shift = (u64::BITS - tids.leading_zeros()).saturating_sub(bits);
        return scatter(here, there, home, stable, bits, |entry| entry.tid().to_u64() >> shift);
    }
    let shift = (W::BITS - keys.leading_zeros()).saturating_sub(bits);
    scatter(here, there, home, stable, bits, |entry| (entry.key() >> shift).to_u64());
}

/// Moves entries into the other buffer, ordered by their digits of `bits` bits, and sorts those with equal digits.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "digits are masked to what there is of ends")]
fn scatter<W: Word>(
    here: &mut [Entry<W>],
    there: &mut [Entry<W>],
    home: Home,
    stable: bool,
    bits: u32,
    digit: impl Fn(&Entry<W>) -> u64,
) {
    let mut ends = [0usize; MOST_PARTS];
    let mask = (1usize << bits) - 1;
    let digit = |entry: &Entry<W>| digit(entry) as usize & mask & (MOST_PARTS - 1);
    for entry in here.iter() {
        ends[digit(entry)] += 1;
    }
    let (mut start, mut longest) = (0, 0);
    for end in ends.iter_mut().take(mask + 1) {
        let length = *end;
        longest = longest.max(length);
        (*end, start) = (start, start + length);
    }
    for entry in here.iter() {
        let at = &mut ends[digit(entry)];
        if let Some(to) = there.get_mut(*at) {
            *to = *entry;
        }
        *at += 1;
    }
    if longest <= FEW {
        // All parts at once: insertion does not move an entry out of its part.
        insert(there, stable);
        if home == Home::Here {
            here.copy_from_slice(there);
        }
        return;
    }
    let mut start = 0;
    for end in ends.into_iter().take(mask + 1) {
        if end > start
            && let (Some(here), Some(there)) = (here.get_mut(start..end), there.get_mut(start..end))
        {
            split(there, here, home.other(), stable);
        }
        start = end;
    }
}

fn insert<W: Word>(entries: &mut [Entry<W>], stable: bool) {
    if stable {
        insert_by(entries, |a, b| a.key() < b.key());
    } else {
        insert_by(entries, Entry::before);
    }
}

#[inline(always)]
fn insert_by<W: Word>(entries: &mut [Entry<W>], before: impl Fn(Entry<W>, Entry<W>) -> bool) {
    let Some(mut last) = entries.first().copied() else { return };
    for i in 1..entries.len() {
        let Some(new) = entries.get(i).copied() else { return };
        if !before(new, last) {
            last = new;
            continue;
        }
        let mut at = i;
        while let Some(other) = entries.get(at.wrapping_sub(1)).copied()
            && before(new, other)
        {
            if let Some(to) = entries.get_mut(at) {
                *to = other;
            }
            at -= 1;
        }
        if let Some(to) = entries.get_mut(at) {
            *to = new;
        }
    }
}
