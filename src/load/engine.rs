//! Tables that belong to an extension which stores their rows elsewhere: TimescaleDB and Citus.
//!
//! To the server's catalogs a hypertable or a distributed table is an ordinary table: heap, no rule, perhaps no
//! trigger. The extension's hooks send its rows to other tables. Rows that are written past the hooks lie in a table
//! that no query reads. So such tables are recognized by the extension's own catalogs, whether or not its hooks are
//! active in this process.
//!
//! Columns are found by name, since the catalogs differ between versions of the extensions. Where neither extension is
//! installed, the question costs two lookups in the system caches.

use std::ffi::{CStr, CString};

use pgrx::{PgList, PgSqlErrorCode as Code, pg_sys};

use super::planned_insert::{self, Answer};
use crate::error::{Error, Result};
use crate::server::compat;
use crate::server::relation::Relation;

/// An extension that owns tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Citus,
    TimescaleDb,
}

/// Condition for the server's INSERT to store a row where queries find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// The extension's planner hook plans the INSERT.
    Plan,
    /// The extension's library is loaded; it may act in triggers.
    Library,
    /// None: the table takes rows as COPY inserts them.
    Nothing,
}

/// A table of an engine.
#[derive(Debug, Clone, Copy)]
pub struct Owned {
    pub engine: Engine,
    /// With an article, and the extension's name.
    what: &'static str,
    needs: Needs,
}

impl Owned {
    fn citus(what: &'static str, needs: Needs) -> Owned {
        Owned { engine: Engine::Citus, what, needs }
    }

    fn timescaledb(what: &'static str, needs: Needs) -> Owned {
        Owned { engine: Engine::TimescaleDb, what, needs }
    }

    /// Reason why the direct writer does not write to the table of this name.
    pub fn obstacle(&self, name: &str) -> String {
        format!("\"{name}\" is {}.", self.what)
    }

    /// Does es_processed count the rows that an INSERT … ON CONFLICT DO NOTHING has stored? Citus counts all rows that
    /// it was given.
    pub fn counts_rows(&self) -> bool {
        self.engine == Engine::TimescaleDb || self.needs == Needs::Nothing
    }
}

/// The engine that the table belongs to, if any. Guarded.
pub fn owner_of(relation: Relation<'_>) -> Option<Owned> {
    // SAFETY: an open relation.
    unsafe { of_citus(relation.as_ptr()).or_else(|| of_timescaledb(relation.as_ptr())) }
}

/// Raises an error if the table's engine would not see the rows that the server inserts. Else returns how the server
/// plans that INSERT, unless it is a plain one. Guarded.
pub fn check_active(relation: Relation<'_>, owned: &Owned) -> Result<Option<String>> {
    let answer = planned_insert::answer(relation);
    let is_active = match (owned.needs, &answer) {
        (_, Answer::Other(_)) | (Needs::Nothing, _) => true,
        (Needs::Library, Answer::Plain) => is_loaded(owned.engine),
        (Needs::Plan, Answer::Plain) => false,
    };
    if is_active {
        return Ok(match answer {
            Answer::Other(why) => Some(why),
            Answer::Plain => None,
        });
    }
    let (extension, library) = match owned.engine {
        Engine::Citus => ("Citus", "citus"),
        Engine::TimescaleDb => ("TimescaleDB", "timescaledb"),
    };
    let message = format!("cannot load \"{}\": {extension} is not active in this process", relation.name_text());
    let detail = format!(
        "It is {}. Without that library the server would store the rows where no query finds them.",
        owned.what
    );
    Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .detail(detail)
        .hint(format!("Add {library} to shared_preload_libraries, and restart the server.")))
}

/// Is the engine's library loaded in this process? TimescaleDB's loader, which is always there, loads a library with
/// the version in its name. Guarded.
fn is_loaded(engine: Engine) -> bool {
    // SAFETY: guarded calls; the names of loaded files, each ended by a zero, and an empty one.
    let files = unsafe {
        let size = pg_sys::EstimateLibraryStateSpace();
        let mut files = vec![0u8; size];
        pg_sys::SerializeLibraryState(size, files.as_mut_ptr().cast());
        files
    };
    files.split(|&byte| byte == 0).any(|file| {
        let name = file.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        match engine {
            Engine::Citus => name == b"citus.so" || name == b"citus",
            Engine::TimescaleDb => name.starts_with(b"timescaledb-") && !name.starts_with(b"timescaledb-tsl"),
        }
    })
}

