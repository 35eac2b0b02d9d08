//! Rows that are in the heap, and must not be: with on_error `table`.
//!
//! Whether a key is there twice turns out when it is put into its index. A row that loses has been inserted then, by this
//! transaction, and this transaction deletes it again, as anybody could: so there is no state that the server does not know, and
//! no moment in which another session could slip in between a look and an insertion. Its index entries are those of any
//! dead row.
//!
//! ```text
//!   sorted keys ─► index ─┬─ taken
//!                         └─ not unique ─► the key before it in the sort? ── yes ─► a group: rows of the load, one of which may stay
//!                                                                         └─ no ──► asked again, waiting for others: taken, or lost
//!   groups ─► in the order of the file ─► the first row that is in no group whose key is taken stays, the others are lost
//! ```
//!
//! Rows are judged as if they had been inserted one after the other, in the order of the file, each unless one of its keys was
//! there: several unique indexes may disagree about a row, and one that has lost for one of them takes no key in another.
//!
//! The tricky point is that nothing is asked of the indexes about rows of the load itself: of a million equal keys each would
//! find all those that have lost before it. Equal keys stand next to each other in the sort, so groups cost nothing.
//!
//! Where keys have no order (exclusion constraints), rows are inserted in the order of the file, and each is looked for before.

use std::ffi::CStr;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::indexes::Indexes;
use super::leader::Leader;
use super::origin::{Place, Source, Traces, file_of};
use super::suspects::{Bits, Suspects};
use crate::error::{Error, OrRaise, Result};
use crate::load::duplicate::Keep;
use crate::load::rejects::{Complaint, Reject};
use crate::pg::holder;
use crate::pg::number_sort::NumberSort;
use crate::pg::original::gettext;
use crate::pg::removal::{self, Removal, number_of, row_of};

/// What an index says of a row that is in its way (_bt_check_unique, nbtinsert.c; check_exclusion_or_unique_constraint,
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

/// Decide who loses, and let them lose.
///
/// # Safety
/// A valid leader outside of parallel mode; an open relation of the load, its number, and its indexes.
#[pg_guard]
pub unsafe extern "C-unwind" fn judge(
    leader: *mut Leader,
    relation: pg_sys::Relation,
    number: usize,
    indexes: *const Indexes,
    suspects: *mut Suspects,
) {
    // SAFETY: this function's contract covers all arguments.
    unsafe { (*leader).judge(relation, number, &*indexes, &mut *suspects) }.or_raise();
}

/// A row that was looked for lost, to an index.
///
/// # Safety
/// As [`judge`]; a row of the relation that is there.
#[pg_guard]
pub unsafe extern "C-unwind" fn lose(
    leader: *mut Leader,
    relation: pg_sys::Relation,
    row: *const pg_sys::ItemPointerData,
    place: *const Place,
    indexes: *const Indexes,
    index: usize,
) {
    // SAFETY: this function's contract covers all arguments.
    unsafe {
        let (loss, complaint) = loss_to(&*indexes, index);
        (*leader).lose(relation, *row, *place, loss, complaint).or_raise();
    }
}

/// A row, and another one that has its key.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Rivals {
    pub row: pg_sys::ItemPointerData,
    pub other: pg_sys::ItemPointerData,
    /// The other one is the load's, too.
    pub is_own: bool,
}

/// A row that was looked for has the key of another one, and takes its place. False if that one has gone away meanwhile.
///
/// # Safety
/// As [`lose`].
#[pg_guard]
pub unsafe extern "C-unwind" fn replace(
    leader: *mut Leader,
    relation: pg_sys::Relation,
    rivals: *const Rivals,
    suspects: *mut Suspects,
) -> bool {
    // SAFETY: this function's contract covers all arguments.
    unsafe {
        let (leader, suspects) = (&mut *leader, &mut *suspects);
        let Rivals { row, other, is_own } = *rivals;
        let mut old = number_of(&other);
        if is_own {
            leader.remove(relation, other, Loss::Duplicate).or_raise();
            if leader.process.rejects.has_room() || !leader.process.by_file.is_none() {
                suspects.supersede(old);
            }
            let Some(first) = suspects.replaced.as_mut().and_then(|replaced| replaced.remove(&old)) else {
                return true;
            };
            old = first;
        } else {
            if !holder::delete(relation, &raw const other) {
                return false;
            }
            leader.replaced += 1;
        }
        suspects.replace(number_of(&row), old);
        true
    }
}

