//! Leaves out of the next keys of a stream, for the end of an index that others use.
//!
//! ```text
//!   keys of the stream   │ first ... │ ...            ... last │ ...
//!                          tuples      leaves
//! ```
//!
//! The last leaf of the index gets tuples until it is as full as a build would leave it. What comes behind them are leaves, which
//! are added all at once. The keys are taken from the stream only when they are in the index.
//!
//! The tricky point is uniqueness: keys that are equal to each other are for core to judge, so leaves end before the first pair of
//! them, and keys with a null that is equal to nothing are not among them.

use pg_bulk_format::btree::build::border_size;
use pg_bulk_format::btree::entry::Word;
use pg_bulk_format::btree::extension::{Extension, entries_of, longest_tuple};
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::build::options;
use super::stream::{KeyStream, Room, Stream};
use crate::error::{Error, OrRaise, Result};
use crate::pg::leaf::{End, MOST_PAGES};

/// To add fewer leaves is not worth it: the last one would be left half empty too often.
const FEWEST_PAGES: usize = 4;
/// All pages of a step are pinned at once, and others want shared buffers, too.
const BUFFERS_PER_PAGE: usize = 16;
const LINE_POINTER: usize = size_of::<pg_sys::ItemIdData>();

/// Keys as they go into an index: some tuples, and leaves.
#[derive(Debug, Default)]
pub struct Growth {
    pub leaves: Extension,
    /// The first tuple of all, then `tuples` that go before the leaves, then the last one of all: so many are in the room, `tuples` of
    /// them from the second one on.
    pub tuples: usize,
    /// Keys.
    count: usize,
}

/// The next tuple, into the room; false at the end. It stays the next one.
///
/// # Safety
/// A stream that nobody else uses, and room for a tuple.
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

/// Leaves out of the next keys, for an open index with such an end. Null if there are too few for it. A unique index does not get two
/// keys that are equal, or, if these are equal to nothing, that have a null. Guarded.
///
/// # Safety
/// As [`next_tuple`], with room for the tuples of a page and two more; an open B-tree of these keys.
#[pg_guard]
pub unsafe extern "C-unwind" fn leaves_of(
    stream: *mut KeyStream,
    index: pg_sys::Relation,
    end: *const End,
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

/// The keys of the latest growth are in the index.
///
/// # Safety
/// As [`next_tuple`]; there is such a growth, and nothing was taken since.
pub unsafe fn take_growth(stream: *mut KeyStream) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        match &mut *stream {
            KeyStream::Narrow(keys) => keys.ahead_taken = keys.growth.count,
            KeyStream::Wide(keys) => keys.ahead_taken = keys.growth.count,
        }
    }
}

/// The high key between an item and leaves that were made of the stream's keys.
///
/// # Safety
/// A stream.
pub unsafe fn border(stream: *const KeyStream, leaves: &Extension, left: &[u8], to: &mut [u8]) -> Option<usize> {
    // SAFETY: this function's contract covers the argument; nobody changes the shape of keys.
    unsafe {
        match stream.as_ref()? {
            KeyStream::Narrow(keys) => leaves.border::<u64>(&keys.shape, left, to),
            KeyStream::Wide(keys) => leaves.border::<u128>(&keys.shape, left, to),
        }
    }
}

impl<W: Word> Stream<W> {
    /// # Safety
    /// Room for a tuple.
    unsafe fn peek(&mut self, room: &Room) -> Result<bool> {
        let Some(&entry) = self.look(1)?.first() else { return Ok(false) };
        // SAFETY: this function's contract covers the room.
        unsafe { room.write(0, 0, &self.shape, entry) };
        Ok(true)
    }

    /// # Safety
    /// As [`leaves_of`].
    unsafe fn grow(&mut self, index: pg_sys::Relation, end: &End, room: &Room) -> Result<*mut Growth> {
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
            // SAFETY: this function's contract covers the room, and there are not more than so many.
            used += unsafe { room.write::<W>(number, used, &shape, entry) };
        }
        self.growth = Growth { leaves, tuples: some.len(), count };
        Ok(&raw mut self.growth)
    }
}
