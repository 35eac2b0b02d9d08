//! Translates expressions between levels of a query: a subquery's columns to its target list, and a table's columns to
//! the row that a load reads.

use std::ffi::c_void;
use std::ptr::null_mut;

use pgrx::{pg_guard, pg_sys};

use crate::server::compat;

/// The replacement for the columns of a relation.
struct Translation {
    /// Its range table index.
    place: i32,
    /// The target list with the replacements; null for columns of the row that a load reads.
    targets: *mut pg_sys::List,
}

/// A copy in which a subquery's columns are replaced by its target list. Guarded.
///
/// # Safety
/// An expression, a list of them, or null; the subquery's target list.
pub unsafe fn through_subquery(node: *mut pg_sys::Node, place: u32, targets: *mut pg_sys::List) -> *mut pg_sys::Node {
    let mut translation = Translation { place: place.cast_signed(), targets };
    // SAFETY: this function's contract covers both arguments; the translation outlives the walk.
    unsafe { mutate(node, (&raw mut translation).cast()) }
}

/// A copy in which a table's columns are those of the row that a load reads, as in the plan of a custom scan. Guarded.
///
/// # Safety
/// An expression, a list of them, or null.
pub unsafe fn to_row(node: *mut pg_sys::Node, place: u32) -> *mut pg_sys::Node {
    let mut translation = Translation { place: place.cast_signed(), targets: null_mut() };
    // SAFETY: as above. fix_opfuncids as in set_plan_references (setrefs.c).
    unsafe {
        let node = mutate(node, (&raw mut translation).cast());
        pg_sys::fix_opfuncids(node);
        node
    }
}

/// A copy without PlaceHolderVars: expressions are always evaluated where the rows are read. Guarded.
///
/// # Safety
/// An expression, a list of them, or null.
pub unsafe fn bare(node: *mut pg_sys::Node) -> *mut pg_sys::Node {
    let mut translation = Translation { place: i32::MIN, targets: null_mut() };
    // SAFETY: as above; no relation has this index.
    unsafe { mutate(node, (&raw mut translation).cast()) }
}

/// # Safety
/// Called with the nodes of an expression, and a translation.
#[pg_guard]
unsafe extern "C-unwind" fn mutate(node: *mut pg_sys::Node, context: *mut c_void) -> *mut pg_sys::Node {
    // SAFETY: this function's contract covers both arguments; tags give the node types.
    unsafe {
        if node.is_null() {
            return node;
        }
        let translation = &*context.cast::<Translation>();
        match (*node).type_ {
            pg_sys::NodeTag::T_PlaceHolderVar => {
                return mutate((*node.cast::<pg_sys::PlaceHolderVar>()).phexpr.cast(), context);
            }
            pg_sys::NodeTag::T_Var => {
                let var = node.cast::<pg_sys::Var>();
                // Whole-row and system columns stay; no load reads them.
                if (*var).varno == translation.place && (*var).varlevelsup == 0 && (*var).varattno > 0 {
                    if translation.targets.is_null() {
                        let copy = pg_sys::copyObjectImpl(node.cast()).cast::<pg_sys::Var>();
                        (*copy).varno = pg_sys::INDEX_VAR as _;
                        (*copy).varnosyn = 0;
                        return copy.cast();
                    }
                    let entry = pg_sys::get_tle_by_resno(translation.targets, (*var).varattno);
                    if let Some(entry) = entry.as_ref() {
                        return pg_sys::copyObjectImpl(entry.expr.cast()).cast();
                    }
                }
            }
            _ => (),
        }
        compat::expression_tree_mutator(node, mutate, context)
    }
}
