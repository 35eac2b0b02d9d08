//! Generated columns: from 18 on some are virtual, that is computed by who reads them. In a row they are NULL.

use pgrx::pg_sys;

/// Is a column virtual?
pub fn is_virtual(attribute: &pg_sys::FormData_pg_attribute) -> bool {
    cfg!(feature = "pg18") && attribute.attgenerated.cast_unsigned() == b'v'
}

/// Does a relation have generated columns of any kind?
///
/// # Safety
/// The constraints of an open relation.
pub unsafe fn has_generated(constraints: *const pg_sys::TupleConstr) -> bool {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        #[cfg(feature = "pg18")]
        if (*constraints).has_generated_virtual {
            return true;
        }
        (*constraints).has_generated_stored
    }
}

/// Must a virtual column not be NULL? Who forms the row cannot tell whether it is; ExecConstraints can.
///
/// # Safety
/// The descriptor of an open relation.
pub unsafe fn has_virtual_not_null(descriptor: pg_sys::TupleDesc) -> bool {
    // SAFETY: this function's contract covers the argument; the descriptor has natts attributes.
    unsafe {
        let natts = usize::try_from((*descriptor).natts).unwrap_or(0);
        cfg!(feature = "pg18")
            && (0..natts).any(|i| {
                let attribute = &*super::attribute(descriptor, i);
                attribute.attnotnull && is_virtual(attribute)
            })
    }
}
