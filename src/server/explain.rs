//! What EXPLAIN shows.
//!
//! EXPLAIN passes its state to the callbacks of a node. It is valid while the callback runs, which is `'a`.

use std::ffi::{CStr, CString, c_char};

use pgrx::pg_sys;

use super::call::calls;
use super::callback::Argument;
use super::handle::Handle;
use crate::error::Result;

/// The state of EXPLAIN.
pub type Explain<'a> = Handle<'a, pg_sys::ExplainState>;

// SAFETY: the server passes a valid state, which is not null.
unsafe impl Argument for Explain<'_> {
    type Raw = *mut pg_sys::ExplainState;
}

impl<'a> Explain<'a> {
    // SAFETY: a valid state, and strings that are copied.
    calls! {
        /// Shows a string in the server's encoding. Guarded.
        pub fn string(self, label: &CStr, value: &CStr) = ExplainPropertyText(label, value, self);
        fn integer(self, label: &CStr, unit: Option<&CStr>, value: i64) = ExplainPropertyInteger(label, unit, value, self);
        /// Shows a Boolean. Guarded.
        pub fn boolean(self, label: &CStr, value: bool) = ExplainPropertyBool(label, value, self);
        fn open(self, kind: &CStr, label: Option<&CStr>, labeled: bool) = ExplainOpenGroup(kind, label, labeled, self);
        fn close(self, kind: &CStr, label: Option<&CStr>, labeled: bool) = ExplainCloseGroup(kind, label, labeled, self);
    }

    pub const fn is_verbose(self) -> bool {
        self.get().verbose
    }

    pub const fn is_analyze(self) -> bool {
        self.get().analyze
    }

    pub const fn has_costs(self) -> bool {
        self.get().costs
    }

    /// Shows a text. Guarded.
    pub fn text(self, label: &CStr, value: &str) {
        self.string(label, &CString::new(value).unwrap_or_default());
    }

    /// Shows a number. Guarded.
    pub fn number(self, label: &CStr, unit: Option<&CStr>, value: u64) {
        self.integer(label, unit, i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Shows a group of properties, or of groups without labels. Guarded.
    pub fn group(self, kind: &CStr, label: Option<&CStr>, show: impl FnOnce() -> Result<()>) -> Result<()> {
        self.open(kind, label, label.is_none());
        show()?;
        self.close(kind, label, label.is_none());
        Ok(())
    }

    /// The OID of the relation with this range table index, from 1, and the name that EXPLAIN has for it. Guarded.
    pub fn relation(self, index: i32) -> Option<(pg_sys::Oid, &'a CStr)> {
        let (table, names) = (self.get().rtable, self.get().rtable_names);
        // SAFETY: guarded calls on two lists of the same length, of entries and of names. An entry has a name in the query.
        unsafe {
            if index < 1 || table.as_ref().is_none_or(|table| index > table.length) {
                return None;
            }
            let entry = pg_sys::list_nth(table, index - 1).cast::<pg_sys::RangeTblEntry>();
            let mut alias = pg_sys::list_nth(names, index - 1).cast::<c_char>().cast_const();
            if alias.is_null() {
                alias = (*(*entry).eref).aliasname;
            }
            Some(((*entry).relid, CStr::from_ptr(alias)))
        }
    }
}
