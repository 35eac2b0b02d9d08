//! Sets the size of a relation in pg_class in place, as index_update_stats (index.c) does.

use pgrx::pg_sys;

use crate::server::relation::Relation;

/// Sets the number of pages and rows of an index. Guarded.
pub fn set_index_statistics(index: Relation<'_>, pages: u32, rows: f64) {
    set(index, pages, rows, (0, 0), false);
}

/// Sets the number of pages and rows of a table that has indexes, and the counts of its visibility map. From 18 on,
/// nothing changes where autovacuum is off: the statistics may have been restored. Guarded.
pub fn set_table_statistics(table: Relation<'_>, pages: u32, rows: f64) {
    #[cfg(feature = "pg18")]
    if !is_vacuumed(table) {
        return;
    }
    let (mut visible, mut frozen) = (0, 0);
    // SAFETY: a guarded call; the counters are local variables.
    unsafe { pg_sys::visibilitymap_count(table.as_ptr(), &raw mut visible, &raw mut frozen) };
    set(table, pages, rows, (visible, frozen), true);
}

/// Whether autovacuum processes a table.
#[cfg(feature = "pg18")]
fn is_vacuumed(table: Relation<'_>) -> bool {
    unsafe extern "C-unwind" {
        fn AutoVacuumingActive() -> bool;
    }
    // SAFETY: the call reads settings; the options of a table are StdRdOptions (rel.h) or null.
    unsafe {
        let options = (*table.as_ptr()).rd_options.cast::<pg_sys::StdRdOptions>();
        AutoVacuumingActive() && (options.is_null() || (*options).autovacuum.enabled)
    }
}

/// `vac_update_relstats`. All-frozen pages are counted from 18 on. Guarded.
fn set(relation: Relation<'_>, pages: u32, rows: f64, (visible, _frozen): (u32, u32), has_index: bool) {
    let null = std::ptr::null_mut::<bool>();
    let (xid, multi) = (pg_sys::InvalidTransactionId, pg_sys::MultiXactId::from(0));
    let relation = relation.as_ptr();
    // SAFETY: a guarded call. Only the statistics change, as within an outer transaction.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        pg_sys::vac_update_relstats(relation, pages, rows, visible, has_index, xid, multi, null, null, true);
        #[cfg(feature = "pg18")]
        pg_sys::vac_update_relstats(relation, pages, rows, visible, _frozen, has_index, xid, multi, null, null, true);
    }
}
