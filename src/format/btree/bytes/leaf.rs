//! The entries of a leaf page of an index that exists, as records.

use std::cell::RefCell;

use super::record::{Record, append};
use super::shape::{ByteShape, Value};
use crate::btree::MAX_KEYS;
use crate::btree::leaf::{Leaf, LeafError};

impl Leaf<'_> {
    /// Appends the page's entries, those of items that are marked as dead too, and returns how many there are.
    ///
    /// # Errors
    /// The first item that is none, or whose key is none of this shape: a value that is compressed, say.
    pub fn records(&self, shape: &ByteShape, records: &mut Vec<u8>) -> Result<u64, LeafError> {
        let (key, mut count) = (RefCell::new(Vec::new()), 0);
        let read = |tuple| {
            let (mut values, mut key) = ([Value::Null; MAX_KEYS], key.borrow_mut());
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
