//! From the file to the table's columns: the field for each attribute, and the rows.
//!
//! By position, the fields are the columns of the option `columns`, or all columns of the table; that is known before
//! the file is opened. By name, the header line decides. A program or a FIFO can be read only once, so the [`Rows`]
//! that are about to be loaded read the header ([`by_name`]). Either way the result is a [`Mapping`], from which a
//! parallel worker can make the same rows.

use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::options::LoadOptions;
use super::wrapper::Wrapper;
use crate::error::{Error, OrRaise, Result};
use crate::input::encoding::Encodings;
use crate::input::file_identity::changed;
use crate::input::source::Location;
use crate::input::stream::Header;
use crate::program::Nodes;
use crate::program::filter;
use crate::program::mapping::{Mapping, attributes, twice};
use crate::rows::column::{self, Column, Taken, default_expression};
use crate::rows::copy_options::{RecordShape, attribute_number};
use crate::rows::objects;
use crate::rows::row::Rows;
use crate::rows::soft::OnError;
use crate::server::expression::Expression;
use crate::server::option_value::HeaderOption;
use crate::server::relation::{OpenRelation, Relation, TupleDesc, name_of};
use crate::server::server_text::{clipped, from_server};

/// A further file that an INSERT reads.
#[derive(Debug)]
pub struct FurtherFile {
    pub options: LoadOptions,
    pub path: CString,
    pub mapping: Mapping,
    pub projection: Option<Nodes>,
}

/// The input row of expressions: the target's columns, then a text for each field that is for none of them; or a
/// filter's arguments. Guarded; allocates in the current memory context.
pub fn input_descriptor(relation: Relation, mapping: &Mapping) -> TupleDesc<'static> {
    if let Some(function) = mapping.function {
        return filter::descriptor(function, relation).or_raise();
    }
    let number = |n: usize| pg_sys::AttrNumber::try_from(n).unwrap_or(pg_sys::AttrNumber::MAX);
    let fields = mapping.fields.iter().zip(&mapping.names);
    let texts: Vec<&CString> = fields.filter(|(field, _)| field.is_none()).map(|(_, name)| name).collect();
    let natts = relation.descriptor().len();
    // SAFETY: guarded calls on a descriptor made here, with attributes that it has; names are copied.
    unsafe {
        let count = i32::try_from(natts + texts.len()).unwrap_or(i32::MAX);
        let descriptor = pg_sys::CreateTemplateTupleDesc(count);
        for attribute in 1..=natts {
            pg_sys::TupleDescCopyEntry(
                descriptor,
                number(attribute),
                relation.descriptor().as_ptr(),
                number(attribute),
            );
        }
        for (at, name) in texts.into_iter().enumerate() {
            let attribute = number(natts + at + 1);
            pg_sys::TupleDescInitEntry(descriptor, attribute, name.as_ptr(), pg_sys::TEXTOID, -1, 0);
        }
        TupleDesc::from_raw(descriptor)
    }
}

/// The columns that no field is for. Guarded.
pub fn others(relation: Relation, options: &LoadOptions) -> Result<Vec<(i16, Taken)>> {
    let mut mapping = Mapping::default();
    for (name, taken) in &options.columns.others {
        let attnum = attribute_number(relation.oid(), name)?;
        mapping.add(name.clone(), attnum)?;
        mapping.others.push((attnum, *taken));
        mapping.fields.clear();
    }
    Ok(mapping.others)
}

