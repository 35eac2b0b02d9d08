//! Lookups in the system catalogs, and the time. All functions are guarded.

use std::ffi::{CStr, CString};

use pgrx::pg_sys;

use super::server_text::copied;

/// The relation with a name in a schema; InvalidOid if it does not exist.
pub fn relation_named(name: &CStr, schema: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: a guarded call with a string.
    unsafe { pg_sys::get_relname_relid(name.as_ptr(), schema) }
}

pub fn relation_name(relation: pg_sys::Oid) -> Option<CString> {
    // SAFETY: a guarded call, which returns a string or null.
    unsafe { copied(pg_sys::get_rel_name(relation)) }
}

/// The schema of a relation; InvalidOid if the relation does not exist.
pub fn schema_of(relation: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: a guarded call.
    unsafe { pg_sys::get_rel_namespace(relation) }
}

pub fn schema_name(schema: pg_sys::Oid) -> Option<CString> {
    // SAFETY: a guarded call, which returns a string or null.
    unsafe { copied(pg_sys::get_namespace_name(schema)) }
}

pub fn is_temporary(relation: pg_sys::Oid) -> bool {
    // SAFETY: a guarded call.
    unsafe { pg_sys::get_rel_persistence(relation) }.cast_unsigned() == pg_sys::RELPERSISTENCE_TEMP
}

/// The extension with a name; InvalidOid if it is not installed.
pub fn extension_named(name: &CStr) -> pg_sys::Oid {
    // SAFETY: a guarded call with a string.
    unsafe { pg_sys::get_extension_oid(name.as_ptr(), true) }
}

/// The names of a relation's schema and of the relation, if it exists.
pub fn relation_names(relation: pg_sys::Oid) -> Option<(CString, CString)> {
    Some((schema_name(schema_of(relation))?, relation_name(relation)?))
}

/// A name, quoted if it requires quotes.
pub fn quoted(name: &CStr) -> CString {
    // SAFETY: a guarded call with a string, which returns a string.
    unsafe { copied(pg_sys::quote_identifier(name.as_ptr())) }.unwrap_or_default()
}

/// The name of an object with its schema, quoted.
pub fn qualified(schema: &CStr, name: &CStr) -> CString {
    // SAFETY: a guarded call with strings, which returns a string.
    unsafe { copied(pg_sys::quote_qualified_identifier(schema.as_ptr(), name.as_ptr())) }.unwrap_or_default()
}

/// Schema and name of a relation, quoted, if it exists.
pub fn qualified_name(relation: pg_sys::Oid) -> Option<CString> {
    relation_names(relation).map(|(schema, name)| qualified(&schema, &name))
}

/// The function of a schema with these argument types; InvalidOid if it does not exist.
pub fn function_named(name: &CStr, types: &[pg_sys::Oid], schema: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: guarded calls, with keys of the types that the cache expects; the vector is a copy of the types.
    unsafe {
        let vector = pg_sys::buildoidvector(types.as_ptr(), i32::try_from(types.len()).unwrap_or(0));
        pg_sys::GetSysCacheOid(
            pg_sys::SysCacheIdentifier::PROCNAMEARGSNSP as i32,
            pg_sys::Anum_pg_proc_oid as pg_sys::AttrNumber,
            pg_sys::Datum::from(name.as_ptr()),
            pg_sys::Datum::from(vector.cast::<std::ffi::c_void>()),
            pg_sys::Datum::from(schema),
            pg_sys::Datum::from(0usize),
        )
    }
}

pub fn function_name(function: pg_sys::Oid) -> Option<CString> {
    // SAFETY: a guarded call, which returns a string or null.
    unsafe { copied(pg_sys::get_func_name(function)) }
}

/// The schema of a function; InvalidOid if the function does not exist.
pub fn function_schema(function: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: a guarded call.
    unsafe { pg_sys::get_func_namespace(function) }
}

/// The types of a function's arguments.
pub fn argument_types(function: pg_sys::Oid) -> Vec<pg_sys::Oid> {
    let (mut types, mut count) = (std::ptr::null_mut(), 0);
    // SAFETY: a guarded call, which allocates as many types as it says.
    unsafe {
        pg_sys::get_func_signature(function, &raw mut types, &raw mut count);
        match usize::try_from(count) {
            Ok(count) if count > 0 => std::slice::from_raw_parts(types, count).to_vec(),
            _ => Vec::new(),
        }
    }
}

/// The owner of a relation, if the relation exists.
pub fn owner_of(relation: pg_sys::Oid) -> Option<pg_sys::Oid> {
    // SAFETY: guarded calls; the row of pg_class is released after it is read.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(pg_sys::SysCacheIdentifier::RELOID as i32, pg_sys::Datum::from(relation));
        let form = pg_sys::GETSTRUCT(tuple.as_mut()?).cast::<pg_sys::FormData_pg_class>();
        let owner = (*form).relowner;
        pg_sys::ReleaseSysCache(tuple);
        Some(owner)
    }
}

/// The time now.
pub fn now() -> pg_sys::TimestampTz {
    // SAFETY: a guarded call without arguments.
    unsafe { pg_sys::GetCurrentTimestamp() }
}
