//! The client of a COPY FROM STDIN as a source of bytes.
//!
//! The client sends messages of the frontend/backend protocol, which are read as CopyGetData (copyfromparse.c) reads
//! them: CopyData, CopyDone or CopyFail. Errors have COPY's texts and appear when they appear in COPY: an unexpected
//! end is reported after the bytes before it are used up.
//!
//! **A read waits for one message only.** A client may send a line and wait for its effect. So a read waits for the
//! first message, and then takes the messages that are there already, up to the requested size. psql's messages have 8
//! kB; decoding is faster with hundreds of kilobytes.
//!
//! **A cancel request waits for the end of a message**, as in COPY: an error in the middle of a message would end the
//! connection. SIGTERM does not wait.

use std::ffi::{CStr, c_int};

use pgrx::{PgSqlErrorCode as Code, check_for_interrupts, pg_sys};

use crate::error::{Error, Result};
use crate::server::server_text::from_server;
use crate::server::unguarded as c;

/// Largest CopyData message, and largest other message (`PQ_LARGE_MESSAGE_LIMIT`, `PQ_SMALL_MESSAGE_LIMIT`, libpq.h).
const LARGE: c_int = 0x3fff_ffff - 1;
const SMALL: c_int = 10_000;

/// Kind of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    Data,
    /// End of the data.
    Done,
    Failed,
    /// Flush or Sync, which are ignored.
    Idle,
    Unexpected(u8),
    /// The connection is lost.
    Lost,
    /// No message has arrived; the call does not wait.
    None,
}

/// A client that sends data.
#[derive(Debug)]
pub struct Client {
    columns: usize,
    /// The latest message; its cursor counts the bytes used up. Belongs to the memory context in which it was created.
    message: *mut pg_sys::StringInfoData,
    /// The message that ends the data. Bytes before it may not be used up yet.
    ended_by: Option<Message>,
    /// Bytes that were taken ahead of the first read, and the number of them that were delivered.
    ahead: Vec<u8>,
    delivered: usize,
}

impl Client {
    /// Creates a client that was not asked for data yet. Guarded; the current memory context must outlive the source.
    pub fn new(columns: usize) -> Client {
        // SAFETY: a guarded call.
        let message = unsafe { pg_sys::makeStringInfo() };
        Client { columns, message, ended_by: None, ahead: Vec::new(), delivered: 0 }
    }

    /// Asks the client for data, as `ReceiveCopyBegin` (copyfromparse.c) in text format. Guarded.
    pub fn ask(&self) {
        let columns = u16::try_from(self.columns).unwrap_or(u16::MAX);
        // SAFETY: a guard around plain calls. The buffer is begun before it is used; the bytes are valid.
        unsafe {
            c::guard(|| {
                let mut buffer = pg_sys::StringInfoData::default();
                c::pq_beginmessage(&raw mut buffer, b'G'.cast_signed());
                c::pq_sendbytes(&raw mut buffer, c"".as_ptr().cast(), 1);
                c::pq_sendbytes(&raw mut buffer, columns.to_be_bytes().as_ptr().cast(), 2);
                for _ in 0..columns {
                    c::pq_sendbytes(&raw mut buffer, [0u8, 0].as_ptr().cast(), 2);
                }
                c::pq_endmessage(&raw mut buffer);
                // The client waits for this message before it sends.
                ((*c::PqCommMethods).flush)();
            });
        }
    }

    /// Receives the next message in the place of the current one, which is used up. `waits`: waits for one. Guarded.
    fn receive(&mut self, waits: bool) -> Message {
        let buffer = self.message;
        // SAFETY: a guard around plain calls. The buffer is that of `new`, which has no other user. Error recovery resets
        // the count.
        unsafe {
            c::guard(|| {
                // HOLD_CANCEL_INTERRUPTS
                pg_sys::QueryCancelHoldoffCount += 1;
                c::pq_startmsgread();
                let mut kind = 0u8;
                let got = match waits.then(|| c::pq_getbyte()) {
                    None => c::pq_getbyte_if_available(&raw mut kind),
                    Some(byte @ 0..=255) => {
                        kind = byte as u8;
                        1
                    }
                    Some(_) => -1,
                };
                let mut message = match (got, kind) {
                    (0, _) => Message::None,
                    (1, b'd') => Message::Data,
                    (1, b'c') => Message::Done,
                    (1, b'f') => Message::Failed,
                    (1, b'H' | b'S') => Message::Idle,
                    (1, kind) => Message::Unexpected(kind),
                    _ => Message::Lost,
                };
                match message {
                    Message::None => c::pq_endmsgread(),
                    Message::Lost | Message::Unexpected(_) => (),
                    _ if c::pq_getmessage(buffer, if message == Message::Data { LARGE } else { SMALL }) != 0 => {
                        message = Message::Lost;
                    }
                    // It holds no data.
                    Message::Idle => (*buffer).cursor = (*buffer).len,
                    _ => (),
                }
                pg_sys::QueryCancelHoldoffCount -= 1;
                message
            })
        }
    }

