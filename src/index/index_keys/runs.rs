//! Sorted runs of entries in temporary files.
//!
//! A run is the number of its entries, then the entries. A process that opens a shared file searches it for the runs; a
//! process that wrote its own file knows their positions.
//!
//! Entries that came in order are packed ([`pg_bulk_storage::btree::packed`]): a sequence of blocks, in memory while it
//! is small. In a file, such a run is the number of its entries with a bit that marks it as packed, its length in
//! bytes, and the bytes.
//!
//! Keys that are strings of bytes have different sizes. Their run is its length in bytes, the number of records, then
//! the records.

use std::ffi::CString;
use std::rc::Rc;

use pg_bulk_storage::btree::bytes::record::Records;
use pg_bulk_storage::btree::bytes::store::StoreRun;
use pg_bulk_storage::btree::entry::{Entry, Word, as_bytes_mut};
use pg_bulk_storage::btree::merge::Run as _;
use pg_bulk_storage::btree::{merge, packed};

use crate::error::{Error, Result, out_of_memory};
use crate::server::buf_file::{BufFile, Place};
use crate::server::memory_context::MemoryContext;
use crate::server::shared_files::SharedFiles;

/// Written in place of the number of entries if the keys could not be collected.
pub const GIVEN_UP: u64 = u64::MAX;
/// Bit in the number of entries of a packed run.
const PACKED: u64 = 1 << 62;
/// Length of the number of records at the beginning of a run of records, in bytes.
const COUNT: usize = size_of::<u64>();

/// Kind of the file of runs.
#[derive(Debug)]
pub enum RunFileKind {
    /// Only this process reads the file.
    Own,
    /// The leader reads the file.
    Shared(SharedFiles, CString),
}

/// Position of a run.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    pub count: u64,
    /// Length of its entries in bytes, if they are packed.
    packed: Option<u64>,
    place: Place,
}

/// Runs in a file.
#[derive(Debug)]
pub struct Runs {
    place: RunFileKind,
    /// Memory context for the open file.
    context: MemoryContext,
    /// None until there is a run.
    file: Option<Rc<BufFile>>,
    pub list: Vec<Run>,
    /// Position of the next run.
    end: Place,
    /// The packed run in memory, and the number of its entries.
    memory: Rc<Vec<u8>>,
    in_memory: u64,
}

impl Runs {
    /// No runs so far. The open file's memory will be in the current memory context.
    pub fn new(place: RunFileKind) -> Runs {
        let (context, memory) = (MemoryContext::current(), Rc::default());
        Runs { place, context, file: None, list: Vec::new(), end: Place::default(), memory, in_memory: 0 }
    }

    /// Opens the runs that a process has exported under a name, with entries of `size` bytes.
    ///
    /// None if the process could not collect its keys. Guarded; allocates in the current memory context.
    pub fn open(files: &SharedFiles, name: &CString, size: usize) -> Result<Option<Runs>> {
        let mut runs = Runs::new(RunFileKind::Own);
        let Some(file) = files.open(name).map(Rc::new) else { return Ok(Some(runs)) };
        runs.file = Some(Rc::clone(&file));
        loop {
            let mut count = [0; size_of::<u64>()];
            match file.read(&mut count) {
                0 => return Ok(Some(runs)),
                len if len == count.len() => (),
                _ => return Err(damaged()),
            }
            let count = u64::from_ne_bytes(count);
            if count == GIVEN_UP {
                runs.close();
                return Ok(None);
            }
            let mut packed = [0; size_of::<u64>()];
            if count & PACKED != 0 && !file.fill(&mut packed) {
                return Err(damaged());
            }
            let packed = (count & PACKED != 0).then_some(u64::from_ne_bytes(packed));
            runs.list.push(Run { count: count & !PACKED, packed, place: file.place() });
            let bytes = packed.or_else(|| count.checked_mul(size as u64));
            if !bytes.is_some_and(|bytes| file.skip(bytes)) {
                return Err(damaged());
            }
        }
    }

    /// Makes later runs readable for other processes after an export. False if a run that they cannot read exists
    /// already.
    pub fn share(&mut self, files: SharedFiles, name: CString) -> bool {
        let may = self.file.is_none() && self.list.is_empty();
        if may {
            self.place = RunFileKind::Shared(files, name);
        }
        may
    }

