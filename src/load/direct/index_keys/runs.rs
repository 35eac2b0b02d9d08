//! Sorted runs of entries in temporary files.
//!
//! A run is the number of its entries, and the entries. A file that was shared is searched for its runs by whoever opens
//! it; of a file of our own we know where they are.
//!
//! Entries that came in order are packed ([`pg_bulk_format::btree::packed`]): blocks of them, one behind the other, in memory as
//! long as they are few. In a file such a run is the number of its entries with a bit that says so, that of its bytes, and these.
//!
//! Keys that are bytes have sizes of their own. Their runs are so many bytes: the number of records, then the records.

use std::ffi::{CString, c_void};
use std::rc::Rc;

use pg_bulk_format::btree::bytes;
use pg_bulk_format::btree::bytes::merge::Run as _;
use pg_bulk_format::btree::bytes::record::Records;
use pg_bulk_format::btree::bytes::store::StoreRun;
use pg_bulk_format::btree::entry::{Entry, Word, as_bytes_mut};
use pg_bulk_format::btree::{merge, packed};
use pgrx::pg_sys;

use crate::error::{Error, Result, out_of_memory};
use crate::pg::shared_files::SharedFiles;

/// What stands for the number of entries if the keys could not be collected.
pub const GIVEN_UP: u64 = u64::MAX;
/// What is added to the number of entries that are packed.
const PACKED: u64 = 1 << 62;
/// What a run of records begins with: how many there are.
const COUNT: usize = size_of::<u64>();

/// Where the file of runs is made.
#[derive(Debug)]
pub enum Place {
    /// Nobody else reads it.
    Own,
    /// The leader reads it.
    Shared(SharedFiles, CString),
}

/// Where a run is.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    pub count: u64,
    /// What its entries take if they are packed.
    packed: Option<u64>,
    file: i32,
    offset: pg_sys::off_t,
}

/// Runs in a file.
#[derive(Debug)]
pub struct Runs {
    place: Place,
    /// For the file's own memory.
    context: pg_sys::MemoryContext,
    /// Null until there is a run.
    file: *mut pg_sys::BufFile,
    pub list: Vec<Run>,
    /// Where the next one begins.
    end: (i32, pg_sys::off_t),
    /// A run that is packed, in memory, and how many entries it has.
    memory: Rc<Vec<u8>>,
    in_memory: u64,
}

impl Runs {
    /// None yet. The file's memory will be of the current memory context.
    pub fn new(place: Place) -> Runs {
        // SAFETY: a variable of this process.
        let context = unsafe { pg_sys::CurrentMemoryContext };
        let (file, list, memory) = (std::ptr::null_mut(), Vec::new(), Rc::default());
        Runs { place, context, file, list, end: (0, 0), memory, in_memory: 0 }
    }

    /// Those that a process has exported under a name, of entries of so many bytes. None if it has given up. Guarded;
    /// allocates in the current memory context.
    pub fn open(files: &SharedFiles, name: &CString, size: usize) -> Result<Option<Runs>> {
        let mut runs = Runs::new(Place::Own);
        runs.file = files.open(name);
        if runs.file.is_null() {
            return Ok(Some(runs));
        }
        loop {
            let mut count = 0u64;
            // SAFETY: guarded calls on an open file, with room for a number.
            unsafe {
                match pg_sys::BufFileRead(runs.file, (&raw mut count).cast::<c_void>(), size_of::<u64>()) {
                    0 => return Ok(Some(runs)),
                    len if len == size_of::<u64>() => (),
                    _ => return Err(damaged()),
                }
                if count == GIVEN_UP {
                    runs.close();
                    return Ok(None);
                }
                let mut run = Run { count: count & !PACKED, packed: None, file: 0, offset: 0 };
                if count & PACKED != 0 {
                    let mut bytes = 0u64;
                    let place = (&raw mut bytes).cast::<c_void>();
                    if pg_sys::BufFileRead(runs.file, place, size_of::<u64>()) != size_of::<u64>() {
                        return Err(damaged());
                    }
                    run.packed = Some(bytes);
                }
                pg_sys::BufFileTell(runs.file, &raw mut run.file, &raw mut run.offset);
                runs.list.push(run);
                let bytes = run.packed.or_else(|| count.checked_mul(size as u64));
                let bytes = bytes.and_then(|bytes| pg_sys::off_t::try_from(bytes).ok()).ok_or_else(damaged)?;
                if pg_sys::BufFileSeek(runs.file, 0, bytes, libc::SEEK_CUR) != 0 {
                    return Err(damaged());
                }
            }
        }
    }

