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

use std::collections::HashMap;
use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::heap::block_of;
use super::indexes::Indexes;
use super::leader::Leader;
use super::origin::{Place, Source};
use super::process::Traces;
use crate::error::{Error, OrRaise, Result};
use crate::load::duplicate::Keep;
use crate::load::rejects::{Complaint, Reject};
use crate::pg::holder;
use crate::pg::number_sort::NumberSort;
use crate::pg::original::gettext;

/// A row's place in its relation, as a number that ascends.
pub fn number_of(row: &pg_sys::ItemPointerData) -> u64 {
    (u64::from(block_of(row)) << 16) | u64::from(row.ip_posid)
}

/// The same the other way round.
pub fn row_of(number: u64) -> pg_sys::ItemPointerData {
    let block = (number >> 16) as u32;
    pg_sys::ItemPointerData {
        ip_blkid: pg_sys::BlockIdData { bi_hi: (block >> 16) as u16, bi_lo: block as u16 },
        ip_posid: number as u16,
    }
}

/// Rows of a relation with equal keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Group {
    /// From 1.
    number: u64,
    /// The row of the table that has the key, or had it until it was replaced; or 0.
    holder: u64,
}

impl Group {
    /// No group.
    pub const NONE: Group = Group { number: 0, holder: 0 };
}

/// Rows of a relation whose keys are not the only ones.
#[derive(Debug)]
pub struct Suspects {
    /// Row, index, group, and the holder of its key.
    sort: Option<NumberSort<4>>,
    /// Groups so far, for each index.
    groups: Vec<u64>,
    /// Memory for sorts, in kB.
    memory: i32,
    /// By number, the rows that have replaced another one, and which; if triggers are to be told of it.
    replaced: Option<HashMap<u64, u64>>,
}

impl Suspects {
    pub fn new(indexes: usize, memory: i32, tells: bool) -> Suspects {
        Suspects { sort: None, groups: vec![0; indexes], memory, replaced: tells.then(HashMap::new) }
    }

    /// A row has taken the place of another one.
    fn replace(&mut self, new: u64, old: u64) {
        if let Some(replaced) = &mut self.replaced {
            replaced.insert(new, old);
        }
    }

    /// Has any row taken the place of another, that triggers are to be told of?
    pub fn have_replaced(&self) -> bool {
        self.replaced.as_ref().is_some_and(|replaced| !replaced.is_empty())
    }

    /// The row whose place a row has taken.
    pub fn replaced_by(&self, row: &pg_sys::ItemPointerData) -> Option<pg_sys::ItemPointerData> {
        self.replaced.as_ref()?.get(&number_of(row)).map(|&old| row_of(old))
    }

    fn put(&mut self, index: usize, row: &pg_sys::ItemPointerData, group: Group) {
        let memory = self.memory;
        let sort = self.sort.get_or_insert_with(|| NumberSort::new(memory));
        sort.put([number_of(row), index as u64, group.number, group.holder]);
    }

    fn new_group(&mut self, index: usize, holder: u64) -> Group {
        let groups = self.groups.get_mut(index);
        if let Some(groups) = groups {
            *groups += 1;
            return Group { number: *groups, holder };
        }
        Group::NONE
    }

    /// A row's key is that of the row before, which may be in a group.
    pub fn twin(
        &mut self,
        index: usize,
        before: &pg_sys::ItemPointerData,
        group: Group,
        row: &pg_sys::ItemPointerData,
    ) -> Group {
        let mut group = group;
        if group == Group::NONE {
            group = self.new_group(index, 0);
            self.put(index, before, group);
        }
        self.put(index, row, group);
        group
    }

    /// A row's key is another row's, which is none of the load's; other rows of the load that have it may be in a group.
    pub fn taken(
        &mut self,
        index: usize,
        row: &pg_sys::ItemPointerData,
        holder: &pg_sys::ItemPointerData,
        group: Group,
    ) -> Group {
        let holder = number_of(holder);
        let group = if group == Group::NONE { self.new_group(index, holder) } else { Group { holder, ..group } };
        self.put(index, row, group);
        group
    }

    pub fn is_empty(&self) -> bool {
        self.sort.is_none()
    }
}

/// [`Suspects::taken`]
///
/// # Safety
/// Suspects that nobody else uses; in the memory that they live in.
#[pg_guard]
pub unsafe extern "C-unwind" fn taken(
    suspects: *mut Suspects,
    index: usize,
    row: *const pg_sys::ItemPointerData,
    holder: *const pg_sys::ItemPointerData,
) -> Group {
    // SAFETY: the caller vouches for all.
    unsafe { (*suspects).taken(index, &*row, &*holder, Group::NONE) }
}