    /// Can other processes read the runs after an export?
    pub fn are_shared(&self) -> bool {
        matches!(self.place, RunFileKind::Shared(..))
    }

    /// Adds a run. Guarded.
    pub fn write(&mut self, entries: &[u8], count: u64) -> Result<()> {
        self.begin(count, None)?;
        self.append(entries);
        Ok(())
    }

    /// Adds entries to the packed run in memory, after all that it contains. False if packing does not make them
    /// smaller.
    pub fn pack<W: Word>(&mut self, entries: &[Entry<W>]) -> Result<bool> {
        let Some(memory) = Rc::get_mut(&mut self.memory) else { return Ok(false) };
        let packed = packed::pack(entries, memory).map_err(|_| out_of_memory())?;
        if packed {
            self.in_memory += entries.len() as u64;
        }
        Ok(packed)
    }

    /// Bytes of the run in memory.
    pub fn packed_size(&self) -> usize {
        self.memory.capacity()
    }

    /// Is any run packed?
    pub fn are_packed(&self) -> bool {
        self.in_memory > 0 || self.list.iter().any(|run| run.packed.is_some())
    }

    /// Writes the run in memory to the file, if there is one. Guarded.
    pub fn spill(&mut self) -> Result<()> {
        if self.in_memory > 0 {
            let (memory, count) = (std::mem::take(&mut self.memory), std::mem::take(&mut self.in_memory));
            self.begin(count, Some(memory.len() as u64))?;
            self.append(&memory);
        }
        Ok(())
    }

    /// Drops the run in memory.
    pub fn forget(&mut self) {
        (self.memory, self.in_memory) = (Rc::default(), 0);
    }

    /// Adds a run of records. Guarded.
    pub fn write_records(&mut self, mut records: StoreRun<'_>, count: usize, bytes: usize) -> Result<()> {
        self.begin((bytes + COUNT) as u64, None)?;
        self.append(&(count as u64).to_ne_bytes());
        loop {
            pgrx::check_for_interrupts!();
            let Ok(()) = records.advance();
            if records.block().is_empty() {
                return Ok(());
            }
            self.append(records.block());
        }
    }

    /// Writes the header of a run: the number of its entries, and its bytes if it is packed. Notes its position.
    /// Guarded.
    fn begin(&mut self, count: u64, packed: Option<u64>) -> Result<()> {
        let numbers = [count | if packed.is_some() { PACKED } else { 0 }, packed.unwrap_or_default()];
        let numbers = numbers.map(u64::to_ne_bytes);
        let size = if packed.is_some() { 2 } else { 1 };
        // The file position may have changed, if runs were read.
        if self.file.as_ref().is_some_and(|file| !file.go_to(self.end)) {
            return Err(damaged());
        }
        if self.file.is_none() {
            self.file = match &self.place {
                RunFileKind::Own => Some(BufFile::temporary(self.context)),
                RunFileKind::Shared(files, name) => {
                    let _entered = self.context.enter();
                    files.make(name)
                }
            }
            .map(Rc::new);
        }
        self.append(numbers.as_flattened().get(..size * size_of::<u64>()).unwrap_or_default());
        self.list.push(Run { count, packed, place: self.end });
        Ok(())
    }

    /// Writes more of the current run. Guarded.
    fn append(&mut self, bytes: &[u8]) {
        if let Some(file) = &self.file {
            file.write(bytes);
            self.end = file.place();
        }
    }

    /// The number of records in runs of records. Guarded.
    pub fn records(&self) -> Result<u64> {
        let count = |run: &Run| {
            let mut count = [0; COUNT];
            let mut run = *run;
            run.read(self.file.as_deref(), &mut count)?;
            Ok(u64::from_ne_bytes(count))
        };
        self.list.iter().map(count).sum()
    }

    /// Exports the runs to the leader. Guarded.
    pub fn export(&mut self) {
        debug_assert!(self.in_memory == 0, "sorted keys in memory are not in the file");
        if let Some(file) = self.file.take() {
            file.export();
        }
    }

    /// Closes the file. Guarded.
    pub fn close(&mut self) {
        if let Some(file) = self.file.take() {
            file.close();
        }
        self.forget();
    }

