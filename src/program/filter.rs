//! The option `filter`: a function that is called for each record.
//!
//! ```text
//!   fields ─► input row: the function's arguments ─► function ─► a row, or nothing ─► the target's row
//! ```
//!
//! The fields of a record are the function's arguments, in order. Each is converted by the type of its argument, so a
//! text is the raw field. An argument without a field gets its default. So the [input row](descriptor) has the
//! arguments as its columns, and a [projection](Nodes) makes the target's row of it, as for computed
//! columns. The function returns a row of the target's type, or of as many columns as the target's rows take; NULL
//! leaves the record out.
//!
//! [`analysis`] makes the expression of the call. A worker receives it as text, with the function's OID, from which it
//! makes the same columns.

mod analysis;
mod scan;
mod signature;

use std::ffi::{CStr, CString};

use pg_bulk_types::convert::Session;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

pub use self::analysis::analyze;
pub use self::scan::{RowFilter, columns_of, function_of, is_parallel_safe, known};
use self::signature::Signature;
use super::Nodes;
use super::mapping::{self, Mapping};
use super::volatile;
use crate::error::{Error, Result};
use crate::rows::column::Column;
use crate::server::lookup::{CatalogRow, function_by_name, signature_of, type_kind, type_name};
use crate::server::relation::{Relation, TupleDesc};
use crate::server::role::require_execute;
use crate::server::server_text::from_server;

/// SQLlanguageId (pg_language.h)
const SQL_LANGUAGE: u32 = 14;

/// Resolves a function by name, with argument types (regprocedure) or without (regproc). Guarded.
pub fn resolve(name: &CStr) -> Result<pg_sys::Oid> {
    let function = function_by_name(name);
    if CatalogRow::<pg_sys::FormData_pg_proc>::find(function).is_none() {
        // The name was a number, or a dash, which stands for none.
        let message = format!("function \"{}\" does not exist", from_server(name));
        return Err(Error::new(Code::ERRCODE_UNDEFINED_FUNCTION, message));
    }
    Ok(function)
}

/// The input row: the function's arguments, or the row type of its only argument. Guarded; allocates in the current
/// memory context.
pub fn descriptor(function: pg_sys::Oid, relation: Relation<'_>) -> Result<TupleDesc<'static>> {
    Ok(Signature::of(function, relation.row_type())?.descriptor())
}

/// Maps fields to arguments. The function sets all columns of the relation. Guarded.
pub fn mapping(relation: Relation<'_>, columns: Option<&[CString]>, function: pg_sys::Oid) -> Result<Mapping> {
    let signature = Signature::of(function, relation.row_type())?;
    let names = match columns {
        None => signature.names,
        Some(columns) => {
            signature.check_fields(columns, function)?;
            if let Some(at) = (1..columns.len()).find(|&at| columns.iter().take(at).any(|c| Some(c) == columns.get(at)))
            {
                return Err(mapping::twice(columns.get(at).map_or(c"", |name| name)));
            }
            columns.to_vec()
        }
    };
    Ok(Mapping {
        fields: vec![None; names.len()],
        names,
        computed: mapping::attributes(relation).map(|(attnum, _)| attnum).collect(),
        function: Some(function),
        ..Mapping::default()
    })
}

/// The columns of the file: the arguments, or the columns of the single row argument. Guarded; allocates in the current
/// memory context.
pub fn columns(
    function: pg_sys::Oid,
    relation: Relation<'_>,
    mapping: &Mapping,
    session: &Session,
) -> Result<Vec<Column>> {
    Ok(Signature::of(function, relation.row_type())?.columns(&mapping.names, session))
}

/// Reason if the call, or an argument's default, calls a function that the direct writer must not run. Guarded.
pub fn obstacle(function: pg_sys::Oid, relation: Relation<'_>, nodes: Nodes) -> Result<Option<String>> {
    let Signature { defaults, types, .. } = Signature::of(function, relation.row_type())?;
    let call = nodes.all().into_iter().chain(defaults.iter()).find_map(volatile::call_in);
    // The same holds for the functions that make an argument of a field.
    let call = call.or_else(|| types.into_iter().find_map(volatile::call_in_type));
    Ok(call.map(|call| format!("The filter {call}.")))
}

/// Raises unless the function can be a filter. Guarded.
pub fn check(function: pg_sys::Oid) -> Result<()> {
    let form = CatalogRow::<pg_sys::FormData_pg_proc>::find(function);
    let why = form.and_then(|form| match form.prokind.cast_unsigned() {
        pg_sys::PROKIND_AGGREGATE => Some("It is an aggregate function."),
        pg_sys::PROKIND_WINDOW => Some("It is a window function."),
        pg_sys::PROKIND_FUNCTION if form.proretset => Some("It returns a set."),
        pg_sys::PROKIND_FUNCTION if form.provariadic != pg_sys::InvalidOid => Some("It is variadic."),
        pg_sys::PROKIND_FUNCTION => None,
        _ => Some("It is a procedure."),
    });
    if let Some(why) = why {
        return Err(no_filter(function, why));
    }
    for type_oid in Signature::of(function, pg_sys::InvalidOid)?.types {
        if type_kind(type_oid) == pg_sys::TYPTYPE_PSEUDO {
            return Err(no_filter(function, &format!("It has an argument of pseudo-type {}.", type_name(type_oid))));
        }
    }
    require_execute(function, pg_sys::ObjectType::OBJECT_FUNCTION);
    Ok(())
}

fn no_filter(function: pg_sys::Oid, why: &str) -> Error {
    let message = format!("function {} cannot be a filter", signature_of(function));
    Error::new(Code::ERRCODE_WRONG_OBJECT_TYPE, message).detail(why)
}
