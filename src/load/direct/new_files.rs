//! Chooses the indexes that get new files after the rows.
//!
//! Core builds an index of any kind faster than it inserts into it. But a rebuilt index has a new file. Entries that
//! other sessions write into the old file would be lost, and readers of the index wait until this transaction ends. So
//! indexes are rebuilt in two cases:
//!
//! * No other session can have the table open: its file is new in this transaction, or it is temporary. If the file was
//!   empty, this is the default, because only the new rows are sorted.
//! * The options ask for it, writers were locked out from the start (`lock = share`), and readers release the index
//!   within some seconds.
//!
//! If other sessions have the table open, a table with foreign keys gets no new index files. The check of a foreign key
//! waits for sessions that have locked a parent row. Such a session may wait for the index, which would be locked
//! exclusively. This is a deadlock that COPY does not have.
//!
//! An index build runs the index's functions as the table's owner. This must not run code that another role could have
//! changed ([`may_run`]).
//!
//! Locks are not upgraded: a load that holds RowExclusiveLock does not request more. If an index cannot be rebuilt,
//! keys are inserted, which is always correct.
//!
//! Loads an empty table exclusively if its lock is free at once.
//!
//! After a crash, nothing refers to the pages of a file that is new in this transaction. So the WAL of its pages need
//! not reach disk before them, `wal_level = minimal` needs no WAL for them, and indexes can be built after the rows. So
//! an empty table gets a new file if its AccessExclusiveLock is available without waiting. Unlike TRUNCATE, this fires
//! no trigger and sends nothing to subscribers.
//!
//! A table with foreign keys gets no new file. The check of a foreign key waits for sessions that have locked a parent
//! row, and such a session may itself wait for the table. With the exclusive lock this is a deadlock, which COPY does
//! not have.

use std::time::{Duration, Instant};

use pgrx::pg_sys;

use crate::error::Result;
use crate::heap::append::Traits;
use crate::heap::leaves::may_refer;
use crate::index::index_keys::can_read;
use crate::index::strategy::IndexStrategy;
use crate::load::options::IndexesOption;
use crate::load::report::Why;
use crate::server::background::pause;
use crate::server::compat;
use crate::server::lock::{lock_relation, try_lock_relation, unlock_relation};
use crate::server::owner::{along_safe_path, may_run};
use crate::server::relation::{OpenRelation, Relation};
use crate::server::role::privileges;
use crate::server::statement::next_command;

/// A new file and its catalog entry take as long as inserting some thousand keys.
const FEWEST_ROWS: u64 = 10_000;
/// How long the load waits for readers of its indexes in all, and how often it checks, as VACUUM does before it
/// truncates (vacuumlazy.c).
pub const PATIENCE: Duration = Duration::from_secs(5);
const INTERVAL: i64 = 50;

/// Inserting this many keys costs as much as to read, merge and write a page of an index.
///
/// A key takes 0.17 microseconds, a page some 10, less the time of merging its keys. Measured with integers in
/// ascending order.
const KEYS_PER_PAGE: u64 = 40;

/// May indexes of a relation get new files with the entries of the old ones? Writers must have been locked out from the
/// start. Guarded.
pub fn may_merge(relation: Relation<'_>, traits: Traits) -> bool {
    if traits.temporary {
        return false;
    }
    !traits.shared || do_writers_wait(relation)
}

fn do_writers_wait(relation: Relation<'_>) -> bool {
    relation.has_lock(pg_sys::ShareRowExclusiveLock, true)
}

/// Chooses the indexes of a relation that get new files.
#[derive(Debug)]
pub struct Rebuild {
    option: IndexesOption,
    /// Indexes are rebuilt.
    wanted: bool,
    /// The reason why no index is merged.
    refusal: Option<Why>,
    /// Indexes whose keys were collected and can be merged; the number of new rows.
    merge: Vec<pg_sys::Oid>,
    /// Of these, the indexes to which all new keys can be appended.
    behind: Vec<pg_sys::Oid>,
    rows: u64,
    /// Indexes that the load itself holds open, because their keys are index tuples.
    held: Vec<pg_sys::Oid>,
    /// The table has only the new rows.
    empty: bool,
    /// No other session can use the indexes.
    alone: bool,
    /// The relation, if it is temporary.
    temporary: Option<pg_sys::Oid>,
    /// Time still to wait for readers.
    pub patience: Duration,
    pub notes: Vec<String>,
}

