//! Sorts of several processes of a load, each with its own tuples, which the leader merges.
//!
//! Like [`crate::server::shared_files`], they lie in a separate segment, because they outlive the workers and the shared memory
//! of the parallel context. Sorted tuples go to files. The leader's resource owner releases the segment, and the
//! segment deletes the files.
//!
//! The tricky point is the number of participants. A process may see no row of a relation, and the leader may get more
//! rows after it has sorted. Every process that sorts tuples counts itself, since the merge requires the exact number.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::server::team::SharedRef;

/// `MAXALIGN` (c.h), and a cache line.
const ALIGN: usize = 64;

/// An array of shared sorts.
#[derive(Debug, Clone, Copy)]
pub struct SharedSorts {
    segment: *mut pg_sys::dsm_segment,
    count: usize,
    /// Bytes from one sort to the next.
    each: usize,
}

/// Counters of a sort.
#[derive(Debug)]
#[repr(C, align(64))]
struct SortTally {
    /// Number of processes that have sorted tuples.
    participants: AtomicU64,
    /// Number of rows that these have seen.
    rows: AtomicU64,
}

/// One of the sorts. Valid while this process is attached.
#[derive(Debug, Clone, Copy)]
pub struct SharedSort {
    tally: SharedRef<SortTally>,
    sort: *mut pg_sys::Sharedsort,
}

/// What a process does in a shared sort.
#[derive(Debug, Clone, Copy)]
pub enum Role {
    /// It sorts tuples of its own.
    Participant,
    /// It merges the tuples of all participants.
    Merger,
}

impl SharedSorts {
    /// Create `count` sorts, each for at most `participants` processes. None if there is no shared memory for them.
    /// Guarded.
    pub fn create(count: usize, participants: usize) -> Option<SharedSorts> {
        let most = i32::try_from(participants).ok()?;
        // SAFETY: guarded calls; the segment has space for each.
        unsafe {
            let each = size_of::<SortTally>() + pg_sys::tuplesort_estimate_shared(most).next_multiple_of(ALIGN);
            let flags = pg_sys::DSM_CREATE_NULL_IF_MAXSEGMENTS.cast_signed();
            let segment = pg_sys::dsm_create(each * count, flags);
            if segment.is_null() {
                return None;
            }
            let sorts = SharedSorts { segment, count, each };
            for place in (0..count).filter_map(|number| sorts.place(number)) {
                place.cast::<SortTally>().write(SortTally { participants: AtomicU64::new(0), rows: AtomicU64::new(0) });
                pg_sys::tuplesort_initialize_shared(place.add(size_of::<SortTally>()).cast(), most, segment);
            }
            Some(sorts)
        }
    }

    /// The handle that another process of the load needs to attach, together with `count`.
    pub fn handle(&self) -> u32 {
        // SAFETY: attached.
        unsafe { pg_sys::dsm_segment_handle(self.segment) }
    }

    /// Attach to the sorts of another process. Guarded.
    pub fn attach(handle: u32, count: usize, participants: usize) -> Result<SharedSorts> {
        // SAFETY: guarded calls.
        unsafe {
            let most = i32::try_from(participants).unwrap_or(0);
            let each = size_of::<SortTally>() + pg_sys::tuplesort_estimate_shared(most).next_multiple_of(ALIGN);
            let segment = pg_sys::dsm_attach(handle);
            if segment.is_null() || pg_sys::dsm_segment_map_length(segment) / each < count {
                let message = "could not map dynamic shared memory segment";
                return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message));
            }
            let sorts = SharedSorts { segment, count, each };
            for place in (0..count).filter_map(|number| sorts.place(number)) {
                pg_sys::tuplesort_attach_shared(place.add(size_of::<SortTally>()).cast(), segment);
            }
            Ok(sorts)
        }
    }

    fn place(&self, number: usize) -> Option<*mut u8> {
        // SAFETY: attached, and there is room for `count` sorts.
        (number < self.count)
            .then(|| unsafe { pg_sys::dsm_segment_address(self.segment).cast::<u8>().add(number * self.each) })
    }

    /// Return one of the sorts.
    pub fn get(&self, number: usize) -> Option<SharedSort> {
        let place = self.place(number)?;
        // SAFETY: made by `create`. The handle is not used after `release`.
        unsafe {
            let tally = SharedRef::new(&*place.cast::<SortTally>());
            Some(SharedSort { tally, sort: place.add(size_of::<SortTally>()).cast() })
        }
    }

    /// Detach; the last process to do so deletes the sorted tuples. Guarded.
    ///
    /// # Safety
    /// No copy of this handle, and nothing that it lent, is used any more.
    pub unsafe fn release(self) {
        // SAFETY: attached; none of the files is open any more.
        unsafe { pg_sys::dsm_detach(self.segment) };
    }
}

impl SharedSort {
    /// What tuplesort.c needs to know of this process.
    pub(super) fn coordinates(&self, role: Role) -> pg_sys::SortCoordinateData {
        let (is_worker, participants) = match role {
            Role::Participant => (true, -1),
            Role::Merger => (false, i32::try_from(self.participants()).unwrap_or(i32::MAX)),
        };
        pg_sys::SortCoordinateData { isWorker: is_worker, nParticipants: participants, sharedsort: self.sort }
    }

    /// Count this process as a participant that has sorted its tuples, from `rows` rows.
    pub fn count(&self, rows: u64) {
        self.tally.participants.fetch_add(1, Relaxed);
        self.tally.rows.fetch_add(rows, Relaxed);
    }

    /// Number of participants.
    pub fn participants(&self) -> u64 {
        self.tally.participants.load(Relaxed)
    }

    /// Number of rows that the participants have seen.
    pub fn rows(&self) -> u64 {
        self.tally.rows.load(Relaxed)
    }
}
