//! The query that finds and locks the parents of many keys.
//!
//! It is RI_FKey_check (ri_triggers.c) for many keys: with the constraint's operators, as the owner of the referenced
//! table. The keys are a relation of the query's environment, like a transition table, and are numbered. The query
//! counts keys instead of rows, so a key that finds several rows counts once.

use std::ffi::{CStr, CString};

use pgrx::pg_sys;

use crate::error::Result;
use crate::guc;
use crate::index::key_conflicts::Bits;
use crate::server::lookup;
use crate::server::relation::{OpenRelation, Relation, TupleDesc};
use crate::server::role::set_option;
use crate::server::session_state::SessionState;
use crate::server::statement::{self, About, Checked, Surroundings};
use crate::server::tuplestore::Tuplestore;
use crate::server::unguarded as c;

/// Name of the keys in the query.
const KEYS: &CStr = c"pg_bulk_keys";
/// Name of rows that count as parents without being in the table.
const ROWS: &CStr = c"pg_bulk_rows";

/// The query of a foreign key.
#[derive(Debug)]
pub struct KeyQuery {
    /// The constraint's OID.
    pub constraint: pg_sys::Oid,
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
    pub descriptor: TupleDesc<'static>,
}

/// Rows outside of any table, for a query.
#[derive(Debug)]
pub struct Beside {
    /// Rows that have the referenced columns by name.
    pub rows: Option<Tuplestore>,
    /// No row of the table counts.
    pub alone: bool,
}

impl KeyQuery {
    /// Makes the query for a foreign key constraint of a relation.
    ///
    /// `None` if the key cannot be checked in this way. Locks the referenced table with `lock`. Guarded; allocates in
    /// the current memory context.
    pub fn new(relation: Relation<'_>, constraint: pg_sys::Oid, lock: u32) -> Option<KeyQuery> {
        // SAFETY: guarded calls on an open relation. The relation's list of keys is read before anything can change it, and
        // its arrays have `nkeys` elements. Strings of the server are NUL-terminated.
        unsafe {
            let key = relation.foreign_keys().into_iter().find(|key| key.conoid == constraint)?;
            let full = is_full(key.conoid)?;
            let open = OpenRelation::open(key.confrelid, lock);
            let parent = open.get();
            let schema = lookup::schema_name(lookup::schema_of(parent.oid())).unwrap_or_default();
            let name = lookup::qualified(&schema, &parent.name());
            let count = usize::try_from(key.nkeys).unwrap_or(0).min(key.conkey.len());
            let descriptor = pg_sys::CreateTemplateTupleDesc(key.nkeys + 1);
            let clause = pg_sys::makeStringInfo();
            let mut sortable = true;
            let columns = key.conkey.iter().zip(&key.confkey).zip(&key.conpfeqop).take(count);
            for (i, ((&own, &their), &operator)) in columns.enumerate() {
                let at = |attnum: i16| usize::try_from(attnum - 1).unwrap_or(usize::MAX);
                let own = relation.descriptor().attribute(at(own))?;
                let their = parent.descriptor().attribute(at(their))?;
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
            let unlocked = found_in(b"ONLY ", &name);
            let numbers = [unlocked.as_slice(), b" FOR KEY SHARE OF x"].concat();
            let text = [b"SELECT FROM (".as_slice(), &numbers, b") found GROUP BY number"].concat();
            (parent.kind() == pg_sys::RELKIND_RELATION && sortable).then(|| KeyQuery {
                constraint,
                text: CString::new(text).unwrap_or_default(),
                numbers: CString::new(numbers).unwrap_or_default(),
                unlocked: CString::new(unlocked).unwrap_or_default(),
                beside: CString::new(found_in(b"", ROWS)).unwrap_or_default(),
                parent: key.confrelid,
                columns: key.conkey.iter().take(count).copied().collect(),
                referenced: key.confkey.iter().take(count).copied().collect(),
                full,
                descriptor: TupleDesc::from_raw(descriptor),
            })
        }
    }

    /// Counts the keys whose parent exists, and locks the parents. The keys are numbered from 1. Guarded, and outside of
    /// parallel mode; allocates in the current memory context.
    pub fn run(&self, keys: &Tuplestore) -> Result<u64> {
        let environment = environment(keys, None);
        // SAFETY: the text and the environment outlive the call; the closure owns nothing.
        self.as_owner(|| unsafe {
            let surroundings = Surroundings { environment, ..Surroundings::NONE };
            c::guard(|| statement::run(self.text.as_ptr(), 0, About::Table(self.parent), Checked::NONE, surroundings))
        })
    }

    /// Finds the numbers of the keys whose parent exists. Locks the parents, unless rows `beside` the table count, too. As
    /// [`KeyQuery::run`] otherwise.
    pub fn find(&self, keys: &Tuplestore, beside: Option<&Beside>, found: &mut Bits) -> Result<()> {
        let rows = beside.and_then(|beside| beside.rows.as_ref());
        let texts = match beside {
            None => [Some(&self.numbers), None],
            Some(beside) => [(!beside.alone).then_some(&self.unlocked), rows.map(|_| &self.beside)],
        };
        let environment = environment(keys, rows);
        let mut receiver = Receiver::new(found);
        let surroundings = Surroundings { environment, receiver: (&raw mut receiver).cast() };
        self.as_owner(|| {
            for text in texts.into_iter().flatten() {
                // User-defined code may have run before the query, so the name in the text might mean another table or a
                // view by now.
                let about = About::Table(self.parent);
                // SAFETY: text, environment and receiver outlive the call; the closure owns nothing.
                unsafe { c::guard(|| statement::run(text.as_ptr(), 0, about, Checked::NONE, surroundings)) };
            }
        })
    }

    /// Runs a query as the owner of the referenced table, as ri_PerformCheck does (ri_triggers.c). It gets
    /// maintenance_work_mem, as in RI_Initial_Check. After an error, the abort restores user and settings.
    fn as_owner<T>(&self, query: impl FnOnce() -> T) -> Result<T> {
        let no_lock = pg_sys::NoLock;
        // It is held open so that it cannot be dropped.
        let parent = OpenRelation::find(self.parent, no_lock).ok_or_else(statement::replaced)?;
        let own = pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_NOFORCE_RLS;
        let state = SessionState::note();
        let memory = CString::new(guc::maintenance_work_mem().to_string()).unwrap_or_default();
        // Without statistics of the keys, the estimated cost could start JIT compilation for a query that runs once.
        for (name, value) in [(c"work_mem", memory.as_c_str()), (c"hash_mem_multiplier", c"1"), (c"jit", c"off")] {
            set_option(name, value, pg_sys::GucContext::PGC_USERSET, pg_sys::GucAction::GUC_ACTION_SAVE);
        }
        state.switch_to(parent.get().owner(), own);
        let result = query();
        state.switch_to(state.user(), 0);
        state.keep();
        Ok(result)
    }
}

/// A destination that takes numbers and notes them.
#[repr(C)]
struct Receiver<'f> {
    functions: pg_sys::DestReceiver,
    found: &'f mut Bits,
}

