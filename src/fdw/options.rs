//! Parses and checks the options of foreign tables.
//!
//! The names are those of COPY and file_fdw, of every version. The server calls [`validate`] when an option is set. As
//! in file_fdw, the right to name a file or a program is checked only there. A role that may read the table may read
//! the file, so `filename` and `program` are options of foreign tables only. (A server's directory may replace that
//! right; `servers` completes the check.) [`TableOptions::of_table`] reads the stored options, each time a statement
//! needs them.

use std::ffi::CString;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::filter_option::Filter;
use super::order;
use super::servers::{self, role_missing};
use crate::error::{Error, Result};
use crate::input::directory::{Below, DIRECTORY, check_owner, directory_of, reads_all};
use crate::input::encoding::Encodings;
use crate::input::source::Location;
use crate::rows::column::{self, Column, Taken};
use crate::rows::copy_options::field_options::FieldDraft;
use crate::rows::copy_options::key_options::keys;
use crate::rows::copy_options::slice_options::{SliceDraft, slices};
use crate::rows::copy_options::{self, CopyOptions, Draft};
use crate::rows::objects;
use crate::server::lookup::column_options;
use crate::server::node::NodeList;
use crate::server::option_value::{Caller, OptionValue, stored, text};
use crate::server::relation::Relation;
use crate::server::role::{current_user, has_privileges_of};

const COLUMN_OPTIONS: &[&str] = &[
    "force_not_null", "force_null", "column_name", "source", "start", "length", "trim", "nullif", "binary_type",
    "null_if", "decimal", "thousands", "date_format", "key", "rest",
];

fn table_options() -> Vec<&'static str> {
    ["filename", "program"].iter().chain(copy_options::NAMES).chain(&["sorted_by", "filter"]).copied().collect()
}

/// The options of a foreign table.
#[derive(Debug, Clone)]
pub struct TableOptions {
    pub location: Option<Location>,
    /// The declared order of its rows.
    pub sorted_by: Option<CString>,
    /// The function that makes its rows.
    pub filter: Option<Filter>,
    pub copy: CopyOptions,
}

/// Checks the options of an object in `catalog`.
pub fn validate(options: &[(String, Vec<u8>)], catalog: pg_sys::Oid) -> Result<()> {
    let valid = if catalog == pg_sys::ForeignTableRelationId {
        table_options()
    } else if catalog == pg_sys::AttributeRelationId {
        COLUMN_OPTIONS.to_vec()
    } else if catalog == pg_sys::ForeignServerRelationId {
        vec![DIRECTORY]
    } else {
        Vec::new()
    };
    for (name, _) in options {
        if !valid.contains(&name.as_str()) {
            return Err(Caller::ForeignTable.unknown(name, &valid));
        }
    }
    if catalog == pg_sys::AttributeRelationId {
        return check_column(options);
    }
    if catalog == pg_sys::ForeignServerRelationId {
        return servers::validate(options);
    }
    let parsed = TableOptions::parse(options)?;
    if let Some(order) = &parsed.sorted_by {
        order::validate(order)?;
    }
    check_rights(parsed.location.as_ref())?;
    if catalog == pg_sys::ForeignTableRelationId && parsed.location.is_none() {
        let message = "either filename or program is required for bulk_fdw foreign tables";
        return Err(Error::new(Code::ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED, message));
    }
    Ok(())
}

fn check_column(options: &[(String, Vec<u8>)]) -> Result<()> {
    let (mut slice, mut field) = (SliceDraft::default(), FieldDraft::default());
    for (name, value) in options {
        let is_field = field.set(Caller::ForeignTable, name, &OptionValue::Text(value.clone()))?;
        if name == "rest" {
            Caller::ForeignTable.boolean(name, value)?;
        }
        if slice.set(name, value)? || is_field {
            continue;
        }
        match name.as_str() {
            "column_name" => (),
            "source" => {
                Taken::by_name(&text(value))?;
                if let Some((other, _)) = options.iter().find(|(other, _)| other != "source") {
                    let message = format!("cannot specify both source and {other}");
                    return Err(Error::new(Code::ERRCODE_SYNTAX_ERROR, message));
                }
            }
            _ => {
                Caller::ForeignTable.boolean(name, value)?;
            }
        }
    }
    Ok(())
}

fn check_rights(location: Option<&Location>) -> Result<()> {
    match location {
        Some(Location::File(_)) if reads_all(current_user()) => Ok(()),
        Some(Location::File(path)) => servers::remember("filename", path),
        Some(Location::Program(_)) if !has_privileges_of(pg_sys::ROLE_PG_EXECUTE_SERVER_PROGRAM.into()) => {
            Err(role_missing("pg_execute_server_program", "program", "foreign table"))
        }
        Some(Location::Program(command)) => servers::remember("program", command),
        Some(
            Location::Files(_)
            | Location::Below(_)
            | Location::Client(_)
            | Location::Bytes(_)
            | Location::LargeObject(_)
            | Location::Query,
        )
        | None => Ok(()),
    }
}