/// Keep the records of rows of the load whose places were taken, now that all are known: where they came from is found out for
/// all of them at once.
///
/// # Safety
/// As [`judge`].
#[pg_guard]
pub unsafe extern "C-unwind" fn keep_superseded(
    leader: *mut Leader,
    number: usize,
    indexes: *const Indexes,
    suspects: *mut Suspects,
) {
    // SAFETY: this function's contract covers all arguments.
    unsafe {
        let (indexes, suspects) = (&*indexes, &mut *suspects);
        let (Some(rows), Some(arbiter)) = (suspects.superseded.take(), indexes.arbiter()) else { return };
        (*leader).keep_superseded(number, rows, suspects.memory, &complaint_of(indexes, arbiter)).or_raise();
    }
}

/// Why a row is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    Reject,
    Duplicate,
}

pub fn loss_to(indexes: &Indexes, index: usize) -> (Loss, Complaint) {
    let loss = if indexes.arbiter() == Some(index) { Loss::Duplicate } else { Loss::Reject };
    (loss, complaint_of(indexes, index))
}

fn loss_of(losses: &[(Loss, Complaint)], index: usize) -> (Loss, Complaint) {
    losses.get(index).cloned().unwrap_or((Loss::Reject, Complaint::default()))
}

fn complaint_of(indexes: &Indexes, index: usize) -> Complaint {
    indexes.list.get(index).map_or_else(Complaint::default, |index| complaint(&index.name, index.is_exclusion))
}

impl Leader {
    fn judge(
        &mut self,
        relation: pg_sys::Relation,
        number: usize,
        indexes: &Indexes,
        suspects: &mut Suspects,
    ) -> Result<()> {
        let Some(rows) = suspects.sort.take() else { return Ok(()) };
        let mut taken: Vec<Bits> = suspects.groups.iter().map(|&count| Bits::new(count + 1)).collect();
        // Of equal keys the first row stays, or the last one.
        let keep = indexes.keep();
        let mut sort = self.in_file_order(number, rows, suspects.memory, keep == Keep::New)?;
        // SAFETY: whoever calls vouches for the relation.
        let mut removal = unsafe { Removal::new(relation, self.builders) };
        let losses: Vec<_> = (0..indexes.list.len()).map(|index| loss_to(indexes, index)).collect();
        let mut next = sort.take();
        let mut keys = Vec::new();
        // The last rows come first, and records are best looked for in the order of the file.
        let mut late = (keep == Keep::New && self.process.rejects.has_room()).then(|| NumberSort::new(suspects.memory));
        while let Some([position, behind, row, ..]) = next {
            pgrx::check_for_interrupts!();
            keys.clear();
            while let Some([.., index, group, holder]) = next.filter(|next| next[2] == row) {
                keys.push((usize::try_from(index).unwrap_or(usize::MAX), group, holder));
                next = sort.take();
            }
            let is_lost = |&&(index, group, holder): &&(usize, u64, u64)| {
                (holder != 0 && keep != Keep::New) || taken.get(index).is_some_and(|taken| taken.has(group))
            };
            // A duplicate is one whatever else is wrong with it.
            let is_duplicate = |key: &&(usize, u64, u64)| is_lost(key) && indexes.arbiter() == Some(key.0);
            if let Some(&(index, _, holder)) = keys.iter().find(is_duplicate).or_else(|| keys.iter().find(is_lost)) {
                let (loss, complaint) = loss_of(&losses, index);
                if loss == Loss::Duplicate && holder != 0 {
                    // SAFETY: a row of the open relation.
                    unsafe { holder::check_visible(relation, &row_of(holder)) };
                }
                let (position, behind) = if keep == Keep::New { (!position, !behind) } else { (position, behind) };
                // SAFETY: a row of the load.
                unsafe { removal.put(row)? };
                self.counts.loaded -= 1;
                let place = Place { file: 0, position, behind };
                let Some(late) = &mut late else {
                    self.leave_out(place, loss, complaint)?;
                    continue;
                };
                late.put([position, behind, index as u64]);
                self.move_figure(place, loss);
                if let Err(error) = self.count_loss(loss) {
                    self.keep_late(std::mem::replace(late, NumberSort::new(suspects.memory)), &losses)?;
                    return Err(error);
                }
                continue;
            }
            for &(index, group, holder) in &keys {
                if let Some(taken) = taken.get_mut(index) {
                    taken.add(group);
                }
                if holder != 0 {
                    suspects.replace(row, holder);
                    self.replaced += 1;
                }
            }
        }
        sort.end();
        if let Some(late) = late {
            self.keep_late(late, &losses)?;
        }
        removal.run()?;
        self.counts.others.add(removal.cpu);
        Ok(())
    }

