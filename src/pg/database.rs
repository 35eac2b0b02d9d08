//! The databases of the cluster, and which of them this is.

use pgrx::pg_sys;

/// The cluster's number.
pub fn cluster() -> i64 {
    // SAFETY: reads what the server has read when it started.
    unsafe { pg_sys::GetSystemIdentifier() }.cast_signed()
}

/// The database of this process.
pub fn database() -> pg_sys::Oid {
    // SAFETY: a variable, set when the process connects.
    unsafe { pg_sys::MyDatabaseId }
}

/// Those that one can connect to, for a process that is in none of them. Guarded.
pub fn databases() -> Vec<pg_sys::Oid> {
    let mut found = Vec::new();
    // SAFETY: guarded calls in a transaction; what get_database_list (autovacuum.c) does. The tuple that a scan returns is
    // good until the next one.
    unsafe {
        let lock = pg_sys::AccessShareLock.cast_signed();
        let relation = pg_sys::table_open(pg_sys::DatabaseRelationId, lock);
        let scan = pg_sys::table_beginscan_catalog(relation, 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            let form = pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_database>();
            if (*form).datallowconn {
                found.push((*form).oid);
            }
        }
        pg_sys::table_endscan(scan);
        pg_sys::table_close(relation, lock);
    }
    found
}
