//! Finds record ends of COPY's binary format in consecutive ranges of a file.
//!
//! No byte marks the start of such a record. So the ranges are walked in order, from size to size. This is cheap: the
//! walk skips the bytes of values, and does not touch a range that lies within one value. A range may end at any byte,
//! even within a number. A [`Walk`] is the state that the next range needs.
//!
//! The tricky point is a broken record. The walk only reports that there is one. The rest of the file is then read in
//! order, from the first record that does not end before this range ([`crate::reader`]), so that the error is the same
//! as without parallelism. Bytes behind the marker that ends the data are handled alike.

use crate::binary::{MARKER, NULL, NextItem, next, value_fits};

/// State of a walk at the end of a range. Only plain numbers: it is copied through shared memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Walk {
    /// Offset in the file of the next number: a record's count of fields, or a field's size. The bytes between the
    /// current position and this offset are a value.
    at: u64,
    /// Number of fields of the record that are not read yet.
    left: u32,
    /// Bytes of the next number that were in earlier ranges.
    held: [u8; 3],
    /// Number of bytes in `held`.
    held_len: u8,
    /// The end marker was read.
    ended: bool,
}

/// The result of walking one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walked {
    /// Number of records that end in the range.
    pub records: u64,
    /// Offset in the file of the first record that does not end in the range.
    pub record: u64,
    /// The end marker is the last item of the range.
    pub ended: bool,
    /// A record is broken, or bytes follow the end marker.
    pub is_odd: bool,
}

/// The result of one step.
enum WalkStep {
    /// A number was read.
    On,
    /// The range has ended.
    Edge,
    /// A record is broken.
    Odd,
}

impl Walk {
    /// Starts a walk at the start of a record.
    #[must_use]
    pub fn at(offset: u64) -> Walk {
        Walk { at: offset, ..Walk::default() }
    }

    /// Continues through the range at `offset` of the file, into which the record at `record` reaches. `fields`: the
    /// number of fields of each record, if it is known.
    pub fn pass(&mut self, range: &[u8], offset: u64, record: u64, fields: Option<usize>) -> Walked {
        let mut found = Walked { records: 0, record, ended: false, is_odd: false };
        if self.ended && !range.is_empty() {
            found.is_odd = true;
            return found;
        }
        let end = offset + range.len() as u64;
        loop {
            if self.left == 0 && self.at > found.record && self.at <= end {
                found.record = self.at;
                found.records += 1;
            }
            // Fast path: most records begin and end in this range.
            while self.at == found.record && self.held_len == 0 {
                let rest = usize::try_from(self.at.wrapping_sub(offset)).ok().and_then(|at| range.get(at..));
                let NextItem::Record(length) = next(rest.unwrap_or_default(), fields) else { break };
                self.at += length as u64;
                found.record = self.at;
                found.records += 1;
            }
            match self.step(range, offset, found.record, fields) {
                WalkStep::On => (),
                WalkStep::Edge => {
                    found.ended = self.ended;
                    return found;
                }
                WalkStep::Odd => {
                    found.is_odd = true;
                    return found;
                }
            }
        }
    }

    /// Goes to the next number.
    fn step(&mut self, range: &[u8], offset: u64, record: u64, fields: Option<usize>) -> WalkStep {
        let is_count = self.left == 0;
        if is_count && self.at > record {
            // The last value of the record continues in the next range.
            return WalkStep::Edge;
        }
        let size = if is_count { 2 } else { 4 };
        let held = usize::from(self.held_len);
        let from = (self.at + held as u64).checked_sub(offset).and_then(|at| usize::try_from(at).ok());
        let rest = from.and_then(|from| range.get(from..)).unwrap_or_default();
        let mut number = [0; 4];
        let there = self.held.iter().take(held).chain(rest).take(size);
        let count = number.iter_mut().zip(there).map(|(to, byte)| *to = *byte).count();
        if count < size {
            self.held = [number[0], number[1], number[2]];
            self.held_len = count as u8;
            return WalkStep::Edge;
        }
        self.held_len = 0;
        self.at += size as u64;
        if is_count {
            let count = i16::from_be_bytes([number[0], number[1]]);
            if count == MARKER {
                self.at = record;
                self.ended = rest.len() == size - held;
                return if self.ended { WalkStep::Edge } else { WalkStep::Odd };
            }
            return match u32::try_from(count) {
                Ok(count) if fields.is_none_or(|fields| fields == count as usize) => {
                    self.left = count;
                    WalkStep::On
                }
                _ => WalkStep::Odd,
            };
        }
        let size = i32::from_be_bytes(number);
        if size != NULL {
            match usize::try_from(size) {
                Ok(size) if value_fits(usize::try_from(self.at - record).unwrap_or(usize::MAX), size) => {
                    self.at += size as u64;
                }
                _ => return WalkStep::Odd,
            }
        }
        self.left -= 1;
        WalkStep::On
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two records of two fields, and the marker.
    const FILE: &[u8] = b"\0\x02\0\0\0\x03abc\xff\xff\xff\xff\0\x02\0\0\0\0\0\0\0\x05vwxyz\xff\xff";

    /// Walks in ranges of `len` bytes. Returns the records' ends, and whether a record was odd.
    fn ends(file: &[u8], fields: Option<usize>, len: usize) -> (Vec<u64>, bool) {
        let (mut walk, mut record, mut ends) = (Walk::at(100), 100, Vec::new());
        for (i, range) in file.chunks(len).enumerate() {
            let found = walk.pass(range, 100 + (i * len) as u64, record, fields);
            if found.records > 0 {
                ends.push(found.record - 100);
            }
            record = found.record;
            if found.is_odd {
                return (ends, true);
            }
        }
        (ends, false)
    }

    #[test]
    fn a_range_ends_anywhere() {
        for fields in [None, Some(2)] {
            for len in 1..=FILE.len() {
                let (found, is_odd) = ends(FILE, fields, len);
                assert_eq!((found.last(), is_odd), (Some(&28), false), "{len}");
                assert_eq!(found.contains(&13), !(1..FILE.len()).step_by(len).any(|_| len > 27), "{len}");
            }
        }
        assert_eq!(ends(&FILE[..20], Some(2), 7), (vec![13], false));
        assert_eq!(ends(b"\0\0\0\0\xff", Some(0), 1), (vec![2, 4], false));
    }

    #[test]
    fn what_is_odd() {
        for len in 1..40 {
            assert!(ends(FILE, Some(3), len).1, "{len}");
            assert!(ends(&[FILE, b"\0"].concat(), Some(2), len).1, "{len}");
            assert!(ends(b"\xff\xfe\0\0\0\0", None, len).1, "{len}");
            assert!(ends(b"\0\x01\xff\xff\xff\xfe\0\0\0", None, len).1, "{len}");
            assert!(ends(b"\0\x01\x3f\xff\xff\xff\0\0\0", None, len).1, "{len}");
            assert!(!ends(b"\0\x01\x3f\xff\xff\xf0\0\0\0", None, len).1, "{len}");
            // The sum of two sizes is beyond the limit.
            let long = |second: &[u8]| {
                let mut walk = Walk::at(0);
                walk.pass(b"\0\x02\x3f\xff\xff\xf0", 0, 0, None);
                walk.pass(second, 0x3fff_fff6, 0, None).is_odd
            };
            assert!(!long(b"\x20\0\0\x02") && long(b"\x20\0\0\x03"));
        }
    }
}
