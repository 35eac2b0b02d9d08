//! `bulk_read`: returns the rows of a file, without a table.
//!
//! The query's column definition list defines the columns. The rows equal those of a foreign table over the same file.
//! The executor collects the rows of a function in FROM before it uses the first one, so they go to a tuplestore with
//! `work_mem` of memory.
//!
//! [`bulk_read`] is a plain frame, like a scan: it runs input functions, and pushes COPY's error context. The pump
//! ([`Store`]) makes the rows that need no input function, many rows per guard.

use std::ffi::{CStr, CString};

use pg_bulk_text::fixed::Slice;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::definer::Allowed;
use super::options::{Objects, given, names_of_columns, value};
use super::target::check_location;
use crate::error::{Error, OrRaise, Result};
use crate::input::encoding::Encodings;
use crate::input::source::Location;
use crate::program::copy_question;
use crate::rows::column::MemberKey;
use crate::rows::column::{self, Column, Taken};
use crate::rows::context::copy_context;
use crate::rows::copy_options::field_options::FieldDraft;
use crate::rows::copy_options::{self, CopyOptions, Draft, RecordShape};
use crate::rows::objects;
use crate::rows::row::pump::{Begin, Policy, Pump, RowOutcome, Sink};
use crate::rows::row::{RowArrays, Rows};
use crate::rows::soft::{self, Limit, OnError};
use crate::server::function::{Call, version_1};
use crate::server::jsonb::Jsonb;
use crate::server::memory_context::MemoryContext;
use crate::server::option_value::{Caller, HeaderOption, OptionValue, invalid, text};
use crate::server::relation::TupleDesc;
use crate::server::server_text::from_server;
use crate::server::slot::ExprContext;
use crate::server::unguarded::{guarded, in_context};

/// Option names besides COPY's format options.
const NAMES: &[&str] = &["columns", "program", "server"];

/// A file that is being read.
struct Reading {
    rows: Rows,
    pump: Pump<Store>,
    reject_limit: Option<Limit>,
    memory: MemoryContext,
}

/// Collects rows in a tuplestore.
struct Store {
    records: u64,
    values: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
    /// Memory context of a row, for input functions.
    econtext: ExprContext<'static>,
    store: *mut pg_sys::Tuplestorestate,
    descriptor: pg_sys::TupleDesc,
}

version_1!(pg_finfo_bulk_read);

/// `bulk_read(path, options, allow)`.
///
/// # Safety
/// Called by the executor, with two arguments, or with three.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_read(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // A plain frame: nothing here has a destructor.
    // SAFETY: one step at a time uses the reading, which lives as long as its memory context.
    unsafe {
        let caller = pg_sys::CurrentMemoryContext;
        let reading = guarded(|| begin(&Call::from_raw(fcinfo)).or_raise());
        let (rows, sink) = (&raw mut (*reading).rows, &raw mut (*reading).pump.sink);
        in_context(copy_context, rows.cast(), || {
            while guarded(|| (*reading).pump.next(&mut *rows).or_raise()) != RowOutcome::End {
                let econtext = (*sink).econtext;
                pg_sys::CurrentMemoryContext = econtext.memory();
                Rows::convert(rows, (*sink).arrays(), econtext.as_ptr());
                pg_sys::CurrentMemoryContext = caller;
                guarded(|| (*sink).keep(&mut *rows, &mut (*reading).pump.policy).or_raise());
            }
        });
        guarded(|| end(&mut *reading).or_raise());
        guarded(|| (*reading).memory.delete());
        pg_sys::Datum::from(0usize)
    }
}

/// Options of columns: origin, position in a record of fixed length, key in an object, and options for the field's text.
type Places = Vec<(CString, Taken, Option<Slice>, Option<MemberKey>, FieldDraft)>;

