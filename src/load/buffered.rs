//! The buffered writer: the file's rows through an INSERT of the server's own.
//!
//! ```text
//!   INSERT INTO t (a, b) OVERRIDING SYSTEM VALUE
//!   SELECT (f.r).a, (f.r).b FROM (SELECT bulk_rows(NULL::t, $1) AS r) f
//! ```
//!
//! Whatever hangs on the target is thereby done by whoever does it for every INSERT: rules, policies, triggers, views,
//! foreign tables, routing to partitions, defaults, identity and generated columns. [`bulk_rows`] hands the rows over
//! one by one. `$1` is a random number by which it knows which of the loads running in this backend is meant (a trigger
//! may start another one), and that it is ours to call: nobody else is to take rows out of a load.
//!
//! Only columns that the file has fields for are in the list; the server knows the defaults of the others. With a
//! `where` clause COPY shows it the defaults, so then they are evaluated here, before it, and inserted as they are.
//! OVERRIDING SYSTEM VALUE makes INSERT accept values for identity columns as COPY does.
//!
//! COPY's error context is pushed by the caller ([`super`]), and speaks while rows are being handed over: it is asked
//! for errors of conversions, but also for those of constraints and row triggers, which are about the row handed over
//! last. Before the first row and after the last one nothing is said, as in COPY: statement triggers and AFTER triggers
//! are not about a line.

use std::ffi::{CStr, CString};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::{Load, source};
use crate::error::{Error, OrRaise, Result};
use crate::pg::compat;
use crate::pg::progress::Progress;
use crate::pg::row::{RowArrays, Rows};
use crate::pg::soft::{OnError, Outcome, Tolerance};
use crate::pg::source::Location;
use crate::pg::statement;
use crate::pg::unguarded;

/// Rows on their way into an INSERT.
#[derive(Debug)]
struct Feed {
    load: *mut Load,
    token: i64,
    /// The feed that was the innermost one before.
    outer: *mut Feed,
    /// The statement.
    insert: CString,
    /// Indexes of the columns that are converted: all that an attribute takes.
    all: Vec<usize>,
    /// Attributes that are set here although the file has no field for them.
    defaults: Vec<(usize, *mut pg_sys::ExprState)>,
    qual: *mut pg_sys::ExprState,
    econtext: *mut pg_sys::ExprContext,
    /// The row; a virtual tuple.
    slot: *mut pg_sys::TupleTableSlot,
    tolerance: Tolerance,
    skip_left: u64,
    limit_left: u64,
    filtered: u64,
    /// Rows handed over.
    given: u64,
    progress: Progress,
    /// Bytes at which progress was last reported.
    reported: u64,
}

/// The feed that was begun last. Feeds leave the chain when they are dropped, which their memory context sees to.
static INNERMOST: AtomicPtr<Feed> = AtomicPtr::new(std::ptr::null_mut());

impl Drop for Feed {
    fn drop(&mut self) {
        let this = &raw mut *self;
        if INNERMOST.load(Relaxed) == this {
            INNERMOST.store(self.outer, Relaxed);
            return;
        }
        let mut feed = INNERMOST.load(Relaxed);
        // SAFETY: feeds in the chain have not been dropped.
        while let Some(inner) = unsafe { feed.as_mut() } {
            if inner.outer == this {
                inner.outer = self.outer;
                return;
            }
            feed = inner.outer;
        }
    }
}

/// The running feed with this token, or null. Raises nothing.
fn running(token: i64) -> *mut Feed {
    let mut feed = INNERMOST.load(Relaxed);
    // SAFETY: feeds in the chain have not been dropped.
    while let Some(found) = unsafe { feed.as_ref() } {
        if found.token == token {
            return feed;
        }
        feed = found.outer;
    }
    feed
}

fn new_token() -> Result<i64> {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is as long as said.
    if !unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) } {
        return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, "could not generate random values"));
    }
    Ok(i64::from_ne_bytes(bytes))
}

