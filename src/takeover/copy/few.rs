//! Few rows from a client: core's COPY, with data that the client has already sent.
//!
//! In the time that a load needs to begin, core stores some hundreds of rows. The amount of data is unknown until the
//! client has been asked for it, and then the statement cannot go back to core. But if the end of the data arrives with
//! the first bytes, core's CopyFrom can read them through its callback.
//!
//! The callback has no argument, so its data are in a variable of the process. Only one such COPY runs at a time,
//! because functions cannot COPY FROM STDIN.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use pgrx::pg_sys;

use crate::server::compat;
use crate::server::node::Node;
use crate::server::relation::Relation;
use crate::server::unguarded as c;

/// Does COPY read these bytes the same way from a callback and from a client? Not if data follow a `\.`, since COPY
/// ignores a client's data after any such line. psql also sends the marker that ends its input.
pub fn suits(data: &[u8]) -> bool {
    memchr::memmem::find(data, b"\\.")
        .is_none_or(|at| matches!(data.get(at + 2..), Some(b"" | b"\n" | b"\r" | b"\r\n")))
}

thread_local! {
    /// The bytes that the callback has not delivered yet.
    static REST: Cell<&'static [u8]> = const { Cell::new(&[]) };
}

/// # Safety
/// Called by CopyGetData (copyfromparse.c), with room for `most` bytes.
unsafe extern "C-unwind" fn deliver(room: *mut c_void, _least: c_int, most: c_int) -> c_int {
    let all = REST.get();
    let (now, rest) = all.split_at(all.len().min(usize::try_from(most).unwrap_or(0)));
    REST.set(rest);
    // SAFETY: there is room for these bytes.
    unsafe { room.cast::<u8>().copy_from_nonoverlapping(now.as_ptr(), now.len()) };
    c_int::try_from(now.len()).unwrap_or(0)
}

/// Runs core's CopyFrom, as DoCopy (copy.c) does after its checks. Returns the number of rows.
///
/// # Safety
/// A plain frame; an eligible COPY FROM STDIN, its table, which is closed at the end, and the state that its condition
/// was analyzed with, as DoCopy makes it; the data of the client, which outlive the call.
pub unsafe fn copy(
    statement: Node<'_, pg_sys::CopyStmt>,
    relation: Relation<'static>,
    state: *mut pg_sys::ParseState,
    conditions: *mut pg_sys::List,
    data: &'static [u8],
) -> u64 {
    let relation = relation.as_ptr();
    // SAFETY: the frame is plain; the callback's data outlive the COPY, which is eligible.
    unsafe {
        if (*state).p_rtable.is_null() {
            let lock = pg_sys::RowExclusiveLock.cast_signed();
            c::addRangeTableEntryForRelation(state, relation, lock, std::ptr::null_mut(), false, false);
        }
        compat::insert_into(state, relation, statement.attlist);
        REST.set(data);
        let (no_file, is_program) = (std::ptr::null(), false);
        let copy = c::BeginCopyFrom(
            state,
            relation,
            conditions.cast(),
            no_file,
            is_program,
            Some(deliver),
            statement.attlist,
            statement.options,
        );
        let pipe = i64::from(pg_sys::PROGRESS_COPY_TYPE_PIPE);
        c::pgstat_progress_update_param(pg_sys::PROGRESS_COPY_TYPE.cast_signed(), pipe);
        let rows = c::CopyFrom(copy);
        c::EndCopyFrom(copy);
        c::table_close(relation, pg_sys::NoLock.cast_signed());
        rows
    }
}
