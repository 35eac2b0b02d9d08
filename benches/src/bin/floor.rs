//! The floor under every loader: what a file of the workload `test` costs when nothing is done that can be left out.
//!
//! ```text
//! floor [--threads N] FILE DIRECTORY
//! ```
//!
//! Threads read, split and convert the file's rows with the parser and the decoders of the loader, build heap pages of
//! them and append the pages to one file and their WAL to another, in batches of 64 pages; at the end the WAL is synced.
//! That is what makes rows durable: pages are the kernel's to write, as a server leaves them to its next checkpoint.
//! There is no server, no lock, no catalog, no checksum, not even WAL's own, and no order among the batches. A loader
//! that promises durable rows cannot be faster with the same parser on the same machine; how close it comes is what the
//! harness shows. Both files are removed at the end.
//!
//! The one tricky point is who reads the row at the border of two chunks. A row belongs to the chunk in which it
//! begins: a thread skips the rest of a row that began before its chunk, and reads on past the chunk's end to finish
//! its last one. That is exact here because the workload has no line end inside quotes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use pg_bulk_bench::heap::{Batch, PAGE};
use pg_bulk_bench::record::Rows;

const USAGE: &str = "usage: floor [--threads N] FILE DIRECTORY";

/// Bytes of the file that a thread takes at a time: large enough that the counter is no point of contention.
const CHUNK: u64 = 1 << 20;

/// How far past the end of its chunk a thread can read: the longest row.
const OVERHANG: u64 = 4096;

/// What the threads of a run share.
struct Load {
    input: File,
    heap: File,
    wal: File,
    /// Where the next chunk begins, the next block, the next byte of WAL.
    next_chunk: AtomicU64,
    next_block: AtomicU32,
    next_wal: AtomicU64,
    rows: AtomicU64,
}

impl Load {
    /// One thread's share: chunks until there are none.
    fn work(&self) -> Result<(), String> {
        let mut batch = Batch::default();
        let mut reader = Rows::new()?;
        let mut buffer = vec![0; (1 + CHUNK + OVERHANG) as usize];
        let mut rows = 0;
        loop {
            let start = self.next_chunk.fetch_add(CHUNK, Ordering::Relaxed);
            // The byte before the chunk tells whether a row begins right with it.
            let from = start.saturating_sub(1);
            let bytes = read_at(&self.input, &mut buffer, from).map_err(|error| format!("reading: {error}"))?;
            if (bytes.len() as u64) <= start - from {
                break;
            }
            let records = records(bytes, (start - from) as usize)?;
            rows += reader
                .read(records, |row| {
                    if !batch.push(row) {
                        self.append(&mut batch)?;
                        // An empty batch has room for a row of any length that is read.
                        assert!(batch.push(row));
                    }
                    Ok(())
                })
                .map_err(|error| format!("in the chunk at byte {start}: {error}"))?;
        }
        reader.finish()?;
        self.append(&mut batch)?;
        self.rows.fetch_add(rows, Ordering::Relaxed);
        Ok(())
    }

    /// Writes a batch behind those that are written already, WAL first, and empties it.
    fn append(&self, batch: &mut Batch) -> Result<(), String> {
        let pages = batch.finish() as u32;
        let block = self.next_block.fetch_add(pages, Ordering::Relaxed);
        let (heap, wal) = batch.place(block);
        let wal_start = self.next_wal.fetch_add(wal.len() as u64, Ordering::Relaxed);
        self.wal.write_all_at(wal, wal_start).map_err(|error| format!("writing WAL: {error}"))?;
        self.heap
            .write_all_at(heap, u64::from(block) * PAGE as u64)
            .map_err(|error| format!("writing pages: {error}"))?;
        batch.clear();
        Ok(())
    }
}

/// The rows of `bytes` that begin in the chunk that begins at `chunk`; before it is one byte, unless the file begins
/// there.
fn records(bytes: &[u8], chunk: usize) -> Result<&[u8], String> {
    // Where the first row behind `position` begins, if that is not the chunk's own start.
    let row_after = |position: usize| {
        let rest = bytes.get(position..).unwrap_or_default();
        match rest.iter().position(|byte| *byte == b'\n') {
            Some(line_end) => Ok(position + line_end + 1),
            None if rest.is_empty() => Ok(bytes.len()),
            None => Err(format!("no line end behind byte {position} of the chunk")),
        }
    };
    let first = if chunk == 0 { 0 } else { row_after(0)? };
    let end = row_after(chunk + CHUNK as usize - 1)?;
    Ok(&bytes[first..end])
}

/// Fills as much of `buffer` as the file has from `offset` on.
fn read_at<'a>(file: &File, buffer: &'a mut [u8], offset: u64) -> io::Result<&'a [u8]> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(&buffer[..filled])
}

/// A file that is gone when its owner is, also after an error.
struct Scratch(PathBuf);

impl Scratch {
    fn create(directory: &Path, name: &str) -> Result<(Self, File), String> {
        let path = directory.join(name);
        let file = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok((Self(path), file))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing is lost by a file that stays.
        let _ = fs::remove_file(&self.0);
    }
}

fn run() -> Result<(), String> {
    let mut threads = 2;
    let mut operands = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--threads" {
            let value = arguments.next().and_then(|value| value.parse().ok()).filter(|value| *value > 0);
            threads = value.ok_or("--threads wants a positive number")?;
        } else {
            operands.push(argument);
        }
    }
    let Ok([input, directory]) = <[String; 2]>::try_from(operands) else {
        return Err(USAGE.to_string());
    };
    let directory = Path::new(&directory);
    let input = File::open(&input).map_err(|error| format!("{input}: {error}"))?;
    let (_heap_scratch, heap) = Scratch::create(directory, "floor.heap")?;
    let (_wal_scratch, wal) = Scratch::create(directory, "floor.wal")?;
    let load = Load {
        input,
        heap,
        wal,
        next_chunk: AtomicU64::new(0),
        next_block: AtomicU32::new(0),
        next_wal: AtomicU64::new(0),
        rows: AtomicU64::new(0),
    };

    let begin = Instant::now();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| load.work())).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a thread panicked".to_string())?)
    })?;
    let written = begin.elapsed();
    load.wal.sync_data().map_err(|error| format!("syncing WAL: {error}"))?;
    let synced = begin.elapsed();

    let pages = load.next_block.into_inner();
    println!(
        "rows={} pages={pages} heap_bytes={} wal_bytes={} seconds={:.3} seconds_before_sync={:.3}",
        load.rows.into_inner(),
        u64::from(pages) * PAGE as u64,
        load.next_wal.into_inner(),
        synced.as_secs_f64(),
        written.as_secs_f64(),
    );
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("floor: {message}");
            ExitCode::FAILURE
        }
    }
}
