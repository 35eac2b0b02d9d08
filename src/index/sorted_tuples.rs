//! Reads index tuples that one process or several have sorted, a batch at a time, and compares neighbors.
//!
//! For each tuple the reader returns its relation to the previous one: it may have identical values, for posting lists,
//! or equal keys, for unique indexes. If equal values are always identical (_bt_allequalimage), the bytes are compared,
//! and no function is called.

use pg_bulk_storage::btree::{BTP_LEAF, SPECIAL};
use pgrx::pg_sys;

use super::shared_sorts::{Role, SharedSort};
use super::tuple_sort::BegunSort;
use crate::server::index_tuple::{IndexTuple, have_equal_keys};
use crate::server::memory_context::MemoryContext;
use crate::server::owner::as_owner;
use crate::server::points::point_plain;
use crate::server::relation::Relation;
use crate::server::unguarded::{self as c, Opaque, guard};
use crate::server::violation;

const MOST_KEYS: usize = pg_sys::INDEX_MAX_KEYS as usize;
const BLCKSZ: usize = pg_sys::BLCKSZ as usize;
/// INDEX_SIZE_MASK and INDEX_NULL_MASK (itup.h)
const SIZE_MASK: u16 = 0x1fff;
const NULL_MASK: u16 = 0x8000;
const HEADER: usize = size_of::<pg_sys::IndexTupleData>();
/// Offset of the flags in BTPageOpaqueData (nbtree.h).
const FLAGS: usize = 12;
/// Bytes and tuples of a batch.
const BATCH_BYTES: usize = 128 * 1024;
const BATCH_TUPLES: usize = 2048;
/// More than the bytes of the longest tuple.
const LONGEST: usize = SIZE_MASK as usize + 1;

/// A tuple of a batch.
#[derive(Debug, Clone, Copy)]
struct BatchTuple {
    at: u32,
    len: u32,
    same: bool,
    equal: bool,
}

/// A tuple, and how it compares with the previous one.
#[derive(Debug, Clone, Copy)]
pub struct Sorted<'s> {
    pub tuple: &'s [u8],
    /// Its values are identical to those of the previous tuple.
    pub same: bool,
    /// A unique index cannot contain the keys of both tuples.
    pub equal: bool,
}

/// The relation between neighbors that is searched for.
#[derive(Debug, Clone, Copy)]
enum Sought {
    Nothing,
    /// Identical values, for posting lists.
    SameValues,
    /// Equal keys, for a unique index; nulls may be equal.
    EqualKeys {
        nulls_equal: bool,
    },
}

/// Compares neighbors.
#[derive(Debug)]
struct Comparison<'a> {
    index: Relation<'a>,
    columns: usize,
    /// attlen of the first column.
    first_len: i16,
    all_equal_image: bool,
    sought: Sought,
    /// Memory context for one call.
    scratch: MemoryContext,
}

/// Tuples of an index, in order.
#[derive(Debug)]
pub struct SortedTuples<'a> {
    heap: Relation<'a>,
    index: Relation<'a>,
    /// None without tuples.
    sort: Option<BegunSort>,
    key: Opaque,
    comparison: Comparison<'a>,
    /// Memory context of all parts.
    memory: MemoryContext,
    buffer: *mut u8,
    /// The tuples of the batch, in the buffer.
    places: Vec<BatchTuple>,
    /// The last tuple of the previous batch, if `has_previous`.
    previous: *mut u8,
    has_previous: bool,
    is_over: bool,
}

/// Where the tuples were sorted.
#[derive(Debug)]
pub enum Origin {
    /// By this process; None if there are none.
    Own(Option<BegunSort>),
    /// By several processes, all of which have finished; the merge may use this many kB.
    Shared(SharedSort, i32),
}

