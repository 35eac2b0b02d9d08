//! Removes rejects and duplicates that are already in the heap.
//!
//! A duplicate key is found when it is inserted into its index. The row is in the heap by then, inserted by this
//! transaction, which deletes it again with an ordinary delete. So every state is one that the server knows, and
//! another session cannot come between a check and an insertion. The row's index entries are those of any dead row.
//!
//! ```text
//!   sorted keys ─► index ─┬─ unique
//!                         └─ not unique ─► equal to the key before? ── yes ─► group: rows of the load, one may stay
//!                                                                  └─ no ──► check again, waiting for other sessions
//!   groups ─► file order ─► the first row none of whose groups is taken stays; the other rows are removed
//! ```
//!
//! The result is as if the rows had been inserted one after the other, in the order of the file, each unless one of its
//! keys existed. Several unique indexes may decide differently about a row. A row that is removed because of one index
//! takes no key in another.
//!
//! The tricky point is that the indexes are not searched for rows of the load itself. With a million equal keys, each
//! search would find all removed rows before it. Equal keys are adjacent in the sort, so groups need no search.
//!
//! Keys without an order (exclusion constraints) are inserted in the order of the file, each after a search.
//!
//! Removes orphans, rows without a parent, with `on_error = table`.
//!
//! The server would check foreign keys row by row after the last row, and fail at the first violation. Here they are
//! checked together, as without `on_error` ([`super::foreign_keys`]). If all keys have a parent, nothing more is done.
//! Otherwise the keys are sorted again, each with its row, and the orphans are deleted, like rows that conflict with an
//! index.
//!
//! ```text
//!   all relations: rows in their indexes, conflicts removed ─► check ── all keys have parents ─────► other triggers
//!                                                                └─ no ─► hunt ─► orphans are deleted ─┐
//!                                                                          ▲         any, between loaded tables
//!                                                                          └───────────────────────────┘
//! ```
//!
//! The tricky point is a reference to a row of the same load: when that row is deleted, the row that refers to it
//! becomes an orphan. So if a table refers to a loaded table, rounds go on until one finds no orphan. And no row is
//! checked before all relations have their indexes, since a query with an index would not find rows that the index
//! lacks.
//!
//! The parents that were found are locked, so they stay, and the server's own checks are not needed any more.

use std::ffi::CStr;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::foreign_keys::ForeignKeys;
use super::indexes::Indexes;
use super::leader::Leader;
use super::new_rows::NewRows;
use super::origin::{FileProperties, RecordPosition, Traces, file_of};
use crate::error::{Error, Result};
use crate::heap::removal::{self, Removal, number_of, row_of};
use crate::index::key_conflicts::{Bits, KeyConflicts};
use crate::index::number_sort::NumberSort;
use crate::load::duplicate::Keep;
use crate::load::rejects::{Complaint, Reject};
use crate::server::holder::{self, HeapRow};
use crate::server::memory_context::MemoryContext;
use crate::server::original::gettext;
use crate::server::relation::Relation;
use crate::server::unguarded::guarded;

/// The server's error for a conflicting row (_bt_check_unique, nbtinsert.c; check_exclusion_or_unique_constraint,
/// execIndexing.c).
fn complaint(name: &CStr, is_exclusion: bool) -> Complaint {
    let (code, format) = if is_exclusion {
        let words = c"conflicting key value violates exclusion constraint \"%s\"";
        (Code::ERRCODE_EXCLUSION_VIOLATION, words)
    } else {
        (Code::ERRCODE_UNIQUE_VIOLATION, c"duplicate key value violates unique constraint \"%s\"")
    };
    let words = gettext(format).to_bytes();
    let at = words.windows(2).position(|two| two == b"%s").unwrap_or(words.len());
    let (before, after) = words.split_at(at);
    let message = [before, name.to_bytes(), after.get(2..).unwrap_or_default()].concat();
    Complaint { code: code as i32, message, constraint: Some(name.to_bytes().to_vec()), ..Complaint::default() }
}

