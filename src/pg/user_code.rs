//! Has this process run code that somebody wrote for it?
//!
//! A process that ran a trigger, say, or a function of somebody's procedural language, may not be what it was: what such
//! code leaves behind (libraries, callbacks, an interpreter's variables) is nowhere listed, and nothing undoes it. That
//! of the server itself leaves behind only what DISCARD ALL undoes, and only where it is volatile: set_config, lo_creat.
//!
//! So the server is asked to say which functions it looks up or gets ready to call. Those that are built in it does not
//! look up, but for expressions it tells whoever watches the access to objects. What it calls without either (a type's
//! own input function, an operator of an index) is built in, and only computes.
//!
//! Whoever watched before may refuse, by an error: so these are plain frames.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pgrx::pg_sys;

use super::unguarded::{self, Opaque};

static WATCHING: AtomicBool = AtomicBool::new(false);
static SEEN: AtomicBool = AtomicBool::new(false);

/// PROVOLATILE_VOLATILE (pg_proc.h)
const VOLATILE: u8 = b'v';

/// Who watched before us. Written once, before we do.
static mut BEFORE: Hooks = Hooks { looks_up: None, calls: None, accesses: None };

struct Hooks {
    looks_up: pg_sys::needs_fmgr_hook_type,
    calls: pg_sys::fmgr_hook_type,
    accesses: pg_sys::object_access_hook_type,
}

/// From now on, see which code is run. To be called once, in a process of our own.
pub fn prepare() {
    // SAFETY: variables of this process, which has one thread; the functions are there as long as the library.
    unsafe {
        BEFORE =
            Hooks { looks_up: pg_sys::needs_fmgr_hook, calls: pg_sys::fmgr_hook, accesses: pg_sys::object_access_hook };
        pg_sys::needs_fmgr_hook = Some(looks_up);
        pg_sys::fmgr_hook = Some(calls);
        pg_sys::object_access_hook = Some(accesses);
    }
}

/// What is run from now on counts, until [`look_away`].
pub fn watch() {
    WATCHING.store(true, Relaxed);
}

/// What is run from now on is our own.
pub fn look_away() {
    WATCHING.store(false, Relaxed);
}

/// Was there any, ever?
pub fn was_run() -> bool {
    SEEN.load(Relaxed)
}

fn saw() {
    if WATCHING.load(Relaxed) {
        SEEN.store(true, Relaxed);
    }
}

/// A function that is not built in is looked up. The answer is whether [`calls`] is to hear of its calls.
unsafe extern "C-unwind" fn looks_up(function: pg_sys::Oid) -> bool {
    saw();
    // SAFETY: written once; passed on. Nothing in this frame has a destructor.
    unsafe { BEFORE.looks_up.is_some_and(|before| before(function)) }
}

/// Functions with rights or settings of their own are not looked up as others are, but come by here.
unsafe extern "C-unwind" fn calls(
    event: pg_sys::FmgrHookEventType::Type,
    function: *mut pg_sys::FmgrInfo,
    private: *mut pg_sys::Datum,
) {
    saw();
    // SAFETY: written once; passed on. Nothing in this frame has a destructor.
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
    // SAFETY: written once; passed on, and a catalog lookup of a function that is about to be called. Nothing in this frame has
    // a destructor.
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
