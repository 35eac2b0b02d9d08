//! Detects the compression of a file and decompresses it.
//!
//! The first bytes of a file decide, not its name. Each decoder continues behind the end of a member, frame or stream
//! if another one follows, as the programs gzip, zstd, lz4, bzip2 and xz do. Other bytes behind the last one are an
//! error: they may be the head of a truncated member.

use std::io::{BufRead, Error, ErrorKind, Read, Result};

use super::lz4_frames::Frames;

/// Compression format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    Gzip,
    Zstd,
    Lz4,
    Bzip2,
    Xz,
}

/// Value of the option `compression`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compressed {
    /// Detected from the first bytes.
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

/// Number of bytes that identify every format.
pub const SIGNATURE_BYTES: usize = 10;

const GZIP: &[u8] = b"\x1f\x8b\x08";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// Follows the first byte.
const SKIPPABLE: &[u8] = b"\x2a\x4d\x18";
const LZ4: &[u8] = b"\x04\x22\x4d\x18";
const BZIP2: &[u8] = b"BZh";
const XZ: &[u8] = b"\xfd7zXZ\x00";
const SIGNATURES: [&[u8]; 5] = [GZIP, ZSTD, LZ4, BZIP2, XZ];

/// Maximum memory of a decoder's window. zstd's library and program have this limit by default. The presets of xz use
/// dictionaries of at most half this size.
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

    /// Returns the format of data that begin with `first`.
    pub fn of(first: &[u8]) -> Option<Compression> {
        Compression::ALL.into_iter().find(|compression| compression.begins(first))
    }

    /// Whether more bytes than these are needed to detect the format.
    pub fn may_begin(first: &[u8]) -> bool {
        first.len() < SIGNATURE_BYTES
            && Compression::of(first).is_none()
            && (first.starts_with(BZIP2)
                || SIGNATURES.iter().any(|signature| signature.starts_with(first))
                || matches!(first.split_first(), Some((0x50..=0x5f, rest)) if SKIPPABLE.starts_with(rest)))
    }

    fn begins(self, first: &[u8]) -> bool {
        match self {
            // With deflate, the only method.
            Compression::Gzip => first.starts_with(GZIP),
            // Frames, and skippable frames, which pzstd writes first.
            Compression::Zstd => {
                first.starts_with(ZSTD)
                    || matches!(first.split_first(), Some((0x50..=0x5f, rest)) if rest.starts_with(SKIPPABLE))
            }
            Compression::Lz4 => first.starts_with(LZ4),
            // A block, or the end of an empty stream. A text might begin with the letters alone.
            Compression::Bzip2 => {
                let block = || first.get(4..10);
                first.starts_with(BZIP2)
                    && matches!(first.get(3), Some(b'1'..=b'9'))
                    && (block() == Some(b"1AY&SY") || block() == Some(b"\x17\x72\x45\x38\x50\x90"))
            }
            Compression::Xz => first.starts_with(XZ),
        }
    }

    /// Returns a reader of the decompressed bytes of `source`.
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
    /// None if there is no such format.
    pub fn by_name(name: &str) -> Option<Compressed> {
        match name {
            "auto" => Some(Compressed::Auto),
            "none" => Some(Compressed::No),
            _ => Compression::ALL.into_iter().find(|c| c.name() == name).map(Compressed::By),
        }
    }

    /// Returns the format of data that begin with `first`; None if they are not compressed.
    pub fn of(self, first: &[u8]) -> Option<Compression> {
        match self {
            Compressed::Auto => Compression::of(first),
            Compressed::No => None,
            Compressed::By(compression) => Some(compression),
        }
    }
}

/// Whether the compressed data end too early.
pub fn is_truncated(error: &Error) -> bool {
    error.kind() == ErrorKind::UnexpectedEof
}

/// Whether the decoder is out of memory. Only some decoders report this with an error kind of its own.
pub fn lacks_memory(error: &Error) -> bool {
    error.kind() == ErrorKind::OutOfMemory
        || is_lzmas(error, liblzma::stream::Error::Mem)
        || error.to_string().starts_with("Allocation error")
}

/// Whether the data require more memory than [`MOST_MEMORY`]. They may be valid.
pub fn wants_memory(error: &Error) -> bool {
    // ZSTD_getErrorName of ZSTD_error_frameParameter_windowTooLarge.
    is_lzmas(error, liblzma::stream::Error::MemLimit) || error.to_string().starts_with("Frame requires too much memory")
}

fn is_lzmas(error: &Error, which: liblzma::stream::Error) -> bool {
    error.get_ref().and_then(|inner| inner.downcast_ref::<liblzma::stream::Error>()) == Some(&which)
}