impl<'a> SortedTuples<'a> {
    /// Starts to read the tuples of an index. Guarded.
    pub fn new(
        heap: Relation<'a>,
        index: Relation<'a>,
        origin: Origin,
        deduplicate: bool,
        all_equal_image: bool,
    ) -> SortedTuples<'a> {
        let sort = match origin {
            Origin::Own(sort) => sort,
            Origin::Shared(shared, memory) => (shared.participants() > 0).then(|| {
                as_owner(heap, || {
                    let mut sort = BegunSort::begin(heap, index, memory, Some((shared, Role::Merger)));
                    sort.perform();
                    sort
                })
            }),
        };
        let form = index.index();
        let sought = match form {
            Some(form) if form.is_unique => Sought::EqualKeys { nulls_equal: form.nulls_equal },
            _ if deduplicate => Sought::SameValues,
            _ => Sought::Nothing,
        };
        let memory = MemoryContext::current().child(c"pg_bulk sorted tuples");
        let scratch = memory.child(c"pg_bulk index tuple");
        let _entered = memory.enter();
        // SAFETY: guarded calls on open relations; the closure owns nothing.
        unsafe {
            SortedTuples {
                heap,
                index,
                is_over: sort.is_none(),
                sort,
                key: guard(|| c::_bt_mkscankey(index.as_ptr(), std::ptr::null_mut())),
                comparison: Comparison {
                    index,
                    columns: form.map_or(0, |form| form.keys),
                    first_len: index.descriptor().attribute(0).map_or(0, |attribute| attribute.attlen),
                    all_equal_image,
                    sought,
                    scratch,
                },
                memory,
                buffer: pg_sys::palloc(BATCH_BYTES).cast(),
                places: Vec::with_capacity(BATCH_TUPLES),
                previous: pg_sys::palloc(LONGEST).cast(),
                has_previous: false,
            }
        }
    }

    /// Goes to the next batch. False at the end. Guarded, and interruptible.
    pub fn advance(&mut self) -> bool {
        self.places.clear();
        if !self.is_over {
            // SAFETY: the closure owns nothing.
            as_owner(self.heap, || unsafe { guard(|| self.fill()) });
        }
        !self.places.is_empty()
    }

    /// The tuples of the batch.
    pub fn batch(&self) -> impl Iterator<Item = Sorted<'_>> {
        self.places.iter().map(|&BatchTuple { at, len, same, equal }| {
            // SAFETY: `fill` has put the tuple there.
            let tuple = unsafe { std::slice::from_raw_parts(self.buffer.add(at as usize), len as usize) };
            Sorted { tuple, same, equal }
        })
    }

    /// The pivot tuple between two neighbors: _bt_truncate (nbtutils.c). Guarded.
    pub fn high_key(&self, left: &[u8], right: &[u8]) -> Vec<u8> {
        let scratch = self.comparison.scratch;
        as_owner(self.heap, || {
            // SAFETY: guarded calls, which allocate in `scratch`; the closure owns nothing. Tuples must be aligned, so
            // the bytes are copied. The pivot has the length in its header.
            unsafe {
                let entered = scratch.enter();
                let [left, right] = [left, right].map(|bytes| {
                    let place = pg_sys::palloc(bytes.len()).cast::<u8>();
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
                    place.cast::<pg_sys::IndexTupleData>()
                });
                let pivot = guard(|| c::_bt_truncate(self.index.as_ptr(), left, right, self.key));
                drop(entered);
                let bytes = IndexTuple::from_raw(pivot).unaligned_bytes().to_vec();
                pg_sys::MemoryContextReset(scratch.as_ptr());
                bytes
            }
        })
    }

    /// Raises the error for a tuple whose key the previous one has. Guarded.
    pub fn raise_duplicate(&self, sorted: &Sorted<'_>) {
        let mut values = [pg_sys::Datum::from(0usize); MOST_KEYS];
        let mut nulls = [false; MOST_KEYS];
        let tuple = sorted.tuple.as_ptr().cast_mut().cast();
        // SAFETY: a tuple of the index; there is a value for each column. The first call raises nothing.
        unsafe {
            let descriptor = self.index.descriptor().as_ptr();
            c::index_deform_tuple(tuple, descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
            violation::raise_unique(self.heap, self.index, &mut values, &mut nulls);
        }
    }

    /// Raises the error of _bt_check_third_page (nbtutils.c) for a tuple that is too long. Guarded.
    pub fn refuse(&self, sorted: &Sorted<'_>) {
        let (heap, index, tuple) = (self.heap, self.index, sorted.tuple.as_ptr().cast_mut().cast());
        // SAFETY: guarded calls on an empty page; a tuple of a batch, whose header has its size.
        unsafe {
            let page = pg_sys::palloc0(BLCKSZ).cast::<i8>();
            pg_sys::PageInit(page.cast(), BLCKSZ, SPECIAL);
            page.add(BLCKSZ - SPECIAL + FLAGS).cast::<u16>().write(BTP_LEAF);
            guard(|| c::_bt_check_third_page(index.as_ptr(), heap.as_ptr(), true, page.cast(), tuple));
        }
    }

    /// Ends the sort, and frees the memory. Guarded.
    pub fn end(self) {
        if let Some(sort) = self.sort {
            sort.end();
        }
        // SAFETY: made by `new`, with all parts.
        unsafe { self.memory.delete() };
    }

    /// Fills the batch.
    ///
    /// # Safety
    /// A plain frame.
    unsafe fn fill(&mut self) {
        let Some(sort) = &self.sort else { return };
        // SAFETY: nothing in this frame has a destructor. The buffer has space for a batch with tuples of any size, the
        // list for its places, and `previous` for one tuple. The tuples are of the index.
        unsafe {
            let mut used = 0;
            let mut before = if self.has_previous { self.previous.cast_const() } else { std::ptr::null() };
            while used + LONGEST <= BATCH_BYTES && self.places.len() < BATCH_TUPLES {
                c::check_for_interrupts();
                point_plain!("index.sorted");
                let tuple = c::tuplesort_getindextuple(sort.as_ptr(), true);
                if tuple.is_null() {
                    self.is_over = true;
                    break;
                }
                let len = IndexTuple::from_raw(tuple).size();
                let place = self.buffer.add(used);
                std::ptr::copy_nonoverlapping(tuple.cast::<u8>().cast_const(), place, len);
                let (mut same, mut equal) = (false, false);
                if !before.is_null() {
                    let [left, right] = [before.cast_mut(), place].map(|at| IndexTuple::from_raw(at.cast()));
                    match self.comparison.sought {
                        Sought::EqualKeys { nulls_equal } => {
                            equal = self.comparison.are_equal(nulls_equal, left, right);
                        }
                        Sought::SameValues => same = self.comparison.are_same(left, right),
                        Sought::Nothing => (),
                    }
                }
                self.places.push(BatchTuple { at: used as u32, len: len as u32, same, equal });
                before = place;
                // Sizes are multiples of MAXALIGN.
                used += len;
            }
            if !before.is_null() && before != self.previous.cast_const() {
                let len = IndexTuple::from_raw(before.cast_mut().cast()).size();
                std::ptr::copy_nonoverlapping(before, self.previous, len);
                self.has_previous = true;
            }
        }
    }
}