    /// Makes readers of all runs, which can be read alternately, `most` entries at once.
    pub fn readers<W: Word>(&self, most: usize) -> impl Iterator<Item = RunReader<W>> {
        let memory = Run { count: self.in_memory, packed: Some(self.memory.len() as u64), place: Place::default() };
        let memory = (self.in_memory > 0).then_some((memory, Some(&self.memory)));
        let runs = self.list.iter().map(|run| (*run, None)).chain(memory);
        runs.map(move |(run, memory)| self.reader(run, memory, most))
    }

    fn reader<W: Word>(&self, run: Run, memory: Option<&Rc<Vec<u8>>>, most: usize) -> RunReader<W> {
        let memory = memory.map(Rc::clone);
        RunReader { file: self.file.clone(), run, memory, at: 0, read: 0, most, block: Vec::new(), bytes: Vec::new() }
    }

    /// The first keys of all runs. Guarded.
    pub fn first_keys<W: Word>(&self) -> Result<Vec<W>> {
        let mut keys = Vec::with_capacity(self.list.len() + 1);
        for run in self.list.iter().filter(|run| run.count > 0) {
            if run.packed.is_none() {
                keys.push(self.key(run, 0)?);
                continue;
            }
            let mut start = [0; packed::FIRST_KEY_END];
            let mut place = *run;
            place.read(self.file.as_deref(), &mut start)?;
            keys.push(packed::first_key(&start).ok_or_else(damaged)?);
        }
        if self.in_memory > 0 {
            keys.push(packed::first_key(&self.memory).ok_or_else(damaged)?);
        }
        Ok(keys)
    }

    /// Makes readers of the entries with keys from `from` on and before `to`. Guarded.
    pub fn between<W: Word>(&self, from: Option<W>, to: Option<W>, most: usize) -> Result<Vec<RunReader<W>>> {
        let reader = |run: &Run| {
            let start = from.map_or(Ok(0), |key| self.place_of(run, key))?;
            let end = to.map_or(Ok(run.count), |key| self.place_of(run, key))?;
            let count = end.saturating_sub(start);
            let run = Run { count, ..self.behind::<W>(run, if count > 0 { start } else { 0 })? };
            Ok(self.reader(run, None, most))
        };
        self.list.iter().map(reader).collect()
    }

    /// The key of the entry with this number in a run. Guarded.
    pub fn key<W: Word>(&self, run: &Run, number: u64) -> Result<W> {
        let mut entry = [Entry::<W>::default()];
        self.behind::<W>(run, number)?.read(self.file.as_deref(), as_bytes_mut(&mut entry))?;
        Ok(entry[0].key())
    }

    /// The number of entries of a run whose keys are less than this one. Guarded.
    fn place_of<W: Word>(&self, run: &Run, key: W) -> Result<u64> {
        let (mut from, mut to) = (0, run.count);
        while from < to {
            let middle = from + (to - from) / 2;
            if self.key::<W>(run, middle)? < key { from = middle + 1 } else { to = middle }
        }
        Ok(from)
    }

    /// The position of an entry in a run that is not packed. Guarded.
    fn behind<W: Word>(&self, run: &Run, number: u64) -> Result<Run> {
        if run.packed.is_some() {
            return Err(damaged());
        }
        let bytes = number.checked_mul(size_of::<Entry<W>>() as u64).ok_or_else(damaged)?;
        let file = self.file.as_ref().filter(|file| file.go_to(run.place) && file.skip(bytes)).ok_or_else(damaged)?;
        Ok(Run { place: file.place(), ..*run })
    }

    /// Makes readers of runs of records, `size` bytes at once.
    pub fn record_readers(&self, size: usize) -> impl Iterator<Item = RecordReader> {
        let reader = move |run: &Run| RecordReader {
            file: self.file.clone(),
            run: *run,
            read: 0,
            size,
            block: Vec::new(),
            whole: 0,
        };
        self.list.iter().map(reader)
    }
}

impl Run {
    /// Reads its next bytes, and advances its position. Other runs are read in between. Guarded.
    fn read(&mut self, file: Option<&BufFile>, bytes: &mut [u8]) -> Result<()> {
        let file = file.filter(|file| file.go_to(self.place) && file.fill(bytes)).ok_or_else(damaged)?;
        self.place = file.place();
        Ok(())
    }
}

fn damaged() -> Error {
    let message = "could not read from temporary file: its runs are not as they were written";
    Error::new(pgrx::PgSqlErrorCode::ERRCODE_DATA_CORRUPTED, message)
}

