//! The attributes of a tuple descriptor, as far as the bytes of tuples depend on them.

use pg_bulk_storage::tuple::Attribute;
use pgrx::pg_sys;

use super::compat;

/// The properties of attributes that a tuple's layout depends on.
pub fn attributes(descriptor: pg_sys::TupleDesc) -> Vec<Attribute> {
    // SAFETY: a valid descriptor.
    let natts = unsafe { usize::try_from((*descriptor).natts).unwrap_or(0) };
    let attribute = |i| {
        // SAFETY: i < natts.
        let form = unsafe { &*compat::attribute(descriptor, i) };
        let align = match form.attalign.cast_unsigned() {
            b'c' => 1,
            b's' => 2,
            b'i' => 4,
            _ => 8,
        };
        let packable = form.attstorage.cast_unsigned() != b'p';
        Attribute { len: form.attlen, align, by_value: form.attbyval, packable }
    };
    (0..natts).map(attribute).collect()
}