/// # Safety
/// An open relation. Guarded.
unsafe fn of_citus(relation: pg_sys::Relation) -> Option<Owned> {
    // SAFETY: this function's contract covers the relation; guarded catalog lookups.
    unsafe {
        let schema = pg_sys::PG_CATALOG_NAMESPACE.into();
        let partitions = Catalog::find(c"citus", schema, c"pg_dist_partition")?;
        let relid = (*relation).rd_id;
        let wanted = [c"partmethod", c"repmodel", c"colocationid"];
        if let Some([method, model, group]) = partitions.row(&[(c"logicalrelid", LookupKey::Oid(relid))], wanted) {
            // DISTRIBUTE_BY_NONE; REPLICATION_MODEL_2PC and _STREAMING (citus: distribution_column.h,
            // pg_dist_partition.h).
            let what = match (method.char(), model.char(), group.int4()) {
                (Some(b'n'), Some(b't'), _) => "a reference table of Citus",
                (Some(b'n'), Some(b's'), Some(0)) => "a local table that Citus manages",
                (Some(b'n'), Some(_), Some(_)) => "a single-shard table of Citus",
                _ => "a distributed table of Citus",
            };
            return Some(Owned::citus(what, Needs::Plan));
        }
        if is_shard(relation) {
            return Some(Owned::citus("a shard of a table of Citus", Needs::Nothing));
        }
        partitions.is_sibling(relid).then(|| Owned::citus("an internal table of Citus", Needs::Nothing))
    }
}

/// Is the table a shard? Its name is that of the distributed table with the shard's number (citus:
/// worker_shard_visibility.c).
///
/// # Safety
/// An open relation. Guarded.
unsafe fn is_shard(relation: pg_sys::Relation) -> bool {
    // SAFETY: this function's contract covers the relation; guarded catalog lookups, and strings that they return.
    unsafe {
        let name = CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr());
        let Some((stem, number)) = name.to_str().ok().and_then(|name| name.rsplit_once('_')) else { return false };
        let Ok(number) = number.parse::<i64>() else { return false };
        let schema = pg_sys::PG_CATALOG_NAMESPACE.into();
        let Some(shards) = Catalog::find(c"citus", schema, c"pg_dist_shard") else { return false };
        let row = shards.row(&[(c"shardid", LookupKey::Int8(number))], [c"logicalrelid"]);
        let Some(table) = row.and_then(|[table]| table.oid()) else { return false };
        let table_name = pg_sys::get_rel_name(table);
        // The server truncates a long name.
        table != (*relation).rd_id
            && !table_name.is_null()
            && pg_sys::get_rel_namespace(table) == (*(*relation).rd_rel).relnamespace
            && (CStr::from_ptr(table_name).to_bytes() == stem.as_bytes()
                || name.count_bytes() + 1 == pg_sys::NAMEDATALEN as usize)
    }
}

/// # Safety
/// An open relation. Guarded.
unsafe fn of_timescaledb(relation: pg_sys::Relation) -> Option<Owned> {
    // SAFETY: this function's contract covers the relation; guarded catalog lookups.
    unsafe {
        let schema = pg_sys::get_namespace_oid(c"_timescaledb_catalog".as_ptr(), true);
        if schema == pg_sys::InvalidOid {
            return None;
        }
        let hypertables = Catalog::find(c"timescaledb", schema, c"hypertable")?;
        let form = (*relation).rd_rel;
        let namespace = pg_sys::get_namespace_name((*form).relnamespace);
        if namespace.is_null() {
            return None;
        }
        let names = [
            (c"schema_name", LookupKey::Name(namespace)),
            (c"table_name", LookupKey::Name((*form).relname.data.as_ptr())),
        ];
        // HypertableInternalCompressionTable (timescaledb: hypertable.h)
        const COMPRESSED: i16 = 2;
        let internal = Some(Owned::timescaledb("an internal table of TimescaleDB", Needs::Nothing));
        if let Some([state]) = hypertables.row(&names, [c"compression_state"]) {
            return match state.int2() {
                Some(COMPRESSED) => internal,
                _ => Some(Owned::timescaledb("a hypertable of TimescaleDB", Needs::Plan)),
            };
        }
        let chunks = Catalog::find(c"timescaledb", schema, c"chunk");
        if let Some([hypertable]) = chunks.and_then(|chunks| chunks.row(&names, [c"hypertable_id"])) {
            let key = hypertable.int4().map(|id| [(c"id", LookupKey::Int4(id))]);
            let state = key.and_then(|key| hypertables.row(&key, [c"compression_state"]));
            return match state.and_then(|[state]| state.int2()) {
                Some(COMPRESSED) => internal,
                _ => Some(Owned::timescaledb("a chunk of a hypertable of TimescaleDB", Needs::Library)),
            };
        }
        let relid = (*relation).rd_id;
        // Compressed rows of a TimescaleDB chunk that is in no list of chunks.
        let settings = Catalog::find(c"timescaledb", schema, c"compression_settings");
        let compressed =
            settings.and_then(|settings| settings.row(&[(c"compress_relid", LookupKey::Oid(relid))], [c"relid"]));
        if compressed.is_some() || hypertables.is_sibling(relid) { internal } else { None }
    }
}

