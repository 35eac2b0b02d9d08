//! Where records of COPY's binary format end in a stretch of a file, if it is known how far the ones before reach.
//!
//! Nothing marks where such a record begins, so stretches are walked in order, from size to size. That is cheap: bytes of values are not
//! looked at, and of a stretch in the middle of a value nothing is. A stretch may end anywhere, in a number, too; a [`Walk`] is what has to be
//! known behind it.
//!
//! The tricky point is what is wrong with a record. The walk does not say it, only that there is something: then the rest of the file is
//! read in order, from the first record on that does not end before this stretch ([`crate::reader`]), and the error is the one that
//! it would always have been. So is whatever is behind the marker that ends the data, unless that is nothing.

use crate::binary::{MARKER, NULL, Next, next, value_fits};

/// How far a walk has come at the end of a stretch. Plain numbers: it travels through shared memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Walk {
    /// Where in the file the next number begins: a record's count of fields, or a field's size. What is between here and there is a
    /// value.
    at: u64,
    /// Fields of the record that are still to come.
    left: u32,
    /// Bytes of the number that were in the stretches before.
    held: [u8; 3],
    /// How many.
    held_len: u8,
    /// The marker was there.
    ended: bool,
}

/// What a walk found in a stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walked {
    /// Records that end in it.
    pub records: u64,
    /// Where in the file the first record begins that does not.
    pub record: u64,
    /// It ends with the marker.
    pub ended: bool,
    /// Something is wrong, or there is something behind the marker.
    pub is_odd: bool,
}

/// What a step came to.
enum Step {
    /// A number.
    On,
    /// The end of the stretch.
    Edge,
    /// Something is wrong.
    Odd,
}

impl Walk {
    /// At the place of a record.
    #[must_use]
    pub fn at(offset: u64) -> Walk {
        Walk { at: offset, ..Walk::default() }
    }

    /// Go on through the stretch at `offset` of the file, into which the record at `record` reaches. Records have so many fields, if that is
    /// known.
    pub fn pass(&mut self, stretch: &[u8], offset: u64, record: u64, fields: Option<usize>) -> Walked {
        let mut found = Walked { records: 0, record, ended: false, is_odd: false };
        if self.ended && !stretch.is_empty() {
            found.is_odd = true;
            return found;
        }
        let end = offset + stretch.len() as u64;
        loop {
            if self.left == 0 && self.at > found.record && self.at <= end {
                found.record = self.at;
                found.records += 1;
            }
            // Most records begin and end here.
            while self.at == found.record && self.held_len == 0 {
                let rest = usize::try_from(self.at.wrapping_sub(offset)).ok().and_then(|at| stretch.get(at..));
                let Next::Record(length) = next(rest.unwrap_or_default(), fields) else { break };
                self.at += length as u64;
                found.record = self.at;
                found.records += 1;
            }
            match self.step(stretch, offset, found.record, fields) {
                Step::On => (),
                Step::Edge => {
                    found.ended = self.ended;
                    return found;
                }
                Step::Odd => {
                    found.is_odd = true;
                    return found;
                }
            }
        }
    }

    /// To the next number.
    fn step(&mut self, stretch: &[u8], offset: u64, record: u64, fields: Option<usize>) -> Step {
        let is_count = self.left == 0;
        if is_count && self.at > record {
            // The last value of the record goes on behind.
            return Step::Edge;
        }
        let size = if is_count { 2 } else { 4 };
        let held = usize::from(self.held_len);
        let from = (self.at + held as u64).checked_sub(offset).and_then(|at| usize::try_from(at).ok());
        let rest = from.and_then(|from| stretch.get(from..)).unwrap_or_default();
        let mut number = [0; 4];
        let there = self.held.iter().take(held).chain(rest).take(size);
        let count = number.iter_mut().zip(there).map(|(to, byte)| *to = *byte).count();
        if count < size {
            self.held = [number[0], number[1], number[2]];
            self.held_len = count as u8;
            return Step::Edge;
        }
        self.held_len = 0;
        self.at += size as u64;
        if is_count {
            let count = i16::from_be_bytes([number[0], number[1]]);
            if count == MARKER {
                self.at = record;
                self.ended = rest.len() == size - held;
                return if self.ended { Step::Edge } else { Step::Odd };
            }
            return match u32::try_from(count) {
                Ok(count) if fields.is_none_or(|fields| fields == count as usize) => {
                    self.left = count;
                    Step::On
                }
                _ => Step::Odd,
            };
        }
        let size = i32::from_be_bytes(number);
        if size != NULL {
            match usize::try_from(size) {
                Ok(size) if value_fits(usize::try_from(self.at - record).unwrap_or(usize::MAX), size) => {
                    self.at += size as u64;
                }
                _ => return Step::Odd,
            }
        }
        self.left -= 1;
        Step::On
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two records of two fields, and the marker.
    const FILE: &[u8] = b"\0\x02\0\0\0\x03abc\xff\xff\xff\xff\0\x02\0\0\0\0\0\0\0\x05vwxyz\xff\xff";

    /// Walk in stretches of so many bytes. The records' ends, and whether something was odd.
    fn ends(file: &[u8], fields: Option<usize>, len: usize) -> (Vec<u64>, bool) {
        let (mut walk, mut record, mut ends) = (Walk::at(100), 100, Vec::new());
        for (i, stretch) in file.chunks(len).enumerate() {
            let found = walk.pass(stretch, 100 + (i * len) as u64, record, fields);
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
    fn a_stretch_ends_anywhere() {
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
            // The sum of two.
            let long = |second: &[u8]| {
                let mut walk = Walk::at(0);
                walk.pass(b"\0\x02\x3f\xff\xff\xf0", 0, 0, None);
                walk.pass(second, 0x3fff_fff6, 0, None).is_odd
            };
            assert!(!long(b"\x20\0\0\x02") && long(b"\x20\0\0\x03"));
        }
    }
}
