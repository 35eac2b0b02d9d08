//! Result relations of an executor state: the relations that its statement writes to.
//!
//! A [`ResultRelation`] is valid until its executor state is freed, which is unsafe: the code that frees the state answers
//! for all handles. Its relation is open and locked as long. Its triggers and their instruments are copies that belong to the
//! executor state.

use pgrx::pg_sys;

use super::relation::Relation;
use super::unguarded as c;

/// A result relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultRelation(std::ptr::NonNull<pg_sys::ResultRelInfo>);

impl ResultRelation {
    /// # Safety
    /// A result relation of an executor state that is not freed while this handle and its copies are used.
    pub const unsafe fn from_raw(relinfo: *mut pg_sys::ResultRelInfo) -> ResultRelation {
        // SAFETY: an executor's result relation is not null.
        ResultRelation(unsafe { std::ptr::NonNull::new_unchecked(relinfo) })
    }

    /// Returns the pointer for functions of the server.
    pub const fn as_ptr(self) -> *mut pg_sys::ResultRelInfo {
        self.0.as_ptr()
    }

    pub fn relation(self) -> Relation<'static> {
        // SAFETY: the relation is open until the executor state is freed.
        unsafe { Relation::from_raw(self.0.as_ref().ri_RelationDesc) }
    }

    /// Opens the indexes, with what is needed to search them for conflicting rows if `searched`. Guarded.
    pub fn open_indexes(self, searched: bool) {
        self.close_indexes();
        // SAFETY: a result relation without open indexes; the closure owns nothing.
        unsafe { c::guard(|| c::ExecOpenIndices(self.as_ptr(), searched)) }
    }

    /// Closes the indexes, if there are open ones. Guarded.
    pub fn close_indexes(self) {
        // SAFETY: a guarded call, which closes what ExecOpenIndices has opened.
        unsafe {
            if (*self.as_ptr()).ri_NumIndices > 0 {
                pg_sys::ExecCloseIndices(self.as_ptr());
                (*self.as_ptr()).ri_NumIndices = 0;
            }
        }
    }

    /// The open indexes that the executor sees.
    pub fn indexes(self) -> impl Iterator<Item = Relation<'static>> {
        // SAFETY: the executor's list has `ri_NumIndices` elements: open indexes, or null.
        let at = move |i| unsafe {
            let index = *(*self.as_ptr()).ri_IndexRelationDescs.add(i);
            (!index.is_null()).then(|| Relation::from_raw(index))
        };
        // SAFETY: a valid result relation.
        (0..usize::try_from(unsafe { self.0.as_ref() }.ri_NumIndices).unwrap_or(0)).filter_map(at)
    }

    /// Are there row triggers for updates, such as those of foreign keys that refer to the table?
    pub fn has_update_triggers(self) -> bool {
        // SAFETY: a valid result relation has triggers, or null.
        unsafe { self.0.as_ref().ri_TrigDesc.as_ref() }.is_some_and(|triggers| triggers.trig_update_after_row)
    }
}