/// Load through an INSERT.
///
/// # Safety
/// A plain frame; a load whose rows are open, in whose memory context we are.
pub unsafe fn load(load: *mut Load) {
    // SAFETY: the caller vouches for the load; the feed lives as long as its memory context.
    unsafe {
        let feed = begin(load);
        let processed = statement::run((*feed).insert.as_ptr(), (*feed).token);
        end(feed, processed);
    }
}

/// # Safety
/// As [`load`].
#[pg_guard]
unsafe extern "C-unwind" fn begin(load: *mut Load) -> *mut Feed {
    // SAFETY: the caller vouches for the load; guarded calls.
    unsafe {
        let context = (*load).memory;
        let load_ref = &*load;
        let relation = load_ref.target.relation;
        let rows = load_ref.rows.as_ref();
        let estate = pg_sys::CreateExecutorState();
        let econtext = pg_sys::MakePerTupleExprContext(estate);
        let has_where = !load_ref.where_clause.conditions.is_null();
        let (mut qual, mut defaults) = (std::ptr::null_mut(), Vec::new());
        if has_where {
            qual = pg_sys::ExecInitQual(load_ref.where_clause.conditions, std::ptr::null_mut());
            defaults = source::defaults(relation, &load_ref.mapping);
        }
        let slot = pg_sys::MakeSingleTupleTableSlot((*relation).rd_att, &raw const pg_sys::TTSOpsVirtual);
        for attribute in 0..usize::try_from((*(*relation).rd_att).natts).unwrap_or(0) {
            // Attributes that nobody sets are NULL in every row.
            *(*slot).tts_isnull.add(attribute) = true;
            *(*slot).tts_values.add(attribute) = pg_sys::Datum::from(0usize);
        }
        let copy = &load_ref.options.copy;
        let is_program = matches!(load_ref.options.location, Location::Program(_));
        let size = rows.and_then(|rows| rows.stream().size());
        let mut feed = Feed {
            load,
            token: new_token().or_raise(),
            outer: INNERMOST.load(Relaxed),
            insert: CString::default(),
            all: rows.map(Rows::all).unwrap_or_default(),
            defaults,
            qual,
            econtext,
            slot,
            tolerance: copy.tolerance(),
            skip_left: copy.skip,
            limit_left: copy.limit.unwrap_or(u64::MAX),
            filtered: 0,
            given: 0,
            progress: Progress::start(load_ref.target.relid, is_program, size),
            reported: 0,
        };
        feed.insert = feed.statement(load_ref);
        let feed = PgMemoryContexts::For(context).leak_and_drop_on_delete(feed);
        INNERMOST.store(feed, Relaxed);
        feed
    }
}

impl Feed {
    /// The INSERT.
    fn statement(&self, load: &Load) -> CString {
        let attributes = load.mapping.attributes().filter_map(|attnum| usize::try_from(attnum - 1).ok());
        let attributes = attributes.chain(self.defaults.iter().map(|(attribute, _)| *attribute));
        let (mut list, mut values) = (Vec::new(), Vec::new());
        for attribute in attributes {
            // SAFETY: an attribute of the open relation; guarded.
            let name = unsafe {
                let form = compat::attribute((*load.target.relation).rd_att, attribute);
                CStr::from_ptr(pg_sys::quote_identifier((*form).attname.data.as_ptr()))
            };
            let separator: &[u8] = if list.is_empty() { b"" } else { b", " };
            list.extend([separator, name.to_bytes()].concat());
            values.extend([separator, b"(f.r).", name.to_bytes()].concat());
        }
        let list = if list.is_empty() { Vec::new() } else { [b" (", list.as_slice(), b")"].concat() };
        // SAFETY: guarded; the schema is that of a function that is running.
        let function = unsafe {
            let schema = pg_sys::get_namespace_name(load.schema);
            CStr::from_ptr(pg_sys::quote_qualified_identifier(schema, c"bulk_rows".as_ptr()))
        };
        let table = load.target.name.as_bytes();
        let statement = [
            b"INSERT INTO ",
            table,
            list.as_slice(),
            b" OVERRIDING SYSTEM VALUE SELECT ",
            values.as_slice(),
            b" FROM (SELECT ",
            function.to_bytes(),
            b"(NULL::",
            table,
            b", $1) AS r) f",
        ]
        .concat();
        CString::new(statement).unwrap_or_default()
    }
}

