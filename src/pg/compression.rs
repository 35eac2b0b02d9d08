//! Compressed bytes: which they are, and what they stand for.
//!
//! What a file's first bytes say is believed, and not its name. Each decoder goes on behind the end of a member, frame or
//! stream as long as there is another one, as the programs that write such files do when they are given several. What is
//! left behind the last one is an error: it may be the head of what is missing.

use std::fs::File;
use std::io::{BufRead, Error, ErrorKind, Read, Result};
use std::os::unix::fs::FileExt;

use super::lz4_frames::Frames;

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    Gzip,
    Zstd,
    Lz4,
    Bzip2,
    Xz,
}

/// What the option `compression` says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compressed {
    /// As the first bytes say.
    #[default]
    Auto,
    No,
    By(Compression),
}

impl Compressed {
    /// The value of the option.
    pub fn name(self) -> &'static str {
        match self {
            Compressed::Auto => "auto",
            Compressed::No => "none",
            Compressed::By(compression) => compression.name(),
        }
    }
}

/// Bytes that tell all of them apart.
pub const TELLING: usize = 10;

const GZIP: &[u8] = b"\x1f\x8b\x08";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// Behind the first byte.
const SKIPPABLE: &[u8] = b"\x2a\x4d\x18";
const LZ4: &[u8] = b"\x04\x22\x4d\x18";
const BZIP2: &[u8] = b"BZh";
const XZ: &[u8] = b"\xfd7zXZ\x00";
const SIGNATURES: [&[u8]; 5] = [GZIP, ZSTD, LZ4, BZIP2, XZ];

/// Memory that a decoder may take for what it looks back at. zstd's decoder has this limit by itself, as its program has, and
/// xz's own compressor asks for half of it at most without being told otherwise.
pub const MOST_MEMORY: u64 = 128 << 20;

impl Compression {
    const ALL: [Compression; 5] =
        [Compression::Gzip, Compression::Zstd, Compression::Lz4, Compression::Bzip2, Compression::Xz];

    pub fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Lz4 => "lz4",
            Compression::Bzip2 => "bzip2",
            Compression::Xz => "xz",
        }
    }

    /// What begins with these bytes.
    pub fn of(first: &[u8]) -> Option<Compression> {
        Compression::ALL.into_iter().find(|compression| compression.begins(first))
    }

    /// Is it still to be told, and only by more bytes than these?
    pub fn may_begin(first: &[u8]) -> bool {
        first.len() < TELLING
            && Compression::of(first).is_none()
            && (first.starts_with(BZIP2)
                || SIGNATURES.iter().any(|signature| signature.starts_with(first))
                || matches!(first.split_first(), Some((0x50..=0x5f, rest)) if SKIPPABLE.starts_with(rest)))
    }

    fn begins(self, first: &[u8]) -> bool {
        match self {
            // With the one method that there is.
            Compression::Gzip => first.starts_with(GZIP),
            // Frames, and frames to skip, which pzstd begins with.
            Compression::Zstd => {
                first.starts_with(ZSTD)
                    || matches!(first.split_first(), Some((0x50..=0x5f, rest)) if rest.starts_with(SKIPPABLE))
            }
            Compression::Lz4 => first.starts_with(LZ4),
            // A block, or the end of what has none. The letters alone might begin a text.
            Compression::Bzip2 => {
                let block = || first.get(4..10);
                first.starts_with(BZIP2)
                    && matches!(first.get(3), Some(b'1'..=b'9'))
                    && (block() == Some(b"1AY&SY") || block() == Some(b"\x17\x72\x45\x38\x50\x90"))
            }
            Compression::Xz => first.starts_with(XZ),
        }
    }

    /// The bytes that those of `source` stand for.
    pub fn decoder<'a, R: BufRead + 'a>(self, source: R) -> Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(source)),
            Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(source)?),
            Compression::Lz4 => Box::new(Frames::new(source)?),
            Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(source)),
            Compression::Xz => {
                let flags = liblzma::stream::CONCATENATED;
                let stream = liblzma::stream::Stream::new_stream_decoder(MOST_MEMORY, flags)?;
                Box::new(liblzma::bufread::XzDecoder::new_stream(source, stream))
            }
        })
    }
}

impl Compressed {
    /// None if there is no such thing.
    pub fn by_name(name: &str) -> Option<Compressed> {
        match name {
            "auto" => Some(Compressed::Auto),
            "none" => Some(Compressed::No),
            _ => Compression::ALL.into_iter().find(|c| c.name() == name).map(Compressed::By),
        }
    }

    /// How what begins with these bytes is compressed, if it is.
    pub fn of(self, first: &[u8]) -> Option<Compression> {
        match self {
            Compressed::Auto => Compression::of(first),
            Compressed::No => None,
            Compressed::By(compression) => Some(compression),
        }
    }
}

/// What a regular file begins with, as far as it tells how it is compressed. What cannot be read now is for who reads the
/// file to tell.
pub fn first_bytes(file: &File) -> Vec<u8> {
    let mut first = vec![0; TELLING];
    let mut n = 0;
    while let Ok(more @ 1..) = file.read_at(first.get_mut(n..).unwrap_or_default(), n as u64) {
        n += more;
    }
    first.truncate(n);
    first
}

/// Do the compressed bytes end too early?
pub fn is_truncated(error: &Error) -> bool {
    error.kind() == ErrorKind::UnexpectedEof
}

/// Has the decoder had no memory? Only some of them say so in a way of their own.
pub fn lacks_memory(error: &Error) -> bool {
    error.kind() == ErrorKind::OutOfMemory
        || is_lzmas(error, liblzma::stream::Error::Mem)
        || error.to_string().starts_with("Allocation error")
}

/// Do the bytes ask for more memory than [`MOST_MEMORY`]? They may be all right.
pub fn wants_memory(error: &Error) -> bool {
    // ZSTD_getErrorName of ZSTD_error_frameParameter_windowTooLarge.
    is_lzmas(error, liblzma::stream::Error::MemLimit) || error.to_string().starts_with("Frame requires too much memory")
}

fn is_lzmas(error: &Error, which: liblzma::stream::Error) -> bool {
    error.get_ref().and_then(|inner| inner.downcast_ref::<liblzma::stream::Error>()) == Some(&which)
}
