//! Collects the keys of an index in one process.

use std::ops::{Deref, DerefMut};

use pg_bulk_storage::btree::bytes::read::ByteKeyReader;
use pg_bulk_storage::btree::bytes::store::Store;
use pg_bulk_storage::btree::collect::Entries;
use pg_bulk_storage::btree::entry::Entry;
use pg_bulk_storage::btree::key::Width;
use pg_bulk_storage::btree::read::KeyReader;
use pg_bulk_storage::tuple::Attribute;
use pgrx::pg_sys;

use super::collected::{Collected, Keys};
use super::runs::RunFileKind;
use super::sources::file_name;
use super::{IndexProperties, KeyForm, Planned};
use crate::error::Result;
use crate::index::shared_sorts::SharedSorts;
use crate::index::tuple_sort::TupleSort;
use crate::server::shared_files::SharedFiles;

/// Collects the keys of an index.
#[derive(Debug)]
pub struct Collector {
    pub index: pg_sys::Oid,
    pub form: CollectedForm,
}

/// The collected keys by form: integers, strings of bytes, or index tuples.
#[derive(Debug)]
pub enum CollectedForm {
    Narrow(Collected<Entry<u64>>),
    Wide(Collected<Entry<u128>>),
    Bytes(Collected<u8>),
    Tuples(TupleSort),
}

impl Deref for Collector {
    type Target = dyn Keys;

    fn deref(&self) -> &Self::Target {
        match &self.form {
            CollectedForm::Narrow(keys) => keys,
            CollectedForm::Wide(keys) => keys,
            CollectedForm::Bytes(keys) => keys,
            CollectedForm::Tuples(keys) => keys,
        }
    }
}

impl DerefMut for Collector {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match &mut self.form {
            CollectedForm::Narrow(keys) => keys,
            CollectedForm::Wide(keys) => keys,
            CollectedForm::Bytes(keys) => keys,
            CollectedForm::Tuples(keys) => keys,
        }
    }
}

impl Collector {
    /// Makes a collector for an index with keys of this shape, of a table with these attributes.
    ///
    /// `memory` is in bytes; `packs`: keys in order may be packed. A worker, which has a number, shares its files. None
    /// if the attributes do not fit the shape. Guarded; files are made in the current memory context.
    pub fn new(
        index: pg_sys::Oid,
        shape: &IndexProperties,
        attributes: &[Attribute],
        (memory, packs): (usize, bool),
        shared: Option<(SharedFiles, usize)>,
    ) -> Option<Collector> {
        let number = |&attribute: &usize| u16::try_from(attribute + 1).ok();
        let numbers: Vec<u16> = shape.attributes.iter().map(number).collect::<Option<_>>()?;
        let place = match shared {
            Some((files, worker)) => RunFileKind::Shared(files, file_name(index, worker)),
            None => RunFileKind::Own,
        };
        let form = match &shape.keys {
            KeyForm::Words(words) => {
                let reader = KeyReader::new(attributes, &numbers, words)?;
                match words.width() {
                    Width::Narrow => {
                        CollectedForm::Narrow(Collected::new(reader, memory, Entries::new(memory, packs), place))
                    }
                    Width::Wide => {
                        CollectedForm::Wide(Collected::new(reader, memory, Entries::new(memory, packs), place))
                    }
                }
            }
            KeyForm::Bytes(bytes) => {
                let reader = ByteKeyReader::new(attributes, &numbers, bytes)?;
                CollectedForm::Bytes(Collected::new(reader, memory, Store::new(memory), place))
            }
        };
        Some(Collector { index, form })
    }

    /// Does the collector hold the index open?
    pub fn holds_index(&self) -> bool {
        matches!(self.form, CollectedForm::Tuples(_))
    }

    /// Shares the index's sort with the workers, which collect its keys, too. Before the first key.
    pub fn share(&mut self, planned: &[Planned], sorts: SharedSorts) {
        if let CollectedForm::Tuples(keys) = &mut self.form
            && let Some(planned) = planned.iter().find(|planned| planned.index == self.index)
            && let Some(sort) = planned.sort.and_then(|number| sorts.get(number))
        {
            keys.share(sort);
        }
    }

    /// Can the collector take every key? Strings may be too long, and some floats have no integer form.
    pub fn has_all(&self) -> bool {
        match &self.form {
            CollectedForm::Narrow(keys) => keys.shape().has_all(),
            CollectedForm::Wide(keys) => keys.shape().has_all(),
            CollectedForm::Bytes(_) | CollectedForm::Tuples(_) => false,
        }
    }
}

impl Keys for TupleSort {
    fn add_pages(&mut self, pages: &[u8], first: u32) -> Result<()> {
        self.add_pages(pages, first);
        Ok(())
    }

    fn add_tuple(&mut self, tuple: &[u8], tid: pg_sys::ItemPointerData) -> Result<()> {
        self.add_tuple(tuple, tid);
        Ok(())
    }

    fn held(&self) -> usize {
        self.memory()
    }

    fn close(&mut self) {
        self.end();
    }

    fn sort(&mut self) -> Result<()> {
        if self.shared().is_some() {
            self.finish()
        } else {
            self.flush()
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<()> {
        self.finish();
        self.end();
        Ok(())
    }
}
