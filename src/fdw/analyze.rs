//! ANALYZE of a foreign table: a sample of the whole file's rows.
//!
//! Every record is read, so that the sample is unbiased and the row count exact. Only records that enter the sample are
//! converted, which makes it fast. The sampling is core's (Vitter's algorithm, commands/analyze.c).
//!
//! Rows are made as the table's owner, whichever role runs ANALYZE. That may be the owner of a parent, or a role with
//! MAINTAIN. If the role lacks the owner's privileges, and the table has code that is not built in (a filter, types,
//! defaults), the table is left out ([`may_sample`]).

use std::ffi::CStr;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{pg_guard, pg_sys};

use super::filter;
use super::options::TableOptions;
use super::scan::open::open_rows;
use crate::error::{OrRaise, Result};
use crate::program::copy_question;
use crate::program::filter::RowFilter;
use crate::program::projection::Made;
use crate::rows::context::copy_context;
use crate::rows::row::pump::{Begin, Policy, Pump, RowOutcome, Sink};
use crate::rows::row::{RowArrays, Rows};
use crate::rows::soft::{OnError, Verbosity};
use crate::server::compat;
use crate::server::owner::as_owner_plainly;
use crate::server::plain_code::table_is_plain;
use crate::server::relation::Relation;
use crate::server::server_text::from_server;
use crate::server::unguarded::{Opaque, guarded};

/// # Safety
/// Called by ANALYZE.
#[pg_guard]
pub unsafe extern "C-unwind" fn analyze_foreign_table(
    relation: pg_sys::Relation,
    function: *mut pg_sys::AcquireSampleRowsFunc,
    pages: *mut pg_sys::BlockNumber,
) -> bool {
    // SAFETY: an open relation.
    let options = TableOptions::of_table(unsafe { (*relation).rd_id }).or_raise();
    // A program may return other data with each run, and a FIFO can be read only once: neither gets statistics.
    let location = options.location().or_raise();
    let size = if let Some(list) = location.files().or_raise() {
        list.size()
    } else if location.path().is_some() {
        let message = || format!("could not stat file \"{}\"", location.display());
        let meta = location.metadata().map_err(|e| crate::error::Error::file_access(&message(), &e)).or_raise();
        if !meta.is_file() {
            return false;
        }
        meta.len()
    } else {
        return false;
    };
    // SAFETY: an open relation, and ANALYZE's own variables. At least one page: zero would mean "never analyzed".
    unsafe {
        if !may_sample(relation, &options) {
            return false;
        }
        *pages = u32::try_from(size.div_ceil(u64::from(pg_sys::BLCKSZ))).unwrap_or(u32::MAX).max(1);
        *function = Some(acquire_sample_rows);
    }
    true
}

/// May the code of the table's rows run as its owner, for the role that runs ANALYZE? Warns if not. Guarded.
///
/// The current user is the owner of a parent if that is analyzed (do_analyze_rel, analyze.c). Then only the outer user,
/// which SECURITY DEFINER functions do not change, is the role that runs ANALYZE.
///
/// # Safety
/// An open foreign table.
unsafe fn may_sample(relation: pg_sys::Relation, options: &TableOptions) -> bool {
    // SAFETY: this function's contract covers the table; guarded calls.
    unsafe {
        let owner = (*(*relation).rd_rel).relowner;
        let who = [pg_sys::GetUserId(), pg_sys::GetOuterUserId()];
        let Some(user) = who.into_iter().find(|&user| !pg_sys::has_privs_of_role(user, owner)) else {
            return true;
        };
        if options.filter.is_none() && table_is_plain(Relation::from_raw(relation)) {
            return true;
        }
        let name = from_server(CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()));
        let role = from_server(CStr::from_ptr(pg_sys::GetUserNameFromId(user, false)));
        pgrx::ereport!(
            pgrx::PgLogLevel::WARNING,
            pgrx::PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
            format!("foreign table \"{name}\" is not analyzed"),
            format!(
                "Its filter, types or defaults call functions that are not built in. They would run with the privileges of the table's owner, which role \"{role}\" does not have."
            )
        );
        false
    }
}

/// A sampling scan.
struct Sampling {
    rows: Rows,
    pump: Pump<Sample>,
}

/// The rows that enter the sample.
struct Sample {
    values: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
    state: pg_sys::ReservoirStateData,
    /// Rows of a full sample.
    target: usize,
    sampled: usize,
    seen: f64,
    /// Rows to skip before the next row to take; negative: not decided yet.
    to_skip: f64,
    /// For evaluating DEFAULT markers.
    econtext: *mut pg_sys::ExprContext,
    /// The sample position of the current row, if it enters the sample. With a filter, [`keep_sample`] decides it.
    place: Option<usize>,
    /// The filter, which may leave out records.
    filter: Option<RowFilter>,
}

