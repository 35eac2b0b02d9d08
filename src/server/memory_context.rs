//! Memory contexts of the server.
//!
//! A [`MemoryContext`] is a context that exists: only [`MemoryContext::delete`], the deletion of a parent, and the end
//! of the transaction end it. The first is unsafe, so the code that deletes a context answers for all handles of it and
//! of its children, and for the memory in them. After an error, the end of the transaction deletes contexts, and no
//! code of the load runs any more.

use std::ffi::CStr;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::pg_sys;

use super::call::{calls, variables};
use super::handle::Handle;
use crate::error::Error;

/// A memory context of the server, which exists as long as the handle is used.
pub type MemoryContext = Handle<'static, pg_sys::MemoryContextData>;

impl MemoryContext {
    // SAFETY: both contexts exist.
    calls! {
        fn switch(self) -> MemoryContext = MemoryContextSwitchTo(self);
        fn new_child(self, name: &'static CStr, min: usize, first: usize, most: usize) -> MemoryContext
            = AllocSetContextCreateExtended(self, name, min, first, most);
    }

    /// The current context.
    pub fn current() -> MemoryContext {
        // SAFETY: a variable of this backend, which is never null.
        unsafe { MemoryContext::from_raw(pg_sys::CurrentMemoryContext) }
    }

    /// The context that is never deleted.
    pub fn top() -> MemoryContext {
        // SAFETY: as above.
        unsafe { MemoryContext::from_raw(pg_sys::TopMemoryContext) }
    }

    /// The context that ends with the current transaction or subtransaction. Guarded; an error outside of a transaction.
    pub fn of_transaction() -> MemoryContext {
        in_transaction(subtransaction_context())
    }

    /// The context that ends with the current transaction, after all its subtransactions. Otherwise as
    /// [`MemoryContext::of_transaction`].
    pub fn of_top_transaction() -> MemoryContext {
        in_transaction(transaction_context())
    }

    /// The context of an executor state, in which its plan and its relations are.
    ///
    /// # Safety
    /// The state is not freed while the handle is used.
    pub unsafe fn of_query(estate: *const pg_sys::EState) -> MemoryContext {
        // SAFETY: an executor state has this context.
        unsafe { MemoryContext::from_raw((*estate).es_query_cxt) }
    }

    /// Makes a child of this context. Guarded.
    pub fn child(self, name: &'static CStr) -> MemoryContext {
        let (min, init, max) =
            (pg_sys::ALLOCSET_DEFAULT_MINSIZE, pg_sys::ALLOCSET_DEFAULT_INITSIZE, pg_sys::ALLOCSET_DEFAULT_MAXSIZE);
        self.new_child(name, min as usize, init as usize, max as usize)
    }

    /// Moves a value into the context, which drops it at its end. Guarded.
    pub fn keep<T>(self, value: T) -> &'static mut T {
        // SAFETY: a guarded call on a context that exists, which returns the only pointer to the value.
        unsafe { &mut *PgMemoryContexts::For(self.as_ptr()).leak_and_drop_on_delete(value) }
    }

    /// Makes this the current context until the result is dropped. For guarded frames: an error that is caught restores
    /// the context of its catcher.
    #[must_use]
    pub fn enter(self) -> Entered {
        Entered(self.switch())
    }

    /// Deletes the context with its children. Guarded.
    ///
    /// # Safety
    /// Neither is the current one, and nothing in them is used any more.
    pub unsafe fn delete(self) {
        // SAFETY: a guarded call; the caller has ended the use of the context.
        unsafe { pg_sys::MemoryContextDelete(self.as_ptr()) }
    }
}

variables! {
    fn subtransaction_context() -> pg_sys::MemoryContext = CurTransactionContext;
    fn transaction_context() -> pg_sys::MemoryContext = TopTransactionContext;
}

/// A context of the server's variables for transactions, which are null outside of one.
fn in_transaction(context: pg_sys::MemoryContext) -> MemoryContext {
    // SAFETY: the context exists until the transaction ends.
    unsafe { MemoryContext::or_null(context) }
        .unwrap_or_else(|| Error::new(pgrx::PgSqlErrorCode::ERRCODE_INTERNAL_ERROR, "there is no transaction").raise())
}

/// Restores the context that was current before.
#[derive(Debug)]
pub struct Entered(MemoryContext);

impl Drop for Entered {
    fn drop(&mut self) {
        // The context exists, since it was current when another one was entered.
        self.0.switch();
    }
}
