//! Sorted runs of entries in temporary files.
//!
//! A run is the number of its entries, and the entries. A file that was shared is searched for its runs by whoever opens
//! it; of a file of our own we know where they are.
//!
//! Keys that are bytes have sizes of their own. Their runs are so many bytes: the number of records, then the records.

use std::ffi::{CString, c_void};

use pg_bulk_format::btree::bytes;
use pg_bulk_format::btree::bytes::merge::Run as _;
use pg_bulk_format::btree::bytes::record::Records;
use pg_bulk_format::btree::bytes::store::StoreRun;
use pg_bulk_format::btree::entry::{Entry, Word, as_bytes_mut};
use pg_bulk_format::btree::merge;
use pgrx::pg_sys;

use crate::error::{Error, Result};
use crate::pg::shared_files::SharedFiles;

/// What stands for the number of entries if the keys could not be collected.
pub const GIVEN_UP: u64 = u64::MAX;
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
}

impl Runs {
    /// None yet. The file's memory will be of the current memory context.
    pub fn new(place: Place) -> Runs {
        // SAFETY: a variable of this process.
        let context = unsafe { pg_sys::CurrentMemoryContext };
        Runs { place, context, file: std::ptr::null_mut(), list: Vec::new(), end: (0, 0) }
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
                let mut run = Run { count, file: 0, offset: 0 };
                pg_sys::BufFileTell(runs.file, &raw mut run.file, &raw mut run.offset);
                runs.list.push(run);
                let bytes = count.checked_mul(size as u64).and_then(|bytes| pg_sys::off_t::try_from(bytes).ok());
                let bytes = bytes.ok_or_else(damaged)?;
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
        self.begin(count)?;
        self.append(entries);
        Ok(())
    }

    /// Add a run of records. Guarded.
    pub fn write_records(&mut self, mut records: StoreRun<'_>, count: usize, bytes: usize) -> Result<()> {
        self.begin((bytes + COUNT) as u64)?;
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

    /// Write the number that a run begins with, and note its place. Guarded.
    fn begin(&mut self, count: u64) -> Result<()> {
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
            pg_sys::BufFileWrite(self.file, (&raw const count).cast_mut().cast::<c_void>(), size_of::<u64>());
            let mut run = Run { count, file: 0, offset: 0 };
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
    }

    /// To be read one after the other, or in turn, so many entries at once.
    pub fn readers<W: Word>(&self, most: usize) -> impl Iterator<Item = RunReader<W>> {
        let reader = move |run: &Run| RunReader { file: self.file, run: *run, read: 0, most, block: Vec::new() };
        self.list.iter().map(reader)
    }

    /// The same of the entries whose keys are not less than one, and less than another.
    pub fn between<W: Word>(&self, from: Option<W>, to: Option<W>, most: usize) -> Result<Vec<RunReader<W>>> {
        let reader = |run: &Run| {
            let start = from.map_or(Ok(0), |key| self.place_of(run, key))?;
            let end = to.map_or(Ok(run.count), |key| self.place_of(run, key))?;
            let count = end.saturating_sub(start);
            let run = Run { count, ..self.behind::<W>(run, if count > 0 { start } else { 0 })? };
            Ok(RunReader { file: self.file, run, read: 0, most, block: Vec::new() })
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

    /// The place of a run's entry. Guarded.
    fn behind<W: Word>(&self, run: &Run, number: u64) -> Result<Run> {
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
    read: u64,
    most: usize,
    block: Vec<Entry<W>>,
}

impl<W: Word> merge::Run<W> for RunReader<W> {
    type Error = Error;

    fn block(&self) -> &[Entry<W>] {
        &self.block
    }

    fn advance(&mut self) -> Result<()> {
        pgrx::check_for_interrupts!();
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
