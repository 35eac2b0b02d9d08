//! The query that finds the rows that keys refer to, and locks them.
//!
//! It does for many keys what RI_FKey_check (ri_triggers.c) does for one, by the constraint's operators, as the owner of the
//! referenced table. The keys are a relation of the query's environment, as transition tables are, and numbered: what is
//! counted are keys, not rows, whatever the number of rows that a key finds.

use std::ffi::{CStr, CString};

use pgrx::{PgList, pg_guard, pg_sys};

use crate::pg::compat;
use crate::pg::statement::{self, About};
use crate::pg::unguarded as c;

/// What the query calls the keys.
const KEYS: &CStr = c"pg_bulk_keys";
/// What it calls rows that may be referred to, but are not in the table.
const ROWS: &CStr = c"pg_bulk_rows";

/// The query of a foreign key.
#[derive(Debug)]
pub struct KeyQuery {
    /// A row for each key that is there, ...
    text: CString,
    /// ... and the number of each, as often as it is there.
    numbers: CString,
    /// The same without locking a row, ...
    unlocked: CString,
    /// ... and of the keys that are among rows beside the table.
    beside: CString,
    /// The referenced table.
    pub parent: pg_sys::Oid,
    /// The referring columns.
    pub columns: Vec<i16>,
    /// The referenced columns.
    pub referenced: Vec<i16>,
    /// MATCH FULL
    pub full: bool,
    /// Of keys: their columns, and a number.
    pub descriptor: pg_sys::TupleDesc,
}

impl KeyQuery {
    /// For the foreign key of a relation that a constraint is. `None` if it cannot be checked like this. The referenced table is
    /// locked like this. Guarded; allocates in the current memory context.
    ///
    /// # Safety
    /// An open relation.
    pub unsafe fn new(relation: pg_sys::Relation, constraint: pg_sys::Oid, lock: pg_sys::LOCKMODE) -> Option<KeyQuery> {
        // SAFETY: this function's contract covers the relation; guarded calls. The lists and descriptors have so many elements.
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
            // As often as a row is found for a key, the key is found; ONLY as in RI_FKey_check (ri_triggers.c).
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

    /// How many of the keys in a tuplestore have a row that is there and locked now.
    ///
    /// # Safety
    /// A plain frame outside of parallel mode; a tuplestore of so many tuples, numbered from 1. What is needed is allocated in
    /// the current memory context.
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

    /// Which of the keys in a tuplestore have a row that is there and locked now: the bits of their numbers are set.
    ///
    /// # Safety
    /// As [`KeyQuery::run`]; room for so many bits, and one more.
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
    /// Since the text was made code of users may have run, and the name be another table's, or a view's.
    fn about(&self) -> About {
        About::Table(self.parent)
    }

    fn keys(&self, store: *mut pg_sys::Tuplestorestate, count: u64) -> Beside {
        Beside { descriptor: self.descriptor, store, count, alone: false }
    }

    /// The same as [`KeyQuery::find`], but that no row is locked; and of rows that are not in the table.
    ///
    /// # Safety
    /// As [`KeyQuery::find`]; a tuplestore of rows that have the referenced columns, by name, or nothing.
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

/// Rows that a query is to know, and that are in no table.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Beside {
    pub descriptor: pg_sys::TupleDesc,
    /// Null if there are none.
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

/// Takes numbers, and sets bits.
#[repr(C)]
struct Receiver {
    functions: pg_sys::DestReceiver,
    found: *mut u8,
}

impl Receiver {
    fn new(found: *mut u8) -> Receiver {
        /// # Safety
        /// A plain frame; a slot with a number that there is a bit for, and a receiver.
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

/// The operator by which values of a type are sorted, or none. Guarded.
pub fn sort_operator(type_oid: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: a guarded call; entries live as long as the process.
    unsafe { (*pg_sys::lookup_type_cache(type_oid, pg_sys::TYPECACHE_LT_OPR.cast_signed())).lt_opr }
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

/// What the query finds its keys in, and maybe other rows.
///
/// # Safety
/// Tuplestores with so many tuples. What is returned lives as long as the current memory context.
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

/// What is different while a query runs as the server's own would.
#[derive(Debug)]
struct Settings {
    /// The referenced table, open: nobody drops what is in use.
    parent: pg_sys::Relation,
    user: pg_sys::Oid,
    security: i32,
    level: i32,
}

/// Become the owner of the referenced table, as ri_PerformCheck (ri_triggers.c) does; and let the query have the memory that
/// validating a constraint has, as RI_Initial_Check does. After an error, the abort does what [`leave`] would.
///
/// # Safety
/// A valid place to remember what there was; a table that is locked.
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
    // SAFETY: this function's contract covers the argument; guarded calls.
    unsafe {
        pg_sys::SetUserIdAndSecContext((*before).user, (*before).security);
        pg_sys::AtEOXact_GUC(true, (*before).level);
        pg_sys::relation_close((*before).parent, pg_sys::NoLock.cast_signed());
    }
}