/// A row, and another one with the same key.
#[derive(Debug, Clone, Copy)]
pub struct Rivals<'a> {
    pub row: pg_sys::ItemPointerData,
    pub other: HeapRow<'a>,
    /// The other row is the load's, too.
    pub is_own: bool,
}

/// Why a row is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalReason {
    Reject,
    Duplicate,
}

pub fn reason_for(indexes: &Indexes, index: usize) -> (RemovalReason, Complaint) {
    let reason = if indexes.arbiter() == Some(index) { RemovalReason::Duplicate } else { RemovalReason::Reject };
    (reason, complaint_of(indexes, index))
}

fn reason_at(reasons: &[(RemovalReason, Complaint)], index: usize) -> (RemovalReason, Complaint) {
    reasons.get(index).cloned().unwrap_or((RemovalReason::Reject, Complaint::default()))
}

fn complaint_of(indexes: &Indexes, index: usize) -> Complaint {
    indexes.list.get(index).map_or_else(Complaint::default, |index| complaint(&index.name, index.is_exclusion))
}

impl Leader {
    /// Removes a row of the load because of a conflict in an index. Guarded.
    pub fn remove_row(
        &mut self,
        row: HeapRow<'_>,
        place: RecordPosition,
        indexes: &Indexes,
        index: usize,
    ) -> Result<()> {
        let (reason, complaint) = reason_for(indexes, index);
        self.remove(row, reason)?;
        self.move_figure(place, reason);
        self.keep_record(place, complaint)
    }

    /// Lets a row replace another one with the same key. False if the other row is already deleted. Guarded.
    pub fn replace(&mut self, rivals: Rivals<'_>, conflicts: &mut KeyConflicts) -> Result<bool> {
        let Rivals { row, other, is_own } = rivals;
        let mut old = number_of(&other.tid());
        if is_own {
            self.remove(other, RemovalReason::Duplicate)?;
            if self.process.writer.rejects.has_room() || !self.process.writer.progress.by_file.is_none() {
                conflicts.supersede(old);
            }
            let Some(first) = conflicts.replaced.as_mut().and_then(|replaced| replaced.remove(&old)) else {
                return Ok(true);
            };
            old = first;
        } else {
            if !holder::delete(other)? {
                return Ok(false);
            }
            self.replaced += 1;
        }
        conflicts.replace(number_of(&row), old);
        Ok(true)
    }

    /// Keeps the records of replaced rows of the load as rejects, when all are known, so that the file is read once.
    /// Guarded.
    pub fn keep_all_superseded(
        &mut self,
        number: usize,
        indexes: &Indexes,
        conflicts: &mut KeyConflicts,
    ) -> Result<()> {
        let (Some(rows), Some(arbiter)) = (conflicts.superseded.take(), indexes.arbiter()) else { return Ok(()) };
        self.keep_superseded(number, rows, conflicts.memory, &complaint_of(indexes, arbiter))
    }

