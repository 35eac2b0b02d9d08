//! Which indexes get new files, when the rows are in.
//!
//! Core builds every kind of index faster than it inserts into it. But a rebuilt index has a new file, and that must not
//! take anybody by surprise: whoever wrote to the old one would be lost, whoever reads the index waits until this
//! transaction ends. So indexes are rebuilt
//!
//! * where nobody else can have the table open: its file is new in this transaction, or it is temporary. By itself if
//!   the file was empty, so that nothing but the new rows has to be sorted;
//! * if it is asked for, where writers were kept out from the start (lock "share"), and readers let go of the index
//!   within a while.
//!
//! Where others have the table open, a table with foreign keys gets no new index files. Their check waits for sessions that have locked a
//! parent row. Such a session may wait for the index, which would be locked exclusively: a deadlock that COPY does not have.
//!
//! But what an index is made with is run as the table's owner then, and that must not be for the sake of somebody else who may have had
//! a hand in what it does ([`may_run`]).
//!
//! Locks are not upgraded: a load that holds RowExclusiveLock does not ask for more. Where an index cannot be rebuilt,
//! keys are inserted, which is always right.

use std::ffi::CStr;
use std::time::{Duration, Instant};

use pgrx::pg_sys;

use super::index_keys::can_read;
use super::leaves::may_refer;
use super::way::Way;
use crate::load::options::IndexesOption;
use crate::load::report::Why;
use crate::pg::append::Traits;
use crate::pg::owner::may_run;
use crate::pg::server_text::from_server;

/// A new file and a line in the catalog take as long as to insert some thousand keys.
const FEWEST_ROWS: u64 = 10_000;
/// How long readers may keep all indexes of a load, and how often we look, as VACUUM does before it truncates (vacuumlazy.c).
pub const PATIENCE: Duration = Duration::from_secs(5);
const INTERVAL: std::ffi::c_long = 50;

/// To insert so many keys costs as much as to read, merge and write a page of an index: 0.17 against some 10 microseconds, less
/// what merging takes for each key; that was measured with integers in ascending order.
const KEYS_PER_PAGE: u64 = 40;

/// May indexes of a relation get new files that have the entries of the old ones? Writers must have been kept out from
/// the start. Guarded.
///
/// # Safety
/// An open relation.
pub unsafe fn may_merge(relation: pg_sys::Relation, traits: Traits) -> bool {
    let writers_wait = pg_sys::ShareRowExclusiveLock.cast_signed();
    // SAFETY: this function's contract covers the relation; a guarded call.
    !traits.temporary && (!traits.shared || unsafe { pg_sys::CheckRelationLockedByMe(relation, writers_wait, true) })
}

/// Which indexes of a relation get new files.
#[derive(Debug)]
pub struct Rebuild {
    option: IndexesOption,
    /// They are rebuilt.
    wanted: bool,
    /// Why none of them is merged.
    refusal: Option<Why>,
    /// Indexes whose keys were collected and can be merged; the number of new rows.
    merge: Vec<pg_sys::Oid>,
    /// Of these, the ones that have no key behind which a new one does not belong.
    behind: Vec<pg_sys::Oid>,
    rows: u64,
    /// Indexes that the load itself holds open, since they get their keys as index tuples.
    held: Vec<pg_sys::Oid>,
    /// Nothing but the new rows is in them.
    empty: bool,
    /// Nobody else can use the indexes.
    alone: bool,
    /// The relation, if it is temporary.
    temporary: Option<pg_sys::Oid>,
    /// How long to wait for readers still.
    pub patience: Duration,
    pub notes: Vec<String>,
}

