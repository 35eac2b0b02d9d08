//! Sorts that several processes of a load take part in, each with tuples of its own, for the leader to merge.
//!
//! As with [`super::shared_files`], they lie in a segment of their own, because they outlive the workers and what these were
//! started with. What is sorted goes to files that go with the segment, which goes with the leader's resource owner.
//!
//! The tricky point is who takes part. A process may see no row of a relation, and the leader may have more rows after it
//! has sorted; whoever sorts anything counts, and the merge wants to know how many there were.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};

/// `MAXALIGN` (c.h), and a cache line.
const ALIGN: usize = 64;

/// So many sorts.
#[derive(Debug, Clone, Copy)]
pub struct SharedSorts {
    segment: *mut pg_sys::dsm_segment,
    count: usize,
    /// Bytes from one to the next.
    each: usize,
}

/// What is known of a sort besides its tuples.
#[derive(Debug)]
#[repr(C, align(64))]
struct Tally {
    /// Who has taken part.
    participants: AtomicU64,
    /// Rows that were seen.
    rows: AtomicU64,
}

/// One of them. Valid as long as its process is attached.
#[derive(Debug, Clone, Copy)]
pub struct SharedSort {
    tally: *const Tally,
    pub sort: *mut pg_sys::Sharedsort,
}

impl SharedSorts {
    /// For so many participants each, at most. None if there is no shared memory for it. Guarded.
    pub fn create(count: usize, participants: usize) -> Option<SharedSorts> {
        let most = i32::try_from(participants).ok()?;
        // SAFETY: guarded calls; there is room for each.
        unsafe {
            let each = size_of::<Tally>() + pg_sys::tuplesort_estimate_shared(most).next_multiple_of(ALIGN);
            let flags = pg_sys::DSM_CREATE_NULL_IF_MAXSEGMENTS.cast_signed();
            let segment = pg_sys::dsm_create(each * count, flags);
            if segment.is_null() {
                return None;
            }
            let sorts = SharedSorts { segment, count, each };
            for number in 0..count {
                let place = sorts.place(number);
                place.cast::<Tally>().write(Tally { participants: AtomicU64::new(0), rows: AtomicU64::new(0) });
                pg_sys::tuplesort_initialize_shared(place.add(size_of::<Tally>()).cast(), most, segment);
            }
            Some(sorts)
        }
    }

    /// What another process of the load needs to attach, together with their number.
    pub fn handle(&self) -> u32 {
        // SAFETY: attached.
        unsafe { pg_sys::dsm_segment_handle(self.segment) }
    }

    /// Those that another process made. Guarded.
    pub fn attach(handle: u32, count: usize, participants: usize) -> Result<SharedSorts> {
        // SAFETY: guarded calls.
        unsafe {
            let segment = pg_sys::dsm_attach(handle);
            if segment.is_null() {
                let message = "could not map dynamic shared memory segment";
                return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message));
            }
            let most = i32::try_from(participants).unwrap_or(0);
            let each = size_of::<Tally>() + pg_sys::tuplesort_estimate_shared(most).next_multiple_of(ALIGN);
            let sorts = SharedSorts { segment, count, each };
            for number in 0..count {
                pg_sys::tuplesort_attach_shared(sorts.place(number).add(size_of::<Tally>()).cast(), segment);
            }
            Ok(sorts)
        }
    }

    /// # Safety
    /// One of them.
    unsafe fn place(&self, number: usize) -> *mut u8 {
        // SAFETY: attached; this function's contract covers the number.
        unsafe { pg_sys::dsm_segment_address(self.segment).cast::<u8>().add(number * self.each) }
    }

    /// One of them.
    pub fn get(&self, number: usize) -> Option<SharedSort> {
        // SAFETY: it is one of them, made by `create`.
        (number < self.count).then(|| unsafe {
            let place = self.place(number);
            SharedSort { tally: place.cast(), sort: place.add(size_of::<Tally>()).cast() }
        })
    }

    /// Delete what was sorted, if nobody else is attached. Guarded.
    pub fn release(self) {
        // SAFETY: attached; none of the files is open any more.
        unsafe { pg_sys::dsm_detach(self.segment) };
    }
}

impl SharedSort {
    fn tally(&self) -> &Tally {
        // SAFETY: attached, says the type.
        unsafe { &*self.tally }
    }

    /// Somebody has sorted what he had, of so many rows.
    pub fn count(&self, rows: u64) {
        self.tally().participants.fetch_add(1, Relaxed);
        self.tally().rows.fetch_add(rows, Relaxed);
    }

    /// How many have.
    pub fn participants(&self) -> u64 {
        self.tally().participants.load(Relaxed)
    }

    /// Of how many rows.
    pub fn rows(&self) -> u64 {
        self.tally().rows.load(Relaxed)
    }
}
