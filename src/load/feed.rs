//! Rows on their way into an INSERT: what `bulk_rows` returns, call by call.
//!
//! A series of calls is one reading of the file. There is one, unless a rule makes several statements of the INSERT, or
//! a join reads it again from the start; then the file is rewound. The executor says that a series is abandoned by
//! calling back the expression context that it was read in.
//!
//! [`bulk_rows`] is a plain frame (see `pg`). What Rust does for a row is in [`next_row`], one guard a row.

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::{Load, source};
use crate::error::{Error, OrRaise, Result};
use crate::pg::progress::Progress;
use crate::pg::row::{RowArrays, Rows};
use crate::pg::soft::{OnError, Outcome, Tolerance};
use crate::pg::source::Location;
use crate::pg::unguarded;

/// Rows on their way into an INSERT.
#[derive(Debug)]
pub struct Feed {
    load: *mut Load,
    pub token: i64,
    /// The feed that was the innermost one before.
    outer: *mut Feed,
    /// Indexes of the columns that are converted: all that an attribute takes.
    all: Vec<usize>,
    /// Attributes that are set here although the file has no field for them.
    pub defaults: Vec<(usize, *mut pg_sys::ExprState)>,
    qual: *mut pg_sys::ExprState,
    pub econtext: *mut pg_sys::ExprContext,
    /// The row; a virtual tuple.
    pub slot: *mut pg_sys::TupleTableSlot,
    pub tolerance: Tolerance,
    skip_left: u64,
    limit_left: u64,
    pub filtered: u64,
    /// Rows handed over.
    pub given: u64,
    pub progress: Progress,
    /// Bytes at which progress was last reported.
    reported: u64,
    /// Where the series is read that is being read; else null.
    reader: *mut pg_sys::ExprContext,
    /// There was a series before.
    started: bool,
}

impl Feed {
    /// The rows of a load, for an INSERT that is to begin. Guarded.
    ///
    /// # Safety
    /// A load whose relation and rows are open.
    pub unsafe fn of_load(load: *mut Load) -> Result<*mut Feed> {
        // SAFETY: the caller vouches for the load; guarded calls.
        unsafe {
            let (memory, this) = ((*load).memory, &*load);
            let relation = this.target.relation;
            let (mut qual, mut defaults) = (std::ptr::null_mut(), Vec::new());
            if !this.where_clause.conditions.is_null() {
                qual = pg_sys::ExecInitQual(this.where_clause.conditions, std::ptr::null_mut());
                defaults = source::defaults(relation, &this.mapping);
            }
            let slot = pg_sys::MakeSingleTupleTableSlot((*relation).rd_att, &raw const pg_sys::TTSOpsVirtual);
            for attribute in 0..usize::try_from((*(*relation).rd_att).natts).unwrap_or(0) {
                // Attributes that nobody sets are NULL in every row.
                *(*slot).tts_isnull.add(attribute) = true;
                *(*slot).tts_values.add(attribute) = pg_sys::Datum::from(0usize);
            }
            let (copy, rows) = (&this.options.copy, this.rows.as_ref());
            let is_program = matches!(this.options.location, Location::Program(_));
            let size = rows.and_then(|rows| rows.stream().size());
            let feed = Feed {
                load,
                token: new_token()?,
                outer: INNERMOST.load(Relaxed),
                all: rows.map(Rows::all).unwrap_or_default(),
                defaults,
                qual,
                econtext: pg_sys::MakePerTupleExprContext(pg_sys::CreateExecutorState()),
                slot,
                tolerance: copy.tolerance(),
                skip_left: copy.skip,
                limit_left: copy.limit.unwrap_or(u64::MAX),
                filtered: 0,
                given: 0,
                progress: Progress::start(this.target.relid, is_program, size),
                reported: 0,
                reader: std::ptr::null_mut(),
                started: false,
            };
            let feed = PgMemoryContexts::For(memory).leak_and_drop_on_delete(feed);
            INNERMOST.store(feed, Relaxed);
            Ok(feed)
        }
    }

    /// Back to the start of the file.
    fn restart(&mut self) -> Result<()> {
        // SAFETY: the load outlives the feed, and nobody else uses it meanwhile.
        let load = unsafe { &mut *self.load };
        let target = load.target.display_name();
        let copy = &load.options.copy;
        if let Some(rows) = &mut load.rows {
            rows.restart(copy.header(), |_| {
                let message =
                    format!("cannot read a program or a FIFO more than once, as rules of \"{target}\" demand");
                Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message))
            })?;
        }
        self.tolerance = copy.tolerance();
        self.skip_left = copy.skip;
        self.limit_left = copy.limit.unwrap_or(u64::MAX);
        (self.filtered, self.given, self.reported) = (0, 0, 0);
        Ok(())
    }
}

/// Begin a series.
///
/// # Safety
/// A valid feed, and the context in which the function is called.
#[pg_guard]
unsafe extern "C-unwind" fn begin_series(feed: *mut Feed, reader: *mut pg_sys::ExprContext) {
    // SAFETY: the caller vouches for both.
    unsafe {
        if !(*feed).reader.is_null() {
            let message = "cannot read the rows of a load in two places at a time";
            Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message).raise();
        }
        if (*feed).started {
            (*feed).restart().or_raise();
        }
        (*feed).started = true;
        (*feed).reader = reader;
        pg_sys::RegisterExprContextCallback(reader, Some(leave_series), pg_sys::Datum::from(feed));
    }
}

/// Called when a series is abandoned.
///
/// # Safety
/// Called with what it was registered with.
unsafe extern "C-unwind" fn leave_series(feed: pg_sys::Datum) {
    let feed = feed.cast_mut_ptr::<Feed>();
    // SAFETY: the feed outlives the statement that it is for.
    unsafe {
        (*feed).reader = std::ptr::null_mut();
        (*(*feed).load).reading = false;
    }
}

/// The file ends, and with it the series.
///
/// # Safety
/// A valid feed with a series.
#[pg_guard]
unsafe extern "C-unwind" fn end_series(feed: *mut Feed) {
    // SAFETY: the caller vouches for it.
    unsafe {
        pg_sys::UnregisterExprContextCallback((*feed).reader, Some(leave_series), pg_sys::Datum::from(feed));
        leave_series(pg_sys::Datum::from(feed));
    }
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
        if (*feed).reader != (*result).econtext {
            begin_series(feed, (*result).econtext);
        }
        let caller = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = (*(*feed).econtext).ecxt_per_tuple_memory;
        let more = fill(feed);
        pg_sys::CurrentMemoryContext = caller;
        if !more {
            end_series(feed);
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
