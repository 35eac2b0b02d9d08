//! Rows that this transaction has put into a heap, taken out of it again.
//!
//! heap_delete could do it for each of them. But it reads the row's page into a shared buffer, which takes several times as long
//! as to mark the row, and rows to be removed are on nearly every page as soon as they are a hundredth of all. So where the heap's
//! file is new in this transaction, pages are changed where they are:
//!
//! ```text
//!   rows, by page ─┬─ file that others know ──────────────────────────────────────────────► heap_delete
//!                  └─ new file ─► window of pages, read ─┬─ page in a buffer, or not plain ─► heap_delete
//!                      ([`windows`])                     └─ mark rows ─► WAL ─► write ─► sync request
//! ```
//!
//! Nobody else sees such a file, and only this process uses it now, and those that it starts to help; so a page that is in no
//! shared buffer stays out of them while it is changed here, and who reads it afterwards reads it from the file. A page that is in a
//! buffer may be newer there, and is left to heap_delete; so are pages and rows for which that would do more than mark them: pages that are all-visible, rows with
//! values out of line, rows that are not as this transaction has left them.
//!
//! A row is marked, and logged, as heap_delete does it, so redo knows the records; a page that a checkpoint came after goes
//! into WAL whole (XLogRegisterBlock sees to that). As with pages that are appended ([`super::append`]), no checkpoint may come
//! between the WAL and the write, and each write is followed by a sync request. WAL need not be on disk before the page is: if it
//! never is, the transaction has not committed, and nothing refers to the file. If a write fails, so does the load, and what is on its
//! pages are nobody's rows; a page of a file that was made before a savepoint may then be left half written.
//!
//! Where there are many rows and the load had workers, several processes do it ([`team`]).

mod page;
mod team;
mod windows;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::page::Deleter;
use self::windows::Windows;
use super::append::Traits;
use super::points::point;
use super::usage::Cpu;
use crate::error::{Error, Result};

const BLCKSZ: usize = pg_sys::BLCKSZ as usize;
/// Rows that are kept until they are removed, at most.
const MOST: usize = 1 << 18;

/// A row's place in its relation, as a number that ascends.
pub fn number_of(row: &pg_sys::ItemPointerData) -> u64 {
    let block = u32::from(row.ip_blkid.bi_hi) << 16 | u32::from(row.ip_blkid.bi_lo);
    (u64::from(block) << 16) | u64::from(row.ip_posid)
}

/// The same the other way round.
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

/// Rows of a heap that are to go.
#[derive(Debug)]
pub struct Removal {
    relation: pg_sys::Relation,
    needs_wal: bool,
    /// Pages may be changed where they are.
    in_place: bool,
    /// So many workers may help.
    workers: usize,
    rows: Vec<u64>,
    /// What workers have used.
    pub cpu: Cpu,
}

impl Removal {
    /// Of an open relation, with so many workers at most. Guarded.
    ///
    /// # Safety
    /// The relation stays open; outside of parallel mode.
    pub unsafe fn new(relation: pg_sys::Relation, workers: usize) -> Removal {
        // SAFETY: this function's contract covers the relation.
        let Traits { existed, needs_wal, logical, temporary, .. } = unsafe { Traits::of(relation) };
        let in_place = !existed && !logical && !temporary;
        Removal { relation, needs_wal, in_place, workers, rows: Vec::new(), cpu: Cpu::default() }
    }

    /// A row is to go. Guarded.
    ///
    /// # Safety
    /// This transaction has put it there.
    pub unsafe fn put(&mut self, row: u64) -> Result<()> {
        self.rows.push(row);
        if self.rows.len() < MOST { Ok(()) } else { self.run() }
    }

    /// Let them go. Guarded, and interruptible.
    pub fn run(&mut self) -> Result<()> {
        point!("remove.begin");
        let mut rows = std::mem::take(&mut self.rows);
        rows.sort_unstable();
        if self.in_place && !rows.is_empty() {
            self.mark(&mut rows)?;
        }
        let (relation, mut left) = (self.relation, 0);
        for &row in rows.iter().filter(|&&row| row != 0) {
            pgrx::check_for_interrupts!();
            left += 1;
            // SAFETY: whoever has put the row here vouches for it.
            unsafe { delete(relation, row)? };
        }
        // SAFETY: as for `new`.
        (left..rows.len()).for_each(|_| unsafe { pg_sys::pgstat_count_heap_delete(relation) });
        rows.clear();
        self.rows = rows;
        Ok(())
    }

    /// Mark rows where they are: the first of them alone, until it is known how. Outside of parallel mode.
    fn mark(&mut self, rows: &mut [u64]) -> Result<()> {
        // SAFETY: the relation's file is new, and this process is the only one that uses it but for those that are started here; this
        // transaction has an id, that of its rows.
        unsafe {
            let mut windows = Windows::new(self.relation, self.needs_wal, Deleter::current())?;
            let mut rest = rows;
            while !windows.deleter.knows() && !rest.is_empty() {
                rest = windows.mark_next(rest)?;
            }
            match team::worth(rest, self.workers) {
                0 => windows.mark(rest),
                workers => {
                    let cpu = team::mark(self.relation, self.needs_wal, &mut windows, rest, workers)?;
                    self.cpu.add(cpu);
                    Ok(())
                }
            }
        }
    }
}

/// Delete a row as anybody would. Guarded.
///
/// # Safety
/// An open relation, and a row that this transaction has put there.
pub unsafe fn delete(relation: pg_sys::Relation, row: u64) -> Result<()> {
    // SAFETY: this function's contract covers both arguments; guarded calls. Nobody else can have touched a row of a transaction that has not ended. It is an
    // earlier command's, or it would not be there yet; and all are deleted by one, since each pair of commands that made and
    // deleted a row is remembered to the end of the transaction.
    unsafe {
        let mut row = row_of(row);
        let mut failure = pg_sys::TM_FailureData::default();
        let command = pg_sys::GetCurrentCommandId(true);
        let nothing = std::ptr::null_mut();
        // Nobody is waited for: that it may wait lets it have rows that this transaction has locked itself.
        let result = pg_sys::heap_delete(relation, &raw mut row, command, nothing, true, &raw mut failure, false);
        if result != pg_sys::TM_Result::TM_Ok {
            let message = format!("could not take back a row of the load (result {result})");
            return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
        }
    }
    Ok(())
}
