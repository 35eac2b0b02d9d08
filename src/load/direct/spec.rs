//! The description of a load for its workers, as bytes in shared memory.
//!
//! A worker makes the same rows from the same input: it gets the user's options and parses them again. The spec adds
//! facts from the leader: the client's encoding, the columns that a header named, the analyzed condition, the relations
//! that are new in this transaction, the sequences.

use std::ffi::{CString, c_char};

use pgrx::pg_sys;

use super::index_keys::Planned;
use super::join;
use crate::pg::append::Traits;
use crate::pg::sequence::Parameters;
use crate::program::Text;

/// Description of a load.
#[derive(Debug, Clone)]
pub struct Spec {
    pub relation: pg_sys::Oid,
    pub command: pg_sys::CommandId,
    pub frozen: bool,
    /// A dry run: nothing is written.
    pub is_dry: bool,
    /// Rows can be traced to their records.
    pub traces: bool,
    pub path: CString,
    /// The list of files, serialized; empty for a single file.
    pub files: Vec<u8>,
    /// The options: a jsonb with its header; empty if they are a foreign table's.
    pub options: Vec<u8>,
    pub foreign: Option<pg_sys::Oid>,
    /// The load executes a COPY.
    pub is_copy: bool,
    /// Encoding of the file.
    pub encoding: i32,
    /// The fields' attribute numbers (0 for a field without attribute) and names.
    pub fields: Vec<(i16, CString)>,
    /// The function that takes the fields as arguments.
    pub function: Option<pg_sys::Oid>,
    /// The columns that the statement gives values to.
    pub inserted: Vec<i16>,
    /// The condition in nodeToString's format.
    pub condition: Option<CString>,
    /// The projection of rows, if they are not stored unchanged.
    pub projection: Option<Text>,
    /// The plan that rows of the file go through, if they are joined.
    pub join: Option<join::Text>,
    /// The relations that rows may go to.
    pub traits: Vec<(pg_sys::Oid, Traits)>,
    pub sequences: Vec<Parameters>,
    /// Indexes whose keys are collected, with their relations.
    pub keys: Vec<Planned>,
    /// Bytes for the keys of each index.
    pub key_memory: usize,
    /// Bytes for each index whose index tuples are sorted.
    pub key_sort_memory: usize,
    /// Keys in order are packed.
    pub key_packs: bool,
    /// Handle of the shared files for key runs; 0 without shared files.
    pub key_files: u32,
    /// Handle of the shared sorts of index tuples, and the most participants of each sort.
    pub key_sorts: u32,
    pub key_participants: usize,
    /// Workers of earlier files, which have left keys there, too.
    pub earlier_workers: usize,
}

#[derive(Default)]
struct SpecWriter(Vec<u8>);

impl SpecWriter {
    fn number(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_ne_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

struct SpecReader<'a>(&'a [u8]);

impl<'a> SpecReader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.number()?;
        self.take(usize::try_from(len).ok()?)
    }

    fn string(&mut self) -> Option<CString> {
        CString::new(self.bytes()?).ok()
    }

    fn list<T>(&mut self, mut element: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        (0..count).map(|_| element(self)).collect()
    }
}

fn traits_to_number(t: Traits) -> u64 {
    [t.shared, t.existed, t.needs_wal, t.logical, t.temporary]
        .iter()
        .enumerate()
        .map(|(bit, &is)| u64::from(is) << bit)
        .sum()
}

fn traits_from_number(n: u64) -> Traits {
    let is = |bit: u32| n >> bit & 1 != 0;
    Traits { shared: is(0), existed: is(1), needs_wal: is(2), logical: is(3), temporary: is(4) }
}

impl Spec {
    pub fn write(&self) -> Vec<u8> {
        let mut w = SpecWriter::default();
        w.number(u64::from(self.relation.to_u32()));
        w.number(u64::from(self.command));
        w.number(u64::from(self.frozen));
        w.number(u64::from(self.is_dry));
        w.number(u64::from(self.traces));
        w.bytes(self.path.as_bytes());
        w.bytes(&self.files);
        w.bytes(&self.options);
        w.number(self.foreign.map_or(0, |relid| u64::from(relid.to_u32())));
        w.number(u64::from(self.is_copy));
        w.number(u64::from(self.encoding.cast_unsigned()));
        w.number(self.fields.len() as u64);
        for (attnum, name) in &self.fields {
            w.number(u64::from(attnum.cast_unsigned()));
            w.bytes(name.as_bytes());
        }
        w.number(self.function.map_or(0, |function| u64::from(function.to_u32())));
        w.number(self.inserted.len() as u64);
        self.inserted.iter().for_each(|attnum| w.number(u64::from(attnum.cast_unsigned())));
        w.number(u64::from(self.condition.is_some()));
        w.bytes(self.condition.as_ref().map_or(b"", |c| c.as_bytes()));
        w.number(u64::from(self.projection.is_some()));
        if let Some(Text { targets, quals, row, filters }) = &self.projection {
            w.bytes(targets.as_bytes());
            w.bytes(quals.as_bytes());
            w.bytes(row.as_bytes());
            w.number(u64::from(*filters));
        }
        w.number(u64::from(self.join.is_some()));
        if let Some(join::Text { statement, parameters, sets, instrument, nodes }) = &self.join {
            w.bytes(statement.as_bytes());
            w.bytes(parameters);
            w.number(sets.len() as u64);
            sets.iter().for_each(|attnum| w.number(u64::from(attnum.cast_unsigned())));
            w.number(u64::from(instrument.cast_unsigned()));
            w.number(*nodes as u64);
        }
        w.number(self.traits.len() as u64);
        for (relation, traits) in &self.traits {
            w.number(u64::from(relation.to_u32()));
            w.number(traits_to_number(*traits));
        }
        w.number(self.sequences.len() as u64);
        for parameters in &self.sequences {
            // SAFETY: plain data without references; padding is never read.
            let bytes = unsafe {
                std::slice::from_raw_parts(std::ptr::from_ref(parameters).cast::<u8>(), size_of::<Parameters>())
            };
            w.bytes(bytes);
        }
        w.number(self.keys.len() as u64);
        for planned in &self.keys {
            w.number(planned.relation as u64);
            w.number(u64::from(planned.index.to_u32()));
            w.number(planned.sort.map_or(0, |sort| sort as u64 + 1));
        }
        w.number(self.key_memory as u64);
        w.number(self.key_sort_memory as u64);
        w.number(u64::from(self.key_packs));
        w.number(u64::from(self.key_files));
        w.number(u64::from(self.key_sorts));
        w.number(self.key_participants as u64);
        w.number(self.earlier_workers as u64);
        w.0
    }