/// # Safety
/// Called by ANALYZE.
#[pg_guard]
unsafe extern "C-unwind" fn begin_sampling(relation: pg_sys::Relation, target: i32) -> *mut Sampling {
    // SAFETY: ANALYZE's own structures, guarded calls.
    unsafe {
        let options = TableOptions::of_table((*relation).rd_id).or_raise();
        copy_question::may_read(options.location().or_raise());
        let rows = open_rows(relation, &options).or_raise();
        let natts = usize::try_from((*(*relation).rd_att).natts).unwrap_or(0);
        let estate = pg_sys::CreateExecutorState();
        let filter = filter::begin(&options, relation, estate).or_raise();
        let econtext = pg_sys::MakePerTupleExprContext(estate);
        let mut state = pg_sys::ReservoirStateData::default();
        pg_sys::reservoir_init_selection_state(&raw mut state, target);
        let mut policy = Policy::of(&options.copy);
        (policy.tolerance.verbosity, policy.tolerance.reject_limit) = (Verbosity::Silent, None);
        policy.want(&rows, |_| true);
        let sink = Sample {
            values: vec![pg_sys::Datum::from(0usize); natts],
            nulls: vec![true; natts],
            state,
            target: usize::try_from(target).unwrap_or(0),
            sampled: 0,
            seen: 0.0,
            to_skip: -1.0,
            econtext,
            place: None,
            filter,
        };
        let sampling = Sampling { rows, pump: Pump { policy, sink } };
        PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(sampling)
    }
}

// SAFETY: the arrays are as long as the table's descriptor, or as the filter's input row. The context is the sampling's.
unsafe impl Sink for Sample {
    /// The arrays that fields are converted into.
    fn arrays(&mut self) -> RowArrays {
        let own = RowArrays { values: self.values.as_mut_ptr(), nulls: self.nulls.as_mut_ptr() };
        self.filter.as_ref().map_or(own, RowFilter::arguments)
    }

    fn econtext(&self) -> *mut pg_sys::ExprContext {
        self.econtext
    }

    fn advance(&mut self, rows: &mut Rows, _policy: &mut Policy) -> Result<bool> {
        compat::vacuum_delay_point();
        rows.advance()
    }

    /// Counts a row that does not enter the sample. It is decoded only if it may be rejected, or lacks fields.
    fn begin(&mut self, rows: &mut Rows, policy: &mut Policy) -> Result<Begin> {
        if self.filter.is_none() {
            self.place = self.next_place();
            if self.place.is_none() && policy.tolerance.on_error == OnError::Stop && !rows.is_short() {
                self.count_row(policy);
                return Ok(Begin::Done);
            }
        }
        // A short row must not show values of the row before.
        self.nulls.fill(true);
        // SAFETY: no row uses the memory; a guarded call.
        unsafe { pg_sys::MemoryContextReset((*self.econtext).ecxt_per_tuple_memory) };
        Ok(Begin::Decode)
    }

    fn finish(&mut self, rows: &mut Rows, policy: &mut Policy) -> Result<bool> {
        if self.filter.is_some() {
            return Ok(true);
        }
        self.count_row(policy);
        Ok(self.place.is_some() || rows.is_short())
    }
}

impl Sample {
    fn count_row(&mut self, policy: &mut Policy) {
        self.seen += 1.0;
        policy.count_row();
    }

    /// The position of the next row in the sample, if it enters the sample.
    fn next_place(&mut self) -> Option<usize> {
        if self.sampled < self.target { Some(self.sampled) } else { self.replaced() }
    }

    /// The position of the next row in a full sample, if it replaces another.
    fn replaced(&mut self) -> Option<usize> {
        // SAFETY: guarded calls on our own state.
        unsafe {
            if self.to_skip < 0.0 {
                let target = i32::try_from(self.target).unwrap_or(i32::MAX);
                self.to_skip = pg_sys::reservoir_get_next_S(&raw mut self.state, self.seen, target);
            }
            let taken = self.to_skip <= 0.0;
            self.to_skip -= 1.0;
            taken.then(|| {
                let fraction = pg_sys::sampler_random_fract(&raw mut self.state.randstate);
                ((self.target as f64 * fraction) as usize).min(self.target.saturating_sub(1))
            })
        }
    }
}

/// Stores the row in the sample.
///
/// # Safety
/// A valid sampling, and ANALYZE's array.
#[pg_guard]
unsafe extern "C-unwind" fn keep_sample(
    sampling: *mut Sampling,
    relation: pg_sys::Relation,
    rows: *mut pg_sys::HeapTuple,
) {
    // SAFETY: this function's contract covers the argument; the place is less than the target, which is the array's
    // length.
    unsafe {
        let Sampling { rows: file, pump: Pump { policy, sink: s } } = &mut *sampling;
        if s.filter.is_some() {
            s.place = s.next_place();
            s.count_row(policy);
        } else {
            file.check_missing().or_raise();
        }
        let Some(at) = s.place else { return };
        let tuple = pg_sys::heap_form_tuple((*relation).rd_att, s.values.as_mut_ptr(), s.nulls.as_mut_ptr());
        let place = rows.add(at);
        if at < s.sampled {
            pg_sys::heap_freetuple(*place);
        } else {
            s.sampled += 1;
        }
        *place = tuple;
    }
}