/// A value to look a column up by.
#[derive(Debug, Clone, Copy)]
enum LookupKey {
    Oid(pg_sys::Oid),
    Int4(i32),
    Int8(i64),
    /// A string of the server.
    Name(*const std::ffi::c_char),
}

/// A column's value and type. Null if there is no such column.
#[derive(Debug, Clone, Copy)]
struct ColumnValue(Option<(pg_sys::Datum, pg_sys::Oid)>);

impl ColumnValue {
    fn of_types(self, types: &[pg_sys::Oid]) -> Option<pg_sys::Datum> {
        self.0.filter(|(_, own)| types.contains(own)).map(|(datum, _)| datum)
    }

    fn char(self) -> Option<u8> {
        self.of_types(&[pg_sys::CHAROID]).map(|datum| datum.value() as u8)
    }

    fn int2(self) -> Option<i16> {
        self.of_types(&[pg_sys::INT2OID]).map(|datum| datum.value() as i16)
    }

    fn int4(self) -> Option<i32> {
        self.of_types(&[pg_sys::INT4OID]).map(|datum| datum.value() as i32)
    }

    fn oid(self) -> Option<pg_sys::Oid> {
        self.of_types(&[pg_sys::OIDOID, pg_sys::REGCLASSOID]).map(|datum| pg_sys::Oid::from_u32(datum.value() as u32))
    }
}

/// A table of an extension.
#[derive(Debug, Clone, Copy)]
struct Catalog {
    oid: pg_sys::Oid,
    extension: pg_sys::Oid,
}

impl Catalog {
    /// Finds a table of the extension. None if it does not exist or is not a member of the extension. Guarded.
    fn find(extension: &CStr, schema: pg_sys::Oid, name: &CStr) -> Option<Catalog> {
        // SAFETY: guarded catalog lookups; the first one is answered by a cache.
        unsafe {
            let oid = pg_sys::get_relname_relid(name.as_ptr(), schema);
            if oid == pg_sys::InvalidOid {
                return None;
            }
            let extension = pg_sys::get_extension_oid(extension.as_ptr(), true);
            let catalog = Catalog { oid, extension };
            (extension != pg_sys::InvalidOid && catalog.is_sibling(oid)).then_some(catalog)
        }
    }

    /// Is the relation a member of the same extension? Guarded.
    fn is_sibling(&self, relid: pg_sys::Oid) -> bool {
        // SAFETY: a guarded catalog lookup.
        unsafe { pg_sys::getExtensionOfObject(pg_sys::RelationRelationId, relid) == self.extension }
    }

    /// Columns, by name, of the row with these keys. None if there is no row, or a key's column is missing. Guarded.
    fn row<const N: usize>(&self, keys: &[(&CStr, LookupKey)], wanted: [&CStr; N]) -> Option<[ColumnValue; N]> {
        let lock = pg_sys::AccessShareLock.cast_signed();
        // SAFETY: guarded calls on a table that is open and locked.
        unsafe {
            let relation = pg_sys::try_relation_open(self.oid, lock);
            if relation.is_null() {
                return None;
            }
            let row = self.row_of(relation, keys, wanted);
            pg_sys::relation_close(relation, lock);
            row
        }
    }