impl Receiver<'_> {
    fn new(found: &mut Bits) -> Receiver<'_> {
        /// # Safety
        /// A plain frame; a slot with a number, and a receiver.
        unsafe extern "C-unwind" fn receive(
            slot: *mut pg_sys::TupleTableSlot,
            receiver: *mut pg_sys::DestReceiver,
        ) -> bool {
            // SAFETY: the server calls it with a row of the query, and with the receiver that it was given.
            unsafe {
                if (*slot).tts_nvalid < 1 {
                    c::slot_getsomeattrs_int(slot, 1);
                }
                let number = (*(*slot).tts_values).value();
                (*receiver.cast::<Receiver<'_>>()).found.add(number as u64);
            }
            true
        }
        extern "C-unwind" fn begin(_: *mut pg_sys::DestReceiver, _: i32, _: pg_sys::TupleDesc) {}
        extern "C-unwind" fn nothing(_: *mut pg_sys::DestReceiver) {}
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
    lookup::type_entry(type_oid, pg_sys::TYPECACHE_LT_OPR).lt_opr
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

/// Makes the environment with the query's keys, and other rows if there are any. Guarded; it lives as long as the current
/// memory context.
fn environment(keys: &Tuplestore, rows: Option<&Tuplestore>) -> *mut pg_sys::QueryEnvironment {
    // SAFETY: guarded calls, and zeroed structs that are filled.
    unsafe {
        let environment = pg_sys::create_queryEnv();
        for (name, given) in [(KEYS, Some(keys)), (ROWS, rows)] {
            let Some(given) = given else { continue };
            let relation = pg_sys::palloc0(size_of::<pg_sys::EphemeralNamedRelationData>());
            let relation = relation.cast::<pg_sys::EphemeralNamedRelationData>();
            (*relation).md.name = name.as_ptr().cast_mut();
            (*relation).md.tupdesc = given.descriptor().as_ptr();
            (*relation).md.enrtype = pg_sys::EphemeralNameRelationType::ENR_NAMED_TUPLESTORE;
            (*relation).md.enrtuples = given.rows() as f64;
            (*relation).reldata = given.as_ptr().cast();
            pg_sys::register_ENR(environment, relation);
        }
        environment
    }
}
