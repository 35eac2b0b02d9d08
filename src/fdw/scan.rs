//! Scanning: rows of the file into the executor's slot.
//!
//! The quals are the scan's own business. Core has made an expression of them before BeginForeignScan; we take it
//! from the plan state, so that ExecScan finds none, and evaluate it as soon as the columns it looks at are there. The
//! remaining columns are converted only for rows that pass. EXPLAIN still shows the plan's quals, and the rows removed
//! are counted where core counts them.
//!
//! [`iterate_foreign_scan`] is a plain frame (see `pg`): it pushes COPY's error context, and lets the input functions
//! of types without a native decoder, defaults and quals run without a guard. What Rust does goes on in [`next_row`]
//! and [`finish_row`], one guard each.

use std::ffi::{CStr, CString};
use std::rc::Rc;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::aggregate::Aggregates;
use super::aggregate::run::{self, Aggregation};
use super::filter;
use super::options::TableOptions;
use super::order::{self, Check, IN_ORDER};
use super::parallel::Part;
use super::plan::{Wanted, order_of};
use crate::error::{Error, OrRaise, Result};
use crate::load::filter::RowFilter;
use crate::pg::chunk::changed;
use crate::pg::column::Column;
use crate::pg::compat;
use crate::pg::context::copy_context;
use crate::pg::files::FileList;
use crate::pg::option_value::HeaderOption;
use crate::pg::points::point_plain;
use crate::pg::progress::Progress;
use crate::pg::row::{RowArrays, Rows};
use crate::pg::soft::{OnError, Outcome, Tolerance};
use crate::pg::source::{Descriptor, Location};
use crate::pg::unguarded;

/// The state of a scan.
#[derive(Debug)]
pub struct Scan {
    /// None before the scan has begun and once it has ended.
    pub rows: Option<Rows>,
    relid: pg_sys::Oid,
    relation: pg_sys::Relation,
    /// The subtransaction in which the source was opened.
    begun_in: pg_sys::SubTransactionId,
    wanted: Wanted,
    /// Somebody relies on the order of the rows.
    order: Option<Check>,
    options: TableOptions,
    /// The function that makes its rows, if it has one. Then all columns of the file are the first ones.
    filter: Option<RowFilter>,
    /// Columns that the quals look at, or all that are wanted where there are none.
    first: Vec<usize>,
    first_attributes: Vec<usize>,
    /// Columns wanted of rows that passed.
    rest: Vec<usize>,
    /// No row is left out or counted here, and no bad value survived.
    is_plain: bool,
    /// Values of rows decoded together may have to be made datums.
    has_raw: bool,
    pub qual: *mut pg_sys::ExprState,
    /// What the rows are added up to, if none is returned.
    pub aggregation: Option<Aggregation>,
    pub tolerance: Tolerance,
    skip_left: u64,
    limit_left: u64,
    progress: Progress,
    /// Bytes at which progress was last reported.
    reported: u64,
    /// Bytes read by scans before a rescan, by workers that are gone, and by others in our place.
    pub bytes_before: u64,
    /// This process's part, if it scans together with others.
    pub part: Option<Part>,
    /// Somebody else reads the file.
    pub is_replaced: bool,
}