/// Count what became of the rows.
///
/// # Safety
/// A feed whose statement has ended.
#[pg_guard]
unsafe extern "C-unwind" fn end(feed: *mut Feed, processed: u64) {
    // SAFETY: the caller vouches for the feed, and nobody else uses the load now.
    unsafe {
        let feed = &mut *feed;
        let load = &mut *feed.load;
        feed.progress.end();
        feed.tolerance.report();
        pg_sys::ExecDropSingleTupleTableSlot(feed.slot);
        pg_sys::FreeExecutorState((*feed.econtext).ecxt_estate);
        let left_out = feed.given.saturating_sub(processed);
        if left_out > 0 {
            let rows = if left_out == 1 { "1 row was".to_owned() } else { format!("{left_out} rows were") };
            load.counts
                .notes
                .push(format!("{rows} left out by triggers or rules of \"{}\".", load.target.display_name()));
        }
        if feed.tolerance.on_error == OnError::Ignore {
            load.counts.rejected = feed.tolerance.bad_rows;
        }
        load.counts.loaded = processed;
        load.counts.filtered = feed.filtered + left_out;
    }
}

/// What became of a row in a guarded step; numbers, so that they cross the guard as they are.
const END: i32 = 0;
const ROW: i32 = 1;
/// The row lacks fields: what there is is converted, then comes the error.
const SHORT: i32 = 2;
/// The row's conversion raises an error, which is to be raised in a plain frame.
const RAISES: i32 = 3;

/// Go to the next row and decode it.
///
/// # Safety
/// A valid feed, whose per-tuple memory context is current.
#[pg_guard]
unsafe extern "C-unwind" fn next_row(feed: *mut Feed) -> i32 {
    // SAFETY: the caller vouches for it; the slot's arrays are as long as the relation's descriptor.
    unsafe {
        let feed = &mut *feed;
        let load = &mut *feed.load;
        let Some(rows) = &mut load.rows else { return END };
        let arrays = RowArrays { values: (*feed.slot).tts_values, nulls: (*feed.slot).tts_isnull };
        load.reading = true;
        rows.follow_settings();
        loop {
            let more = feed.limit_left > 0 && rows.advance().or_raise();
            let bytes = rows.stream().bytes_read();
            if bytes != feed.reported {
                feed.reported = bytes;
                feed.progress.update(bytes, rows.count());
            }
            if !more {
                load.reading = false;
                return END;
            }
            if feed.skip_left > 0 {
                feed.skip_left -= 1;
                continue;
            }
            rows.reset();
            rows.decode(&feed.all, arrays);
            if feed.tolerance.on_error != OnError::Stop && rows.has_queue() {
                match rows.convert_softly(&mut feed.tolerance, arrays, feed.econtext).or_raise() {
                    Outcome::Good => (),
                    Outcome::Raises => return RAISES,
                    Outcome::LeftOut => {
                        pgrx::check_for_interrupts!();
                        pg_sys::MemoryContextReset((*feed.econtext).ecxt_per_tuple_memory);
                        continue;
                    }
                }
            }
            return if rows.is_short() { SHORT } else { ROW };
        }
    }
}

/// Raise the error about missing fields.
///
/// # Safety
/// As [`next_row`].
#[pg_guard]
unsafe extern "C-unwind" fn raise_missing(feed: *mut Feed) {
    // SAFETY: the caller vouches for it.
    if let Some(rows) = unsafe { &mut (*(*feed).load).rows } {
        rows.check_missing().or_raise();
    }
}

