//! Which way an index comes by the rows.

use pgrx::pg_sys;

use crate::load::direct::new_files::Rebuild;
use crate::load::direct::way::Way;
use crate::load::report::Why;

/// The way, and why. Guarded.
///
/// # Safety
/// An open index and its info.
pub(super) unsafe fn way(
    index: pg_sys::Relation,
    info: *const pg_sys::IndexInfo,
    rebuild: &mut Rebuild,
    losses: Losses<'_>,
    builds: bool,
) -> (Way, Why) {
    // SAFETY: this function's contract covers the argument; guarded calls.
    unsafe {
        let form = (*index).rd_index;
        let constraint = if (*form).indisexclusion { Why::Exclusion } else { Why::Deferrable };
        if !(*info).ii_ReadyForInserts {
            (Way::None, Why::Invalid)
        } else if !(*form).indimmediate && losses != Losses::None {
            (Way::Late, constraint)
        } else if ((*form).indisunique || (*form).indisexclusion) && losses == Losses::Looked {
            (Way::Careful, if (*form).indisexclusion { constraint } else { Why::OneByOne })
        } else if !(*form).indimmediate || (*form).indisexclusion {
            (Way::RowByRow, constraint)
        } else {
            let certain = builds && losses.may_build(index);
            let (new_file, why) =
                if certain { rebuild.choose(index) } else { (None, rebuild.insertion(Why::OneByOne)) };
            let inserted = if (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID {
                Way::Sorted(std::ptr::null_mut())
            } else {
                Way::RowByRow
            };
            (new_file.unwrap_or(inserted), why)
        }
    }
}

/// How rows are found that lose to an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Losses<'a> {
    /// The first one is an error.
    None,
    /// Equal keys are next to each other in a sort, or among the keys that these indexes are certainly built from.
    Sorted(&'a [pg_sys::Oid]),
    /// Each row is looked for.
    Looked,
}

impl Losses<'_> {
    /// Can an index be built, whatever its keys are? If it is unique, by ourselves only.
    ///
    /// # Safety
    /// An open B-tree, or an index that is not unique.
    unsafe fn may_build(self, index: pg_sys::Relation) -> bool {
        // SAFETY: this function's contract covers the argument; an index has a type for each key.
        unsafe {
            let form = &*(*index).rd_index;
            if !form.indisunique || self == Losses::None {
                return true;
            }
            // The server, which builds what we cannot, would raise the first loss.
            match self {
                Losses::Sorted(certain) => certain.contains(&form.indexrelid),
                Losses::None | Losses::Looked => false,
            }
        }
    }
}

/// Are its keys unique at any time?
///
/// # Safety
/// An open index.
pub(super) unsafe fn is_unique(index: pg_sys::Relation) -> bool {
    // SAFETY: this function's contract covers the argument.
    unsafe { (*(*index).rd_index).indimmediate && (*(*index).rd_index).indisunique }
}

/// Can rows that lose to an index be found only by looking for each? Guarded.
///
/// # Safety
/// An open index.
pub(super) unsafe fn wants_care(index: pg_sys::Relation) -> bool {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let form = (*index).rd_index;
        let is_btree = (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID;
        (*form).indimmediate && ((*form).indisexclusion || ((*form).indisunique && !is_btree))
    }
}
