//! Restrictions on the expressions of an INSERT that a load replaces.

use std::ffi::c_void;

use pgrx::{pg_guard, pg_sys};

use super::{Answer, no};
use crate::program::volatile;

/// Checks an expression over the rows of the file. Guarded.
///
/// # Safety
/// An expression, a list of them, or null; the range table index of the foreign table.
pub unsafe fn of_expression(node: *mut pg_sys::Node, place: usize, foreign: pg_sys::Oid) -> Answer<()> {
    let mut search = Search { place, foreign, why: "" };
    // SAFETY: this function's contract covers the node; the search outlives the walk.
    unsafe {
        if search_node(node, (&raw mut search).cast()) {
            return no(search.why);
        }
        if let Some(call) = volatile::call_in(node) {
            return Err(format!("An expression {call}."));
        }
        if takes_ids(node, std::ptr::null_mut()) {
            // Defaults may take ids of the same sequence, and take many at a time.
            return no("An expression calls nextval.");
        }
    }
    Ok(())
}

/// Does an expression call currval or lastval? A load takes many ids at a time without updating these.
///
/// # Safety
/// Called with the nodes of an expression.
#[pg_guard]
pub unsafe extern "C-unwind" fn asks_for_last_id(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
    // SAFETY: this function's contract covers the node; guarded calls.
    unsafe {
        !node.is_null()
            && (pg_sys::check_functions_in_node(node, Some(is_last_id), context)
                || pg_sys::expression_tree_walker(node, Some(asks_for_last_id), context))
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn is_last_id(function: pg_sys::Oid, _context: *mut c_void) -> bool {
    [pg_sys::F_CURRVAL, pg_sys::F_LASTVAL].contains(&function.to_u32())
}

/// Does an expression call nextval?
///
/// # Safety
/// Called with the nodes of an expression.
#[pg_guard]
pub unsafe extern "C-unwind" fn takes_ids(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
    // SAFETY: this function's contract covers the node; guarded calls.
    unsafe {
        !node.is_null()
            && ((*node).type_ == pg_sys::NodeTag::T_NextValueExpr
                || pg_sys::check_functions_in_node(node, Some(is_nextval), context)
                || pg_sys::expression_tree_walker(node, Some(takes_ids), context))
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn is_nextval(function: pg_sys::Oid, _context: *mut c_void) -> bool {
    function.to_u32() == pg_sys::F_NEXTVAL
}

struct Search {
    place: usize,
    foreign: pg_sys::Oid,
    why: &'static str,
}

/// # Safety
/// Called with the nodes of an expression, and a search.
#[pg_guard]
unsafe extern "C-unwind" fn search_node(node: *mut pg_sys::Node, search: *mut c_void) -> bool {
    // SAFETY: this function's contract covers both arguments; tags give the node types.
    unsafe {
        if node.is_null() {
            return false;
        }
        let state = &mut *search.cast::<Search>();
        state.why = match (*node).type_ {
            pg_sys::NodeTag::T_Param => "An expression has a parameter.",
            pg_sys::NodeTag::T_SubPlan | pg_sys::NodeTag::T_AlternativeSubPlan | pg_sys::NodeTag::T_SubLink => {
                "An expression has a subquery."
            }
            pg_sys::NodeTag::T_Var => {
                let var = node.cast::<pg_sys::Var>();
                let is_ours = usize::try_from((*var).varno) == Ok(state.place) && (*var).varlevelsup == 0;
                if is_ours && (*var).varattno > 0 && pg_sys::get_attgenerated(state.foreign, (*var).varattno) == 0 {
                    return false;
                }
                "An expression reads a generated column, a system column, a whole row or another table."
            }
            _ => return pg_sys::expression_tree_walker(node, Some(search_node), search),
        };
        true
    }
}
