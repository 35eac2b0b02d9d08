//! Detects whether this process has run user code.
//!
//! A process that ran a trigger, or a function of a procedural language, may be in another state than before.
//! Libraries, callbacks and variables of an interpreter that such code leaves behind are listed nowhere, and no command
//! removes them. Built-in functions leave behind only state that DISCARD ALL resets, and only if they are volatile:
//! set_config, lo_creat.
//!
//! So hooks of the server report the functions that it looks up or prepares to call. It does not look up built-in
//! functions, but for expressions it calls the hook for object access. Functions that it calls without either hook (a
//! type's own input function, an operator of an index) are built in, and only compute.
//!
//! A hook of another extension may raise an error, so these are plain frames.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pgrx::pg_sys;

use super::unguarded::{self, Opaque};

static WATCHING: AtomicBool = AtomicBool::new(false);
static SEEN: AtomicBool = AtomicBool::new(false);

/// PROVOLATILE_VOLATILE (pg_proc.h)
const VOLATILE: u8 = b'v';

/// Hooks that were set before. Written once, before the hooks are replaced.
static mut BEFORE: Hooks = Hooks { looks_up: None, calls: None, accesses: None };

struct Hooks {
    looks_up: pg_sys::needs_fmgr_hook_type,
    calls: pg_sys::fmgr_hook_type,
    accesses: pg_sys::object_access_hook_type,
}

/// Set the hooks. To be called once, in a background worker of the queue.
pub fn prepare() {
    // SAFETY: variables of this process, which has one thread; the library is never unloaded.
    unsafe {
        BEFORE =
            Hooks { looks_up: pg_sys::needs_fmgr_hook, calls: pg_sys::fmgr_hook, accesses: pg_sys::object_access_hook };
        pg_sys::needs_fmgr_hook = Some(looks_up);
        pg_sys::fmgr_hook = Some(calls);
        pg_sys::object_access_hook = Some(accesses);
    }
}

/// From now on, code that runs is user code, until [`look_away`].
pub fn watch() {
    WATCHING.store(true, Relaxed);
}

/// From now on, code that runs is pg_bulk's own.
pub fn look_away() {
    WATCHING.store(false, Relaxed);
}

/// Has this process run user code?
pub fn was_run() -> bool {
    SEEN.load(Relaxed)
}

fn saw() {
    if WATCHING.load(Relaxed) {
        SEEN.store(true, Relaxed);
    }
}

/// Hook for the lookup of a function that is not built in. Returns whether [`calls`] is called for it.
unsafe extern "C-unwind" fn looks_up(function: pg_sys::Oid) -> bool {
    saw();
    // SAFETY: written once; calls the earlier hook. No destructors here.
    unsafe { BEFORE.looks_up.is_some_and(|before| before(function)) }
}

/// Hook for functions with another user's privileges or settings of their own, for which the other hook is not called.
unsafe extern "C-unwind" fn calls(
    event: pg_sys::FmgrHookEventType::Type,
    function: *mut pg_sys::FmgrInfo,
    private: *mut pg_sys::Datum,
) {
    saw();
    // SAFETY: written once; calls the earlier hook. No destructors here.
    unsafe {
        if let Some(before) = BEFORE.calls {
            before(event, function, private);
        }
    }
}

unsafe extern "C-unwind" fn accesses(
    access: pg_sys::ObjectAccessType::Type,
    class: pg_sys::Oid,
    object: pg_sys::Oid,
    part: c_int,
    argument: Opaque,
) {
    // SAFETY: written once; calls the earlier hook, and looks up a function that is about to be called. Nothing in this
    // frame has a destructor.
    unsafe {
        if WATCHING.load(Relaxed)
            && access == pg_sys::ObjectAccessType::OAT_FUNCTION_EXECUTE
            && unguarded::func_volatile(object).cast_unsigned() == VOLATILE
        {
            saw();
        }
        if let Some(before) = BEFORE.accesses {
            before(access, class, object, part, argument);
        }
    }
}
