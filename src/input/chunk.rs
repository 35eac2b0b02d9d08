//! Lets several processes read a stream in chunks.
//!
//! A process reads its chunk of the file into the reader's own buffer. Room before the chunk takes the beginning of the
//! first record, which lies in earlier chunks. `pg_bulk_text::chunk` describes which process may cut a chunk, and
//! when.

use pg_bulk_text::chunk::{Cut, Cutter, Edge, Survey};
use pg_bulk_text::dialect::Dialect;
use pg_bulk_text::reader::{LOOKAHEAD, RecordStart};
use pg_bulk_text::scan::{Level, Needles, Scanner};
use pgrx::{check_for_interrupts, pg_sys};

use super::chunk_order::ChunkOrder;
use super::encoding::{Encodings, Treatment};
use super::file_identity::{Identity, changed};
use super::ring::{Arrival, NAP, Ring};
use super::stream::Stream;
use crate::error::{Result, out_of_memory};

/// Room for the beginning of a chunk's first record. A longer beginning moves the bytes that were read.
const ROOM: usize = 64 * 1024;

/// A chunk that was read and not yet cut.
#[derive(Debug)]
pub struct UncutChunk {
    offset: u64,
    /// Position in the buffer.
    at: usize,
    /// Number of bytes before it that were read, too.
    head: usize,
    len: usize,
    /// Length including the bytes that were read behind the chunk.
    known: usize,
    /// The chunk is known to be ASCII, without a NUL.
    is_plain: bool,
}

impl Stream {
    /// Whether several processes can read this stream at once: a regular file whose delimiters can be found without
    /// conversion.
    pub fn has_chunks(&self) -> bool {
        self.size().is_some() && is_searchable(self.encodings(), self.reader.dialect())
    }

    /// Whether several processes can read the decompressed data of this file, which one of them decompresses.
    pub fn can_share(&self) -> bool {
        self.source().can_share() && is_searchable(self.encodings(), self.reader.dialect())
    }

    /// Waits until a chunk of the decompressed data is there. `None` if no process needs the chunk any more. Guarded,
    /// and interruptible.
    pub fn wait_for_chunk(&self, shared: &ChunkOrder, ticket: u64, offset: u64, len: usize) -> Option<Arrival> {
        let ring = self.source().ring()?;
        loop {
            if shared.is_over(ticket) {
                return None;
            }
            if let Some(arrival) = ring.look(offset, len, shared.may_cut(ticket)) {
                return Some(arrival);
            }
            check_for_interrupts!();
            nap();
        }
    }

    /// Whether delimiters can be found anywhere in the stream's files without conversion.
    pub fn is_searchable(&self) -> bool {
        is_searchable(self.encodings(), self.reader.dialect())
    }

    /// Whether a worker would convert the records to the same values as the leader.
    pub fn is_for_workers(&self) -> bool {
        !self.reader.dialect().is_binary() || self.encodings().are_servers()
    }

    /// Returns the identity of the open file. `None` if it is no regular file.
    pub fn identity(&self) -> Option<Identity> {
        self.source().file_size()?;
        Some(Identity::of(&self.source().metadata().ok()?))
    }

    /// Creates a cutter for the chunks of this stream. `None` if its dialect is not regular.
    pub fn cutter(&self, place: RecordStart) -> Option<Cutter> {
        let dialect = self.reader.dialect();
        let needles = Needles::new(dialect, place.eol)?;
        Some(Cutter::new(dialect, Scanner::new(needles, Level::best())))
    }

    /// Reads the `len` bytes at `offset` of the file, and the lookahead behind them. Guarded.
    pub fn read_chunk(&mut self, offset: u64, len: usize) -> Result<UncutChunk> {
        let size = self.source().ring().map_or_else(|| self.source().size().unwrap_or(0), Ring::filled);
        let left = size.saturating_sub(offset);
        let known = (len + LOOKAHEAD).min(usize::try_from(left).unwrap_or(usize::MAX)).max(len);
        let (source, reader) = self.source_and_reader();
        let buffer = reader.chunk_space(ROOM + known).ok_or_else(out_of_memory)?;
        source.read_exactly(buffer.get_mut(ROOM..ROOM + known).unwrap_or_default(), offset)?;
        Ok(UncutChunk { offset, at: ROOM, head: 0, len, known, is_plain: false })
    }

    /// Surveys a chunk before its ticket is next.
    pub fn survey(&mut self, uncut: &mut UncutChunk, cutter: &Cutter) -> Survey {
        let survey = cutter.survey(self.chunk_bytes(uncut));
        uncut.is_plain = cutter.is_plain(&survey);
        survey
    }

