//! Parses the options of a load from a jsonb object.
//!
//! A parallel worker parses the same text again. Booleans, numbers and strings are read as COPY reads the text; lists
//! are arrays; null means the default. An unknown name is a syntax error, an invalid value an invalid parameter value.
//! Errors about options that exclude each other have COPY's words.

pub mod given;

use std::ffi::CString;

use pg_bulk_text::fixed::Slice;
use pgrx::pg_sys;

use self::given::InPlace;
use super::definer::Allowed;
use super::duplicate::{Duplicates, Keep};
use super::option_name::{ColumnOption, OptionName};
use super::settings::{self, SETTINGS, Setting};
use super::wrapper::Wrapper;
use crate::error::Result;
use crate::input::encoding::EncodingErrors;
use crate::input::source::Location;
use crate::rows::column::MemberKey;
use crate::rows::column::Taken;
use crate::rows::copy_options::field_options::FieldDraft;
use crate::rows::copy_options::key_options::keys;
use crate::rows::copy_options::slice_options::{SliceDraft, slices};
use crate::rows::copy_options::{CopyOptions, Draft, RecordShape};
use crate::rows::soft::{OnError, Verbosity};
use crate::server::jsonb::{Json, Jsonb};
use crate::server::option_value::{Caller, OptionValue, invalid, text, word};
use crate::server::server_text::from_server;

/// The highest value of `max_parallel_maintenance_workers` (`MAX_PARALLEL_WORKER_LIMIT`).
const MOST_WORKERS: usize = 1024;

/// The writer that the option asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WriterOption {
    #[default]
    Auto,
    Direct,
    Buffered,
}

/// Whether other sessions may write to the table during the load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LockOption {
    #[default]
    Online,
    Share,
}

/// The index strategy that the option asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IndexesOption {
    #[default]
    Auto,
    Insert,
    Merge,
    Rebuild,
}

/// Whether the load empties the table first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Truncate {
    #[default]
    No,
    Yes,
    /// A dry run checks rows as if the table had been truncated.
    Assumed,
}

/// Whether files that were loaded before are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Once {
    #[default]
    No,
    Yes,
    /// All files are loaded, and recorded (option `force`).
    Forced,
}

/// A statement that the load replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// An INSERT from this foreign table, which the file and the options belong to.
    Insert(pg_sys::Oid),
    /// A COPY: the load must behave like core's.
    Copy,
}

/// The option `columns`.
#[derive(Debug, Clone, Default)]
pub struct ColumnsOption {
    /// The columns of the file's fields, in order.
    pub names: Option<Vec<CString>>,
    /// Their positions in a record of fixed length.
    pub slices: Vec<Option<Slice>>,
    /// Their options for the texts of fields.
    pub fields: Vec<FieldDraft>,
    /// Their keys in a JSON object.
    pub keys: Vec<Option<MemberKey>>,
    /// Columns that no field of the file is for, and their values.
    pub others: Vec<(CString, Taken)>,
    /// Computed columns, and their expressions.
    pub computed: Vec<(CString, CString)>,
}

/// What the load does to the table beside its rows.
#[derive(Debug, Clone, Copy, Default)]
pub struct TableOptions {
    /// The load creates the table. When options with it are parsed, the table already exists.
    pub create: bool,
    pub lock: LockOption,
    pub truncate: Truncate,
    pub freeze: bool,
    pub analyze: bool,
}

/// Options that only jobs have.
#[derive(Debug, Clone, Default)]
pub struct JobOptions {
    /// Each of several files is a job of its own.
    pub each_file: bool,
    pub settings: Vec<Setting>,
}

/// The options of a load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    pub copy: CopyOptions,
    pub location: Location,
    /// The query that makes the rows, if there is no file.
    pub query: Option<CString>,
    pub columns: ColumnsOption,
    pub where_clause: Option<CString>,
    /// The filter function: its name, and its OID once that is known.
    pub filter: Option<CString>,
    pub function: Option<pg_sys::Oid>,
    pub table: TableOptions,
    pub writer: WriterOption,
    pub workers: Option<usize>,
    pub indexes: IndexesOption,
    pub duplicates: Duplicates,
    pub once: Once,
    pub job: JobOptions,
    pub replaces: Option<Replaced>,
}

fn c_string(bytes: &[u8]) -> CString {
    // A string of the server has no zero byte.
    CString::new(bytes).unwrap_or_default()
}

/// A JSON value as an option value of COPY; None for null.
pub fn value(name: &str, json: Json) -> Result<Option<OptionValue>> {
    match json {
        Json::Null => Ok(None),
        Json::Text(text) | Json::Literal(text) => Ok(Some(OptionValue::Text(text))),
        Json::Array(elements) => {
            let names = elements.into_iter().map(|element| match element {
                Json::Text(text) => Ok(c_string(&text)),
                _ => Err(invalid(format!("{name} must be an array of strings"))),
            });
            Ok(Some(OptionValue::List(names.collect::<Result<_>>()?)))
        }
        Json::Object(_) => Err(invalid(format!("{name} cannot be an object"))),
    }
}

