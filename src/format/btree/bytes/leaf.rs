//! Reads the entries of a leaf page of an existing index as records.

use std::cell::RefCell;

use super::record::{Record, append};
use super::shape::{ByteShape, StoredValue};
use crate::btree::MAX_KEYS;
use crate::btree::leaf::{Leaf, LeafError};

impl Leaf<'_> {
    /// Appends the page's entries, including those whose items are marked as dead, and returns their number.
    ///
    /// # Errors
    /// The first invalid item, or the first one whose key is not of this shape: a compressed value, for example.
    pub fn records(&self, shape: &ByteShape, records: &mut Vec<u8>) -> Result<u64, LeafError> {
        let (key, mut count) = (RefCell::new(Vec::new()), 0);
        let read = |tuple| {
            let (mut values, mut key) = ([StoredValue::Null; MAX_KEYS], key.borrow_mut());
            key.clear();
            let fits = shape.read_tuple(tuple, &mut values)
                && shape.encode(values.get(..shape.len()).unwrap_or_default(), &mut key);
            fits.then_some(())
        };
        self.each(read, |(), tid, _| {
            append(records, Record { key: &key.borrow(), tid });
            count += 1;
        })?;
        Ok(count)
    }
}
