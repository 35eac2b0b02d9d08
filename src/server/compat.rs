//! All code that depends on the version of PostgreSQL.

mod attribute;
mod background;
mod buffer;
mod collation;
pub mod copy_words;
mod encoding;
mod executor_hook;
mod foreign;
mod index;
mod mutator;
mod partition_key;
mod planned;
mod planner;
mod rights;
mod rights_hook;
mod soft;
mod statistics;
mod storage;
pub mod unguarded;
mod version;

use pg_bulk_text::dialect::EndMarker;
use pgrx::pg_sys;

use self::version::MAJOR;
use super::call::calls;
#[cfg(any(feature = "pg15", feature = "pg16"))]
use super::call::variables;
use super::relation::Relation;

pub use self::attribute::{attributes, has_generated, is_virtual};
pub use self::background::{CONNECT_FLAGS, WORKERS_BYPASS_LOGIN, proc_exit, set_signal_handler, virtual_transaction};
pub use self::buffer::is_in_buffer;
pub use self::collation::{collates_bytes, icu_collator};
pub use self::encoding::{char_to_encoding, encoding_to_char};
pub use self::executor_hook::install as install_executor_hook;
pub use self::foreign::{Estimate, create_foreign_upper_path, create_foreignscan_path, range_table_relation};
pub use self::index::{
    check_index_constraints, end_of_level, extend_to, first_leaf, index_beginscan, insert_index_tuples, leaf_to_write,
    new_index_page, read_block, reindex_index, reindex_relation,
};
pub use self::mutator::expression_tree_mutator;
pub use self::partition_key::{partition_expressions, partition_functions, partition_types};
pub use self::planned::{nodes_of, statement_for_workers};
pub use self::planner::{
    adjust_to_child, canonical_pathkey, is_constant, known_eclass, ordering_of, prunes_at_run_time,
};
pub use self::rights::{
    Rights, check_insert_rights, check_server_usage, forgo_insert_rights, init_range_table, insert_into, may_connect,
    may_execute, may_use_schema, owns_relation, refuse, restrict_search_path, want_insert, wanted_rights,
};
pub(crate) use self::rights_hook::rights_hook;
pub use self::soft::{Soft, input_function_call_soft, is_survivable};
pub use self::statistics::{set_index_statistics, set_table_statistics};
pub use self::storage::{
    Locator, PageChange, dirties_visible, is_new_file, is_same_file, locator, log_change, log_newpage, log_newpages,
    log_smgrcreate, needs_wal, new_file_subid, relation_path, request_sync, set_checksum, set_new_file,
    xlog_register_data,
};
pub use self::version::{COPY_HAS_DEFAULT, HAS_TRANSACTION_TIMEOUT, ZONE_LETTERS};

/// Returns the meaning of `\.` in this server's COPY.
pub fn end_marker() -> EndMarker {
    if MAJOR >= 18 { EndMarker::Since18 } else { EndMarker::Until17 }
}

/// Anum_pg_statistic_ext_stxexprs, which is not among the bindings of 18.
pub const STATISTIC_EXPRESSIONS: u32 = 9;

/// Returns the number of rows that this session has inserted, updated and deleted in a relation, including rolled-back
/// changes. None if track_counts is off. Guarded.
pub fn changed_rows(relation: Relation<'_>) -> Option<i64> {
    // SAFETY: the relation is open; its counters are null or valid, with a chain of open subtransactions.
    unsafe {
        let relation = relation.as_ptr();
        if !(*relation).pgstat_enabled {
            return None;
        }
        if (*relation).pgstat_info.is_null() {
            // Earlier statements may have counted rows in an entry that is not yet linked to this relcache entry.
            pg_sys::pgstat_assoc_relation(relation);
        }
        let status = (*relation).pgstat_info.as_ref()?;
        #[cfg(feature = "pg15")]
        let done =
            status.t_counts.t_tuples_inserted + status.t_counts.t_tuples_updated + status.t_counts.t_tuples_deleted;
        #[cfg(not(feature = "pg15"))]
        let done = status.counts.tuples_inserted + status.counts.tuples_updated + status.counts.tuples_deleted;
        let mut open = status.trans;
        let mut changed = done;
        while let Some(level) = open.as_ref() {
            changed += level.tuples_inserted + level.tuples_updated + level.tuples_deleted;
            open = level.upper;
        }
        Some(changed)
    }
}

#[cfg(any(feature = "pg15", feature = "pg16"))]
variables! {
    fn old_snapshot_threshold() -> i32 = old_snapshot_threshold;
}

/// Whether rows that an old snapshot sees may be pruned (EarlyPruningEnabled). A new index then cannot be used by older
/// snapshots.
pub fn prunes_early() -> bool {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    return old_snapshot_threshold() >= 0;
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    false
}

// SAFETY: only sleeps and serves interrupts.
#[cfg(not(feature = "pg18"))]
calls! {
    /// `vacuum_delay_point` of an ANALYZE. Guarded.
    pub fn vacuum_delay_point() = vacuum_delay_point();
}
#[cfg(feature = "pg18")]
calls! {
    /// `vacuum_delay_point` of an ANALYZE. Guarded.
    pub fn vacuum_delay_point() = vacuum_delay_point(true);
}