    /// Keep records of rows that were counted.
    fn keep_late(&mut self, mut late: NumberSort<3>, losses: &[(Loss, Complaint)]) -> Result<()> {
        late.sort();
        while let Some([position, behind, index]) = late.take() {
            pgrx::check_for_interrupts!();
            let (_, complaint) = loss_of(losses, usize::try_from(index).unwrap_or(usize::MAX));
            self.keep_record(Place { file: 0, position, behind }, complaint)?;
        }
        late.end();
        Ok(())
    }

    /// Rows with what belongs to them, as they come in the file: position, records behind it, row, and the rest.
    /// In reverse, both of the first two are complements.
    pub fn in_file_order(
        &mut self,
        number: usize,
        mut rows: NumberSort<4>,
        memory: i32,
        reverse: bool,
    ) -> Result<NumberSort<6>> {
        // Rows and stretches in the order of the heap, side by side.
        let mut stretches = NumberSort::<4>::new(memory);
        self.process.origins.for_each(number, |block, first, count, place| {
            let first = (u64::from(block) << 16) | u64::from(first);
            stretches.put([first, u64::from(count), place.position, place.behind]);
        })?;
        rows.sort();
        stretches.sort();
        let mut sorted = NumberSort::new(memory);
        let mut stretch = stretches.take();
        while let Some([row, index, group, holder]) = rows.take() {
            pgrx::check_for_interrupts!();
            while stretch.is_some_and(|[first, count, ..]| first + count <= row) {
                stretch = stretches.take();
            }
            let Some([first, _, position, behind]) = stretch.filter(|[first, ..]| *first <= row) else {
                let message = "could not find the position of a row of the load";
                return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
            };
            let behind = behind + row - first;
            let (position, behind) = if reverse { (!position, !behind) } else { (position, behind) };
            sorted.put([position, behind, row, index, group, holder]);
        }
        rows.end();
        stretches.end();
        sorted.sort();
        Ok(sorted)
    }

    /// Take a row out of its heap, and keep its record as a reject.
    pub fn lose(
        &mut self,
        relation: pg_sys::Relation,
        row: pg_sys::ItemPointerData,
        place: Place,
        loss: Loss,
        complaint: Complaint,
    ) -> Result<()> {
        self.remove(relation, row, loss)?;
        self.move_figure(place, loss);
        self.keep_record(place, complaint)
    }

    /// A row that was counted as loaded of its file is none that is.
    fn move_figure(&self, place: Place, loss: Loss) {
        let Some(figures) = self.process.by_file.of(file_of(place.position)) else { return };
        figures.loaded.fetch_sub(1, Relaxed);
        let lost = if loss == Loss::Duplicate { &figures.duplicate } else { &figures.rejected };
        lost.fetch_add(1, Relaxed);
    }

    /// Count a row that is in no heap, and keep its record as a reject.
    pub fn leave_out(&mut self, place: Place, loss: Loss, complaint: Complaint) -> Result<()> {
        self.count_loss(loss)?;
        self.move_figure(place, loss);
        self.keep_record(place, complaint)
    }

