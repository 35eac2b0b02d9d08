//! Rows whose key already exists: the options `on_duplicate`, `conflict_index` and `duplicate_limit`.
//!
//! One index decides which rows are duplicates of each other, like the arbiter index of INSERT … ON CONFLICT. It is the
//! index of the option, else the primary key, else the only unique index. Other unique indexes stay ordinary
//! constraints.
//!
//! Replacing rows requires the DELETE privilege. The direct writer cannot fire UPDATE triggers, because the new row is
//! already in a page.

use std::ffi::{CStr, CString};

use pgrx::{PgList, PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::rows::soft::Limit;
use crate::server::relation::Relation;
use crate::server::server_text::from_server;
use crate::server::unguarded::{get_partition_ancestors, guard};

/// Action for rows with equal keys: an error, or the row to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Error,
    /// Keeps the row of the table, else the first one of the file.
    Old,
    /// Keeps the last one of the file.
    New,
}

/// The options.
#[derive(Debug, Clone)]
pub struct Duplicates {
    pub keep: Keep,
    pub index: Option<CString>,
    /// The permitted number of duplicates.
    pub limit: Option<Limit>,
}

impl Duplicates {
    pub const ERROR: Duplicates = Duplicates { keep: Keep::Error, index: None, limit: None };

    /// Parses a limit: `n`, or `p%`.
    pub fn limit(value: &str) -> Result<Limit> {
        let invalid = |message: &str| Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, message);
        if let Some(percent) = value.strip_suffix('%') {
            let percent = percent.parse().ok().filter(|p| (0.0..=100.0).contains(p));
            let bad = || invalid("duplicate_limit requires a percentage from 0% to 100%");
            return Ok(Limit::Percent(percent.ok_or_else(bad)?));
        }
        let rows = value.parse().ok().filter(|n: &u64| i64::try_from(*n).is_ok());
        Ok(Limit::Rows(rows.ok_or_else(|| invalid("duplicate_limit requires a number, or a percentage"))?))
    }

    /// Checks the options together.
    pub fn check(&self) -> Result<()> {
        let needless = match (self.keep, &self.index, &self.limit) {
            (Keep::Error, Some(_), _) => "conflict_index",
            (Keep::Error, _, Some(_)) => "duplicate_limit",
            _ => return Ok(()),
        };
        let message = format!("{needless} requires on_duplicate to be \"keep_old\" or \"keep_new\"");
        Err(Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, message))
    }

    /// The permitted number of duplicates, if the limit is not a percentage.
    pub fn most(&self) -> Option<u64> {
        self.limit.and_then(Limit::rows)
    }

    /// Raises if there were more duplicates than the limit permits.
    pub fn check_limit(&self, duplicates: u64, records: u64) -> Result<()> {
        let (exceeded, limit) = match self.limit {
            None => return Ok(()),
            Some(Limit::Rows(most)) => (duplicates > most, most.to_string()),
            // Integers of this size are exact in f64.
            Some(Limit::Percent(p)) => (duplicates as f64 * 100.0 > p * records as f64, format!("{p}%")),
        };
        if !exceeded {
            return Ok(());
        }
        let message = format!("more rows are duplicates than duplicate_limit = {limit} allows");
        let error = Error::new(Code::ERRCODE_UNIQUE_VIOLATION, message);
        Err(match self.limit {
            Some(Limit::Percent(_)) => error.detail(format!("{duplicates} of {records} rows are duplicates.")),
            _ => error,
        })
    }

    /// The arbiter index of a target. Guarded.
    ///
    /// # Safety
    /// An open relation.
    pub unsafe fn arbiter(&self, relation: pg_sys::Relation) -> Result<pg_sys::Oid> {
        // SAFETY: this function's contract covers the relation.
        let (table, candidates) = unsafe {
            (from_server(CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr())), Candidate::all(relation))
        };
        let error = |code, message| Err(Error::new(code, message));
        if let Some(name) = &self.index {
            let shown = from_server(name);
            let Some(index) = candidates.iter().find(|index| index.name == *name) else {
                let message = format!("index \"{shown}\" for table \"{table}\" does not exist");
                return error(Code::ERRCODE_UNDEFINED_OBJECT, message);
            };
            if !index.is_unique {
                return error(Code::ERRCODE_WRONG_OBJECT_TYPE, format!("index \"{shown}\" is not unique"));
            }
            if !index.is_fit {
                let message = format!("index \"{shown}\" cannot identify duplicates");
                return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                    .detail("Its constraint is deferrable, or the index is not valid."));
            }
            return Ok(index.oid);
        }
        if let Some(index) = candidates.iter().find(|index| index.is_primary && index.is_fit) {
            return Ok(index.oid);
        }
        let mut unique = candidates.iter().filter(|index| index.is_unique && index.is_fit);
        let code = Code::ERRCODE_INVALID_COLUMN_REFERENCE;
        match (unique.next(), unique.next()) {
            (Some(index), None) => Ok(index.oid),
            (None, _) => error(code, format!("table \"{table}\" has no unique index that can identify duplicates")),
            _ => {
                let message = format!("table \"{table}\" has several unique indexes and no primary key");
                Err(Error::new(code, message).hint("Name one of them with conflict_index."))
            }
        }
    }
}

