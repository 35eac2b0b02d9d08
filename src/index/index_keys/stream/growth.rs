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
use pg_bulk_storage::btree::key::{KeyShape, Width};
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::super::build::options;
use super::{Room, Stream};
use crate::error::{Error, Result};
use crate::index::leaf::{IndexEnd, MOST_PAGES};
use crate::server::database::shared_buffers;
use crate::server::relation::Relation;

/// Fewer leaves are not worth the effort: the last one would be half empty too often.
const FEWEST_PAGES: usize = 4;
/// All pages of a step are pinned at once, and other sessions need shared buffers, too.
const BUFFERS_PER_PAGE: usize = 16;
const LINE_POINTER: usize = size_of::<pg_sys::ItemIdData>();

/// Keys in the form in which they go into an index: some tuples, and leaves.
#[derive(Debug)]
pub struct Growth {
    pub leaves: Extension,
    pub shape: KeyShape,
    /// Number of tuples that go before the leaves. The room contains the first tuple of all keys, then these tuples,
    /// then the last tuple of all keys.
    pub tuples: usize,
    /// Number of keys.
    pub(super) count: usize,
}

impl Growth {
    pub(super) fn new(shape: KeyShape) -> Growth {
        Growth { leaves: Extension::default(), shape, tuples: 0, count: 0 }
    }
}

/// The high key between an item and the leaves that were made of keys of a shape.
pub fn border(shape: &KeyShape, leaves: &Extension, left: &[u8], to: &mut [u8]) -> Option<usize> {
    match shape.width() {
        Width::Narrow => leaves.border::<u64>(shape, left, to),
        Width::Wide => leaves.border::<u128>(shape, left, to),
    }
}

/// See [`super::KeyStream::grow`].
pub(super) fn grow<W: Word>(
    keys: &mut Stream<W>,
    index: Relation<'_>,
    end: &IndexEnd,
    room: &mut Room<'_>,
) -> Result<bool> {
    let Some(form) = index.index() else { return Ok(false) };
    let mut options = options(index);
    options.deduplicate &= end.may_deduplicate;
    let (size, border) = (longest_tuple(&keys.shape) + LINE_POINTER, border_size(&keys.shape) + LINE_POINTER);
    let buffers = usize::try_from(shared_buffers()).unwrap_or(0);
    let pages = (end.parent_room / border).min(buffers / BUFFERS_PER_PAGE).min(MOST_PAGES);
    if pages < FEWEST_PAGES {
        return Ok(false);
    }
    let left_free = pg_sys::BLCKSZ as usize * (100 - options.fillfactor.clamp(10, 100)) / 100;
    let before = (end.room.saturating_sub(left_free.max(border)) / size).min(room.tuples.len().saturating_sub(2));
    let wanted = before + entries_of(&keys.shape, options, pages);
    let shape = keys.shape.clone();
    let found = keys.look(wanted)?;
    let mut count = found.len();
    if form.is_unique {
        let twin = found.windows(2).position(|pair| matches!(pair, [a, b] if a.key() == b.key()));
        count = twin.unwrap_or(count);
        if !form.nulls_equal && shape.nullable() {
            let null = found.iter().position(|entry| shape.has_null(entry.key()));
            count = null.map_or(count, |null| count.min(null));
        }
    }
    let found = found.get(..count).unwrap_or_default();
    let (Some((&first, &last)), Some((some, rest))) = (found.first().zip(found.last()), found.split_at_checked(before))
    else {
        return Ok(false);
    };
    if rest.len() < entries_of(&shape, options, FEWEST_PAGES) {
        return Ok(false);
    }
    let leaves = Extension::build(&shape, options, rest)
        .map_err(|error| Error::new(Code::ERRCODE_INTERNAL_ERROR, format!("leaves cannot be made: {error:?}")))?;
    let mut used = 0;
    for (number, &entry) in [first].iter().chain(some).chain(&[last]).enumerate() {
        used += room.write(number, used, &shape, entry);
    }
    keys.growth = Growth { leaves, shape, tuples: some.len(), count };
    Ok(true)
}