impl Scan {
    /// Bytes read, of all rescans together.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_before + self.rows.as_ref().map_or(0, |r| r.stream().bytes_read())
    }

    /// The rows are there.
    fn begin(&mut self, rows: Rows) {
        self.rows = Some(rows);
        self.fit();
    }

    /// The columns are in other places than before.
    fn fit(&mut self) {
        let Some(rows) = &self.rows else { return };
        (self.first, self.rest) = match &self.filter {
            Some(_) => (rows.all(), Vec::new()),
            None => stages(&self.wanted, rows.columns(), self.options.copy.on_error, self.qual.is_null()),
        };
        let attribute = |&i: &usize| rows.columns().get(i).map(|column| column.attribute);
        self.first_attributes = self.first.iter().filter_map(attribute).collect();
        self.decode_together();
    }

    /// From now on decode the first columns of many rows at a time, if nothing needs to be done for each row.
    fn decode_together(&mut self) {
        self.is_plain = self.options.copy.on_error == OnError::Stop && self.options.copy.limit.is_none();
        if let Some(rows) = self.rows.as_mut().filter(|_| self.is_plain) {
            let used = rows.columns().iter().filter(|column| !column.ignored);
            let attributes = used.map(|column| column.attribute + 1).max();
            rows.decode_some_together(attributes.unwrap_or(0), &[], &self.first);
            self.has_raw = rows.has_raw();
        }
    }

    /// Have the first columns of a row that was decoded together with others.
    ///
    /// # Safety
    /// The arrays are a row's, and of a slot.
    #[inline]
    unsafe fn take_decoded(&self, decoded: RowArrays, arrays: RowArrays) {
        for &attribute in &self.first_attributes {
            // SAFETY: the caller vouches for the arrays, and it is the attribute of a column.
            unsafe {
                *arrays.values.add(attribute) = *decoded.values.add(attribute);
                *arrays.nulls.add(attribute) = *decoded.nulls.add(attribute);
            }
        }
    }

    /// The record that was read is no row.
    pub fn be_without(&mut self) {
        if self.options.copy.limit.is_some() {
            self.limit_left += 1;
        }
    }

    /// Are all records that the reader has next rows of this process, of which nothing is to be left out?
    pub fn goes_on(&self) -> bool {
        self.is_plain && self.skip_left == 0 && self.part.as_ref().is_none_or(Part::goes_on)
    }

    /// Is no column wanted?
    pub fn wants_nothing(&self) -> bool {
        self.is_plain && self.first.is_empty() && self.rest.is_empty()
    }

    /// Count what workers have read that are gone, before it is forgotten.
    pub fn add_others(&mut self) {
        self.bytes_before += self.part.as_ref().map_or((0, 0), Part::others).0;
    }

    /// The same, and from now on nothing is shared.
    pub fn take_others(&mut self) {
        self.add_others();
        self.part = None;
    }

    /// There are no more rows for this process, and what it shared is going to be gone.
    pub fn stop_sharing(&mut self) {
        if let (Some(part), Some(rows)) = (&mut self.part, &self.rows) {
            part.report(rows);
            part.end();
        }
    }

    /// No records are to be passed over.
    pub fn skips_nothing(&self) -> bool {
        self.options.copy.skip == 0
    }

    /// The scan has begun, and what it reads is a regular file: it can be read by somebody else from its start, unless it has
    /// promised its rows in order.
    pub fn is_replaceable(&self) -> bool {
        self.order.is_none() && self.rows.as_ref().is_some_and(|rows| rows.stream().identity().is_some())
    }

    /// Somebody else is going to read the file, and to report how far that is. Guarded.
    pub fn give_up(&mut self) -> Result<()> {
        self.is_replaced = true;
        self.progress.end();
        self.rows.take().map_or(Ok(()), |mut rows| rows.close())
    }

    /// The file's or program's name.
    pub fn name(&self) -> String {
        self.options.location.as_ref().map_or_else(String::new, |location| location.display().into_owned())
    }

    /// Names of the columns converted before and after the quals.
    pub fn converted(&self) -> [Vec<CString>; 2] {
        let name = |i: &usize| {
            let column = self.rows.as_ref().and_then(|rows| rows.columns().get(*i));
            column.map(|c| c.name.clone())
        };
        [&self.first, &self.rest].map(|set| set.iter().filter_map(name).collect())
    }
}

/// Open a table's file and make its columns ready. Guarded; the current memory context must outlive the rows.
pub fn open_rows(relation: pg_sys::Relation, options: &TableOptions) -> Result<Rows> {
    // SAFETY: an open relation.
    let name = unsafe { CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()).to_owned() };
    let columns = options.columns(relation)?;
    let location = options.location()?;
    let stream = options.copy.open(location, options.copy.header(), columns.len())?;
    let known = options.copy.by_name.then(|| columns.clone());
    let match_header = options.copy.header == HeaderOption::Match;
    let mut rows = Rows::new(stream, columns, name, location.described(), match_header);
    if options.filter.is_some() {
        rows.fill_missing();
    }
    if let Some(known) = known {
        rows.name_by(known);
    }
    Ok(rows)
}

