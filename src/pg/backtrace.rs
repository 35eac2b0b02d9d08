//! Keeps backtraces out of messages.
//!
//! pgrx appends a backtrace to the DETAIL of an error that passes one of its guards, if RUST_BACKTRACE or
//! RUST_LIB_BACKTRACE is set in the server's environment. A client cannot use a backtrace, which also shows addresses
//! of the server's process.
//!
//! The standard library reads these variables when the first backtrace is captured, and remembers the answer. So
//! [`forbid`] captures one while RUST_LIB_BACKTRACE is 0, and then restores the environment. Programs that the server
//! starts find the original variables. So do other libraries in Rust: each has a standard library of its own.

use std::backtrace::Backtrace;
use std::env;

/// This variable has precedence over RUST_BACKTRACE.
const VARIABLE: &str = "RUST_LIB_BACKTRACE";

/// Disables backtraces. Called when the library is loaded, before anything can fail. Background workers and parallel
/// workers load the library, too, or are forked from a postmaster that has loaded it.
pub fn forbid() {
    let before = env::var_os(VARIABLE);
    let is_set = before.is_some() || env::var_os("RUST_BACKTRACE").is_some();
    if is_set {
        // SAFETY: no other thread reads the environment now. A server process loads libraries in its only thread, and
        // sets variables itself when a session begins (pg_perm_setlocale, pg_locale.c). Loads start the threads of this
        // library later.
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