    /// Let others read them when they are exported. Says no if there are some already that nobody else can read.
    pub fn share(&mut self, files: SharedFiles, name: CString) -> bool {
        let may = self.file.is_null() && self.list.is_empty();
        if may {
            self.place = Place::Shared(files, name);
        }
        may
    }

    /// Can others read them when they are exported?
    pub fn are_shared(&self) -> bool {
        matches!(self.place, Place::Shared(..))
    }

    /// Add a run. Guarded.
    pub fn write(&mut self, entries: &[u8], count: u64) -> Result<()> {
        self.begin(count, None)?;
        self.append(entries);
        Ok(())
    }

    /// Add entries to the run in memory, behind all that it has. False if they do not get smaller.
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

    /// Is there any run that is packed?
    pub fn are_packed(&self) -> bool {
        self.in_memory > 0 || self.list.iter().any(|run| run.packed.is_some())
    }

    /// Write the run in memory, if there is one. Guarded.
    pub fn spill(&mut self) -> Result<()> {
        if self.in_memory > 0 {
            let (memory, count) = (std::mem::take(&mut self.memory), std::mem::take(&mut self.in_memory));
            self.begin(count, Some(memory.len() as u64))?;
            self.append(&memory);
        }
        Ok(())
    }

    /// Let go of the run in memory.
    pub fn forget(&mut self) {
        (self.memory, self.in_memory) = (Rc::default(), 0);
    }

    /// Add a run of records. Guarded.
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

    /// Write the numbers that a run begins with, of its entries, and of its bytes if they are packed. Note its place. Guarded.
    fn begin(&mut self, count: u64, packed: Option<u64>) -> Result<()> {
        let numbers = [count | if packed.is_some() { PACKED } else { 0 }, packed.unwrap_or_default()];
        let size = size_of::<u64>() * if packed.is_some() { 2 } else { 1 };
        // SAFETY: guarded calls; the memory context outlives the runs, and what is written is not changed.
        unsafe {
            if self.file.is_null() {
                let old = pg_sys::MemoryContextSwitchTo(self.context);
                self.file = match &self.place {
                    Place::Own => {
                        pg_sys::PrepareTempTablespaces();
                        pg_sys::BufFileCreateTemp(false)
                    }
                    Place::Shared(files, name) => files.make(name),
                };
                pg_sys::MemoryContextSwitchTo(old);
            } else if pg_sys::BufFileSeek(self.file, self.end.0, self.end.1, libc::SEEK_SET) != 0 {
                // Runs may have been looked at.
                return Err(damaged());
            }
            pg_sys::BufFileWrite(self.file, numbers.as_ptr().cast_mut().cast::<c_void>(), size);
            let mut run = Run { count, packed, file: 0, offset: 0 };
            pg_sys::BufFileTell(self.file, &raw mut run.file, &raw mut run.offset);
            self.end = (run.file, run.offset);
            self.list.push(run);
        }
        Ok(())
    }

    /// Write more of the run that was begun. Guarded.
    fn append(&mut self, bytes: &[u8]) {
        // SAFETY: a guarded call on an open file; what is written is not changed.
        unsafe {
            pg_sys::BufFileWrite(self.file, bytes.as_ptr().cast_mut().cast::<c_void>(), bytes.len());
            pg_sys::BufFileTell(self.file, &raw mut self.end.0, &raw mut self.end.1);
        }
    }