/// # Safety
/// Called by the executor.
#[pg_guard]
pub unsafe extern "C-unwind" fn begin_foreign_scan(node: *mut pg_sys::ForeignScanState, eflags: i32) {
    if eflags.cast_unsigned() & pg_sys::EXEC_FLAG_EXPLAIN_ONLY != 0 {
        return;
    }
    // SAFETY: the executor's own structures; the current memory context is the query's.
    unsafe {
        let relation = relation_of(node);
        let relid = (*relation).rd_id;
        let estate = (*node).ss.ps.state;
        let options = TableOptions::of_table(relid).or_raise();
        let plan = (*node).ss.ps.plan.cast::<pg_sys::ForeignScan>();
        let wanted = Wanted::from_private((*plan).fdw_private);
        let order = Check::new(&order_of((*plan).fdw_private), relation);
        let filter = filter::begin(&options, relation, estate, pg_sys::InvalidOid).or_raise();
        // EvalPlanQual rechecks rows of its own with the node's quals, so there they stay where they are, and nothing
        // is read unless a row is asked for.
        let rechecks = !(*estate).es_epq_active.is_null();
        // A worker of a scan by several processes is told more before it opens the file.
        let is_told = pg_sys::ParallelWorkerNumber >= 0 && (*plan).scan.plan.parallel_aware;
        let rows = (!rechecks && !is_told).then(|| open_rows(relation, &options).or_raise());
        let mut aggregation = Aggregates::from_private((*plan).fdw_private).map(|a| Aggregation::new(&a, relation));
        let mut qual = std::ptr::null_mut();
        if !rechecks || aggregation.is_some() {
            qual = std::mem::replace(&mut (*node).ss.ps.qual, std::ptr::null_mut());
        }
        let arrays = match &mut aggregation {
            Some(aggregation) => aggregation.arrays(),
            None => slot_arrays((*node).ss.ss_ScanTupleSlot),
        };
        for attribute in 0..usize::try_from((*(*relation).rd_att).natts).unwrap_or(0) {
            // Columns that are not wanted are NULL in every row.
            *arrays.nulls.add(attribute) = true;
            *arrays.values.add(attribute) = pg_sys::Datum::from(0usize);
        }
        let is_program = matches!(options.location, Some(Location::Program(_)));
        let progress = match &rows {
            Some(rows) => Progress::start(relid, is_program, rows.stream().file_size()),
            None => Progress::none(),
        };
        let mut scan = Scan {
            rows: None,
            relid,
            relation,
            begun_in: pg_sys::GetCurrentSubTransactionId(),
            wanted,
            order,
            filter,
            first: Vec::new(),
            first_attributes: Vec::new(),
            rest: Vec::new(),
            is_plain: false,
            has_raw: false,
            qual,
            aggregation,
            tolerance: options.copy.tolerance(),
            skip_left: options.copy.skip,
            limit_left: options.copy.limit.unwrap_or(u64::MAX),
            options,
            progress,
            reported: 0,
            bytes_before: 0,
            part: None,
            is_replaced: false,
        };
        if let Some(rows) = rows {
            scan.begin(rows);
        }
        (*node).fdw_state = PgMemoryContexts::For((*estate).es_query_cxt).leak_and_drop_on_delete(scan).cast();
    }
}

