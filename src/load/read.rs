//! `bulk_read`: returns the rows of a file, without a table.
//!
//! The query's column definition list defines the columns. The rows equal those of a foreign table over the same file.
//! The executor collects the rows of a function in FROM before it uses the first one, so they go to a tuplestore with
//! `work_mem` of memory.
//!
//! [`bulk_read`] is a plain frame, like a scan: it runs input functions, and pushes COPY's error context. [`collect`]
//! makes the rows that need no input function, many rows per guard.

use std::ffi::{CStr, CString};

use pg_bulk_format::fixed::Slice;
use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::definer::Allowed;
use super::options::{Objects, names_of_columns, value};
use super::target::check_location;
use super::wrapper::Wrapper;
use crate::error::{Error, OrRaise, Result};
use crate::pg::column::MemberKey;
use crate::pg::column::{self, Column};
use crate::pg::context::copy_context;
use crate::pg::copy_options::field_options::FieldDraft;
use crate::pg::copy_options::{self, CopyOptions, Draft, RecordShape};
use crate::pg::copy_question;
use crate::pg::directory::file_of;
use crate::pg::encoding::Encodings;
use crate::pg::function::version_1;
use crate::pg::jsonb;
use crate::pg::objects;
use crate::pg::option_value::{Caller, HeaderOption, OptionValue, invalid, text};
use crate::pg::row::{RowArrays, Rows};
use crate::pg::server_text::from_server;
use crate::pg::soft::{self, Conversion, Limit, OnError, Tolerance};
use crate::pg::source::Location;

/// Option names besides COPY's format options.
const NAMES: &[&str] = &["columns", "program", "server"];

/// A file that is being read.
struct Reading {
    rows: Rows,
    all: Vec<usize>,
    tolerance: Tolerance,
    /// Most bad records, in per cent of all records.
    reject_limit: Option<Limit>,
    records: u64,
    skip_left: u64,
    limit_left: u64,
    values: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
    /// Memory context of a row, for input functions.
    econtext: *mut pg_sys::ExprContext,
    store: *mut pg_sys::Tuplestorestate,
    descriptor: pg_sys::TupleDesc,
    memory: pg_sys::MemoryContext,
}

const END: i32 = 0;
/// Input functions must make values of the row.
const CONVERT: i32 = 1;

version_1!(pg_finfo_bulk_read);

/// `bulk_read(path, options, allow)`.
///
/// # Safety
/// Called by the executor, with two arguments, or with three.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_read(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // A plain frame: nothing here has a destructor.
    // SAFETY: one step at a time uses the result of `begin`, which lives until `end`.
    unsafe {
        let caller = pg_sys::CurrentMemoryContext;
        let reading = begin(fcinfo);
        let mut context = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(copy_context),
            arg: (&raw mut (*reading).rows).cast(),
        };
        pg_sys::error_context_stack = &raw mut context;
        while collect(reading) != END {
            let arrays = RowArrays { values: (*reading).values.as_mut_ptr(), nulls: (*reading).nulls.as_mut_ptr() };
            pg_sys::CurrentMemoryContext = (*(*reading).econtext).ecxt_per_tuple_memory;
            Rows::convert(&raw mut (*reading).rows, arrays, (*reading).econtext);
            pg_sys::CurrentMemoryContext = caller;
            keep(reading);
        }
        pg_sys::error_context_stack = context.previous;
        end(reading);
        pg_sys::Datum::from(0usize)
    }
}

/// Options of columns: position in a record of fixed length, key in an object, and options for the field's text.
type Places = Vec<(CString, Option<Slice>, Option<MemberKey>, FieldDraft)>;