    /// Reads the bytes of [`Spec::write`]; `None` if they are damaged.
    pub fn read(bytes: &[u8]) -> Option<Spec> {
        let mut r = SpecReader(bytes);
        let oid = |n: u64| u32::try_from(n).ok().map(pg_sys::Oid::from_u32);
        let relation = oid(r.number()?)?;
        let command = u32::try_from(r.number()?).ok()?;
        let frozen = r.number()? != 0;
        let is_dry = r.number()? != 0;
        let traces = r.number()? != 0;
        let path = r.string()?;
        let files = r.bytes()?.to_vec();
        let options = r.bytes()?.to_vec();
        let foreign = Some(oid(r.number()?)?).filter(|relid| *relid != pg_sys::InvalidOid);
        let is_copy = r.number()? != 0;
        let encoding = u32::try_from(r.number()?).ok()?.cast_signed();
        let fields = r.list(|r| Some((u16::try_from(r.number()?).ok()?.cast_signed(), r.string()?)))?;
        let function = Some(oid(r.number()?)?).filter(|function| *function != pg_sys::InvalidOid);
        let inserted = r.list(|r| Some(u16::try_from(r.number()?).ok()?.cast_signed()))?;
        let has_condition = r.number()? != 0;
        let condition = r.string()?;
        let projects = r.number()? != 0;
        let projection = if projects {
            let (targets, quals, row) = (r.string()?, r.string()?, r.string()?);
            Some(Text { targets, quals, row, filters: r.number()? != 0 })
        } else {
            None
        };
        let join = if r.number()? != 0 {
            let (statement, parameters) = (r.string()?, r.bytes()?.to_vec());
            let sets = r.list(|r| Some(u16::try_from(r.number()?).ok()?.cast_signed()))?;
            let instrument = u32::try_from(r.number()?).ok()?.cast_signed();
            let nodes = usize::try_from(r.number()?).ok()?;
            Some(join::Text { statement, parameters, sets, instrument, nodes })
        } else {
            None
        };
        let traits = r.list(|r| Some((oid(r.number()?)?, traits_from_number(r.number()?))))?;
        let sequences = r.list(|r| {
            let bytes = r.bytes()?;
            // SAFETY: the bytes are as long as the struct, and of a process of the same build.
            (bytes.len() == size_of::<Parameters>())
                .then(|| unsafe { bytes.as_ptr().cast::<Parameters>().read_unaligned() })
        })?;
        let condition = has_condition.then_some(condition);
        let keys = r.list(|r| {
            let (relation, index) = (usize::try_from(r.number()?).ok()?, oid(r.number()?)?);
            Some(Planned { relation, index, sort: usize::try_from(r.number()?).ok()?.checked_sub(1) })
        })?;
        let key_memory = usize::try_from(r.number()?).ok()?;
        let key_sort_memory = usize::try_from(r.number()?).ok()?;
        let key_packs = r.number()? != 0;
        let key_files = u32::try_from(r.number()?).ok()?;
        let key_sorts = u32::try_from(r.number()?).ok()?;
        let key_participants = usize::try_from(r.number()?).ok()?;
        let earlier_workers = usize::try_from(r.number()?).ok()?;
        Some(Spec {
            relation,
            command,
            frozen,
            is_dry,
            traces,
            path,
            files,
            options,
            foreign,
            is_copy,
            encoding,
            fields,
            function,
            inserted,
            condition,
            projection,
            join,
            traits,
            sequences,
            keys,
            key_memory,
            key_sort_memory,
            key_packs,
            key_files,
            key_sorts,
            key_participants,
            earlier_workers,
        })
    }
}

/// Reads the condition's nodes. Guarded; allocates in the current memory context.
pub fn condition_node(condition: Option<&CString>) -> *mut pg_sys::Node {
    match condition {
        // SAFETY: a guarded call with what nodeToString wrote.
        Some(text) => unsafe { pg_sys::stringToNode(text.as_ptr().cast::<c_char>()).cast() },
        None => std::ptr::null_mut(),
    }
}
