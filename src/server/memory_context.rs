//! Memory contexts of the server.
//!
//! A [`MemoryContext`] is a context that exists: only [`MemoryContext::delete`], the deletion of a parent, and the end
//! of the transaction end it. The first is unsafe, so the code that deletes a context answers for all handles of it and
//! of its children, and for the memory in them. After an error, the end of the transaction deletes contexts, and no
//! code of the load runs any more.

use std::ffi::CStr;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::pg_sys;

/// A memory context of the server.
#[derive(Debug, Clone, Copy)]
pub struct MemoryContext(pg_sys::MemoryContext);

impl MemoryContext {
    /// The current context.
    pub fn current() -> MemoryContext {
        // SAFETY: reads a variable of this backend, which is never null.
        MemoryContext(unsafe { pg_sys::CurrentMemoryContext })
    }

    /// # Safety
    /// The context is not null, and exists as long as the handle is used.
    pub const unsafe fn from_raw(context: pg_sys::MemoryContext) -> MemoryContext {
        MemoryContext(context)
    }

    /// The context that ends with the current transaction or subtransaction.
    pub fn of_transaction() -> MemoryContext {
        // SAFETY: reads a variable of this backend, which is not null in a transaction.
        MemoryContext(unsafe { pg_sys::CurTransactionContext })
    }

    /// The context that ends with the current transaction, after all its subtransactions.
    pub fn of_top_transaction() -> MemoryContext {
        // SAFETY: reads a variable of this backend, which is not null in a transaction.
        MemoryContext(unsafe { pg_sys::TopTransactionContext })
    }

    /// The context of an executor state, in which its plan and its relations are.
    ///
    /// # Safety
    /// The state is not freed while the handle is used.
    pub unsafe fn of_query(estate: *const pg_sys::EState) -> MemoryContext {
        // SAFETY: an executor state has this context.
        MemoryContext(unsafe { (*estate).es_query_cxt })
    }

    /// Returns the pointer for functions of the server.
    pub const fn as_ptr(self) -> pg_sys::MemoryContext {
        self.0
    }

    /// Makes a child of this context. Guarded.
    pub fn child(self, name: &'static CStr) -> MemoryContext {
        let (min, init, max) =
            (pg_sys::ALLOCSET_DEFAULT_MINSIZE, pg_sys::ALLOCSET_DEFAULT_INITSIZE, pg_sys::ALLOCSET_DEFAULT_MAXSIZE);
        // SAFETY: a guarded call with a context that exists; the name is never freed.
        MemoryContext(unsafe {
            pg_sys::AllocSetContextCreateExtended(self.0, name.as_ptr(), min as usize, init as usize, max as usize)
        })
    }

    /// Moves a value into the context, which drops it at its end. Guarded.
    pub fn keep<T>(self, value: T) -> &'static mut T {
        // SAFETY: a guarded call on a context that exists, which returns the only pointer to the value.
        unsafe { &mut *PgMemoryContexts::For(self.0).leak_and_drop_on_delete(value) }
    }

    /// Makes this the current context until the result is dropped. For guarded frames: an error that is caught restores
    /// the context of its catcher.
    #[must_use]
    pub fn enter(self) -> Entered {
        // SAFETY: both contexts exist.
        Entered(MemoryContext(unsafe { pg_sys::MemoryContextSwitchTo(self.0) }))
    }

    /// Deletes the context with its children. Guarded.
    ///
    /// # Safety
    /// Neither is the current one, and nothing in them is used any more.
    pub unsafe fn delete(self) {
        // SAFETY: a guarded call; the caller has ended the use of the context.
        unsafe { pg_sys::MemoryContextDelete(self.0) }
    }
}

/// Restores the context that was current before.
#[derive(Debug)]
pub struct Entered(MemoryContext);

impl Drop for Entered {
    fn drop(&mut self) {
        // SAFETY: a variable of this backend; the context exists, since it was current when another one was entered.
        unsafe { pg_sys::CurrentMemoryContext = self.0.0 }
    }
}