    /// Decides which rows of the groups are removed, and removes them. `number` is the relation's index in the load's
    /// list. Guarded.
    pub fn remove_conflicts(
        &mut self,
        relation: Relation<'static>,
        number: usize,
        indexes: &Indexes,
        conflicts: &mut KeyConflicts,
    ) -> Result<()> {
        let Some(rows) = conflicts.sort.take() else { return Ok(()) };
        let taken: Result<Vec<_>> = conflicts.groups.iter().map(|&count| Bits::new(count + 1)).collect();
        let mut taken = taken?;
        // Of equal keys, the first row stays, or the last one.
        let keep = indexes.keep();
        let mut sort = self.in_file_order(number, rows, conflicts.memory, keep == Keep::New)?;
        let mut removal = self.removal(relation, number)?;
        let reasons: Vec<_> = (0..indexes.list.len()).map(|index| reason_for(indexes, index)).collect();
        let mut next = sort.take();
        let mut keys = Vec::new();
        // The last rows come first here, but records are found fastest in the order of the file.
        let mut late =
            (keep == Keep::New && self.process.writer.rejects.has_room()).then(|| NumberSort::new(conflicts.memory));
        while let Some([position, behind, row, ..]) = next {
            pgrx::check_for_interrupts!();
            keys.clear();
            while let Some([.., index, group, holder]) = next.filter(|next| next[2] == row) {
                keys.push((usize::try_from(index).unwrap_or(usize::MAX), group, holder));
                next = sort.take();
            }
            let is_taken = |&&(index, group, holder): &&(usize, u64, u64)| {
                (holder != 0 && keep != Keep::New) || taken.get(index).is_some_and(|taken| taken.has(group))
            };
            // A conflict in the arbiter makes the row a duplicate, whatever its other conflicts are.
            let is_duplicate = |key: &&(usize, u64, u64)| is_taken(key) && indexes.arbiter() == Some(key.0);
            if let Some(&(index, _, holder)) = keys.iter().find(is_duplicate).or_else(|| keys.iter().find(is_taken)) {
                let (reason, complaint) = reason_at(&reasons, index);
                if reason == RemovalReason::Duplicate && holder != 0 {
                    // SAFETY: the search has found the holder in the relation, which is locked for writing.
                    holder::check_visible(unsafe { HeapRow::new(relation, row_of(holder)) })?;
                }
                let (position, behind) = if keep == Keep::New { (!position, !behind) } else { (position, behind) };
                // SAFETY: `in_file_order` has found the row among those that the load has put into the relation.
                removal.put(unsafe { HeapRow::new(relation, row_of(row)) })?;
                self.counts.loaded -= 1;
                let place = RecordPosition { file: 0, position, behind };
                let Some(late) = &mut late else {
                    self.leave_out(place, reason, complaint)?;
                    continue;
                };
                late.put([position, behind, index as u64]);
                self.move_figure(place, reason);
                if let Err(error) = self.count_removed(reason) {
                    self.keep_late(std::mem::replace(late, NumberSort::new(conflicts.memory)), &reasons)?;
                    return Err(error);
                }
                continue;
            }
            for &(index, group, holder) in &keys {
                if let Some(taken) = taken.get_mut(index) {
                    taken.add(group);
                }
                if holder != 0 {
                    conflicts.replace(row, holder);
                    self.replaced += 1;
                }
            }
        }
        sort.end();
        if let Some(late) = late {
            self.keep_late(late, &reasons)?;
        }
        removal.run()?;
        Ok(())
    }

    /// Keeps the records of rows that were counted.
    fn keep_late(&mut self, mut late: NumberSort<3>, reasons: &[(RemovalReason, Complaint)]) -> Result<()> {
        late.sort();
        while let Some([position, behind, index]) = late.take() {
            pgrx::check_for_interrupts!();
            let (_, complaint) = reason_at(reasons, usize::try_from(index).unwrap_or(usize::MAX));
            self.keep_record(RecordPosition { file: 0, position, behind }, complaint)?;
        }
        late.end();
        Ok(())
    }

    /// Sorts rows by file order: position, records after it, row, and the other numbers. In reverse, the first two are
    /// complements.
    pub fn in_file_order(
        &mut self,
        number: usize,
        mut rows: NumberSort<4>,
        memory: i32,
        reverse: bool,
    ) -> Result<NumberSort<6>> {
        // Merges rows and ranges of tuple positions, both in heap order.
        let mut ranges = NumberSort::<4>::new(memory);
        self.process.writer.tracer.origins.for_each(number, |block, first, count, place| {
            let first = (u64::from(block) << 16) | u64::from(first);
            ranges.put([first, u64::from(count), place.position, place.behind]);
        })?;
        rows.sort();
        ranges.sort();
        let mut sorted = NumberSort::new(memory);
        let mut range = ranges.take();
        while let Some([row, index, group, holder]) = rows.take() {
            pgrx::check_for_interrupts!();
            while range.is_some_and(|[first, count, ..]| first + count <= row) {
                range = ranges.take();
            }
            let Some([first, _, position, behind]) = range.filter(|[first, ..]| *first <= row) else {
                let message = "could not find the position of a row of the load";
                return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
            };
            let behind = behind + row - first;
            let (position, behind) = if reverse { (!position, !behind) } else { (position, behind) };
            sorted.put([position, behind, row, index, group, holder]);
        }
        rows.end();
        ranges.end();
        sorted.sort();
        Ok(sorted)
    }

