//! The option `filter`: a function makes the rows of a foreign table from the records of its file.
//!
//! ```text
//!   record ─► the function's arguments ─► function (program::filter) ─► the table's row ─► conditions, order
//! ```
//!
//! So the fields are the function's arguments and not the table's columns, and all of them are converted, whichever
//! columns a query reads. A record that the function leaves out is not a row: limit, aggregates, samples and order
//! ignore it.

use std::cell::Cell;
use std::ffi::{CStr, CString};

use pg_bulk_types::convert::Session;
use pgrx::pg_sys;

use crate::error::Result;
use crate::program::filter::{self, RowFilter};
use crate::rows::column::Column;
use crate::rows::copy_options::{CopyOptions, RecordShape};
use crate::rows::objects;
use crate::server::lookup::column_options;
use crate::server::node::Node;
use crate::server::option_value::invalid;
use crate::server::relation::{Relation, attribute_name};

/// The stored option.
#[derive(Debug, Clone)]
pub struct Filter {
    name: CString,
    /// The function that was found. Between two look-ups user code may run, so the name is resolved once: the arguments
    /// must be converted for the function that is called.
    found: Cell<pg_sys::Oid>,
}

impl Filter {
    pub fn new(name: CString) -> Filter {
        Filter { name, found: Cell::new(pg_sys::InvalidOid) }
    }

    pub fn name(&self) -> &CStr {
        &self.name
    }

    /// The function; resolved once. Guarded.
    pub fn function(&self) -> Result<pg_sys::Oid> {
        if self.found.get() == pg_sys::InvalidOid {
            self.found.set(filter::function_of(&self.name)?);
        }
        Ok(self.found.get())
    }

    /// The function, for the planner. None if the execution will fail to find it. Guarded.
    pub fn planned(&self) -> Option<pg_sys::Oid> {
        Some(filter::known(&self.name)).filter(|function| *function != pg_sys::InvalidOid)
    }

    /// Does the function permit workers? Guarded.
    pub fn is_parallel_safe(&self, relid: pg_sys::Oid, copy: &CopyOptions) -> Result<bool> {
        let receives = copy.shape() == RecordShape::Binary;
        self.planned().map_or(Ok(false), |function| filter::is_parallel_safe(function, relid, receives))
    }

    /// Makes the filter of a scan. Guarded; allocates in the executor's memory.
    pub fn begin(
        &self,
        relation: Relation<'_>,
        copy: &CopyOptions,
        estate: Node<'_, pg_sys::EState>,
    ) -> Result<RowFilter> {
        RowFilter::new(self.function()?, relation, copy.on_error, estate)
    }

    /// Checks the option: the function need not exist yet, but the name must have a schema and argument types.
    pub fn validate(&self, copy: &CopyOptions) -> Result<()> {
        let bytes = self.name.to_bytes();
        let mut is_quoted = false;
        let mut has_schema = false;
        let mut has_types = false;
        for &byte in bytes {
            match byte {
                b'"' => is_quoted = !is_quoted,
                b'.' if !is_quoted && !has_types => has_schema = true,
                b'(' if !is_quoted => has_types = true,
                _ => (),
            }
        }
        if !has_schema || !has_types || bytes.last() != Some(&b')') {
            let message =
                "argument to option \"filter\" must be a function with its schema and the types of its arguments";
            return Err(invalid(message).hint("Write it as in: myschema.myfunction(text, integer)."));
        }
        let other = match copy.shape() {
            RecordShape::Fixed => "format \"fixed\"",
            _ if copy.by_name() => "match_by \"name\"",
            _ => return Ok(()),
        };
        Err(invalid(format!("cannot specify both filter and {other}")))
    }

    /// The columns of the file, which are the function's arguments. Guarded; the current memory context must outlive
    /// them.
    pub fn columns(&self, relation: Relation<'_>, copy: &CopyOptions, session: &Session) -> Result<Vec<Column>> {
        for attribute in relation.descriptor().attributes().filter(|attribute| !attribute.attisdropped) {
            if let Some((option, _)) = column_options(relation.oid(), attribute.attnum).first() {
                let column = attribute_name(attribute);
                return Err(invalid(format!("cannot specify both filter and option {option} of column \"{column}\"")));
            }
        }
        let mut columns = filter::columns_of(self.function()?, relation, session)?;
        copy.force(pg_sys::InvalidOid, &mut columns)?;
        copy.refine(&mut columns, &[])?;
        objects::check_rest(&columns)?;
        Ok(columns)
    }
}
