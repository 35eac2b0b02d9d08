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

use std::ffi::{CStr, CString};

use pgrx::{PgList, pg_guard, pg_sys};

use crate::pg::compat;
use crate::pg::statement;
use crate::pg::unguarded as c;

/// Fewer rows are left to the server's checks.
const FEWEST_ROWS: u64 = 1000;
/// What the query calls the keys.
const KEYS: &CStr = c"pg_bulk_keys";
const ROW: i16 = pg_sys::TRIGGER_TYPE_ROW as i16;
const INSERT: i16 = pg_sys::TRIGGER_TYPE_INSERT as i16;
const BEFORE_OR_INSTEAD: i16 = (pg_sys::TRIGGER_TYPE_BEFORE | pg_sys::TRIGGER_TYPE_INSTEAD) as i16;
const DISABLED: std::ffi::c_char = pg_sys::TRIGGER_DISABLED.cast_signed();

/// A foreign key whose new values are collected.
#[derive(Debug)]
struct ForeignKey {
    /// Which of the relation's triggers checks it, and how that was enabled.
    trigger: usize,
    enabled: std::ffi::c_char,
    /// The owner of the referenced table.
    owner: pg_sys::Oid,
    /// The referring columns.
    columns: Vec<i16>,
    /// MATCH FULL
    full: bool,
    query: CString,
    /// Keys: their columns, and a number that is of no use until they are sorted.
    slot: *mut pg_sys::TupleTableSlot,
    sorted: *mut pg_sys::TupleTableSlot,
    sort: *mut pg_sys::Tuplesortstate,
    numbered: *mut pg_sys::Tuplestorestate,
}

/// The foreign keys of a relation that are checked together.
#[derive(Debug)]
pub struct ForeignKeys {
    list: Vec<ForeignKey>,
    triggers: *mut pg_sys::TriggerDesc,
    /// Other triggers want to be queued meanwhile.
    others: bool,
    /// A key is known not to be checked here.
    doubtful: bool,
}

