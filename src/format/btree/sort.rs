//! Sorting entries.
//!
//! What is loaded is often in order already, or in the opposite order; to find that out costs a look at each entry.
//! Everything else is split by the highest byte in which keys differ, then each part by its own, until parts are so
//! small that inserting is faster. Each pass moves entries from one of two places to the other.
//!
//! Keys and TIDs are treated as one long number, so that nothing depends on the order in which TIDs arrive, but passes
//! keep the order of what is equal: TIDs that ascend among equal keys are in place when the keys are.

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
        let ascending = |all: bool, pair: &[Entry<W>]| all & matches!(pair, [a, b] if a.before(*b));
        border & stretch.windows(2).fold(true, ascending)
    })
}

const STRETCH: usize = 64;

/// Sorts entries. `scratch` is a place for as many of them; it is used if they are neither in order nor in the opposite
/// order. With less of it they are sorted where they are, in two or three times the time. Nothing else is allocated.
///
/// Entries are distinct: no two of them have the same TID.
pub fn sort<W: Word>(entries: &mut [Entry<W>], scratch: &mut [Entry<W>]) -> Order {
    let found = order(entries);
    match found {
        Order::Sorted => {}
        Order::Reversed => entries.reverse(),
        Order::Mixed => match scratch.get_mut(..entries.len()) {
            Some(scratch) => split(entries, scratch, Home::Here),
            None => entries.sort_unstable(),
        },
    }
    found
}

/// Where the sorted entries belong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    /// Where they are.
    Here,
    /// In the other place.
    There,
}

/// Entries that are sorted by insertion.
const FEW: usize = 24;
const DIGIT: u32 = 8;
const DIGITS: usize = 1 << DIGIT;

/// Sorts `here`; the result is `here` or `there`.
fn split<W: Word>(here: &mut [Entry<W>], there: &mut [Entry<W>], home: Home) {
    if here.len() <= FEW {
        insert(here);
        if home == Home::There {
            there.copy_from_slice(here);
        }
        return;
    }
    let Some(first) = here.first().copied() else { return };
    let (keys, tids) = here.iter().fold((W::default(), 0), |(keys, tids), entry| {
        (keys | (first.key() ^ entry.key()), tids | (first.tid().to_u64() ^ entry.tid().to_u64()))
    });
    if keys == W::default() {
        if tids == 0 || is_ascending(here) {
            if home == Home::There {
                there.copy_from_slice(here);
            }
            return;
        }
        let shift = (u64::BITS - tids.leading_zeros()).saturating_sub(DIGIT);
        return scatter(here, there, home, |entry| (entry.tid().to_u64() >> shift) as u8);
    }
    let shift = (W::BITS - keys.leading_zeros()).saturating_sub(DIGIT);
    scatter(here, there, home, |entry| (entry.key() >> shift).to_u64() as u8);
}

/// Moves entries into the other place, by a digit, and sorts those of each digit back.
fn scatter<W: Word>(here: &mut [Entry<W>], there: &mut [Entry<W>], home: Home, digit: impl Fn(&Entry<W>) -> u8) {
    let mut ends = [0usize; DIGITS];
    for entry in here.iter() {
        ends[usize::from(digit(entry))] += 1;
    }
    let mut start = 0;
    for end in &mut ends {
        (*end, start) = (start, start + *end);
    }
    for entry in here.iter() {
        let at = &mut ends[usize::from(digit(entry))];
        if let Some(to) = there.get_mut(*at) {
            *to = *entry;
        }
        *at += 1;
    }
    let mut start = 0;
    for end in ends {
        if let (Some(here), Some(there)) = (here.get_mut(start..end), there.get_mut(start..end))
            && !here.is_empty()
        {
            split(there, here, if home == Home::Here { Home::There } else { Home::Here });
        }
        start = end;
    }
}

fn insert<W: Word>(entries: &mut [Entry<W>]) {
    for i in 1..entries.len() {
        let (sorted, rest) = entries.split_at_mut(i);
        let Some(new) = rest.first().copied() else { return };
        let mut at = i;
        while let Some(before) = sorted.get(at.wrapping_sub(1))
            && new.before(*before)
        {
            at -= 1;
        }
        if at < i
            && let Some(moved) = entries.get_mut(at..=i)
        {
            moved.rotate_right(1);
        }
    }
}
