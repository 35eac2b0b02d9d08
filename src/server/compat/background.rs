//! Background workers: connections, signals and exit.

use std::ffi::c_int;

use pgrx::pg_sys;

use crate::server::unguarded::SignalHandler;

/// Whether a background worker can connect as a role that may not log in (BGWORKER_BYPASS_ROLELOGINCHECK).
pub const WORKERS_BYPASS_LOGIN: bool = cfg!(any(feature = "pg17", feature = "pg18"));

/// Flags for such a connection.
pub const CONNECT_FLAGS: u32 = if WORKERS_BYPASS_LOGIN { 2 } else { 0 };

/// `pqsignal`, which is two functions from 18 on.
///
/// # Safety
/// The handler is a signal handler for server processes.
pub unsafe fn set_signal_handler(signal: c_int, handler: SignalHandler) {
    unsafe extern "C-unwind" {
        #[cfg_attr(feature = "pg18", link_name = "pqsignal_be")]
        fn pqsignal(signal: c_int, handler: Option<SignalHandler>) -> *const std::ffi::c_void;
    }
    // SAFETY: installs a signal handler of the server; raises nothing. A returned handler is ignored.
    unsafe { pqsignal(signal, Some(handler)) };
}

/// Returns the virtual transaction of a process.
pub fn virtual_transaction(process: &pg_sys::PGPROC) -> pg_sys::VirtualTransactionId {
    #[cfg(any(feature = "pg15", feature = "pg16"))]
    return pg_sys::VirtualTransactionId { backendId: process.backendId, localTransactionId: process.lxid };
    #[cfg(not(any(feature = "pg15", feature = "pg16")))]
    return pg_sys::VirtualTransactionId { procNumber: process.vxid.procNumber, localTransactionId: process.vxid.lxid };
}

/// `proc_exit`, outside of a transaction. The binding for 18 does not declare that it never returns.
#[allow(unreachable_code)]
pub fn proc_exit(code: c_int) -> ! {
    // SAFETY: a guarded call.
    unsafe { pg_sys::proc_exit(code) };
    std::process::abort()
}
