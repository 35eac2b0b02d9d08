//! Expressions of one place of a query, said in terms of another: what a subquery's columns stand for, and what a table's
//! columns are to a load.

use std::ffi::c_void;
use std::ptr::null_mut;

use pgrx::{pg_guard, pg_sys};

use crate::pg::compat;

/// What the columns of a relation become.
struct Translation {
    /// Its place in the range table.
    place: i32,
    /// The target list that they stand for; null if they are those of a row that a load reads.
    targets: *mut pg_sys::List,
}

/// A copy in which the columns of the subquery at a place are what its target list says. Guarded.
///
/// # Safety
/// An expression, a list of them, or null; the subquery's target list.
pub unsafe fn through_subquery(node: *mut pg_sys::Node, place: u32, targets: *mut pg_sys::List) -> *mut pg_sys::Node {
    let mut translation = Translation { place: place.cast_signed(), targets };
    // SAFETY: this function's contract covers both arguments; the translation outlives the walk.
    unsafe { mutate(node, (&raw mut translation).cast()) }
}

/// A copy in which the columns of the table at a place are those of the row that a load reads, as in the plan of a custom
/// scan. Guarded.
///
/// # Safety
/// An expression, a list of them, or null.
pub unsafe fn to_row(node: *mut pg_sys::Node, place: u32) -> *mut pg_sys::Node {
    let mut translation = Translation { place: place.cast_signed(), targets: null_mut() };
    // SAFETY: as above. What set_plan_references (setrefs.c) does to expressions besides.
    unsafe {
        let node = mutate(node, (&raw mut translation).cast());
        pg_sys::fix_opfuncids(node);
        node
    }
}

/// A copy without the planner's marks for where an expression is evaluated: that is where the rows are read, in all cases.
/// Guarded.
///
/// # Safety
/// An expression, a list of them, or null.
pub unsafe fn bare(node: *mut pg_sys::Node) -> *mut pg_sys::Node {
    let mut translation = Translation { place: i32::MIN, targets: null_mut() };
    // SAFETY: as above; no relation is there.
    unsafe { mutate(node, (&raw mut translation).cast()) }
}

/// # Safety
/// Called with the nodes of an expression, and a translation.
#[pg_guard]
unsafe extern "C-unwind" fn mutate(node: *mut pg_sys::Node, context: *mut c_void) -> *mut pg_sys::Node {
    // SAFETY: this function's contract covers both arguments; tags say what nodes are.
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
                // A whole row, or what no column is, stays: nobody takes it.
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
