//! Rows whose key already exists: the options `on_duplicate`, `conflict_index` and `duplicate_limit`.
//!
//! One index decides which rows are duplicates of each other, like the arbiter index of INSERT … ON CONFLICT. It is the
//! index of the option, else the primary key, else the only unique index. Other unique indexes stay ordinary
//! constraints.
//!
//! Replacing rows requires the DELETE privilege. The direct writer cannot fire UPDATE triggers, because the new row is
//! already in a page.

use std::ffi::CString;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::rows::soft::Limit;
use crate::server::lookup::{constraint_name, index_columns, index_constraint, quoted};
use crate::server::relation::{OpenRelation, Relation};
use crate::server::server_text::from_server;

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
    pub fn arbiter(&self, relation: Relation<'_>) -> Result<pg_sys::Oid> {
        let (table, candidates) = (relation.name_text(), Candidate::all(relation));
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
    /// Guarded.
    fn all(relation: Relation<'_>) -> Vec<Candidate> {
        let look = |oid| {
            let index = OpenRelation::open(oid, pg_sys::AccessShareLock).releasing();
            let form = index.get().index()?;
            let is_fit = form.is_immediate && form.is_valid && form.is_ready;
            let (is_unique, is_primary) = (form.is_unique, form.is_primary);
            Some(Candidate { oid, name: index.get().name(), is_unique, is_primary, is_fit })
        };
        relation.indexes().into_iter().filter_map(look).collect()
    }
}

/// Is this index of a leaf the arbiter, or a partition of it? Guarded.
pub fn is_part_of(index: Relation<'_>, arbiter: pg_sys::Oid) -> bool {
    index.oid() == arbiter || index.ancestors().contains(&arbiter)
}

/// The ON CONFLICT clause that leaves duplicates out, for an index of a table that this transaction has locked. Guarded.
pub fn conflict_clause(arbiter: pg_sys::Oid) -> Result<Vec<u8>> {
    let index = OpenRelation::open(arbiter, pg_sys::AccessShareLock);
    let target = match constraint_name(index_constraint(arbiter)) {
        Some(name) => [b"ON CONSTRAINT ", quoted(&name).to_bytes()].concat(),
        None if index.get().is_partial() => {
            let message = "the buffered writer cannot identify duplicates with a partial index";
            return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message));
        }
        None => [b"(", index_columns(arbiter, false).unwrap_or_default().to_bytes(), b")"].concat(),
    };
    Ok([b" ON CONFLICT ", target.as_slice(), b" DO NOTHING"].concat())
}
