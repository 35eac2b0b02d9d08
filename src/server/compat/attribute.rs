//! Attributes, and generated columns. From 18 on some are virtual: computed when they are read, and NULL in a stored row.

use pgrx::pg_sys;

/// Whether a column is virtual.
pub fn is_virtual(attribute: &pg_sys::FormData_pg_attribute) -> bool {
    cfg!(feature = "pg18") && attribute.attgenerated.cast_unsigned() == b'v'
}

/// Whether a relation has generated columns of any kind.
pub fn has_generated(constraints: &pg_sys::TupleConstr) -> bool {
    #[cfg(feature = "pg18")]
    if constraints.has_generated_virtual {
        return true;
    }
    constraints.has_generated_stored
}

/// The array of attributes (`TupleDescAttr`). From 18 on it follows the array of compact attributes.
///
/// # Safety
/// A valid descriptor.
pub unsafe fn attributes(descriptor: pg_sys::TupleDesc) -> *const pg_sys::FormData_pg_attribute {
    // SAFETY: a valid descriptor has the array.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        return (*descriptor).attrs.as_ptr();
        #[cfg(feature = "pg18")]
        return pg_sys::TupleDescAttr(descriptor, 0);
    }
}