/// Parses the arguments to the file and its format. Guarded.
fn parse(path: &CStr, options: &Jsonb, allowed: &Allowed) -> Result<(Location, CopyOptions, Places)> {
    let Some(members) = options.members() else {
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
    if !objects.computed.is_empty() || is_bare {
        let message = "columns of bulk_read() must be objects with options of a column, and without expr";
        return Err(invalid(message));
    }
    let mut columns = objects.complete(&copy, columns)?;
    let others = std::mem::take(&mut columns.others).into_iter();
    let others = others.map(|(name, taken)| (name, taken, None, None, FieldDraft::default()));
    let said = columns.slices.into_iter().zip(columns.keys).zip(columns.fields);
    let places = columns.names.unwrap_or_default().into_iter().zip(said);
    let places = places.map(|(name, ((slice, key), field))| (name, Taken::Field, slice, key, field));
    let places = places.chain(others).collect();
    if copy.on_error == OnError::Table {
        return Err(invalid("COPY ON_ERROR \"table\" not recognized"));
    }
    Ok((given::location(path, program, server.as_deref())?, copy, places))
}

/// Checks the rights, then opens the file. Guarded.
fn begin(call: &Call<'_>) -> Result<*mut Reading> {
    if !call.has_described_rows() {
        let message = "function returning record called in context that cannot accept type record";
        return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message)
            .hint("Call it in FROM, with a column definition list."));
    }
    let path = call.required(0, "path")?.into_text();
    let json = call.jsonb(1, "options")?;
    let allowed = Allowed::by_call(call)?;
    let (location, copy, places) = parse(&path, &json, &allowed)?;
    check_location(&location)?;
    copy_question::may_read(&location);
    let (store, descriptor) = call.described_rows();
    let memory = MemoryContext::current().child(c"bulk_read");
    let entered = memory.enter();
    let rows = open(&location, &copy, &places, descriptor)?;
    // SAFETY: guarded calls; `end` frees the executor state.
    let econtext = unsafe { ExprContext::from_raw(pg_sys::MakePerTupleExprContext(pg_sys::CreateExecutorState())) };
    drop(entered);
    let natts = descriptor.len();
    let (values, nulls) = (vec![pg_sys::Datum::from(0usize); natts], vec![true; natts]);
    let sink = Store { records: 0, values, nulls, econtext, store, descriptor: descriptor.as_ptr() };
    let pump = Pump { policy: Policy::of(&copy), sink };
    let mut reading = Reading { rows, pump, reject_limit: copy.reject_limit, memory };
    reading.pump.sink.fit(&mut reading.rows, &mut reading.pump.policy);
    Ok(memory.keep(reading))
}

/// Opens the file with these columns. Guarded; the current memory context must outlive the rows.
fn open(location: &Location, copy: &CopyOptions, places: &Places, descriptor: TupleDesc<'_>) -> Result<Rows> {
    let session = column::session(Encodings::new(copy.encoding)?.charset());
    let mut columns: Vec<_> = descriptor.attributes().map(|attribute| Column::of(attribute, &session)).collect();
    copy.force(pg_sys::InvalidOid, &mut columns)?;
    let fields = place(&mut columns, places, copy.shape())?;
    copy.refine(&mut columns, &fields)?;
    let stream = copy.open(location, copy.header())?;
    let match_header = copy.header == HeaderOption::Match;
    let known = copy.by_name().then(|| columns.clone());
    let mut rows = Rows::new(stream, columns, c"bulk_read".to_owned(), location.described(), match_header);
    rows.treat_ragged(&copy.ragged);
    if let Some(known) = known {
        rows.name_by(known);
    }
    Ok(rows)
}

