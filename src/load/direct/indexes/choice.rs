//! Chooses the strategy of an index.

use pgrx::pg_sys;

use crate::index::strategy::IndexStrategy;
use crate::load::direct::new_files::Rebuild;
use crate::load::report::Why;
use crate::server::relation::{IndexForm, Relation};

/// The strategy, and the reason. `is_ready`: the index gets the keys of new rows. Guarded.
pub(super) fn strategy(
    index: Relation<'_>,
    is_ready: bool,
    rebuild: &mut Rebuild,
    search: ConflictSearch<'_>,
    builds: bool,
) -> (IndexStrategy, Why) {
    let Some(form) = index.index() else { return (IndexStrategy::None, Why::Invalid) };
    let constraint = if form.is_exclusion { Why::Exclusion } else { Why::Deferrable };
    if !is_ready {
        (IndexStrategy::None, Why::Invalid)
    } else if !form.is_immediate && search != ConflictSearch::None {
        (IndexStrategy::InsertLate, constraint)
    } else if (form.is_unique || form.is_exclusion) && search == ConflictSearch::Searched {
        (IndexStrategy::InsertChecked, if form.is_exclusion { constraint } else { Why::OneByOne })
    } else if !form.is_immediate || form.is_exclusion {
        (IndexStrategy::InsertRows, constraint)
    } else {
        let certain = builds && search.may_build(index.oid(), form);
        let (new_file, why) = if certain { rebuild.choose(index) } else { (None, rebuild.insertion(Why::OneByOne)) };
        let inserted = if index.access_method() == pg_sys::BTREE_AM_OID {
            IndexStrategy::InsertSorted
        } else {
            IndexStrategy::InsertRows
        };
        (new_file.unwrap_or(inserted), why)
    }
}

/// How rows that conflict in an index are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConflictSearch<'a> {
    /// The first conflict is an error.
    None,
    /// Equal keys are adjacent in a sort, or among the keys of these indexes, which are certainly built from them.
    Sorted(&'a [pg_sys::Oid]),
    /// Each row is searched for before it is inserted.
    Searched,
}

impl ConflictSearch<'_> {
    /// May an index be built, whatever its keys are? A unique index only by pg_bulk.
    fn may_build(self, index: pg_sys::Oid, form: IndexForm) -> bool {
        // The server would raise the first conflict as an error.
        !form.is_unique
            || match self {
                ConflictSearch::None => true,
                ConflictSearch::Sorted(certain) => certain.contains(&index),
                ConflictSearch::Searched => false,
            }
    }
}

/// Are the index's keys unique at any time?
pub(super) fn is_unique(index: Relation<'_>) -> bool {
    index.index().is_some_and(|form| form.is_immediate && form.is_unique)
}

/// Can conflicts in an index be found only by searching for each row?
pub(super) fn needs_checks(index: Relation<'_>) -> bool {
    let is_btree = index.access_method() == pg_sys::BTREE_AM_OID;
    index.index().is_some_and(|form| form.is_immediate && (form.is_exclusion || (form.is_unique && !is_btree)))
}
