//! Builds the tree of sorted records.
//!
//! The tricky point is that tuples differ in size. A page may be full long before its fillfactor is reached, a posting
//! list holds fewer rows if its key is long, and a tuple may be too long for any page.

use std::cmp::Ordering;
use std::mem;

use super::record::Records;
use super::shape::{ByteShape, Scratch};
use crate::btree::build::{BuildFamily, Builder};
use crate::btree::sink::{BuildError, PageSink};

impl BuildFamily for u8 {
    fn add<S: PageSink>(builder: &mut Builder<Self>, records: &[u8], sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let (shape, tuples) = (&builder.shape, &mut builder.tuples);
        let high_key = |left: &[u8], right: &[u8]| shape.high_key(left, right);
        let (last, mut scratch) = (mem::take(&mut builder.last), Scratch::default());
        let (mut key, mut tid) = (last.as_slice(), builder.last_tid);
        let mut left = Records(records);
        for record in left.by_ref() {
            let order = if tuples.entries == 0 { Ordering::Less } else { key.cmp(record.key) };
            if tuples.entries > 0 && order.then(tid.cmp(&record.tid)) != Ordering::Less {
                return Err(BuildError::Order);
            }
            if order == Ordering::Less && tuples.entries > 0 && !shape.confirms(key, record.key) {
                return Err(BuildError::Collation);
            }
            (key, tid) = (record.key, record.tid);
            if order == Ordering::Equal && tuples.add_row(tid) {
                continue;
            }
            tuples.add(tid, |formed| shape.form(key, tid, &mut scratch, formed), high_key, sink)?;
        }
        if !left.rest().is_empty() {
            return Err(BuildError::Order);
        }
        (builder.last, builder.last_tid) = (key.to_vec(), tid);
        Ok(())
    }

    fn high_key(shape: &ByteShape, left: &[u8], right: &[u8]) -> Vec<u8> {
        shape.high_key(left, right)
    }
}
