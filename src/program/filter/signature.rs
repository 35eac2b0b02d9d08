//! The arguments of a filter: each takes a field; or a single row argument, whose columns take the fields.
//!
//! A function whose only argument is the table's own row takes the record as that row, so it can be written like a
//! trigger. The row is formed anew for each record, and the function owns it during the call.
//!
//! A row of another type is read from text like any other argument, because its type may be altered between two rows,
//! even by the function. The table is open as long as rows are made, and an open relation cannot be altered.

use std::ffi::{CString, c_char};

use pg_bulk_types::convert::Session;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::program::variable;
use crate::rows::column::{Column, Taken};
use crate::server::expression::Expression;
use crate::server::lookup::{CatalogRow, signature_of};
use crate::server::node::make;
use crate::server::node::{Node, NodeList};
use crate::server::option_value::invalid;
use crate::server::relation::{TupleDesc, name_of};
use crate::server::server_text::{copied, from_server};

/// The arguments that fields are for.
#[derive(Debug)]
pub(super) struct Signature {
    pub(super) names: Vec<CString>,
    pub(super) types: Vec<pg_sys::Oid>,
    /// Defaults of the last arguments, as the catalog has them.
    pub(super) defaults: NodeList<'static>,
    /// The table's row, if it is the only argument.
    row: Option<TupleDesc<'static>>,
}

impl Signature {
    /// Reads a function's arguments, for a table whose rows have the type `own`. Guarded; allocates in the current
    /// memory context.
    pub(super) fn of(function: pg_sys::Oid, own: pg_sys::Oid) -> Result<Signature> {
        let Some(row) = CatalogRow::<pg_sys::FormData_pg_proc>::find(function) else {
            let message = format!("function with OID {} does not exist", function.to_u32());
            return Err(Error::new(Code::ERRCODE_UNDEFINED_FUNCTION, message));
        };
        let mut signature =
            Signature { names: Vec::new(), types: Vec::new(), defaults: row.argument_defaults(), row: None };
        // SAFETY: a guarded call, which makes arrays of the stated length, or null.
        unsafe {
            let (mut types, mut names, mut modes) =
                (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut::<c_char>());
            let count = pg_sys::get_func_arg_info(row.as_ptr(), &raw mut types, &raw mut names, &raw mut modes);
            for i in 0..usize::try_from(count).unwrap_or(0) {
                if !modes.is_null() && !matches!((*modes.add(i)).cast_unsigned(), b'i' | b'b' | b'v') {
                    continue;
                }
                let name = if names.is_null() { None } else { copied(*names.add(i)) };
                let nameless = || CString::new(format!("${}", signature.types.len() + 1)).unwrap_or_default();
                signature.names.push(name.filter(|name| !name.is_empty()).unwrap_or_else(nameless));
                signature.types.push(*types.add(i));
            }
        }
        if *signature.types == [own] && own != pg_sys::InvalidOid {
            let row = TupleDesc::of_type(own, -1);
            signature.types = set(row).map(|form| form.atttypid).collect();
            signature.names = set(row).map(|form| name_of(form).to_owned()).collect();
            // A default of the row argument does not apply to its columns.
            signature.defaults = NodeList::EMPTY;
            signature.row = Some(row);
        }
        Ok(signature)
    }

