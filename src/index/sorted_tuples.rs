//! Reads index tuples that one process or several have sorted, a batch at a time, and compares neighbors.
//!
//! For each tuple the reader returns its relation to the previous one: it may have identical values, for posting lists,
//! or equal keys, for unique indexes. If equal values are always identical (_bt_allequalimage), the bytes are compared,
//! and no function is called.

use std::ffi::c_void;

use pg_bulk_storage::btree::{BTP_LEAF, SPECIAL};
use pgrx::pg_sys;

use super::shared_sorts::SharedSort;
use crate::server::compat;
use crate::server::owner::as_owner;
use crate::server::points::point_plain;
use crate::server::relation::Relation;
use crate::server::unguarded::{self as c, Opaque, guard};

const MOST_KEYS: usize = pg_sys::INDEX_MAX_KEYS as usize;
const BLCKSZ: usize = pg_sys::BLCKSZ as usize;
/// INDEX_SIZE_MASK and INDEX_NULL_MASK (itup.h)
const SIZE_MASK: u16 = 0x1fff;
const NULL_MASK: u16 = 0x8000;
const HEADER: usize = size_of::<pg_sys::IndexTupleData>();
/// BTORDER_PROC (nbtree.h)
const ORDER: u16 = 1;
/// Offset of the flags in BTPageOpaqueData (nbtree.h).
const FLAGS: usize = 12;
/// Bytes and tuples of a batch.
const BATCH_BYTES: usize = 128 * 1024;
const BATCH_TUPLES: usize = 2048;
/// More than the bytes of the longest tuple.
const LONGEST: usize = SIZE_MASK as usize + 1;

/// A tuple of a batch.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
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

/// What is looked for in neighbors.
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
struct Comparison {
    index: pg_sys::Relation,
    columns: usize,
    /// attlen of the first column.
    first_len: i16,
    all_equal_image: bool,
    sought: Sought,
    /// Memory context for one call.
    scratch: pg_sys::MemoryContext,
}

/// Tuples of an index, in order.
#[derive(Debug)]
pub struct SortedTuples {
    heap: pg_sys::Relation,
    index: pg_sys::Relation,
    sort: *mut pg_sys::Tuplesortstate,
    key: *mut c_void,
    comparison: Comparison,
    /// Memory context of all parts.
    memory: pg_sys::MemoryContext,
    buffer: *mut u8,
    places: *mut BatchTuple,
    count: usize,
    /// The last tuple of the previous batch, if `has_previous`.
    previous: *mut u8,
    has_previous: bool,
    is_over: bool,
}

/// Where the tuples were sorted.
#[derive(Debug, Clone, Copy)]
pub enum Origin {
    /// By this process; null if there are none.
    Own(*mut pg_sys::Tuplesortstate),
    /// By several processes; the merge may use this many kB.
    Shared(SharedSort, i32),
}

/// Arguments for the begin of a merge.
struct Begin {
    to: *mut SortedTuples,
    shared: SharedSort,
    memory: i32,
}

/// Two neighbors, and the pivot between them.
struct Neighbours {
    of: *mut SortedTuples,
    left: *const u8,
    left_len: usize,
    right: *const u8,
    right_len: usize,
    pivot: pg_sys::IndexTuple,
}