/// The mapping that does not depend on the file; None if the header decides. Guarded.
pub fn by_position(relation: Relation, options: &LoadOptions) -> Result<Option<Mapping>> {
    if options.copy.by_name() {
        others(relation, options)?;
        return Ok(None);
    }
    if let Some(function) = options.function {
        return filter::mapping(relation, options.columns.names.as_deref(), function).map(Some);
    }
    let mut mapping = Mapping { others: others(relation, options)?, ..Mapping::default() };
    let most = usize::try_from(pg_sys::MaxTupleAttributeNumber).unwrap_or(0);
    for (name, _) in &options.columns.computed {
        let attnum = attribute_number(relation.oid(), name)?;
        mapping.add(name.clone(), attnum)?;
        mapping.computed.push(attnum);
        (mapping.fields, mapping.names) = (Vec::new(), Vec::new());
    }
    match &options.columns.names {
        None => {
            for (attnum, name) in attributes(relation) {
                if mapping.attributes().all(|other| other != attnum) {
                    mapping.push(name, Some(attnum));
                }
            }
        }
        Some(names) => {
            let room = most.saturating_sub(relation.descriptor().len());
            for name in names {
                if mapping.fields.iter().filter(|field| field.is_none()).count() > room {
                    break;
                }
                match attribute_number(relation.oid(), name) {
                    // The name may be an input of expressions, which are analyzed later.
                    Err(error)
                        if error.sqlstate() == Code::ERRCODE_UNDEFINED_COLUMN
                            && !options.columns.computed.is_empty() =>
                    {
                        let name = as_identifier(name);
                        if mapping.names.contains(&name) {
                            return Err(twice(&name));
                        }
                        mapping.push(name, None);
                    }
                    attnum => mapping.add(name.clone(), attnum?)?,
                }
            }
        }
    }
    if relation.descriptor().len() + mapping.fields.iter().filter(|field| field.is_none()).count() > most {
        let message = format!("target lists can have at most {most} entries");
        return Err(Error::new(Code::ERRCODE_TOO_MANY_COLUMNS, message));
    }
    Ok(Some(mapping))
}

/// A name truncated as the parser truncates it in an expression (truncate_identifier, scansup.c). Guarded.
fn as_identifier(name: &CStr) -> CString {
    let bytes = name.to_bytes();
    let clipped = clipped(bytes, pg_sys::NAMEDATALEN as usize - 1);
    CString::new(bytes.get(..clipped).unwrap_or(bytes)).unwrap_or_default()
}

/// Opens the file. Without a mapping, the rows have no columns until [`by_name`] has read the header. Errors about
/// columns come first, as in BeginCopyFrom (copyfrom.c): before a program starts, or a FIFO gets a reader. Guarded; the
/// current memory context must outlive the rows.
pub fn open_rows(relation: Relation, options: &LoadOptions, mapping: Option<&Mapping>) -> Result<Rows> {
    if let (Some(foreign), Some(mapping)) = (options.foreign(), mapping) {
        return foreign_rows(foreign, options, mapping);
    }
    let name = relation.name();
    let header = match mapping {
        Some(_) => options.copy.header(),
        None => Header { fields: true, ..options.copy.header() },
    };
    let list = options.copy.files(&options.location)?;
    let defaults = options.copy.by_name() && list.is_some();
    // A query makes values, not fields.
    let fields = mapping.filter(|_| options.query.is_none());
    let columns = fields.map_or_else(|| Ok(Vec::new()), |mapping| columns(relation, options, mapping, defaults))?;
    let listed = list.map(Location::Files);
    let location = listed.as_ref().unwrap_or(&options.location);
    let stream = options.copy.open(location, header)?;
    let match_header = options.copy.header == HeaderOption::Match;
    // The header of each file decides.
    let known = (stream.files().is_some() && options.copy.by_name() && mapping.is_some()).then(|| columns.clone());
    // COPY's messages do not name the location of its data.
    let described = if options.is_copy() { CString::default() } else { options.location.described() };
    let mut rows = Rows::new(stream, columns, name, described, match_header);
    rows.treat_ragged(&options.copy.ragged);
    if mapping.is_some_and(|mapping| mapping.function.is_some()) {
        rows.fill_missing();
    }
    if let Some(known) = known {
        rows.name_by(known);
    }
    rows.context.is_query = options.query.is_some();
    Ok(rows)
}

/// The rows of a foreign table's file. The foreign table's columns convert the fields, and messages name it; `mapping`
/// says where the values go. Guarded; memory as in [`open_rows`].
fn foreign_rows(foreign: pg_sys::Oid, options: &LoadOptions, mapping: &Mapping) -> Result<Rows> {
    let (name, columns) = foreign_columns(foreign, options, mapping)?;
    let stream = options.copy.open(&options.location, options.copy.header())?;
    let match_header = options.copy.header == HeaderOption::Match;
    let known = options.copy.by_name().then(|| columns.clone());
    let mut rows = Rows::new(stream, columns, name, options.location.described(), match_header);
    rows.treat_ragged(&options.copy.ragged);
    if let Some(known) = known {
        rows.name_by(known);
    }
    rows.context.is_discreet = true;
    Ok(rows)
}

