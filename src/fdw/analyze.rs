//! ANALYZE of a foreign table: a sample of the whole file's rows.
//!
//! Every record is read, so that the sample is unbiased and the row count exact. Only records that enter the sample are
//! converted, which makes it fast. The sampling is core's (Vitter's algorithm, commands/analyze.c).
//!
//! Rows are made as the table's owner, whichever role runs ANALYZE. That may be the owner of a parent, or a role with
//! MAINTAIN. If the role lacks the owner's privileges, and the table has code that is not built in (a filter, types,
//! defaults), the table is left out ([`may_sample`]).

use pgrx::pg_sys;

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
use crate::server::callback::Out;
use crate::server::compat;
use crate::server::memory_context::MemoryContext;
use crate::server::node::Node;
use crate::server::owner::as_owner_plainly;
use crate::server::plain_code::table_is_plain;
use crate::server::relation::Relation;
use crate::server::role::{current_user, has_privileges, outer_user, role_name};
use crate::server::slot::ExprContext;
use crate::server::unguarded::{self as c, guarded};

/// AnalyzeForeignTable.
pub fn analyze(
    relation: Relation<'_>,
    function: Out<'_, pg_sys::AcquireSampleRowsFunc>,
    pages: Out<'_, pg_sys::BlockNumber>,
) -> Result<bool> {
    let options = TableOptions::of_table(relation.oid())?;
    // A program may return other data with each run, and a FIFO can be read only once: neither gets statistics.
    let location = options.location()?;
    let size = if let Some(list) = location.files()? {
        list.size()
    } else if location.path().is_some() {
        let message = || format!("could not stat file \"{}\"", location.display());
        let meta = location.metadata().map_err(|e| crate::error::Error::file_access(&message(), &e))?;
        if !meta.is_file() {
            return Ok(false);
        }
        meta.len()
    } else {
        return Ok(false);
    };
    if !may_sample(relation, &options) {
        return Ok(false);
    }
    // At least one page: zero would mean "never analyzed".
    pages.set(u32::try_from(size.div_ceil(u64::from(pg_sys::BLCKSZ))).unwrap_or(u32::MAX).max(1));
    function.set(Some(acquire_sample_rows));
    Ok(true)
}

/// May the code of the table's rows run as its owner, for the role that runs ANALYZE? Warns if not. Guarded.
///
/// The current user is the owner of a parent if that is analyzed (do_analyze_rel, analyze.c). Then only the outer user,
/// which SECURITY DEFINER functions do not change, is the role that runs ANALYZE.
fn may_sample(relation: Relation<'_>, options: &TableOptions) -> bool {
    let user = [current_user(), outer_user()].into_iter().find(|&user| !has_privileges(user, relation.owner()));
    let Some(user) = user else { return true };
    if options.filter.is_none() && table_is_plain(relation) {
        return true;
    }
    let (name, role) = (relation.name_text(), role_name(user));
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
    econtext: ExprContext<'static>,
    /// The sample position of the current row, if it enters the sample. With a filter, [`Sampling::take`] decides it.
    place: Option<usize>,
    /// The filter, which may leave out records.
    filter: Option<RowFilter>,
}

impl Sampling {
    /// Opens the file of a table. Guarded.
    fn begin(relation: Relation<'_>, target: i32) -> Result<Sampling> {
        let options = TableOptions::of_table(relation.oid())?;
        copy_question::may_read(options.location()?);
        let rows = open_rows(relation, &options)?;
        let natts = relation.descriptor().len();
        let mut state = pg_sys::ReservoirStateData::default();
        // SAFETY: guarded calls; a new executor state is a node, and `end` frees it.
        let (estate, econtext) = unsafe {
            let estate = pg_sys::CreateExecutorState();
            pg_sys::reservoir_init_selection_state(&raw mut state, target);
            (Node::from_raw(estate).unwrap_unchecked(), ExprContext::from_raw(pg_sys::MakePerTupleExprContext(estate)))
        };
        let filter = options.filter.as_ref().map(|filter| filter.begin(relation, &options.copy, estate)).transpose()?;
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
        Ok(Sampling { rows, pump: Pump { policy, sink } })
    }

