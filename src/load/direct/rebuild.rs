//! Indexes that are built from the whole heap, when the rows are in.
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
//! Locks are not upgraded: a load that holds RowExclusiveLock does not ask for more. Where an index cannot be rebuilt,
//! keys are inserted, which is always right.
//!
//! Several indexes of a relation are built at once, by as many processes ([`team`]).
//!
//! Building finds equal keys while it sorts them, and says so in words that are about indexes. What went wrong is that
//! a row violates a constraint, so that is what is said, as COPY would.

mod members;
mod team;

use std::ffi::{CStr, CString, c_char};
use std::time::{Duration, Instant};

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use self::team::Together;
use super::failure::forget_worker;
use super::index_keys::can_read;
use super::indexes::{Index, Indexes, Way};
use crate::load::options::IndexesOption;
use crate::load::report::Why;
use crate::pg::append::Traits;
use crate::pg::attempt::attempt;
use crate::pg::compat;
use crate::pg::original::gettext;
use crate::pg::points::point_plain;
use crate::pg::server_text::from_server;
use crate::pg::unguarded::{self as c, Opaque};
use crate::pg::usage::Cpu;

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
    // SAFETY: the caller vouches for the relation; a guarded call.
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
        // SAFETY: the caller vouches for the relation.
        let temporary = traits.temporary.then(|| unsafe { (*relation).rd_id });
        let empty = alone && start == 0;
        // SAFETY: the caller vouches for the relation; guarded calls.
        let (may_merge, writers_wait) = unsafe {
            let lock = pg_sys::ShareRowExclusiveLock.cast_signed();
            (may_merge(relation, traits), pg_sys::CheckRelationLockedByMe(relation, lock, true))
        };
        let no_merge = (!may_merge).then_some(if traits.temporary { Why::Temporary } else { Why::Online });
        let (wanted, refusal) = match option {
            IndexesOption::Insert => (false, Some(Why::Asked)),
            IndexesOption::Auto if empty => (rows >= FEWEST_ROWS, Some(Why::Few)),
            IndexesOption::Merge if empty => (true, None),
            IndexesOption::Auto | IndexesOption::Merge => (false, no_merge),
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
            // SAFETY: the caller vouches for the relation.
            let name = from_server(unsafe { CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()) });
            let only = if traits.temporary { "only if it is not temporary" } else { "only with lock \"share\"" };
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
        // SAFETY: the caller vouches for the index; guarded calls.
        unsafe {
            let (way, why) = match self.plan(index) {
                Ok(plan) => plan,
                Err(why) => return (None, why),
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
        // SAFETY: the caller vouches for the index; guarded calls.
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
                return if is_valid { Ok((Way::Rebuilt, why)) } else { Err(Why::Invalid) };
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
    pub fn warn(&mut self, relation: &str, indexes: &Indexes) {
        let is_new = |way: Way| matches!(way, Way::Rebuilt | Way::Built | Way::Merged);
        if !self.alone && indexes.list.iter().any(|index| is_new(index.way)) {
            let until = "wait until this transaction ends: its indexes have new files.";
            self.notes.push(format!("Queries of table \"{relation}\" {until}"));
        }
    }
}

/// What the errors of a build need.
#[derive(Debug)]
struct Build {
    index: *const Index,
    persistence: c_char,
    /// The user may see the keys of the table.
    reveals: bool,
}

/// Rebuild those that are to be rebuilt, with so many workers. Returns what these have used.
///
/// # Safety
/// A plain frame outside of parallel mode. The indexes are closed.
pub unsafe fn run(relation: pg_sys::Relation, indexes: *mut Indexes, workers: usize) -> Cpu {
    // SAFETY: the caller vouches for the frame; nothing in it has a destructor.
    unsafe {
        let persistence = (*(*relation).rd_rel).relpersistence;
        let mut together = Together::new(relation, indexes, workers);
        Together::build(&raw mut together);
        for (number, index) in (*indexes).list.iter_mut().enumerate() {
            if index.way != Way::Rebuilt || together.has(number) {
                continue;
            }
            c::check_for_interrupts();
            let began = Instant::now();
            let mut build = Build { index, persistence, reveals: may_see_keys(relation, index.oid) };
            let build = (&raw mut build).cast::<Build>();
            let error = attempt(reindex, build.cast());
            if !error.is_null() {
                forget_worker(error);
                reword(error, build);
                c::ReThrowError(error);
            }
            index.took += began.elapsed();
        }
        together.cpu
    }
}

/// # Safety
/// A plain frame; a [`Build`].
unsafe extern "C-unwind" fn reindex(build: Opaque) {
    // SAFETY: the caller vouches for it.
    unsafe {
        let build = build.cast::<Build>();
        point_plain!("load.rebuild");
        compat::reindex_index((*(*build).index).oid, (*build).persistence);
        c::CommandCounterIncrement();
        point_plain!("load.rebuilt");
    }
}

/// May the user be shown a key that is not unique? As BuildIndexValueDescription (genam.c) asks; while an index is built,
/// it asks for the table's owner.
///
/// # Safety
/// An open relation, and one of its indexes.
#[pg_guard]
unsafe extern "C-unwind" fn may_see_keys(relation: pg_sys::Relation, index: pg_sys::Oid) -> bool {
    // SAFETY: the caller vouches for it; guarded calls. An index has so many keys, those first.
    unsafe {
        let (relid, user) = ((*relation).rd_id, pg_sys::GetUserId());
        let enabled = pg_sys::CheckEnableRlsResult::RLS_ENABLED.cast_signed();
        if pg_sys::check_enable_rls(relid, pg_sys::InvalidOid, true) == enabled {
            return false;
        }
        let select = pg_sys::ACL_SELECT as pg_sys::AclMode;
        if pg_sys::pg_class_aclcheck(relid, user, select) == pg_sys::AclResult::ACLCHECK_OK {
            return true;
        }
        let index = pg_sys::index_open(index, pg_sys::AccessShareLock.cast_signed());
        let form = (*index).rd_index;
        let keys = usize::try_from((*form).indnkeyatts).unwrap_or(0);
        let may = (*form).indkey.values.as_slice(keys).iter().all(|&attnum| {
            attnum != 0 && pg_sys::pg_attribute_aclcheck(relid, attnum, user, select) == pg_sys::AclResult::ACLCHECK_OK
        });
        pg_sys::index_close(index, pg_sys::AccessShareLock.cast_signed());
        may
    }
}

/// Put a build's complaint about equal keys into the words of an insertion's (_bt_check_unique, nbtinsert.c).
///
/// # Safety
/// An error that was caught, and what it came from.
#[pg_guard]
unsafe extern "C-unwind" fn reword(error: *mut pg_sys::ErrorData, build: *const Build) {
    // SAFETY: the caller vouches for both. Strings of the error are allocated; the server finds translations of its own
    // messages, which are formats with one name or value.
    unsafe {
        if !is_about(error, build) {
            return;
        }
        let name = (*(*build).index).name.as_bytes();
        let inserted = filled(c"duplicate key value violates unique constraint \"%s\"", name);
        (*error).message = pg_sys::pstrdup(inserted.as_ptr());
        if (*error).detail.is_null() {
            return;
        }
        let detail = CStr::from_ptr((*error).detail).to_bytes();
        let (before, after) = halves(c"Key %s is duplicated.");
        let key = detail.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        (*error).detail = match key {
            Some(key) if (*build).reveals => pg_sys::pstrdup(filled(c"Key %s already exists.", key).as_ptr()),
            _ => std::ptr::null_mut(),
        };
    }
}

/// Is an error a build's complaint about equal keys?
///
/// # Safety
/// As [`reword`].
unsafe fn is_about(error: *const pg_sys::ErrorData, build: *const Build) -> bool {
    // SAFETY: as there.
    unsafe {
        if (*error).sqlerrcode != Code::ERRCODE_UNIQUE_VIOLATION as i32 || (*error).message.is_null() {
            return false;
        }
        let built = filled(c"could not create unique index \"%s\"", (*(*build).index).name.as_bytes());
        CStr::from_ptr((*error).message).to_bytes() == built.to_bytes()
    }
}

/// A message of the server's, in its language: what is before its `%s`, and what is behind.
fn halves(format: &CStr) -> (&[u8], &[u8]) {
    let words = gettext(format).to_bytes();
    match words.windows(2).position(|two| two == b"%s") {
        Some(at) => (words.get(..at).unwrap_or_default(), words.get(at + 2..).unwrap_or_default()),
        None => (words, b""),
    }
}

fn filled(format: &CStr, value: &[u8]) -> CString {
    let (before, after) = halves(format);
    CString::new([before, value, after].concat()).unwrap_or_default()
}
