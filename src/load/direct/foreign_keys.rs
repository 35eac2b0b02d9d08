//! Checks foreign keys of many rows together.
//!
//! The server checks a foreign key row by row, with a query for each row that finds and locks the parent. These queries
//! take longer than the rest of a load. Here the new keys are collected without repetitions, and one query finds and
//! locks all parents. It runs like the server's own: as the referenced table's owner, with a snapshot taken after the
//! rows are in, FOR KEY SHARE.
//!
//! ```text
//!   row ─► key, unless it has NULLs ─► sort ─► each once, numbered ─┐
//!                                                                   ├─► keys with a locked parent: all ─► done
//!                             referenced table, FOR KEY SHARE ──────┘                          not all ─► queue checks
//! ```
//!
//! The tricky point is that the result must be that of the server's check. A key counts as checked only if the
//! constraint's own operators found its parent, and the parent is locked to the end of the transaction. The server's
//! check guarantees no more. If any key is left, the server's own checks are queued for all rows, and raise the
//! server's errors. A key is left if its parent is missing, was inserted a moment ago, or was changed meanwhile.
//!
//! The server checks the keys itself if its checks could give another result. This is so with deferrable constraints,
//! other row triggers that fire between checks, snapshots that last longer than a statement, and partitioned referenced
//! tables. It also checks the keys of a few rows, which is faster.

mod key;

use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::key::ForeignKey;
use super::key_query::{Beside, KeyQuery};
use crate::error::Result;
use crate::heap::removal::number_of;
use crate::load::rejects::Complaint;
use crate::server::holder::has_one_snapshot;
use crate::server::lookup::constraint_name;
use crate::server::original::gettext;
use crate::server::relation::Relation;
use crate::server::result_relation::ResultRelation;
use crate::server::role::applies_changes;
use crate::server::unguarded as c;

/// Fewer rows than this are left to the server's checks.
const FEWEST_ROWS: u64 = 1000;
const ROW: i16 = pg_sys::TRIGGER_TYPE_ROW as i16;
const INSERT: i16 = pg_sys::TRIGGER_TYPE_INSERT as i16;
const BEFORE_OR_INSTEAD: i16 = (pg_sys::TRIGGER_TYPE_BEFORE | pg_sys::TRIGGER_TYPE_INSTEAD) as i16;
const DISABLED: std::ffi::c_char = pg_sys::TRIGGER_DISABLED.cast_signed();

/// The foreign keys of a relation that are checked together.
#[derive(Debug)]
pub struct ForeignKeys {
    list: Vec<ForeignKey>,
    /// The result relation, whose triggers check the keys.
    relinfo: ResultRelation,
    /// The number of rows.
    rows: u64,
    /// Other triggers must be queued, too.
    others: bool,
    /// Some of these are not checks of the server.
    mingle: bool,
    /// At least one key cannot be checked here.
    doubtful: bool,
    /// Each key is collected with its row.
    tracked: bool,
}

/// Does a trigger fire AFTER INSERT for each row, in this session? (TriggerEnabled, trigger.c.)
fn fires(trigger: &pg_sys::Trigger) -> bool {
    let enabled = trigger.tgenabled.cast_unsigned();
    let not_here = if applies_changes() { pg_sys::TRIGGER_FIRES_ON_ORIGIN } else { pg_sys::TRIGGER_FIRES_ON_REPLICA };
    trigger.tgtype & ROW != 0
        && trigger.tgtype & INSERT != 0
        && trigger.tgtype & BEFORE_OR_INSTEAD == 0
        && enabled != pg_sys::TRIGGER_DISABLED
        && enabled != not_here
}

impl ForeignKeys {
    /// Collects the foreign keys of a result relation with `rows` new rows.
    ///
    /// With `survives`, rows that violate a key are rejected, so all supported keys are taken, even for few rows. Their
    /// check triggers are disabled in the result relation's own copy. Referenced tables are locked with `lock`.
    /// Guarded; allocates in the current memory context.
    pub fn new(relinfo: ResultRelation, rows: u64, survives: bool, lock: u32) -> ForeignKeys {
        let triggers = relinfo.triggers();
        let firing: Vec<_> = triggers.iter().enumerate().filter(|(_, trigger)| fires(trigger)).collect();
        let is_check = |trigger: &pg_sys::Trigger| {
            let function = trigger.tgfoid.to_u32();
            function == pg_sys::F_RI_FKEY_CHECK_INS || function == pg_sys::F_UNIQUE_KEY_RECHECK
        };
        let mingle = !firing.iter().all(|(_, trigger)| is_check(trigger));
        let is_possible = rows >= FEWEST_ROWS && !has_one_snapshot() && !mingle;
        let mut list = Vec::new();
        if is_possible || survives {
            let key = |&(number, trigger)| ForeignKey::new(relinfo.relation(), trigger, number, lock);
            list.extend(firing.iter().filter_map(key));
        }
        for key in &list {
            relinfo.enable_trigger(key.trigger, DISABLED);
        }
        let others = firing.len() > list.len();
        ForeignKeys { list, relinfo, rows, others, mingle, doubtful: false, tracked: false }
    }

    /// Must triggers be queued for each row?
    pub fn leave_others(&self) -> bool {
        self.others
    }

