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
use super::key_query::{Beside, KeyQuery, sort_operator};
use crate::heap::removal::number_of;
use crate::load::rejects::Complaint;
use crate::server::compat;
use crate::server::original::gettext;
use crate::server::unguarded::{self as c, guard};

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
    triggers: *mut pg_sys::TriggerDesc,
    /// Instrumentation of the triggers for EXPLAIN, or null; and the number of rows.
    instruments: *mut pg_sys::Instrumentation,
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

impl ForeignKeys {
    /// Collects the foreign keys of a result relation with `rows` new rows.
    ///
    /// With `survives`, rows that violate a key are rejected, so all supported keys are taken, even for few rows. Their
    /// check triggers are disabled in the result relation's own copy. Referenced tables are locked with `lock`.
    /// Guarded; allocates in the current memory context.
    ///
    /// # Safety
    /// The result relation is valid, and its copy of the triggers is not used elsewhere.
    pub unsafe fn new(
        relinfo: *mut pg_sys::ResultRelInfo,
        rows: u64,
        survives: bool,
        lock: pg_sys::LOCKMODE,
    ) -> ForeignKeys {
        // SAFETY: this function's contract covers the result relation; guarded calls.
        unsafe {
            let triggers = (*relinfo).ri_TrigDesc;
            let mut found = ForeignKeys {
                list: Vec::new(),
                triggers,
                instruments: (*relinfo).ri_TrigInstrument,
                rows,
                others: false,
                mingle: false,
                doubtful: false,
                tracked: false,
            };
            let fire = |number: &usize| found.fires(*number);
            let firing: Vec<usize> = (0..found.count()).filter(fire).collect();
            let is_check = |trigger: &pg_sys::Trigger| {
                let function = trigger.tgfoid.to_u32();
                function == pg_sys::F_RI_FKEY_CHECK_INS || function == pg_sys::F_UNIQUE_KEY_RECHECK
            };
            found.mingle = !firing.iter().all(|&number| is_check(&*found.trigger(number)));
            let is_possible = rows >= FEWEST_ROWS
                && pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ.cast_signed()
                && !found.mingle;
            if is_possible || survives {
                let relation = (*relinfo).ri_RelationDesc;
                let key = |&n: &usize| ForeignKey::new(relation, &*found.trigger(n), n, lock);
                found.list = firing.iter().filter_map(key).collect();
            }
            found.others = firing.len() > found.list.len();
            for key in &found.list {
                (*found.trigger(key.trigger)).tgenabled = DISABLED;
            }
            found
        }
    }

    fn count(&self) -> usize {
        // SAFETY: an open relation's triggers, or null.
        unsafe { self.triggers.as_ref() }.map_or(0, |triggers| usize::try_from(triggers.numtriggers).unwrap_or(0))
    }

    /// A trigger by its number.
    ///
    /// # Safety
    /// The number is below `count`.
    unsafe fn trigger(&self, number: usize) -> *mut pg_sys::Trigger {
        // SAFETY: this function's contract covers the number.
        unsafe { (*self.triggers).triggers.add(number) }
    }

    /// Does the trigger fire AFTER INSERT for each row, in this session? (TriggerEnabled, trigger.c.)
    ///
    /// # Safety
    /// The number is below `count`.
    unsafe fn fires(&self, number: usize) -> bool {
        // SAFETY: this function's contract covers the number; reads a setting.
        unsafe {
            let trigger = &*self.trigger(number);
            let replica = pg_sys::SessionReplicationRole == pg_sys::SESSION_REPLICATION_ROLE_REPLICA.cast_signed();
            let enabled = trigger.tgenabled.cast_unsigned();
            let not_here = if replica { pg_sys::TRIGGER_FIRES_ON_ORIGIN } else { pg_sys::TRIGGER_FIRES_ON_REPLICA };
            trigger.tgtype & ROW != 0
                && trigger.tgtype & INSERT != 0
                && trigger.tgtype & BEFORE_OR_INSTEAD == 0
                && enabled != pg_sys::TRIGGER_DISABLED
                && enabled != not_here
        }
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

    /// Prepares for collecting keys, with `memory` kB for each sort. `tracked`: each key is collected with its row.
    /// Guarded; allocates in the current memory context.
    pub fn prepare(&mut self, memory: i32, tracked: bool) {
        (self.tracked, self.doubtful) = (tracked, false);
        for key in &mut self.list {
            // SAFETY: guarded calls. Each column but the last has a sort operator.
            unsafe {
                let descriptor = key.query.descriptor;
                let columns = key.query.columns.len();
                let attribute = |i| &*compat::attribute(descriptor, i);
                let mut numbers: Vec<i16> = (0..columns).map(|i| attribute(i).attnum).collect();
                let mut operators: Vec<_> = (0..columns).map(|i| sort_operator(attribute(i).atttypid)).collect();
                let mut collations: Vec<_> = (0..columns).map(|i| attribute(i).attcollation).collect();
                let mut nulls_first = vec![false; columns];
                key.sort = pg_sys::tuplesort_begin_heap(
                    descriptor,
                    i32::try_from(columns).unwrap_or(0),
                    numbers.as_mut_ptr(),
                    operators.as_mut_ptr(),
                    collations.as_mut_ptr(),
                    nulls_first.as_mut_ptr(),
                    memory,
                    std::ptr::null_mut(),
                    if tracked { pg_sys::TUPLESORT_RANDOMACCESS.cast_signed() } else { 0 },
                );
                key.numbered = pg_sys::tuplestore_begin_heap(false, false, memory);
                key.count = None;
            }
        }
    }

    /// Collects the keys of a row. If keys are tracked, `amiss` is called with each key that violates MATCH FULL.
    ///
    /// # Safety
    /// A plain frame; a slot with a row of the relation. `amiss` owns nothing that has a destructor.
    pub unsafe fn add(&mut self, row: *mut pg_sys::TupleTableSlot, mut amiss: impl FnMut(usize)) {
        let tracked = self.tracked;
        for (number, key) in self.list.iter_mut().enumerate() {
            // SAFETY: this function's contract covers frame and slot; the key's slot has an attribute for each of the
            // columns.
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
                c::tuplesort_puttupleslot(key.sort, key.slot);
                (*key.slot).tts_flags |= pg_sys::TTS_FLAG_EMPTY as u16;
            }
        }
    }

