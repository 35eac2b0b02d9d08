//! What EXPLAIN shows.
//!
//! EXPLAIN passes its state to the callbacks of a node. It is valid while the callback runs, which is `'a`.

use std::ffi::{CStr, CString, c_char};
use std::marker::PhantomData;
use std::ptr::NonNull;

use pgrx::pg_sys;

use super::callback::Argument;
use crate::error::Result;

/// The state of EXPLAIN.
#[derive(Debug, Clone, Copy)]
pub struct Explain<'a>(NonNull<pg_sys::ExplainState>, PhantomData<&'a pg_sys::ExplainState>);

// SAFETY: the server passes a valid state.
unsafe impl Argument for Explain<'_> {
    type Raw = *mut pg_sys::ExplainState;

    unsafe fn of(raw: Self::Raw) -> Self {
        // SAFETY: the server passes a pointer that is not null.
        Explain(unsafe { NonNull::new_unchecked(raw) }, PhantomData)
    }
}

impl<'a> Explain<'a> {
    const fn state(&self) -> &pg_sys::ExplainState {
        // SAFETY: the state is valid.
        unsafe { self.0.as_ref() }
    }

    pub const fn is_verbose(self) -> bool {
        self.state().verbose
    }

    pub const fn is_analyze(self) -> bool {
        self.state().analyze
    }

    pub const fn has_costs(self) -> bool {
        self.state().costs
    }

    /// Shows a text. Guarded.
    pub fn text(self, label: &CStr, value: &str) {
        self.string(label, &CString::new(value).unwrap_or_default());
    }

    /// Shows a string in the server's encoding. Guarded.
    pub fn string(self, label: &CStr, value: &CStr) {
        // SAFETY: a guarded call with valid strings.
        unsafe { pg_sys::ExplainPropertyText(label.as_ptr(), value.as_ptr(), self.0.as_ptr()) }
    }

    /// Shows a number. Guarded.
    pub fn number(self, label: &CStr, unit: Option<&CStr>, value: u64) {
        let unit = unit.map_or(std::ptr::null(), CStr::as_ptr);
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        // SAFETY: a guarded call with valid strings.
        unsafe { pg_sys::ExplainPropertyInteger(label.as_ptr(), unit, value, self.0.as_ptr()) }
    }

    /// Shows a Boolean. Guarded.
    pub fn boolean(self, label: &CStr, value: bool) {
        // SAFETY: a guarded call with a string.
        unsafe { pg_sys::ExplainPropertyBool(label.as_ptr(), value, self.0.as_ptr()) }
    }

    /// Shows a group of properties, or of groups without labels. Guarded.
    pub fn group(self, kind: &CStr, label: Option<&CStr>, show: impl FnOnce() -> Result<()>) -> Result<()> {
        let (kind, label, labeled) = (kind.as_ptr(), label.map_or(std::ptr::null(), CStr::as_ptr), label.is_none());
        // SAFETY: guarded calls with strings.
        unsafe { pg_sys::ExplainOpenGroup(kind, label, labeled, self.0.as_ptr()) };
        show()?;
        // SAFETY: as above.
        unsafe { pg_sys::ExplainCloseGroup(kind, label, labeled, self.0.as_ptr()) };
        Ok(())
    }

    /// The OID of the relation with this range table index, from 1, and the name that EXPLAIN has for it. Guarded.
    pub fn relation(self, index: i32) -> Option<(pg_sys::Oid, &'a CStr)> {
        let state = self.state();
        // SAFETY: guarded calls on two lists of the same length, of entries and of names. An entry has a name in the query.
        unsafe {
            if index < 1 || state.rtable.as_ref().is_none_or(|table| index > table.length) {
                return None;
            }
            let entry = pg_sys::list_nth(state.rtable, index - 1).cast::<pg_sys::RangeTblEntry>();
            let mut alias = pg_sys::list_nth(state.rtable_names, index - 1).cast::<c_char>().cast_const();
            if alias.is_null() {
                alias = (*(*entry).eref).aliasname;
            }
            Some(((*entry).relid, CStr::from_ptr(alias)))
        }
    }
}
