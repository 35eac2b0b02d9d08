//! Estimates the number of rows in a file without reading all of it.
//!
//! After an ANALYZE, its row density is scaled to the file's size, as in file_fdw. Before, three small samples serve.
//! The first bytes are parsed, which gives bytes per record and line ends per record (these differ if fields have line
//! ends). In the middle and at the end only line ends are counted. A program and a FIFO are not read, since planning
//! must not have side effects.

use std::rc::Rc;

use pg_bulk_text::reader::Event;

use super::options::TableOptions;
use crate::error::Result;
use crate::input::source::{Location, Source};
use crate::input::stream::{Header, Stream};
use crate::server::call::variables;

/// Bytes of each sample.
const SAMPLE: usize = 64 * 1024;
/// Size of a file that cannot be inspected (file_fdw's guess: ten pages).
const UNKNOWN_SIZE: u64 = 10 * 8192;

/// The estimate.
#[derive(Debug, Clone, Copy)]
pub struct Estimate {
    /// Bytes of the file.
    pub size: u64,
    /// Bytes per record, if there was a sample.
    pub record: Option<f64>,
}

/// Inspects the file. Errors are left to the execution. Guarded.
pub fn estimate(options: &TableOptions) -> Estimate {
    let unknown = Estimate { size: UNKNOWN_SIZE, record: None };
    let Some(location) = &options.location else { return unknown };
    if let Ok(Some(list)) = location.files() {
        if !Location::Files(Rc::clone(&list)).is_allowed() {
            return unknown;
        }
        // One file stands for all: the largest one, since others may have a header only.
        let largest = list.files.iter().max_by_key(|file| file.identity.size);
        let of_largest = largest.map(|file| of_file(options, &list.location(file)));
        return Estimate { size: list.size(), record: of_largest.and_then(|estimate| estimate.record) };
    }
    of_file(options, location)
}

fn of_file(options: &TableOptions, location: &Location) -> Estimate {
    let unknown = Estimate { size: UNKNOWN_SIZE, record: None };
    if !location.metadata().is_ok_and(|meta| meta.is_file()) {
        return unknown;
    }
    let Ok(mut source) = Source::open(location, options.copy.coding()) else { return unknown };
    let Some(size) = source.file_size() else {
        // The file has been replaced by something else meanwhile.
        drop(source.close());
        return unknown;
    };
    source.stay_close();
    let record = sample(options, source, size).ok().flatten();
    Estimate { size, record }
}

fn sample(options: &TableOptions, mut source: Source, size: u64) -> Result<Option<f64>> {
    let encodings = match options.copy.encodings() {
        Ok(encodings) => encodings,
        Err(e) => {
            source.close()?;
            return Err(e);
        }
    };
    // For a compressed file, compressed bytes are counted, and a record has fewer of them.
    if let Some(length) = options.copy.dialect.stride().filter(|_| source.size().is_some()) {
        source.close()?;
        return Ok(Some(length as f64));
    }
    let header = Header { fields: false, ..options.copy.header() };
    let mut stream = Stream::new(source, options.copy.dialect.clone(), encodings, header);
    let record = bytes_a_record(&mut stream, size);
    stream.close()?;
    record
}

fn bytes_a_record(stream: &mut Stream, size: u64) -> Result<Option<f64>> {
    if stream.size().is_none() {
        let first = read_on(stream)?;
        // Ratio of compressed bytes read to decompressed bytes.
        let share = stream.bytes_read().min(size) as f64 / first.len().max(1) as f64;
        let (records, used) = records_of(stream, &first);
        let bytes = if records < 2 || used == 0 { first.len() as f64 } else { used as f64 / (records - 1) as f64 };
        return Ok((!first.is_empty()).then(|| (bytes * share).max(f64::MIN_POSITIVE)));
    }
    let first = read_at(stream, 0)?;
    if first.is_empty() {
        return Ok(None);
    }
    let first_ends = line_ends(&first);
    let (records, used) = records_of(stream, &first);
    if records < 2 || used == 0 {
        // One record, or the start of one that is longer than the sample.
        return Ok(Some(first.len() as f64));
    }
    let mut bytes = used as f64 / (records - 1) as f64;
    // Bytes of the binary format do not show where records end.
    if size > 4 * SAMPLE as u64 && !stream.reader.dialect().is_binary() {
        let mut ends = first_ends;
        for offset in [size / 2, size - SAMPLE as u64] {
            ends += line_ends(&read_at(stream, offset)?);
        }
        bytes *= first_ends / (ends / 3.0);
    }
    Ok(Some(bytes.max(1.0)))
}

/// The number of records that start in the file's first bytes, and the start of the last one.
fn records_of(stream: &mut Stream, mut bytes: &[u8]) -> (u64, u64) {
    let (mut records, mut used) = (0, 0);
    loop {
        match stream.reader.advance() {
            Event::Record => {
                records += 1;
                used = stream.reader.record_offset();
            }
            Event::Header => (),
            Event::NeedData if bytes.is_empty() => break,
            Event::NeedData => {
                let Some(space) = stream.reader.try_space() else { break };
                let (now, later) = bytes.split_at(bytes.len().min(space.len()));
                if let Some(space) = space.get_mut(..now.len()) {
                    space.copy_from_slice(now);
                }
                bytes = later;
                stream.reader.filled(now.len());
                stream.reader.verified(now.len());
            }
            Event::End | Event::Error(_) => break,
        }
    }
    (records, used)
}

/// [`SAMPLE`] bytes from `offset`, or fewer at the end.
fn read_at(stream: &mut Stream, offset: u64) -> Result<Vec<u8>> {
    stream.source_mut().seek(offset)?;
    read_on(stream)
}

/// The next [`SAMPLE`] bytes, or fewer at the end.
fn read_on(stream: &mut Stream) -> Result<Vec<u8>> {
    let source = stream.source_mut();
    let mut bytes = vec![0u8; SAMPLE];
    let mut n = 0;
    while let Some(space) = bytes.get_mut(n..)
        && !space.is_empty()
    {
        match source.read(space)? {
            0 => break,
            more => n += more,
        }
    }
    bytes.truncate(n);
    Ok(bytes)
}

fn line_ends(bytes: &[u8]) -> f64 {
    memchr::memchr_iter(b'\n', bytes).count().max(1) as f64
}

variables! {
    fn row_cost() -> f64 = cpu_tuple_cost;
    fn operator_cost() -> f64 = cpu_operator_cost;
    fn page_cost() -> f64 = seq_page_cost;
    /// Does the leader of a parallel query read, too?
    pub fn leads() -> bool = parallel_leader_participation;
}

/// The costs of a row, of an operator and of a page that is read in order.
pub fn costs() -> [f64; 3] {
    [row_cost(), operator_cost(), page_cost()]
}

/// The divisor of rows (`get_parallel_divisor`): the leader takes part, but less the more workers it serves.
pub fn divisor(workers: i32) -> f64 {
    let workers = f64::from(workers);
    if leads() { workers + (1.0 - 0.3 * workers).max(0.0) } else { workers }
}
