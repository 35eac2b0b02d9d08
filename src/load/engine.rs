//! Tables that belong to an extension which stores their rows elsewhere: TimescaleDB and Citus.
//!
//! To the server's catalogs a hypertable or a distributed table is an ordinary table: heap, no rule, perhaps no
//! trigger. The extension's hooks send its rows to other tables. Rows that are written past the hooks lie in a table
//! that no query reads. So such tables are recognized by the extension's own catalogs, whether or not its hooks are
//! active in this process.
//!
//! Columns are found by name, since the catalogs differ between versions of the extensions. Where neither extension is
//! installed, the question costs two lookups in the system caches.

use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::planned_insert::{self, Answer};
use crate::error::{Error, Result};
use crate::server::lookup;
use crate::server::relation::{OpenRelation, Relation, name_of};

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
    of_citus(relation).or_else(|| of_timescaledb(relation))
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

/// Guarded.
fn of_citus(relation: Relation<'_>) -> Option<Owned> {
    let partitions = Catalog::find(c"citus", pg_sys::PG_CATALOG_NAMESPACE.into(), c"pg_dist_partition")?;
    let relid = relation.oid();
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

/// Is the table a shard? Its name is that of the distributed table with the shard's number (citus:
/// worker_shard_visibility.c). Guarded.
fn is_shard(relation: Relation<'_>) -> bool {
    let name = relation.name();
    let Some((stem, number)) = name.to_str().ok().and_then(|name| name.rsplit_once('_')) else { return false };
    let Ok(number) = number.parse::<i64>() else { return false };
    let Some(shards) = Catalog::find(c"citus", pg_sys::PG_CATALOG_NAMESPACE.into(), c"pg_dist_shard") else {
        return false;
    };
    let row = shards.row(&[(c"shardid", LookupKey::Int8(number))], [c"logicalrelid"]);
    let Some(table) = row.and_then(|[table]| table.oid()) else { return false };
    // The server truncates a long name.
    table != relation.oid()
        && lookup::schema_of(table) == lookup::schema_of(relation.oid())
        && lookup::relation_name(table).is_some_and(|table| {
            table.to_bytes() == stem.as_bytes() || name.count_bytes() + 1 == pg_sys::NAMEDATALEN as usize
        })
}

/// Guarded.
fn of_timescaledb(relation: Relation<'_>) -> Option<Owned> {
    let schema = lookup::schema_named(c"_timescaledb_catalog");
    if schema == pg_sys::InvalidOid {
        return None;
    }
    let hypertables = Catalog::find(c"timescaledb", schema, c"hypertable")?;
    let (namespace, name) = lookup::relation_names(relation.oid())?;
    let names = [(c"schema_name", LookupKey::Name(&namespace)), (c"table_name", LookupKey::Name(&name))];
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
    // Compressed rows of a TimescaleDB chunk that is in no list of chunks.
    let settings = Catalog::find(c"timescaledb", schema, c"compression_settings");
    let key = [(c"compress_relid", LookupKey::Oid(relation.oid()))];
    let compressed = settings.and_then(|settings| settings.row(&key, [c"relid"]));
    if compressed.is_some() || hypertables.is_sibling(relation.oid()) { internal } else { None }
}

/// A value to look a column up by.
#[derive(Debug, Clone, Copy)]
enum LookupKey<'a> {
    Oid(pg_sys::Oid),
    Int4(i32),
    Int8(i64),
    Name(&'a CStr),
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
        let oid = Some(lookup::relation_named(name, schema)).filter(|&oid| oid != pg_sys::InvalidOid)?;
        let extension = lookup::extension_named(extension);
        let catalog = Catalog { oid, extension };
        (extension != pg_sys::InvalidOid && catalog.is_sibling(oid)).then_some(catalog)
    }

    /// Is the relation a member of the same extension? Guarded.
    fn is_sibling(&self, relid: pg_sys::Oid) -> bool {
        lookup::extension_of(pg_sys::RelationRelationId, relid) == self.extension
    }

    /// Columns, by name, of the row with these keys. None if there is no row, or a key's column is missing. Guarded.
    fn row<const N: usize>(&self, keys: &[(&CStr, LookupKey<'_>)], wanted: [&CStr; N]) -> Option<[ColumnValue; N]> {
        let table = OpenRelation::find(self.oid, pg_sys::AccessShareLock)?.releasing();
        let descriptor = table.get().descriptor();
        let find = |name: &CStr| {
            let is_it = |one: &&pg_sys::FormData_pg_attribute| !one.attisdropped && name_of(one) == name;
            descriptor.attributes().find(is_it)
        };
        let parts: Option<Vec<_>> = keys.iter().map(|&(name, key)| Some((find(name)?.attnum, key))).collect();
        let mut parts = parts?;
        let index = index_over(table.get(), &mut parts);
        let mut scan_keys: Vec<_> = parts.iter().map(|&(attnum, key)| key.over(attnum)).collect();
        // SAFETY: guarded calls on a table that is open and locked, with keys of its attributes. A row has a value for each
        // attribute of the descriptor; only values by value are read, and these are copies.
        unsafe {
            let scan = pg_sys::systable_beginscan(
                table.get().as_ptr(),
                index.unwrap_or(pg_sys::InvalidOid),
                index.is_some(),
                std::ptr::null_mut(),
                i32::try_from(scan_keys.len()).unwrap_or(0),
                scan_keys.as_mut_ptr(),
            );
            let tuple = pg_sys::systable_getnext(scan);
            let row = (!tuple.is_null()).then(|| {
                wanted.map(|name| {
                    let mut is_null = true;
                    ColumnValue(find(name).and_then(|one| {
                        let value = pg_sys::heap_getattr(tuple, one.attnum.into(), descriptor.as_ptr(), &mut is_null);
                        (!is_null).then_some((value, one.atttypid))
                    }))
                })
            });
            pg_sys::systable_endscan(scan);
            row
        }
    }
}

impl LookupKey<'_> {
    /// The condition that an attribute has this value. Guarded.
    fn over(self, attnum: pg_sys::AttrNumber) -> pg_sys::ScanKeyData {
        let (function, value) = match self {
            LookupKey::Oid(oid) => (pg_sys::F_OIDEQ, pg_sys::Datum::from(oid)),
            LookupKey::Int4(value) => (pg_sys::F_INT4EQ, pg_sys::Datum::from(value)),
            LookupKey::Int8(value) => (pg_sys::F_INT8EQ, pg_sys::Datum::from(value)),
            LookupKey::Name(name) => (pg_sys::F_NAMEEQ, pg_sys::Datum::from(name.as_ptr())),
        };
        let equal = pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber;
        let mut key = pg_sys::ScanKeyData::default();
        // SAFETY: a guarded call, which fills in the condition.
        unsafe { pg_sys::ScanKeyInit(&raw mut key, attnum, equal, function.into(), value) };
        key
    }
}

/// A B-tree over exactly these columns. The columns are reordered to match it. Guarded.
fn index_over(table: Relation<'_>, parts: &mut [(pg_sys::AttrNumber, LookupKey<'_>)]) -> Option<pg_sys::Oid> {
    table.indexes().into_iter().find(|&oid| {
        let index = OpenRelation::open(oid, pg_sys::AccessShareLock).releasing();
        let index = index.get();
        let numbers = index.key_columns();
        let place = |attnum: pg_sys::AttrNumber| numbers.iter().position(|&number| number == attnum);
        let fits = index.index().is_some_and(|form| form.is_valid)
            && !index.is_partial()
            && index.access_method() == pg_sys::BTREE_AM_OID
            && numbers.len() == parts.len()
            && parts.iter().all(|&(attnum, _)| place(attnum).is_some());
        if fits {
            parts.sort_by_key(|&(attnum, _)| place(attnum));
        }
        fits
    })
}
