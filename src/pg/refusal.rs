//! Why a query that runs is not a load.
//!
//! What would have been a load is found out where a plan is run, and EXPLAIN asks for it when it has been run: by the
//! query's state, which both know. What is said lives as long as that. Queries run within others, so there may be several.

use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::pg_sys;

/// What was said of a query.
#[derive(Debug)]
struct Refusal {
    query: *const pg_sys::EState,
    why: String,
    /// Of a query that began before.
    before: *mut Refusal,
}

/// What was said last. All that it leads to is there: who goes takes himself out.
static LAST: AtomicPtr<Refusal> = AtomicPtr::new(null_mut());

impl Drop for Refusal {
    fn drop(&mut self) {
        let own: *mut Refusal = self;
        if LAST.compare_exchange(own, self.before, Relaxed, Relaxed).is_ok() {
            return;
        }
        let mut at = LAST.load(Relaxed);
        // SAFETY: what is listed has not been dropped, and only this process knows it.
        while let Some(refusal) = unsafe { at.as_mut() } {
            if refusal.before == own {
                refusal.before = self.before;
                return;
            }
            at = refusal.before;
        }
    }
}

/// Say it, if somebody may ask: EXPLAIN ANALYZE. Guarded.
///
/// # Safety
/// The state of a query that is run.
pub unsafe fn refuse(query: *const pg_sys::EState, why: &str) {
    // SAFETY: this function's contract covers the state.
    unsafe {
        if (*query).es_instrument == 0 {
            return;
        }
        let refusal = Refusal { query, why: why.into(), before: LAST.load(Relaxed) };
        LAST.store(PgMemoryContexts::For((*query).es_query_cxt).leak_and_drop_on_delete(refusal), Relaxed);
    }
}

/// What was said of a query.
pub fn refusal<'a>(query: *const pg_sys::EState) -> Option<&'a str> {
    let mut at = LAST.load(Relaxed).cast_const();
    // SAFETY: as in `drop`; the caller's query is there, and what was said of it lives as long.
    while let Some(refusal) = unsafe { at.as_ref() } {
        if refusal.query == query {
            return Some(&refusal.why);
        }
        at = refusal.before;
    }
    None
}
