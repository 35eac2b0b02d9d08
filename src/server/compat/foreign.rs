//! Foreign scans of joins and upper relations: their paths, the relations below them, and rights to functions.

use pgrx::pg_sys;

/// `create_foreign_upper_path` with the relation's own target, and without pathkeys or outer path.
///
/// # Safety
/// Planner pointers of the current planning; called from a guarded frame.
pub unsafe fn create_foreign_upper_path(
    root: *mut pg_sys::PlannerInfo,
    rel: *mut pg_sys::RelOptInfo,
    startup: f64,
    total: f64,
    private: *mut pg_sys::List,
) -> *mut pg_sys::ForeignPath {
    use std::ptr::null_mut;
    // SAFETY: a guarded call on the planner's structs, which exist as long as it plans.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        return pg_sys::create_foreign_upper_path(
            root,
            rel,
            null_mut(),
            1.0,
            startup,
            total,
            null_mut(),
            null_mut(),
            private,
        );
        #[cfg(feature = "pg17")]
        return pg_sys::create_foreign_upper_path(
            root,
            rel,
            null_mut(),
            1.0,
            startup,
            total,
            null_mut(),
            null_mut(),
            null_mut(),
            private,
        );
        #[cfg(feature = "pg18")]
        return pg_sys::create_foreign_upper_path(
            root,
            rel,
            null_mut(),
            1.0,
            0,
            startup,
            total,
            null_mut(),
            null_mut(),
            null_mut(),
            private,
        );
    }
}

/// Returns a relation of the range table; it stays open until the executor ends. Guarded.
///
/// # Safety
/// The executor's state, and a range table index that has a relation.
pub unsafe fn range_table_relation(estate: *mut pg_sys::EState, place: pg_sys::Index) -> pg_sys::Relation {
    // SAFETY: the parser has made the state with this entry.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16", feature = "pg17"))]
        return pg_sys::ExecGetRangeTableRelation(estate, place);
        #[cfg(feature = "pg18")]
        return pg_sys::ExecGetRangeTableRelation(estate, place, false);
    }
}

/// Whether the current user may call the function. Guarded.
pub fn may_execute(function: pg_sys::Oid) -> pg_sys::AclResult::Type {
    let mode = pg_sys::AclMode::from(pg_sys::ACL_EXECUTE);
    // SAFETY: guarded catalog lookups.
    unsafe {
        #[cfg(feature = "pg15")]
        return pg_sys::pg_proc_aclcheck(function, pg_sys::GetUserId(), mode);
        #[cfg(not(feature = "pg15"))]
        return pg_sys::object_aclcheck(pg_sys::ProcedureRelationId, function, pg_sys::GetUserId(), mode);
    }
}
