//! Sets the size of a relation in pg_class in place, as index_update_stats (index.c) does.

use std::ptr::null_mut;

use pgrx::pg_sys;

use crate::server::call::calls;
use crate::server::relation::Relation;

/// Sets the number of pages and rows of an index. Guarded.
pub fn set_index_statistics(index: Relation<'_>, pages: u32, rows: f64) {
    set(index, pages, rows, 0, 0, false);
}

/// Sets the number of pages and rows of a table that has indexes, and the counts of its visibility map. From 18 on,
/// nothing changes where autovacuum is off: the statistics may have been restored. Guarded.
pub fn set_table_statistics(table: Relation<'_>, pages: u32, rows: f64) {
    #[cfg(feature = "pg18")]
    if !is_vacuumed(table) {
        return;
    }
    let (mut visible, mut frozen) = (0, 0);
    count(table, &mut visible, &mut frozen);
    set(table, pages, rows, visible, frozen, true);
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

const NO_XID: pg_sys::TransactionId = pg_sys::InvalidTransactionId;

// SAFETY: an open relation, of which only the statistics change, as within an outer transaction.
calls! {
    fn count(table: Relation<'_>, visible: &mut u32, frozen: &mut u32) = visibilitymap_count(table, visible, frozen);
    /// All-frozen pages are counted from 18 on. Guarded.
    #[cfg(not(feature = "pg18"))]
    fn set(relation: Relation<'_>, pages: u32, rows: f64, visible: u32, _frozen: u32, has_index: bool)
        = vac_update_relstats(relation, pages, rows, visible, has_index, (NO_XID), (NO_XID), (null_mut()), (null_mut()), true);
    #[cfg(feature = "pg18")]
    fn set(relation: Relation<'_>, pages: u32, rows: f64, visible: u32, frozen: u32, has_index: bool) = vac_update_relstats(
        relation, pages, rows, visible, frozen, has_index, (NO_XID), (NO_XID), (null_mut()), (null_mut()), true);
}