impl ForeignKeys {
    /// Those of a result relation with so many new rows. The triggers that check them are disabled in the result
    /// relation's own copy. Guarded; allocates in the current memory context.
    ///
    /// # Safety
    /// A result relation, and its copy of the triggers is nobody else's.
    pub unsafe fn new(relinfo: *mut pg_sys::ResultRelInfo, rows: u64) -> ForeignKeys {
        // SAFETY: the caller vouches for the result relation; guarded calls.
        unsafe {
            let triggers = (*relinfo).ri_TrigDesc;
            let mut found = ForeignKeys { list: Vec::new(), triggers, others: false, doubtful: false };
            let fire = |number: &usize| found.fires(*number);
            let firing: Vec<usize> = (0..found.count()).filter(fire).collect();
            let is_check = |trigger: &pg_sys::Trigger| {
                let function = trigger.tgfoid.to_u32();
                function == pg_sys::F_RI_FKEY_CHECK_INS || function == pg_sys::F_UNIQUE_KEY_RECHECK
            };
            let is_possible = rows >= FEWEST_ROWS
                && pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ.cast_signed()
                && firing.iter().all(|&number| is_check(&*found.trigger(number)));
            if is_possible {
                let relation = (*relinfo).ri_RelationDesc;
                found.list = firing.iter().filter_map(|&n| ForeignKey::new(relation, &*found.trigger(n), n)).collect();
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
        // SAFETY: the caller vouches for the number.
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

    /// Get ready for keys, with so much memory for each sort, in kB. Guarded; allocates in the current memory context.
    pub fn prepare(&mut self, memory: i32) {
        for key in &mut self.list {
            // SAFETY: guarded calls. Each column but the last has an operator to sort by.
            unsafe {
                let descriptor = (*key.slot).tts_tupleDescriptor;
                let columns = key.columns.len();
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
                    0,
                );
                key.numbered = pg_sys::tuplestore_begin_heap(false, false, memory);
            }
        }
    }

    /// Take a row.
    ///
    /// # Safety
    /// A plain frame; a slot with a row of the relation.
    pub unsafe fn add(&mut self, row: *mut pg_sys::TupleTableSlot) {
        for key in &mut self.list {
            // SAFETY: the caller vouches for frame and slot; the key's slot has an attribute for each of the columns.
            unsafe {
                let (values, nulls) = ((*key.slot).tts_values, (*key.slot).tts_isnull);
                let mut absent = 0;
                for (i, &attnum) in key.columns.iter().enumerate() {
                    if (*row).tts_nvalid < attnum {
                        c::slot_getsomeattrs_int(row, attnum.into());
                    }
                    let at = usize::try_from(attnum - 1).unwrap_or(0);
                    *values.add(i) = *(*row).tts_values.add(at);
                    absent += usize::from(*(*row).tts_isnull.add(at));
                }
                if absent > 0 {
                    self.doubtful |= key.full && absent < key.columns.len();
                    continue;
                }
                *nulls.add(key.columns.len()) = true;
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
            // SAFETY: the caller vouches for the frame; nothing in it has a destructor.
            unsafe {
                if self.doubtful {
                    return false;
                }
                let keys = key.number_keys();
                if keys == 0 {
                    continue;
                }
                let environment = environment(key, keys);
                let mut before = Settings::default();
                enter(&raw mut before, key.owner);
                let checked = statement::count(key.query.as_ptr(), environment);
                leave(&raw const before);
                self.doubtful = checked != keys;
                c::tuplestore_end(key.numbered);
            }
        }
        !self.doubtful
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

/// The operator by which values of a type are sorted, or none. Guarded.
fn sort_operator(type_oid: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: a guarded call; entries live as long as the process.
    unsafe { (*pg_sys::lookup_type_cache(type_oid, pg_sys::TYPECACHE_LT_OPR.cast_signed())).lt_opr }
}

impl ForeignKey {
    /// The foreign key of a trigger, if it can be checked here. Guarded; allocates in the current memory context.
    ///
    /// # Safety
    /// An open relation and a trigger of it that checks a foreign key, or something else.
    unsafe fn new(relation: pg_sys::Relation, trigger: &pg_sys::Trigger, number: usize) -> Option<ForeignKey> {
        if trigger.tgfoid.to_u32() != pg_sys::F_RI_FKEY_CHECK_INS || trigger.tgdeferrable || !trigger.tgqual.is_null() {
            return None;
        }
        // SAFETY: the caller vouches for the relation; guarded calls. The lists and descriptors have so many elements.
        unsafe {
            let known = PgList::<pg_sys::ForeignKeyCacheInfo>::from_pg(pg_sys::RelationGetFKeyList(relation));
            let key = **known.iter_ptr().find(|&key| (*key).conoid == trigger.tgconstraint).as_ref()?;
            let full = is_full(key.conoid)?;
            let parent = pg_sys::table_open(key.confrelid, pg_sys::RowShareLock.cast_signed());
            let form = &*(*parent).rd_rel;
            let is_plain = form.relkind.cast_unsigned() == pg_sys::RELKIND_RELATION;
            let name = pg_sys::get_namespace_name(form.relnamespace);
            let name = CStr::from_ptr(pg_sys::quote_qualified_identifier(name, form.relname.data.as_ptr()));
            let count = usize::try_from(key.nkeys).unwrap_or(0).min(key.conkey.len());
            let descriptor = pg_sys::CreateTemplateTupleDesc(key.nkeys + 1);
            let clause = pg_sys::makeStringInfo();
            let mut sortable = true;
            let columns = key.conkey.iter().zip(&key.confkey).zip(&key.conpfeqop).take(count);
            for (i, ((&own, &their), &operator)) in columns.enumerate() {
                let at = |attnum: i16| usize::try_from(attnum - 1).unwrap_or(0);
                let own = &*compat::attribute((*relation).rd_att, at(own));
                let their = &*compat::attribute((*parent).rd_att, at(their));
                let column = CString::new(format!("k{}", i + 1)).unwrap_or_default();
                let attnum = i16::try_from(i + 1).unwrap_or(i16::MAX);
                pg_sys::TupleDescInitEntry(descriptor, attnum, column.as_ptr(), own.atttypid, -1, 0);
                let quoted = CStr::from_ptr(pg_sys::quote_identifier(their.attname.data.as_ptr()));
                let left = CString::new([b"x.", quoted.to_bytes()].concat()).unwrap_or_default();
                let right = CString::new([b"k.", column.to_bytes()].concat()).unwrap_or_default();
                if i > 0 {
                    pg_sys::appendStringInfoString(clause, c" AND ".as_ptr());
                }
                let (left, right) = (left.as_ptr(), right.as_ptr());
                pg_sys::generate_operator_clause(clause, left, their.atttypid, operator, right, own.atttypid);
                sortable &= sort_operator(own.atttypid) != pg_sys::InvalidOid;
            }
            let last = i16::try_from(count + 1).unwrap_or(i16::MAX);
            pg_sys::TupleDescInitEntry(descriptor, last, c"number".as_ptr(), pg_sys::INT8OID, -1, 0);
            // As often as a row is found for a key, the key is found; ONLY as in RI_FKey_check (ri_triggers.c).
            let query = [
                b"SELECT FROM (SELECT k.number FROM ".as_slice(),
                KEYS.to_bytes(),
                b" k JOIN ONLY ",
                name.to_bytes(),
                b" x ON ",
                CStr::from_ptr((*clause).data).to_bytes(),
                b" FOR KEY SHARE OF x) found GROUP BY number",
            ];
            let owner = form.relowner;
            pg_sys::table_close(parent, pg_sys::NoLock.cast_signed());
            (is_plain && sortable).then(|| ForeignKey {
                trigger: number,
                enabled: trigger.tgenabled,
                owner,
                columns: key.conkey.iter().take(count).copied().collect(),
                full,
                query: CString::new(query.concat()).unwrap_or_default(),
                slot: pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsVirtual),
                sorted: pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsMinimalTuple),
                sort: std::ptr::null_mut(),
                numbered: std::ptr::null_mut(),
            })
        }
    }

    /// Keep each key once, with a number; and say how many there are. Keys that are equal, but not the same bytes, are not
    /// the same: whether they refer to the same row is not decided here.
    ///
    /// # Safety
    /// A plain frame. All rows were taken.
    unsafe fn number_keys(&mut self) -> u64 {
        // SAFETY: the caller vouches for the frame. A slot for minimal tuples that is not empty has one, which lies
        // there until the next one is asked for; a tuple is as long as it says.
        unsafe {
            let mut keys = 0;
            let mut previous: *mut u8 = std::ptr::null_mut();
            let mut room = 0;
            let mut len = 0;
            c::tuplesort_performsort(self.sort);
            while c::tuplesort_gettupleslot(self.sort, true, false, self.sorted, std::ptr::null_mut()) {
                c::check_for_interrupts();
                let tuple = (*self.sorted.cast::<pg_sys::MinimalTupleTableSlot>()).mintuple;
                // What is before that, a sort does not keep.
                let head = std::mem::offset_of!(pg_sys::MinimalTupleData, t_infomask2);
                let size = ((*tuple).t_len as usize).saturating_sub(head);
                let bytes = std::slice::from_raw_parts(tuple.cast::<u8>().add(head), size);
                if !previous.is_null() && bytes == std::slice::from_raw_parts(previous, len) {
                    continue;
                }
                if size > room {
                    room = size.next_power_of_two();
                    previous = c::MemoryContextAlloc(pg_sys::CurrentMemoryContext, room).cast();
                }
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), previous, size);
                len = size;
                keys += 1;
                let columns = self.columns.len();
                c::slot_getsomeattrs_int(self.sorted, (columns + 1) as i32);
                *(*self.sorted).tts_values.add(columns) = pg_sys::Datum::from(keys as i64);
                *(*self.sorted).tts_isnull.add(columns) = false;
                let (values, nulls) = ((*self.sorted).tts_values, (*self.sorted).tts_isnull);
                c::tuplestore_putvalues(self.numbered, (*self.sorted).tts_tupleDescriptor, values, nulls);
            }
            c::tuplesort_end(self.sort);
            keys
        }
    }
}

/// Is a foreign key MATCH FULL? `None` if it is of a kind that is not known here. Guarded.
fn is_full(constraint: pg_sys::Oid) -> Option<bool> {
    /// ConstraintRelationId (pg_constraint.h)
    const PG_CONSTRAINT: pg_sys::Oid = pg_sys::Oid::from_u32(2606);
    // SAFETY: guarded catalog lookups; the tuple is released when it was looked at.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::CONSTROID as i32;
        let tuple = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(constraint));
        if tuple.is_null() {
            return None;
        }
        let attribute = |name: &CStr| {
            let attnum = pg_sys::get_attnum(PG_CONSTRAINT, name.as_ptr());
            let mut is_null = true;
            let value = (attnum > 0).then(|| pg_sys::SysCacheGetAttr(cache, tuple, attnum, &raw mut is_null));
            value.filter(|_| !is_null).map(|value| value.value())
        };
        // From 18 on keys may match periods.
        let periods = attribute(c"conperiod").unwrap_or(0) != 0;
        let kind = attribute(c"confmatchtype").unwrap_or(0) as u8;
        pg_sys::ReleaseSysCache(tuple);
        match kind {
            pg_sys::FKCONSTR_MATCH_FULL if !periods => Some(true),
            pg_sys::FKCONSTR_MATCH_SIMPLE if !periods => Some(false),
            _ => None,
        }
    }
}

