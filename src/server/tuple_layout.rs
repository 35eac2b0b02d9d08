//! The attributes of a tuple descriptor, as far as the bytes of tuples depend on them.

use pg_bulk_storage::tuple::Attribute;
use pgrx::pg_sys;

use super::relation::TupleDesc;

/// The properties of attributes that a tuple's layout depends on.
pub fn attributes(descriptor: TupleDesc<'_>) -> Vec<Attribute> {
    let attribute = |form: &pg_sys::FormData_pg_attribute| {
        let align = match form.attalign.cast_unsigned() {
            b'c' => 1,
            b's' => 2,
            b'i' => 4,
            _ => 8,
        };
        let packable = form.attstorage.cast_unsigned() != b'p';
        Attribute { len: form.attlen, align, by_value: form.attbyval, packable }
    };
    descriptor.attributes().map(attribute).collect()
}
