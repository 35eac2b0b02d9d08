//! The functions `bulk_load` of a path and of bytes: arguments in, a row out.
//!
//! Both are plain frames (see `server`), because [`perform`] runs user code. The steps before and after it are guarded.

use pgrx::pg_sys;

use super::definer::Allowed;
use super::options::given::Given;
use super::{Load, Purpose, begin, perform};
use crate::error::{OrRaise, Result};
use crate::input::source::Bytes;
use crate::server::function::{Call, missing, version_1};
use crate::server::unguarded::guarded;

version_1!(pg_finfo_bulk_load);

/// `bulk_load(path, target, options, allow)`.
///
/// # Safety
/// Called by the executor, with three arguments, or with four.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_load(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the executor's call, in a frame that owns nothing.
    unsafe { answer(fcinfo, Purpose::Call, false, deliver) }
}

version_1!(pg_finfo_bulk_load_bytea);

/// `bulk_load(data, target, options, allow)`.
///
/// # Safety
/// Called by the executor, with three arguments, or with four.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_load_bytea(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the executor's call, in a frame that owns nothing.
    unsafe { answer(fcinfo, Purpose::Call, true, deliver) }
}

/// Returns the row of a load to the executor. Guarded.
fn deliver(load: &Load, call: &Call<'_>) -> Result<()> {
    call.rows().put(&load.result())
}

/// Runs the load of a call.
///
/// # Safety
/// A plain frame, with a call of the executor.
pub(super) unsafe fn answer(
    fcinfo: pg_sys::FunctionCallInfo,
    purpose: Purpose,
    is_data: bool,
    deliver: fn(&Load, &Call<'_>) -> Result<()>,
) -> pg_sys::Datum {
    // SAFETY: the call, its arguments and the load last as long as this frame. One step at a time uses the load; the last
    // one drops it.
    unsafe {
        let caller = pg_sys::CurrentMemoryContext;
        let load = guarded(|| begin_call(&Call::from_raw(fcinfo), purpose, is_data));
        perform(load);
        pg_sys::CurrentMemoryContext = caller;
        guarded(|| deliver(&*load, &Call::from_raw(fcinfo)).or_raise());
        guarded(|| (*load).memory.delete());
        pg_sys::Datum::from(0usize)
    }
}

/// Parses the arguments of a call that lasts as long as its load. The first one is a path, or bytes. Guarded.
fn begin_call(call: &Call<'_>, purpose: Purpose, is_data: bool) -> *mut Load {
    call.rows();
    // SAFETY: an argument of type bytea, which lasts as long as the call.
    let data = call.datum(0).filter(|_| is_data).map(|data| unsafe { Bytes::of_datum(data) });
    let path = if is_data { None } else { call.argument(0).or_raise().into_optional_text() };
    let given = match (&path, data) {
        (_, Some(data)) => Given::Data(data),
        (Some(path), None) => Given::Path(path),
        (None, None) if is_data => missing("data").raise(),
        (None, None) => Given::Nothing,
    };
    let target = call.required(1, "target").or_raise().as_oid();
    let json = call.jsonb(2, "options").or_raise();
    let allowed = Allowed::by_call(call).or_raise();
    begin(given, target, json, &allowed, call.schema(), purpose)
}
