//! The current database, and a list of the cluster's databases.

use pgrx::pg_sys;

use super::call::{calls, variables};

// SAFETY: reads a value that the server loaded when it started.
calls! {
    fn system_identifier() -> u64 = GetSystemIdentifier();
}

variables! {
    /// The database of this process.
    pub fn database() -> pg_sys::Oid = MyDatabaseId;
}

/// Returns the cluster's system identifier.
pub fn cluster() -> i64 {
    system_identifier().cast_signed()
}

/// Returns the databases that allow connections, for a process that is connected to none. Guarded.
pub fn databases() -> Vec<pg_sys::Oid> {
    let mut found = Vec::new();
    // SAFETY: guarded calls in a transaction, as in get_database_list (autovacuum.c). A returned tuple is valid until
    // the next call.
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