impl Rebuild {
    /// For a relation with so many new rows, from block `start` on. Guarded.
    ///
    /// # Safety
    /// An open relation.
    pub unsafe fn new(
        relation: pg_sys::Relation,
        traits: Traits,
        start: u32,
        rows: u64,
        option: IndexesOption,
        collected: Vec<pg_sys::Oid>,
        patience: Duration,
    ) -> Rebuild {
        let alone = !traits.shared;
        // SAFETY: this function's contract covers the relation.
        let temporary = traits.temporary.then(|| unsafe { (*relation).rd_id });
        let empty = alone && start == 0;
        // SAFETY: this function's contract covers the relation; guarded calls.
        let (may_merge, writers_wait) = unsafe {
            let lock = pg_sys::ShareRowExclusiveLock.cast_signed();
            (may_merge(relation, traits), pg_sys::CheckRelationLockedByMe(relation, lock, true))
        };
        // SAFETY: this function's contract covers the relation.
        let refers = !alone && unsafe { may_refer(relation) };
        let no_merge = match may_merge {
            false => Some(if traits.temporary { Why::Temporary } else { Why::Online }),
            true => refers.then_some(Why::Refers),
        };
        let (wanted, refusal) = match option {
            IndexesOption::Insert => (false, Some(Why::Asked)),
            IndexesOption::Auto if empty => (rows >= FEWEST_ROWS, Some(Why::Few)),
            IndexesOption::Merge if empty => (true, None),
            IndexesOption::Auto | IndexesOption::Merge => (false, no_merge),
            IndexesOption::Rebuild if refers && writers_wait => (false, Some(Why::Refers)),
            IndexesOption::Rebuild => (alone || writers_wait, Some(Why::Online)),
        };
        let merge = if empty { Vec::new() } else { collected };
        let mut notes = Vec::new();
        let missed = match option {
            IndexesOption::Merge if refusal.is_some() => Some("merged"),
            IndexesOption::Rebuild if !wanted => Some("rebuilt"),
            _ => None,
        };
        if let Some(missed) = missed {
            // SAFETY: this function's contract covers the relation.
            let name = from_server(unsafe { CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()) });
            let only = match refusal {
                Some(Why::Refers) => "only if it has no foreign keys",
                _ if traits.temporary => "only if it is not temporary",
                _ => "only with lock = share",
            };
            notes.push(format!("Indexes of table \"{name}\" can be {missed} {only}; the new keys were inserted."));
        }
        Rebuild {
            option,
            wanted,
            refusal,
            merge,
            behind: Vec::new(),
            rows,
            held: Vec::new(),
            empty,
            alone,
            temporary,
            patience,
            notes,
        }
    }

    /// For a load that holds these indexes open until it is known what becomes of them.
    pub fn holding(self, held: Vec<pg_sys::Oid>) -> Rebuild {
        Rebuild { held, ..self }
    }

    /// May this index be merged, so that it matters where the new keys belong in it?
    pub fn may_merge_into(&self, index: pg_sys::Oid) -> bool {
        !self.wanted && self.refusal.is_none() && self.option == IndexesOption::Auto && self.merge.contains(&index)
    }

    /// All new keys belong behind those of this index.
    pub fn set_behind(&mut self, index: pg_sys::Oid) {
        self.behind.push(index);
    }

    /// Does this index get a new file, and why, or why not? It is locked then. It is of no constraint that is checked later or by
    /// looking around. Guarded.
    ///
    /// # Safety
    /// An open index of the relation.
    pub unsafe fn choose(&mut self, index: pg_sys::Relation) -> (Option<Way>, Why) {
        // SAFETY: this function's contract covers the index; guarded calls.
        unsafe {
            let (way, why) = match self.plan(index) {
                Ok(plan) => plan,
                Err(why) => {
                    if why == Why::Owner {
                        let name = from_server(CStr::from_ptr((*(*index).rd_rel).relname.data.as_ptr()));
                        self.notes.push(format!("Index \"{name}\" calls functions that are not built in. They would run with the privileges of the table's owner, which you do not have; the new keys were inserted."));
                    }
                    return (None, why);
                }
            };
            // As CheckTableNotInUse (tablecmds.c) asks: a query that is still running must not find another file.
            let own = i32::from(self.held.contains(&(*index).rd_id));
            if (*index).rd_refcnt == 1 + own && (self.alone || self.lock((*index).rd_id)) {
                // Others are locked like that, or more, and must be: statistics are written over what the catalog has.
                if let Some(relation) = self.temporary {
                    pg_sys::LockRelationOid(relation, pg_sys::ShareUpdateExclusiveLock.cast_signed());
                }
                return (Some(way), why);
            }
            let name = from_server(CStr::from_ptr((*(*index).rd_rel).relname.data.as_ptr()));
            self.notes.push(format!("Index \"{name}\" is in use; the new keys were inserted."));
            (None, Why::InUse)
        }
    }

    /// What is best for an index; if that is to insert into it, why.
    ///
    /// # Safety
    /// As [`Rebuild::choose`].
    unsafe fn plan(&self, index: pg_sys::Relation) -> std::result::Result<(Way, Why), Why> {
        // SAFETY: this function's contract covers the index; guarded calls.
        unsafe {
            let is_valid = (*(*index).rd_index).indisvalid;
            // What was evaluated of the rows need not be evaluated again, however few these are.
            let is_evaluated = || {
                self.empty
                    && self.held.contains(&(*index).rd_id)
                    && !(pg_sys::RelationGetIndexExpressions(index).is_null()
                        && pg_sys::RelationGetIndexPredicate(index).is_null())
            };
            if self.wanted || is_evaluated() {
                // Rebuilding would make an invalid one valid.
                let why = if self.option == IndexesOption::Rebuild { Why::Asked } else { Why::Empty };
                return match is_valid {
                    false => Err(Why::Invalid),
                    true if !may_run(index) => Err(Why::Owner),
                    true => Ok((Way::Rebuilt, why)),
                };
            }
            if let Some(why) = self.refusal {
                return Err(why);
            }
            if !self.merge.contains(&(*index).rd_id) {
                return Err(if is_valid { Why::Kind } else { Why::Invalid });
            }
            let always = self.option == IndexesOption::Merge;
            let pages = || pg_sys::RelationGetNumberOfBlocksInFork(index, pg_sys::ForkNumber::MAIN_FORKNUM);
            if !always && self.rows < FEWEST_ROWS {
                Err(Why::Few)
            } else if !always && self.rows <= u64::from(pages()) * KEYS_PER_PAGE {
                Err(Why::FewForIndex)
            } else if self.behind.contains(&(*index).rd_id) {
                Err(Why::Behind)
            } else if !can_read(index) {
                Err(Why::OldVersion)
            } else if !may_run(index) {
                // What cannot be merged after all is rebuilt.
                Err(Why::Owner)
            } else {
                Ok((Way::Merged, if always { Why::Asked } else { Why::Many }))
            }
        }
    }

    /// Why keys are inserted into an index that could not get a new file anyway.
    pub fn insertion(&self, otherwise: Why) -> Why {
        if self.option == IndexesOption::Insert { Why::Asked } else { otherwise }
    }

    /// Lock an index exclusively, if its readers are done soon.
    fn lock(&mut self, index: pg_sys::Oid) -> bool {
        let exclusive = pg_sys::AccessExclusiveLock.cast_signed();
        let began = Instant::now();
        let events = (pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH).cast_signed();
        loop {
            // SAFETY: guarded calls. The relation is locked, so that the index stays; there is nothing that waits for us
            // to wait for, since others' locks are only tried.
            unsafe {
                let is_locked = pg_sys::ConditionalLockRelationOid(index, exclusive);
                let waited = began.elapsed();
                if is_locked || waited >= self.patience {
                    self.patience = self.patience.saturating_sub(waited);
                    return is_locked;
                }
                pg_sys::WaitLatch(pg_sys::MyLatch, events, INTERVAL, pg_sys::PG_WAIT_EXTENSION);
                pg_sys::ResetLatch(pg_sys::MyLatch);
            }
            pgrx::check_for_interrupts!();
        }
    }

    /// Say whom it makes wait.
    pub fn warn(&mut self, relation: &str, mut ways: impl Iterator<Item = Way>) {
        if !self.alone && ways.any(Way::makes_file) {
            let until = "wait until this transaction ends: its indexes have new files.";
            self.notes.push(format!("Queries of table \"{relation}\" {until}"));
        }
    }
}