/// An index of a target.
struct Candidate {
    oid: pg_sys::Oid,
    name: CString,
    is_unique: bool,
    is_primary: bool,
    /// The index is valid, ready and immediate.
    is_fit: bool,
}

impl Candidate {
    /// # Safety
    /// An open relation. Guarded.
    unsafe fn all(relation: pg_sys::Relation) -> Vec<Candidate> {
        let lock = pg_sys::AccessShareLock.cast_signed();
        // SAFETY: this function's contract covers the relation; guarded calls.
        unsafe {
            let list = PgList::<pg_sys::Oid>::from_pg(pg_sys::RelationGetIndexList(relation));
            let look = |oid| {
                let index = pg_sys::index_open(oid, lock);
                let form = &*(*index).rd_index;
                let candidate = Candidate {
                    oid,
                    name: CStr::from_ptr((*(*index).rd_rel).relname.data.as_ptr()).to_owned(),
                    is_unique: form.indisunique,
                    is_primary: form.indisprimary,
                    is_fit: form.indimmediate && form.indisvalid && form.indisready,
                };
                pg_sys::index_close(index, lock);
                candidate
            };
            list.iter_oid().map(look).collect()
        }
    }
}

/// Is this index of a leaf the arbiter, or a partition of it? Guarded.
pub fn is_part_of(index: Relation<'_>, arbiter: pg_sys::Oid) -> bool {
    let oid = index.oid();
    if oid == arbiter || !index.is_partition() {
        return oid == arbiter;
    }
    // SAFETY: a guarded call, which returns a list of OIDs.
    let ancestors = unsafe { PgList::<pg_sys::Oid>::from_pg(guard(|| get_partition_ancestors(oid))) };
    ancestors.iter_oid().any(|ancestor| ancestor == arbiter)
}

/// The ON CONFLICT clause that leaves duplicates out. Guarded.
///
/// # Safety
/// An index of a table that this transaction has locked.
pub unsafe fn conflict_clause(arbiter: pg_sys::Oid) -> Result<Vec<u8>> {
    // SAFETY: this function's contract covers the index; guarded calls, and strings that they return.
    unsafe {
        let constraint = pg_sys::get_index_constraint(arbiter);
        let target = if constraint == pg_sys::InvalidOid {
            let index = pg_sys::index_open(arbiter, pg_sys::AccessShareLock.cast_signed());
            let is_partial = !pg_sys::RelationGetIndexPredicate(index).is_null();
            pg_sys::index_close(index, pg_sys::NoLock.cast_signed());
            if is_partial {
                let message = "the buffered writer cannot identify duplicates with a partial index";
                return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message));
            }
            let columns = CStr::from_ptr(pg_sys::pg_get_indexdef_columns(arbiter, false));
            [b"(", columns.to_bytes(), b")"].concat()
        } else {
            let name = pg_sys::quote_identifier(pg_sys::get_constraint_name(constraint));
            [b"ON CONSTRAINT ", CStr::from_ptr(name).to_bytes()].concat()
        };
        Ok([b" ON CONFLICT ", target.as_slice(), b" DO NOTHING"].concat())
    }
}
