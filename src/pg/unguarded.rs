//! C functions for plain frames: declared here without pgrx's guard.
//!
//! Each may raise an error and then jumps past its caller (see the rules in [`super`]); or it cannot raise, and the
//! line says why.
#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_void};

use pgrx::pg_sys;

unsafe extern "C-unwind" {
    /// fmgr.c. Runs a type's input function; null `str` for NULL.
    pub fn InputFunctionCall(
        flinfo: *mut pg_sys::FmgrInfo,
        str: *mut c_char,
        typioparam: pg_sys::Oid,
        typmod: i32,
    ) -> pg_sys::Datum;
    /// elog.c. Only within an error context callback.
    pub fn errcontext_msg(fmt: *const c_char, ...) -> c_int;
    /// elog.c. Only within an error context callback; stores a pointer.
    pub fn set_errcontext_domain(domain: *const c_char) -> c_int;
    /// mcxt.c. Frees memory; raises nothing.
    pub fn MemoryContextReset(context: pg_sys::MemoryContext);
    /// mbutils.c. Looks at bytes; raises nothing.
    pub fn pg_mbcliplen(mbstr: *const c_char, len: c_int, limit: c_int) -> c_int;
    /// postgres.c. Raises what is pending.
    pub fn ProcessInterrupts();
}

/// `CHECK_FOR_INTERRUPTS()` for plain frames.
///
/// # Safety
/// The caller is a plain frame.
#[inline(always)]
pub unsafe fn check_for_interrupts() {
    // SAFETY: a signal handler sets the flag; a volatile read, as in miscadmin.h, is all that is needed.
    if unsafe { std::ptr::read_volatile(&raw const pg_sys::InterruptPending) } != 0 {
        // SAFETY: the caller is a plain frame.
        unsafe { ProcessInterrupts() }
    }
}

/// `ExecEvalExprSwitchContext` (executor.h).
///
/// # Safety
/// The caller is a plain frame; both pointers are valid.
#[inline]
pub unsafe fn exec_eval_expr(
    state: *mut pg_sys::ExprState,
    econtext: *mut pg_sys::ExprContext,
    is_null: *mut bool,
) -> pg_sys::Datum {
    // SAFETY: the caller vouches for the pointers; the evaluation function is set by ExecInitExpr.
    unsafe {
        let old = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = (*econtext).ecxt_per_tuple_memory;
        let value = match (*state).evalfunc {
            Some(eval) => eval(state, econtext, is_null),
            None => pg_sys::Datum::from(0usize),
        };
        pg_sys::CurrentMemoryContext = old;
        value
    }
}

/// `ExecQual` (executor.h): a NULL qual is true, a NULL result false.
///
/// # Safety
/// The caller is a plain frame; `econtext` is valid, `qual` valid or null.
#[inline]
pub unsafe fn exec_qual(qual: *mut pg_sys::ExprState, econtext: *mut pg_sys::ExprContext) -> bool {
    if qual.is_null() {
        return true;
    }
    let mut is_null = false;
    // SAFETY: passed on; ExecInitQual makes expressions whose result is never NULL.
    unsafe { exec_eval_expr(qual, econtext, &raw mut is_null) }.value() != 0
}

/// An argument for callbacks that take a pointer to anything.
pub type Opaque = *mut c_void;