/// Parses the arguments to the file and its format.
///
/// # Safety
/// `options` is a datum of type jsonb. Guarded.
unsafe fn parse(path: &CStr, options: pg_sys::Datum, allowed: &Allowed) -> Result<(Location, CopyOptions, Places)> {
    // SAFETY: this function's contract covers the datum.
    let Some(members) = (unsafe { jsonb::members(options) }) else {
        return Err(invalid("options must be a JSON object"));
    };
    let mut draft = Draft::new(Caller::Function);
    let (mut program, mut server) = (false, None);
    let (mut columns, mut objects) = (None, Objects::default());
    for (name, json) in members {
        let name = text(&name).into_owned();
        if !copy_options::NAMES.contains(&name.as_str()) && !NAMES.contains(&name.as_str()) {
            let valid: Vec<_> = copy_options::NAMES.iter().chain(NAMES).copied().collect();
            return Err(Caller::Function.unknown(&name, &valid));
        }
        let is_columns = name == "columns";
        let json = if is_columns { names_of_columns(json, &mut objects)? } else { json };
        let Some(value) = value(&name, json)? else { continue };
        allowed.check(&name, &value)?;
        match name.as_str() {
            "columns" => match value {
                OptionValue::List(names) => columns = Some(names),
                OptionValue::Text(_) => return Err(invalid("columns must be an array of column names")),
            },
            "program" => program = Caller::Function.boolean(&name, value.one(&name)?)?,
            "server" => server = Some(CString::new(value.one(&name)?).unwrap_or_default()),
            _ => drop(draft.set(&name, &value)?),
        }
    }
    let copy = draft.finish()?;
    let is_bare = objects.has_names && copy.shape() == RecordShape::Delimited;
    if !objects.others.is_empty() || !objects.computed.is_empty() || is_bare {
        let message = "columns of bulk_read() must be objects with options of a column, and without source and expr";
        return Err(invalid(message));
    }
    let columns = objects.complete(&copy, columns)?;
    let said = columns.slices.into_iter().zip(columns.keys).zip(columns.fields);
    let places = columns.names.unwrap_or_default().into_iter().zip(said);
    let places = places.map(|(name, ((slice, key), field))| (name, slice, key, field)).collect();
    if copy.on_error == OnError::Table {
        return Err(invalid("COPY ON_ERROR \"table\" not recognized"));
    }
    let location = match server {
        Some(_) if program => return Err(invalid("cannot specify both program and server")),
        Some(server) => Location::Below(file_of(&server, path, Wrapper::get()?.owns)?),
        None if program => Location::Program(path.to_owned()),
        None => Location::File(path.to_owned()),
    };
    Ok((location, copy, places))
}

/// Checks the rights, then opens the file.
///
/// # Safety
/// A call with the declared arguments.
#[pg_guard]
unsafe extern "C-unwind" fn begin(fcinfo: pg_sys::FunctionCallInfo) -> *mut Reading {
    // SAFETY: this function's contract covers the arguments; guarded calls.
    unsafe {
        let argument = |index: usize, name: &str| {
            let argument = *(*fcinfo).args.as_ptr().add(index);
            let missing = || Error::new(Code::ERRCODE_NULL_VALUE_NOT_ALLOWED, format!("{name} must not be null"));
            (!argument.isnull).then_some(argument.value).ok_or_else(missing)
        };
        let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
        if result.is_null() || (*result).expectedDesc.is_null() {
            let message = "function returning record called in context that cannot accept type record";
            Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
                .hint("Call it in FROM, with a column definition list.")
                .raise();
        }
        let path = argument(0, "path").or_raise();
        let json = argument(1, "options").or_raise();
        let allowed = Allowed::by_call(fcinfo).or_raise();
        let path = CStr::from_ptr(pg_sys::text_to_cstring(pg_sys::pg_detoast_datum_packed(path.cast_mut_ptr()).cast()));
        let (location, copy, places) = parse(path, json, &allowed).or_raise();
        check_location(&location).or_raise();
        copy_question::may_read(&location);
        pg_sys::InitMaterializedSRF(fcinfo, pg_sys::MAT_SRF_USE_EXPECTED_DESC);
        let (store, descriptor) = ((*result).setResult, (*result).setDesc);
        let memory = pg_sys::AllocSetContextCreateExtended(
            pg_sys::CurrentMemoryContext,
            c"bulk_read".as_ptr(),
            pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
            pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
        );
        let old = pg_sys::MemoryContextSwitchTo(memory);
        let rows = open(&location, &copy, &places, descriptor).or_raise();
        let econtext = pg_sys::MakePerTupleExprContext(pg_sys::CreateExecutorState());
        pg_sys::MemoryContextSwitchTo(old);
        let natts = usize::try_from((*descriptor).natts).unwrap_or(0);
        let mut reading = Reading {
            all: rows.all(),
            rows,
            tolerance: copy.tolerance(),
            reject_limit: copy.reject_limit,
            records: 0,
            skip_left: copy.skip,
            limit_left: copy.limit.unwrap_or(u64::MAX),
            values: vec![pg_sys::Datum::from(0usize); natts],
            nulls: vec![true; natts],
            econtext,
            store,
            descriptor,
            memory,
        };
        reading.fit();
        PgMemoryContexts::For(memory).leak_and_drop_on_delete(reading)
    }
}