/// In a worker of a scan by several processes: open the leader's files or file, which are in this encoding. `is_same` says whether it is
/// that one. The file of the table's name may be gone by now, or another one; then it is what the leader has open.
///
/// # Safety
/// The executor's own structures, and a scan that BeginForeignScan made. Guarded.
pub unsafe fn open_in_worker(
    node: *mut pg_sys::ForeignScanState,
    encoding: i32,
    list: Option<FileList>,
    leaders: Descriptor,
    is_same: impl Fn(&Rows) -> bool,
) -> Result<()> {
    // SAFETY: the caller vouches for it.
    let scan = unsafe { &mut *(*node).fdw_state.cast::<Scan>() };
    scan.options.copy.encoding = Some(encoding);
    if let Some(list) = list {
        let list = list.made_of(scan.options.location()?);
        scan.options.location = Some(Location::Files(Rc::new(list)));
        let rows = open_rows(scan.relation, &scan.options)?;
        scan.begin(rows);
        return Ok(());
    }
    if let Ok(mut rows) = open_rows(scan.relation, &scan.options) {
        if is_same(&rows) {
            scan.begin(rows);
            return Ok(());
        }
        rows.close()?;
    }
    let named = scan.options.location.replace(leaders.location());
    let opened = open_rows(scan.relation, &scan.options);
    scan.options.location = named;
    match opened {
        Ok(mut rows) if is_same(&rows) => {
            let location = scan.options.location()?;
            rows.described = location.described();
            rows.stream_mut().source_mut().name_it(location);
            rows.name_file();
            scan.begin(rows);
            Ok(())
        }
        _ => Err(changed(&scan.name())),
    }
}

/// Which columns are converted before the quals are evaluated, and which after.
fn stages(wanted: &Wanted, columns: &[Column], on_error: OnError, no_quals: bool) -> (Vec<usize>, Vec<usize>) {
    // Which rows survive must not depend on which columns a query asks for.
    if on_error != OnError::Stop {
        return (columns.iter().enumerate().filter(|(_, c)| !c.ignored).map(|(i, _)| i).collect(), Vec::new());
    }
    let within = |set: &[i32], column: &Column| set.iter().any(|&a| usize::try_from(a) == Ok(column.attribute + 1));
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for (i, column) in columns.iter().enumerate().filter(|(_, column)| !column.ignored) {
        let (early, late) = (within(&wanted.by_quals, column), within(&wanted.besides, column));
        if early || (late && no_quals) {
            first.push(i);
        } else if late {
            rest.push(i);
        }
    }
    (first, rest)
}

/// The foreign table that is scanned. Guarded.
///
/// # Safety
/// The executor's own structures.
unsafe fn relation_of(node: *mut pg_sys::ForeignScanState) -> pg_sys::Relation {
    // SAFETY: the caller vouches for them; a scan that is not of one relation has its one relation in `fs_relids`.
    unsafe {
        if !(*node).ss.ss_currentRelation.is_null() {
            return (*node).ss.ss_currentRelation;
        }
        let plan = (*node).ss.ps.plan.cast::<pg_sys::ForeignScan>();
        let place = pg_sys::bms_next_member((*plan).fs_relids, -1);
        compat::range_table_relation((*node).ss.ps.state, place.cast_unsigned())
    }
}

/// # Safety
/// A valid slot.
unsafe fn slot_arrays(slot: *mut pg_sys::TupleTableSlot) -> RowArrays {
    // SAFETY: the caller vouches for the slot.
    unsafe { RowArrays { values: (*slot).tts_values, nulls: (*slot).tts_isnull } }
}

/// What became of a row in a guarded step; numbers, so that they cross the guard as they are.
pub const END: i32 = 0;
pub const ROW: i32 = 1;
/// The row lacks fields: what there is is converted, then comes the error.
pub const SHORT: i32 = 2;
/// The row's conversion raises an error, which is to be raised in a plain frame.
pub const RAISES: i32 = 3;

/// Go to the next row and decode the first columns.
///
/// # Safety
/// A valid scan that nobody else uses, and the arrays of its slot.
#[pg_guard]
unsafe extern "C-unwind" fn next_row(
    scan: *mut Scan,
    values: *mut pg_sys::Datum,
    nulls: *mut bool,
    econtext: *mut pg_sys::ExprContext,
) -> i32 {
    // SAFETY: the caller vouches for it.
    unsafe { go_to_row(&mut *scan, RowArrays { values, nulls }, econtext) }
}

