//! Reads a source: the next bytes, or bytes at a given offset.

use std::io::{ErrorKind, Read};
use std::sync::atomic::Ordering::Relaxed;

use pg_bulk_text::file_kind::MOST_BYTES;
use pgrx::{PgSqlErrorCode as Code, check_for_interrupts};

use super::Source;
use super::decoding::{Decoding, Here, SAMPLE};
use crate::error::{Error, Result, out_of_memory};
use crate::input::coding::Steps;
use crate::input::compression::{Compression, MOST_MEMORY, SIGNATURE_BYTES, is_truncated, lacks_memory, wants_memory};
use crate::input::decompressor::{Decompressor, Got};
use crate::input::file_identity::changed;
use crate::server::points::{point, point_errno};

impl Source {
    /// Read the next bytes; none at the end. Guarded, and interruptible.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let n = self.read_text(buffer)?;
        let wanted = MOST_BYTES.saturating_sub(self.first.len());
        if wanted > 0 {
            self.first.extend(buffer.iter().take(n.min(wanted)));
        }
        Ok(n)
    }

    fn read_text(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match &mut self.decoding {
                // Bytes that another writer of a FIFO may send are not part of the data.
                Decoding::Plain if self.file_size.is_none() && self.from.has_ended() => return Ok(0),
                Decoding::Plain => {
                    let most = match self.end {
                        Some(end) => self.left_before(end)?.min(buffer.len()),
                        None => buffer.len(),
                    };
                    let n = self.from.read(buffer.get_mut(..most).unwrap_or_default())?;
                    self.bytes_read += n as u64;
                    return Ok(n);
                }
                Decoding::Client(client) => {
                    let n = client.read(buffer)?;
                    self.bytes_read += n as u64;
                    return Ok(n);
                }
                Decoding::Undetected => {
                    // A writer may wait for the result of its bytes, so read no more than the check needs.
                    let coding = self.coding;
                    let first = self.from.look_ahead::<SIGNATURE_BYTES>(|first| coding.may_begin(first))?;
                    self.decoding = match coding.steps(first) {
                        Some(steps) => self.here(steps)?,
                        None => Decoding::Plain,
                    };
                }
                Decoding::New(steps) => {
                    let steps = *steps;
                    let ahead = self.file_size.is_some() && !self.stays_close;
                    let thread = ahead.then(|| Decompressor::start(self.file().try_clone()?, steps));
                    self.decoding = match thread {
                        Some(Ok(decompressor)) => Decoding::Ahead(steps, decompressor),
                        // Without a thread it only takes longer.
                        _ => self.here(steps)?,
                    };
                }
                Decoding::Ahead(steps, decompressor) => {
                    check_for_interrupts!();
                    point!("source.ready");
                    let got = match point_errno!("source.read") {
                        Some(errno) => Err(std::io::Error::from_raw_os_error(errno)),
                        None => decompressor.read(buffer),
                    };
                    self.bytes_read = decompressor.consumed();
                    match got {
                        Ok(Got::Bytes(n)) => return Ok(n),
                        Ok(Got::End) => return Ok(0),
                        Ok(Got::NotYet) => (),
                        Err(error) => {
                            let steps = *steps;
                            return Err(self.undecodable(steps, &error));
                        }
                    }
                }
                Decoding::Shared(..) => return Ok(0),
                Decoding::Here(steps, here) => {
                    let read = here.decoder.read(buffer);
                    self.bytes_read = here.consumed.load(Relaxed);
                    let failed = here.failed.borrow_mut().take();
                    return match (read, failed) {
                        (Ok(n), _) => Ok(n),
                        (Err(_), Some(error)) => Err(error),
                        (Err(error), None) => {
                            let steps = *steps;
                            Err(self.undecodable(steps, &error))
                        }
                    };
                }
            }
        }
    }

    /// Bytes left before the offset `end`. An error if the file has grown in the middle of a line since.
    fn left_before(&self, end: u64) -> Result<usize> {
        use std::io::Seek;
        use std::os::unix::fs::FileExt;
        let failed = |e| Error::file_access("could not read from COPY file", &e);
        let file = self.file();
        let left = end.saturating_sub((&*file).stream_position().map_err(failed)?);
        if left == 0 && file.metadata().map_err(failed)?.len() > end {
            let mut last = [b'\n'];
            if end > 0 {
                file.read_exact_at(&mut last, end - 1).map_err(failed)?;
            }
            if !matches!(last, [b'\n' | b'\r']) {
                return Err(changed(&self.name));
            }
        }
        Ok(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// Decompress in the reading process.
    fn here(&mut self, steps: Steps) -> Result<Decoding> {
        let most = if self.stays_close { SAMPLE } else { u64::MAX };
        let here = Here::begin(steps, self.from.clone(), most);
        self.from.unread.clear();
        here.map(|here| Decoding::Here(steps, here)).map_err(|error| self.undecodable(steps, &error))
    }

    /// The error for compressed bytes that cannot be decompressed, with the position.
    fn undecodable(&self, steps: Steps, error: &std::io::Error) -> Error {
        if error.raw_os_error().is_some() {
            return Error::file_access("could not read from COPY file", error);
        }
        if lacks_memory(error) {
            return out_of_memory();
        }
        let (kind, at) = (steps.compression().map_or("coded", Compression::name), self.bytes_read);
        let what = match &self.from.supply {
            Some(_) => self.name.clone(),
            None if self.pipe.is_null() => format!("file \"{}\"", self.name),
            None => format!("program \"{}\"", self.name),
        };
        if wants_memory(error) {
            let message = format!("{kind} data of {what} need too much memory to be decompressed");
            return Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message)
                .detail(format!("The window of a decompressor is limited to {} MB.", MOST_MEMORY >> 20))
                .hint("Compress the data with a smaller window or dictionary.");
        }
        let (message, detail) = if is_truncated(error) {
            (format!("{kind} data of {what} end too early"), format!("The data end at byte {at}."))
        } else {
            (format!("invalid {kind} data in {what}"), format!("Near byte {at}: {error}."))
        };
        Error::new(Code::ERRCODE_BAD_COPY_FILE_FORMAT, message).detail(detail)
    }

    /// Fill `buffer` with the bytes at `offset` of a regular file. Guarded, and interruptible.
    pub fn read_exactly(&mut self, mut buffer: &mut [u8], mut offset: u64) -> Result<()> {
        use std::os::unix::fs::FileExt;
        if let Decoding::Shared(_, ring) = &self.decoding {
            check_for_interrupts!();
            ring.read(buffer, offset);
            // Only the leader reports them.
            if ring.leads() {
                self.bytes_read = ring.consumed();
            }
            return Ok(());
        }
        self.bytes_read += buffer.len() as u64;
        while !buffer.is_empty() {
            check_for_interrupts!();
            match self.file().read_at(buffer, offset) {
                Ok(0) => return Err(changed(&self.name)),
                Ok(n) => {
                    buffer = buffer.get_mut(n..).unwrap_or_default();
                    offset += n as u64;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => (),
                Err(e) => return Err(Error::file_access("could not read from COPY file", &e)),
            }
        }
        Ok(())
    }
}