/// The contents of objects in `columns`.
#[derive(Debug, Default)]
pub struct Objects {
    /// Columns that no field of the file is for, and their values.
    pub others: Vec<(CString, Taken)>,
    /// Computed columns, and their expressions.
    pub computed: Vec<(CString, CString)>,
    /// Positions of the remaining columns in a record of fixed length.
    pub slices: Vec<SliceDraft>,
    /// Options for the texts of the remaining columns.
    pub fields: Vec<FieldDraft>,
    /// Some of the remaining columns are plain names.
    pub has_names: bool,
}

/// The option `columns` without its objects. Null if nothing remains.
pub fn names_of_columns(json: Json, objects: &mut Objects) -> Result<Json> {
    let Json::Array(elements) = json else { return Ok(json) };
    let had_some = !elements.is_empty();
    let mut fields = Vec::new();
    for element in elements {
        let Json::Object(members) = element else {
            fields.push(element);
            objects.has_names = true;
            objects.slices.push(SliceDraft::default());
            objects.fields.push(FieldDraft::default());
            continue;
        };
        let (mut column, mut source, mut slice) = (None, None, None::<SliceDraft>);
        let mut field = FieldDraft::default();
        let (mut computes, mut expression) = (None, None);
        for (name, json) in members {
            let given = match (&*name, json) {
                (b"null_if", list @ Json::Array(_)) => {
                    slice.get_or_insert_default();
                    if let Some(list) = value("null_if", list)? {
                        field.set(Caller::Function, "null_if", &list)?;
                    }
                    continue;
                }
                (_, Json::Text(given)) => given,
                (b"column" | b"source", _) => return Err(invalid("column and source must be strings")),
                (b"name" | b"expr", _) => return Err(invalid("name and expr must be strings")),
                (_, Json::Literal(given)) => given,
                _ => return Err(invalid(format!("{} must be a string or a number", text(&name)))),
            };
            match &*name {
                b"column" => column = Some(c_string(&given)),
                b"source" => source = Some(Taken::by_name(&text(&given))?),
                b"name" => computes = Some(c_string(&given)),
                b"expr" => expression = Some(c_string(&given)),
                _ => {
                    let is_slice = slice.get_or_insert_default().set(&text(&name), &given)?;
                    if !field.set(Caller::Function, &text(&name), &OptionValue::Text(given))? && !is_slice {
                        let valid: Vec<_> = ColumnOption::ALL.iter().map(|option| option.name()).collect();
                        return Err(Caller::Function.unknown(&text(&name), &valid));
                    }
                }
            }
        }
        match ((column, source, slice), (computes, expression)) {
            ((Some(column), Some(source), None), (None, None)) => objects.others.push((column, source)),
            ((Some(column), None, Some(slice)), (None, None)) => {
                fields.push(Json::Text(column.into_bytes()));
                objects.slices.push(slice);
                objects.fields.push(field);
            }
            ((None, None, None), (Some(column), Some(expression))) => objects.computed.push((column, expression)),
            ((Some(_), Some(_), Some(_)), _) => {
                return Err(invalid("an object in columns cannot have both source and a position in the record"));
            }
            _ => {
                return Err(invalid(
                    "an object in columns requires either column with an option of it, or name and expr",
                ));
            }
        }
    }
    Ok(if fields.is_empty() && had_some { Json::Null } else { Json::Array(fields) })
}

impl Objects {
    /// The option `columns`, with the names that are left of it. Guarded.
    pub fn complete(self, copy: &CopyOptions, names: Option<Vec<CString>>) -> Result<ColumnsOption> {
        let shown: Vec<String> = names.iter().flatten().map(|name| from_server(name)).collect();
        let keys = keys(copy, shown.iter().zip(&self.slices).map(|(name, draft)| (name.as_str(), &draft.key)))?;
        if names.is_none() && copy.shape() == RecordShape::Fixed {
            return Err(invalid("format \"fixed\" requires columns"));
        }
        let slices = slices(copy, shown.into_iter().zip(self.slices).collect())?;
        let Objects { fields, others, computed, .. } = self;
        Ok(ColumnsOption { names, slices, fields, keys, others, computed })
    }
}

