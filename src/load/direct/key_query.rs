//! The query that finds and locks the parents of many keys.
//!
//! It is RI_FKey_check (ri_triggers.c) for many keys: with the constraint's operators, as the owner of the referenced
//! table. The keys are a relation of the query's environment, like a transition table, and are numbered. The query
//! counts keys instead of rows, so a key that finds several rows counts once.

use std::ffi::{CStr, CString};

use pgrx::{PgList, pg_guard, pg_sys};

use crate::server::compat;
use crate::server::statement::{self, About};
use crate::server::unguarded as c;

/// Name of the keys in the query.
const KEYS: &CStr = c"pg_bulk_keys";
/// Name of rows that count as parents without being in the table.
const ROWS: &CStr = c"pg_bulk_rows";

/// The query of a foreign key.
#[derive(Debug)]
pub struct KeyQuery {
    /// Returns one row for each key with a parent.
    text: CString,
    /// Returns the number of each key with a parent, possibly several times.
    numbers: CString,
    /// As `numbers`, without row locks.
    unlocked: CString,
    /// As `unlocked`, for parents in `pg_bulk_rows` instead of the table.
    beside: CString,
    /// The referenced table.
    pub parent: pg_sys::Oid,
    /// The referring columns.
    pub columns: Vec<i16>,
    /// The referenced columns.
    pub referenced: Vec<i16>,
    /// MATCH FULL
    pub full: bool,
    /// Descriptor of the keys: their columns, and a number.
    pub descriptor: pg_sys::TupleDesc,
}

impl KeyQuery {
    /// Makes the query for a foreign key constraint of a relation.
    ///
    /// `None` if the key cannot be checked in this way. Locks the referenced table with `lock`. Guarded; allocates in
    /// the current memory context.
    ///
    /// # Safety
    /// The relation is open.
    pub unsafe fn new(relation: pg_sys::Relation, constraint: pg_sys::Oid, lock: pg_sys::LOCKMODE) -> Option<KeyQuery> {
        // SAFETY: this function's contract covers the relation; guarded calls. The lists and descriptors have `nkeys`
        // elements.
        unsafe {
            let known = PgList::<pg_sys::ForeignKeyCacheInfo>::from_pg(pg_sys::RelationGetFKeyList(relation));
            let key = **known.iter_ptr().find(|&key| (*key).conoid == constraint).as_ref()?;
            let full = is_full(key.conoid)?;
            let parent = pg_sys::table_open(key.confrelid, lock);
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
            // A key is returned once for each row found; ONLY as in RI_FKey_check (ri_triggers.c).
            let found_in = |what: &[u8], name: &CStr| {
                let clause = CStr::from_ptr((*clause).data).to_bytes();
                [b"SELECT k.number FROM ", KEYS.to_bytes(), b" k JOIN ", what, name.to_bytes(), b" x ON ", clause]
                    .concat()
            };
            let unlocked = found_in(b"ONLY ", name);
            let numbers = [unlocked.as_slice(), b" FOR KEY SHARE OF x"].concat();
            let text = [b"SELECT FROM (".as_slice(), &numbers, b") found GROUP BY number"].concat();
            pg_sys::table_close(parent, pg_sys::NoLock.cast_signed());
            (is_plain && sortable).then(|| KeyQuery {
                text: CString::new(text).unwrap_or_default(),
                numbers: CString::new(numbers).unwrap_or_default(),
                unlocked: CString::new(unlocked).unwrap_or_default(),
                beside: CString::new(found_in(b"", ROWS)).unwrap_or_default(),
                parent: key.confrelid,
                columns: key.conkey.iter().take(count).copied().collect(),
                referenced: key.confkey.iter().take(count).copied().collect(),
                full,
                descriptor,
            })
        }
    }

    /// Counts the keys of a tuplestore whose parent exists, and locks the parents.
    ///
    /// # Safety
    /// A plain frame outside of parallel mode; `keys` has `count` tuples, numbered from 1. Allocates in the current
    /// memory context.
    pub unsafe fn run(&self, keys: *mut pg_sys::Tuplestorestate, count: u64) -> u64 {
        // SAFETY: this function's contract covers frame and keys; nothing in the frame has a destructor.
        unsafe {
            let environment = environment(self.keys(keys, count), Beside::NOTHING);
            let mut before = Settings::default();
            enter(&raw mut before, self.parent);
            let found = statement::count(self.text.as_ptr(), self.about(), environment);
            leave(&raw const before);
            found
        }
    }