    /// How many records runs of records have. Guarded.
    pub fn records(&self) -> Result<u64> {
        let count = |run: &Run| {
            let mut count = [0; COUNT];
            let mut run = *run;
            // SAFETY: the file of the runs is open if there is a run.
            unsafe { read(self.file, &mut run, &mut count) }?;
            Ok(u64::from_ne_bytes(count))
        };
        self.list.iter().map(count).sum()
    }

    /// Let the leader have them. Guarded.
    pub fn export(&mut self) {
        debug_assert!(self.in_memory == 0, "sorted keys in memory are not in the file");
        if !self.file.is_null() {
            // SAFETY: guarded calls on a file of a shared set.
            unsafe {
                pg_sys::BufFileExportFileSet(self.file);
                pg_sys::BufFileClose(self.file);
            }
            self.file = std::ptr::null_mut();
        }
    }

    /// Close the file. Guarded.
    pub fn close(&mut self) {
        if !self.file.is_null() {
            // SAFETY: a guarded call on an open file.
            unsafe { pg_sys::BufFileClose(self.file) };
            self.file = std::ptr::null_mut();
        }
        self.forget();
    }

    /// To be read one after the other, or in turn, so many entries at once.
    pub fn readers<W: Word>(&self, most: usize) -> impl Iterator<Item = RunReader<W>> {
        let memory = Run { count: self.in_memory, packed: Some(self.memory.len() as u64), file: 0, offset: 0 };
        let memory = (self.in_memory > 0).then_some((memory, Some(&self.memory)));
        let runs = self.list.iter().map(|run| (*run, None)).chain(memory);
        runs.map(move |(run, memory)| self.reader(run, memory, most))
    }

    fn reader<W: Word>(&self, run: Run, memory: Option<&Rc<Vec<u8>>>, most: usize) -> RunReader<W> {
        let memory = memory.map(Rc::clone);
        RunReader { file: self.file, run, memory, at: 0, read: 0, most, block: Vec::new(), bytes: Vec::new() }
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
            // SAFETY: the file of the runs is open if there is a run.
            unsafe { read(self.file, &mut place, &mut start) }?;
            keys.push(packed::first_key(&start).ok_or_else(damaged)?);
        }
        if self.in_memory > 0 {
            keys.push(packed::first_key(&self.memory).ok_or_else(damaged)?);
        }
        Ok(keys)
    }

    /// The same of the entries whose keys are not less than one, and less than another.
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
        let mut place = self.behind::<W>(run, number)?;
        // SAFETY: the file of the runs is open if there is a run.
        unsafe { read(self.file, &mut place, as_bytes_mut(&mut entry)) }?;
        Ok(entry[0].key())
    }

    /// How many entries of a run have keys that are less than this one. Guarded.
    fn place_of<W: Word>(&self, run: &Run, key: W) -> Result<u64> {
        let (mut from, mut to) = (0, run.count);
        while from < to {
            let middle = from + (to - from) / 2;
            if self.key::<W>(run, middle)? < key { from = middle + 1 } else { to = middle }
        }
        Ok(from)
    }

    /// The place of a run's entry, which is not packed. Guarded.
    fn behind<W: Word>(&self, run: &Run, number: u64) -> Result<Run> {
        if run.packed.is_some() {
            return Err(damaged());
        }
        let bytes = number.checked_mul(size_of::<Entry<W>>() as u64).and_then(|n| pg_sys::off_t::try_from(n).ok());
        let bytes = bytes.ok_or_else(damaged)?;
        let mut place = *run;
        // SAFETY: guarded calls on an open file: there is a run.
        unsafe {
            if pg_sys::BufFileSeek(self.file, run.file, run.offset, libc::SEEK_SET) != 0
                || pg_sys::BufFileSeek(self.file, 0, bytes, libc::SEEK_CUR) != 0
            {
                return Err(damaged());
            }
            pg_sys::BufFileTell(self.file, &raw mut place.file, &raw mut place.offset);
        }
        Ok(place)
    }

    /// The same, of runs of records, so many bytes at once.
    pub fn record_readers(&self, size: usize) -> impl Iterator<Item = RecordReader> {
        let file = self.file;
        let reader = move |run: &Run| RecordReader { file, run: *run, read: 0, size, block: Vec::new(), whole: 0 };
        self.list.iter().map(reader)
    }
}