    /// Moves a row of a file from the loaded rows to the duplicates or rejects.
    fn move_figure(&self, place: RecordPosition, reason: RemovalReason) {
        let Some(figures) = self.process.writer.progress.by_file.of(file_of(place.position)) else { return };
        figures.loaded.fetch_sub(1, Relaxed);
        let counter = if reason == RemovalReason::Duplicate { &figures.duplicate } else { &figures.rejected };
        counter.fetch_add(1, Relaxed);
    }

    /// Counts a row that is in no heap, and keeps its record as a reject.
    pub fn leave_out(&mut self, place: RecordPosition, reason: RemovalReason, complaint: Complaint) -> Result<()> {
        self.count_removed(reason)?;
        self.move_figure(place, reason);
        self.keep_record(place, complaint)
    }

    fn keep_record(&mut self, place: RecordPosition, complaint: Complaint) -> Result<()> {
        if self.process.writer.rejects.has_room() {
            let reject = self.reject_at(place, complaint)?;
            self.process.writer.rejects.keep_bytes(&reject.write());
        }
        Ok(())
    }

    fn keep_superseded(
        &mut self,
        number: usize,
        rows: NumberSort<4>,
        memory: i32,
        complaint: &Complaint,
    ) -> Result<()> {
        let mut sort = self.in_file_order(number, rows, memory, false)?;
        while let Some([position, behind, ..]) = sort.take() {
            pgrx::check_for_interrupts!();
            let place = RecordPosition { file: 0, position, behind };
            self.move_figure(place, RemovalReason::Duplicate);
            self.keep_record(place, complaint.clone())?;
        }
        sort.end();
        Ok(())
    }

    /// Starts the removal of rows from an open relation, whose index in the load's list is `number`.
    pub fn removal(&self, relation: Relation<'static>, number: usize) -> Result<Removal> {
        if self.spec.traits.get(number).is_none_or(|&(oid, _)| oid != relation.oid()) {
            return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, "could not find the position of a row of the load"));
        }
        Ok(Removal::new(relation))
    }

    /// Deletes a row of the load from its heap.
    fn remove(&mut self, row: HeapRow<'_>, reason: RemovalReason) -> Result<()> {
        removal::delete(row)?;
        self.counts.loaded -= 1;
        self.count_removed(reason)
    }

    fn count_removed(&mut self, reason: RemovalReason) -> Result<()> {
        if reason == RemovalReason::Duplicate {
            self.counts.duplicate += 1;
            if let Some(most) = self.duplicates.most() {
                // Past the limit, the load fails, so the record is not needed.
                self.duplicates.check_limit(self.counts.duplicate, most)?;
            }
        } else {
            self.counts.rejected += 1;
        }
        let rejects = &self.process.writer.rejects;
        if reason == RemovalReason::Reject && rejects.limit.is_some_and(|limit| self.counts.rejected > limit) {
            return Err(rejects.too_many());
        }
        Ok(())
    }

    /// Reads the record at a place again.
    fn reject_at(&mut self, place: RecordPosition, complaint: Complaint) -> Result<Reject> {
        if self.process.writer.tracer.traces == Traces::Lines {
            return Ok(Reject { path: None, line: place.position + place.behind, offset: None, raw: None, complaint });
        }
        let source = self.source();
        let process = &mut self.process;
        process.writer.tracer.origins.find(&mut self.files.target, &source, &mut process.rows, place)?;
        Ok(Reject::new(&mut process.rows, complaint))
    }

    /// The properties of the file, for reading it again.
    pub fn source(&self) -> FileProperties {
        // Also known after the last record.
        let eol = self.process.rows.reader().eol();
        FileProperties { header: self.files.header, eol, name: self.files.name.clone() }
    }

    /// Rows of a relation in the order of the file. Guarded; the order lives in the current memory context.
    pub fn file_order(&mut self, number: usize, memory: i32) -> Result<FileOrder> {
        let mut sort = NumberSort::new(memory);
        self.process.writer.tracer.origins.for_each(number, |block, first, count, place| {
            sort.put([place.position, place.behind, (u64::from(block) << 16) | u64::from(first), count.into()]);
        })?;
        sort.sort();
        Ok(FileOrder { sort: Some(sort), range: None })
    }
}

