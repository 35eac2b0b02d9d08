//! The functions `bulk_load` of a path and of bytes: arguments in, a row out.
//!
//! Both are plain frames (see `server`), because [`perform`] runs user code. The steps before and after it are guarded.

use pgrx::{pg_guard, pg_sys};

use super::definer::Allowed;
use super::options::given::Given;
use super::{Load, Purpose, begin, perform};
use crate::error::OrRaise;
use crate::input::source::Bytes;
use crate::server::function::{Call, missing, version_1};

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
    // SAFETY: the executor's call lasts as long as the caller's frame. A datum of type bytea lasts as long, too.
    let (call, data, purpose) = unsafe {
        let first = (*fcinfo).args.as_ptr().read();
        let data = (is_data && !first.isnull).then(|| Bytes::of_datum(first.value));
        (Call::from_raw(fcinfo), data, *purpose)
    };
    call.rows();
    let path = if is_data { None } else { call.argument(0).or_raise().into_optional_text() };
    let given = match (&path, data) {
        (_, Some(data)) => Given::Data(data),
        (Some(path), None) => Given::Path(path),
        (None, None) if is_data => missing("data").raise(),
        (None, None) => Given::Nothing,
    };
    let target = call.required(1, "target").or_raise().as_oid();
    let json = call.jsonb(2, "options").or_raise();
    let allowed = Allowed::by_call(&call).or_raise();
    begin(given, target, json, &allowed, call.schema(), purpose)
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
            Call::from_raw(fcinfo).rows().put(&(*load).result()).or_raise();
        }
        pg_sys::MemoryContextDelete((*load).memory);
    }
}
