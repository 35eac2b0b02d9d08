//! Rows of numbers, sorted: in memory while they fit, else by way of files.
//!
//! The server's own sort, for what is only ours. All functions are guarded.

use pgrx::pg_sys;

use super::unguarded as c;

/// Rows of `N` numbers, in ascending order once they are all there.
#[derive(Debug)]
pub struct NumberSort<const N: usize> {
    state: *mut pg_sys::Tuplesortstate,
    /// For what is put, and what is taken.
    slot: *mut pg_sys::TupleTableSlot,
    sorted: *mut pg_sys::TupleTableSlot,
    /// Rows that were put.
    pub count: u64,
}

impl<const N: usize> NumberSort<N> {
    /// With so much memory, in kB. Allocates in the current memory context, which must live as long.
    pub fn new(memory: i32) -> NumberSort<N> {
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
            NumberSort {
                state,
                slot: pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsVirtual),
                sorted: pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsMinimalTuple),
                count: 0,
            }
        }
    }

    pub fn put(&mut self, row: [u64; N]) {
        // SAFETY: a slot with so many columns.
        unsafe {
            for (i, number) in row.into_iter().enumerate() {
                *(*self.slot).tts_values.add(i) = pg_sys::Datum::from(number.cast_signed());
                *(*self.slot).tts_isnull.add(i) = false;
            }
            c::guard(|| {
                c::clear_virtual(self.slot);
                c::store_virtual(self.slot);
                c::tuplesort_puttupleslot(self.state, self.slot);
            });
        }
        self.count += 1;
    }

    /// All are there.
    pub fn sort(&mut self) {
        // SAFETY: a sort that was begun.
        unsafe { c::guard(|| c::tuplesort_performsort(self.state)) };
    }

    /// The next row.
    pub fn take(&mut self) -> Option<[u64; N]> {
        // SAFETY: a sort that was performed; the slot has so many columns.
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

    /// Give back what it takes.
    pub fn end(self) {
        // SAFETY: what `new` made.
        unsafe {
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
            pg_sys::ExecDropSingleTupleTableSlot(self.sorted);
            c::guard(|| c::tuplesort_end(self.state));
        }
    }
}
