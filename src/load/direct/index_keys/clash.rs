//! Rows with equal keys under a unique index, while it is built.
//!
//! ```text
//!   equal keys, by row ─┬─ the load's: alive
//!                       └─ the table's own: asked of the heap, but only once there is one of the load's beside them
//! ```
//!
//! Rows that were there before obey the constraint among themselves, however many dead ones have that key, too. They come
//! before the load's rows mostly, for these are appended, but not always: some fill a page that was begun.

use pg_bulk_format::btree::entry::Tid;
use pgrx::pg_sys;

use super::sources::Sources;

/// What a row clashes with.
#[derive(Debug, Clone, Copy)]
pub enum Clash<'r> {
    /// A row of the load has a key that a row of the table has, which is alive; the first to have it `begins`.
    Taken { by: pg_sys::ItemPointerData, begins: bool },
    /// A row of the load has the key of another one, the latest of which is `before`; the first to have it `begins`.
    Twin { before: Tid, begins: bool },
    /// A row of the table, which is alive, has the key of rows of the load, which are among these.
    Takes { by: pg_sys::ItemPointerData, rows: &'r [Tid], begins: bool },
}

/// Finds them.
#[derive(Debug)]
pub struct Clashes<'w> {
    relation: pg_sys::Relation,
    index: pg_sys::Relation,
    sources: Sources<'w>,
    /// Of the current key: the load's latest row, ...
    latest: Option<Tid>,
    /// ... rows of the table that may be alive, ...
    unknown: Vec<Tid>,
    /// ... the one that is, and whether there has been a clash.
    taken: Option<pg_sys::ItemPointerData>,
    clashed: bool,
}

impl<'w> Clashes<'w> {
    /// For an open relation and one of its indexes.
    pub fn new(relation: pg_sys::Relation, index: pg_sys::Relation, sources: Sources<'w>) -> Clashes<'w> {
        Clashes { relation, index, sources, latest: None, unknown: Vec::new(), taken: None, clashed: false }
    }

    /// A row has the same key as rows before, all of which were given, but the first. Guarded, and interruptible.
    ///
    /// # Safety
    /// The relations are still open.
    pub unsafe fn find<'r>(&mut self, rows: &'r [Tid], row: Tid) -> Option<Clash<'r>> {
        if let [first] = rows {
            (self.latest, self.taken, self.clashed) = (None, None, false);
            self.unknown.clear();
            if self.sources.is_new(*first) {
                self.latest = Some(*first);
            } else {
                self.unknown.push(*first);
            }
        }
        // SAFETY: this function's contract covers the relations.
        let alive = |row| unsafe { alive(self.relation, self.index, row) };
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

/// The version of a row that is alive to whoever inserts now. As _bt_check_unique (nbtinsert.c) asks. Guarded.
///
/// # Safety
/// An open relation, and one of its indexes.
unsafe fn alive(relation: pg_sys::Relation, index: pg_sys::Relation, row: Tid) -> Option<pg_sys::ItemPointerData> {
    let block = row.block();
    loop {
        pgrx::check_for_interrupts!();
        let mut tid = pg_sys::ItemPointerData {
            ip_blkid: pg_sys::BlockIdData { bi_hi: (block >> 16) as u16, bi_lo: block as u16 },
            ip_posid: row.offset(),
        };
        let mut snapshot = pg_sys::SnapshotData {
            snapshot_type: pg_sys::SnapshotType::SNAPSHOT_DIRTY,
            ..pg_sys::SnapshotData::default()
        };
        // SAFETY: this function's contract covers both arguments; guarded calls. InitDirtySnapshot (snapmgr.h).
        unsafe {
            let is_alive =
                pg_sys::table_index_fetch_tuple_check(relation, &raw mut tid, &raw mut snapshot, std::ptr::null_mut());
            let other = if snapshot.xmin == pg_sys::InvalidTransactionId { snapshot.xmax } else { snapshot.xmin };
            if !is_alive || other == pg_sys::InvalidTransactionId {
                return is_alive.then_some(tid);
            }
            // Writers were kept out from the start, so there should be none to wait for.
            pg_sys::XactLockTableWait(other, index, &raw mut tid, pg_sys::XLTW_Oper::XLTW_InsertIndex);
        }
    }
}
