//! Keys that are strings of bytes, for the build of an index.

use pg_bulk_storage::btree::bytes::shape::{ByteShape, StoredValue};
use pg_bulk_storage::btree::bytes::store::{Store, StoreRun};
use pgrx::pg_sys;

use super::{BuildKeys, Value};
use crate::error::Result;
use crate::index::index_keys::byte_keys::ByteKeys;
use crate::index::index_keys::runs::{RecordReader, Runs};
use crate::server::shared_files::SharedFiles;

impl BuildKeys for ByteKeys {
    type Family = u8;
    type Memory<'s> = StoreRun<'s>;
    type File = RecordReader;

    fn shape(&self) -> &ByteShape {
        self.shape()
    }

    fn total(&self) -> Option<u64> {
        (!self.given_up).then_some(self.total)
    }

    fn runs(&self) -> &Runs {
        &self.runs
    }

    fn take_over(&mut self, files: &SharedFiles, worker: usize, index: pg_sys::Oid) -> Result<Option<Runs>> {
        self.take_over(files, worker, index)
    }

    fn sort(&mut self) -> Result<()> {
        self.sort()
    }

    fn memory(&self) -> StoreRun<'_> {
        self.store.run()
    }

    fn readers<'r>(&self, files: impl Iterator<Item = &'r Runs> + Clone) -> Vec<RecordReader> {
        let block = self.block(files.clone().map(|runs| runs.list.len()).sum());
        files.flat_map(|runs| runs.record_readers(block)).collect()
    }

    fn clear(&mut self) {
        self.store = Store::new(0);
    }

    fn decode(shape: &ByteShape, key: &[u8], take: &mut dyn FnMut(usize, Value<'_>)) {
        shape.decode(key, |column, value| match value {
            StoredValue::Null => take(column, Value::Null),
            StoredValue::Bytes(bytes) => take(column, Value::Bytes(bytes)),
        });
    }
}
