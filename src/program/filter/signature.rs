//! The arguments of a filter: each takes a field; or a single row argument, whose columns take the fields.
//!
//! A function whose only argument is the table's own row takes the record as that row, so it can be written like a
//! trigger. The row is formed anew for each record, and the function owns it during the call.
//!
//! A row of another type is read from text like any other argument, because its type may be altered between two rows,
//! even by the function. The table is open as long as rows are made, and an open relation cannot be altered.

use std::ffi::{CStr, CString, c_char};

use pg_bulk_types::convert::Session;
use pgrx::{PgList, PgSqlErrorCode as Code, pg_sys};

use super::{display_name, text_of, with_row};
use crate::error::{Error, Result};
use crate::program::variable;
use crate::rows::column::{Column, Taken};
use crate::server::compat;
use crate::server::option_value::invalid;
use crate::server::server_text::from_server;

/// The arguments that fields are for.
#[derive(Debug)]
pub(super) struct Signature {
    pub(super) names: Vec<CString>,
    pub(super) types: Vec<pg_sys::Oid>,
    /// Defaults of the last arguments, as the catalog has them.
    pub(super) defaults: Vec<*mut pg_sys::Node>,
    row: Option<RowArgument>,
}

/// The table's row as the only argument.
#[derive(Debug)]
struct RowArgument {
    descriptor: pg_sys::TupleDesc,
    /// Positions of its columns that can be set.
    attributes: Vec<usize>,
}

impl RowArgument {
    /// Reads the row type. Guarded; allocates in the current memory context.
    fn of(type_oid: pg_sys::Oid) -> RowArgument {
        // SAFETY: guarded calls; attributes below natts exist.
        unsafe {
            let descriptor = pg_sys::lookup_rowtype_tupdesc_copy(type_oid, -1);
            let natts = usize::try_from((*descriptor).natts).unwrap_or(0);
            let can_be_set = |&i: &usize| {
                let form = &*compat::attribute(descriptor, i);
                !form.attisdropped && form.attgenerated == 0
            };
            RowArgument { descriptor, attributes: (0..natts).filter(can_be_set).collect() }
        }
    }
}

impl Signature {
    /// Reads a function's arguments, for a table whose rows have the type `own`. Guarded; allocates in the current
    /// memory context.
    pub(super) fn of(function: pg_sys::Oid, own: pg_sys::Oid) -> Result<Signature> {
        let mut signature = with_row(function, |tuple| {
            // SAFETY: guarded calls on a pinned row. The arrays have the stated length; a node tree is a list.
            unsafe {
                let (mut types, mut names, mut modes) =
                    (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut::<c_char>());
                let count = pg_sys::get_func_arg_info(tuple, &raw mut types, &raw mut names, &raw mut modes);
                let mut signature = Signature { names: Vec::new(), types: Vec::new(), defaults: Vec::new(), row: None };
                for i in 0..usize::try_from(count).unwrap_or(0) {
                    if !modes.is_null() && !matches!((*modes.add(i)).cast_unsigned(), b'i' | b'b' | b'v') {
                        continue;
                    }
                    let name = if names.is_null() { std::ptr::null_mut() } else { *names.add(i) };
                    let number = signature.types.len() + 1;
                    signature.names.push(match name.is_null() || *name == 0 {
                        true => CString::new(format!("${number}")).unwrap_or_default(),
                        false => CStr::from_ptr(name).to_owned(),
                    });
                    signature.types.push(*types.add(i));
                }
                if let Some(text) = text_of(tuple, pg_sys::Anum_pg_proc_proargdefaults) {
                    let list = PgList::<pg_sys::Node>::from_pg(pg_sys::stringToNode(text).cast());
                    signature.defaults = list.iter_ptr().collect();
                }
                signature
            }
        })
        .ok_or_else(|| {
            let message = format!("function with OID {} does not exist", function.to_u32());
            Error::new(Code::ERRCODE_UNDEFINED_FUNCTION, message)
        })?;
        if *signature.types == [own] && own != pg_sys::InvalidOid {
            signature.take_row(RowArgument::of(own));
        }
        Ok(signature)
    }

    fn take_row(&mut self, row: RowArgument) {
        // SAFETY: attributes of the descriptor; a name is NUL-terminated.
        let form = |&i: &usize| unsafe { &*compat::attribute(row.descriptor, i) };
        self.types = row.attributes.iter().map(|i| form(i).atttypid).collect();
        // SAFETY: as above.
        let name = |i| unsafe { CStr::from_ptr(form(i).attname.data.as_ptr()) }.to_owned();
        self.names = row.attributes.iter().map(name).collect();
        // A default of the row argument does not apply to its columns.
        self.defaults.clear();
        self.row = Some(row);
    }