impl Comparison<'_> {
    /// Are the values of two tuples identical, whatever the comparison function?
    ///
    /// # Safety
    /// A plain frame; tuples of the index.
    unsafe fn are_same(&self, left: IndexTuple<'_>, right: IndexTuple<'_>) -> bool {
        let [left_data, right_data] =
            [left, right].map(|tuple| tuple.unaligned_bytes().get(HEADER..).unwrap_or_default());
        if left.info() == right.info() && left_data == right_data {
            return true;
        }
        // In most pairs the first column differs.
        if (left.info() | right.info()) & NULL_MASK == 0
            && let (Some(left), Some(right)) = (first(left_data, self.first_len), first(right_data, self.first_len))
            && left != right
        {
            return false;
        }
        // SAFETY: a plain frame, and tuples of the index.
        let equal = unsafe { c::_bt_keep_natts_fast(self.index.as_ptr(), left.as_ptr(), right.as_ptr()) };
        usize::try_from(equal).unwrap_or(0) > self.columns
    }

    /// Are the keys of two tuples such that a unique index cannot contain both?
    ///
    /// # Safety
    /// A plain frame; tuples of the index.
    unsafe fn are_equal(&self, nulls_equal: bool, left: IndexTuple<'_>, right: IndexTuple<'_>) -> bool {
        let has_nulls = (left.info() | right.info()) & NULL_MASK != 0;
        // SAFETY: a plain frame, and tuples of the index.
        unsafe {
            if self.all_equal_image && (!has_nulls || nulls_equal) {
                return self.are_same(left, right);
            }
            let equal = have_equal_keys(self.index, self.columns, nulls_equal, [left, right], self.scratch);
            c::MemoryContextReset(self.scratch.as_ptr());
            equal
        }
    }
}

/// The first column of a tuple without nulls, if its bytes have one possible form: not compressed, and with the
/// shortest header.
fn first(data: &[u8], len: i16) -> Option<&[u8]> {
    let len = match usize::try_from(len) {
        Ok(len) => len,
        Err(_) if len == -1 => {
            // VARATT_IS_1B, VARSIZE_1B (varatt.h)
            let size = data.first().copied()?;
            let (is_short, size) =
                if cfg!(target_endian = "big") { (size & 0x80 != 0, size & 0x7f) } else { (size & 1 != 0, size >> 1) };
            (is_short && size > 0).then_some(usize::from(size))?
        }
        Err(_) => return None,
    };
    data.get(..len)
}
