//! Removes rows that this transaction has inserted into a heap.
//!
//! heap_delete could remove each of them. But it reads the row's page into a shared buffer, which takes several times
//! as long as marking the row. Once 1 % of the rows are removed, they are on nearly every page. So where the heap's
//! file is new in this transaction, pages are changed in the file:
//!
//! ```text
//!   rows, by page ─┬─ file that others use ───────────────────────────────────────────────► heap_delete
//!                  └─ new file ─► window of pages, read ─┬─ page in a buffer, or not plain ─► heap_delete
//!                      ([`windows`])                     └─ mark rows ─► WAL ─► write ─► sync request
//! ```
//!
//! Such a file is visible to this process only. So a page that is in no shared buffer stays out of them while it is
//! changed here, and later readers read it from the file. A page in a buffer may be newer there, and is left to
//! heap_delete. So are pages and rows that need more than a mark: pages that are all-visible, rows with out-of-line
//! values, rows that have changed since this transaction inserted them.
//!
//! A row is marked and logged as heap_delete does it, so redo knows the records. XLogRegisterBlock logs the whole page
//! at its first change after a checkpoint. As with appended pages ([`super::append`]), no checkpoint may come between
//! the WAL and the write, and a sync request follows each write. WAL need not be on disk before the page is: if it
//! never gets there, the transaction has not committed, and nothing refers to the file. If a write fails, the load
//! fails, and the rows of its pages are dead. If the file was created before a savepoint, a page may then stay half
//! written.

mod page;
mod windows;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::page::Deleter;
use self::windows::Windows;
use super::append::Traits;
use crate::error::{Error, Result};
use crate::server::holder::{HeapRow, heap_delete};
use crate::server::points::point;
use crate::server::relation::Relation;

/// Highest number of rows kept until they are removed.
const MOST: usize = 1 << 18;

/// A row's tuple id, as a number that ascends.
pub fn number_of(row: &pg_sys::ItemPointerData) -> u64 {
    let block = u32::from(row.ip_blkid.bi_hi) << 16 | u32::from(row.ip_blkid.bi_lo);
    (u64::from(block) << 16) | u64::from(row.ip_posid)
}

/// The tuple id of a number that [`number_of`] has made.
pub fn row_of(number: u64) -> pg_sys::ItemPointerData {
    let block = block_of(number);
    pg_sys::ItemPointerData {
        ip_blkid: pg_sys::BlockIdData { bi_hi: (block >> 16) as u16, bi_lo: block as u16 },
        ip_posid: number as u16,
    }
}

fn block_of(number: u64) -> u32 {
    (number >> 16) as u32
}

/// Rows of a heap that are to be removed.
#[derive(Debug)]
pub struct Removal {
    relation: Relation<'static>,
    needs_wal: bool,
    /// Pages may be changed in the file.
    in_place: bool,
    rows: Vec<u64>,
}

impl Removal {
    /// Start for a relation, outside of parallel mode. Guarded.
    pub fn new(relation: Relation<'static>) -> Removal {
        let Traits { existed, needs_wal, logical, temporary, .. } = Traits::of(relation);
        let in_place = !existed && !logical && !temporary;
        Removal { relation, needs_wal, in_place, rows: Vec::new() }
    }

    /// Add a row of the relation that is to be removed, which this transaction has inserted. Guarded.
    pub fn put(&mut self, row: HeapRow<'_>) -> Result<()> {
        if row.heap() != self.relation {
            return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, "could not find the position of a row of the load"));
        }
        self.rows.push(number_of(&row.tid()));
        if self.rows.len() < MOST { Ok(()) } else { self.run() }
    }

    /// Remove the rows added so far. Guarded, and interruptible.
    pub fn run(&mut self) -> Result<()> {
        point!("remove.begin");
        let mut rows = std::mem::take(&mut self.rows);
        rows.sort_unstable();
        if self.in_place && !rows.is_empty() {
            // The relation's file is new, and only this process uses it.
            Windows::new(self.relation, self.needs_wal, Deleter::current())?.mark(&mut rows)?;
        }
        let (relation, mut left) = (self.relation, 0);
        for &row in rows.iter().filter(|&&row| row != 0) {
            pgrx::check_for_interrupts!();
            left += 1;
            // SAFETY: a row of the relation: see `put`.
            delete(unsafe { HeapRow::new(relation, row_of(row)) })?;
        }
        // SAFETY: a guarded call on an open relation.
        (left..rows.len()).for_each(|_| unsafe { pg_sys::pgstat_count_heap_delete(relation.as_ptr()) });
        rows.clear();
        self.rows = rows;
        Ok(())
    }
}

/// Delete a row that this transaction has inserted with heap_delete. Guarded.
pub fn delete(row: HeapRow<'_>) -> Result<()> {
    // No other transaction can have touched a row of this open one. An earlier command has inserted the row, or it would
    // not exist yet. One command deletes all rows, since each pair of inserting and deleting command is kept in memory
    // to the end of the transaction. No wait occurs: that of heap_delete only makes it accept rows which this transaction
    // has locked.
    match heap_delete(row) {
        pg_sys::TM_Result::TM_Ok => Ok(()),
        result => {
            let message = format!("could not take back a row of the load (result {result})");
            Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message))
        }
    }
}