/// The name of a foreign table and the columns of its file. Guarded; memory as in [`open_rows`].
pub fn foreign_columns(
    foreign: pg_sys::Oid,
    options: &LoadOptions,
    mapping: &Mapping,
) -> Result<(CString, Vec<Column>)> {
    let relation = OpenRelation::open(foreign, pg_sys::AccessShareLock);
    let name = relation.get().name();
    let mut columns = (Wrapper::get()?.columns)(relation.get(), &options.copy)?;
    drop(relation);
    for (column, field) in columns.iter_mut().zip(&mapping.fields) {
        // The set of rows that are rejected must not depend on the columns that are read.
        let is_wanted = |wanted: &Vec<i16>| {
            options.copy.on_error != OnError::Stop
                || wanted.iter().any(|number| usize::try_from(number - 1) == Ok(column.attribute))
        };
        match field.map(|attnum| usize::try_from(attnum - 1)) {
            Some(Ok(attribute)) => column.attribute = attribute,
            _ if mapping.wanted.as_ref().is_some_and(is_wanted) => (),
            _ => column.ignored = true,
        }
    }
    Ok((name, columns))
}

/// The columns of the file. With `defaults`, a column without a field gets its default.
fn columns(relation: Relation, options: &LoadOptions, mapping: &Mapping, defaults: bool) -> Result<Vec<Column>> {
    let encodings = Encodings::new(options.copy.encoding)?;
    let session = column::session(encodings.charset());
    if let Some(function) = mapping.function {
        let mut columns = filter::columns(function, relation, mapping, &session)?;
        // Options apply to fields only.
        let others = columns.split_off(mapping.names.len().min(columns.len()));
        for (column, slice) in columns.iter_mut().zip(&options.columns.slices) {
            column.slice.clone_from(slice);
        }
        for (column, key) in columns.iter_mut().zip(&options.columns.keys) {
            column.key.clone_from(key);
        }
        options.copy.force(pg_sys::InvalidOid, &mut columns)?;
        options.copy.refine(&mut columns, &options.columns.fields)?;
        objects::check_rest(&columns)?;
        columns.extend(others);
        return Ok(columns);
    }
    // An object may lack any of its keys.
    let with_default = options.copy.takes_defaults() || options.copy.shape() == RecordShape::Json || defaults;
    let fields = mapping.fields.iter().zip(&mapping.names);
    let inputs = (!options.columns.computed.is_empty()).then(|| input_descriptor(relation, mapping));
    let form = |attnum: i16| relation.descriptor().attribute(usize::try_from(attnum - 1).ok()?);
    let mut columns: Vec<Column> = fields
        .map(|(attnum, name)| match attnum.and_then(form) {
            Some(attribute) => Column::of_attribute(relation, attribute, &session, with_default),
            None => {
                let input = inputs.zip(mapping.input(name, relation)).and_then(|(row, at)| row.attribute(at));
                input.map_or_else(|| Column::ignored(name.clone()), |attribute| Column::of(attribute, &session))
            }
        })
        .collect();
    for (column, slice) in columns.iter_mut().zip(&options.columns.slices) {
        column.slice.clone_from(slice);
    }
    options.copy.refine(&mut columns, &options.columns.fields)?;
    for (column, key) in columns.iter_mut().zip(&options.columns.keys) {
        column.key.clone_from(key);
    }
    objects::check_rest(&columns)?;
    for (attnum, taken) in &mapping.others {
        columns.extend(form(*attnum).map(|attribute| Column { taken: *taken, ..Column::of(attribute, &session) }));
    }
    options.copy.force(relation.oid(), &mut columns)?;
    Ok(columns)
}