/// [`Suspects::twin`]
///
/// # Safety
/// As [`taken`].
#[pg_guard]
pub unsafe extern "C-unwind" fn twin(
    suspects: *mut Suspects,
    index: usize,
    before: *const pg_sys::ItemPointerData,
    group: Group,
    row: *const pg_sys::ItemPointerData,
) -> Group {
    // SAFETY: the caller vouches for all.
    unsafe { (*suspects).twin(index, &*before, group, &*row) }
}

/// Numbers, each in or not.
#[derive(Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(count: u64) -> Bits {
        Bits(vec![0; usize::try_from(count.div_ceil(64)).unwrap_or(0)])
    }

    fn word(number: u64) -> usize {
        usize::try_from(number / 64).unwrap_or(usize::MAX)
    }

    fn has(&self, number: u64) -> bool {
        self.0.get(Bits::word(number)).is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    fn add(&mut self, number: u64) {
        if let Some(word) = self.0.get_mut(Bits::word(number)) {
            *word |= 1 << (number % 64);
        }
    }
}

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
    // SAFETY: the caller vouches for all.
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
    // SAFETY: the caller vouches for all.
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
    /// Number of the relation.
    pub relation: usize,
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
    indexes: *const Indexes,
    suspects: *mut Suspects,
) -> bool {
    // SAFETY: the caller vouches for all.
    unsafe {
        let (leader, suspects) = (&mut *leader, &mut *suspects);
        let Rivals { row, other, is_own, relation: number } = *rivals;
        let mut old = number_of(&other);
        if is_own {
            let place = leader.place_of(number, &other).or_raise();
            let (loss, complaint) = loss_to(&*indexes, (*indexes).arbiter().unwrap_or(usize::MAX));
            leader.lose(relation, other, place, loss, complaint).or_raise();
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

/// Why a row is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    Reject,
    Duplicate,
}

fn loss_to(indexes: &Indexes, index: usize) -> (Loss, Complaint) {
    let loss = if indexes.arbiter() == Some(index) { Loss::Duplicate } else { Loss::Reject };
    (loss, complaint_of(indexes, index))
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
        let mut next = sort.take();
        let mut keys = Vec::new();
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
                let (loss, complaint) = loss_to(indexes, index);
                if loss == Loss::Duplicate && holder != 0 {
                    // SAFETY: a row of the open relation.
                    unsafe { holder::check_visible(relation, &row_of(holder)) };
                }
                let (position, behind) = if keep == Keep::New { (!position, !behind) } else { (position, behind) };
                self.lose(relation, row_of(row), Place { position, behind }, loss, complaint)?;
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
                let message = "a row of the load came from nowhere";
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
        mut row: pg_sys::ItemPointerData,
        place: Place,
        loss: Loss,
        complaint: Complaint,
    ) -> Result<()> {
        // SAFETY: guarded calls on an open relation; nobody else can have touched a row of a transaction that has not
        // ended. It is
        // an earlier command's, or it would not be there yet; and all are deleted by one, since each pair of commands
        // that made and deleted a row is remembered to the end of the transaction.
        unsafe {
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
        self.counts.loaded -= 1;
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
        if rejects.has_room() {
            let reject = self.reject_at(place, complaint)?;
            self.process.rejects.keep_bytes(&reject.write());
        }
        Ok(())
    }

    /// Where a row of the load came from, if that matters.
    fn place_of(&mut self, relation: usize, row: &pg_sys::ItemPointerData) -> Result<Place> {
        if !self.process.rejects.has_room() {
            return Ok(Place::default());
        }
        let place = self.process.origins.of_row(relation, block_of(row), row.ip_posid)?;
        Ok(place.unwrap_or_default())
    }

    /// The record at a place, read once more.
    fn reject_at(&mut self, place: Place, complaint: Complaint) -> Result<Reject> {
        if self.process.traces == Traces::Lines {
            return Ok(Reject { line: place.position + place.behind, offset: None, raw: None, complaint });
        }
        let source = self.source();
        let process = &mut self.process;
        process.origins.find(&mut self.target, &source, &mut process.rows, place)?;
        Ok(Reject::new(&mut process.rows, complaint))
    }

    /// The file, for reading it again.
    pub fn source(&self) -> Source {
        let eol = self.process.rows.reader().place_behind().map(|place| place.eol);
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
    // SAFETY: the caller vouches for it; dropped with the memory context.
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
    // SAFETY: the caller vouches for all.
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
        *place = Place { position, behind };
        order.stretch = Some([position, behind + 1, first + 1, count - 1]);
        true
    }
}
