//! Sorts rows of numbers, in memory or with the server's external sort.
//!
//! Rows that fit into memory are sorted here. That takes a tenth of the time of the server's sort, which forms a tuple
//! for each row. If the rows need more memory, all of them go to the server's sort. All functions are guarded.

use pgrx::pg_sys;

use crate::server::memory_context::MemoryContext;
use crate::server::unguarded as c;

/// Rows between two checks for interrupts.
const INTERVAL: usize = 4096;

/// Rows of `N` numbers, which are returned in ascending order.
#[derive(Debug)]
pub struct NumberSort<const N: usize> {
    /// In kB.
    memory: i32,
    /// Memory context of the server's sort: the one in which this was created.
    context: MemoryContext,
    /// The rows while they fit into memory, and how many of them were returned.
    few: Vec<[i64; N]>,
    taken: usize,
    many: Option<Many<N>>,
    /// Number of rows that were put.
    pub count: u64,
}

impl<const N: usize> NumberSort<N> {
    /// Creates a sort with `memory` kB. The current memory context must outlive it.
    pub fn new(memory: i32) -> NumberSort<N> {
        NumberSort { memory, context: MemoryContext::current(), few: Vec::new(), taken: 0, many: None, count: 0 }
    }

    pub fn put(&mut self, row: [u64; N]) {
        self.count += 1;
        if let Some(many) = &mut self.many {
            return many.put(signed(row));
        }
        // While the vector grows, it takes half as much memory again.
        let most = usize::try_from(self.memory).unwrap_or(0) * 1024 / 2 / size_of::<[u64; N]>();
        let has_room = self.few.len() < self.few.capacity()
            || (self.few.len() < most && self.few.try_reserve_exact(self.few.len().clamp(64, 1 << 20)).is_ok());
        if has_room {
            return self.few.push(signed(row));
        }
        let entered = self.context.enter();
        // The other half is used by the rows until all of them are handed over.
        let mut many = Many::new(self.memory / 2);
        drop(entered);
        for (i, row) in std::mem::take(&mut self.few).into_iter().enumerate() {
            if i % INTERVAL == 0 {
                pgrx::check_for_interrupts!();
            }
            many.put(row);
        }
        many.put(signed(row));
        self.many = Some(many);
    }

    /// Sorts the rows. Called once, after the last row.
    pub fn sort(&mut self) {
        match &mut self.many {
            Some(many) => many.sort(),
            // In the order of the server's sort.
            None => self.few.sort_unstable(),
        }
    }

    /// Returns the next row.
    pub fn take(&mut self) -> Option<[u64; N]> {
        if let Some(many) = &mut self.many {
            return many.take();
        }
        let row = self.few.get(self.taken)?;
        self.taken += 1;
        Some(std::array::from_fn(|i| row.get(i).map_or(0, |number| number.cast_unsigned())))
    }

    /// Frees the resources.
    pub fn end(self) {
        if let Some(many) = self.many {
            many.end();
        }
    }
}

/// Converts numbers to signed ones, as the server has them.
fn signed<const N: usize>(row: [u64; N]) -> [i64; N] {
    std::array::from_fn(|i| row.get(i).map_or(0, |number| number.cast_signed()))
}

/// The server's sort of such rows.
#[derive(Debug)]
struct Many<const N: usize> {
    state: *mut pg_sys::Tuplesortstate,
    /// Slots for rows that are put, and rows that are returned.
    slot: *mut pg_sys::TupleTableSlot,
    sorted: *mut pg_sys::TupleTableSlot,
}

impl<const N: usize> Many<N> {
    /// Creates a sort with `memory` kB. Allocates in the current memory context, which must outlive it.
    fn new(memory: i32) -> Many<N> {
        // SAFETY: guarded calls; the arrays have an element for each column.
        unsafe {
            let columns = i16::try_from(N).unwrap_or(1);
            let descriptor = pg_sys::CreateTemplateTupleDesc(columns.into());
            for attnum in 1..=columns {
                pg_sys::TupleDescInitEntry(descriptor, attnum, c"n".as_ptr(), pg_sys::INT8OID, -1, 0);
            }
            let entry = pg_sys::lookup_type_cache(pg_sys::INT8OID, pg_sys::TYPECACHE_LT_OPR.cast_signed());
            let mut numbers: [i16; N] = std::array::from_fn(|i| i16::try_from(i + 1).unwrap_or(1));
            let (mut operators, mut collations) = ([(*entry).lt_opr; N], [pg_sys::InvalidOid; N]);
            let mut nulls_first = [false; N];
            let state = pg_sys::tuplesort_begin_heap(
                descriptor,
                columns.into(),
                numbers.as_mut_ptr(),
                operators.as_mut_ptr(),
                collations.as_mut_ptr(),
                nulls_first.as_mut_ptr(),
                memory,
                std::ptr::null_mut(),
                0,
            );
            Many {
                state,
                slot: pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsVirtual),
                sorted: pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsMinimalTuple),
            }
        }
    }

    fn put(&mut self, row: [i64; N]) {
        // SAFETY: the slot has `N` columns.
        unsafe {
            for (i, number) in row.into_iter().enumerate() {
                *(*self.slot).tts_values.add(i) = pg_sys::Datum::from(number);
                *(*self.slot).tts_isnull.add(i) = false;
            }
            c::guard(|| {
                c::clear_virtual(self.slot);
                c::store_virtual(self.slot);
                c::tuplesort_puttupleslot(self.state, self.slot);
            });
        }
    }

    fn sort(&mut self) {
        // SAFETY: the sort was begun.
        unsafe { c::guard(|| c::tuplesort_performsort(self.state)) };
    }

    fn take(&mut self) -> Option<[u64; N]> {
        // SAFETY: the sort was performed; the slot has `N` columns.
        unsafe {
            let columns = i32::try_from(N).unwrap_or(1);
            let found = c::guard(|| {
                let found = c::tuplesort_gettupleslot(self.state, true, false, self.sorted, std::ptr::null_mut());
                if found {
                    c::slot_getsomeattrs_int(self.sorted, columns);
                }
                found
            });
            found.then(|| std::array::from_fn(|i| (*(*self.sorted).tts_values.add(i)).value() as u64))
        }
    }

    fn end(self) {
        // SAFETY: created by `new`.
        unsafe {
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
            pg_sys::ExecDropSingleTupleTableSlot(self.sorted);
            c::guard(|| c::tuplesort_end(self.state));
        }
    }
}