/// Opens the file with these columns. Guarded; the current memory context must outlive the rows.
fn open(location: &Location, copy: &CopyOptions, places: &Places, descriptor: pg_sys::TupleDesc) -> Result<Rows> {
    let session = column::session(Encodings::new(copy.encoding)?.charset());
    // SAFETY: a valid descriptor.
    let natts = usize::try_from(unsafe { (*descriptor).natts }).unwrap_or(0);
    // SAFETY: the descriptor has this number of attributes.
    let mut columns: Vec<_> = (0..natts).map(|i| unsafe { Column::of_descriptor(descriptor, i, &session) }).collect();
    copy.force(pg_sys::InvalidOid, &mut columns)?;
    let fields = place(&mut columns, places, copy.shape())?;
    copy.refine(&mut columns, &fields)?;
    let stream = copy.open(location, copy.header(), columns.len())?;
    let match_header = copy.header == HeaderOption::Match;
    let known = copy.by_name().then(|| columns.clone());
    let mut rows = Rows::new(stream, columns, c"bulk_read".to_owned(), location.described(), match_header);
    if let Some(known) = known {
        rows.name_by(known);
    }
    Ok(rows)
}

/// Sets the positions of the columns in a record. Returns the options for their texts.
fn place(columns: &mut [Column], places: &Places, shape: RecordShape) -> Result<Vec<FieldDraft>> {
    let mut fields = vec![None; columns.len()];
    for (name, slice, key, field) in places {
        let at = columns.iter().position(|column| column.name == *name);
        let Some((column, own)) = at.and_then(|at| columns.get_mut(at).zip(fields.get_mut(at))) else {
            let message = format!("column \"{}\" does not exist", from_server(name));
            return Err(Error::new(Code::ERRCODE_UNDEFINED_COLUMN, message));
        };
        if own.replace(field.clone()).is_some() {
            let message = format!("column \"{}\" specified more than once", from_server(name));
            return Err(Error::new(Code::ERRCODE_DUPLICATE_COLUMN, message));
        }
        column.slice.clone_from(slice);
        column.key.clone_from(key);
    }
    let lacking = columns.iter().find(|column| column.slice.is_none());
    match lacking.filter(|_| shape == RecordShape::Fixed) {
        Some(column) => return Err(invalid(format!("column \"{}\" is not among columns", column.display_name()))),
        None if shape != RecordShape::Fixed => objects::check_rest(columns)?,
        None => (),
    }
    Ok(fields.into_iter().map(Option::unwrap_or_default).collect())
}

