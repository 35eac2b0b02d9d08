//! Sorted runs of keys in temporary files.
//!
//! A run is the number of its items, its length in bytes, and the units of their family ([`KeyFamily`]). A process that
//! opens a shared file searches it for the runs; a process that wrote its own file knows their positions.
//!
//! Entries that came in order are packed ([`pg_bulk_storage::btree::packed`]): a sequence of blocks, in memory while it
//! is small. In a file, a bit in the number of entries marks such a run.

use std::convert::Infallible;
use std::ffi::CString;
use std::rc::Rc;

use pg_bulk_storage::btree::entry::{Entry, Word, as_bytes_mut};
use pg_bulk_storage::btree::family::KeyFamily;
use pg_bulk_storage::btree::{merge, packed};

use crate::error::{Error, Result, out_of_memory};
use crate::server::buf_file::{BufFile, Place};
use crate::server::memory_context::MemoryContext;
use crate::server::shared_files::SharedFiles;

/// Written in place of the number of items if the keys could not be collected.
const GIVEN_UP: u64 = u64::MAX;
/// Bit in the number of entries of a packed run.
const PACKED: u64 = 1 << 62;
/// Bytes of a run that are read at once.
const LEAST_BLOCK: usize = 8 * 1024;
const MOST_BLOCK: usize = 64 * 1024;

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
    bytes: u64,
    is_packed: bool,
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

    /// Opens the runs that a process has exported under a name.
    ///
    /// None if the process could not collect its keys. Guarded; allocates in the current memory context.
    pub fn open(files: &SharedFiles, name: &CString) -> Result<Option<Runs>> {
        let mut runs = Runs::new(RunFileKind::Own);
        let Some(file) = files.open(name).map(Rc::new) else { return Ok(Some(runs)) };
        runs.file = Some(Rc::clone(&file));
        loop {
            let mut numbers = [[0; size_of::<u64>()]; 2];
            match file.read(numbers.as_flattened_mut()) {
                0 => return Ok(Some(runs)),
                len if len == size_of_val(&numbers) => (),
                _ => return Err(damaged()),
            }
            let [count, bytes] = numbers.map(u64::from_ne_bytes);
            if count == GIVEN_UP {
                runs.close();
                return Ok(None);
            }
            runs.list.push(Run { count: count & !PACKED, bytes, is_packed: count & PACKED != 0, place: file.place() });
            if !file.skip(bytes) {
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

    /// Adds a run of `count` items, `bytes` long. Guarded.
    pub fn write<F: KeyFamily>(
        &mut self,
        mut run: impl merge::Run<F, Error = Infallible>,
        count: usize,
        bytes: usize,
    ) -> Result<()> {
        self.begin(count as u64, bytes as u64, false)?;
        loop {
            pgrx::check_for_interrupts!();
            let Ok(()) = run.advance();
            if run.block().is_empty() {
                return Ok(());
            }
            self.append(F::as_bytes(run.block()));
        }
    }

    /// Notes that the keys could not be collected. Guarded.
    pub fn give_up(&mut self) -> Result<()> {
        self.begin(GIVEN_UP, 0, false)
    }

    /// Adds to the packed run in memory: `pack` appends entries to its bytes, and returns their number.
    pub fn pack(&mut self, pack: impl FnOnce(&mut Vec<u8>) -> Result<u64>) -> Result<u64> {
        let Some(memory) = Rc::get_mut(&mut self.memory) else { return Ok(0) };
        let count = pack(memory)?;
        self.in_memory += count;
        Ok(count)
    }

    /// Bytes of the run in memory.
    pub fn packed_size(&self) -> usize {
        self.memory.capacity()
    }

    /// Is any run packed?
    pub fn are_packed(&self) -> bool {
        self.in_memory > 0 || self.list.iter().any(|run| run.is_packed)
    }

    /// Writes the run in memory to the file, if there is one. Guarded.
    pub fn spill(&mut self) -> Result<()> {
        if self.in_memory > 0 {
            let (memory, count) = (std::mem::take(&mut self.memory), std::mem::take(&mut self.in_memory));
            self.begin(count, memory.len() as u64, true)?;
            self.append(&memory);
        }
        Ok(())
    }

    /// Drops the run in memory.
    pub fn forget(&mut self) {
        (self.memory, self.in_memory) = (Rc::default(), 0);
    }

    /// Writes the header of a run, and notes its position. Guarded.
    fn begin(&mut self, count: u64, bytes: u64, is_packed: bool) -> Result<()> {
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
        let numbers = [count | if is_packed { PACKED } else { 0 }, bytes];
        self.append(numbers.map(u64::to_ne_bytes).as_flattened());
        self.list.push(Run { count, bytes, is_packed, place: self.end });
        Ok(())
    }

    /// Writes more of the current run. Guarded.
    fn append(&mut self, bytes: &[u8]) {
        if let Some(file) = &self.file {
            file.write(bytes);
            self.end = file.place();
        }
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

    /// Makes readers of all runs, which can be read alternately, `block` bytes at once.
    fn readers<F: KeyFamily>(&self, block: usize) -> impl Iterator<Item = RunReader<F>> {
        let (count, bytes) = (self.in_memory, self.memory.len() as u64);
        let memory = Run { count, bytes, is_packed: true, place: Place::default() };
        let memory = (count > 0).then_some((memory, Some(&self.memory)));
        let runs = self.list.iter().map(|run| (*run, None)).chain(memory);
        runs.map(move |(run, memory)| self.reader(run, memory, block))
    }

    fn reader<F: KeyFamily>(&self, run: Run, memory: Option<&Rc<Vec<u8>>>, block: usize) -> RunReader<F> {
        let (file, memory, most) = (self.file.clone(), memory.map(Rc::clone), (block / size_of::<F>()).max(1));
        RunReader { file, run, memory, read: 0, most, block: Vec::new(), complete: 0, bytes: Vec::new() }
    }

    /// The first keys of all runs. Guarded.
    pub fn first_keys<W: Word>(&self) -> Result<Vec<W>> {
        let mut keys = Vec::with_capacity(self.list.len() + 1);
        for run in self.list.iter().filter(|run| run.count > 0) {
            if !run.is_packed {
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
    pub fn between<W: Word>(&self, from: Option<W>, to: Option<W>, block: usize) -> Result<Vec<RunReader<Entry<W>>>> {
        let reader = |run: &Run| {
            let start = from.map_or(Ok(0), |key| self.place_of(run, key))?;
            let end = to.map_or(Ok(run.count), |key| self.place_of(run, key))?;
            let count = end.saturating_sub(start);
            let bytes = count.saturating_mul(size_of::<Entry<W>>() as u64);
            let run = Run { count, bytes, ..self.behind::<W>(run, if count > 0 { start } else { 0 })? };
            Ok(self.reader(run, None, block))
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
        if run.is_packed {
            return Err(damaged());
        }
        let bytes = number.checked_mul(size_of::<Entry<W>>() as u64).ok_or_else(damaged)?;
        let file = self.file.as_ref().filter(|file| file.go_to(run.place) && file.skip(bytes)).ok_or_else(damaged)?;
        Ok(Run { place: file.place(), ..*run })
    }
}

/// Bytes of each of these runs to read at once, within `memory` bytes.
pub fn block_size<'r>(runs: impl Iterator<Item = &'r Runs>, memory: usize) -> usize {
    let count: usize = runs.map(|runs| runs.list.len()).sum();
    (memory / count.max(1)).clamp(LEAST_BLOCK, MOST_BLOCK)
}

/// Makes readers of all these runs, within `memory` bytes.
pub fn readers<'r, F: KeyFamily>(runs: impl Iterator<Item = &'r Runs> + Clone, memory: usize) -> Vec<RunReader<F>> {
    let block = block_size(runs.clone(), memory);
    runs.flat_map(|runs| runs.readers(block)).collect()
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
pub struct RunReader<F: KeyFamily> {
    file: Option<Rc<BufFile>>,
    run: Run,
    /// The run, if it is packed and in memory.
    memory: Option<Rc<Vec<u8>>>,
    /// Bytes that were read.
    read: u64,
    /// Units that are read at once.
    most: usize,
    /// Complete items, and the beginning of another one.
    block: Vec<F>,
    complete: usize,
    /// A packed block.
    bytes: Vec<u8>,
}

/// Most bytes of a packed block: half the size of its entries.
const MOST_PACKED: usize = packed::MOST * size_of::<Entry<u128>>() / 2;

impl<F: KeyFamily> RunReader<F> {
    /// Unpacks the next block.
    fn advance_packed(&mut self) -> Result<()> {
        let size;
        let is_block = if let Some(memory) = &self.memory {
            let rest = usize::try_from(self.read).ok().and_then(|read| memory.get(read..)).unwrap_or_default();
            size = packed::size_of_block(*rest.first_chunk().ok_or_else(damaged)?);
            F::unpack(rest.get(..size).ok_or_else(damaged)?, &mut self.block)
        } else {
            let mut start = [0; packed::START];
            self.run.read(self.file.as_deref(), &mut start)?;
            size = packed::size_of_block(start);
            let more = size.checked_sub(start.len()).filter(|_| size <= MOST_PACKED).ok_or_else(damaged)?;
            self.bytes.clear();
            self.bytes.try_reserve(size).map_err(|_| out_of_memory())?;
            self.bytes.extend_from_slice(&start);
            self.bytes.resize(size, 0);
            let rest = self.bytes.get_mut(size - more..).unwrap_or_default();
            self.run.read(self.file.as_deref(), rest)?;
            F::unpack(&self.bytes, &mut self.block)
        };
        if !is_block.map_err(|_| out_of_memory())? {
            return Err(damaged());
        }
        self.complete = self.block.len();
        self.read += size as u64;
        if self.read <= self.run.bytes { Ok(()) } else { Err(damaged()) }
    }
}

impl<F: KeyFamily> merge::Run<F> for RunReader<F> {
    type Error = Error;

    fn block(&self) -> &[F] {
        self.block.get(..self.complete).unwrap_or_default()
    }

    fn advance(&mut self) -> Result<()> {
        pgrx::check_for_interrupts!();
        self.block.copy_within(self.complete.., 0);
        let mut begun = self.block.len() - std::mem::take(&mut self.complete);
        while self.complete == 0 {
            let left = self.run.bytes.saturating_sub(self.read);
            if left == 0 && begun == 0 {
                self.block.clear();
                return Ok(());
            }
            if self.run.is_packed {
                return self.advance_packed();
            }
            let units = usize::try_from(left / size_of::<F>() as u64).unwrap_or(usize::MAX).min(self.most);
            if units == 0 {
                return Err(damaged());
            }
            self.block.resize(begun + units, F::default());
            let bytes = F::as_bytes_mut(self.block.get_mut(begun..).unwrap_or_default());
            self.run.read(self.file.as_deref(), bytes)?;
            self.read += bytes.len() as u64;
            begun = self.block.len();
            self.complete = F::complete(&self.block);
        }
        Ok(())
    }
}