/// Read what is next of a run, and go on in it. Guarded.
///
/// # Safety
/// An open file.
unsafe fn read(file: *mut pg_sys::BufFile, run: &mut Run, bytes: &mut [u8]) -> Result<()> {
    // SAFETY: guarded calls on the caller's file, with room for as many bytes as are asked for. Others read other places
    // of the file in between.
    unsafe {
        if pg_sys::BufFileSeek(file, run.file, run.offset, libc::SEEK_SET) != 0 {
            return Err(damaged());
        }
        if pg_sys::BufFileRead(file, bytes.as_mut_ptr().cast::<c_void>(), bytes.len()) != bytes.len() {
            return Err(damaged());
        }
        pg_sys::BufFileTell(file, &raw mut run.file, &raw mut run.offset);
    }
    Ok(())
}

fn damaged() -> Error {
    let message = "could not read from temporary file: its runs are not as they were written";
    Error::new(pgrx::PgSqlErrorCode::ERRCODE_DATA_CORRUPTED, message)
}

/// A run that is being read. Guarded.
#[derive(Debug)]
pub struct RunReader<W: Word> {
    file: *mut pg_sys::BufFile,
    run: Run,
    /// A run that is packed may be in memory, where so many bytes of it were read.
    memory: Option<Rc<Vec<u8>>>,
    at: usize,
    read: u64,
    most: usize,
    block: Vec<Entry<W>>,
    /// A block that is packed.
    bytes: Vec<u8>,
}

impl<W: Word> RunReader<W> {
    /// Unpack the next block.
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
            // SAFETY: the file is open.
            unsafe { read(self.file, &mut self.run, &mut start) }?;
            let size = packed::size_of_block(start);
            let more = size.checked_sub(start.len()).filter(|_| size <= MOST_PACKED).ok_or_else(damaged)?;
            self.bytes.clear();
            self.bytes.try_reserve(size).map_err(|_| out_of_memory())?;
            self.bytes.extend_from_slice(&start);
            self.bytes.resize(size, 0);
            let rest = self.bytes.get_mut(size - more..).unwrap_or_default();
            // SAFETY: as above.
            unsafe { read(self.file, &mut self.run, rest) }?;
            packed::unpack(&self.bytes, &mut self.block)
        };
        if !is_block.map_err(|_| out_of_memory())? {
            return Err(damaged());
        }
        self.read += self.block.len() as u64;
        if self.read <= self.run.count { Ok(()) } else { Err(damaged()) }
    }
}

/// Bytes of a packed block at most: half of what its entries take.
const MOST_PACKED: usize = packed::MOST * size_of::<Entry<u128>>() / 2;

impl<W: Word> merge::Run<W> for RunReader<W> {
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
        // SAFETY: the file is open.
        unsafe { read(self.file, &mut self.run, bytes) }?;
        self.read += self.block.len() as u64;
        Ok(())
    }
}

/// A run of records that is being read. Guarded.
#[derive(Debug)]
pub struct RecordReader {
    file: *mut pg_sys::BufFile,
    run: Run,
    read: u64,
    /// Bytes that are read at once.
    size: usize,
    /// Complete records, and the beginning of another one.
    block: Vec<u8>,
    whole: usize,
}

impl bytes::merge::Run for RecordReader {
    type Error = Error;

    fn block(&self) -> &[u8] {
        self.block.get(..self.whole).unwrap_or_default()
    }

    fn advance(&mut self) -> Result<()> {
        pgrx::check_for_interrupts!();
        if self.read == 0 {
            let mut count = [0; COUNT];
            // SAFETY: the file is open.
            unsafe { read(self.file, &mut self.run, &mut count) }?;
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
            // SAFETY: the file is open.
            unsafe { read(self.file, &mut self.run, bytes) }?;
            self.read += bytes.len() as u64;
            self.whole = Records(&self.block).map(|record| record.size()).sum();
        }
        Ok(())
    }
}
