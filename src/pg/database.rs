//! The databases of the cluster, for a process that is in none of them.

use pgrx::pg_sys;

/// Those that one can connect to. Guarded.
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
