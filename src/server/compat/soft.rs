//! Calls input functions without raising: soft errors from 16 on, caught errors before.

use pgrx::pg_sys;

#[cfg(feature = "pg15")]
use crate::server::attempt::{in_subtransaction, quiet_complaint};
#[cfg(feature = "pg15")]
use crate::server::unguarded;

/// Result of an input function.
#[derive(Debug)]
pub enum Soft {
    /// A value.
    Good(pg_sys::Datum),
    /// The string is no value of the type. Holds the function's error, in the current memory context, if `details` were
    /// requested.
    Bad(*mut pg_sys::ErrorData),
    /// Another error. Only before 16, where all errors are caught; from 16 on this error is raised.
    #[cfg_attr(not(feature = "pg15"), expect(dead_code, reason = "raised, not returned"))]
    Raises,
}

/// Whether bad values of a type can be rejected without a subtransaction.
#[cfg(not(feature = "pg15"))]
pub fn is_survivable(_type_oid: pg_sys::Oid) -> bool {
    true
}

/// Whether bad values of a type can be rejected without a subtransaction. Guarded.
#[cfg(feature = "pg15")]
pub fn is_survivable(type_oid: pg_sys::Oid) -> bool {
    is_plain_scalar(type_oid)
}

/// `InputFunctionCallSafe`. Before 16, errors are caught (see [`crate::rows::soft`]). `details`: returns the error, too.
/// Guarded.
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
    details: bool,
) -> crate::error::Result<Soft> {
    let mut context = pg_sys::ErrorSaveContext {
        type_: pg_sys::NodeTag::T_ErrorSaveContext,
        details_wanted: details,
        ..Default::default()
    };
    let mut datum = pg_sys::Datum::from(0usize);
    // SAFETY: a guarded call of the input function with a string or null; the context outlives the call.
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
    Ok(if good { Soft::Good(datum) } else { Soft::Bad(context.error_data) })
}

/// `InputFunctionCallSafe`. Before 16, errors are caught (see [`crate::rows::soft`]). Guarded.
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
    _details: bool,
) -> crate::error::Result<Soft> {
    use crate::error::Error;
    use pgrx::PgSqlErrorCode as Code;

    let mut datum = pg_sys::Datum::from(0usize);
    // SAFETY: guarded calls; an error that is no complaint about the value ends the subtransaction.
    unsafe {
        if is_plain_scalar(type_oid) {
            let error = quiet_complaint(|| datum = unguarded::InputFunctionCall(function, string, typioparam, typmod));
            return Ok(if error.is_null() { Soft::Good(datum) } else { classify(type_oid, error) });
        }
        if pg_sys::IsInParallelMode() {
            let message = "cannot skip bad values of this type during a parallel operation";
            return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
                .hint("Set max_parallel_workers_per_gather to 0, or use on_error = stop."));
        }
        let error = in_subtransaction(|| datum = unguarded::InputFunctionCall(function, string, typioparam, typmod));
        Ok(if error.is_null() { Soft::Good(datum) } else { classify(type_oid, error) })
    }
}

/// Returns whether an error means a bad value. An error of a cancel request or a shutdown is raised again. Guarded.
///
/// # Safety
/// An error that was caught.
#[cfg(feature = "pg15")]
unsafe fn classify(type_oid: pg_sys::Oid, error: *mut pg_sys::ErrorData) -> Soft {
    use pgrx::PgSqlErrorCode as Code;
    // The class is the code's lowest twelve bits (ERRCODE_TO_CATEGORY).
    const CLASS: i32 = (1 << 12) - 1;
    // SAFETY: the error was caught; a guarded call that raises it.
    unsafe {
        let code = (*error).sqlerrcode;
        let is = |known: &[Code]| known.iter().any(|&k| k as i32 == code);
        if code & CLASS == (Code::ERRCODE_DATA_EXCEPTION as i32) & CLASS
            || is(&[Code::ERRCODE_CHECK_VIOLATION, Code::ERRCODE_NOT_NULL_VIOLATION])
            || (type_oid.to_u32() < pg_sys::FirstGenbkiObjectId && is(BUILTIN_COMPLAINTS))
        {
            return Soft::Bad(error);
        }
        if code & CLASS == (Code::ERRCODE_QUERY_CANCELED as i32) & CLASS {
            pg_sys::ReThrowError(error);
        }
    }
    Soft::Raises
}

/// Further SQLSTATEs for bad values, from input functions of the server's own types: text search, JSON paths, and types
/// that look names up.
#[cfg(feature = "pg15")]
const BUILTIN_COMPLAINTS: &[pgrx::PgSqlErrorCode] = {
    use pgrx::PgSqlErrorCode as Code;
    &[
        Code::ERRCODE_SYNTAX_ERROR,
        Code::ERRCODE_INVALID_NAME,
        Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
        Code::ERRCODE_UNDEFINED_OBJECT,
        Code::ERRCODE_UNDEFINED_FUNCTION,
        Code::ERRCODE_UNDEFINED_TABLE,
        Code::ERRCODE_INVALID_SCHEMA_NAME,
        Code::ERRCODE_AMBIGUOUS_FUNCTION,
    ]
};

/// Whether the type is one of the server's own scalar types, whose input function is C code that leaves nothing behind
/// when it raises. Types that look up names (regclass etc.), contain other types or run user-defined code are excluded.
#[cfg(feature = "pg15")]
fn is_plain_scalar(type_oid: pg_sys::Oid) -> bool {
    // SAFETY: guarded catalog lookups.
    unsafe {
        let (mut category, mut preferred) = (0, false);
        pg_sys::get_type_category_preferred(type_oid, &raw mut category, &raw mut preferred);
        // Excluded are arrays (A), composites (C), enums (E), pseudo-types (P), ranges (R), `unknown` (X), internal
        // types (Z) and categories that users define.
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