    /// Returns all the client's data if they are shorter than `limit` and their end has arrived. Otherwise later reads
    /// return them. Guarded.
    pub fn all_of_few(&mut self, limit: usize) -> Option<&[u8]> {
        let mut first = vec![0; limit];
        // The next read reports a failure.
        let count = self.fill(&mut first).unwrap_or(0);
        first.truncate(count);
        self.ahead = first;
        (count < limit && self.ended_by == Some(Message::Done)).then_some(&*self.ahead)
    }

    /// Reads the next bytes; none at the end. Guarded, and interruptible once a message is there.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let ahead = self.ahead.get(self.delivered..).unwrap_or_default();
        if !ahead.is_empty() {
            let count = ahead.len().min(buffer.len());
            buffer.iter_mut().zip(ahead).for_each(|(to, from)| *to = *from);
            self.delivered += count;
            return Ok(count);
        }
        self.fill(buffer).map_err(|message| self.complaint(message))
    }

    /// Reads the next bytes of messages. Returns the message that ended the data on each call after the last byte.
    /// Guarded.
    fn fill(&mut self, buffer: &mut [u8]) -> std::result::Result<usize, Message> {
        let mut filled = 0;
        loop {
            let room = buffer.get_mut(filled..).unwrap_or_default();
            filled += self.take(room);
            if filled == buffer.len() {
                return Ok(filled);
            }
            let message = match self.ended_by {
                Some(message) => message,
                None => {
                    let waits = filled == 0;
                    if waits {
                        check_for_interrupts!();
                    }
                    self.receive(waits)
                }
            };
            match message {
                Message::Data | Message::Idle => continue,
                Message::None => return Ok(filled),
                _ => self.ended_by = Some(message),
            }
            if filled > 0 || message == Message::Done {
                return Ok(filled);
            }
            return Err(message);
        }
    }

    /// Copies bytes from the rest of the current message.
    fn take(&mut self, room: &mut [u8]) -> usize {
        if self.ended_by.is_some() {
            return 0;
        }
        // SAFETY: the message's own bytes, of which `cursor` are used up.
        unsafe {
            let message = &mut *self.message;
            let left = usize::try_from(message.len - message.cursor).unwrap_or(0);
            let count = left.min(room.len());
            let from = message.data.add(usize::try_from(message.cursor).unwrap_or(0));
            room.as_mut_ptr().copy_from_nonoverlapping(from.cast(), count);
            message.cursor += c_int::try_from(count).unwrap_or(0);
            count
        }
    }

    #[cold]
    fn complaint(&self, message: Message) -> Error {
        match message {
            Message::Failed => {
                // SAFETY: a guarded call that converts the rest of the message.
                let why = unsafe { CStr::from_ptr(pg_sys::pq_getmsgstring(self.message)) };
                let message = format!("COPY from stdin failed: {}", from_server(why));
                Error::new(Code::ERRCODE_QUERY_CANCELED, message)
            }
            Message::Unexpected(kind) => {
                let message = format!("unexpected message type 0x{kind:02X} during COPY from stdin");
                Error::new(Code::ERRCODE_PROTOCOL_VIOLATION, message)
            }
            _ => {
                let message = "unexpected EOF on client connection with an open transaction";
                Error::new(Code::ERRCODE_CONNECTION_FAILURE, message)
            }
        }
    }

    /// Ignores data behind the end-of-data marker. Guarded.
    pub fn ignore_rest(&mut self) -> Result<()> {
        let mut ignored = [0; 8192];
        while self.read(&mut ignored)? > 0 {}
        Ok(())
    }
}
