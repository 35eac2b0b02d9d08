//! C functions for plain frames whose name or parameters differ between versions. [`crate::server::unguarded`] declares all
//! others, states the rules, and re-exports these.
#![allow(non_snake_case)]

use std::ffi::{c_int, c_void};

use pgrx::pg_sys;

unsafe extern "C-unwind" {
    /// execMain.c.
    #[cfg(not(feature = "pg18"))]
    pub fn ExecutorRun(
        queryDesc: *mut pg_sys::QueryDesc,
        direction: pg_sys::ScanDirection::Type,
        count: u64,
        execute_once: bool,
    );
    /// execMain.c.
    #[cfg(feature = "pg18")]
    pub fn ExecutorRun(queryDesc: *mut pg_sys::QueryDesc, direction: pg_sys::ScanDirection::Type, count: u64);
    /// acl.c. Looks into the catalogs. From 17 on, no plain frame calls it.
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    pub fn has_privs_of_role(member: pg_sys::Oid, role: pg_sys::Oid) -> bool;
    /// namespace.c. Lasts until the nest level ends.
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    pub fn RestrictSearchPath();
    /// nbtsearch.c.
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    pub fn _bt_get_endpoint(
        relation: pg_sys::Relation,
        level: u32,
        rightmost: bool,
        snapshot: pg_sys::Snapshot,
    ) -> pg_sys::Buffer;
    /// nbtsearch.c.
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    pub fn _bt_get_endpoint(relation: pg_sys::Relation, level: u32, rightmost: bool) -> pg_sys::Buffer;
    /// nbtpage.c. Extends the file, or takes a page that was recycled.
    #[cfg(feature = "pg15")]
    pub fn _bt_getbuf(relation: pg_sys::Relation, block: pg_sys::BlockNumber, access: c_int) -> pg_sys::Buffer;
    /// nbtpage.c. Extends the file, or takes a page that was recycled.
    #[cfg(not(feature = "pg15"))]
    pub fn _bt_allocbuf(relation: pg_sys::Relation, heap: pg_sys::Relation) -> pg_sys::Buffer;
    /// pg_locale.c; gone from 18 on. Looks into the catalogs.
    #[cfg(not(feature = "pg18"))]
    pub fn lc_collate_is_c(collation: pg_sys::Oid) -> bool;
    /// nbtsearch.c. Finishes splits; a returned leaf is pinned and locked.
    #[cfg(feature = "pg15")]
    pub fn _bt_search(
        relation: pg_sys::Relation,
        key: *mut c_void,
        buffer: *mut pg_sys::Buffer,
        access: c_int,
        snapshot: pg_sys::Snapshot,
    ) -> *mut c_void;
    /// nbtsearch.c. Finishes splits; a returned leaf is pinned and locked.
    #[cfg(feature = "pg16")]
    pub fn _bt_search(
        relation: pg_sys::Relation,
        heap: pg_sys::Relation,
        key: *mut c_void,
        buffer: *mut pg_sys::Buffer,
        access: c_int,
        snapshot: pg_sys::Snapshot,
    ) -> *mut c_void;
    /// nbtsearch.c. Finishes splits; a returned leaf is pinned and locked.
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    pub fn _bt_search(
        relation: pg_sys::Relation,
        heap: pg_sys::Relation,
        key: *mut c_void,
        buffer: *mut pg_sys::Buffer,
        access: c_int,
    ) -> *mut c_void;
    /// storage.c.
    #[cfg(feature = "pg15")]
    pub fn log_smgrcreate(locator: *const pg_sys::RelFileNode, fork: pg_sys::ForkNumber::Type);
    /// storage.c.
    #[cfg(not(feature = "pg15"))]
    pub fn log_smgrcreate(locator: *const pg_sys::RelFileLocator, fork: pg_sys::ForkNumber::Type);
    /// execIndexing.c.
    #[cfg(feature = "pg15")]
    pub fn ExecInsertIndexTuples(
        relinfo: *mut pg_sys::ResultRelInfo,
        slot: *mut pg_sys::TupleTableSlot,
        estate: *mut pg_sys::EState,
        update: bool,
        no_duplicate_error: bool,
        conflict: *mut bool,
        arbiters: *mut pg_sys::List,
    ) -> *mut pg_sys::List;
    /// execIndexing.c.
    #[cfg(not(feature = "pg15"))]
    pub fn ExecInsertIndexTuples(
        relinfo: *mut pg_sys::ResultRelInfo,
        slot: *mut pg_sys::TupleTableSlot,
        estate: *mut pg_sys::EState,
        update: bool,
        no_duplicate_error: bool,
        conflict: *mut bool,
        arbiters: *mut pg_sys::List,
        only_summarizing: bool,
    ) -> *mut pg_sys::List;
    /// execIndexing.c. Waits for other transactions; returns false on a conflict with another row.
    #[cfg(not(feature = "pg18"))]
    pub fn ExecCheckIndexConstraints(
        relinfo: *mut pg_sys::ResultRelInfo,
        slot: *mut pg_sys::TupleTableSlot,
        estate: *mut pg_sys::EState,
        conflict: pg_sys::ItemPointer,
        arbiters: *mut pg_sys::List,
    ) -> bool;
    /// execIndexing.c. Waits for other transactions; returns false on a conflict with another row than `own`.
    #[cfg(feature = "pg18")]
    pub fn ExecCheckIndexConstraints(
        relinfo: *mut pg_sys::ResultRelInfo,
        slot: *mut pg_sys::TupleTableSlot,
        estate: *mut pg_sys::EState,
        conflict: pg_sys::ItemPointer,
        own: pg_sys::ItemPointer,
        arbiters: *mut pg_sys::List,
    ) -> bool;
    /// indexam.c.
    #[cfg(not(feature = "pg18"))]
    pub fn index_beginscan(
        heap: pg_sys::Relation,
        index: pg_sys::Relation,
        snapshot: pg_sys::Snapshot,
        keys: c_int,
        order_bys: c_int,
    ) -> pg_sys::IndexScanDesc;
    /// indexam.c.
    #[cfg(feature = "pg18")]
    pub fn index_beginscan(
        heap: pg_sys::Relation,
        index: pg_sys::Relation,
        snapshot: pg_sys::Snapshot,
        instrument: *mut pg_sys::IndexScanInstrumentation,
        keys: c_int,
        order_bys: c_int,
    ) -> pg_sys::IndexScanDesc;
}
