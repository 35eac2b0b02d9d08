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

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::heap::block_of;
use super::indexes::Indexes;
use super::leader::Leader;
use super::origin::{Place, Source};
use super::process::Traces;
use crate::error::{Error, OrRaise, Result};
use crate::load::rejects::{Complaint, Reject};
use crate::pg::number_sort::NumberSort;
use crate::pg::original::gettext;

/// A row's place in its relation, as a number that ascends.
fn number_of(row: &pg_sys::ItemPointerData) -> u64 {
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
    /// A row of somebody else has the key.
    is_taken: bool,
}

impl Group {
    /// No group.
    pub const NONE: Group = Group { number: 0, is_taken: false };
}

/// Rows of a relation whose keys are not the only ones.
#[derive(Debug)]
pub struct Suspects {
    /// Row, index, group, and whether its key is taken.
    sort: Option<NumberSort<4>>,
    /// Groups so far, for each index.
    groups: Vec<u64>,
    /// Memory for sorts, in kB.
    memory: i32,
}

impl Suspects {
    pub fn new(indexes: usize, memory: i32) -> Suspects {
        Suspects { sort: None, groups: vec![0; indexes], memory }
    }

    fn put(&mut self, index: usize, row: &pg_sys::ItemPointerData, group: Group) {
        let memory = self.memory;
        let sort = self.sort.get_or_insert_with(|| NumberSort::new(memory));
        sort.put([number_of(row), index as u64, group.number, group.is_taken.into()]);
    }

    fn new_group(&mut self, index: usize, is_taken: bool) -> Group {
        let groups = self.groups.get_mut(index);
        if let Some(groups) = groups {
            *groups += 1;
            return Group { number: *groups, is_taken };
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
            group = self.new_group(index, false);
            self.put(index, before, group);
        }
        self.put(index, row, group);
        group
    }

    /// A row's key is another row's, which is none of the load's.
    pub fn taken(&mut self, index: usize, row: &pg_sys::ItemPointerData) -> Group {
        let group = self.new_group(index, true);
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
) -> Group {
    // SAFETY: the caller vouches for all.
    unsafe { (*suspects).taken(index, &*row) }
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
        let complaint = complaint_of(&*indexes, index);
        (*leader).lose(relation, *row, *place, complaint).or_raise();
    }
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
        let mut sort = self.in_file_order(number, rows, suspects.memory)?;
        let mut next = sort.take();
        let mut keys = Vec::new();
        while let Some([position, behind, row, ..]) = next {
            pgrx::check_for_interrupts!();
            keys.clear();
            while let Some([.., again, index, group, is_taken]) = next.filter(|next| next[2] == row) {
                debug_assert_eq!(again, row);
                keys.push((usize::try_from(index).unwrap_or(usize::MAX), group, is_taken != 0));
                next = sort.take();
            }
            let is_lost = |&&(index, group, is_taken): &&(usize, u64, bool)| {
                is_taken || taken.get(index).is_some_and(|taken| taken.has(group))
            };
            if let Some(&(index, ..)) = keys.iter().find(is_lost) {
                self.lose(relation, row_of(row), Place { position, behind }, complaint_of(indexes, index))?;
                continue;
            }
            for &(index, group, _) in &keys {
                if let Some(taken) = taken.get_mut(index) {
                    taken.add(group);
                }
            }
        }
        sort.end();
        Ok(())
    }

    /// Rows with what belongs to them, as they come in the file: position, records behind it, row, and the rest.
    fn in_file_order(&mut self, number: usize, mut rows: NumberSort<4>, memory: i32) -> Result<NumberSort<6>> {
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
        while let Some([row, index, group, is_taken]) = rows.take() {
            pgrx::check_for_interrupts!();
            while stretch.is_some_and(|[first, count, ..]| first + count <= row) {
                stretch = stretches.take();
            }
            let Some([first, _, position, behind]) = stretch.filter(|[first, ..]| *first <= row) else {
                let message = "a row of the load came from nowhere";
                return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
            };
            sorted.put([position, behind + row - first, row, index, group, is_taken]);
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
            let result = pg_sys::heap_delete(relation, &raw mut row, command, nothing, false, &raw mut failure, false);
            if result != pg_sys::TM_Result::TM_Ok {
                let message = format!("could not take back a row of the load (result {result})");
                return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
            }
        }
        self.counts.loaded -= 1;
        self.counts.rejected += 1;
        let rejects = &self.process.rejects;
        if rejects.limit.is_some_and(|limit| self.counts.rejected > limit) {
            return Err(rejects.too_many());
        }
        if rejects.has_room() {
            let reject = self.reject_at(place, complaint)?;
            self.process.rejects.keep_bytes(&reject.write());
        }
        Ok(())
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