    /// The default of an argument, or null.
    fn default(&self, argument: usize) -> *mut pg_sys::Node {
        let without = self.types.len().saturating_sub(self.defaults.len());
        let default = argument.checked_sub(without).and_then(|at| self.defaults.get(at));
        default.copied().unwrap_or(std::ptr::null_mut())
    }

    /// The descriptor of the input row, which [`call`] takes its arguments from. Guarded; allocates in the current
    /// memory context.
    pub(super) fn descriptor(&self) -> pg_sys::TupleDesc {
        // SAFETY: guarded calls on a descriptor made here, with attributes that it has; names are copied.
        unsafe {
            if let Some(row) = &self.row {
                return pg_sys::CreateTupleDescCopyConstr(row.descriptor);
            }
            let descriptor = pg_sys::CreateTemplateTupleDesc(i32::try_from(self.types.len()).unwrap_or(0));
            for (i, (name, type_oid)) in self.names.iter().zip(&self.types).enumerate() {
                let number = pg_sys::AttrNumber::try_from(i + 1).unwrap_or(pg_sys::AttrNumber::MAX);
                pg_sys::TupleDescInitEntry(descriptor, number, name.as_ptr(), *type_oid, -1, 0);
            }
            descriptor
        }
    }

    /// Raises unless fields of these names fit the arguments. Fields of a row argument have the names of its columns.
    /// Guarded.
    pub(super) fn check_fields(&self, fields: &[CString], function: pg_sys::Oid) -> Result<()> {
        let filter = || display_name(function);
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
        let descriptor = self.descriptor();
        if let Some(row) = &self.row {
            let columns = self.names.iter().zip(&row.attributes);
            let find = |name: &CString| columns.clone().find(|(known, _)| *known == name).map(|(_, &i)| i);
            // SAFETY: attributes of the descriptor.
            let column = |&i: &usize| unsafe { Column::of(&*compat::attribute(descriptor, i), session) };
            let of_fields = fields.iter().filter_map(find).collect::<Vec<_>>();
            let others = row.attributes.iter().filter(|i| !of_fields.contains(i));
            let nothing = others.map(|i| Column { taken: Taken::Null, ..column(i) });
            return of_fields.iter().map(column).chain(nothing).collect();
        }
        let column = |argument: usize| {
            // SAFETY: an attribute of the descriptor; guarded calls.
            let (column, default) = unsafe {
                let node = self.default(argument).cast::<pg_sys::Expr>();
                let default = if node.is_null() {
                    std::ptr::null_mut()
                } else {
                    pg_sys::ExecInitExpr(pg_sys::expression_planner(node), std::ptr::null_mut())
                };
                (Column::of(&*compat::attribute(descriptor, argument), session), default)
            };
            match fields.get(argument) {
                Some(name) => Column { name: name.clone(), default, ..column },
                None => Column { taken: Taken::Default, default, ..column },
            }
        };
        (0..self.types.len()).map(column).collect()
    }
}

/// Is the input row with this descriptor a single argument? A row of several arguments has no named type. Raises
/// nothing.
///
/// # Safety
/// A valid descriptor, made by [`Signature::descriptor`].
pub(super) unsafe fn is_row(descriptor: pg_sys::TupleDesc) -> bool {
    // SAFETY: this function's contract covers the argument.
    unsafe { (*descriptor).tdtypeid != pg_sys::RECORDOID }
}

/// An argument, as an expression over the input row. Guarded.
///
/// # Safety
/// As [`is_row`]; the function has the argument.
pub(super) unsafe fn argument(descriptor: pg_sys::TupleDesc, number: usize) -> *mut pg_sys::Var {
    // SAFETY: this function's contract covers both arguments; a guarded call.
    unsafe {
        if is_row(descriptor) {
            let type_oid = (*descriptor).tdtypeid;
            return pg_sys::makeVar(pg_sys::INDEX_VAR as _, 0, type_oid, -1, pg_sys::InvalidOid, 0);
        }
        variable(descriptor, number)
    }
}

/// All arguments, as expressions over the input row. Guarded; allocates in the current memory context.
///
/// # Safety
/// As [`is_row`].
pub(super) unsafe fn arguments(descriptor: pg_sys::TupleDesc) -> *mut pg_sys::List {
    // SAFETY: this function's contract covers the argument; guarded calls.
    unsafe {
        let natts = usize::try_from((*descriptor).natts).unwrap_or(0);
        let count = if is_row(descriptor) { 1 } else { natts };
        (0..count).fold(std::ptr::null_mut(), |list, at| pg_sys::lappend(list, argument(descriptor, at).cast()))
    }
}

/// The type of a table's rows. Raises nothing.
///
/// # Safety
/// An open relation.
pub(super) unsafe fn own_type(relation: pg_sys::Relation) -> pg_sys::Oid {
    // SAFETY: this function's contract covers the argument.
    unsafe { (*(*relation).rd_rel).reltype }
}