impl SortedTuples {
    /// Start to read the tuples of an open index. Guarded.
    ///
    /// # Safety
    /// The relations stay open; all processes have finished sorting.
    pub unsafe fn new(
        heap: pg_sys::Relation,
        index: pg_sys::Relation,
        origin: Origin,
        deduplicate: bool,
        all_equal_image: bool,
    ) -> SortedTuples {
        // SAFETY: this function's contract covers the relations; guarded calls. The closures own nothing.
        unsafe {
            let context = |parent, name: &std::ffi::CStr| {
                pg_sys::AllocSetContextCreateInternal(
                    parent,
                    name.as_ptr(),
                    pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                    pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                    pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
                )
            };
            let memory = context(pg_sys::CurrentMemoryContext, c"pg_bulk sorted tuples");
            let scratch = context(memory, c"pg_bulk index tuple");
            let form = &*(*index).rd_index;
            let old = pg_sys::MemoryContextSwitchTo(memory);
            let mut sorted = SortedTuples {
                heap,
                index,
                sort: std::ptr::null_mut(),
                key: guard(|| c::_bt_mkscankey(index, std::ptr::null_mut())),
                comparison: Comparison {
                    index,
                    columns: usize::try_from(form.indnkeyatts).unwrap_or(0),
                    first_len: (*compat::attribute((*index).rd_att, 0)).attlen,
                    all_equal_image,
                    sought: match (form.indisunique, deduplicate) {
                        (true, _) => Sought::EqualKeys { nulls_equal: form.indnullsnotdistinct },
                        (false, true) => Sought::SameValues,
                        (false, false) => Sought::Nothing,
                    },
                    scratch,
                },
                memory,
                buffer: pg_sys::palloc(BATCH_BYTES).cast(),
                places: pg_sys::palloc(BATCH_TUPLES * size_of::<BatchTuple>()).cast(),
                count: 0,
                previous: pg_sys::palloc(LONGEST).cast(),
                has_previous: false,
                is_over: false,
            };
            match origin {
                Origin::Own(sort) => sorted.sort = sort,
                Origin::Shared(shared, memory) if shared.participants() > 0 => {
                    let mut begin = Begin { to: &raw mut sorted, shared, memory };
                    let begin = (&raw mut begin).cast();
                    guard(|| as_owner(Relation::from_raw(heap), begin_merge, begin));
                }
                Origin::Shared(..) => (),
            }
            sorted.is_over = sorted.sort.is_null();
            pg_sys::MemoryContextSwitchTo(old);
            sorted
        }
    }

    /// Go to the next batch. False at the end. Guarded, and interruptible.
    pub fn advance(&mut self) -> bool {
        self.count = 0;
        if !self.is_over {
            // SAFETY: relations are open, the sort is not over; the closure owns nothing.
            unsafe {
                let (heap, this) = (self.heap, (&raw mut *self).cast());
                guard(|| as_owner(Relation::from_raw(heap), fill, this));
            }
        }
        self.count > 0
    }

    /// The tuples of the batch.
    pub fn batch(&self) -> impl Iterator<Item = Sorted<'_>> {
        // SAFETY: `count` entries are filled, with tuples of the buffer.
        let place = |i| unsafe {
            let BatchTuple { at, len, same, equal } = *self.places.add(i);
            Sorted { tuple: std::slice::from_raw_parts(self.buffer.add(at as usize), len as usize), same, equal }
        };
        (0..self.count).map(place)
    }

    /// The pivot tuple between two neighbors: _bt_truncate (nbtutils.c). Guarded.
    pub fn high_key(&self, left: &[u8], right: &[u8]) -> Vec<u8> {
        let mut neighbours = Neighbours {
            of: (&raw const *self).cast_mut(),
            left: left.as_ptr(),
            left_len: left.len(),
            right: right.as_ptr(),
            right_len: right.len(),
            pivot: std::ptr::null_mut(),
        };
        // SAFETY: as in `advance`; the pivot has the length in its header, and lives in `scratch`.
        unsafe {
            let (heap, argument) = (self.heap, (&raw mut neighbours).cast());
            guard(|| as_owner(Relation::from_raw(heap), truncate, argument));
            let pivot = neighbours.pivot;
            let bytes =
                std::slice::from_raw_parts(pivot.cast::<u8>(), usize::from((*pivot).t_info & SIZE_MASK)).to_vec();
            pg_sys::MemoryContextReset(self.comparison.scratch);
            bytes
        }
    }

    /// Read the values of a tuple. Guarded; they live as long as the tuple.
    ///
    /// # Safety
    /// A tuple of a batch; arrays for the keys of any index.
    pub unsafe fn values(&self, tuple: &[u8], values: *mut pg_sys::Datum, nulls: *mut bool) {
        let tuple = tuple.as_ptr().cast_mut().cast();
        // SAFETY: this function's contract covers the argument; raises nothing.
        unsafe { c::index_deform_tuple(tuple, (*self.index).rd_att, values, nulls) }
    }

    /// Raise the error of _bt_check_third_page (nbtutils.c) for a tuple that is too long. Guarded.
    pub fn refuse(&self, tuple: &[u8]) {
        // SAFETY: guarded calls on an empty page; a tuple of a batch, whose header has its size.
        unsafe {
            let page = pg_sys::palloc0(BLCKSZ).cast::<i8>();
            pg_sys::PageInit(page.cast(), BLCKSZ, SPECIAL);
            page.add(BLCKSZ - SPECIAL + FLAGS).cast::<u16>().write(BTP_LEAF);
            let (heap, index, tuple) = (self.heap, self.index, tuple.as_ptr().cast_mut().cast());
            guard(|| c::_bt_check_third_page(index, heap, true, page.cast(), tuple));
        }
    }

    /// End the sort, and free the memory. Guarded.
    pub fn end(self) {
        // SAFETY: guarded calls; made by `new`.
        unsafe {
            if !self.sort.is_null() {
                pg_sys::tuplesort_end(self.sort);
            }
            pg_sys::MemoryContextDelete(self.memory);
        }
    }
}

