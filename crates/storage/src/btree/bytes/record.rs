//! Records: keys and their rows, one after the other.
//!
//! ```text
//!  0                        8
//!  TID << 16 | key's length | key ... | next record
//! ```
//!
//! Records are not aligned, and their numbers are in this machine's byte order: they only exist during a load.

use std::cmp::Ordering;

use crate::btree::entry::Tid;

/// Bytes before the key.
pub const HEADER: usize = 8;
/// The longest key of a record, in bytes.
pub const MAX_KEY: usize = u16::MAX as usize;

/// A key and its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'r> {
    /// The key: see [`super::shape::ByteShape`].
    pub key: &'r [u8],
    /// The row.
    pub tid: Tid,
}

impl Record<'_> {
    /// Size of the record, in bytes.
    #[inline(always)]
    #[must_use]
    pub fn size(&self) -> usize {
        HEADER + self.key.len()
    }
}

impl Ord for Record<'_> {
    #[inline(always)]
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(other.key).then_with(|| self.tid.cmp(&other.tid))
    }
}

impl PartialOrd for Record<'_> {
    #[inline(always)]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The bytes ahead of a key.
#[inline(always)]
pub(super) fn header(tid: Tid, length: usize) -> [u8; HEADER] {
    (tid.to_u64() << 16 | length as u64 & 0xffff).to_ne_bytes()
}

/// Appends a record. Its key must not be longer than [`MAX_KEY`].
#[inline(always)]
pub fn append(records: &mut Vec<u8>, record: Record<'_>) {
    records.extend_from_slice(&header(record.tid, record.key.len()));
    records.extend_from_slice(record.key);
}

/// Returns the record at the start; `None` if it is incomplete.
#[inline(always)]
#[must_use]
pub fn first(bytes: &[u8]) -> Option<Record<'_>> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    let header = u64::from_ne_bytes(*header);
    let key = rest.get(..usize::from(header as u16))?;
    Some(Record { key, tid: Tid::new((header >> 32) as u32, (header >> 16) as u16) })
}

/// Iterates over consecutive records.
#[derive(Clone, Copy, Debug)]
pub struct Records<'r>(pub &'r [u8]);

impl<'r> Records<'r> {
    /// The bytes that are not read yet. After the iteration, an incomplete record.
    #[must_use]
    pub fn rest(&self) -> &'r [u8] {
        self.0
    }
}

impl<'r> Iterator for Records<'r> {
    type Item = Record<'r>;

    #[inline(always)]
    fn next(&mut self) -> Option<Record<'r>> {
        let record = first(self.0)?;
        self.0 = self.0.get(record.size()..).unwrap_or_default();
        Some(record)
    }
}

/// Returns eight bytes of a key from `depth` on as a number; bytes beyond its end count as zero.
#[inline(always)]
#[must_use]
pub fn window(key: &[u8], depth: usize) -> u64 {
    let rest = key.get(depth..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            rest.iter().zip([56, 48, 40, 32, 24, 16, 8]).fold(0, |sum, (byte, shift)| sum | u64::from(*byte) << shift)
        }
    }
}

/// Length of the common prefix of two keys, which is at least `least`.
pub(super) fn common(a: &[u8], b: &[u8], least: usize) -> usize {
    let (a, b) = (a.get(least..).unwrap_or_default(), b.get(least..).unwrap_or_default());
    let equal = |(a, b): &(&[u8; 8], &[u8; 8])| a == b;
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0).take_while(equal).count();
    let rest = |bytes: &[u8]| window(bytes, 8 * words);
    let different = (rest(a) ^ rest(b)).leading_zeros() as usize / 8;
    least + (8 * words + different).min(a.len()).min(b.len())
}
