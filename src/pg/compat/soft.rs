//! Input functions that do not raise: the server's from 16 on; before, errors that are caught.

use pgrx::pg_sys;

#[cfg(feature = "pg15")]
use crate::pg::attempt::complaint;
#[cfg(feature = "pg15")]
use crate::pg::unguarded::{self, Opaque};

/// What an input function made of a string.
#[derive(Debug)]
pub enum Soft {
    /// A value.
    Good(pg_sys::Datum),
    /// Nothing: the string is no value of the type. With what the function says of it, in the current memory context,
    /// if that was asked for.
    Bad(*mut pg_sys::ErrorData),
    /// Another error. Only before 16, where it was caught; from 16 on it goes its way.
    #[cfg_attr(not(feature = "pg15"), expect(dead_code, reason = "raised, not returned"))]
    Raises,
}

/// Can bad values of a type be survived without a subtransaction?
#[cfg(not(feature = "pg15"))]
pub fn is_survivable(_type_oid: pg_sys::Oid) -> bool {
    true
}

/// Can bad values of a type be survived without a subtransaction? Guarded.
#[cfg(feature = "pg15")]
pub fn is_survivable(type_oid: pg_sys::Oid) -> bool {
    // SAFETY: guarded catalog lookups.
    unsafe { is_plain_scalar(type_oid) }
}

/// `InputFunctionCallSafe`. Before 16 the error is caught (see [`crate::pg::soft`]). Guarded. `details`: the complaint is
/// wanted.
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
    Ok(if good { Soft::Good(datum) } else { Soft::Bad(context.error_data) })
}

/// A call of an input function, for a plain frame.
#[cfg(feature = "pg15")]
struct Call {
    function: *mut pg_sys::FmgrInfo,
    string: *mut std::ffi::c_char,
    typioparam: pg_sys::Oid,
    typmod: i32,
    datum: pg_sys::Datum,
}

/// # Safety
/// A plain frame, and a valid call.
#[cfg(feature = "pg15")]
unsafe extern "C-unwind" fn run(call: Opaque) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let call = call.cast::<Call>();
        (*call).datum =
            unguarded::InputFunctionCall((*call).function, (*call).string, (*call).typioparam, (*call).typmod);
    }
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
    _details: bool,
) -> crate::error::Result<Soft> {
    use crate::error::Error;
    use pgrx::PgSqlErrorCode as Code;

    let mut call = Call { function, string, typioparam, typmod, datum: pg_sys::Datum::from(0usize) };
    let argument: Opaque = (&raw mut call).cast();
    // SAFETY: guarded calls; a subtransaction is begun and ended by the same owner and in the same context.
    unsafe {
        if is_plain_scalar(type_oid) {
            // Nobody reads the context of an error that is not raised.
            let context = pg_sys::error_context_stack;
            pg_sys::error_context_stack = std::ptr::null_mut();
            let error = complaint(run, argument);
            pg_sys::error_context_stack = context;
            return Ok(if error.is_null() { Soft::Good(call.datum) } else { judge(type_oid, error) });
        }
        if pg_sys::IsInParallelMode() {
            let message = "cannot skip bad values of this type during a parallel operation";
            return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
                .hint("Set max_parallel_workers_per_gather to 0, or use on_error = stop."));
        }
        let (owner, context) = (pg_sys::CurrentResourceOwner, pg_sys::CurrentMemoryContext);
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(context);
        let error = complaint(run, argument);
        pg_sys::MemoryContextSwitchTo(context);
        // A subtransaction left open would outlive the statement.
        if error.is_null() {
            pg_sys::ReleaseCurrentSubTransaction();
        } else {
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
        }
        pg_sys::MemoryContextSwitchTo(context);
        pg_sys::CurrentResourceOwner = owner;
        Ok(if error.is_null() { Soft::Good(call.datum) } else { judge(type_oid, error) })
    }
}

/// Does an error say that the value is bad? Guarded: one that says that somebody wants us to stop is raised again.
///
/// # Safety
/// An error that was caught.
#[cfg(feature = "pg15")]
unsafe fn judge(type_oid: pg_sys::Oid, error: *mut pg_sys::ErrorData) -> Soft {
    use pgrx::PgSqlErrorCode as Code;
    // The class is the code's lowest twelve bits (ERRCODE_TO_CATEGORY).
    const CLASS: i32 = (1 << 12) - 1;
    // SAFETY: this function's contract covers the error; a guarded call that raises it.
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

/// Further codes with which input functions of the server's own types say that a value is bad: of text search and
/// JSON paths, and of types that look names up.
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