/// Rows in the order of the file.
#[derive(Debug)]
pub struct FileOrder {
    sort: Option<NumberSort<4>>,
    /// The rest of the current range.
    range: Option<[u64; 4]>,
}

impl FileOrder {
    /// The next row, and its position in the file. Guarded.
    pub fn next(&mut self) -> Option<(pg_sys::ItemPointerData, RecordPosition)> {
        let sort = self.sort.as_mut()?;
        let range = self.range.filter(|range| range[3] > 0).or_else(|| sort.take());
        let Some([position, behind, first, count]) = range else {
            if let Some(sort) = self.sort.take() {
                sort.end();
            }
            return None;
        };
        self.range = Some([position, behind + 1, first + 1, count - 1]);
        Some((row_of(first), RecordPosition { file: 0, position, behind }))
    }
}

/// Deletes the current orphans of a relation of the load, and returns how many there were.
///
/// The rows are in their indexes. Keys are tracked from here on. Each sort gets `memory` kB. Guarded, and outside of
/// parallel mode.
pub fn hunt(leader: &mut Leader, rows: &NewRows, keys: &mut ForeignKeys, number: usize, memory: i32) -> Result<u64> {
    let context = MemoryContext::current().child(c"pg_bulk orphans");
    let entered = context.enter();
    keys.discard();
    keys.prepare(memory, true);
    // Rows, each with the foreign key that it violates. Two more sorts start when this one is complete.
    let mut orphans = None;
    let mut put = |key, row| {
        orphans.get_or_insert_with(|| NumberSort::new(memory / 3)).put([row, key as u64, 0, 0]);
    };
    // SAFETY: the slot has a row of the relation; the closures are plain.
    unsafe {
        rows.for_each(|slot| {
            let row = number_of(&(*slot).tts_tid);
            keys.add(slot, |key| guarded(|| put(key, row)));
        });
    }
    keys.find(put)?;
    let count = orphans.map_or(Ok(0), |orphans| leader.remove_orphans(orphans, rows, keys, number, memory / 3))?;
    drop(entered);
    // SAFETY: the sorts in the context have ended.
    unsafe { context.delete() };
    Ok(count)
}

impl Leader {
    fn remove_orphans(
        &mut self,
        orphans: NumberSort<4>,
        rows: &NewRows,
        keys: &ForeignKeys,
        number: usize,
        memory: i32,
    ) -> Result<u64> {
        let relation = rows.relation();
        let complaints = keys.complaints(relation);
        let mut sort = self.in_file_order(number, orphans, memory, false)?;
        let mut removal = self.removal(relation, number)?;
        let (mut count, mut last) = (0, None);
        while let Some([position, behind, row, key, ..]) = sort.take() {
            pgrx::check_for_interrupts!();
            // Of several violated foreign keys, the server's checks would report the first.
            if last.replace(row) == Some(row) {
                continue;
            }
            let complaint = usize::try_from(key).ok().and_then(|key| complaints.get(key)).cloned();
            let place = RecordPosition { file: 0, position, behind };
            // SAFETY: `in_file_order` has found the row among those that the load has put into the relation.
            removal.put(unsafe { HeapRow::new(relation, row_of(row)) })?;
            self.counts.loaded -= 1;
            self.leave_out(place, RemovalReason::Reject, complaint.unwrap_or_default())?;
            count += 1;
        }
        sort.end();
        removal.run()?;
        Ok(count)
    }
}