    pub fn are_none(&self) -> bool {
        self.list.is_empty()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Does any key refer to one of these relations?
    pub fn refer_to(&self, is_one: impl Fn(pg_sys::Oid) -> bool) -> bool {
        self.list.iter().any(|key| is_one(key.query.parent))
    }

    /// The queries of the keys, by number.
    pub fn queries(&self) -> impl ExactSizeIterator<Item = &KeyQuery> {
        self.list.iter().map(|key| &key.query)
    }

    /// Prepares for collecting keys, with `memory` kB for each sort. `tracked`: each key is collected with its row.
    /// Guarded; allocates in the current memory context.
    pub fn prepare(&mut self, memory: i32, tracked: bool) {
        (self.tracked, self.doubtful) = (tracked, false);
        self.list.iter_mut().for_each(|key| key.prepare(memory, tracked));
    }

    /// Collects the keys of a row. If keys are tracked, `amiss` is called with each key that violates MATCH FULL.
    ///
    /// # Safety
    /// A plain frame; a slot with a row of the relation. `amiss` owns nothing that has a destructor.
    pub unsafe fn add(&mut self, row: *mut pg_sys::TupleTableSlot, mut amiss: impl FnMut(usize)) {
        let tracked = self.tracked;
        for (number, key) in self.list.iter_mut().enumerate() {
            let Some(collected) = &key.collected else { continue };
            // SAFETY: the frame is plain, and the row has the referring columns; the key's slot has an attribute for each
            // of them.
            unsafe {
                let (values, nulls) = ((*key.slot).tts_values, (*key.slot).tts_isnull);
                let mut absent = 0;
                for (i, &attnum) in key.query.columns.iter().enumerate() {
                    if (*row).tts_nvalid < attnum {
                        c::slot_getsomeattrs_int(row, attnum.into());
                    }
                    let at = usize::try_from(attnum - 1).unwrap_or(0);
                    *values.add(i) = *(*row).tts_values.add(at);
                    absent += usize::from(*(*row).tts_isnull.add(at));
                }
                if absent > 0 {
                    if key.query.full && absent < key.query.columns.len() {
                        self.doubtful = true;
                        if tracked {
                            amiss(number);
                        }
                    }
                    continue;
                }
                let last = key.query.columns.len();
                *values.add(last) = pg_sys::Datum::from(number_of(&(*row).tts_tid).cast_signed());
                *nulls.add(last) = !tracked;
                (*key.slot).tts_flags &= !(pg_sys::TTS_FLAG_EMPTY as u16);
                (*key.slot).tts_nvalid = (*(*key.slot).tts_tupleDescriptor).natts as _;
                c::tuplesort_puttupleslot(collected.sort, key.slot);
                (*key.slot).tts_flags |= pg_sys::TTS_FLAG_EMPTY as u16;
            }
        }
    }

    /// Finds and locks the parents. False if the server's checks are needed. The keys of all rows were collected, and all
    /// rows are in their indexes. Guarded, and outside of parallel mode.
    pub fn check(&mut self) -> Result<bool> {
        for key in &mut self.list {
            if self.doubtful {
                return Ok(false);
            }
            // The server would call the check once for each row.
            let rows = self.rows;
            self.doubtful = !self.relinfo.as_trigger(key.trigger, || {
                let have_parents = key.have_parents()?;
                key.end();
                Ok((have_parents, if have_parents { rows } else { 0 }))
            })?;
        }
        Ok(!self.doubtful)
    }

    /// Finds and locks the parents of tracked keys; calls `missing` with the key and the row for each row without a parent.
    /// As [`ForeignKeys::check`] otherwise.
    pub fn find(&mut self, mut missing: impl FnMut(usize, u64)) -> Result<()> {
        for (number, key) in self.list.iter_mut().enumerate() {
            key.seek(None, |row| missing(number, row))?;
            key.end();
        }
        Ok(())
    }

    /// Finds the parents of one key without locking them, any number of times. Rows in `beside` count as parents. Calls
    /// `missing` for each row without a parent. The keys were prepared as tracked.
    pub fn look(&mut self, number: usize, beside: &Beside, missing: impl FnMut(u64)) -> Result<()> {
        self.list.get_mut(number).map_or(Ok(()), |key| key.seek(Some(beside), missing))
    }

    /// Frees the resources of all keys. Guarded.
    pub fn discard(&mut self) {
        self.list.iter_mut().for_each(ForeignKey::end);
    }

    /// The errors of the server's checks of the keys of a relation. Guarded.
    pub fn complaints(&self, relation: Relation<'_>) -> Vec<Complaint> {
        let complaint =
            |key: &ForeignKey| complaint(&relation.name(), &constraint_name(key.query.constraint).unwrap_or_default());
        self.list.iter().map(complaint).collect()
    }

    /// Re-enables the server's checks if other triggers could act before the server checks a row.
    pub fn let_server_check(&mut self) {
        for key in self.list.iter().filter(|_| self.mingle) {
            self.relinfo.enable_trigger(key.trigger, key.enabled);
        }
    }

    /// Enables the server's checks again, and disables all other triggers.
    pub fn give_back(&mut self) {
        for number in 0..self.relinfo.triggers().len() {
            self.relinfo.enable_trigger(number, DISABLED);
        }
        for key in &self.list {
            self.relinfo.enable_trigger(key.trigger, key.enabled);
        }
    }
}

/// The error of the server's check (ri_ReportViolation, ri_triggers.c).
fn complaint(relation: &CStr, constraint: &CStr) -> Complaint {
    let format = gettext(c"insert or update on table \"%s\" violates foreign key constraint \"%s\"");
    let room = format.to_bytes().len() + relation.to_bytes().len() + constraint.to_bytes().len();
    let mut message = vec![0u8; room + 1];
    // SAFETY: the buffer has the given size; the format takes two strings, in any order.
    let len = unsafe {
        let room = message.len();
        libc::snprintf(message.as_mut_ptr().cast(), room, format.as_ptr(), relation.as_ptr(), constraint.as_ptr())
    };
    message.truncate(usize::try_from(len).unwrap_or(0));
    let code = Code::ERRCODE_FOREIGN_KEY_VIOLATION as i32;
    Complaint { code, message, constraint: Some(constraint.to_bytes().to_vec()), ..Complaint::default() }
}
