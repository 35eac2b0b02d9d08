//! The functions `bulk_load` of a path and of bytes: arguments in, a row out.
//!
//! Both are plain frames (see `pg`), because [`perform`] runs user code. The steps before and after it are guarded.

use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::definer::Allowed;
use super::options::given::Given;
use super::{Load, Purpose, begin, perform, report};
use crate::error::{Error, OrRaise};
use crate::input::source::Bytes;
use crate::server::function::version_1;

version_1!(pg_finfo_bulk_load);

/// `bulk_load(path, target, options, allow)`.
///
/// # Safety
/// Called by the executor, with three arguments, or with four.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_load(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // A plain frame: nothing here has a destructor.
    // SAFETY: the load that `begin_call` makes is used by one step at a time; its strings live as long as it.
    unsafe {
        let caller = pg_sys::CurrentMemoryContext;
        let load = begin_call(fcinfo, Purpose::Call, false);
        perform(load);
        pg_sys::CurrentMemoryContext = caller;
        deliver(load, fcinfo);
        pg_sys::Datum::from(0usize)
    }
}

version_1!(pg_finfo_bulk_load_bytea);

/// `bulk_load(data, target, options, allow)`.
///
/// # Safety
/// Called by the executor, with three arguments, or with four.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_load_bytea(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // A plain frame: nothing here has a destructor.
    // SAFETY: as in `bulk_load`. The value lives as long as the call.
    unsafe {
        let caller = pg_sys::CurrentMemoryContext;
        let load = begin_call(fcinfo, Purpose::Call, true);
        perform(load);
        pg_sys::CurrentMemoryContext = caller;
        deliver(load, fcinfo);
        pg_sys::Datum::from(0usize)
    }
}

/// Parses the arguments of a call. The first one is a path, or bytes.
///
/// # Safety
/// Arguments as declared.
pub(super) unsafe fn begin_call(fcinfo: pg_sys::FunctionCallInfo, purpose: Purpose, is_data: bool) -> *mut Load {
    // SAFETY: same contract.
    unsafe { begin_guarded(fcinfo, &raw const purpose, is_data) }
}

/// # Safety
/// As [`begin_call`].
#[pg_guard]
unsafe extern "C-unwind" fn begin_guarded(
    fcinfo: pg_sys::FunctionCallInfo,
    purpose: *const Purpose,
    is_data: bool,
) -> *mut Load {
    // SAFETY: this function's contract covers the arguments; guarded calls.
    unsafe {
        pg_sys::InitMaterializedSRF(fcinfo, 0);
        let argument = |index: usize, name: &str| {
            let argument = *(*fcinfo).args.as_ptr().add(index);
            if argument.isnull {
                let message = format!("{name} must not be null");
                return Err(Error::new(Code::ERRCODE_NULL_VALUE_NOT_ALLOWED, message));
            }
            Ok(argument.value)
        };
        let first = (*(*fcinfo).args.as_ptr()).isnull;
        let first = if first && !is_data { None } else { Some(argument(0, "data").or_raise()) };
        let relid = argument(1, "target").or_raise();
        let json = argument(2, "options").or_raise();
        let string = |text: pg_sys::Datum| {
            CStr::from_ptr(pg_sys::text_to_cstring(pg_sys::pg_detoast_datum_packed(text.cast_mut_ptr()).cast()))
        };
        let given = match first {
            None => Given::Nothing,
            Some(data) if is_data => Given::Data(Bytes::of_datum(data)),
            Some(path) => Given::Path(string(path)),
        };
        let schema = pg_sys::get_func_namespace((*(*fcinfo).flinfo).fn_oid);
        let allowed = Allowed::by_call(fcinfo).or_raise();
        begin(given, pg_sys::Oid::from_u32(relid.value() as u32), json, &allowed, schema, *purpose)
    }
}

/// Stores the result where the executor expects it, and deletes the load.
///
/// # Safety
/// A finished load, and the call that it was made for. The current memory context is not the load's.
#[pg_guard]
unsafe extern "C-unwind" fn deliver(load: *mut Load, fcinfo: pg_sys::FunctionCallInfo) {
    // SAFETY: this function's contract covers both arguments; deleting the context drops the load.
    unsafe {
        {
            let load = &*load;
            let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            report::put_row(&mut *result, load.result());
        }
        pg_sys::MemoryContextDelete((*load).memory);
    }
}
