//! What pg_class says of a relation's size, as index_update_stats (index.c) sets it, in place.

use pgrx::pg_sys;

/// Pages and rows of an index.
///
/// # Safety
/// An open index; a guarded frame.
pub unsafe fn set_index_statistics(index: pg_sys::Relation, pages: u32, rows: f64) {
    // SAFETY: passed on.
    unsafe { set(index, pages, rows, (0, 0), false) };
}

/// Pages and rows of a table that has indexes, and what its visibility map says. From 18 on they stay as they are where
/// autovacuum is off: they may have been restored.
///
/// # Safety
/// An open table; a guarded frame.
pub unsafe fn set_table_statistics(table: pg_sys::Relation, pages: u32, rows: f64) {
    // SAFETY: passed on; the counters are there.
    unsafe {
        #[cfg(feature = "pg18")]
        if !is_vacuumed(table) {
            return;
        }
        let (mut visible, mut frozen) = (0, 0);
        pg_sys::visibilitymap_count(table, &raw mut visible, &raw mut frozen);
        set(table, pages, rows, (visible, frozen), true);
    }
}

/// Does autovacuum look after a table?
///
/// # Safety
/// An open table.
#[cfg(feature = "pg18")]
unsafe fn is_vacuumed(table: pg_sys::Relation) -> bool {
    unsafe extern "C-unwind" {
        fn AutoVacuumingActive() -> bool;
    }
    // SAFETY: a call that looks at settings; the options of a table are StdRdOptions (rel.h) or null.
    unsafe {
        let options = (*table).rd_options.cast::<pg_sys::StdRdOptions>();
        AutoVacuumingActive() && (options.is_null() || (*options).autovacuum.enabled)
    }
}

/// `vac_update_relstats`. The pages that are all frozen are counted from 18 on.
///
/// # Safety
/// An open relation; a guarded frame.
unsafe fn set(relation: pg_sys::Relation, pages: u32, rows: f64, (visible, _frozen): (u32, u32), has_index: bool) {
    let null = std::ptr::null_mut::<bool>();
    let (xid, multi) = (pg_sys::InvalidTransactionId, pg_sys::MultiXactId::from(0));
    // SAFETY: passed on. Nothing but the statistics is updated, as within an outer transaction.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        pg_sys::vac_update_relstats(relation, pages, rows, visible, has_index, xid, multi, null, null, true);
        #[cfg(feature = "pg18")]
        pg_sys::vac_update_relstats(relation, pages, rows, visible, _frozen, has_index, xid, multi, null, null, true);
    }
}
