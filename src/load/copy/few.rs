//! Few rows from a client: core's COPY, of what the client has sent already.
//!
//! What a load takes to begin, core spends on some hundred rows. How many a client is going to send is not known before it has been
//! asked; then the statement cannot be handed on any more. But if the end comes along with the first bytes, core's CopyFrom can be
//! given these through its callback.
//!
//! What the callback delivers is in a variable of the process, since the callback is told nothing. There is one such COPY at a time:
//! functions cannot COPY FROM STDIN.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::pg_sys;

use crate::pg::compat;
use crate::pg::unguarded as c;

/// Data of a client that is done.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Few {
    /// Null if there are more than a few, or nobody knows.
    pub data: *mut c_char,
    pub len: usize,
}

impl Few {
    pub const NONE: Few = Few { data: std::ptr::null_mut(), len: 0 };

    /// Does COPY take these bytes of a callback's as it would a client's? Not if something comes behind a `\.`: of a client's data
    /// it is ignored, whatever the line was. psql sends the marker that ends its input, too.
    pub fn suits(data: &[u8]) -> bool {
        memchr::memmem::find(data, b"\\.")
            .is_none_or(|at| matches!(data.get(at + 2..), Some(b"" | b"\n" | b"\r" | b"\r\n")))
    }
}

/// What is still to be delivered.
static REST: AtomicPtr<Few> = AtomicPtr::new(std::ptr::null_mut());

/// # Safety
/// Called by CopyGetData (copyfromparse.c), with room for so many bytes.
unsafe extern "C-unwind" fn deliver(room: *mut c_void, _least: c_int, most: c_int) -> c_int {
    // SAFETY: set by `copy`, which is running.
    unsafe {
        let rest = &mut *REST.load(Relaxed);
        let count = rest.len.min(usize::try_from(most).unwrap_or(0));
        room.cast::<c_char>().copy_from_nonoverlapping(rest.data, count);
        rest.data = rest.data.add(count);
        rest.len -= count;
        c_int::try_from(count).unwrap_or(0)
    }
}

/// Let core copy them; what DoCopy (copy.c) does when it has checked everything. Returns the number of rows.
///
/// # Safety
/// A plain frame; a COPY FROM STDIN that was judged, its table, which is closed in the end, the state in which its condition was made, as
/// DoCopy makes it; data that outlive the call.
pub unsafe fn copy(
    statement: *const pg_sys::CopyStmt,
    relation: pg_sys::Relation,
    state: *mut pg_sys::ParseState,
    conditions: *mut pg_sys::List,
    mut few: Few,
) -> u64 {
    // SAFETY: this function's contract covers the arguments.
    unsafe {
        if (*state).p_rtable.is_null() {
            let lock = pg_sys::RowExclusiveLock.cast_signed();
            c::addRangeTableEntryForRelation(state, relation, lock, std::ptr::null_mut(), false, false);
        }
        compat::insert_into(state, relation, (*statement).attlist);
        REST.store(&raw mut few, Relaxed);
        let (no_file, is_program) = (std::ptr::null(), false);
        let copy = c::BeginCopyFrom(
            state,
            relation,
            conditions.cast(),
            no_file,
            is_program,
            Some(deliver),
            (*statement).attlist,
            (*statement).options,
        );
        let pipe = i64::from(pg_sys::PROGRESS_COPY_TYPE_PIPE);
        c::pgstat_progress_update_param(pg_sys::PROGRESS_COPY_TYPE.cast_signed(), pipe);
        let rows = c::CopyFrom(copy);
        c::EndCopyFrom(copy);
        c::table_close(relation, pg_sys::NoLock.cast_signed());
        rows
    }
}