/// Go to the next row and decode the first columns. Guarded.
///
/// # Safety
/// The arrays are a row's.
#[inline]
pub unsafe fn go_to_row(scan: &mut Scan, arrays: RowArrays, econtext: *mut pg_sys::ExprContext) -> i32 {
    if scan.rows.as_mut().is_some_and(Rows::follow_settings) {
        scan.decode_together();
    }
    loop {
        let Some(rows) = &mut scan.rows else { return END };
        if scan.limit_left == 0 {
            return END;
        }
        let more = match &mut scan.part {
            None => rows.advance(),
            Some(part) => part.advance(rows, &mut scan.skip_left),
        };
        let more = match more {
            Err(error) if scan.tolerance.survives(&error) => {
                if scan.skip_left > 0 {
                    scan.skip_left -= 1;
                } else {
                    rows.leave_out_record(&mut scan.tolerance, &error).or_raise();
                }
                pgrx::check_for_interrupts!();
                continue;
            }
            more => more.or_raise(),
        };
        let bytes = rows.stream().bytes_read();
        if bytes != scan.reported {
            scan.reported = bytes;
            let (others_bytes, others_rows) = scan.part.as_ref().map_or((0, 0), Part::others);
            scan.progress.update(bytes + others_bytes, rows.count() + others_rows);
        }
        if !more {
            return END;
        }
        if rows.take_turn().is_some() {
            scan.fit();
        }
        let Some(rows) = &mut scan.rows else { return END };
        if scan.skip_left > 0 {
            scan.skip_left -= 1;
            continue;
        }
        if let Some(decoded) = rows.decoded() {
            rows.clear_queue();
            // SAFETY: the row is new; both arrays have the columns' attributes.
            unsafe {
                rows.make_datums(decoded).or_raise();
                scan.take_decoded(decoded, arrays);
            }
            return ROW;
        }
        rows.reset();
        // SAFETY: the slot's arrays are as long as the relation's descriptor.
        unsafe { rows.decode(&scan.first, arrays) };
        if scan.tolerance.on_error != OnError::Stop && rows.has_queue() {
            // SAFETY: as above.
            match unsafe { rows.convert_softly(&mut scan.tolerance, arrays, econtext) }.or_raise() {
                Outcome::Good => (),
                Outcome::Raises => return RAISES,
                Outcome::LeftOut => {
                    pgrx::check_for_interrupts!();
                    // SAFETY: the row's own context, which is current; a guarded call.
                    unsafe { pg_sys::MemoryContextReset((*econtext).ecxt_per_tuple_memory) };
                    continue;
                }
            }
        }
        scan.limit_left -= 1;
        return if rows.is_short() { SHORT } else { ROW };
    }
}

/// Go to the next row, if that was decoded together with the one before.
///
/// # Safety
/// As [`next_row`], but a plain frame.
#[inline]
pub unsafe fn next_decoded(scan: *mut Scan, arrays: RowArrays) -> bool {
    // SAFETY: the caller vouches for it. Nothing here is raised, but from `make_datums`, and nothing has a destructor.
    unsafe {
        if !(*scan).goes_on() {
            return false;
        }
        let Some(decoded) = (*scan).rows.as_mut().and_then(Rows::advance_decoded) else { return false };
        if (*scan).has_raw {
            make_datums(scan, decoded.values, decoded.nulls);
        }
        (*scan).take_decoded(decoded, arrays);
    }
    true
}

/// Make datums of the row that was decoded together with others.
///
/// # Safety
/// As [`next_row`], with the row's arrays, once a row.
#[pg_guard]
unsafe extern "C-unwind" fn make_datums(scan: *mut Scan, values: *mut pg_sys::Datum, nulls: *mut bool) {
    // SAFETY: the caller vouches for it.
    unsafe {
        if let Some(rows) = &mut (*scan).rows {
            rows.make_datums(RowArrays { values, nulls }).or_raise();
        }
    }
}

/// Decode the remaining columns.
///
/// # Safety
/// As [`next_row`].
#[pg_guard]
unsafe extern "C-unwind" fn finish_row(scan: *mut Scan, values: *mut pg_sys::Datum, nulls: *mut bool) {
    // SAFETY: the caller vouches for it.
    let scan = unsafe { &mut *scan };
    if let Some(rows) = &mut scan.rows {
        if rows.decoded().is_some() {
            // The first columns are not there.
            rows.reset();
        }
        // SAFETY: as in `next_row`.
        unsafe { rows.decode(&scan.rest, RowArrays { values, nulls }) };
    }
}