    /// Sets the bit of each key of a tuplestore whose parent exists, and locks the parents.
    ///
    /// # Safety
    /// See [`KeyQuery::run`]; `found` has `count` + 1 bits.
    pub unsafe fn find(&self, keys: *mut pg_sys::Tuplestorestate, count: u64, found: *mut u8) {
        // SAFETY: this function's contract covers frame, keys and room; nothing in the frame has a destructor.
        unsafe {
            let environment = environment(self.keys(keys, count), Beside::NOTHING);
            let mut before = Settings::default();
            let mut receiver = Receiver::new(found);
            enter(&raw mut before, self.parent);
            statement::each(self.numbers.as_ptr(), self.about(), environment, (&raw mut receiver).cast());
            leave(&raw const before);
        }
    }
}

impl KeyQuery {
    /// User-defined code may run before the query, so the name in the text might mean another table or a view by then.
    fn about(&self) -> About {
        About::Table(self.parent)
    }

    fn keys(&self, store: *mut pg_sys::Tuplestorestate, count: u64) -> Beside {
        Beside { descriptor: self.descriptor, store, count, alone: false }
    }

    /// Sets the bit of each key with a parent, as [`KeyQuery::find`] does, without row locks, and with parents in
    /// `beside`.
    ///
    /// # Safety
    /// See [`KeyQuery::find`]; `beside` is a tuplestore of rows that have the referenced columns by name, or nothing.
    pub unsafe fn look(&self, keys: *mut pg_sys::Tuplestorestate, count: u64, beside: Beside, found: *mut u8) {
        // SAFETY: this function's contract covers frame, keys, rows and room; nothing in the frame has a destructor.
        unsafe {
            let environment = environment(self.keys(keys, count), beside);
            let mut before = Settings::default();
            let mut receiver = Receiver::new(found);
            enter(&raw mut before, self.parent);
            if !beside.alone {
                statement::each(self.unlocked.as_ptr(), self.about(), environment, (&raw mut receiver).cast());
            }
            if !beside.store.is_null() {
                statement::each(self.beside.as_ptr(), self.about(), environment, (&raw mut receiver).cast());
            }
            leave(&raw const before);
        }
    }
}

/// Rows outside of any table, for a query.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Beside {
    pub descriptor: pg_sys::TupleDesc,
    /// Null without rows.
    pub store: *mut pg_sys::Tuplestorestate,
    pub count: u64,
    /// No row of the table counts.
    pub alone: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { parent: std::ptr::null_mut(), user: pg_sys::InvalidOid, security: 0, level: 0 }
    }
}

impl Beside {
    pub const NOTHING: Beside =
        Beside { descriptor: std::ptr::null_mut(), store: std::ptr::null_mut(), count: 0, alone: false };
}

/// A destination that takes numbers and sets their bits.
#[repr(C)]
struct Receiver {
    functions: pg_sys::DestReceiver,
    found: *mut u8,
}

impl Receiver {
    fn new(found: *mut u8) -> Receiver {
        /// # Safety
        /// A plain frame; a slot with a number below the number of bits, and a receiver.
        unsafe extern "C-unwind" fn receive(
            slot: *mut pg_sys::TupleTableSlot,
            receiver: *mut pg_sys::DestReceiver,
        ) -> bool {
            // SAFETY: this function's contract covers all arguments.
            unsafe {
                if (*slot).tts_nvalid < 1 {
                    c::slot_getsomeattrs_int(slot, 1);
                }
                let number = (*(*slot).tts_values).value();
                *(*receiver.cast::<Receiver>()).found.add(number / 8) |= 1 << (number % 8);
            }
            true
        }
        unsafe extern "C-unwind" fn begin(_: *mut pg_sys::DestReceiver, _: i32, _: pg_sys::TupleDesc) {}
        unsafe extern "C-unwind" fn nothing(_: *mut pg_sys::DestReceiver) {}
        let functions = pg_sys::DestReceiver {
            receiveSlot: Some(receive),
            rStartup: Some(begin),
            rShutdown: Some(nothing),
            rDestroy: Some(nothing),
            mydest: pg_sys::CommandDest::DestNone,
        };
        Receiver { functions, found }
    }
}

