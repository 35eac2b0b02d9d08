//! Packs entries in order into a few bytes each.
//!
//! ```text
//!   block:  entries, bytes, sequences, width │ first key │ gap │ sequence: TID, rows │ ... │ gap │ gap │ ...
//! ```
//!
//! Keys in order are mostly close to each other, and their rows are mostly consecutive on their pages. So a block has
//! the first key and the gaps between adjacent keys. Each gap has as many bytes as the widest one needs; if all gaps
//! are equal, there is only one. Rows are stored as sequences of consecutive TIDs. Ascending numbers of a file take a
//! fourteenth of the memory of entries, so little new memory must be allocated.
//!
//! Entries that would not become smaller are not packed. Numbers are in this machine's byte order.

use std::collections::TryReserveError;

use super::entry::{Entry, Tid, Word};

/// The most entries of a block.
pub const MOST: usize = 4096;
/// Size of a block's header, in bytes.
const HEADER: usize = 40;
/// Number of bytes at the start that contain the block's size.
pub const START: usize = 8;
/// Position of a sequence's length, above its TID.
const LENGTH_SHIFT: u32 = 48;

/// Appends a block of entries. Returns false if they are not in order, or if the block would have more than half of
/// their bytes.
///
/// # Errors
/// Memory is exhausted.
pub fn pack<W: Word>(entries: &[Entry<W>], to: &mut Vec<u8>) -> Result<bool, TryReserveError> {
    let Some(first) = entries.first().filter(|_| entries.len() <= MOST) else { return Ok(false) };
    let (mut least, mut most, mut sequences) = (u64::MAX, 0, 1);
    let mut in_reach = true;
    for (a, b) in entries.iter().zip(entries.iter().skip(1)) {
        let gap = gap(*a, *b);
        // If the keys descend, the gap wraps to a huge number.
        in_reach &= gap <= u128::from(u32::MAX);
        (least, most) = (least.min(gap as u64), most.max(gap as u64));
        sequences += usize::from(!follows(*a, *b));
    }
    let width = match most {
        _ if least >= most => 0,
        ..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    };
    let size = HEADER + sequences * size_of::<u64>() + width * (entries.len() - 1);
    if !in_reach || size * 2 > size_of_val(entries) {
        return Ok(false);
    }
    to.try_reserve(size)?;
    for number in [entries.len(), size, sequences, width] {
        to.extend_from_slice(&(number as u32).to_ne_bytes());
    }
    to.extend_from_slice(&first.key().to_u128().to_ne_bytes());
    to.extend_from_slice(&most.to_ne_bytes());
    let mut rest = entries;
    while let Some(start) = rest.first() {
        let more = rest.iter().zip(rest.iter().skip(1)).take_while(|(a, b)| follows(**a, **b)).count();
        to.extend_from_slice(&(start.tid().to_u64() | (more as u64 + 1) << LENGTH_SHIFT).to_ne_bytes());
        rest = rest.get(more + 1..).unwrap_or_default();
    }
    let gaps = entries.iter().zip(entries.iter().skip(1)).map(|(a, b)| gap(*a, *b) as u32);
    match width {
        0 => (),
        1 => to.extend(gaps.map(|gap| gap as u8)),
        2 => gaps.for_each(|gap| to.extend_from_slice(&(gap as u16).to_ne_bytes())),
        _ => gaps.for_each(|gap| to.extend_from_slice(&gap.to_ne_bytes())),
    }
    Ok(true)
}

/// Distance of the second key from the first one.
#[inline(always)]
fn gap<W: Word>(a: Entry<W>, b: Entry<W>) -> u128 {
    b.key().to_u128().wrapping_sub(a.key().to_u128())
}

/// Whether the second row directly follows the first one on its page.
#[inline(always)]
fn follows<W: Word>(a: Entry<W>, b: Entry<W>) -> bool {
    a.tid().to_u64() + 1 == b.tid().to_u64()
}

/// Size in bytes of a block with this start.
#[must_use]
pub fn size_of_block(start: [u8; START]) -> usize {
    let [_, _, _, _, size @ ..] = start;
    u32::from_ne_bytes(size) as usize
}

/// The first key of a block.
#[must_use]
pub fn first_key<W: Word>(block: &[u8]) -> Option<W> {
    Some(W::from_u128(u128::from_ne_bytes(*block.get(16..)?.first_chunk()?)))
}

/// Number of bytes of a block that [`first_key`] needs.
pub const FIRST_KEY_END: usize = 32;

