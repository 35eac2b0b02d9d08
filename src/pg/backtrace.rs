//! No backtraces in messages.
//!
//! pgrx appends a backtrace to the DETAIL of an error that passes one of its guards, where RUST_BACKTRACE or RUST_LIB_BACKTRACE is set
//! in the server's environment. A client has no use for it, and it shows addresses of the server's process.
//!
//! The standard library reads these variables once, when the first backtrace is captured, and remembers the answer. So the first one
//! is captured here, while RUST_LIB_BACKTRACE says 0. Then the environment is as it was: programs that the server starts, and other
//! libraries, whose standard library is their own, find in it what the administrator has set.

use std::backtrace::Backtrace;
use std::env;

/// It has precedence over RUST_BACKTRACE.
const VARIABLE: &str = "RUST_LIB_BACKTRACE";

/// Called when the library is loaded, before anything can fail. Background workers and parallel workers come here, too: they load the
/// library by themselves, or are forked from a postmaster that has.
pub fn forbid() {
    let before = env::var_os(VARIABLE);
    let is_set = before.is_some() || env::var_os("RUST_BACKTRACE").is_some();
    if is_set {
        // SAFETY: no other thread reads the environment now. A process of the server has one thread, in which it loads libraries; it sets
        // variables itself when a session begins (pg_perm_setlocale, pg_locale.c). The threads of this library start later, in loads.
        unsafe { env::set_var(VARIABLE, "0") };
    }
    drop(Backtrace::capture());
    if is_set {
        // SAFETY: as above.
        unsafe {
            match before {
                Some(value) => env::set_var(VARIABLE, value),
                None => env::remove_var(VARIABLE),
            }
        }
    }
}
