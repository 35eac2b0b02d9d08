//! Input functions that do not raise: the server's from 16 on; before, errors that are caught.

use pgrx::pg_sys;

/// What an input function made of a string.
#[derive(Debug)]
pub enum Soft {
    /// A value.
    Good(pg_sys::Datum),
    /// Nothing: the string is no value of the type.
    Bad,
    /// Another error. Only before 16, where it was caught; from 16 on it goes its way.
    #[cfg_attr(not(feature = "pg15"), expect(dead_code, reason = "raised, not returned"))]
    Raises,
}

/// `InputFunctionCallSafe`. Before 16 the error is caught (see [`crate::pg::soft`]). Guarded.
///
/// # Safety
/// `function` is the input function of `type_oid`; `string` is NUL-terminated, or null for NULL.
#[cfg(not(feature = "pg15"))]
pub unsafe fn input_function_call_soft(
    function: *mut pg_sys::FmgrInfo,
    string: *mut std::ffi::c_char,
    typioparam: pg_sys::Oid,
    typmod: i32,
    _type_oid: pg_sys::Oid,
) -> crate::error::Result<Soft> {
    let mut context = pg_sys::ErrorSaveContext { type_: pg_sys::NodeTag::T_ErrorSaveContext, ..Default::default() };
    let mut datum = pg_sys::Datum::from(0usize);
    // SAFETY: passed on; the context outlives the call.
    let good = unsafe {
        pg_sys::InputFunctionCallSafe(
            function,
            string,
            typioparam,
            typmod,
            (&raw mut context).cast::<pg_sys::Node>(),
            &raw mut datum,
        )
    };
    Ok(if good { Soft::Good(datum) } else { Soft::Bad })
}

/// `InputFunctionCallSafe`. Before 16 the error is caught (see [`crate::pg::soft`]). Guarded.
///
/// # Safety
/// `function` is the input function of `type_oid`; `string` is NUL-terminated, or null for NULL.
#[cfg(feature = "pg15")]
pub unsafe fn input_function_call_soft(
    function: *mut pg_sys::FmgrInfo,
    string: *mut std::ffi::c_char,
    typioparam: pg_sys::Oid,
    typmod: i32,
    type_oid: pg_sys::Oid,
) -> crate::error::Result<Soft> {
    use crate::error::Error;
    use pgrx::PgSqlErrorCode as Code;

    // SAFETY: guarded calls; a subtransaction is begun and ended by the same owner and in the same context.
    unsafe {
        let call = || pg_sys::InputFunctionCall(function, string, typioparam, typmod);
        if is_plain_scalar(type_oid) {
            return Ok(catch_bad_value(type_oid, call, || ()));
        }
        if pg_sys::IsInParallelMode() {
            let message = "cannot survive bad values of this type during a parallel operation";
            return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
                .hint("Set max_parallel_workers_per_gather to 0, or use on_error 'stop'."));
        }
        let (owner, context) = (pg_sys::CurrentResourceOwner, pg_sys::CurrentMemoryContext);
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(context);
        let roll_back = || {
            pg_sys::MemoryContextSwitchTo(context);
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
            pg_sys::MemoryContextSwitchTo(context);
            pg_sys::CurrentResourceOwner = owner;
        };
        let caught = catch_bad_value(type_oid, call, roll_back);
        if matches!(caught, Soft::Good(_)) {
            pg_sys::ReleaseCurrentSubTransaction();
            pg_sys::MemoryContextSwitchTo(context);
            pg_sys::CurrentResourceOwner = owner;
        }
        Ok(caught)
    }
}

/// Is this one of the server's own scalar types, whose input function is C and leaves nothing behind when it raises?
/// Types that look things up (regclass and its kin), hold other types or run user code are not.
#[cfg(feature = "pg15")]
unsafe fn is_plain_scalar(type_oid: pg_sys::Oid) -> bool {
    // SAFETY: guarded catalog lookups.
    unsafe {
        let (mut category, mut preferred) = (0, false);
        pg_sys::get_type_category_preferred(type_oid, &raw mut category, &raw mut preferred);
        // Arrays (A), composites (C), enums (E), pseudo-types (P), ranges (R) and what is unknown are left out.
        let scalar = matches!(category.cast_unsigned(), b'B' | b'D' | b'G' | b'I' | b'N' | b'S' | b'T' | b'V' | b'U');
        type_oid.to_u32() < pg_sys::FirstGenbkiObjectId
            && scalar
            && pg_sys::get_typtype(type_oid).cast_unsigned() == b'b'
            && !is_reg_type(type_oid)
    }
}

#[cfg(feature = "pg15")]
fn is_reg_type(type_oid: pg_sys::Oid) -> bool {
    [
        pg_sys::REGPROCOID,
        pg_sys::REGPROCEDUREOID,
        pg_sys::REGOPEROID,
        pg_sys::REGOPERATOROID,
        pg_sys::REGCLASSOID,
        pg_sys::REGCOLLATIONOID,
        pg_sys::REGTYPEOID,
        pg_sys::REGROLEOID,
        pg_sys::REGNAMESPACEOID,
        pg_sys::REGCONFIGOID,
        pg_sys::REGDICTIONARYOID,
    ]
    .contains(&type_oid)
}

/// Run `call`; and tell an error that says that the value is bad from others. After either, `clean_up`
/// has run: a subtransaction left open would outlive the statement.
#[cfg(feature = "pg15")]
fn catch_bad_value(type_oid: pg_sys::Oid, call: impl FnOnce() -> pg_sys::Datum, clean_up: impl FnOnce()) -> Soft {
    use pgrx::pg_sys::panic::CaughtError;
    use pgrx::{PgSqlErrorCode as Code, PgTryBuilder};
    use std::panic::AssertUnwindSafe;

    let outcome = PgTryBuilder::new(AssertUnwindSafe(|| Ok(call()))).catch_others(|e| Err(Box::new(e))).execute();
    let error = match outcome {
        Ok(datum) => return Soft::Good(datum),
        Err(error) => error,
    };
    clean_up();
    let code = match &*error {
        CaughtError::PostgresError(e) | CaughtError::ErrorReport(e) => Some(e.sql_error_code()),
        CaughtError::RustPanic { .. } => None,
    };
    let bad_value = code.is_some_and(|code| {
        // The class is the code's lowest twelve bits (ERRCODE_TO_CATEGORY).
        const CLASS: i32 = (1 << 12) - 1;
        (code as i32) & CLASS == (Code::ERRCODE_DATA_EXCEPTION as i32) & CLASS
            || matches!(code, Code::ERRCODE_CHECK_VIOLATION | Code::ERRCODE_NOT_NULL_VIOLATION)
            || (type_oid.to_u32() < pg_sys::FirstGenbkiObjectId && is_builtin_complaint(code))
    });
    if bad_value { Soft::Bad } else { Soft::Raises }
}

/// Further codes with which input functions of the server's own types say that a value is bad: of text search and
/// JSON paths, and of types that look names up.
#[cfg(feature = "pg15")]
fn is_builtin_complaint(code: pgrx::PgSqlErrorCode) -> bool {
    use pgrx::PgSqlErrorCode as Code;
    matches!(
        code,
        Code::ERRCODE_SYNTAX_ERROR
            | Code::ERRCODE_INVALID_NAME
            | Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED
            | Code::ERRCODE_UNDEFINED_OBJECT
            | Code::ERRCODE_UNDEFINED_FUNCTION
            | Code::ERRCODE_UNDEFINED_TABLE
            | Code::ERRCODE_INVALID_SCHEMA_NAME
            | Code::ERRCODE_AMBIGUOUS_FUNCTION
    )
}