/// # Safety
/// A plain frame; [`Begin`].
unsafe extern "C-unwind" fn begin_merge(begin: Opaque) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let Begin { to, shared, memory } = *begin.cast::<Begin>();
        let participants = i32::try_from(shared.participants()).unwrap_or(i32::MAX);
        let mut coordinate =
            pg_sys::SortCoordinateData { isWorker: false, nParticipants: participants, sharedsort: shared.sort };
        let (unique, nulls, options) = (false, false, 0);
        let coordinate = &raw mut coordinate;
        (*to).sort =
            c::tuplesort_begin_index_btree((*to).heap, (*to).index, unique, nulls, memory, coordinate, options);
        c::tuplesort_performsort((*to).sort);
    }
}

/// # Safety
/// A plain frame; [`SortedTuples`] that are not over.
unsafe extern "C-unwind" fn fill(this: Opaque) {
    // SAFETY: this function's contract covers the argument; no value in this frame has a destructor. The buffer has
    // space for a batch with tuples of any size, and `previous` for one.
    unsafe {
        let this = this.cast::<SortedTuples>();
        let (mut used, mut count) = (0, 0);
        let mut before = if (*this).has_previous { (*this).previous.cast_const() } else { std::ptr::null() };
        while used + LONGEST <= BATCH_BYTES && count < BATCH_TUPLES {
            c::check_for_interrupts();
            point_plain!("index.sorted");
            let tuple = c::tuplesort_getindextuple((*this).sort, true);
            if tuple.is_null() {
                (*this).is_over = true;
                break;
            }
            let len = usize::from((*tuple).t_info & SIZE_MASK);
            let place = (*this).buffer.add(used);
            std::ptr::copy_nonoverlapping(tuple.cast::<u8>().cast_const(), place, len);
            let (mut same, mut equal) = (false, false);
            if !before.is_null() {
                let (left, right) = (before.cast_mut().cast(), place.cast());
                match (*this).comparison.sought {
                    Sought::EqualKeys { nulls_equal } => {
                        equal = (*this).comparison.are_equal(nulls_equal, left, right);
                    }
                    Sought::SameValues => same = (*this).comparison.are_same(left, right),
                    Sought::Nothing => (),
                }
            }
            (*this).places.add(count).write(BatchTuple { at: used as u32, len: len as u32, same, equal });
            before = place;
            // Sizes are multiples of MAXALIGN.
            used += len;
            count += 1;
        }
        (*this).count = count;
        if !before.is_null() && before != (*this).previous.cast_const() {
            let len = usize::from((*before.cast::<pg_sys::IndexTupleData>()).t_info & SIZE_MASK);
            std::ptr::copy_nonoverlapping(before, (*this).previous, len);
            (*this).has_previous = true;
        }
    }
}

