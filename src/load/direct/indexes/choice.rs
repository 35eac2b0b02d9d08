//! Chooses the strategy of an index.

use pgrx::pg_sys;

use crate::load::direct::new_files::Rebuild;
use crate::load::direct::strategy::IndexStrategy;
use crate::load::report::Why;

/// The strategy, and the reason. Guarded.
///
/// # Safety
/// The index is open, and `info` is its info.
pub(super) unsafe fn strategy(
    index: pg_sys::Relation,
    info: *const pg_sys::IndexInfo,
    rebuild: &mut Rebuild,
    search: ConflictSearch<'_>,
    builds: bool,
) -> (IndexStrategy, Why) {
    // SAFETY: this function's contract covers the argument; guarded calls.
    unsafe {
        let form = (*index).rd_index;
        let constraint = if (*form).indisexclusion { Why::Exclusion } else { Why::Deferrable };
        if !(*info).ii_ReadyForInserts {
            (IndexStrategy::None, Why::Invalid)
        } else if !(*form).indimmediate && search != ConflictSearch::None {
            (IndexStrategy::InsertLate, constraint)
        } else if ((*form).indisunique || (*form).indisexclusion) && search == ConflictSearch::Searched {
            (IndexStrategy::InsertChecked, if (*form).indisexclusion { constraint } else { Why::OneByOne })
        } else if !(*form).indimmediate || (*form).indisexclusion {
            (IndexStrategy::InsertRows, constraint)
        } else {
            let certain = builds && search.may_build(index);
            let (new_file, why) =
                if certain { rebuild.choose(index) } else { (None, rebuild.insertion(Why::OneByOne)) };
            let inserted = if (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID {
                IndexStrategy::InsertSorted(std::ptr::null_mut())
            } else {
                IndexStrategy::InsertRows
            };
            (new_file.unwrap_or(inserted), why)
        }
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
    ///
    /// # Safety
    /// The index is an open B-tree, or not unique.
    unsafe fn may_build(self, index: pg_sys::Relation) -> bool {
        // SAFETY: this function's contract covers the argument; an index has a type for each key.
        unsafe {
            let form = &*(*index).rd_index;
            if !form.indisunique || self == ConflictSearch::None {
                return true;
            }
            // The server would raise the first conflict as an error.
            match self {
                ConflictSearch::Sorted(certain) => certain.contains(&form.indexrelid),
                ConflictSearch::None | ConflictSearch::Searched => false,
            }
        }
    }
}

/// Are the index's keys unique at any time?
///
/// # Safety
/// The index is open.
pub(super) unsafe fn is_unique(index: pg_sys::Relation) -> bool {
    // SAFETY: this function's contract covers the argument.
    unsafe { (*(*index).rd_index).indimmediate && (*(*index).rd_index).indisunique }
}

/// Can conflicts in an index be found only by searching for each row? Guarded.
///
/// # Safety
/// The index is open.
pub(super) unsafe fn needs_checks(index: pg_sys::Relation) -> bool {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let form = (*index).rd_index;
        let is_btree = (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID;
        (*form).indimmediate && ((*form).indisexclusion || ((*form).indisunique && !is_btree))
    }
}
