//! jsonb: converts JSON text to the tree of containers that convertToJsonb (jsonb_util.c) makes.
//!
//! A container is a word with its kind and number of children, one JEntry word for each child, then the children's
//! bytes. These are an array's elements, or an object's keys sorted by length and bytes, and then the values in the
//! same order. Of equal keys, the last one's value is kept. A JEntry has the child's kind and its length; every 32nd
//! one has the offset of its end instead. Numbers and containers are aligned to four bytes with zeros, which count as
//! part of them. A single scalar is stored as an array of one element.
//!
//! Every container starts at a multiple of four, so its bytes do not depend on its position. So each one is built when
//! it closes, children first. From then on it is a child with bytes, like a string or a number:
//!
//! ```text
//! entries   [a] [1] [b] | ["x"] [2]        the children so far, of every open container
//! data      1           | 2                bytes of numbers, unescaped strings and closed containers
//! close     [a] [1] [b] [array]            the frame's entries and data give way to the container's
//! ```

use std::cell::Cell;

use super::numeric::Number;
use super::{Datum, varlena};
use crate::arena::Arena;
use pg_bulk_text::json_object::{encode_utf8, unescape};
use pg_bulk_text::json_text::{self, Scalar, Sink, Text};

/// The longest text, in bytes; longer ones go to jsonb_in. With this limit no container reaches the limit of an entry
/// (256 MB) or of jsonb_in's own arrays (8M pairs), so neither needs a check.
const MAX_TEXT: usize = 16 << 20;
/// The most scratch memory that is kept between values, in bytes.
const KEEP: usize = 1 << 20;

const IS_STRING: u32 = 0;
const IS_NUMERIC: u32 = 0x1000_0000;
const IS_FALSE: u32 = 0x2000_0000;
const IS_TRUE: u32 = 0x3000_0000;
const IS_NULL: u32 = 0x4000_0000;
const IS_CONTAINER: u32 = 0x5000_0000;
const HAS_OFFSET: u32 = 0x8000_0000;
/// Every child with an index divisible by this has an offset instead of a length (JB_OFFSET_STRIDE).
const STRIDE: usize = 32;

const SCALAR: u32 = 0x1000_0000;
const OBJECT: u32 = 0x2000_0000;
const ARRAY: u32 = 0x4000_0000;

/// One child: its kind and the position of its bytes.
#[derive(Clone, Copy)]
struct Entry {
    kind: u32,
    /// The bytes are in the text; otherwise in the data.
    in_text: bool,
    start: u32,
    len: u32,
}

/// An open container.
struct Frame {
    object: bool,
    entries: usize,
    data: usize,
}

/// Memory that is reused for every value.
#[derive(Default)]
struct Scratch {
    frames: Vec<Frame>,
    entries: Vec<Entry>,
    data: Vec<u8>,
    /// Indexes of the pairs of the closing object, sorted by key.
    order: Vec<u32>,
    /// The bytes of the closing container.
    container: Vec<u8>,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = const {
        Cell::new(Scratch {
            frames: Vec::new(),
            entries: Vec::new(),
            data: Vec::new(),
            order: Vec::new(),
            container: Vec::new(),
        })
    };
}

/// jsonb
pub(super) fn jsonb(field: &[u8], arena: &mut Arena) -> Option<Datum> {
    if field.len() > MAX_TEXT {
        return None;
    }
    let mut builder = Builder { text: field, scratch: SCRATCH.try_with(Cell::take).ok()? };
    let datum = build(&mut builder, arena);
    let mut scratch = builder.scratch;
    if scratch.data.capacity() + scratch.container.capacity() + 16 * scratch.entries.capacity() <= KEEP {
        scratch.frames.clear();
        scratch.entries.clear();
        scratch.data.clear();
        SCRATCH.try_with(|s| s.set(scratch)).ok()?;
    }
    datum
}

fn build(builder: &mut Builder<'_>, arena: &mut Arena) -> Option<Datum> {
    json_text::parse(builder.text, builder)?;
    let scratch = &mut builder.scratch;
    if let [scalar] = scratch.entries[..] {
        // No container was closed: it would be the entry.
        container(ARRAY | SCALAR | 1, std::iter::once(scalar), builder.text, &scratch.data, &mut scratch.container)?;
    }
    varlena::copy(&scratch.container, arena)
}

struct Builder<'a> {
    text: &'a [u8],
    scratch: Scratch,
}

impl Builder<'_> {
    fn push_string(&mut self, text: &Text<'_>) -> Option<()> {
        let Scratch { entries, data, .. } = &mut self.scratch;
        if !text.escaped {
            let (start, len) = (text.at as u32, text.raw.len() as u32);
            return push(entries, Entry { kind: IS_STRING, in_text: true, start, len });
        }
        data.try_reserve(text.raw.len()).ok()?;
        let start = data.len();
        unescape(text.raw, data, &mut encode_utf8);
        self.push_data(IS_STRING, start)
    }

    /// Adds a child whose bytes are the data from `start` on.
    fn push_data(&mut self, kind: u32, start: usize) -> Option<()> {
        let len = (self.scratch.data.len() - start) as u32;
        push(&mut self.scratch.entries, Entry { kind, in_text: false, start: start as u32, len })
    }
}

