//! Fuzz target for compressed files: several threads, if the file can be divided, compared with one decoder, which gets
//! all bytes at once or a few at a time. The decompressed bytes must be equal, and either all of them fail or none.
//!
//! The head chooses how the file is made: the input unchanged, or members with parts of it. Some members contain noise,
//! so that the file has several parts, and a byte may be changed, removed or inserted.
#![no_main]

use std::fs::File;
use std::io::{BufRead, Cursor, Read, Write};
use std::os::fd::FromRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The modules of the extension that do not depend on a server.
#[path = "../../src/input"]
#[allow(dead_code)]
mod input {
    mod coding;
    pub mod compression;
    pub mod decompressor;
    mod lz4_frames;
}

/// Fault points do nothing here.
mod server {
    pub mod points {
        macro_rules! point_errno {
            ($name:literal) => {
                None::<i32>
            };
        }
        pub(crate) use point_errno;
    }
}

/// A stand-in for the server's setting.
mod guc {
    pub fn memory_limit() -> usize {
        64 << 20
    }
}

use input::compression::Compression;
use input::decompressor::Input;
use input::decompressor::members::{self, bytes_ahead};

/// Limit of decompressed bytes: a short input may expand to many.
const MOST: u64 = 4 << 20;

libfuzzer_sys::fuzz_target!(|input: &[u8]| run(input));

fn run(input: &[u8]) {
    let Some((&[which, how, place, change, step, noise], data)) = input.split_first_chunk::<6>() else { return };
    let all = [Compression::Gzip, Compression::Zstd, Compression::Lz4, Compression::Bzip2, Compression::Xz];
    let compression = all[usize::from(which) % all.len()];
    let mut file = if how & 1 == 0 { data.to_vec() } else { made(compression, data, noise) };
    damage(&mut file, how >> 1 & 3, place, change);
    let (expected, is_wrong) = all_of(compression.decoder(Cursor::new(&file)));
    let (found, was_wrong) = all_of(members::decompressed(compression, in_memory(&file), Arc::new(AtomicU64::new(0))));
    check("by several", &found, was_wrong, &expected, is_wrong);
    let step = 1 + usize::from(step);
    let (found, was_wrong) = all_of(compression.decoder(Steps { inner: &file, step }));
    check("in steps", &found, was_wrong, &expected, is_wrong);
}

fn check(how: &str, found: &[u8], was_wrong: bool, expected: &[u8], is_wrong: bool) {
    assert_eq!(was_wrong, is_wrong, "{how}: wrong");
    // The number of bytes before an error depends on the size of the requests.
    let common = if is_wrong { found.len().min(expected.len()) } else { expected.len().max(found.len()) };
    assert!(found.get(..common) == expected.get(..common), "{how}: {} bytes, {}", found.len(), expected.len());
}

/// Returns the bytes that a decoder makes, and whether it ends with an error.
fn all_of<R: Read>(decoder: std::io::Result<R>) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let result = decoder.and_then(|decoder| decoder.take(MOST).read_to_end(&mut bytes));
    (bytes, result.is_err())
}

/// Makes members, frames or streams of parts of the data.
fn made(compression: Compression, data: &[u8], noise: u8) -> Vec<u8> {
    let mut file = Vec::new();
    let mut rest = data;
    while let Some((&by, behind)) = rest.split_first() {
        let (piece, behind) = behind.split_at(usize::from(by & 31).min(behind.len()));
        rest = behind;
        let mut content = piece.to_vec();
        if by & 32 != 0 && file.len() < 600 << 10 {
            let mut state = u32::from(noise) | 1;
            let next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            };
            content.extend(std::iter::repeat_with(next).take(60_000));
        }
        match compression {
            Compression::Gzip => file.extend(gzip(&content, by & 64 != 0)),
            Compression::Zstd if by & 192 == 192 => {
                file.extend([0x50 | by & 15, 0x2a, 0x4d, 0x18]);
                file.extend((content.len() as u32).to_le_bytes());
                file.extend(content);
            }
            Compression::Zstd => file.extend(zstd::bulk::compress(&content, 1).expect("memory")),
            Compression::Lz4 => {
                let mut builder = lz4::EncoderBuilder::new();
                let builder = builder.checksum(lz4::ContentChecksum::ChecksumEnabled).level(1);
                let mut encoder = builder.build(Vec::new()).expect("memory");
                encoder.write_all(&content).expect("memory");
                file.extend(encoder.finish().0);
            }
            Compression::Bzip2 => {
                let mut encoder = bzip2::write::BzEncoder::new(&mut file, bzip2::Compression::fast());
                encoder.write_all(&content).expect("memory");
            }
            Compression::Xz => {
                let mut encoder = liblzma::write::XzEncoder::new(&mut file, 0);
                encoder.write_all(&content).expect("memory");
            }
        }
    }
    file
}

/// Makes a gzip member, with its length as in files of bgzip if `has_length` is set.
fn gzip(content: &[u8], has_length: bool) -> Vec<u8> {
    let level = if content.len() > 1000 { flate2::Compression::none() } else { flate2::Compression::fast() };
    let mut encoder = flate2::GzBuilder::new();
    if has_length {
        encoder = encoder.extra(b"BC\x02\x00\x00\x00".to_vec());
    }
    let mut encoder = encoder.write(Vec::new(), level);
    encoder.write_all(content).expect("memory");
    let mut member = encoder.finish().expect("memory");
    if has_length && let Ok(length) = u16::try_from(member.len() - 1) {
        member[16..18].copy_from_slice(&length.to_le_bytes());
    }
    member
}

/// Changes, removes or inserts a byte at any position, most likely near the start or the end.
fn damage(file: &mut Vec<u8>, what: u8, place: u8, change: u8) {
    let at = match place {
        0..100 => usize::from(place),
        100..200 => file.len().saturating_sub(usize::from(place - 99)),
        _ => file.len() / 56 * usize::from(place - 200),
    };
    let at = at.min(file.len());
    match what {
        1 => file.get_mut(at).into_iter().for_each(|byte| *byte = change),
        2 => drop(file.drain(at..(at + usize::from(change)).min(file.len()))),
        3 => drop(file.splice(at..at, vec![change; usize::from(change & 7)])),
        _ => (),
    }
}

fn in_memory(bytes: &[u8]) -> Input {
    // SAFETY: the name is a C string; the descriptor is new and has no other owner.
    let mut file = unsafe { File::from_raw_fd(libc::memfd_create(c"fuzz".as_ptr(), 0)) };
    file.write_all(bytes).expect("memory");
    Input { file, offset: 0, stop: Arc::new(AtomicBool::new(false)), ahead: bytes_ahead() }
}

/// Returns at most `step` bytes at a time.
struct Steps<'a> {
    inner: &'a [u8],
    step: usize,
}

impl Read for Steps<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.fill_buf()?.read(buffer)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Steps<'_> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        Ok(&self.inner[..self.step.min(self.inner.len())])
    }

    fn consume(&mut self, n: usize) {
        self.inner = &self.inner[n..];
    }
}