/// What the query finds its keys in.
///
/// # Safety
/// A foreign key whose keys are numbered. What is returned lives as long as the current memory context.
#[pg_guard]
unsafe extern "C-unwind" fn environment(key: *const ForeignKey, keys: u64) -> *mut pg_sys::QueryEnvironment {
    // SAFETY: the caller vouches for the key; guarded calls, and zeroed structs that are filled.
    unsafe {
        let relation = pg_sys::palloc0(size_of::<pg_sys::EphemeralNamedRelationData>());
        let relation = relation.cast::<pg_sys::EphemeralNamedRelationData>();
        (*relation).md.name = KEYS.as_ptr().cast_mut();
        (*relation).md.tupdesc = (*(*key).sorted).tts_tupleDescriptor;
        (*relation).md.enrtype = pg_sys::EphemeralNameRelationType::ENR_NAMED_TUPLESTORE;
        (*relation).md.enrtuples = keys as f64;
        (*relation).reldata = (*key).numbered.cast();
        let environment = pg_sys::create_queryEnv();
        pg_sys::register_ENR(environment, relation);
        environment
    }
}

/// What is different while a query runs as the server's own would.
#[derive(Debug, Default)]
struct Settings {
    user: pg_sys::Oid,
    security: i32,
    level: i32,
}