    /// # Safety
    /// This table, open. Guarded.
    unsafe fn row_of<const N: usize>(
        &self,
        relation: pg_sys::Relation,
        keys: &[(&CStr, LookupKey)],
        wanted: [&CStr; N],
    ) -> Option<[ColumnValue; N]> {
        // SAFETY: this function's contract covers the relation; guarded calls; the arrays have an element for each
        // attribute. Only values by value are read, and these are copies.
        unsafe {
            let mut parts = Vec::with_capacity(keys.len());
            for &(name, key) in keys {
                let attnum = pg_sys::get_attnum(self.oid, name.as_ptr());
                if attnum <= 0 {
                    return None;
                }
                parts.push((attnum, key));
            }
            let index = index_over(relation, &mut parts);
            let names: Vec<CString> = parts.iter().filter_map(|(_, key)| key.name()).collect();
            let mut names = names.iter();
            let equal = pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber;
            let mut scan_keys = Vec::with_capacity(parts.len());
            for (attnum, key) in &parts {
                let (function, value) = match *key {
                    LookupKey::Oid(oid) => (pg_sys::F_OIDEQ, pg_sys::Datum::from(oid)),
                    LookupKey::Int4(value) => (pg_sys::F_INT4EQ, pg_sys::Datum::from(value)),
                    LookupKey::Int8(value) => (pg_sys::F_INT8EQ, pg_sys::Datum::from(value)),
                    LookupKey::Name(_) => {
                        (pg_sys::F_NAMEEQ, pg_sys::Datum::from(names.next().map_or(c"".as_ptr(), |name| name.as_ptr())))
                    }
                };
                let mut key = pg_sys::ScanKeyData::default();
                pg_sys::ScanKeyInit(&raw mut key, *attnum, equal, function.into(), value);
                scan_keys.push(key);
            }
            let scan = pg_sys::systable_beginscan(
                relation,
                index.unwrap_or(pg_sys::InvalidOid),
                index.is_some(),
                std::ptr::null_mut(),
                i32::try_from(scan_keys.len()).unwrap_or(0),
                scan_keys.as_mut_ptr(),
            );
            let tuple = pg_sys::systable_getnext(scan);
            let row = (!tuple.is_null()).then(|| {
                let descriptor = (*relation).rd_att;
                let natts = usize::try_from((*descriptor).natts).unwrap_or(0);
                let (mut values, mut nulls) = (vec![pg_sys::Datum::from(0usize); natts], vec![true; natts]);
                pg_sys::heap_deform_tuple(tuple, descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
                wanted.map(|name| {
                    let attnum = pg_sys::get_attnum(self.oid, name.as_ptr());
                    let at = usize::try_from(attnum).ok().and_then(|attnum| attnum.checked_sub(1));
                    ColumnValue(at.and_then(|at| {
                        let is_null = nulls.get(at).copied().unwrap_or(true);
                        let kind = (*compat::attribute(descriptor, at)).atttypid;
                        values.get(at).filter(|_| !is_null).map(|&value| (value, kind))
                    }))
                })
            });
            pg_sys::systable_endscan(scan);
            row
        }
    }
}

impl LookupKey {
    /// A copy of the name, because a scan may read it after a cache has released the original.
    fn name(&self) -> Option<CString> {
        match *self {
            // SAFETY: a string of the server.
            LookupKey::Name(name) => Some(unsafe { CStr::from_ptr(name) }.to_owned()),
            _ => None,
        }
    }
}

/// A B-tree over exactly these columns. The columns are reordered to match it. Guarded.
///
/// # Safety
/// An open relation, and attributes of it.
unsafe fn index_over(relation: pg_sys::Relation, parts: &mut [(pg_sys::AttrNumber, LookupKey)]) -> Option<pg_sys::Oid> {
    let lock = pg_sys::AccessShareLock.cast_signed();
    // SAFETY: this function's contract covers the relation; guarded calls; an index has a number for each of its
    // attributes.
    unsafe {
        for index in PgList::<pg_sys::Oid>::from_pg(pg_sys::RelationGetIndexList(relation)).iter_oid() {
            let opened = pg_sys::index_open(index, lock);
            let form = (*opened).rd_index;
            let count = usize::try_from((*form).indnkeyatts).unwrap_or(0);
            let numbers: Vec<pg_sys::AttrNumber> = (0..count).map(|i| *(*form).indkey.values.as_ptr().add(i)).collect();
            let is_plain = (*form).indisvalid
                && pg_sys::RelationGetIndexPredicate(opened).is_null()
                && (*(*opened).rd_rel).relam == pg_sys::BTREE_AM_OID;
            pg_sys::index_close(opened, lock);
            let place = |attnum: pg_sys::AttrNumber| numbers.iter().position(|&number| number == attnum);
            if is_plain && count == parts.len() && parts.iter().all(|&(attnum, _)| place(attnum).is_some()) {
                parts.sort_by_key(|&(attnum, _)| place(attnum));
                return Some(index);
            }
        }
        None
    }
}
