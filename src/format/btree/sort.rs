//! Sorting entries.
//!
//! What is loaded is often in order already, or in the opposite order; to find that out costs a look at each entry. Where only
//! a few are out of order, these are sorted, and merged with the others. Everything else is split by the highest bits in which keys differ, into as many parts as make them small, and each
//! part is split again, until there are about as many parts as entries: then what is left is to insert each entry among
//! one or two neighbours. Each pass moves entries from one of two places to the other; random keys take two passes.
//!
//! Passes keep the order of what is equal. So if TIDs ascend, as they do where one process has made pages one after the
//! other, keys are all there is to compare; otherwise keys and TIDs are treated as one long number.

use super::entry::{Entry, Word};

/// In which order entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ascending: nothing to do.
    Sorted,
    /// Strictly descending.
    Reversed,
    /// None of both.
    Mixed,
}

/// In which order they are.
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

/// Are they in order, from block to block of them?
#[inline]
#[must_use]
pub fn is_ascending<W: Word>(entries: &[Entry<W>]) -> bool {
    // In stretches, so that the compiler need not look for the way out at each entry.
    let mut last = None;
    entries.chunks(STRETCH).all(|stretch| {
        let border = last.is_none_or(|last: Entry<W>| stretch.first().is_some_and(|first| last.before(*first)));
        last = stretch.last().copied();
        let ascending = |all: bool, pair: &[Entry<W>]| all & matches!(pair, [a, b] if a.is_before(*b));
        border & stretch.windows(2).fold(true, ascending)
    })
}

const STRETCH: usize = 64;

/// Sorts entries. `scratch` is a place for as many of them; it is used if they are neither in order nor in the opposite
/// order. With less of it they are sorted where they are, in some three times the time. Nothing else is allocated.
///
/// Entries are distinct: no two of them have the same TID.
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

/// Of so many entries, the most that [`mend`] takes for few.
#[must_use]
pub const fn few(entries: usize) -> usize {
    entries / 16 + 16
}

/// Sorts entries all of which but a few are in order. `strays` is a place for these. False if there are more; then entries are
/// in another order than they were, and to be sorted otherwise.
pub fn mend<W: Word>(entries: &mut [Entry<W>], strays: &mut [Entry<W>]) -> bool {
    // What is in order so far, the last two of it, and the strays.
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
        // What is in no order is not looked at to its end.
        let Some(place) = strays.get_mut(count).filter(|_| count < few(at)) else {
            let (Some(to), Some(strays)) = (entries.get_mut(kept..at), strays.get(..count)) else { return false };
            to.copy_from_slice(strays);
            return false;
        };
        count += 1;
        *place = new;
        // One of two is out of order: the one before, if all would be in order without it.
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

/// Where the sorted entries belong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    /// Where they are.
    Here,
    /// In the other place.
    There,
}

impl Home {
    fn other(self) -> Self {
        if self == Home::Here { Home::There } else { Home::Here }
    }
}

/// Entries that are not worth a pass.
const FEW: usize = 16;
/// Bits of a pass at most.
const MOST_BITS: u32 = 11;
const MOST_PARTS: usize = 1 << MOST_BITS;
/// Entries of a part that a processor's cache has at hand, twice, as a power of 2.
const PART_BITS: u32 = 11;

/// Bits of a pass over so many entries: parts that a cache holds first, and parts of one entry then.
fn bits(entries: usize) -> u32 {
    let bits = entries.max(2).ilog2();
    if bits <= PART_BITS { bits } else { (bits - PART_BITS).clamp(4, MOST_BITS) }
}

/// Sorts `here`; the result is `here` or `there`. With `stable`, TIDs of equal keys are in order and remain so.
fn split<W: Word>(here: &mut [Entry<W>], there: &mut [Entry<W>], home: Home, stable: bool) {
    let mut settle = |here: &[Entry<W>]| {
        if home == Home::There {
            there.copy_from_slice(here);
        }
    };
    if here.len() <= FEW {
        insert(here, stable);
        return settle(here);
    }
    let Some(first) = here.first().copied() else { return };
    let keys = here.iter().fold(W::default(), |keys, entry| keys | (first.key() ^ entry.key()));
    let bits = bits(here.len());
    if keys == W::default() {
        let tids = here.iter().fold(0, |tids, entry| tids | (first.tid().to_u64() ^ entry.tid().to_u64()));
        if stable || tids == 0 || is_ascending(here) {
            return settle(here);
        }
        let shift = (u64::BITS - tids.leading_zeros()).saturating_sub(bits);
        return scatter(here, there, home, stable, bits, |entry| entry.tid().to_u64() >> shift);
    }
    let shift = (W::BITS - keys.leading_zeros()).saturating_sub(bits);
    scatter(here, there, home, stable, bits, |entry| (entry.key() >> shift).to_u64());
}

/// Moves entries into the other place, by their digits of so many bits, and sorts those of each digit.
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
        // All parts at once: what is inserted stays within its part.
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
