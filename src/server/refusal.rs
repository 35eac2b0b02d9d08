//! The reason why a query was not run as a load, for EXPLAIN.
//!
//! The eligibility check runs when the plan is executed; EXPLAIN ANALYZE asks for the reason afterwards. Both know the
//! executor state of the query, which is the key, and the reason lives as long as that state. Queries run inside
//! others, so several reasons may exist at once.

use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::pg_sys;

use super::node::Node;

/// The reason for one query.
#[derive(Debug)]
struct Refusal {
    query: *const pg_sys::EState,
    why: String,
    /// The reason of a query that began earlier.
    before: *mut Refusal,
}

/// The newest reason. Every reason in this list is valid: each removes itself when it is dropped.
static LAST: AtomicPtr<Refusal> = AtomicPtr::new(null_mut());

impl Drop for Refusal {
    fn drop(&mut self) {
        let own: *mut Refusal = self;
        if LAST.compare_exchange(own, self.before, Relaxed, Relaxed).is_ok() {
            return;
        }
        let mut at = LAST.load(Relaxed);
        // SAFETY: listed reasons have not been dropped, and the list belongs to this process.
        while let Some(refusal) = unsafe { at.as_mut() } {
            if refusal.before == own {
                refusal.before = self.before;
                return;
            }
            at = refusal.before;
        }
    }
}

/// Keep the reason if EXPLAIN ANALYZE may ask for it. Guarded.
pub fn refuse(query: Node<'_, pg_sys::EState>, why: &str) {
    if query.es_instrument != 0 {
        let refusal = Refusal { query: query.as_ptr(), why: why.into(), before: LAST.load(Relaxed) };
        LAST.store(PgMemoryContexts::For(query.es_query_cxt).leak_and_drop_on_delete(refusal), Relaxed);
    }
}

/// Return the reason that was kept for a query.
pub fn refusal(query: Node<'_, pg_sys::EState>) -> Option<&str> {
    let mut at = LAST.load(Relaxed).cast_const();
    // SAFETY: as in `drop`; the query's state, and so its reason, is alive.
    while let Some(refusal) = unsafe { at.as_ref() } {
        if refusal.query == query.as_ptr().cast_const() {
            return Some(&refusal.why);
        }
        at = refusal.before;
    }
    None
}
