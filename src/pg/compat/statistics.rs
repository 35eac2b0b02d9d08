//! Sets the size of a relation in pg_class in place, as index_update_stats (index.c) does.

use pgrx::pg_sys;

/// Sets the number of pages and rows of an index.
///
/// # Safety
/// An open index; a guarded frame.
pub unsafe fn set_index_statistics(index: pg_sys::Relation, pages: u32, rows: f64) {
    // SAFETY: passed on.
    unsafe { set(index, pages, rows, (0, 0), false) };
}

/// Sets the number of pages and rows of a table that has indexes, and the counts of its visibility map. From 18 on,
/// nothing changes where autovacuum is off: the statistics may have been restored.
///
/// # Safety
/// An open table; a guarded frame.
pub unsafe fn set_table_statistics(table: pg_sys::Relation, pages: u32, rows: f64) {
    // SAFETY: passed on; the counters are local variables.
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

/// Whether autovacuum processes a table.
///
/// # Safety
/// An open table.
#[cfg(feature = "pg18")]
unsafe fn is_vacuumed(table: pg_sys::Relation) -> bool {
    unsafe extern "C-unwind" {
        fn AutoVacuumingActive() -> bool;
    }
    // SAFETY: the call reads settings; the options of a table are StdRdOptions (rel.h) or null.
    unsafe {
        let options = (*table).rd_options.cast::<pg_sys::StdRdOptions>();
        AutoVacuumingActive() && (options.is_null() || (*options).autovacuum.enabled)
    }
}

/// `vac_update_relstats`. All-frozen pages are counted from 18 on.
///
/// # Safety
/// An open relation; a guarded frame.
unsafe fn set(relation: pg_sys::Relation, pages: u32, rows: f64, (visible, _frozen): (u32, u32), has_index: bool) {
    let null = std::ptr::null_mut::<bool>();
    let (xid, multi) = (pg_sys::InvalidTransactionId, pg_sys::MultiXactId::from(0));
    // SAFETY: passed on. Only the statistics change, as within an outer transaction.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        pg_sys::vac_update_relstats(relation, pages, rows, visible, has_index, xid, multi, null, null, true);
        #[cfg(feature = "pg18")]
        pg_sys::vac_update_relstats(relation, pages, rows, visible, _frozen, has_index, xid, multi, null, null, true);
    }
}