    /// Makes the tuple of a row that enters the sample, with its place. Guarded.
    fn take(&mut self, relation: Relation<'_>) -> Option<(usize, pg_sys::HeapTuple)> {
        let Sampling { rows, pump: Pump { policy, sink: s } } = self;
        if s.filter.is_some() {
            s.place = s.next_place();
            s.count_row(policy);
        } else {
            rows.check_missing().or_raise();
        }
        let at = s.place?;
        let descriptor = relation.descriptor().as_ptr();
        // SAFETY: a guarded call with an element for each attribute.
        Some((at, unsafe { pg_sys::heap_form_tuple(descriptor, s.values.as_mut_ptr(), s.nulls.as_mut_ptr()) }))
    }

    /// Closes the file and reports the counts. Guarded.
    fn end(&mut self, relation: Relation<'_>, elevel: i32) {
        self.rows.close().or_raise();
        let s = &self.pump.sink;
        // SAFETY: a guarded call; `begin` has made the state, and nothing uses it any more.
        unsafe { pg_sys::FreeExecutorState((*s.econtext.as_ptr()).ecxt_estate) };
        let name = relation.name_text();
        let message = format!("\"{name}\": file contains {:.0} rows; {} rows in sample", s.seen, s.sampled);
        let level =
            if elevel >= pg_sys::INFO.cast_signed() { pgrx::PgLogLevel::INFO } else { pgrx::PgLogLevel::DEBUG2 };
        pgrx::ereport!(level, pgrx::PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION, message);
    }
}

/// The arrays are those of the table's row, or of the filter's input row. The context is the sampling's.
impl Sink for Sample {
    /// The arrays that fields are converted into.
    fn arrays(&mut self) -> RowArrays<'_> {
        match &self.filter {
            Some(filter) => filter.arguments(),
            None => RowArrays::of(&mut self.values, &mut self.nulls),
        }
    }

    fn econtext(&self) -> ExprContext<'static> {
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
        // SAFETY: the values of the row before are not used any more.
        unsafe { self.econtext.reset() };
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
    // SAFETY: ANALYZE has the relation open; nothing here has a destructor. `begin` has made the sampling, which the memory
    // context drops. The place of a row is less than the target, which is the length of ANALYZE's array.
    // ANALYZE runs functions as the owner of the table that it was called for (do_analyze_rel, analyze.c), perhaps a parent
    // of this one. A filter, its defaults and input functions must run as this table's owner.
    unsafe {
        let relation = Relation::from_raw(relation);
        let mut sampled = 0;
        *total_dead_rows = 0.0;
        as_owner_plainly(relation, || {
            let sampling = guarded(|| -> *mut Sampling {
                MemoryContext::current().keep(Sampling::begin(relation, target).or_raise())
            });
            let (file, sink) = (&raw mut (*sampling).rows, &raw mut (*sampling).pump.sink);
            c::in_context(copy_context, file.cast(), || {
                while guarded(|| (*sampling).pump.next(&mut *file).or_raise()) != RowOutcome::End {
                    if (*file).has_queue() {
                        let (old, econtext) = (pg_sys::CurrentMemoryContext, (*sink).econtext);
                        pg_sys::CurrentMemoryContext = econtext.memory();
                        Rows::convert(file, (*sink).arrays(), econtext.as_ptr());
                        pg_sys::CurrentMemoryContext = old;
                    }
                    if let Some(filter) = (*sink).filter.as_ref() {
                        guarded(|| (*file).check_missing().or_raise());
                        let arrays = RowArrays::of(&mut (*sink).values, &mut (*sink).nulls);
                        if !matches!(filter.call(file, arrays), Made::Row | Made::Tuple(_)) {
                            continue;
                        }
                    }
                    if let Some((at, tuple)) = guarded(|| (*sampling).take(relation)) {
                        let place = rows.add(at);
                        if at < (*sink).sampled {
                            guarded(|| pg_sys::heap_freetuple(*place));
                        } else {
                            (*sink).sampled += 1;
                        }
                        *place = tuple;
                    }
                }
            });
            guarded(|| (*sampling).end(relation, elevel));
            (sampled, *total_rows) = ((*sink).sampled, (*sink).seen);
        });
        i32::try_from(sampled).unwrap_or(0)
    }
}
