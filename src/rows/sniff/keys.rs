//! The columns of JSON: one for each key, in the order of their first occurrence.

use pg_bulk_text::json_object::{Object, ValueKind, is_blank, unescape};
use pg_bulk_text::json_text::Charset;
use pg_bulk_text::reader::Reader;

use super::Sniffer;
use super::evidence::Evidence;
use super::sample::{MOST_COLUMNS, place};
use crate::error::Result;
use crate::rows::objects::{encode, read};

/// The keys of the records that were read so far.
#[derive(Debug)]
pub(super) struct Keys {
    object: Object,
    charset: Charset,
    pub(super) names: Vec<Vec<u8>>,
    /// The key of each name in `object`.
    keys: Vec<Option<usize>>,
}

impl Keys {
    pub(super) fn new(charset: Charset) -> Keys {
        Keys { object: Object::new(&[], true, charset), charset, names: Vec::new(), keys: Vec::new() }
    }

    /// Read a record, and add its new keys. Guarded.
    fn read(&mut self, line: &[u8]) -> Result<()> {
        read(&mut self.object, line)?;
        let known = self.names.len();
        for key in self.object.other_keys(line, &mut encode) {
            // One more shows that a table cannot have them all.
            if self.names.len() <= MOST_COLUMNS && !self.names.contains(&key) {
                self.names.push(key);
            }
        }
        if self.names.len() > known {
            let names: Vec<&[u8]> = self.names.iter().map(Vec::as_slice).collect();
            self.object = Object::new(&names, names.len() <= MOST_COLUMNS, self.charset);
            self.keys = names.iter().map(|name| self.object.key(name)).collect();
            read(&mut self.object, line)?;
        }
        Ok(())
    }
}

impl Sniffer {
    /// Examine the members of a record. Guarded.
    pub(super) fn take_object(&mut self, reader: &Reader, file: usize) -> Result<()> {
        let Some(keys) = &mut self.keys else { return Ok(()) };
        let line = reader.raw_line().unwrap_or_default();
        if is_blank(line) {
            return Ok(());
        }
        let place = || place(reader, None);
        if let Err(error) = keys.read(line) {
            self.trial.unreadable.add(file, place, || format!("cannot be read: {}", error.message()));
            return Ok(());
        }
        let known = self.columns.len();
        self.width = keys.names.len();
        self.columns.resize_with(self.width.min(MOST_COLUMNS), Evidence::default);
        // Records before have no such keys.
        let has_rows = self.records > 0;
        self.columns.iter_mut().skip(known).filter(|_| has_rows).for_each(Evidence::take_null);
        self.records += 1;
        let mut text = Vec::new();
        for (evidence, key) in self.columns.iter_mut().zip(&keys.keys) {
            let (kind, raw) = key.map_or_else(Default::default, |key| keys.object.value(key, line));
            match kind {
                ValueKind::Missing | ValueKind::Null => evidence.take_null(),
                ValueKind::Bare | ValueKind::Object | ValueKind::Array => {
                    evidence.take(&mut self.validator, raw, file, place)?;
                }
                ValueKind::Text | ValueKind::Escaped => {
                    text.clear();
                    unescape(raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default(), &mut text, &mut encode);
                    evidence.take_string(&mut self.validator, &text, file, place)?;
                }
            }
        }
        Ok(())
    }
}
