//! Parses the options of a load from a jsonb object.
//!
//! A parallel worker parses the same text again. Booleans, numbers and strings are read as COPY reads the text; lists
//! are arrays; null means the default. An unknown name is a syntax error, an invalid value an invalid parameter value.
//! Errors about options that exclude each other have COPY's words.

use std::ffi::CString;

use pg_bulk_format::fixed::Slice;
use pgrx::pg_sys;

use super::definer::Allowed;
use super::duplicate::{Duplicates, Keep};
use super::given::InPlace;
use super::option_name::{ColumnOption, OptionName};
use super::settings::{self, SETTINGS, Setting};
use super::wrapper::Wrapper;
use crate::error::Result;
use crate::pg::column::Taken;
use crate::pg::copy_options::{CopyOptions, Draft, RecordShape};
use crate::pg::directory::file_of;
use crate::pg::encoding::EncodingErrors;
use crate::pg::field_options::FieldDraft;
use crate::pg::jsonb::{self, Json};
use crate::pg::key_options::{MemberKey, keys};
use crate::pg::option_value::{Caller, OptionValue, invalid, text};
use crate::pg::server_text::from_server;
use crate::pg::slice_options::{SliceDraft, slices};
use crate::pg::soft::{OnError, Verbosity};
use crate::pg::source::Location;

/// The highest value of `max_parallel_maintenance_workers` (`MAX_PARALLEL_WORKER_LIMIT`).
const MOST_WORKERS: usize = 1024;

/// The writer that the option asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterOption {
    Auto,
    Direct,
    Buffered,
}

/// Whether other sessions may write to the table during the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockOption {
    Online,
    Share,
}

/// The index strategy that the option asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexesOption {
    Auto,
    Insert,
    Merge,
    Rebuild,
}

/// The options of a load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    pub copy: CopyOptions,
    pub location: Location,
    /// The query that makes the rows, if there is no file.
    pub query: Option<CString>,
    /// The columns of the file's fields, in order.
    pub columns: Option<Vec<CString>>,
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
    /// The header names the columns of the fields. `copy.header` is then one line.
    pub match_by_name: bool,
    pub where_clause: Option<CString>,
    /// The filter function: its name, and its OID once that is known.
    pub filter: Option<CString>,
    pub function: Option<pg_sys::Oid>,
    pub truncate: bool,
    /// A dry run that checks rows as if the table had been truncated.
    pub as_truncated: bool,
    pub freeze: bool,
    pub analyze: bool,
    pub writer: WriterOption,
    pub workers: Option<usize>,
    pub lock: LockOption,
    pub indexes: IndexesOption,
    pub duplicates: Duplicates,
    /// Files that were loaded before are left out, unless `force` is set.
    pub once: bool,
    pub force: bool,
    /// Each of several files is a job of its own.
    pub each_file: bool,
    /// Settings of a job.
    pub settings: Vec<Setting>,
    /// The load creates the target. When options with it are parsed, the table already exists.
    pub create: bool,
    /// The foreign table that the file and the options belong to.
    pub foreign: Option<pg_sys::Oid>,
    /// The load runs a COPY, and must behave like core's.
    pub is_copy: bool,
}