    /// The default of an argument.
    fn default(&self, argument: usize) -> Option<Node<'static>> {
        let without = self.types.len().saturating_sub(self.defaults.len());
        self.defaults.get(argument.checked_sub(without)?)
    }

    /// The descriptor of the input row, which [`arguments`] are taken from. Guarded; allocates in the current memory
    /// context.
    pub(super) fn descriptor(&self) -> TupleDesc<'static> {
        let named = self.names.iter().map(CString::as_c_str).zip(self.types.iter().copied());
        self.row.map_or_else(|| TupleDesc::of_columns(named), TupleDesc::copied_with_constraints)
    }

    /// Raises unless fields of these names fit the arguments. Fields of a row argument have the names of its columns.
    /// Guarded.
    pub(super) fn check_fields(&self, fields: &[CString], function: pg_sys::Oid) -> Result<()> {
        let filter = || signature_of(function);
        if self.row.is_some() {
            let Some(name) = fields.iter().find(|name| !self.names.contains(name)) else { return Ok(()) };
            let message = format!("column \"{}\" of filter {} does not exist", from_server(name), filter());
            return Err(Error::new(Code::ERRCODE_UNDEFINED_COLUMN, message)
                .hint("The fields of a filter that takes the table's row have the names of its columns."));
        }
        let (given, arguments) = (fields.len(), self.types.len());
        if given > arguments {
            let filter = filter();
            return Err(invalid(format!("columns has {given} fields, but filter {filter} has {arguments} arguments")));
        }
        let required = arguments.saturating_sub(self.defaults.len());
        match self.names.get(given).filter(|_| given < required) {
            None => Ok(()),
            Some(name) => {
                let (name, filter) = (from_server(name), filter());
                Err(invalid(format!("columns has no field for argument \"{name}\" of filter {filter}")))
            }
        }
    }

    /// The columns of a file whose fields have these names. Guarded; allocates in the current memory context.
    pub(super) fn columns(&self, fields: &[CString], session: &Session) -> Vec<Column> {
        let (descriptor, nameless) = (self.descriptor(), || Column::ignored(CString::default()));
        if let Some(row) = self.row {
            let positions: Vec<usize> = set(row).filter_map(|form| usize::try_from(form.attnum - 1).ok()).collect();
            let columns = self.names.iter().zip(&positions);
            let find = |name: &CString| columns.clone().find(|(known, _)| *known == name).map(|(_, &i)| i);
            let column = |&i: &usize| row.attribute(i).map_or_else(nameless, |form| Column::of(form, session));
            let of_fields = fields.iter().filter_map(find).collect::<Vec<_>>();
            let others = positions.iter().filter(|i| !of_fields.contains(i));
            let nothing = others.map(|i| Column { taken: Taken::Null, ..column(i) });
            return of_fields.iter().map(column).chain(nothing).collect();
        }
        let column = |argument: usize| {
            let form = descriptor.attribute(argument);
            let column = form.map_or_else(nameless, |form| Column::of(form, session));
            let default = self.default(argument).map(Expression::planned);
            match fields.get(argument) {
                Some(name) => Column { name: name.clone(), default, ..column },
                None => Column { taken: Taken::Default, default, ..column },
            }
        };
        (0..self.types.len()).map(column).collect()
    }
}

/// The columns of a row argument that take fields.
fn set(row: TupleDesc<'static>) -> impl Iterator<Item = &'static pg_sys::FormData_pg_attribute> {
    row.live().filter(|form| form.attgenerated == 0)
}

/// Is the input row with this descriptor, made by [`Signature::descriptor`], a single argument? A row of several arguments
/// has no named type. Raises nothing.
pub(super) fn is_row(descriptor: TupleDesc<'_>) -> bool {
    descriptor.row_type() != pg_sys::RECORDOID
}

/// An argument, as an expression over the input row. Guarded.
pub(super) fn argument<'a>(descriptor: TupleDesc<'_>, number: usize) -> Option<Node<'a, pg_sys::Var>> {
    if is_row(descriptor) {
        return Some(make::variable(pg_sys::INDEX_VAR as _, 0, (descriptor.row_type(), -1, pg_sys::InvalidOid)));
    }
    variable(descriptor, number)
}

/// All arguments, as expressions over the input row. Guarded; allocates in the current memory context.
pub(super) fn arguments<'a>(descriptor: TupleDesc<'_>) -> NodeList<'a> {
    let count = if is_row(descriptor) { 1 } else { descriptor.len() };
    (0..count).filter_map(|number| argument(descriptor, number)).map(Node::node).collect()
}