/// Open what BeginForeignScan left closed.
///
/// # Safety
/// The executor's own structures, and a scan that BeginForeignScan made.
#[pg_guard]
unsafe extern "C-unwind" fn open_late(node: *mut pg_sys::ForeignScanState) {
    // SAFETY: the caller vouches for it.
    unsafe {
        let scan = &mut *(*node).fdw_state.cast::<Scan>();
        let old = pg_sys::MemoryContextSwitchTo((*(*node).ss.ps.state).es_query_cxt);
        let rows = open_rows(scan.relation, &scan.options).or_raise();
        pg_sys::MemoryContextSwitchTo(old);
        scan.begun_in = pg_sys::GetCurrentSubTransactionId();
        scan.begin(rows);
    }
}

/// Raise the error about missing fields.
///
/// # Safety
/// As [`next_row`].
#[pg_guard]
pub unsafe extern "C-unwind" fn raise_missing(scan: *mut Scan) {
    // SAFETY: the caller vouches for it.
    if let Some(rows) = unsafe { &mut (*scan).rows } {
        rows.check_missing().or_raise();
    }
}

/// Raise the error about a row that may not come next by this column of the order.
///
/// # Safety
/// As [`next_row`].
#[pg_guard]
unsafe extern "C-unwind" fn raise_out_of_order(scan: *mut Scan, column: usize) {
    // SAFETY: the caller vouches for it.
    let scan = unsafe { &mut *scan };
    if let (Some(order), Some(rows)) = (&scan.order, &mut scan.rows) {
        // The line may hold what the user may not see.
        (rows.is_discreet, rows.is_converting) = (true, false);
        // SAFETY: the scan's relation.
        unsafe { order.complaint(column, scan.relation) }.raise();
    }
}

/// # Safety
/// Called by the executor, in the per-tuple memory context.
pub unsafe extern "C-unwind" fn iterate_foreign_scan(
    node: *mut pg_sys::ForeignScanState,
) -> *mut pg_sys::TupleTableSlot {
    // A plain frame: nothing here has a destructor.
    // SAFETY: the executor's own structures, and a scan that BeginForeignScan made.
    unsafe {
        let slot = (*node).ss.ss_ScanTupleSlot;
        unguarded::clear_virtual(slot);
        let scan = (*node).fdw_state.cast::<Scan>();
        if (*scan).rows.is_none() {
            open_late(node);
        }
        let rows = match (*scan).rows.as_mut() {
            Some(rows) => &raw mut *rows,
            None => return slot,
        };
        if (*scan).aggregation.is_some() {
            run::aggregate(node, scan, rows);
            return slot;
        }
        let arrays = slot_arrays(slot);
        let filter = match (*scan).filter.as_ref() {
            Some(filter) => &raw const *filter,
            None => std::ptr::null(),
        };
        let fields = if filter.is_null() { arrays } else { (*filter).arguments() };
        let econtext = (*node).ss.ps.ps_ExprContext;
        let mut context = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(copy_context),
            arg: rows.cast(),
        };
        pg_sys::error_context_stack = &raw mut context;
        loop {
            let what =
                if next_decoded(scan, fields) { ROW } else { next_row(scan, fields.values, fields.nulls, econtext) };
            if what == END {
                break;
            }
            point_plain!("scan.row");
            if what == RAISES || ((*scan).tolerance.on_error == OnError::Stop && (*rows).has_queue()) {
                Rows::convert(rows, fields, econtext);
            }
            if what == SHORT {
                convert_rest(scan, rows, fields, econtext);
                raise_missing(scan);
            }
            if !filter.is_null() && !filter::make(scan, filter, rows, arrays) {
                unguarded::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
                unguarded::check_for_interrupts();
                continue;
            }
            if !(*scan).qual.is_null() {
                unguarded::store_virtual(slot);
                // Core sets it when we have returned, which is too late for a qual that asks for it.
                (*slot).tts_tableOid = (*scan).relid;
                (*econtext).ecxt_scantuple = slot;
                // What a qual says is not about the file, and the line may hold what the user may not see.
                pg_sys::error_context_stack = context.previous;
                let passes = unguarded::exec_qual((*scan).qual, econtext);
                pg_sys::error_context_stack = &raw mut context;
                if !passes {
                    let instrument = (*node).ss.ps.instrument;
                    if !instrument.is_null() {
                        (*instrument).nfiltered1 += 1.0;
                    }
                    // The file may end here, and a filled slot would be a row.
                    unguarded::clear_virtual(slot);
                    unguarded::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
                    unguarded::check_for_interrupts();
                    continue;
                }
                convert_rest(scan, rows, arrays, econtext);
            }
            if let Some(check) = &mut (*scan).order {
                // Nor is what a comparison says.
                pg_sys::error_context_stack = context.previous;
                let column = order::follows(check, arrays);
                pg_sys::error_context_stack = &raw mut context;
                if column != IN_ORDER {
                    raise_out_of_order(scan, column);
                }
            }
            unguarded::store_virtual(slot);
            break;
        }
        pg_sys::error_context_stack = context.previous;
        slot
    }
}

