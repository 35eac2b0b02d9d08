//! Foreign keys of many rows, checked together.
//!
//! The server checks a foreign key row by row, by a query that finds and locks the row referred to: so many queries take
//! longer than all the rest of a load. Here the new keys are collected, each once, and one query finds and locks all the
//! rows they refer to, run as the server runs its own: by the referenced table's owner, with a snapshot taken when the
//! rows are in, FOR KEY SHARE.
//!
//! ```text
//!   row ─► key, unless it has NULLs ─► sort ─► each once, numbered ─┐
//!                                                                   ├─► keys whose row is there and locked: all? ─► done
//!                             referenced table, FOR KEY SHARE ──────┘                                        no ─► queue checks
//! ```
//!
//! The tricky point is what nobody should have to prove: that this finds what the server's check finds. It does not
//! matter. A key counts as checked only if its row was found by the constraint's own operators and is locked to the end
//! of the transaction, which is what that check comes to. If any key is left over, for whatever reason (it is not
//! there, it was inserted a moment ago, it was changed meanwhile), the server's own checks are queued for all rows, and
//! say what there is to say, in their words.
//!
//! It is not done where checks of the server could do something else: constraints that may be deferred, other row
//! triggers that fire between checks, snapshots that last longer than a statement, partitioned referenced tables; and
//! for a few rows it is not worth it.

mod key;

use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::key::ForeignKey;
use super::key_query::{Beside, KeyQuery, sort_operator};
use crate::load::rejects::Complaint;
use crate::pg::compat;
use crate::pg::original::gettext;
use crate::pg::removal::number_of;
use crate::pg::unguarded::{self as c, guard};

/// Fewer rows are left to the server's checks.
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
    /// What EXPLAIN is told of each of them, or null; and of how many rows.
    instruments: *mut pg_sys::Instrumentation,
    rows: u64,
    /// Other triggers want to be queued meanwhile.
    others: bool,
    /// Some of these are more than checks.
    mingle: bool,
    /// A key is known not to be checked here.
    doubtful: bool,
    /// Keys know of their rows.
    tracked: bool,
}

impl ForeignKeys {
    /// Those of a result relation with so many new rows; all that can be, if rows that violate them are survived. The triggers
    /// that check them are disabled in the result relation's own copy. Referenced tables are locked like this. Guarded;
    /// allocates in the current memory context.
    ///
    /// # Safety
    /// A result relation, and its copy of the triggers is nobody else's.
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

    /// Trigger `number`, below `count`.
    fn trigger(&self, number: usize) -> *mut pg_sys::Trigger {
        // SAFETY: this function's contract covers the number.
        unsafe { (*self.triggers).triggers.add(number) }
    }

    /// Does it fire AFTER INSERT for each row, in this session? (TriggerEnabled, trigger.c.)
    fn fires(&self, number: usize) -> bool {
        // SAFETY: the number is below `count`; reads a setting.
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

    /// Are there triggers to be queued for each row?
    pub fn leave_others(&self) -> bool {
        self.others
    }

    pub fn are_none(&self) -> bool {
        self.list.is_empty()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Does any refer to one of these relations?
    pub fn refer_to(&self, is_one: impl Fn(pg_sys::Oid) -> bool) -> bool {
        self.list.iter().any(|key| is_one(key.query.parent))
    }

    /// Get ready for keys, with so much memory for each sort, in kB; for keys that know of their rows, if they are `tracked`.
    /// Guarded; allocates in the current memory context.
    pub fn prepare(&mut self, memory: i32, tracked: bool) {
        (self.tracked, self.doubtful) = (tracked, false);
        for key in &mut self.list {
            // SAFETY: guarded calls. Each column but the last has an operator to sort by.
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

    /// Take a row. If keys are tracked, `amiss` is called with each that cannot be right whatever there is.
    ///
    /// # Safety
    /// A plain frame; a slot with a row of the relation. `amiss` owns nothing that has a destructor.
    pub unsafe fn add(&mut self, row: *mut pg_sys::TupleTableSlot, mut amiss: impl FnMut(usize)) {
        let tracked = self.tracked;
        for (number, key) in self.list.iter_mut().enumerate() {
            // SAFETY: this function's contract covers frame and slot; the key's slot has an attribute for each of the columns.
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

    /// Find and lock the rows referred to. False if that does not settle it.
    ///
    /// # Safety
    /// A plain frame outside of parallel mode. All rows were taken, and are in the indexes.
    pub unsafe fn check(&mut self) -> bool {
        for key in &mut self.list {
            // SAFETY: this function's contract covers the frame; nothing in it has a destructor. There is an instrument for each trigger.
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
                    // One call for each row, as the server would make.
                    let calls = if self.doubtful { 0 } else { self.rows };
                    c::InstrStopNode(instruments.add(key.trigger), calls as f64);
                }
            }
        }
        !self.doubtful
    }

    /// Find and lock the rows referred to, by tracked keys: `missing` is called for each row whose key is not there.
    ///
    /// # Safety
    /// As [`ForeignKeys::check`]; `missing` owns nothing that has a destructor. What is needed is allocated in the current
    /// memory context.
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

    /// Find the rows referred to, and lock none of them; any number of times. Rows of the load count that are there for a
    /// query `beside` its table.
    ///
    /// # Safety
    /// As [`ForeignKeys::find`], and so for `beside`.
    pub unsafe fn look(&mut self, mut beside: impl FnMut(&KeyQuery) -> Beside, mut missing: impl FnMut(usize, u64)) {
        for (number, key) in self.list.iter_mut().enumerate() {
            // SAFETY: this function's contract covers the frame; nothing in it has a destructor.
            unsafe {
                let rows = beside(&key.query);
                let look = |key: &ForeignKey, keys, found| key.query.look(key.numbered, keys, rows, found);
                key.seek(look, |row| missing(number, row));
            }
        }
    }

    /// Give back what the keys take, wherever they are. Guarded.
    pub fn discard(&mut self) {
        // SAFETY: what `prepare` made; what was given back already is null.
        self.list.iter_mut().for_each(|key| unsafe { guard(|| key.end()) });
    }

    /// What the server's check would say of a row. Guarded.
    ///
    /// # Safety
    /// The relation that the keys are of.
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

    /// Where triggers do what they want before the server would have checked a row, let it.
    pub fn let_server_check(&mut self) {
        for key in self.list.iter().filter(|_| self.mingle) {
            // SAFETY: the number is below `count`; the copy is the result relation's, which is not used for other rows.
            unsafe { (*self.trigger(key.trigger)).tgenabled = key.enabled };
        }
    }

    /// Let the server's checks be queued after all, and nothing else.
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

/// What the server's check says (ri_ReportViolation, ri_triggers.c).
fn complaint(relation: &CStr, constraint: &CStr) -> Complaint {
    let format = gettext(c"insert or update on table \"%s\" violates foreign key constraint \"%s\"");
    let room = format.to_bytes().len() + relation.to_bytes().len() + constraint.to_bytes().len();
    let mut message = vec![0u8; room + 1];
    // SAFETY: there is room for so many bytes; the format takes two strings, in whatever order.
    let len = unsafe {
        let room = message.len();
        libc::snprintf(message.as_mut_ptr().cast(), room, format.as_ptr(), relation.as_ptr(), constraint.as_ptr())
    };
    message.truncate(usize::try_from(len).unwrap_or(0));
    let code = Code::ERRCODE_FOREIGN_KEY_VIOLATION as i32;
    Complaint { code, message, constraint: Some(constraint.to_bytes().to_vec()), ..Complaint::default() }
}
