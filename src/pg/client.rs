//! The client of a COPY FROM STDIN, as a source of bytes.
//!
//! What it sends comes in messages of the protocol, as CopyGetData (copyfromparse.c) takes them: data, the end, or that it has
//! failed. Its messages are answered as COPY does, in words and in when these come: an end that nobody expected is met when the
//! bytes before it are used up.
//!
//! **Nobody is kept waiting for more than there is.** A client may send a line and wait for what becomes of it; so only the
//! first message is waited for, and then those are taken that are there already, up to what is asked for: psql's have 8 kB,
//! and rows are decoded better by the hundred kilobytes.
//!
//! **A cancel request waits for a message**, as in COPY: between the first byte of a message and its last one the connection
//! must not be given up. SIGTERM does not wait.

use std::ffi::{CStr, c_int};

use pgrx::{PgSqlErrorCode as Code, check_for_interrupts, pg_sys};

use super::server_text::from_server;
use super::unguarded as c;
use crate::error::{Error, Result};

/// Bytes of a message of data, and of any other (`PQ_LARGE_MESSAGE_LIMIT`, `PQ_SMALL_MESSAGE_LIMIT`, libpq.h).
const LARGE: c_int = 0x3fff_ffff - 1;
const SMALL: c_int = 10_000;

/// What came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    Data,
    /// All data are there.
    Done,
    Failed,
    /// It says nothing.
    Idle,
    Unexpected(u8),
    /// The connection is gone.
    Lost,
    /// None, and none was waited for.
    None,
}

/// A client that sends data.
#[derive(Debug)]
pub struct Client {
    columns: usize,
    /// The last message, and how much of it is used up. Belongs to the memory context that it was made in.
    message: *mut pg_sys::StringInfoData,
    /// What has come behind data that are not used up yet.
    ended_by: Option<Message>,
    /// Bytes that were taken before anybody asked for them, and how many of them are delivered.
    ahead: Vec<u8>,
    delivered: usize,
}

/// `ReceiveCopyBegin` (copyfromparse.c), of text.
///
/// # Safety
/// A plain frame, or a guard.
unsafe fn ask(columns: usize) {
    let columns = u16::try_from(columns).unwrap_or(u16::MAX);
    // SAFETY: the buffer is begun before it is used; bytes that are there.
    unsafe {
        let mut buffer = pg_sys::StringInfoData::default();
        c::pq_beginmessage(&raw mut buffer, b'G'.cast_signed());
        c::pq_sendbytes(&raw mut buffer, c"".as_ptr().cast(), 1);
        c::pq_sendbytes(&raw mut buffer, columns.to_be_bytes().as_ptr().cast(), 2);
        for _ in 0..columns {
            c::pq_sendbytes(&raw mut buffer, [0u8, 0].as_ptr().cast(), 2);
        }
        c::pq_endmessage(&raw mut buffer);
        // It must know that it can send.
        ((*c::PqCommMethods).flush)();
    }
}

/// The next message; `waits` for it.
///
/// # Safety
/// A plain frame, or a guard; a buffer for the message.
unsafe fn receive(buffer: *mut pg_sys::StringInfoData, waits: bool) -> Message {
    // SAFETY: this function's contract covers the buffer. The count is set back by whoever catches an error.
    unsafe {
        // HOLD_CANCEL_INTERRUPTS
        pg_sys::QueryCancelHoldoffCount += 1;
        c::pq_startmsgread();
        let mut kind = 0u8;
        let got = if waits {
            match c::pq_getbyte() {
                byte @ 0..=255 => {
                    kind = byte as u8;
                    1
                }
                _ => -1,
            }
        } else {
            c::pq_getbyte_if_available(&raw mut kind)
        };
        let message = match (got, kind) {
            (0, _) => Message::None,
            (1, b'd') => Message::Data,
            (1, b'c') => Message::Done,
            (1, b'f') => Message::Failed,
            (1, b'H' | b'S') => Message::Idle,
            (1, kind) => Message::Unexpected(kind),
            _ => Message::Lost,
        };
        let message = match message {
            Message::None => {
                c::pq_endmsgread();
                message
            }
            Message::Lost | Message::Unexpected(_) => message,
            _ if c::pq_getmessage(buffer, if message == Message::Data { LARGE } else { SMALL }) == 0 => message,
            _ => Message::Lost,
        };
        pg_sys::QueryCancelHoldoffCount -= 1;
        message
    }
}

impl Client {
    /// One that is not asked yet. Guarded; the current memory context must outlive the source.
    pub fn new(columns: usize) -> Client {
        // SAFETY: a guarded call.
        let message = unsafe { pg_sys::makeStringInfo() };
        Client { columns, message, ended_by: None, ahead: Vec::new(), delivered: 0 }
    }

    /// Ask it for data. Guarded.
    pub fn ask(&self) {
        // SAFETY: a guarded call.
        unsafe { c::guard(|| ask(self.columns)) }
    }

    /// All that the client sends, if it is less than so much, and comes along with its end. Else nothing is lost. Guarded.
    pub fn all_of_few(&mut self, limit: usize) -> Option<&[u8]> {
        let mut first = vec![0; limit];
        // If there is something to complain of, whoever wants the bytes will.
        let count = self.fill(&mut first).unwrap_or(0);
        first.truncate(count);
        self.ahead = first;
        (count < limit && self.ended_by == Some(Message::Done)).then_some(&*self.ahead)
    }

    /// The next bytes; none at the end. Guarded, and interruptible once a message is there.
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

    /// The next bytes of messages, or the one that there are none for, as often as it is asked. Guarded.
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
                    let (buffer, waits) = (self.message, filled == 0);
                    if waits {
                        check_for_interrupts!();
                    }
                    // SAFETY: the message's buffer, in which nothing is left.
                    unsafe { c::guard(|| receive(buffer, waits)) }
                }
            };
            match message {
                Message::Data | Message::Idle => {
                    if message == Message::Idle {
                        self.forget();
                    }
                    continue;
                }
                Message::None => return Ok(filled),
                _ => self.ended_by = Some(message),
            }
            if filled > 0 || message == Message::Done {
                return Ok(filled);
            }
            return Err(message);
        }
    }

    /// What is left of the message.
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

    /// What is in the buffer is no data.
    fn forget(&mut self) {
        // SAFETY: the message's own length.
        unsafe { (*self.message).cursor = (*self.message).len }
    }

    #[cold]
    fn complaint(&self, message: Message) -> Error {
        match message {
            Message::Failed => {
                // SAFETY: a guarded call that converts what is left of the message.
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

    /// The data have ended before the client has: ignore what it still sends. Guarded.
    pub fn ignore_rest(&mut self) -> Result<()> {
        let mut ignored = [0; 8192];
        while self.read(&mut ignored)? > 0 {}
        Ok(())
    }
}
