//! The text of a file: its bytes decompressed, then UTF-16 as UTF-8, then each record of JSON on a line of its own.
//!
//! The first bytes decide which of these steps a file needs. A file that needs one is read like a compressed file: one
//! thread makes the text, and several processes may read it ([`super::ring`]). A step that a file does not need costs
//! one look at its first bytes.
//!
//! The tricky point: the text within a compressed file, or of a pipe, is seen only when it is read. So
//! [`Rewritten`] decides at its first bytes, and passes all others on unread if there is nothing to rewrite.

use std::fs::File;
use std::io::{BufRead, Error, ErrorKind, Read, Result};
use std::os::unix::fs::FileExt;

use pg_bulk_text::json_lines::{self, JsonLines};
use pg_bulk_text::utf16::Order;

use super::compression::{Compressed, Compression, SIGNATURE_BYTES};

/// Bytes that are rewritten at a time. The form of JSON is recognized by the first ones.
const PIECE: usize = 64 << 10;

/// When a file is read as UTF-16.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Utf16 {
    #[default]
    Never,
    /// If it begins with a byte order mark of UTF-16.
    Marked,
    /// Always: in the order of its byte order mark, or else in this one.
    Always(Order),
}

/// How a file's bytes become text, as far as it is known before they are read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Coding {
    pub compressed: Compressed,
    pub utf16: Utf16,
    /// U+FFFD replaces invalid units of UTF-16.
    pub mends: bool,
    /// The text is JSON.
    pub json: bool,
}

/// The steps that the bytes of a file need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    compression: Option<Compression>,
    coding: Coding,
}

impl Utf16 {
    /// Returns the encoding with this name, if it is UTF-16. As for the server's names, only letters and digits count.
    pub fn by_name(name: &str) -> Option<Utf16> {
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        match name.to_ascii_lowercase().as_str() {
            "utf16" | "utf16le" => Some(Utf16::Always(Order::Little)),
            "utf16be" => Some(Utf16::Always(Order::Big)),
            _ => None,
        }
    }

    /// Returns the name of the encoding, unless it depends on the file.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Utf16::Always(Order::Little) => Some("UTF16LE"),
            Utf16::Always(Order::Big) => Some("UTF16BE"),
            Utf16::Never | Utf16::Marked => None,
        }
    }

    /// Returns the order of the bytes of a file that begins with `first`, if it is UTF-16.
    fn order(self, first: &[u8]) -> Option<Order> {
        match self {
            Utf16::Never => None,
            Utf16::Marked => Order::of_mark(first),
            Utf16::Always(order) => Some(Order::of_mark(first).unwrap_or(order)),
        }
    }
}

impl From<Compressed> for Coding {
    fn from(compressed: Compressed) -> Coding {
        Coding { compressed, ..Coding::default() }
    }
}

impl Coding {
    /// Whether no bytes of a file show that it needs a step.
    pub fn is_plain(&self) -> bool {
        *self == Coding::from(Compressed::No)
    }

    /// Returns the steps that a regular file needs. None if its bytes are its text.
    pub fn of_file(&self, file: &File) -> Option<Steps> {
        let first = first_bytes(file, SIGNATURE_BYTES);
        let steps = self.steps(&first)?;
        // The form of JSON is known only by its first line.
        let is_decoded = steps.compression.is_some() || steps.is_utf16();
        let is_nested = || json_lines::is_nested(&first_bytes(file, PIECE), true) == Some(true);
        (is_decoded || is_nested()).then_some(steps)
    }

    /// Returns the steps that bytes may need that begin with `first`. None if they are text.
    pub fn steps(&self, first: &[u8]) -> Option<Steps> {
        let compression = self.compressed.of(first);
        let mut coding = *self;
        if compression.is_none() {
            coding.utf16 = self.utf16.order(first).map_or(Utf16::Never, Utf16::Always);
        }
        let has_steps = compression.is_some() || coding.utf16 != Utf16::Never || coding.json;
        has_steps.then_some(Steps { compression, coding })
    }

    /// Whether more bytes than these are needed for [`Coding::steps`].
    pub fn may_begin(&self, first: &[u8]) -> bool {
        let by_mark = self.utf16 == Utf16::Marked && matches!(first, [] | [0xfe | 0xff]);
        by_mark || (self.compressed == Compressed::Auto && Compression::may_begin(first))
    }
}

impl Steps {
    pub fn compression(&self) -> Option<Compression> {
        self.compression
    }

    /// Whether the file is known to be UTF-16. Within a compressed file, a byte order mark does not show this.
    pub fn is_utf16(&self) -> bool {
        matches!(self.coding.utf16, Utf16::Always(_))
    }

    /// Returns a reader of the text whose coded bytes are those of `source`.
    pub fn decoder<'a, R: BufRead + 'a>(self, source: R) -> Result<Box<dyn Read + 'a>> {
        match self.compression {
            Some(compression) => self.rewritten(compression.decoder(source)?),
            None => self.rewritten(Box::new(source)),
        }
    }

    /// Returns a reader of the text of decompressed bytes.
    pub fn rewritten<'a>(self, mut bytes: Box<dyn Read + 'a>) -> Result<Box<dyn Read + 'a>> {
        if self.coding.utf16 != Utf16::Never {
            bytes = Box::new(Rewritten::new(bytes, Form::Utf16(self.coding.utf16, self.coding.mends)));
        }
        if self.coding.json {
            bytes = Box::new(Rewritten::new(bytes, Form::Json));
        }
        Ok(bytes)
    }

    /// Whether the decompressed bytes of `source` are its text.
    pub fn leave(&self, source: impl BufRead) -> Result<bool> {
        let Some(compression) = self.compression else { return Ok(false) };
        let (mut first, most) = (Vec::new(), if self.coding.json { PIECE } else { 2 });
        reserve(&mut first, most)?;
        let mut bytes = compression.decoder(source)?.take(most as u64);
        // An error occurs again when the file is read.
        drop(bytes.read_to_end(&mut first));
        Ok(self.coding.utf16.order(&first).is_none()
            && !(self.coding.json && json_lines::is_nested(&first, true) == Some(true)))
    }
}