/// Replaces `to` with a block's entries. Returns false if the block is invalid.
///
/// # Errors
/// Memory is exhausted.
pub fn unpack<W: Word>(block: &[u8], to: &mut Vec<Entry<W>>) -> Result<bool, TryReserveError> {
    to.clear();
    let Some((header, rest)) = block.split_at_checked(HEADER) else { return Ok(false) };
    let mut numbers = header.as_chunks().0.iter().map(|bytes| u32::from_ne_bytes(*bytes) as usize);
    let mut number = || numbers.next().unwrap_or_default();
    let [count, size, sequences, width] = [number(), number(), number(), number()];
    let (Some(first), Some(gap)) = (first_key::<W>(block), header.last_chunk().copied().map(u64::from_ne_bytes)) else {
        return Ok(false);
    };
    let Some((sequences, gaps)) = rest.split_at_checked(sequences * size_of::<u64>()) else { return Ok(false) };
    if size != block.len() || count == 0 || count > MOST || gaps.len() != width * (count - 1) {
        return Ok(false);
    }
    to.try_reserve(count)?;
    let mut key = first;
    let mut next = |gap: u64| {
        let entry = Entry::new(key, Tid::default());
        key = W::from_u128(key.to_u128().wrapping_add(u128::from(gap)));
        entry
    };
    // No gap follows the last entry.
    match width {
        0 => to.extend((0..count).map(|_| next(gap))),
        1 => to.extend(gaps.iter().chain(&[0]).map(|gap| next(u64::from(*gap)))),
        2 => {
            let gaps = gaps.as_chunks().0.iter().chain(&[[0; 2]]);
            to.extend(gaps.map(|gap| next(u64::from(u16::from_ne_bytes(*gap)))));
        }
        4 => {
            let gaps = gaps.as_chunks().0.iter().chain(&[[0; 4]]);
            to.extend(gaps.map(|gap| next(u64::from(u32::from_ne_bytes(*gap)))));
        }
        _ => return Ok(false),
    }
    let mut rest = to.as_mut_slice();
    for sequence in sequences.as_chunks().0 {
        let sequence = u64::from_ne_bytes(*sequence);
        let tid = sequence & ((1 << LENGTH_SHIFT) - 1);
        let Some((rows, others)) = rest.split_at_mut_checked((sequence >> LENGTH_SHIFT) as usize) else {
            return Ok(false);
        };
        for (row, tid) in rows.iter_mut().zip(tid..) {
            *row = Entry::new(row.key(), Tid::from_u64(tid));
        }
        rest = others;
    }
    Ok(rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries<W: Word>(count: u64, key: impl Fn(u64) -> u128, row: impl Fn(u64) -> (u32, u16)) -> Vec<Entry<W>> {
        let tid = |i| Tid::new(row(i).0, row(i).1);
        (0..count).map(|i| Entry::new(W::from_u128(key(i)), tid(i))).collect()
    }

    fn there_and_back<W: Word>(entries: &[Entry<W>]) -> Option<usize> {
        let mut bytes = vec![1, 2, 3];
        if !pack(entries, &mut bytes).unwrap() {
            assert_eq!(bytes, [1, 2, 3]);
            return None;
        }
        let block = &bytes[3..];
        let mut found = vec![Entry::default(); 7];
        assert_eq!(size_of_block(*block.first_chunk().unwrap()), block.len());
        assert_eq!(first_key(&block[..FIRST_KEY_END]), Some(entries[0].key()));
        assert!(unpack(block, &mut found).unwrap());
        assert!(found == entries);
        // A block with a byte more or less is invalid.
        for len in 0..block.len() {
            assert!(!unpack::<W>(&block[..len], &mut found).unwrap());
        }
        bytes.push(0);
        assert!(!unpack::<W>(&bytes[3..], &mut found).unwrap());
        Some(bytes.len() - 4)
    }

    fn of_width<W: Word>() {
        let on_pages = |i: u64| ((i / 80) as u32, (i % 80 + 1) as u16);
        for count in [13, 80, 81, 1000, 4095, 4096] {
            for (step, widths) in [(0, 0), (1, 0), (255, 0), (1 << 30, 0)] {
                let all = entries::<W>(count, |i| u128::from(7 + i * step), on_pages);
                let size = there_and_back(&all);
                assert_eq!(size, Some(HEADER + count.div_ceil(80) as usize * 8 + widths));
            }
            for (spread, width) in [(2, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 4), (u64::from(u32::MAX), 4)] {
                // One gap differs from the others.
                let all = entries::<W>(count, |i| u128::from(i + if i > 5 { spread - 1 } else { 0 }), on_pages);
                let size = there_and_back(&all);
                let wanted = HEADER + count.div_ceil(80) as usize * 8 + width * (count as usize - 1);
                assert_eq!(size, (wanted * 2 <= size_of_val(all.as_slice())).then_some(wanted));
            }
        }
        // Equal gaps, and keys and rows near their maximum.
        let last = u128::from(u64::MAX) - 99;
        assert!(there_and_back(&entries::<W>(100, |i| last + u128::from(i), on_pages)).is_some());
        assert!(there_and_back(&entries::<W>(100, |_| 0, |i| (u32::MAX - 1, i as u16 + 1))).is_some());
        assert!(there_and_back(&entries::<W>(100, |_| 5, |i| (u32::MAX, u16::MAX - 100 + i as u16))).is_some());
        // Gaps too wide, descending keys, scattered rows, too many entries.
        assert_eq!(there_and_back(&entries::<W>(100, |i| u128::from(i << 33), on_pages)), None);
        assert_eq!(there_and_back(&entries::<W>(100, |i| u128::from(100 - i), on_pages)), None);
        let all_over = entries::<W>(100, |i| u128::from(i * i), |i| (i as u32 * 2, 1));
        assert_eq!(there_and_back(&all_over).is_some(), size_of_val(all_over.as_slice()) >= 2 * (HEADER + 800 + 99));
        assert_eq!(there_and_back(&entries::<W>(4097, u128::from, on_pages)), None);
        assert_eq!(there_and_back::<W>(&[]), None);
    }

    #[test]
    fn packs_and_unpacks() {
        of_width::<u64>();
        of_width::<u128>();
        assert!(there_and_back(&entries::<u128>(100, |i| u128::MAX - 99 + u128::from(i), |i| (3, i as u16))).is_some());
    }

    #[test]
    fn detects_damage() {
        let all = entries::<u64>(500, |i| u128::from(i * 3 + i % 2), |i| ((i / 80) as u32, (i % 80 + 1) as u16));
        let mut block = Vec::new();
        assert!(pack(&all, &mut block).unwrap());
        let mut found = Vec::new();
        // The numbers of entries, bytes and sequences, the width of gaps, and the length of a sequence.
        for place in (0..16).chain([HEADER + 6, HEADER + 7]) {
            let mut damaged = block.clone();
            damaged[place] ^= 1;
            assert!(!unpack::<u64>(&damaged, &mut found).unwrap(), "{place}");
        }
    }
}