/// A reader of a run. Guarded.
#[derive(Debug)]
pub struct RunReader<W: Word> {
    file: Option<Rc<BufFile>>,
    run: Run,
    /// A packed run in memory, and the number of its bytes that were read.
    memory: Option<Rc<Vec<u8>>>,
    at: usize,
    read: u64,
    most: usize,
    block: Vec<Entry<W>>,
    /// A packed block.
    bytes: Vec<u8>,
}

impl<W: Word> RunReader<W> {
    /// Unpacks the next block.
    fn advance_packed(&mut self) -> Result<()> {
        if self.read == self.run.count {
            self.block.clear();
            return Ok(());
        }
        let is_block = if let Some(memory) = &self.memory {
            let rest = memory.get(self.at..).unwrap_or_default();
            let size = packed::size_of_block(*rest.first_chunk().ok_or_else(damaged)?);
            self.at += size;
            packed::unpack(rest.get(..size).ok_or_else(damaged)?, &mut self.block)
        } else {
            let mut start = [0; packed::START];
            self.run.read(self.file.as_deref(), &mut start)?;
            let size = packed::size_of_block(start);
            let more = size.checked_sub(start.len()).filter(|_| size <= MOST_PACKED).ok_or_else(damaged)?;
            self.bytes.clear();
            self.bytes.try_reserve(size).map_err(|_| out_of_memory())?;
            self.bytes.extend_from_slice(&start);
            self.bytes.resize(size, 0);
            let rest = self.bytes.get_mut(size - more..).unwrap_or_default();
            self.run.read(self.file.as_deref(), rest)?;
            packed::unpack(&self.bytes, &mut self.block)
        };
        if !is_block.map_err(|_| out_of_memory())? {
            return Err(damaged());
        }
        self.read += self.block.len() as u64;
        if self.read <= self.run.count { Ok(()) } else { Err(damaged()) }
    }
}

/// Most bytes of a packed block: half the size of its entries.
const MOST_PACKED: usize = packed::MOST * size_of::<Entry<u128>>() / 2;

impl<W: Word> merge::Run<Entry<W>> for RunReader<W> {
    type Error = Error;

    fn block(&self) -> &[Entry<W>] {
        &self.block
    }

    fn advance(&mut self) -> Result<()> {
        pgrx::check_for_interrupts!();
        if self.run.packed.is_some() {
            return self.advance_packed();
        }
        let left = usize::try_from(self.run.count - self.read).unwrap_or(usize::MAX);
        self.block.resize(left.min(self.most), Entry::default());
        let bytes = as_bytes_mut(&mut self.block);
        if bytes.is_empty() {
            return Ok(());
        }
        self.run.read(self.file.as_deref(), bytes)?;
        self.read += self.block.len() as u64;
        Ok(())
    }
}

/// A reader of a run of records. Guarded.
#[derive(Debug)]
pub struct RecordReader {
    file: Option<Rc<BufFile>>,
    run: Run,
    read: u64,
    /// Bytes that are read at once.
    size: usize,
    /// Complete records, and the beginning of another one.
    block: Vec<u8>,
    whole: usize,
}

impl merge::Run<u8> for RecordReader {
    type Error = Error;

    fn block(&self) -> &[u8] {
        self.block.get(..self.whole).unwrap_or_default()
    }

    fn advance(&mut self) -> Result<()> {
        pgrx::check_for_interrupts!();
        if self.read == 0 {
            let mut count = [0; COUNT];
            self.run.read(self.file.as_deref(), &mut count)?;
            self.read = COUNT as u64;
        }
        self.block.drain(..self.whole);
        self.whole = 0;
        while self.whole == 0 {
            let begun = self.block.len();
            let left = usize::try_from(self.run.count.saturating_sub(self.read)).unwrap_or(usize::MAX);
            if left == 0 {
                return if begun == 0 { Ok(()) } else { Err(damaged()) };
            }
            self.block.resize(begun + left.min(self.size), 0);
            let bytes = self.block.get_mut(begun..).unwrap_or_default();
            self.run.read(self.file.as_deref(), bytes)?;
            self.read += bytes.len() as u64;
            self.whole = Records(&self.block).map(|record| record.size()).sum();
        }
        Ok(())
    }
}