/// Returns the first bytes of a regular file, for the detection of its format. A read error is ignored here; the later
/// read of the file reports it.
pub fn first_bytes(file: &File, most: usize) -> Vec<u8> {
    let mut first = vec![0; most];
    let mut n = 0;
    while let Ok(more @ 1..) = file.read_at(first.get_mut(n..).unwrap_or_default(), n as u64) {
        n += more;
    }
    first.truncate(n);
    first
}

/// The form that the first bytes may have.
#[derive(Debug, Clone, Copy)]
enum Form {
    Utf16(Utf16, bool),
    Json,
}

impl Form {
    /// Returns what rewrites bytes that begin with `first`, or with `ended` are no more than these. None: more bytes are
    /// needed. Some(None): nothing.
    fn recognize(self, first: &[u8], ended: bool) -> Option<Option<Rewriter>> {
        let rewriter = match self {
            Form::Utf16(..) if first.len() < 2 && !ended => return None,
            Form::Utf16(utf16, mends) => utf16.order(first).map(|order| Rewriter::Utf16(order, mends)),
            Form::Json => json_lines::is_nested(first, ended || first.len() >= PIECE)?
                .then(|| Rewriter::Json(JsonLines::default())),
        };
        Some(rewriter)
    }
}

/// What changes bytes.
enum Rewriter {
    /// Turns UTF-16 into UTF-8. True: mends it.
    Utf16(Order, bool),
    /// Gives each record of JSON a line of its own.
    Json(JsonLines),
}

enum State {
    New(Form),
    /// The bytes are passed on.
    Plain,
    Rewriting(Rewriter),
    Over,
}

/// Rewrites bytes if the first of them say so.
struct Rewritten<'a> {
    inner: Box<dyn Read + 'a>,
    state: State,
    /// Bytes to be rewritten.
    raw: Vec<u8>,
    ended: bool,
    text: Vec<u8>,
    /// Bytes of the text that are complete, and those of them that were returned.
    complete: usize,
    given: usize,
}

impl<'a> Rewritten<'a> {
    fn new(inner: Box<dyn Read + 'a>, form: Form) -> Rewritten<'a> {
        let (raw, text) = (Vec::new(), Vec::new());
        Rewritten { inner, state: State::New(form), raw, ended: false, text, complete: 0, given: 0 }
    }

    /// Read more bytes to be rewritten.
    fn read_more(&mut self) -> Result<()> {
        let from = self.raw.len();
        reserve(&mut self.raw, PIECE)?;
        self.raw.resize(from + PIECE, 0);
        let read = self.inner.read(self.raw.get_mut(from..).unwrap_or_default());
        self.raw.truncate(from + read.as_ref().map_or(0, |n| *n));
        self.ended = read? == 0;
        Ok(())
    }
}

impl Read for Rewritten<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            let mut left = self.text.get(self.given..self.complete).unwrap_or_default();
            if !left.is_empty() {
                let n = left.read(buffer)?;
                self.given += n;
                return Ok(n);
            }
            self.text.drain(..self.complete.min(self.text.len()));
            (self.complete, self.given) = (0, 0);
            match &mut self.state {
                State::Plain => return self.inner.read(buffer),
                State::Over => return Ok(0),
                State::New(form) => match form.recognize(&self.raw, self.ended) {
                    None => self.read_more()?,
                    Some(None) => {
                        self.text = std::mem::take(&mut self.raw);
                        self.complete = self.text.len();
                        self.state = State::Plain;
                    }
                    Some(Some(rewriter)) => self.state = State::Rewriting(rewriter),
                },
                State::Rewriting(rewriter) => {
                    let used = match rewriter {
                        Rewriter::Utf16(order, mends) => {
                            reserve(&mut self.text, 2 * self.raw.len() + 4)?;
                            let used = order.append_utf8(&self.raw, self.ended, *mends, &mut self.text);
                            self.complete = self.text.len();
                            used
                        }
                        Rewriter::Json(lines) => {
                            reserve(&mut self.text, lines.most_bytes(self.raw.len()))?;
                            self.complete = lines.append(&self.raw, &mut self.text);
                            if self.ended {
                                lines.end(&mut self.text);
                                self.complete = self.text.len();
                            }
                            self.raw.len()
                        }
                    };
                    self.raw.drain(..used);
                    if self.ended {
                        self.state = State::Over;
                    } else if self.complete == 0 {
                        self.read_more()?;
                    }
                }
            }
        }
    }
}

/// Memory is reserved before it is used, because a failed allocation would end the process.
fn reserve(bytes: &mut Vec<u8>, more: usize) -> Result<()> {
    bytes.try_reserve(more).map_err(|_| Error::from(ErrorKind::OutOfMemory))
}