impl LoadOptions {
    /// Parses the arguments of a load and checks that the options are `allowed`. Error hints list a job's options only
    /// for a caller that `enqueues`. Guarded.
    pub fn parse(path: CString, options: &Jsonb, allowed: &Allowed, enqueues: bool) -> Result<LoadOptions> {
        let Some(members) = options.members() else {
            return Err(invalid("options must be a JSON object"));
        };
        let (mut given, mut objects, mut settings) = (Vec::new(), Objects::default(), Vec::new());
        for (name, json) in members {
            let name = text(&name).into_owned();
            if !OptionName::by_name(&name).is_some_and(OptionName::is_of_load) {
                let others: &[OptionName] =
                    if enqueues { &[OptionName::Create] } else { &[OptionName::EachFile, OptionName::Settings] };
                let names = OptionName::ALL.iter().filter(|option| option.is_of_load() && !others.contains(option));
                let valid: Vec<_> = names.map(|option| option.name()).collect();
                return Err(Caller::Function.unknown(&name, &valid));
            }
            let json = match &*name {
                SETTINGS => {
                    allowed.check_settings()?;
                    settings = settings::of_json(json)?;
                    continue;
                }
                "columns" => names_of_columns(json, &mut objects)?,
                _ => json,
            };
            if let Some(value) = value(&name, json)? {
                allowed.check(&name, &value)?;
                given.push((name, value));
            }
        }
        if !objects.computed.is_empty() {
            allowed.check_expression()?;
        }
        let mut options = LoadOptions::of_values(path, &given)?;
        if options.table.create && enqueues {
            return Err(invalid("only bulk_load() supports the option create"));
        }
        let is_said = || objects.fields.iter().any(|field| field.given().is_some());
        if options.query.is_some() && (!(objects.others.is_empty() && objects.computed.is_empty()) || is_said()) {
            return Err(invalid("columns must be an array of column names for the rows of a query"));
        }
        options.columns = objects.complete(&options.copy, options.columns.names)?;
        options.job.settings = settings;
        let (by_name, columns) = (options.copy.by_name(), &options.columns);
        if by_name && !columns.computed.is_empty() {
            return Err(invalid("cannot specify both expressions in columns and match_by \"name\""));
        }
        if options.filter.is_some() {
            let other = match columns {
                _ if by_name => Some("match_by \"name\""),
                ColumnsOption { computed, .. } if !computed.is_empty() => Some("expressions in columns"),
                ColumnsOption { others, .. } if !others.is_empty() => Some("source in columns"),
                _ => None,
            };
            if let Some(other) = other {
                return Err(invalid(format!("cannot specify both filter and {other}")));
            }
        }
        Ok(options)
    }

    /// The options of an INSERT from a foreign table. Guarded.
    pub fn of_foreign_table(relid: pg_sys::Oid) -> Result<LoadOptions> {
        let (location, copy) = (Wrapper::get()?.file)(relid)?;
        let options = LoadOptions::new(copy, location);
        Ok(LoadOptions { writer: WriterOption::Direct, replaces: Some(Replaced::Insert(relid)), ..options })
    }

    /// The options of a load of this file; all others have their defaults.
    fn new(copy: CopyOptions, location: Location) -> LoadOptions {
        LoadOptions {
            copy,
            location,
            query: None,
            columns: ColumnsOption::default(),
            where_clause: None,
            filter: None,
            function: None,
            table: TableOptions::default(),
            writer: WriterOption::Auto,
            workers: None,
            indexes: IndexesOption::Auto,
            duplicates: Duplicates::ERROR,
            once: Once::No,
            job: JobOptions::default(),
            replaces: None,
        }
    }

    /// Changes the options to COPY's behavior.
    pub fn adapt_to_copy(&mut self) {
        self.replaces = Some(Replaced::Copy);
        self.copy.keeps_bom = true;
        self.writer = WriterOption::Direct;
    }

    /// Is the load an INSERT or a COPY? These take no more ids of sequences than they need.
    pub fn is_statement(&self) -> bool {
        self.replaces.is_some()
    }

    pub fn is_copy(&self) -> bool {
        self.replaces == Some(Replaced::Copy)
    }

    /// The foreign table whose rows an INSERT takes.
    pub fn foreign(&self) -> Option<pg_sys::Oid> {
        match self.replaces {
            Some(Replaced::Insert(foreign)) => Some(foreign),
            Some(Replaced::Copy) | None => None,
        }
    }

    /// Changes the options for a dry run: it looks for all records with errors.
    pub fn adapt_to_check(&mut self) {
        let copy = &mut self.copy;
        (copy.on_error, copy.verbosity) = (OnError::Table, Verbosity::Silent);
        copy.reject_limit = None;
        copy.encoding_errors = copy.encoding_errors.filter(|errors| *errors == EncodingErrors::Replace);
        let truncate = if self.table.truncate == Truncate::No { Truncate::No } else { Truncate::Assumed };
        self.table = TableOptions { truncate, create: self.table.create, ..TableOptions::default() };
        self.duplicates.limit = None;
        self.once = Once::No;
    }