/// Sets the positions of the columns in a record. Returns the options for their texts.
fn place(columns: &mut [Column], places: &Places, shape: RecordShape) -> Result<Vec<FieldDraft>> {
    let mut fields = vec![None; columns.len()];
    for (name, taken, slice, key, field) in places {
        let at = columns.iter().position(|column| column.name == *name);
        let Some((column, own)) = at.and_then(|at| columns.get_mut(at).zip(fields.get_mut(at))) else {
            let message = format!("column \"{}\" does not exist", from_server(name));
            return Err(Error::new(Code::ERRCODE_UNDEFINED_COLUMN, message));
        };
        if own.replace(field.clone()).is_some() {
            let message = format!("column \"{}\" specified more than once", from_server(name));
            return Err(Error::new(Code::ERRCODE_DUPLICATE_COLUMN, message));
        }
        column.taken = *taken;
        column.slice.clone_from(slice);
        column.key.clone_from(key);
    }
    let lacking = columns.iter().find(|column| column.slice.is_none() && column.taken == Taken::Field);
    match lacking.filter(|_| shape == RecordShape::Fixed) {
        Some(column) => return Err(invalid(format!("column \"{}\" is not among columns", column.display_name()))),
        None if shape != RecordShape::Fixed => objects::check_rest(columns)?,
        None => (),
    }
    Ok(fields.into_iter().map(Option::unwrap_or_default).collect())
}

impl Sink for Store {
    fn arrays(&mut self) -> RowArrays<'_> {
        RowArrays::of(&mut self.values, &mut self.nulls)
    }

    fn econtext(&self) -> ExprContext<'static> {
        self.econtext
    }

    /// Maps fields to columns until the next file.
    fn fit(&mut self, rows: &mut Rows, policy: &mut Policy) {
        policy.want(rows, |_| true);
        if policy.is_plain() {
            rows.decode_together(self.values.len(), &[]);
        }
    }

    fn reject(&mut self, rows: &mut Rows, policy: &mut Policy, error: &Error) -> Result<()> {
        self.records += 1;
        rows.leave_out_record(&mut policy.tolerance, error)
    }

    /// Stores all rows that were decoded together with the current one.
    fn begin(&mut self, rows: &mut Rows, _policy: &mut Policy) -> Result<Begin> {
        self.records += 1;
        if rows.decoded().is_none() {
            // A row that is too short must not show values of the row before.
            self.nulls.fill(true);
            // SAFETY: the values of the row before are not used any more.
            unsafe { self.econtext.reset() };
            return Ok(Begin::Decode);
        }
        loop {
            // SAFETY: a new row with the descriptor's attributes; guarded calls.
            unsafe {
                rows.make_datums()?;
                let Some(row) = rows.decoded() else { return Ok(Begin::Done) };
                pg_sys::tuplestore_putvalues(self.store, self.descriptor, row.values(), row.nulls());
            }
            if !rows.advance_decoded() {
                return Ok(Begin::Done);
            }
        }
    }

    fn finish(&mut self, rows: &mut Rows, policy: &mut Policy) -> Result<bool> {
        if rows.has_queue() {
            return Ok(true);
        }
        self.keep(rows, policy)?;
        Ok(false)
    }
}

impl Store {
    /// Stores the complete row. Guarded.
    fn keep(&mut self, rows: &mut Rows, policy: &mut Policy) -> Result<()> {
        rows.check_missing()?;
        policy.count_row();
        let (values, nulls) = (self.values.as_mut_ptr(), self.nulls.as_mut_ptr());
        // SAFETY: a guarded call with a row of the descriptor.
        unsafe { pg_sys::tuplestore_putvalues(self.store, self.descriptor, values, nulls) };
        Ok(())
    }
}

/// Closes the file. The reading is not used afterwards. Guarded.
fn end(reading: &mut Reading) -> Result<()> {
    let Pump { policy: Policy { tolerance, .. }, sink } = &reading.pump;
    soft::check_share(tolerance.on_error, reading.reject_limit, tolerance.bad_rows, sink.records)?;
    tolerance.report(None);
    tolerance.report_ragged(&reading.rows, &reading.rows.ragged);
    reading.rows.close()?;
    // SAFETY: a guarded call; `begin` has made the state, and nothing uses it any more.
    unsafe { pg_sys::FreeExecutorState((*sink.econtext.as_ptr()).ecxt_estate) };
    Ok(())
}