/// Become the owner of the referenced table, as ri_PerformCheck (ri_triggers.c) does; and let the query have the memory that
/// validating a constraint has, as RI_Initial_Check does. After an error, the abort does what [`leave`] would.
///
/// # Safety
/// A valid place to remember what there was.
#[pg_guard]
unsafe extern "C-unwind" fn enter(before: *mut Settings, owner: pg_sys::Oid) {
    // SAFETY: the caller vouches for it; guarded calls.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&raw mut (*before).user, &raw mut (*before).security);
        (*before).level = pg_sys::NewGUCNestLevel();
        let memory = pg_sys::maintenance_work_mem;
        let memory = CString::new(memory.to_string()).unwrap_or_default();
        // A query of unknown size would be compiled for its cost, and run once.
        for (name, value) in [(c"work_mem", memory.as_c_str()), (c"hash_mem_multiplier", c"1"), (c"jit", c"off")] {
            pg_sys::set_config_option(
                name.as_ptr(),
                value.as_ptr(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            );
        }
        let own = pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_NOFORCE_RLS;
        pg_sys::SetUserIdAndSecContext(owner, (*before).security | own.cast_signed());
    }
}

/// # Safety
/// What [`enter`] remembered.
#[pg_guard]
unsafe extern "C-unwind" fn leave(before: *const Settings) {
    // SAFETY: the caller vouches for it; guarded calls.
    unsafe {
        pg_sys::SetUserIdAndSecContext((*before).user, (*before).security);
        pg_sys::AtEOXact_GUC(true, (*before).level);
    }
}