/// The operator that sorts values of a type; invalid if it has none. Guarded.
pub fn sort_operator(type_oid: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: a guarded call; entries live as long as the process.
    unsafe { (*pg_sys::lookup_type_cache(type_oid, pg_sys::TYPECACHE_LT_OPR.cast_signed())).lt_opr }
}

/// Is a foreign key MATCH FULL? `None` for an unknown kind. Guarded.
fn is_full(constraint: pg_sys::Oid) -> Option<bool> {
    /// ConstraintRelationId (pg_constraint.h)
    const PG_CONSTRAINT: pg_sys::Oid = pg_sys::Oid::from_u32(2606);
    // SAFETY: guarded catalog lookups; the tuple is released after its last use.
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
        // Since PostgreSQL 18, a key may match periods.
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

/// Makes the environment with the query's keys, and other rows if there are any.
///
/// # Safety
/// The tuplestores have `count` tuples. The result lives as long as the current memory context.
#[pg_guard]
unsafe extern "C-unwind" fn environment(keys: Beside, rows: Beside) -> *mut pg_sys::QueryEnvironment {
    // SAFETY: this function's contract covers the tuplestores; guarded calls, and zeroed structs that are filled.
    unsafe {
        let environment = pg_sys::create_queryEnv();
        for (name, given) in [(KEYS, keys), (ROWS, rows)] {
            if given.store.is_null() {
                continue;
            }
            let relation = pg_sys::palloc0(size_of::<pg_sys::EphemeralNamedRelationData>());
            let relation = relation.cast::<pg_sys::EphemeralNamedRelationData>();
            (*relation).md.name = name.as_ptr().cast_mut();
            (*relation).md.tupdesc = given.descriptor;
            (*relation).md.enrtype = pg_sys::EphemeralNameRelationType::ENR_NAMED_TUPLESTORE;
            (*relation).md.enrtuples = given.count as f64;
            (*relation).reldata = given.store.cast();
            pg_sys::register_ENR(environment, relation);
        }
        environment
    }
}

/// The state before a query that runs like the server's own.
#[derive(Debug)]
struct Settings {
    /// The referenced table, held open so that it cannot be dropped.
    parent: pg_sys::Relation,
    user: pg_sys::Oid,
    security: i32,
    level: i32,
}

/// Switches to the owner of the referenced table, as ri_PerformCheck does (ri_triggers.c).
///
/// The query gets maintenance_work_mem, as in RI_Initial_Check. After an error, the abort does the work of [`leave`].
///
/// # Safety
/// `before` can be written to; the table is locked.
#[pg_guard]
unsafe extern "C-unwind" fn enter(before: *mut Settings, parent: pg_sys::Oid) {
    // SAFETY: this function's contract covers both arguments; guarded calls.
    unsafe {
        (*before).parent = pg_sys::try_relation_open(parent, pg_sys::NoLock.cast_signed());
        if (*before).parent.is_null() {
            statement::replaced().raise();
        }
        let owner = (*(*(*before).parent).rd_rel).relowner;
        pg_sys::GetUserIdAndSecContext(&raw mut (*before).user, &raw mut (*before).security);
        (*before).level = pg_sys::NewGUCNestLevel();
        let memory = pg_sys::maintenance_work_mem;
        let memory = CString::new(memory.to_string()).unwrap_or_default();
        // Without statistics of the keys, the estimated cost could start JIT compilation for a query that runs once.
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
/// `before` was filled by [`enter`].
#[pg_guard]
unsafe extern "C-unwind" fn leave(before: *const Settings) {
    // SAFETY: this function's contract covers the argument; guarded calls.
    unsafe {
        pg_sys::SetUserIdAndSecContext((*before).user, (*before).security);
        pg_sys::AtEOXact_GUC(true, (*before).level);
        pg_sys::relation_close((*before).parent, pg_sys::NoLock.cast_signed());
    }
}