/// Parses one of several words.
fn word<T: Copy>(name: &str, value: &[u8], words: &[(&str, T)]) -> Result<T> {
    let given = text(value).to_ascii_lowercase();
    match words.iter().find(|(word, _)| *word == given) {
        Some((_, meaning)) => Ok(*meaning),
        None => {
            let list: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            Err(invalid(format!("{name} \"{}\" not recognized", text(value)))
                .hint(format!("Valid values are {}.", list.join(", "))))
        }
    }
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
                b"source" => {
                    let bad = || {
                        invalid(format!("source \"{}\" not recognized", text(&given)))
                            .hint("Valid values are \"filename\", \"line_number\".")
                    };
                    source = Some(Taken::by_name(&text(&given)).ok_or_else(bad)?);
                }
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

/// The keys of listed columns in a JSON object.
pub fn keys_of(
    copy: &CopyOptions,
    columns: Option<&[CString]>,
    drafts: &[SliceDraft],
) -> Result<Vec<Option<MemberKey>>> {
    let names: Vec<String> = columns.unwrap_or_default().iter().map(|name| from_server(name)).collect();
    keys(copy, names.iter().zip(drafts).map(|(name, draft)| (name.as_str(), &draft.key)))
}

/// The positions of listed columns in a record of fixed length.
pub fn slices_of(
    copy: &CopyOptions,
    columns: Option<&[CString]>,
    drafts: Vec<SliceDraft>,
) -> Result<Vec<Option<Slice>>> {
    let Some(columns) = columns else {
        let message = "format \"fixed\" requires columns";
        return if copy.shape() == RecordShape::Fixed { Err(invalid(message)) } else { Ok(Vec::new()) };
    };
    let names = columns.iter().map(|name| from_server(name));
    slices(copy, names.zip(drafts).collect())
}

impl LoadOptions {
    /// Parses the arguments of a load and checks that the options are `allowed`. Error hints list a job's options only
    /// for a caller that `enqueues`. Guarded.
    ///
    /// # Safety
    /// `options` is a datum of type jsonb.
    pub unsafe fn parse(
        path: CString,
        options: pg_sys::Datum,
        allowed: &Allowed,
        enqueues: bool,
    ) -> Result<LoadOptions> {
        // SAFETY: this function's contract covers the datum.
        let Some(members) = (unsafe { jsonb::members(options) }) else {
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
        let options = LoadOptions::of_values(path, &given)?;
        if options.create && enqueues {
            return Err(invalid("only bulk_load() supports the option create"));
        }
        let Objects { others, computed, slices, fields, .. } = objects;
        let is_said = || fields.iter().any(|field| field.given().is_some());
        if options.query.is_some() && (!(others.is_empty() && computed.is_empty()) || is_said()) {
            return Err(invalid("columns must be an array of column names for the rows of a query"));
        }
        let keys = keys_of(&options.copy, options.columns.as_deref(), &slices)?;
        let slices = slices_of(&options.copy, options.columns.as_deref(), slices)?;
        let options = LoadOptions { others, computed, slices, fields, keys, settings, ..options };
        if options.match_by_name && !options.computed.is_empty() {
            return Err(invalid("cannot specify both expressions in columns and match_by \"name\""));
        }
        if options.filter.is_some() {
            let other = match &options {
                LoadOptions { match_by_name: true, .. } => Some("match_by \"name\""),
                LoadOptions { computed, .. } if !computed.is_empty() => Some("expressions in columns"),
                LoadOptions { others, .. } if !others.is_empty() => Some("source in columns"),
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
        let (location, copy) = Wrapper::get()?.file_of(relid)?;
        Ok(LoadOptions {
            copy,
            location,
            query: None,
            columns: None,
            slices: Vec::new(),
            fields: Vec::new(),
            keys: Vec::new(),
            others: Vec::new(),
            computed: Vec::new(),
            match_by_name: false,
            where_clause: None,
            filter: None,
            function: None,
            truncate: false,
            as_truncated: false,
            freeze: false,
            analyze: false,
            writer: WriterOption::Direct,
            workers: None,
            lock: LockOption::Online,
            indexes: IndexesOption::Auto,
            duplicates: Duplicates::ERROR,
            once: false,
            force: false,
            each_file: false,
            settings: Vec::new(),
            create: false,
            foreign: Some(relid),
            is_copy: false,
        })
    }

    /// Changes the options to COPY's behavior.
    pub fn adapt_to_copy(&mut self) {
        self.is_copy = true;
        self.copy.keeps_bom = true;
        self.writer = WriterOption::Direct;
    }

    /// Is the load an INSERT or a COPY? These take no more ids of sequences than they need.
    pub fn is_statement(&self) -> bool {
        self.is_copy || self.foreign.is_some()
    }

    /// Changes the options for a dry run: it looks for all records with errors.
    pub fn adapt_to_check(&mut self) {
        let copy = &mut self.copy;
        (copy.on_error, copy.verbosity) = (OnError::Table, Verbosity::Silent);
        copy.reject_limit = None;
        copy.encoding_errors = copy.encoding_errors.filter(|errors| *errors == EncodingErrors::Replace);
        self.as_truncated = self.truncate;
        (self.truncate, self.freeze, self.analyze) = (false, false, false);
        self.duplicates.limit = None;
        self.once = false;
        self.lock = LockOption::Online;
    }

    /// Parses options that are given by name. Guarded.
    pub fn of_values(path: CString, given: &[(String, OptionValue)]) -> Result<LoadOptions> {
        let mut draft = Draft::new(Caller::Function);
        let (mut columns, mut program, mut where_clause, mut filter) = (None, false, None, None);
        let mut server = None;
        let (mut truncate, mut freeze, mut analyze) = (false, false, false);
        let (mut writer, mut workers) = (WriterOption::Auto, None);
        let (mut lock, mut indexes) = (LockOption::Online, IndexesOption::Auto);
        let mut duplicates = Duplicates::ERROR;
        let (mut once, mut force, mut each_file) = (false, false, false);
        let mut create = false;
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
                O::Truncate => truncate = is_on()?,
                O::Freeze => freeze = is_on()?,
                O::Analyze => analyze = is_on()?,
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
                O::EachFile => each_file = is_on()?,
                O::Create => create = is_on()?,
                O::Query | O::LargeObject => in_place.set(name, bytes)?,
                O::Lock => {
                    lock = word(name, bytes, &[("online", LockOption::Online), ("share", LockOption::Share)])?;
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
                // The draft has taken them, or they are not options of a load.
                O::Format
                | O::Header
                | O::Delimiter
                | O::TrailingDelimiter
                | O::Quote
                | O::Escape
                | O::Null
                | O::Default
                | O::Encoding
                | O::ForceNotNull
                | O::ForceNull
                | O::OnError
                | O::RejectLimit
                | O::LogVerbosity
                | O::Skip
                | O::Limit
                | O::Compression
                | O::MatchBy
                | O::RecordLength
                | O::LineEnds
                | O::Trim
                | O::NullIf
                | O::EncodingErrors
                | O::Columns
                | O::Settings
                | O::Sample
                | O::Table => return Err(Caller::Function.unknown(name, &[])),
            }
        }
        let mut copy = draft.finish()?;
        if each_file && (truncate || program) {
            let other = if truncate { "truncate" } else { "program" };
            return Err(invalid(format!("cannot specify both each_file and {other}")));
        }
        if once && (program || copy.limit.is_some()) {
            let other = if program { "program" } else { "limit" };
            return Err(invalid(format!("cannot specify both once and {other}")));
        }
        if force && !once {
            return Err(invalid("force requires once"));
        }
        copy.is_literal = each_file;
        let match_by_name = copy.by_name();
        if match_by_name && columns.is_some() {
            return Err(invalid("cannot specify both columns and match_by \"name\""));
        }
        duplicates.check()?;
        let in_place = in_place.finish(&path, copy.on_error, given.iter().map(|(name, _)| name.as_str()))?;
        let (in_place, query) = in_place.map_or((None, None), |(location, query)| (Some(location), query));
        let location = match server {
            Some(_) if program => return Err(invalid("cannot specify both program and server")),
            Some(server) => Location::Below(file_of(&server, &path, Wrapper::get()?.owns)?),
            None if program => Location::Program(path),
            None => Location::File(path),
        };
        let location = in_place.unwrap_or(location);
        Ok(LoadOptions {
            copy,
            location,
            query,
            columns,
            slices: Vec::new(),
            fields: Vec::new(),
            keys: Vec::new(),
            others: Vec::new(),
            computed: Vec::new(),
            match_by_name,
            where_clause,
            filter,
            function: None,
            truncate,
            as_truncated: false,
            freeze,
            analyze,
            writer,
            workers,
            lock,
            indexes,
            duplicates,
            once,
            force,
            each_file,
            settings: Vec::new(),
            create,
            foreign: None,
            is_copy: false,
        })
    }
}
