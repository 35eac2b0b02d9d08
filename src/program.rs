//! What is done with a record between its fields and the table's row: conditions, expressions, filters.
//!
//! [`Nodes`] are the expressions that make a row of the target from a row of the file. A Var of INDEX_VAR is a column of
//! the input row, for an INSERT … SELECT of the foreign table. Workers read the nodes from nodeToString's text.

pub mod assignment;
mod call;
pub mod copy_question;
pub mod defaults;
pub mod filter;
pub mod mapping;
pub mod projection;
mod row_value;
pub mod volatile;
pub mod where_clause;

use std::ffi::{CStr, CString, c_char, c_void};

use pgrx::{PgList, pg_sys};

use self::mapping::Mapping;
use crate::server::compat;
use crate::server::sent::sent;

/// Nodes of a plan.
#[derive(Debug, Clone, Copy)]
pub struct Nodes {
    /// A TargetEntry for each attribute that is set from the file, or an expression.
    pub targets: *mut pg_sys::List,
    /// Conditions that must all hold.
    pub quals: *mut pg_sys::List,
    /// A row from which the targets are made, as columns of OUTER_VAR; when it is NULL, the record is filtered out.
    /// Null pointer: the targets are made from the row of the file.
    pub row: *mut pg_sys::Node,
    /// The nodes replace the call of a filter function. It sees the whole row of the file, and its errors may be
    /// survived.
    pub filters: bool,
}

impl Nodes {
    pub const NONE: Nodes = {
        let none = std::ptr::null_mut();
        Nodes { targets: none, quals: none, row: std::ptr::null_mut(), filters: false }
    };

    /// The nodes as text, for workers. Guarded.
    pub fn text(self) -> Text {
        // SAFETY: a guarded call; the string is copied.
        let write = |node: *const c_void| unsafe { CStr::from_ptr(pg_sys::nodeToString(node)) }.to_owned();
        let (targets, quals) = (write(self.targets.cast()), write(self.quals.cast()));
        Text { targets, quals, row: write(self.row.cast()), filters: self.filters }
    }

    /// All nodes in one list. Guarded.
    pub fn all(self) -> *mut pg_sys::Node {
        // SAFETY: guarded calls on lists of nodes.
        unsafe {
            let all = pg_sys::list_concat_copy(self.targets, self.quals);
            if self.row.is_null() { all.cast() } else { pg_sys::lappend(all, self.row.cast()).cast() }
        }
    }

    /// Completes the mapping: the attributes that are set, and the columns of the file that the nodes use. Guarded.
    pub fn complete(self, mapping: &mut Mapping) {
        // SAFETY: a list of TargetEntries.
        let targets = unsafe { PgList::<pg_sys::TargetEntry>::from_pg(self.targets) };
        // SAFETY: as above.
        mapping.computed = targets.iter_ptr().map(|entry| unsafe { (*entry).resno }).collect();
        let mut wanted = columns_of(self.targets);
        wanted.extend(columns_of(self.quals));
        mapping.wanted = Some(wanted);
    }
}

sent! {
    /// [`Nodes`] as text.
    #[derive(Debug, Clone)]
    pub struct Text {
        pub targets: CString,
        pub quals: CString,
        pub row: CString,
        pub filters: bool,
    }
}

impl Text {
    /// Reads the nodes. Guarded; allocates in the current memory context.
    pub fn nodes(&self) -> Nodes {
        // SAFETY: guarded calls with what nodeToString wrote.
        let read = |text: &CString| unsafe { pg_sys::stringToNode(text.as_ptr().cast::<c_char>()) };
        let (targets, quals) = (read(&self.targets).cast(), read(&self.quals).cast());
        Nodes { targets, quals, row: read(&self.row).cast(), filters: self.filters }
    }
}

/// The numbers of the columns that the nodes use. Guarded.
pub fn columns_of(nodes: *mut pg_sys::List) -> Vec<i16> {
    let mut found = Vec::new();
    // SAFETY: guarded calls on expressions, and on a set made here.
    unsafe {
        let mut set: *mut pg_sys::Bitmapset = std::ptr::null_mut();
        pg_sys::pull_varattnos(nodes.cast(), pg_sys::INDEX_VAR as _, &raw mut set);
        let mut member = -1;
        loop {
            member = pg_sys::bms_next_member(set, member);
            if member < 0 {
                break;
            }
            found.extend(i16::try_from(member + pg_sys::FirstLowInvalidHeapAttributeNumber));
        }
    }
    found
}

/// An attribute of the input row. Guarded.
///
/// # Safety
/// The descriptor has this attribute.
pub unsafe fn variable(descriptor: pg_sys::TupleDesc, attribute: usize) -> *mut pg_sys::Var {
    // SAFETY: this function's contract covers the argument; a guarded call.
    unsafe {
        let form = &*compat::attribute(descriptor, attribute);
        let number = i16::try_from(attribute + 1).unwrap_or(i16::MAX);
        pg_sys::makeVar(pg_sys::INDEX_VAR as _, number, form.atttypid, form.atttypmod, form.attcollation, 0)
    }
}

/// Appends a TargetEntry. Guarded.
///
/// # Safety
/// A list of TargetEntries, or null, and an expression.
pub unsafe fn with_target(targets: *mut pg_sys::List, node: *mut pg_sys::Expr, attnum: i16) -> *mut pg_sys::List {
    // SAFETY: this function's contract covers them; guarded calls.
    unsafe {
        let entry = pg_sys::makeTargetEntry(node, attnum, std::ptr::null_mut(), false);
        pg_sys::lappend(targets, entry.cast())
    }
}