impl<'a> Sink<'a> for Builder<'a> {
    fn open(&mut self, object: bool) -> Option<()> {
        let Scratch { frames, entries, data, .. } = &mut self.scratch;
        frames.push(Frame { object, entries: entries.len(), data: data.len() });
        Some(())
    }

    fn close(&mut self) -> Option<()> {
        let Scratch { frames, entries, data, order, container: out } = &mut self.scratch;
        let frame = frames.pop()?;
        let children = entries.get(frame.entries..)?;
        if frame.object {
            let (pairs, _) = children.as_chunks::<2>();
            sort(pairs, self.text, data, order)?;
            let key = |&i: &u32| pairs.get(i as usize).map(|p| p[0]);
            let value = |&i: &u32| pairs.get(i as usize).map(|p| p[1]);
            let sorted = order.iter().filter_map(key).chain(order.iter().filter_map(value));
            container(OBJECT | order.len() as u32, sorted, self.text, data, out)?;
        } else {
            container(ARRAY | children.len() as u32, children.iter().copied(), self.text, data, out)?;
        }
        entries.truncate(frame.entries);
        data.truncate(frame.data);
        if !frames.is_empty() {
            append(data, out)?;
            return self.push_data(IS_CONTAINER, frame.data);
        }
        Some(())
    }

    fn key(&mut self, key: Text<'a>) -> Option<()> {
        self.push_string(&key)
    }

    fn scalar(&mut self, value: Scalar<'a>) -> Option<()> {
        let start = self.scratch.data.len();
        match value {
            Scalar::Text(text) => self.push_string(&text),
            Scalar::Null => self.push_data(IS_NULL, start),
            Scalar::Bool(false) => self.push_data(IS_FALSE, start),
            Scalar::Bool(true) => self.push_data(IS_TRUE, start),
            Scalar::Number(_, true) => None,
            // Numbers of keys that a later equal key replaces are parsed, too: jsonb_in reads every number.
            Scalar::Number(text, false) => {
                let number = Number::parse(text, None)?;
                let size = varlena::HEADER + number.size();
                let data = &mut self.scratch.data;
                data.try_reserve(size).ok()?;
                data.resize(start + size, 0);
                let (header, body) = data.get_mut(start..)?.split_first_chunk_mut::<{ varlena::HEADER }>()?;
                *header = ((size as u32) << 2).to_le_bytes();
                number.write(body);
                self.push_data(IS_NUMERIC, start)
            }
        }
    }
}

/// Appends an element; `None` if memory is exhausted. The result is several times as long as the text, so this memory
/// is not reserved before.
#[inline]
fn push<T>(to: &mut Vec<T>, one: T) -> Option<()> {
    to.try_reserve(1).ok()?;
    to.push(one);
    Some(())
}

/// Appends bytes; `None` if memory is exhausted.
#[inline]
fn append(to: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    to.try_reserve(bytes.len()).ok()?;
    to.extend_from_slice(bytes);
    Some(())
}

/// Returns the bytes of a child.
#[inline]
fn bytes<'a>(entry: &Entry, text: &'a [u8], data: &'a [u8]) -> &'a [u8] {
    let start = entry.start as usize;
    let from = if entry.in_text { text } else { data };
    from.get(start..start + entry.len as usize).unwrap_or_default()
}

/// Sorts the pairs by key, without those that a later equal key replaces.
fn sort(pairs: &[[Entry; 2]], text: &[u8], data: &[u8], order: &mut Vec<u32>) -> Option<()> {
    order.clear();
    order.try_reserve(pairs.len()).ok()?;
    order.extend(0..pairs.len() as u32);
    let key = |i: u32| pairs.get(i as usize).map_or(&[][..], |p| bytes(&p[0], text, data));
    order.sort_unstable_by(|&i, &j| {
        let (a, b) = (key(i), key(j));
        a.len().cmp(&b.len()).then_with(|| a.cmp(b)).then(j.cmp(&i))
    });
    order.dedup_by(|later, first| key(*later) == key(*first));
    Some(())
}

/// Writes a container; `header` has its kind and number of children.
fn container(
    header: u32,
    children: impl Iterator<Item = Entry> + Clone,
    text: &[u8],
    data: &[u8],
    out: &mut Vec<u8>,
) -> Option<()> {
    out.clear();
    let words = 4 + 4 * children.clone().count();
    out.try_reserve(words).ok()?;
    out.extend_from_slice(&header.to_le_bytes());
    out.resize(words, 0);
    let mut total = 0;
    for (i, child) in children.enumerate() {
        let before = out.len();
        if matches!(child.kind, IS_NUMERIC | IS_CONTAINER) {
            out.try_reserve(4).ok()?;
            out.resize(before.next_multiple_of(4), 0);
        }
        append(out, bytes(&child, text, data))?;
        let len = (out.len() - before) as u32;
        total += len;
        let word = child.kind | if i % STRIDE == 0 { HAS_OFFSET | total } else { len };
        if let Some(place) = out.get_mut(4 + 4 * i..8 + 4 * i) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
    Some(())
}

#[cfg(test)]
#[path = "jsonb_tests.rs"]
mod tests;