/// Does the filter make a row of the record? Raises the error about missing fields first.
///
/// # Safety
/// A plain frame; a valid sampling with a filter.
unsafe fn makes_row(sampling: *mut Sampling) -> bool {
    // SAFETY: this function's contract covers the argument; nothing here has a destructor.
    unsafe {
        let (rows, sink) = (&raw mut (*sampling).rows, &raw mut (*sampling).pump.sink);
        guarded(|| (*rows).check_missing().or_raise());
        let arrays = RowArrays { values: (*sink).values.as_mut_ptr(), nulls: (*sink).nulls.as_mut_ptr() };
        match (*sink).filter.as_ref() {
            Some(filter) => {
                let made = filter::call(&raw const *filter, rows, arrays);
                matches!(made, Made::Row | Made::Tuple(_))
            }
            None => false,
        }
    }
}

/// Closes the file and reports the counts.
///
/// # Safety
/// A valid sampling; it is not used afterwards.
#[pg_guard]
unsafe extern "C-unwind" fn end_sampling(sampling: *mut Sampling, relation: pg_sys::Relation, elevel: i32) -> i32 {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let s = &(*sampling).pump.sink;
        (*sampling).rows.close().or_raise();
        pg_sys::FreeExecutorState((*s.econtext).ecxt_estate);
        let name = std::ffi::CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()).to_string_lossy();
        let message = format!("\"{name}\": file contains {:.0} rows; {} rows in sample", s.seen, s.sampled);
        let level =
            if elevel >= pg_sys::INFO.cast_signed() { pgrx::PgLogLevel::INFO } else { pgrx::PgLogLevel::DEBUG2 };
        pgrx::ereport!(level, pgrx::PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION, message);
        i32::try_from(s.sampled).unwrap_or(0)
    }
}

/// Arguments and results of ANALYZE's callback.
struct AnalyzeCall {
    relation: pg_sys::Relation,
    elevel: i32,
    rows: *mut pg_sys::HeapTuple,
    target: i32,
    seen: f64,
    sampled: i32,
}

/// # Safety
/// Called by ANALYZE.
unsafe extern "C-unwind" fn acquire_sample_rows(
    relation: pg_sys::Relation,
    elevel: i32,
    rows: *mut pg_sys::HeapTuple,
    target: i32,
    total_rows: *mut f64,
    total_dead_rows: *mut f64,
) -> i32 {
    // SAFETY: ANALYZE's own structures; nothing here has a destructor. ANALYZE runs functions as the owner of the table
    // that it was called for (do_analyze_rel, analyze.c), perhaps a parent of this one. A filter, its defaults and
    // input functions must run as this table's owner.
    unsafe {
        let mut call = AnalyzeCall { relation, elevel, rows, target, seen: 0.0, sampled: 0 };
        as_owner_plainly(Relation::from_raw(relation), sample, (&raw mut call).cast());
        *total_rows = call.seen;
        *total_dead_rows = 0.0;
        call.sampled
    }
}

/// # Safety
/// A plain frame; the arguments of ANALYZE.
unsafe extern "C-unwind" fn sample(call: Opaque) {
    // SAFETY: this function's contract covers the argument, and a sampling made here; nothing here has a destructor.
    unsafe {
        let call = call.cast::<AnalyzeCall>();
        let sampling = begin_sampling((*call).relation, (*call).target);
        let mut context = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(copy_context),
            arg: (&raw mut (*sampling).rows).cast(),
        };
        pg_sys::error_context_stack = &raw mut context;
        let (rows, sink) = (&raw mut (*sampling).rows, &raw mut (*sampling).pump.sink);
        while guarded(|| (*sampling).pump.next(&mut *rows).or_raise()) != RowOutcome::End {
            if (*rows).has_queue() {
                let (old, econtext) = (pg_sys::CurrentMemoryContext, (*sink).econtext);
                pg_sys::CurrentMemoryContext = (*econtext).ecxt_per_tuple_memory;
                Rows::convert(rows, (*sink).arrays(), econtext);
                pg_sys::CurrentMemoryContext = old;
            }
            if (*sink).filter.is_none() || makes_row(sampling) {
                keep_sample(sampling, (*call).relation, (*call).rows);
            }
        }
        pg_sys::error_context_stack = context.previous;
        (*call).seen = (*sink).seen;
        (*call).sampled = end_sampling(sampling, (*call).relation, (*call).elevel);
    }
}
