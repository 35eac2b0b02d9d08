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

/// `TupleDescAttr`: attribute `index`, from 0.
///
/// # Safety
/// A valid descriptor with more than `index` attributes.
pub unsafe fn attribute(descriptor: pg_sys::TupleDesc, index: usize) -> *mut pg_sys::FormData_pg_attribute {
    // SAFETY: this function's contract covers both arguments. From 18 on the attributes follow the array of compact attributes.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        return (*descriptor).attrs.as_mut_ptr().add(index);
        #[cfg(feature = "pg18")]
        return pg_sys::TupleDescAttr(descriptor, i32::try_from(index).unwrap_or(0));
    }
}