impl TableOptions {
    /// Parses a table's options; the first error is the one that COPY would raise.
    fn parse(options: &[(String, Vec<u8>)]) -> Result<TableOptions> {
        let mut draft = Draft::new(Caller::ForeignTable);
        let mut location = None;
        let mut sorted_by = None;
        let mut filter = None;
        for (name, bytes) in options {
            match name.as_str() {
                "filename" | "program" => {
                    if location.is_some() {
                        let message = "conflicting or redundant options";
                        return Err(Error::new(Code::ERRCODE_SYNTAX_ERROR, message));
                    }
                    let make = if name == "program" { Location::Program } else { Location::File };
                    location = Some(make(CString::new(bytes.as_slice()).unwrap_or_default()));
                }
                "sorted_by" => sorted_by = Some(CString::new(bytes.as_slice()).unwrap_or_default()),
                "filter" => filter = Some(Filter::new(CString::new(bytes.as_slice()).unwrap_or_default())),
                name => {
                    if !draft.set(name, &OptionValue::Text(bytes.clone()))? {
                        return Err(Caller::ForeignTable.unknown(name, &table_options()));
                    }
                }
            }
        }
        let options = TableOptions { location, sorted_by, filter, copy: draft.finish()? };
        options.filter.as_ref().map_or(Ok(()), |filter| filter.validate(&options.copy))?;
        Ok(options)
    }

    /// The stored options of a foreign table. Guarded.
    pub fn of_table(relid: pg_sys::Oid) -> Result<TableOptions> {
        servers::check_pending()?;
        // SAFETY: a guarded catalog lookup, which returns a table with a list of options.
        let (options, server) = unsafe {
            let table = pg_sys::GetForeignTable(relid);
            (stored(NodeList::from_raw((*table).options)), (*table).serverid)
        };
        let mut parsed = TableOptions::parse(&options)?;
        if let Some(directory) = directory_of(server) {
            check_owner(server, relid)?;
            parsed.location = match parsed.location {
                Some(Location::File(name)) => Some(Location::Below(Below::new(server, &directory, &name))),
                Some(Location::Program(_)) => return Err(servers::no_programs(server)),
                other => other,
            };
        }
        Ok(parsed)
    }

    /// The location of the data.
    pub fn location(&self) -> Result<&Location> {
        // The validator requires it, but a catalog can be edited.
        self.location.as_ref().ok_or_else(|| {
            Error::new(
                Code::ERRCODE_INTERNAL_ERROR,
                "either filename or program is required for bulk_fdw foreign tables",
            )
        })
    }

    /// The columns of the table's file. Guarded; the current memory context must outlive them.
    pub fn columns(&self, relation: Relation<'_>) -> Result<Vec<Column>> {
        let session = column::session(Encodings::new(self.copy.encoding)?.charset());
        if let Some(filter) = &self.filter {
            return filter.columns(relation, &self.copy, &session);
        }
        let with_defaults = self.copy.takes_defaults() || self.copy.by_name();
        let mut columns = Column::of_relation(relation, &session, with_defaults);
        self.apply_to(relation.oid(), &mut columns)?;
        Ok(columns)
    }

    /// Applies the options about columns, the table's and the columns' own. Guarded.
    fn apply_to(&self, relid: pg_sys::Oid, columns: &mut [Column]) -> Result<()> {
        let (mut drafts, mut fields) = (Vec::new(), Vec::new());
        for column in columns.iter_mut() {
            let (mut slice, mut field) = (SliceDraft::default(), FieldDraft::default());
            let Ok(attnum) = i16::try_from(column.attribute + 1) else { continue };
            for (name, value) in &column_options(relid, attnum) {
                match name.as_str() {
                    "force_not_null" => column.force_not_null = Caller::ForeignTable.boolean(name, value)?,
                    "force_null" => column.force_null = Caller::ForeignTable.boolean(name, value)?,
                    "column_name" => column.header_name = CString::new(value.as_slice()).ok(),
                    "source" => column.taken = Taken::by_name(&text(value))?,
                    _ => {
                        slice.set(name, value)?;
                        field.set(Caller::ForeignTable, name, &OptionValue::Text(value.clone()))?;
                    }
                }
            }
            fields.push(field);
            if column.taken == Taken::Field {
                drafts.push((column.display_name().into_owned(), slice));
            }
        }
        let keys = keys(&self.copy, drafts.iter().map(|(name, draft)| (name.as_str(), &draft.key)))?;
        let slices = slices(&self.copy, drafts)?;
        let taken = columns.iter_mut().filter(|column| column.taken == Taken::Field);
        for (column, (slice, key)) in taken.zip(slices.into_iter().zip(keys)) {
            (column.slice, column.key) = (slice, key);
        }
        self.copy.refine(columns, &fields)?;
        objects::check_rest(columns)?;
        self.copy.force(relid, columns)
    }
}