impl Comparison {
    /// Are the values of two tuples identical, whatever the comparison function?
    ///
    /// # Safety
    /// A plain frame; tuples of the index.
    unsafe fn are_same(&self, left: pg_sys::IndexTuple, right: pg_sys::IndexTuple) -> bool {
        // SAFETY: this function's contract covers them; a tuple has the length in its header.
        unsafe {
            let data = |tuple: pg_sys::IndexTuple| {
                let len = usize::from((*tuple).t_info & SIZE_MASK);
                std::slice::from_raw_parts(tuple.cast::<u8>(), len).get(HEADER..).unwrap_or_default()
            };
            if (*left).t_info == (*right).t_info && data(left) == data(right) {
                return true;
            }
            // In most pairs the first column differs.
            if ((*left).t_info | (*right).t_info) & NULL_MASK == 0
                && let (Some(left), Some(right)) =
                    (first(data(left), self.first_len), first(data(right), self.first_len))
                && left != right
            {
                return false;
            }
            usize::try_from(c::_bt_keep_natts_fast(self.index, left, right)).unwrap_or(0) > self.columns
        }
    }

    /// Are the keys of two tuples such that a unique index cannot contain both?
    ///
    /// # Safety
    /// A plain frame; tuples of the index.
    unsafe fn are_equal(&self, nulls_equal: bool, left: pg_sys::IndexTuple, right: pg_sys::IndexTuple) -> bool {
        // SAFETY: this function's contract covers them. The arrays have space for the values of any index tuple.
        unsafe {
            let has_nulls = ((*left).t_info | (*right).t_info) & NULL_MASK != 0;
            if self.all_equal_image && (!has_nulls || nulls_equal) {
                return self.are_same(left, right);
            }
            let descriptor = (*self.index).rd_att;
            let nothing = pg_sys::Datum::from(0usize);
            let (mut left_values, mut left_nulls) = ([nothing; MOST_KEYS], [false; MOST_KEYS]);
            let (mut right_values, mut right_nulls) = ([nothing; MOST_KEYS], [false; MOST_KEYS]);
            c::index_deform_tuple(left, descriptor, left_values.as_mut_ptr(), left_nulls.as_mut_ptr());
            c::index_deform_tuple(right, descriptor, right_values.as_mut_ptr(), right_nulls.as_mut_ptr());
            let old = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = self.scratch;
            let mut equal = true;
            for column in 0..self.columns.min(MOST_KEYS) {
                let (left_null, right_null) = (*left_nulls.as_ptr().add(column), *right_nulls.as_ptr().add(column));
                if left_null || right_null {
                    equal = left_null && right_null && nulls_equal;
                } else {
                    let procedure = c::index_getprocinfo(self.index, column as i16 + 1, ORDER);
                    let collation = *(*self.index).rd_indcollation.add(column);
                    let (left, right) = (*left_values.as_ptr().add(column), *right_values.as_ptr().add(column));
                    equal = c::FunctionCall2Coll(procedure, collation, left, right).value() as i32 == 0;
                }
                if !equal {
                    break;
                }
            }
            pg_sys::CurrentMemoryContext = old;
            c::MemoryContextReset(self.scratch);
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

/// # Safety
/// A plain frame; [`Neighbours`].
unsafe extern "C-unwind" fn truncate(neighbours: Opaque) {
    // SAFETY: this function's contract covers the argument. Tuples must be aligned, so the bytes are copied.
    unsafe {
        let neighbours = neighbours.cast::<Neighbours>();
        let of = (*neighbours).of;
        let old = pg_sys::CurrentMemoryContext;
        let scratch = (*of).comparison.scratch;
        pg_sys::CurrentMemoryContext = scratch;
        let copy = |bytes: *const u8, len: usize| {
            let place = c::MemoryContextAlloc(scratch, len).cast::<u8>();
            std::ptr::copy_nonoverlapping(bytes, place, len);
            place.cast::<pg_sys::IndexTupleData>()
        };
        let left = copy((*neighbours).left, (*neighbours).left_len);
        let right = copy((*neighbours).right, (*neighbours).right_len);
        (*neighbours).pivot = c::_bt_truncate((*of).index, left, right, (*of).key);
        pg_sys::CurrentMemoryContext = old;
    }
}