/// `ExecutorRun`, to the end of the query.
///
/// # Safety
/// A plain frame, and a query that was started.
pub unsafe fn executor_run(query: *mut pg_sys::QueryDesc) {
    use super::unguarded::ExecutorRun;
    let direction = pg_sys::ScanDirection::ForwardScanDirection;
    // SAFETY: ExecutorStart has made the query's state; the frame is plain.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        ExecutorRun(query, direction, 0, true);
        #[cfg(feature = "pg18")]
        ExecutorRun(query, direction, 0);
    }
}

/// Returns the table that the receiver of CREATE TABLE AS has created. The fields of `DR_intorel` (createas.c) that are
/// read here did not change from 9.5 to 18.
///
/// # Safety
/// A receiver of the kind DestIntoRel that has been started.
pub unsafe fn into_relation(receiver: *mut pg_sys::DestReceiver) -> pg_sys::Relation {
    #[repr(C)]
    struct IntoReceiver {
        receiver: pg_sys::DestReceiver,
        into: *mut pg_sys::IntoClause,
        relation: pg_sys::Relation,
    }
    // SAFETY: a receiver of this kind is an `IntoReceiver`, whose relation its startup has set.
    unsafe { (*receiver.cast::<IntoReceiver>()).relation }
}

/// `AbortBufferIO`: ends a read of a buffer that failed. From 16 on, the resource owner does this.
///
/// # Safety
/// After an error, before the transaction is aborted.
pub unsafe fn abort_buffer_io() {
    #[cfg(feature = "pg15")]
    {
        unsafe extern "C-unwind" {
            fn AbortBufferIO();
        }
        // SAFETY: AbortTransaction (xact.c) calls it first, too; raises nothing.
        unsafe { AbortBufferIO() };
    }
}

/// DSM_HANDLE_INVALID (dsm_impl.h), which is a cast from 17 on and so has no binding.
pub const NO_SEGMENT: pg_sys::dsm_handle = 0;

/// DELAY_CHKPT_START (proc.h)
pub const DELAY_CHKPT_START: i32 = 1;

/// Progress parameter for skipped rows, in versions whose COPY reports them (progress.h).
pub const PROGRESS_SKIPPED: Option<u32> = if MAJOR >= 17 { Some(6) } else { None };

/// Whether a node is a JSON_TABLE, JSON_QUERY or JSON_VALUE expression, which PostgreSQL has since 17.
pub fn is_json_expression(tag: pg_sys::NodeTag) -> bool {
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    return tag == pg_sys::NodeTag::T_JsonExpr;
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    {
        let _ = tag;
        false
    }
}

/// Whether `function`, the function of an error (ErrorData.funcname), reports a constraint violation, or that there is no
/// partition for a row. It runs after all user-defined code has returned, so nothing is left behind when such an error is
/// caught.
pub fn is_violation(function: &[u8]) -> bool {
    // ReportNotNullViolationError exists from 18 on; ExecPartitionCheck calls ExecPartitionCheckEmitError.
    [
        b"ExecConstraints".as_slice(),
        b"ReportNotNullViolationError",
        b"ExecPartitionCheckEmitError",
        b"ExecFindPartition",
    ]
    .contains(&function)
}

/// Returns the conversion of rows of the partitioned table to rows of a leaf; null if none is needed
/// (`ExecGetRootToChildMap`).
///
/// # Safety
/// A leaf that ExecFindPartition returned; a plain frame.
pub unsafe fn root_to_leaf(
    relinfo: *mut pg_sys::ResultRelInfo,
    _estate: *mut pg_sys::EState,
) -> *mut pg_sys::TupleConversionMap {
    // SAFETY: ExecFindPartition has initialized the leaf; the frame is plain.
    unsafe {
        #[cfg(feature = "pg15")]
        return (*relinfo).ri_RootToPartitionMap;
        #[cfg(not(feature = "pg15"))]
        {
            unsafe extern "C-unwind" {
                fn ExecGetRootToChildMap(
                    relinfo: *mut pg_sys::ResultRelInfo,
                    estate: *mut pg_sys::EState,
                ) -> *mut pg_sys::TupleConversionMap;
            }
            ExecGetRootToChildMap(relinfo, _estate)
        }
    }
}

/// `CheckValidResultRel` for an INSERT.
///
/// # Safety
/// A valid result relation; a guarded frame.
pub unsafe fn check_valid_result_rel(target: *mut pg_sys::ResultRelInfo) {
    let insert = pg_sys::CmdType::CMD_INSERT;
    // SAFETY: a guarded call on an initialized result relation, which it only reads.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        pg_sys::CheckValidResultRel(target, insert);
        #[cfg(feature = "pg17")]
        pg_sys::CheckValidResultRel(target, insert, std::ptr::null_mut());
        #[cfg(feature = "pg18")]
        {
            let none = pg_sys::OnConflictAction::ONCONFLICT_NONE;
            pg_sys::CheckValidResultRel(target, insert, none, std::ptr::null_mut());
        }
    }
}