    /// Parses options that are given by name. Guarded.
    pub fn of_values(path: CString, given: &[(String, OptionValue)]) -> Result<LoadOptions> {
        let mut draft = Draft::new(Caller::Function);
        let (mut columns, mut program, mut where_clause, mut filter) = (None, false, None, None);
        let mut server = None;
        let (mut table, mut job) = (TableOptions::default(), JobOptions::default());
        let (mut writer, mut workers, mut indexes) = (WriterOption::Auto, None, IndexesOption::Auto);
        let mut duplicates = Duplicates::ERROR;
        let (mut once, mut force) = (false, false);
        let mut in_place = InPlace::default();
        for (name, value) in given {
            use OptionName as O;
            let Some(option) = O::by_name(name) else {
                return Err(Caller::Function.unknown(name, &[]));
            };
            if option == O::Columns {
                match value {
                    OptionValue::List(names) if !names.is_empty() => columns = Some(names.clone()),
                    _ => return Err(invalid("columns must be an array of column names")),
                }
                continue;
            }
            if draft.set(name, value)? {
                continue;
            }
            let bytes = value.one(name)?;
            let is_on = || Caller::Function.boolean(name, bytes);
            match option {
                O::Program => program = is_on()?,
                O::Server => server = Some(c_string(bytes)),
                O::Where => where_clause = Some(c_string(bytes)),
                O::Filter => filter = Some(c_string(bytes)),
                O::Truncate => table.truncate = if is_on()? { Truncate::Yes } else { Truncate::No },
                O::Freeze => table.freeze = is_on()?,
                O::Analyze => table.analyze = is_on()?,
                O::Writer => {
                    use WriterOption::{Auto, Buffered, Direct};
                    writer = word(name, bytes, &[("auto", Auto), ("direct", Direct), ("buffered", Buffered)])?;
                }
                O::Workers => {
                    let number = text(bytes).parse().ok().filter(|n| *n <= MOST_WORKERS);
                    let bad = || invalid(format!("workers must be a number from 0 to {MOST_WORKERS}"));
                    workers = Some(number.ok_or_else(bad)?);
                }
                O::Once => once = is_on()?,
                O::Force => force = is_on()?,
                O::EachFile => job.each_file = is_on()?,
                O::Create => table.create = is_on()?,
                O::Query | O::LargeObject => in_place.set(name, bytes)?,
                O::Lock => {
                    table.lock = word(name, bytes, &[("online", LockOption::Online), ("share", LockOption::Share)])?;
                }
                O::OnDuplicate => {
                    let words = [("error", Keep::Error), ("keep_old", Keep::Old), ("keep_new", Keep::New)];
                    duplicates.keep = word(name, bytes, &words)?;
                }
                O::ConflictIndex => duplicates.index = Some(c_string(bytes)),
                O::DuplicateLimit => duplicates.limit = Some(Duplicates::limit(&text(bytes))?),
                O::Indexes => {
                    use IndexesOption::{Auto, Insert, Merge, Rebuild};
                    let words = [("auto", Auto), ("insert", Insert), ("merge", Merge), ("rebuild", Rebuild)];
                    indexes = word(name, bytes, &words)?;
                }
                // The draft takes the others, or they are not options of a load.
                _ => return Err(Caller::Function.unknown(name, &[])),
            }
        }
        let mut copy = draft.finish()?;
        let truncates = table.truncate == Truncate::Yes;
        if job.each_file && (truncates || program) {
            let other = if truncates { "truncate" } else { "program" };
            return Err(invalid(format!("cannot specify both each_file and {other}")));
        }
        if once && (program || copy.limit.is_some()) {
            let other = if program { "program" } else { "limit" };
            return Err(invalid(format!("cannot specify both once and {other}")));
        }
        let once = match (once, force) {
            (false, true) => return Err(invalid("force requires once")),
            (true, true) => Once::Forced,
            (true, false) => Once::Yes,
            (false, false) => Once::No,
        };
        copy.is_literal = job.each_file;
        if copy.by_name() && columns.is_some() {
            return Err(invalid("cannot specify both columns and match_by \"name\""));
        }
        duplicates.check()?;
        let in_place = in_place.finish(&path, copy.on_error, given.iter().map(|(name, _)| name.as_str()))?;
        let (in_place, query) = in_place.map_or((None, None), |(location, query)| (Some(location), query));
        let location = given::location(&path, program, server.as_deref())?;
        Ok(LoadOptions {
            query,
            columns: ColumnsOption { names: columns, ..ColumnsOption::default() },
            where_clause,
            filter,
            table,
            writer,
            workers,
            indexes,
            duplicates,
            once,
            job,
            ..LoadOptions::new(copy, in_place.unwrap_or(location))
        })
    }
}