/// Collects rows, up to one that needs input functions.
///
/// # Safety
/// A valid reading that nothing else uses.
#[pg_guard]
unsafe extern "C-unwind" fn collect(reading: *mut Reading) -> i32 {
    // SAFETY: this function's contract covers the argument.
    let r = unsafe { &mut *reading };
    let tolerant = r.tolerance.on_error != OnError::Stop;
    loop {
        if r.limit_left == 0 {
            return END;
        }
        match r.rows.advance() {
            Err(error) if r.tolerance.survives(&error) => {
                pgrx::check_for_interrupts!();
                if r.skip_left > 0 {
                    r.skip_left -= 1;
                } else {
                    r.records += 1;
                    r.rows.leave_out_record(&mut r.tolerance, &error).or_raise();
                }
                continue;
            }
            Err(error) => error.raise(),
            Ok(false) => return END,
            Ok(true) => (),
        }
        if r.rows.take_change().is_some() {
            r.fit();
        }
        if r.skip_left > 0 {
            r.skip_left -= 1;
            continue;
        }
        r.records += 1;
        let mut decoded = r.rows.decoded();
        if decoded.is_some() {
            while let Some(row) = decoded {
                // SAFETY: a new row with the descriptor's attributes; guarded calls.
                unsafe {
                    r.rows.make_datums(row).or_raise();
                    pg_sys::tuplestore_putvalues(r.store, r.descriptor, row.values, row.nulls);
                }
                decoded = r.rows.advance_decoded();
            }
            continue;
        }
        r.rows.reset();
        // A row that is too short must not show values of the row before.
        r.nulls.fill(true);
        let arrays = RowArrays { values: r.values.as_mut_ptr(), nulls: r.nulls.as_mut_ptr() };
        // SAFETY: the arrays are as long as the descriptor; the context is this row's.
        unsafe {
            let row_memory = (*r.econtext).ecxt_per_tuple_memory;
            pg_sys::MemoryContextReset(row_memory);
            r.rows.decode(&r.all, arrays);
            if r.rows.has_queue() {
                if !tolerant {
                    return CONVERT;
                }
                let old = pg_sys::MemoryContextSwitchTo(row_memory);
                let outcome = r.rows.convert_softly(&mut r.tolerance, arrays, r.econtext).or_raise();
                pg_sys::MemoryContextSwitchTo(old);
                match outcome {
                    Conversion::Good => (),
                    Conversion::LeftOut => {
                        pgrx::check_for_interrupts!();
                        continue;
                    }
                    Conversion::Raises => return CONVERT,
                }
            }
        }
        r.keep();
    }
}

impl Reading {
    /// Maps fields to columns until the next file.
    fn fit(&mut self) {
        self.all = self.rows.all();
        if self.tolerance.on_error == OnError::Stop && self.limit_left == u64::MAX {
            self.rows.decode_together(self.values.len(), &[]);
        }
    }

    /// Stores the complete row. Guarded.
    fn keep(&mut self) {
        self.rows.check_missing().or_raise();
        self.limit_left -= 1;
        // SAFETY: a guarded call with a row of the descriptor.
        unsafe {
            let (values, nulls) = (self.values.as_mut_ptr(), self.nulls.as_mut_ptr());
            pg_sys::tuplestore_putvalues(self.store, self.descriptor, values, nulls);
        }
    }
}

/// Stores the row after input functions have made its values.
///
/// # Safety
/// As [`collect`].
#[pg_guard]
unsafe extern "C-unwind" fn keep(reading: *mut Reading) {
    // SAFETY: this function's contract covers the argument.
    unsafe { (*reading).keep() }
}

/// Closes the file and frees the reading.
///
/// # Safety
/// As [`collect`]; it is not used afterwards.
#[pg_guard]
unsafe extern "C-unwind" fn end(reading: *mut Reading) {
    // SAFETY: this function's contract covers the argument; deleting the context drops it.
    unsafe {
        let memory = {
            let r = &mut *reading;
            soft::check_share(r.tolerance.on_error, r.reject_limit, r.tolerance.bad_rows, r.records).or_raise();
            r.tolerance.report(None);
            r.rows.close().or_raise();
            pg_sys::FreeExecutorState((*r.econtext).ecxt_estate);
            r.memory
        };
        pg_sys::MemoryContextDelete(memory);
    }
}