    /// Returns the bytes of a chunk.
    pub fn chunk_bytes(&mut self, uncut: &UncutChunk) -> &[u8] {
        let buffer = self.reader.chunk_space(0).unwrap_or_default();
        buffer.get(uncut.at..uncut.at + uncut.len).unwrap_or_default()
    }

    /// Cuts a chunk when its ticket is next. Guarded.
    pub fn cut(&mut self, uncut: &mut UncutChunk, cutter: &Cutter, survey: &Survey, edge: Edge) -> Result<Cut> {
        let cut = cutter.cut(self.chunk_bytes(uncut), survey, uncut.offset, edge);
        if !cut.unsure || cut.suspicious {
            return Ok(cut);
        }
        self.read_head(uncut, edge.record)?;
        let buffer = self.reader.chunk_space(0).unwrap_or_default();
        let bytes = buffer.get(uncut.at - uncut.head..uncut.at + uncut.len).unwrap_or_default();
        Ok(cutter.cut_again(cut, bytes, uncut.offset, edge))
    }

    /// Reads the bytes from `start` to the chunk, unless they are there.
    fn read_head(&mut self, uncut: &mut UncutChunk, start: u64) -> Result<()> {
        let head = usize::try_from(uncut.offset.saturating_sub(start)).unwrap_or(0);
        if uncut.head == head {
            return Ok(());
        }
        let (source, reader) = self.source_and_reader();
        if head > uncut.at {
            let buffer = reader.chunk_space(head + uncut.known).ok_or_else(out_of_memory)?;
            buffer.copy_within(uncut.at..uncut.at + uncut.known, head);
            uncut.at = head;
        }
        let buffer = reader.chunk_space(0).ok_or_else(out_of_memory)?;
        source.read_exactly(buffer.get_mut(uncut.at - head..uncut.at).unwrap_or_default(), start)?;
        uncut.head = head;
        Ok(())
    }

    /// Makes the records from `place` to byte `end` of the chunk the next and last records of the stream. `place` is
    /// not behind the chunk. Guarded.
    pub fn begin_chunk(&mut self, mut uncut: UncutChunk, place: RecordStart, end: usize) -> Result<()> {
        self.read_head(&mut uncut, place.offset)?;
        let UncutChunk { offset, at, head, len, known, is_plain } = uncut;
        // Where a chunk begins with the end of a record, the next record may begin inside the chunk.
        let inside = usize::try_from(place.offset.saturating_sub(offset)).unwrap_or(usize::MAX).min(end);
        let plain = if is_plain { at..at + len } else { 0..0 };
        self.reader.begin_chunk(at - head + inside, at + end, at + known, plain, place);
        self.verify_chunk();
        Ok(())
    }

    /// Frees the memory of a huge record. `len` is the length of a chunk.
    pub fn shrink(&mut self, len: usize) {
        self.reader.shrink_chunk_space((ROOM + len + LOOKAHEAD).max(1 << 20));
    }

    /// Continues with the file in order, from a record on. A compressed file is decompressed again, so it must not have
    /// changed. Guarded.
    pub fn resume(&mut self, place: RecordStart) -> Result<()> {
        if let Some(ring) = self.source().ring()
            && !self.identity().is_some_and(|now| now.continues(ring.file()))
        {
            return Err(changed(self.source().name()));
        }
        let (source, reader) = self.source_and_reader();
        source.seek(place.offset)?;
        reader.resume(place);
        Ok(())
    }
}

/// Sleeps for a moment; pg_stat_activity shows the wait.
fn nap() {
    let show = |event: u32| {
        // SAFETY: points to a word of this process, as in pgstat_report_wait_start (wait_event.h).
        unsafe { pg_sys::my_wait_event_info.write_volatile(event) };
    };
    show(pg_sys::PG_WAIT_EXTENSION);
    std::thread::sleep(NAP);
    show(0);
}

/// Whether delimiters can be found anywhere in a file without conversion.
pub fn is_searchable(encodings: &Encodings, dialect: &Dialect) -> bool {
    if dialect.is_binary() {
        // Receive functions convert from client_encoding, which is the server's encoding in a worker.
        return encodings.are_servers();
    }
    let treatment = encodings.treatment();
    let safe = match treatment {
        // No line end is a byte of a longer character, in any encoding.
        Treatment::Utf8 | Treatment::Nothing => true,
        Treatment::Verify => encodings.is_safe(),
        Treatment::Convert => false,
    };
    safe && dialect.is_regular()
}