    /// Finds and locks the parents. False if the server's checks are needed.
    ///
    /// # Safety
    /// A plain frame outside of parallel mode. The keys of all rows were collected, and all rows are in their indexes.
    pub unsafe fn check(&mut self) -> bool {
        for key in &mut self.list {
            // SAFETY: this function's contract covers the frame; nothing in it has a destructor. There is an instrument
            // for each trigger.
            unsafe {
                if self.doubtful {
                    return false;
                }
                let instruments = self.instruments;
                if !instruments.is_null() {
                    c::InstrStartNode(instruments.add(key.trigger));
                }
                let keys = key.number_keys(false);
                self.doubtful = keys > 0 && key.query.run(key.numbered, keys) != keys;
                key.end();
                if !instruments.is_null() {
                    // The server would call the check once for each row.
                    let calls = if self.doubtful { 0 } else { self.rows };
                    c::InstrStopNode(instruments.add(key.trigger), calls as f64);
                }
            }
        }
        !self.doubtful
    }

    /// Finds and locks the parents of tracked keys; calls `missing` for each row without a parent.
    ///
    /// # Safety
    /// See [`ForeignKeys::check`]; `missing` owns nothing that has a destructor. Allocates in the current memory
    /// context.
    pub unsafe fn find(&mut self, mut missing: impl FnMut(usize, u64)) {
        for (number, key) in self.list.iter_mut().enumerate() {
            // SAFETY: this function's contract covers the frame; nothing in it has a destructor.
            unsafe {
                let look = |key: &ForeignKey, keys, found| key.query.find(key.numbered, keys, found);
                key.seek(look, |row| missing(number, row));
                key.end();
            }
        }
    }

    /// Finds the parents without locking them, any number of times. `beside` returns rows of the load that count as
    /// parents for a query.
    ///
    /// # Safety
    /// As [`ForeignKeys::find`]; the keys were prepared as tracked and are not freed; `beside` returns a live tuplestore or
    /// nothing, and owns nothing that has a destructor.
    pub unsafe fn look(&mut self, mut beside: impl FnMut(&KeyQuery) -> Beside, mut missing: impl FnMut(usize, u64)) {
        for (number, key) in self.list.iter_mut().enumerate() {
            // SAFETY: this function's contract covers frame, sorts and rows; nothing in the frame has a destructor.
            unsafe {
                let rows = beside(&key.query);
                let look = |key: &ForeignKey, keys, found| key.query.look(key.numbered, keys, rows, found);
                key.seek(look, |row| missing(number, row));
            }
        }
    }

    /// Frees the resources of all keys. Guarded.
    pub fn discard(&mut self) {
        // SAFETY: made by `prepare`; freed resources are null.
        self.list.iter_mut().for_each(|key| unsafe { guard(|| key.end()) });
    }

    /// The errors of the server's checks. Guarded.
    ///
    /// # Safety
    /// The keys are of this relation.
    pub unsafe fn complaints(&self, relation: pg_sys::Relation) -> Vec<Complaint> {
        let complaint = |key: &ForeignKey| {
            // SAFETY: this function's contract covers the relation; a guarded lookup, and a copy of what it returns.
            unsafe {
                let name = pg_sys::get_constraint_name((*self.trigger(key.trigger)).tgconstraint);
                let name = if name.is_null() { c"" } else { CStr::from_ptr(name) };
                complaint(CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()), name)
            }
        };
        self.list.iter().map(complaint).collect()
    }

    /// Re-enables the server's checks if other triggers could act before the server checks a row.
    pub fn let_server_check(&mut self) {
        for key in self.list.iter().filter(|_| self.mingle) {
            // SAFETY: the number is below `count`; the copy is the result relation's, which is not used for other rows.
            unsafe { (*self.trigger(key.trigger)).tgenabled = key.enabled };
        }
    }

    /// Enables the server's checks again, and disables all other triggers.
    pub fn give_back(&mut self) {
        for number in 0..self.count() {
            // SAFETY: the number is below `count`; the copy is the result relation's, which is not used for other rows.
            unsafe { (*self.trigger(number)).tgenabled = DISABLED };
        }
        for key in &self.list {
            // SAFETY: as above.
            unsafe { (*self.trigger(key.trigger)).tgenabled = key.enabled };
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
