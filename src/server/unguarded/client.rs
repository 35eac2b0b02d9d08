//! Functions for the connection to the client, and COPY.

use std::ffi::{c_char, c_int, c_void};

use pgrx::pg_sys;

/// The first members of `PQcommMethods` (libpq.h), which are unchanged from 9.5 to 18.
#[derive(Debug)]
#[repr(C)]
pub struct CommMethods {
    comm_reset: *const c_void,
    pub flush: unsafe extern "C-unwind" fn() -> c_int,
}

unsafe extern "C-unwind" {
    /// pqcomm.c. The functions that send messages: to the client, or to the leader of a parallel worker.
    #[allow(non_upper_case_globals)]
    pub static PqCommMethods: *const CommMethods;
    /// pqformat.c. Raises nothing but out of memory.
    pub fn pq_beginmessage(buffer: *mut pg_sys::StringInfoData, kind: c_char);
    /// pqformat.c. Raises nothing but out of memory.
    pub fn pq_sendbytes(buffer: *mut pg_sys::StringInfoData, data: *const c_void, length: c_int);
    /// pqformat.c. Sends the message, and frees the buffer's memory.
    pub fn pq_endmessage(buffer: *mut pg_sys::StringInfoData);
    /// copyfrom.c.
    pub fn BeginCopyFrom(
        pstate: *mut pg_sys::ParseState,
        rel: pg_sys::Relation,
        whereClause: *mut pg_sys::Node,
        filename: *const c_char,
        is_program: bool,
        data_source_cb: Option<unsafe extern "C-unwind" fn(*mut c_void, c_int, c_int) -> c_int>,
        attnamelist: *mut pg_sys::List,
        options: *mut pg_sys::List,
    ) -> pg_sys::CopyFromState;
    /// copyfrom.c. Returns the number of rows.
    pub fn CopyFrom(cstate: pg_sys::CopyFromState) -> u64;
    /// copyfrom.c.
    pub fn EndCopyFrom(cstate: pg_sys::CopyFromState);
    /// copy.c. Returns the attribute numbers of the named columns.
    pub fn CopyGetAttnums(
        tupDesc: pg_sys::TupleDesc,
        rel: pg_sys::Relation,
        attnamelist: *mut pg_sys::List,
    ) -> *mut pg_sys::List;
    /// backend_progress.c. Raises nothing.
    pub fn pgstat_progress_update_param(index: c_int, val: i64);
    /// table.c. Raises nothing for an open table.
    pub fn table_close(relation: pg_sys::Relation, lockmode: c_int);
    /// bitmapset.c. Raises nothing but out of memory.
    pub fn bms_add_member(a: *mut pg_sys::Bitmapset, x: c_int) -> *mut pg_sys::Bitmapset;
    /// pqcomm.c. From here to the message's end, a lost message boundary ends the connection.
    pub fn pq_startmsgread();
    /// pqcomm.c. Raises nothing.
    pub fn pq_endmsgread();
    /// pqcomm.c. Waits for a byte and returns it, or -1; serves SIGTERM while it waits.
    pub fn pq_getbyte() -> c_int;
    /// pqcomm.c. Returns 1 with a byte, 0 if none is available yet, or -1.
    pub fn pq_getbyte_if_available(byte: *mut u8) -> c_int;
    /// pqcomm.c. Reads the rest of a message; the result is not 0 on failure. Waits.
    pub fn pq_getmessage(buffer: *mut pg_sys::StringInfoData, most: c_int) -> c_int;
}
