//! Generated columns. From 18 on some are virtual: computed when they are read, and NULL in a stored row.

use pgrx::pg_sys;

/// Whether a column is virtual.
pub fn is_virtual(attribute: &pg_sys::FormData_pg_attribute) -> bool {
    cfg!(feature = "pg18") && attribute.attgenerated.cast_unsigned() == b'v'
}

/// Whether a relation has generated columns of any kind.
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

/// Whether a virtual column has a NOT NULL constraint. Only ExecConstraints can check it, since the stored row has
/// NULL.
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
