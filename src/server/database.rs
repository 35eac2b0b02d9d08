//! The current database, a list of the cluster's databases, and the state of this process.

use std::ffi::CStr;

use pgrx::pg_sys;

use super::call::{calls, variables};

// SAFETY: functions that read variables of this process, and shared memory.
calls! {
    fn system_identifier() -> u64 = GetSystemIdentifier();
    /// Whether the server replays WAL. Guarded.
    pub fn is_in_recovery() -> bool = RecoveryInProgress();
    /// Whether this process runs a parallel query or load. Guarded.
    pub fn is_in_parallel_mode() -> bool = IsInParallelMode();
    /// The current subtransaction. Guarded.
    pub fn subtransaction() -> pg_sys::SubTransactionId = GetCurrentSubTransactionId();
    /// Whether a transaction is the current one, or one of its subtransactions. Guarded.
    pub fn is_own_transaction(transaction: pg_sys::TransactionId) -> bool = TransactionIdIsCurrentTransactionId(transaction);
    /// Raises an error about a command if it may not write. Guarded.
    pub fn require_writes(command: &CStr) = PreventCommandIfReadOnly(command);
    /// Assigns a transaction id, unless the transaction has one. Guarded.
    pub fn assign_transaction() -> pg_sys::TransactionId = GetTopTransactionId();
}

variables! {
    /// The database of this process.
    pub fn database() -> pg_sys::Oid = MyDatabaseId;
    pub fn max_parallel_workers() -> i32 = max_parallel_workers;
    pub fn max_parallel_maintenance_workers() -> i32 = max_parallel_maintenance_workers;
    /// The setting row_security.
    pub fn row_security() -> bool = row_security;
    /// The setting shared_buffers, in pages.
    pub fn shared_buffers() -> i32 = NBuffers;
    /// -1 in a leader.
    pub(super) fn worker_number() -> i32 = ParallelWorkerNumber;
    fn is_transaction_read_only() -> bool = XactReadOnly;
    /// Whether pg_upgrade runs this server, which must not start processes by itself.
    pub fn is_upgrade() -> bool = IsBinaryUpgrade;
}

/// Returns the cluster's system identifier.
pub fn cluster() -> i64 {
    system_identifier().cast_signed()
}

/// The number of this process in a parallel query or load: 0 for the leader, and outside of these.
pub fn process_number() -> usize {
    usize::try_from(worker_number() + 1).unwrap_or(0)
}

/// Whether commands that write are rejected. Guarded.
pub fn is_read_only() -> bool {
    is_transaction_read_only() || is_in_parallel_mode() || is_in_recovery()
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