/// Convert the columns that the quals did not need.
///
/// # Safety
/// A plain frame; pointers as in [`iterate_foreign_scan`].
pub unsafe fn convert_rest(scan: *mut Scan, rows: *mut Rows, arrays: RowArrays, econtext: *mut pg_sys::ExprContext) {
    // SAFETY: the caller vouches for it.
    unsafe {
        if (*scan).rest.is_empty() {
            return;
        }
        finish_row(scan, arrays.values, arrays.nulls);
        if (*rows).has_queue() {
            Rows::convert(rows, arrays, econtext);
        }
    }
}

/// # Safety
/// Called by the executor.
#[pg_guard]
pub unsafe extern "C-unwind" fn rescan_foreign_scan(node: *mut pg_sys::ForeignScanState) {
    // SAFETY: the executor's own structures, and a scan that BeginForeignScan made.
    unsafe {
        let Some(scan) = (*node).fdw_state.cast::<Scan>().as_mut() else { return };
        scan.bytes_before = scan.bytes_read();
        scan.reported = 0;
        let options = &scan.options;
        let begun_in = scan.begun_in;
        if let Some(rows) = &mut scan.rows {
            let open = |columns| {
                // What is opened in a subtransaction is closed when that is rolled back, which this scan may outlive.
                // A regular file is not opened anew; for others there is no way.
                if pg_sys::GetCurrentSubTransactionId() > begun_in {
                    let message = "cannot read a program or a FIFO again in a later subtransaction";
                    return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message));
                }
                options.copy.open(options.location()?, options.copy.header(), columns)
            };
            rows.restart(options.copy.header(), open).or_raise();
        }
        if let Some(part) = &mut scan.part {
            part.again();
        }
        scan.decode_together();
        scan.skip_left = scan.options.copy.skip;
        scan.limit_left = scan.options.copy.limit.unwrap_or(u64::MAX);
        scan.tolerance.bad_rows = 0;
        if let Some(aggregation) = &mut scan.aggregation {
            aggregation.again();
        }
        if let Some(order) = &mut scan.order {
            order.again();
        }
    }
}

/// # Safety
/// Called by the executor.
#[pg_guard]
pub unsafe extern "C-unwind" fn end_foreign_scan(node: *mut pg_sys::ForeignScanState) {
    // SAFETY: the executor's own structures, and a scan that BeginForeignScan made, or null after a bare EXPLAIN.
    unsafe {
        let Some(scan) = (*node).fdw_state.cast::<Scan>().as_mut() else { return };
        scan.progress.end();
        scan.stop_sharing();
        if let Some(mut rows) = scan.rows.take() {
            scan.tolerance.report();
            rows.close().or_raise();
        }
    }
}
