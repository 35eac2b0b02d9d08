//! Makes leaves from the next keys of a stream, to append them to an index that other sessions use.
//!
//! ```text
//!   keys of the stream   │ first ... │ ...            ... last │ ...
//!                          tuples      leaves
//! ```
//!
//! The last leaf of the index gets tuples until it is as full as after a build. The keys after them become leaves,
//! which are added all at once. The keys are taken from the stream only after they are in the index.
//!
//! The tricky point is uniqueness: core must decide on equal keys, so the leaves end before the first pair of equal
//! keys. They also end before a key with a null, if nulls are distinct.

use pg_bulk_storage::btree::build::border_size;
use pg_bulk_storage::btree::entry::Word;
use pg_bulk_storage::btree::extension::{Extension, entries_of, longest_tuple};
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::super::build::options;
use super::{KeyStream, Room, Stream};
use crate::error::{Error, OrRaise, Result};
use crate::index::leaf::{IndexEnd, MOST_PAGES};

/// Fewer leaves are not worth the effort: the last one would be half empty too often.
const FEWEST_PAGES: usize = 4;
/// All pages of a step are pinned at once, and other sessions need shared buffers, too.
const BUFFERS_PER_PAGE: usize = 16;
const LINE_POINTER: usize = size_of::<pg_sys::ItemIdData>();

/// Keys in the form in which they go into an index: some tuples, and leaves.
#[derive(Debug, Default)]
pub struct Growth {
    pub leaves: Extension,
    /// Number of tuples that go before the leaves. The room contains the first tuple of all keys, then these tuples,
    /// then the last tuple of all keys.
    pub tuples: usize,
    /// Number of keys.
    count: usize,
}

/// Writes the next tuple into the room; false at the end. It stays the next one.
///
/// # Safety
/// No other reference to the stream is in use; the room has space for a tuple.
#[pg_guard]
pub unsafe extern "C-unwind" fn next_tuple(stream: *mut KeyStream, room: *const Room) -> bool {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        match &mut *stream {
            KeyStream::Narrow(keys) => keys.peek(&*room).or_raise(),
            KeyStream::Wide(keys) => keys.peek(&*room).or_raise(),
        }
    }
}

/// Makes leaves from the next keys, for an open index with this end.
///
/// Null if there are too few keys. For a unique index, leaves contain no equal keys, and no key with a null if nulls
/// are distinct. Guarded.
///
/// # Safety
/// See [`next_tuple`], with room for the tuples of a page and two more; the index is an open B-tree of these keys.
#[pg_guard]
pub unsafe extern "C-unwind" fn leaves_of(
    stream: *mut KeyStream,
    index: pg_sys::Relation,
    end: *const IndexEnd,
    room: *const Room,
) -> *mut Growth {
    // SAFETY: this function's contract covers all arguments.
    unsafe {
        match &mut *stream {
            KeyStream::Narrow(keys) => keys.grow(index, &*end, &*room).or_raise(),
            KeyStream::Wide(keys) => keys.grow(index, &*end, &*room).or_raise(),
        }
    }
}

/// Takes the keys of the latest growth from the stream, because they are in the index.
///
/// # Safety
/// See [`next_tuple`]; there is such a growth, and no key was taken since.
pub unsafe fn take_growth(stream: *mut KeyStream) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        match &mut *stream {
            KeyStream::Narrow(keys) => keys.ahead_taken = keys.growth.count,
            KeyStream::Wide(keys) => keys.ahead_taken = keys.growth.count,
        }
    }
}

/// The high key between an item and the leaves that were made of the stream's keys.
///
/// # Safety
/// The stream is valid.
pub unsafe fn border(stream: *const KeyStream, leaves: &Extension, left: &[u8], to: &mut [u8]) -> Option<usize> {
    // SAFETY: this function's contract covers the argument; the shape of keys does not change.
    unsafe {
        match stream.as_ref()? {
            KeyStream::Narrow(keys) => leaves.border::<u64>(&keys.shape, left, to),
            KeyStream::Wide(keys) => leaves.border::<u128>(&keys.shape, left, to),
        }
    }
}

impl<W: Word> Stream<W> {
    /// # Safety
    /// The room has space for a tuple.
    unsafe fn peek(&mut self, room: &Room) -> Result<bool> {
        let Some(&entry) = self.look(1)?.first() else { return Ok(false) };
        // SAFETY: this function's contract covers the room.
        unsafe { room.write(0, 0, &self.shape, entry) };
        Ok(true)
    }

    /// # Safety
    /// See [`leaves_of`].
    unsafe fn grow(&mut self, index: pg_sys::Relation, end: &IndexEnd, room: &Room) -> Result<*mut Growth> {
        let none = Ok(std::ptr::null_mut());
        // SAFETY: this function's contract covers the index; a guarded frame.
        let (mut options, is_unique, nulls_equal) = unsafe {
            let form = &*(*index).rd_index;
            (options(index), form.indisunique, form.indnullsnotdistinct)
        };
        options.deduplicate &= end.may_deduplicate;
        let (size, border) = (longest_tuple(&self.shape) + LINE_POINTER, border_size(&self.shape) + LINE_POINTER);
        // SAFETY: a variable of this process.
        let buffers = usize::try_from(unsafe { pg_sys::NBuffers }).unwrap_or(0);
        let pages = (end.parent_room / border).min(buffers / BUFFERS_PER_PAGE).min(MOST_PAGES);
        if pages < FEWEST_PAGES {
            return none;
        }
        let left_free = pg_sys::BLCKSZ as usize * (100 - options.fillfactor.clamp(10, 100)) / 100;
        let before = (end.room.saturating_sub(left_free.max(border)) / size).min(room.most.saturating_sub(2));
        let wanted = before + entries_of(&self.shape, options, pages);
        let shape = self.shape.clone();
        let found = self.look(wanted)?;
        let mut count = found.len();
        if is_unique {
            let twin = found.windows(2).position(|pair| matches!(pair, [a, b] if a.key() == b.key()));
            count = twin.unwrap_or(count);
            if !nulls_equal && shape.nullable() {
                let null = found.iter().position(|entry| shape.has_null(entry.key()));
                count = null.map_or(count, |null| count.min(null));
            }
        }
        let keys = found.get(..count).unwrap_or_default();
        let (Some((&first, &last)), Some((some, rest))) =
            (keys.first().zip(keys.last()), keys.split_at_checked(before))
        else {
            return none;
        };
        if rest.len() < entries_of(&shape, options, FEWEST_PAGES) {
            return none;
        }
        let leaves = Extension::build(&shape, options, rest)
            .map_err(|error| Error::new(Code::ERRCODE_INTERNAL_ERROR, format!("leaves cannot be made: {error:?}")))?;
        let mut used = 0;
        for (number, &entry) in [first].iter().chain(some).chain(&[last]).enumerate() {
            // SAFETY: this function's contract covers the room, which has space for this number of tuples.
            used += unsafe { room.write::<W>(number, used, &shape, entry) };
        }
        self.growth = Growth { leaves, tuples: some.len(), count };
        Ok(&raw mut self.growth)
    }
}