/// Make the next row in the slot; false at the end.
///
/// # Safety
/// A plain frame and a valid feed.
unsafe fn fill(feed: *mut Feed) -> bool {
    // SAFETY: the caller vouches for the feed, which nobody else uses meanwhile.
    unsafe {
        let (slot, econtext) = ((*feed).slot, (*feed).econtext);
        let arrays = RowArrays { values: (*slot).tts_values, nulls: (*slot).tts_isnull };
        let Some(rows) = (*(*feed).load).rows.as_mut() else { return false };
        let rows = &raw mut *rows;
        loop {
            unguarded::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
            let what = next_row(feed);
            if what == END {
                return false;
            }
            if what == RAISES || ((*feed).tolerance.on_error == OnError::Stop && (*rows).has_queue()) {
                Rows::convert(rows, arrays, econtext);
            }
            if what == SHORT {
                raise_missing(feed);
            }
            if !passes(feed) {
                (*feed).filtered += 1;
                unguarded::check_for_interrupts();
                continue;
            }
            (*feed).limit_left -= 1;
            (*feed).given += 1;
            return true;
        }
    }
}

/// Complete the row with defaults, if the `where` clause is to see them, and evaluate it.
///
/// # Safety
/// As [`fill`].
unsafe fn passes(feed: *mut Feed) -> bool {
    // SAFETY: the caller vouches for the feed.
    unsafe {
        if (*feed).qual.is_null() {
            return true;
        }
        let (slot, econtext) = ((*feed).slot, (*feed).econtext);
        let defaults = (*feed).defaults.as_ptr();
        for i in 0..(*feed).defaults.len() {
            let (attribute, expression) = *defaults.add(i);
            let is_null = (*slot).tts_isnull.add(attribute);
            *(*slot).tts_values.add(attribute) = unguarded::exec_eval_expr(expression, econtext, is_null);
        }
        (*slot).tts_flags &= !(pg_sys::TTS_FLAG_EMPTY as u16);
        (*slot).tts_nvalid = (*(*slot).tts_tupleDescriptor).natts as pg_sys::AttrNumber;
        (*slot).tts_tableOid = (*(*feed).load).target.relid;
        (*econtext).ecxt_scantuple = slot;
        unguarded::exec_qual((*feed).qual, econtext)
    }
}

/// Complain about a call that is not ours.
#[pg_guard]
unsafe extern "C-unwind" fn refuse() {
    let message = "bulk_rows can only be called by bulk_load";
    Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message).raise();
}

/// The next row of a load, as a value of the target's row type.
///
/// # Safety
/// Called by the executor.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_rows(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // A plain frame: nothing here has a destructor.
    // SAFETY: a function call with two arguments, the second one a bigint; a feed that is running is valid, and our
    // statement is the only one that knows its token.
    unsafe {
        let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
        let token = *(*fcinfo).args.as_ptr().add(1);
        let in_series = !result.is_null()
            && (*result).type_ == pg_sys::NodeTag::T_ReturnSetInfo
            && (*result).allowedModes.cast_unsigned() & pg_sys::SetFunctionReturnMode::SFRM_ValuePerCall != 0;
        let feed = running(token.value.value() as i64);
        if token.isnull || !in_series || feed.is_null() {
            refuse();
        }
        let caller = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = (*(*feed).econtext).ecxt_per_tuple_memory;
        let more = fill(feed);
        pg_sys::CurrentMemoryContext = caller;
        if !more {
            (*result).isDone = pg_sys::ExprDoneCond::ExprEndResult;
            (*fcinfo).isnull = true;
            return pg_sys::Datum::from(0usize);
        }
        let slot = (*feed).slot;
        let tuple = unguarded::heap_form_tuple((*slot).tts_tupleDescriptor, (*slot).tts_values, (*slot).tts_isnull);
        (*result).isDone = pg_sys::ExprDoneCond::ExprMultipleResult;
        (*fcinfo).isnull = false;
        unguarded::HeapTupleHeaderGetDatum((*tuple).t_data)
    }
}

/// The record that the server asks for before it calls a function of version 1.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_finfo_bulk_rows() -> *const pg_sys::Pg_finfo_record {
    &raw const super::VERSION_1
}
