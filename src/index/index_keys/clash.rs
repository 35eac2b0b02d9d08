//! Key conflicts: rows with equal keys in a unique index, found while it is built.
//!
//! ```text
//!   equal keys, by row ─┬─ rows of the load: alive
//!                       └─ old rows of the table: checked in the heap, only if a row of the load has the key, too
//! ```
//!
//! Old rows satisfy the constraint among themselves, though any number of dead rows may have the key. They mostly come
//! before the load's rows, which are appended. But some rows of the load fill up an existing page.

use pg_bulk_storage::btree::entry::Tid;
use pgrx::pg_sys;

use super::sources::Sources;
use crate::heap::removal::row_of;
use crate::server::relation::Relation;

/// A key conflict of a row with rows before it.
#[derive(Debug, Clone, Copy)]
pub enum Clash<'r> {
    /// A row of the load has the key of a live row of the table. `begins`: the first
    /// such conflict of the key.
    Taken { by: pg_sys::ItemPointerData, begins: bool },
    /// A row of the load has the key of other rows of the load, the last of which is `before`. `begins`: the first
    /// conflict.
    Twin { before: Tid, begins: bool },
    /// A live row of the table has the key of rows of the load, which are among `rows`. `begins`: the first
    /// conflict.
    Takes { by: pg_sys::ItemPointerData, rows: &'r [Tid], begins: bool },
}

/// Finds the key conflicts of an index.
#[derive(Debug)]
pub struct Clashes<'w> {
    relation: Relation<'w>,
    index: Relation<'w>,
    sources: Sources<'w>,
    /// For the current key: the last row of the load, ...
    latest: Option<Tid>,
    /// ... rows of the table that may be alive, ...
    unknown: Vec<Tid>,
    /// ... the row that is alive, ...
    taken: Option<pg_sys::ItemPointerData>,
    /// ... and whether there was a conflict.
    clashed: bool,
}

impl<'w> Clashes<'w> {
    /// Prepares for an open relation and one of its indexes.
    pub fn new(relation: Relation<'w>, index: Relation<'w>, sources: Sources<'w>) -> Clashes<'w> {
        Clashes { relation, index, sources, latest: None, unknown: Vec::new(), taken: None, clashed: false }
    }

    /// Finds the conflict of a row with the rows of the same key before it. All of these but the first were passed
    /// before. Guarded, and interruptible.
    pub fn find<'r>(&mut self, rows: &'r [Tid], row: Tid) -> Option<Clash<'r>> {
        if let [first] = rows {
            (self.latest, self.taken, self.clashed) = (None, None, false);
            self.unknown.clear();
            if self.sources.is_new(*first) {
                self.latest = Some(*first);
            } else {
                self.unknown.push(*first);
            }
        }
        let alive = |row| alive(self.relation, self.index, row);
        if self.sources.is_new(row) {
            let unknown = self.unknown.drain(..);
            self.taken = self.taken.or_else(|| unknown.into_iter().find_map(alive));
            let latest = self.latest.replace(row);
            if let Some(by) = self.taken {
                return Some(Clash::Taken { by, begins: !std::mem::replace(&mut self.clashed, true) });
            }
            return latest.map(|before| Clash::Twin { before, begins: !std::mem::replace(&mut self.clashed, true) });
        }
        if self.latest.is_none() {
            self.unknown.push(row);
            return None;
        }
        let by = alive(row)?;
        self.taken = Some(by);
        Some(Clash::Takes { by, rows, begins: !std::mem::replace(&mut self.clashed, true) })
    }
}

/// The live version of a row, with the snapshot of _bt_check_unique (nbtinsert.c). Guarded.
fn alive(relation: Relation<'_>, index: Relation<'_>, row: Tid) -> Option<pg_sys::ItemPointerData> {
    loop {
        pgrx::check_for_interrupts!();
        let mut tid = row_of(row.to_u64());
        let mut snapshot = pg_sys::SnapshotData {
            snapshot_type: pg_sys::SnapshotType::SNAPSHOT_DIRTY,
            ..pg_sys::SnapshotData::default()
        };
        // SAFETY: guarded calls on open relations. InitDirtySnapshot (snapmgr.h).
        unsafe {
            let is_alive = pg_sys::table_index_fetch_tuple_check(
                relation.as_ptr(),
                &raw mut tid,
                &raw mut snapshot,
                std::ptr::null_mut(),
            );
            let other = if snapshot.xmin == pg_sys::InvalidTransactionId { snapshot.xmax } else { snapshot.xmin };
            if !is_alive || other == pg_sys::InvalidTransactionId {
                return is_alive.then_some(tid);
            }
            // The table's lock has kept other writers away, so there should be no transaction to wait for.
            pg_sys::XactLockTableWait(other, index.as_ptr(), &raw mut tid, pg_sys::XLTW_Oper::XLTW_InsertIndex);
        }
    }
}
