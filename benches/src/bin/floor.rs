//! The lower bound for every loader: the cost of a file of the workload `test`, without all steps that can be left out.
//!
//! ```text
//! floor [--threads N] FILE DIRECTORY
//! ```
//!
//! Threads read, split and convert the file's rows with the parser and the decoders of the loader. They build heap
//! pages, append the pages to one file and their WAL to another, in batches of 64 pages, and finally sync the WAL. That
//! makes the rows durable: the kernel writes the pages later, as with a server until its next checkpoint. There are no
//! server, locks, catalog or checksums, not even those of WAL, and batches have no order. A loader with durable rows
//! cannot be faster with the same parser on the same machine; the harness shows how close it comes. Both files are
//! removed at the end.
//!
//! The tricky point is the row at the border of two chunks. A row belongs to the chunk in which it begins. A thread
//! skips the rest of a row that began before its chunk, and reads past the chunk's end to finish its last row. This is
//! exact here because the workload has no line end inside quotes.

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

/// Size of a thread's chunk in bytes. It is large, so that the shared counter causes no contention.
const CHUNK: u64 = 1 << 20;

/// Number of bytes that a thread can read past the end of its chunk: the longest row.
const OVERHANG: u64 = 4096;

/// State shared by the threads of a run.
struct Load {
    input: File,
    heap: File,
    wal: File,
    /// Start of the next chunk, the next block, and the next byte of WAL.
    next_chunk: AtomicU64,
    next_block: AtomicU32,
    next_wal: AtomicU64,
    rows: AtomicU64,
}

impl Load {
    /// Runs one thread: processes chunks until none is left.
    fn work(&self) -> Result<(), String> {
        let mut batch = Batch::default();
        let mut reader = Rows::new()?;
        let mut buffer = vec![0; (1 + CHUNK + OVERHANG) as usize];
        let mut rows = 0;
        loop {
            let start = self.next_chunk.fetch_add(CHUNK, Ordering::Relaxed);
            // The byte before the chunk shows whether a row begins at the chunk's start.
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
                        // An empty batch has room for a row of any valid length.
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

    /// Writes a batch behind the earlier ones, WAL first, and empties it.
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

/// Returns the rows of `bytes` that begin in the chunk at offset `chunk`. One byte precedes the chunk, unless the file
/// begins there.
fn records(bytes: &[u8], chunk: usize) -> Result<&[u8], String> {
    // Start of the first row behind `position`, unless that is the start of the chunk.
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

/// Fills `buffer` with the bytes of the file from `offset` on, as far as there are any.
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

/// A file that is removed when this value is dropped, also after an error.
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
        // If the file cannot be removed, it stays; no data are lost.
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