/// Reads the header of rows that were opened without a mapping. Guarded; memory as in [`open_rows`].
pub fn by_name(relation: Relation, options: &LoadOptions, rows: &mut Rows) -> Result<Mapping> {
    let mut mapping = Mapping { others: others(relation, options)?, ..Mapping::default() };
    let count = rows.stream().files().map(|list| list.files.len());
    // Counts the files that have each field.
    let (mut files, mut files_with) = (0, Vec::new());
    for file in 0..count.unwrap_or(1) {
        if file > 0 {
            rows.switch_to_file(file)?;
        }
        if let Some(header) = rows.header_names()? {
            files += 1;
            let is_named = |known: &CString| header.iter().flatten().any(|name| known.as_bytes() == name);
            let known: Vec<bool> = mapping.names.iter().map(is_named).collect();
            add_names(relation, &mut mapping, header)?;
            files_with.resize(mapping.names.len(), 0);
            files_with
                .iter_mut()
                .enumerate()
                .for_each(|(i, count)| *count += u32::from(*known.get(i).unwrap_or(&true)));
        }
    }
    if mapping.fields.is_empty() && mapping.names.is_empty() {
        // All files are empty.
        return Ok(mapping);
    }
    if mapping.fields.iter().all(Option::is_none) {
        let relation = from_server(&rows.context.relation_name);
        let message = format!("header line names no column of relation \"{relation}\"");
        return Err(Error::new(Code::ERRCODE_BAD_COPY_FILE_FORMAT, message));
    }
    let mut columns = columns(relation, options, &mapping, count.is_some())?;
    if count.is_some() {
        // A column that is in every file needs no default, which not every process can evaluate.
        let keeps = options.copy.takes_defaults();
        for (column, _) in columns.iter_mut().zip(&files_with).filter(|(_, with)| **with == files && !keeps) {
            column.default = None;
        }
        rows.name_by(columns);
        rows.restart(options.copy.header(), || Err(changed(&options.location.display())))?;
    } else {
        rows.set_columns(columns);
    }
    Ok(mapping)
}

/// Adds the names of a file's header to the mapping, after those of earlier files.
fn add_names(relation: Relation, mapping: &mut Mapping, header: Vec<Option<Vec<u8>>>) -> Result<()> {
    let attributes: Vec<_> = attributes(relation).collect();
    let earlier = mapping.names.len();
    for (i, name) in header.into_iter().enumerate() {
        let known = name.as_ref().and_then(|name| mapping.names.iter().position(|known| known.as_bytes() == name));
        if known.is_some_and(|at| at < earlier) {
            continue;
        }
        let Some(name) = name.map(|name| CString::new(name).unwrap_or_default()) else {
            mapping.notes.push(format!("field {} of the file has no name and is ignored", i + 1));
            mapping.push(CString::default(), None);
            continue;
        };
        let is_it = |(attnum, attribute): &&(i16, CString)| {
            *attribute == name && mapping.others.iter().all(|(other, _)| other != attnum)
        };
        match attributes.iter().find(is_it) {
            Some((attnum, _)) => mapping.add(name, *attnum)?,
            None => {
                let why = if is_generated(relation, &name) { "generated column" } else { "field" };
                mapping.notes.push(format!("{why} \"{}\" of the file is ignored", from_server(&name)));
                mapping.push(name, None);
            }
        }
    }
    Ok(())
}

fn is_generated(relation: Relation, name: &CStr) -> bool {
    let is_it = |form: &pg_sys::FormData_pg_attribute| form.attgenerated != 0 && name_of(form) == name;
    relation.descriptor().attributes().any(|form| !form.attisdropped && is_it(form))
}

/// Attributes that no field sets and that have a default: their indexes, and the initialized expressions. Serial and
/// identity columns appear as their nextval. Guarded; allocates in the current memory context.
pub fn defaults(relation: Relation, mapping: &Mapping) -> Vec<(usize, Expression)> {
    attributes(relation)
        .filter(|(attnum, _)| mapping.attributes().all(|a| a != *attnum))
        .filter_map(|(attnum, _)| {
            let attribute = usize::try_from(attnum - 1).ok()?;
            Some((attribute, default_expression(relation, attribute)?))
        })
        .collect()
}