    fn keep_record(&mut self, place: Place, complaint: Complaint) -> Result<()> {
        if self.process.rejects.has_room() {
            let reject = self.reject_at(place, complaint)?;
            self.process.rejects.keep_bytes(&reject.write());
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
            let place = Place { file: 0, position, behind };
            self.move_figure(place, Loss::Duplicate);
            self.keep_record(place, complaint.clone())?;
        }
        sort.end();
        Ok(())
    }

    /// Take a row out of its heap.
    fn remove(&mut self, relation: pg_sys::Relation, row: pg_sys::ItemPointerData, loss: Loss) -> Result<()> {
        // SAFETY: a row of the load, in an open relation.
        unsafe { removal::delete(relation, number_of(&row))? };
        self.counts.loaded -= 1;
        self.count_loss(loss)
    }

    fn count_loss(&mut self, loss: Loss) -> Result<()> {
        if loss == Loss::Duplicate {
            self.counts.duplicate += 1;
            if let Some(most) = self.duplicates.most() {
                // Past it, records do not matter.
                self.duplicates.judge(self.counts.duplicate, most)?;
            }
        } else {
            self.counts.rejected += 1;
        }
        let rejects = &self.process.rejects;
        if loss == Loss::Reject && rejects.limit.is_some_and(|limit| self.counts.rejected > limit) {
            return Err(rejects.too_many());
        }
        Ok(())
    }

    /// The record at a place, read once more.
    fn reject_at(&mut self, place: Place, complaint: Complaint) -> Result<Reject> {
        if self.process.traces == Traces::Lines {
            return Ok(Reject { path: None, line: place.position + place.behind, offset: None, raw: None, complaint });
        }
        let source = self.source();
        let process = &mut self.process;
        process.origins.find(&mut self.target, &source, &mut process.rows, place)?;
        Ok(Reject::new(&mut process.rows, complaint))
    }

    /// The file, for reading it again.
    pub fn source(&self) -> Source {
        // Also behind the last record.
        let eol = self.process.rows.reader().eol();
        Source { header: self.header, eol, name: self.name.clone() }
    }

    /// Rows of a relation in the order of the file: position, records behind it, and first row and number of rows.
    pub fn file_order(&mut self, number: usize, memory: i32) -> Result<NumberSort<4>> {
        let mut sort = NumberSort::new(memory);
        self.process.origins.for_each(number, |block, first, count, place| {
            sort.put([place.position, place.behind, (u64::from(block) << 16) | u64::from(first), count.into()]);
        })?;
        sort.sort();
        Ok(sort)
    }
}

/// The relation's rows in the order of the file.
///
/// # Safety
/// A valid leader; in the memory that the order is to live in.
#[pg_guard]
pub unsafe extern "C-unwind" fn order(leader: *mut Leader, number: usize, memory: i32) -> *mut Order {
    // SAFETY: this function's contract covers the argument; dropped with the memory context.
    unsafe {
        let sort = (*leader).file_order(number, memory).or_raise();
        let order = Order { sort: Some(sort), stretch: None };
        pgrx::memcxt::PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(order)
    }
}

/// Rows in the order of the file.
#[derive(Debug)]
pub struct Order {
    sort: Option<NumberSort<4>>,
    /// What is left of the one that was begun.
    stretch: Option<[u64; 4]>,
}

/// Go to the next row; false at the end.
///
/// # Safety
/// A valid order, and places for a row and where it came from.
#[pg_guard]
pub unsafe extern "C-unwind" fn next(order: *mut Order, row: *mut pg_sys::ItemPointerData, place: *mut Place) -> bool {
    // SAFETY: this function's contract covers all arguments.
    unsafe {
        let order = &mut *order;
        let Some(sort) = &mut order.sort else { return false };
        let stretch = order.stretch.filter(|stretch| stretch[3] > 0).or_else(|| sort.take());
        let Some([position, behind, first, count]) = stretch else {
            if let Some(sort) = order.sort.take() {
                sort.end();
            }
            return false;
        };
        *row = row_of(first);
        *place = Place { file: 0, position, behind };
        order.stretch = Some([position, behind + 1, first + 1, count - 1]);
        true
    }
}