impl Rebuild {
    /// Prepares the choice for a relation with `rows` new rows from block `start` on. Guarded.
    pub fn new(
        relation: Relation<'_>,
        traits: Traits,
        start: u32,
        rows: u64,
        option: IndexesOption,
        collected: Vec<pg_sys::Oid>,
        patience: Duration,
    ) -> Rebuild {
        let alone = !traits.shared;
        let temporary = traits.temporary.then(|| relation.oid());
        let empty = alone && start == 0;
        let refers = !alone && may_refer(relation);
        let no_merge = match may_merge(relation, traits) {
            false => Some(if traits.temporary { Why::Temporary } else { Why::Online }),
            true => refers.then_some(Why::Refers),
        };
        let (wanted, refusal) = match option {
            IndexesOption::Insert => (false, Some(Why::Asked)),
            IndexesOption::Auto if empty => (rows >= FEWEST_ROWS, Some(Why::Few)),
            IndexesOption::Merge if empty => (true, None),
            IndexesOption::Auto | IndexesOption::Merge => (false, no_merge),
            IndexesOption::Rebuild if refers && do_writers_wait(relation) => (false, Some(Why::Refers)),
            IndexesOption::Rebuild => (alone || do_writers_wait(relation), Some(Why::Online)),
        };
        let merge = if empty { Vec::new() } else { collected };
        let mut notes = Vec::new();
        let missed = match option {
            IndexesOption::Merge if refusal.is_some() => Some("merged"),
            IndexesOption::Rebuild if !wanted => Some("rebuilt"),
            _ => None,
        };
        if let Some(missed) = missed {
            let name = relation.name_text();
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

    /// Sets the indexes that the load holds open until their strategies are chosen.
    pub fn holding(self, held: Vec<pg_sys::Oid>) -> Rebuild {
        Rebuild { held, ..self }
    }

    /// May this index be merged, so that it matters whether the new keys can be appended?
    pub fn may_merge_into(&self, index: pg_sys::Oid) -> bool {
        !self.wanted && self.refusal.is_none() && self.option == IndexesOption::Auto && self.merge.contains(&index)
    }

    /// All new keys can be appended to this index.
    pub fn set_behind(&mut self, index: pg_sys::Oid) {
        self.behind.push(index);
    }

    /// Chooses whether an index gets a new file, and returns the reason. If so, the index is locked.
    ///
    /// The index is one of the relation. It has no exclusion constraint, and no constraint that is checked later. Guarded.
    pub fn choose(&mut self, index: Relation<'_>) -> (Option<IndexStrategy>, Why) {
        let (strategy, why) = match self.plan(index) {
            Ok(plan) => plan,
            Err(why) => {
                if why == Why::Owner {
                    let name = index.name_text();
                    self.notes.push(format!("Index \"{name}\" calls functions that are not built in. They would run with the privileges of the table's owner, which you do not have; the new keys were inserted."));
                }
                return (None, why);
            }
        };
        // As in CheckTableNotInUse (tablecmds.c): a running query must not meet another file.
        let own = i32::from(self.held.contains(&index.oid()));
        if index.references() == 1 + own && (self.alone || self.lock(index.oid())) {
            // Other relations have such a lock, or a stronger one. It is needed because statistics are overwritten
            // in the catalog.
            if let Some(relation) = self.temporary {
                lock_relation(relation, pg_sys::ShareUpdateExclusiveLock);
            }
            return (Some(strategy), why);
        }
        self.notes.push(format!("Index \"{}\" is in use; the new keys were inserted.", index.name_text()));
        (None, Why::InUse)
    }

    /// The best strategy with a new file; or, if insertion is better, the reason.
    fn plan(&self, index: Relation<'_>) -> std::result::Result<(IndexStrategy, Why), Why> {
        let oid = index.oid();
        let is_valid = index.index().is_some_and(|form| form.is_valid);
        // Expressions that were evaluated for the rows are not evaluated again, even for few rows.
        let is_evaluated = || self.empty && self.held.contains(&oid) && index.is_computed();
        if self.wanted || is_evaluated() {
            // Rebuilding would make an invalid index valid.
            let why = if self.option == IndexesOption::Rebuild { Why::Asked } else { Why::Empty };
            return match is_valid {
                false => Err(Why::Invalid),
                true if !may_run(index) => Err(Why::Owner),
                true => Ok((IndexStrategy::Rebuild, why)),
            };
        }
        if let Some(why) = self.refusal {
            return Err(why);
        }
        if !self.merge.contains(&oid) {
            return Err(if is_valid { Why::Kind } else { Why::Invalid });
        }
        let always = self.option == IndexesOption::Merge;
        if !always && self.rows < FEWEST_ROWS {
            Err(Why::Few)
        } else if !always && self.rows <= u64::from(index.pages()) * KEYS_PER_PAGE {
            Err(Why::FewForIndex)
        } else if self.behind.contains(&oid) {
            Err(Why::Behind)
        } else if !can_read(index) {
            Err(Why::OldVersion)
        } else if !may_run(index) {
            // An index that cannot be merged after all is rebuilt.
            Err(Why::Owner)
        } else {
            Ok((IndexStrategy::Merge, if always { Why::Asked } else { Why::Many }))
        }
    }

    /// The reason for inserting keys into an index that cannot get a new file anyway.
    pub fn insertion(&self, otherwise: Why) -> Why {
        if self.option == IndexesOption::Insert { Why::Asked } else { otherwise }
    }

    /// Locks an index exclusively, if its readers release it in time.
    fn lock(&mut self, index: pg_sys::Oid) -> bool {
        let began = Instant::now();
        loop {
            // The relation is locked, so the index cannot be dropped. The lock is only requested conditionally, so no
            // deadlock is possible.
            let is_locked = try_lock_relation(index, pg_sys::AccessExclusiveLock);
            let waited = began.elapsed();
            if is_locked || waited >= self.patience {
                self.patience = self.patience.saturating_sub(waited);
                return is_locked;
            }
            pause(INTERVAL);
        }
    }

    /// Notes that queries of the table must wait.
    pub fn warn(&mut self, relation: &str, mut strategies: impl Iterator<Item = IndexStrategy>) {
        if !self.alone && strategies.any(IndexStrategy::makes_file) {
            let until = "wait until this transaction ends: its indexes have new files.";
            self.notes.push(format!("Queries of table \"{relation}\" {until}"));
        }
    }
}

/// A smaller file (in bytes) does not justify locking other sessions out.
pub const WORTH_EXCLUSIVE: u64 = 1 << 20;

const EXCLUSIVE: u32 = pg_sys::AccessExclusiveLock;

/// Gives an empty table a new file, if this is allowed and the locks are free. True if the table has one now. Guarded.
///
/// The relation is a plain table, locked for writing; the caller holds `references` references to it. With further
/// references the table is left alone.
pub fn renew(relation: Relation<'_>, references: i32) -> Result<bool> {
    let relid = relation.oid();
    let persistence = relation.persistence();
    let temporary = persistence == pg_sys::RELPERSISTENCE_TEMP;
    let new = compat::is_new_file(relation);
    if temporary || new || may_refer(relation) || !is_unused(relation, references) || !may_truncate(relid) {
        return Ok(false);
    }
    // The new file needs locks on all objects of the table. To wait for one of them while holding the others would
    // lock other sessions out, so the locks are taken only if they are all free.
    let toast = Some(relation.toast_table()).filter(|&toast| toast != pg_sys::InvalidOid);
    let mut belonging = Vec::new();
    let may_build = indexes_of(relid, &mut belonging) && toast.is_none_or(|toast| indexes_of(toast, &mut belonging));
    belonging.extend(toast);
    belonging.push(relid);
    // Rebuilding an invalid index could fail because of the table's rows. Even for a table without rows, an index
    // build evaluates function calls with constant arguments, as the owner.
    if !may_build || !lock_all(&belonging) {
        return Ok(false);
    }
    // Another session may have inserted rows before the lock was granted.
    if !is_unused(relation, references) {
        return Ok(false);
    }
    let persistence = persistence.cast_signed();
    compat::set_new_file(relation, persistence);
    if let Some(toast) = toast {
        compat::set_new_file(OpenRelation::open(toast, pg_sys::AccessExclusiveLock).get(), persistence);
    }
    let flags = pg_sys::REINDEX_REL_PROCESS_TOAST.cast_signed();
    next_command();
    along_safe_path(relation, || compat::reindex_relation(relid, flags));
    Ok(true)
}

/// Adds the indexes of a table. False if one of them is unusable, or if the current user must not build it. Guarded.
fn indexes_of(relid: pg_sys::Oid, found: &mut Vec<pg_sys::Oid>) -> bool {
    let mut may_build = true;
    for oid in OpenRelation::open(relid, pg_sys::AccessShareLock).get().indexes() {
        let index = OpenRelation::open(oid, pg_sys::AccessShareLock);
        may_build &= index.get().index().is_some_and(|form| form.is_usable) && may_run(index.get());
        found.push(oid);
    }
    may_build
}

/// Locks all relations if all are free at once, else none. Guarded.
fn lock_all(relids: &[pg_sys::Oid]) -> bool {
    for (i, &relid) in relids.iter().enumerate() {
        if !try_lock_relation(relid, EXCLUSIVE) {
            relids.iter().take(i).for_each(|&taken| unlock_relation(taken, EXCLUSIVE));
            return false;
        }
    }
    true
}

/// Is the table empty, and not in use elsewhere in this session (CheckTableNotInUse, tablecmds.c)?
fn is_unused(relation: Relation<'_>, references: i32) -> bool {
    relation.pages() == 0 && relation.references() == references && !relation.has_queued_triggers()
}

/// May the current user truncate the table? Guarded.
fn may_truncate(relid: pg_sys::Oid) -> bool {
    privileges(relid, pg_sys::ACL_TRUNCATE) == pg_sys::AclResult::ACLCHECK_OK
}
