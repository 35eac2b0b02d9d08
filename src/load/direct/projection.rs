//! Conditions and expressions between the file and the table: what an INSERT … SELECT makes of a row of the file.
//!
//! ```text
//!   columns of the conditions ─► conditions ─► the other columns ─► attributes, moved or computed ─► defaults
//! ```
//!
//! Fields are then decoded into a row of the foreign table, the [slot](Projection::slot), and not into one of the target. As in a scan, a
//! column that no condition looks at is converted only if the row passes: what is wrong with it is not seen otherwise.
//! Rows that were decoded together with others have nothing wrong in any column.

use pg_bulk_format::tuple::Source;
use pgrx::{PgList, pg_guard, pg_sys};

use super::call::Call;
use super::executor::Executor;
use super::failure;
use super::nodes::{Nodes, columns_of};
use super::process::Process;
use crate::error::OrRaise;
use crate::pg::attempt::in_subtransaction;
use crate::pg::column::Column;
use crate::pg::expression;
use crate::pg::row::{RowArrays, Rows};
use crate::pg::soft::OnError;
use crate::pg::unguarded::{self, Opaque};

/// Where an attribute's value comes from. Both are counted from 0.
#[derive(Debug, Clone, Copy)]
enum Part {
    Move {
        from: usize,
        to: usize,
    },
    /// The same, from the row that a function has made.
    Take {
        from: usize,
        to: usize,
    },
    /// A value that `expands` may be one that who gets it may change in its place.
    Compute {
        state: *mut pg_sys::ExprState,
        to: usize,
        expands: bool,
    },
}

/// Columns that nobody looks at are NULL in every row.
///
/// # Safety
/// A virtual slot.
unsafe fn clear_columns(slot: *mut pg_sys::TupleTableSlot) {
    // SAFETY: this function's contract covers the slot, whose arrays are as long as its descriptor.
    unsafe {
        for attribute in 0..usize::try_from((*(*slot).tts_tupleDescriptor).natts).unwrap_or(0) {
            *(*slot).tts_isnull.add(attribute) = true;
            *(*slot).tts_values.add(attribute) = pg_sys::Datum::from(0usize);
        }
    }
}

/// The attributes that are converted before the conditions, which look at these columns. None: all of them.
fn early(by_quals: &[i16], no_quals: bool, on_error: OnError) -> Option<Vec<usize>> {
    let attributes = || by_quals.iter().filter_map(|n| usize::try_from(n - 1).ok()).collect();
    // Which rows survive must not depend on what is looked at.
    (on_error == OnError::Stop && !no_quals).then(attributes)
}

/// Ready to run.
#[derive(Debug)]
pub struct Projection {
    /// A row of the foreign table.
    pub slot: *mut pg_sys::TupleTableSlot,
    quals: *mut pg_sys::ExprState,
    parts: Vec<Part>,
    /// What makes the row that the parts are of, if not the file does.
    call: Option<Call>,
    /// It stands for the call of a function, whose errors are to be survived.
    pub filters: bool,
    survives: bool,
    /// Columns that are converted before the conditions are evaluated, and after: their places in the file.
    pub first: Vec<usize>,
    rest: Vec<usize>,
    /// Attributes that the conditions look at; None if all columns are converted before.
    early: Option<Vec<usize>>,
    /// The rest of the current row is to be converted.
    pub is_partial: bool,
}

impl Projection {
    /// For the rows of `foreign`, whose columns are these. Guarded; allocates in the executor's memory.
    ///
    /// # Safety
    /// The nodes are about the columns of that relation.
    pub unsafe fn new(
        nodes: Nodes,
        foreign: pg_sys::Oid,
        columns: &[Column],
        on_error: OnError,
        executor: &Executor,
    ) -> Projection {
        // SAFETY: guarded calls on a relation that is locked; this function's contract covers the nodes.
        unsafe {
            let relation = pg_sys::table_open(foreign, pg_sys::NoLock.cast_signed());
            let memory = (*executor.estate).es_query_cxt;
            let projection = Projection::over(nodes, (*relation).rd_att, columns, on_error, memory);
            pg_sys::table_close(relation, pg_sys::NoLock.cast_signed());
            projection
        }
    }

    /// For rows of this kind, of a file whose columns are these. Guarded; allocates in `memory`.
    ///
    /// # Safety
    /// The nodes are about the columns of that descriptor.
    pub unsafe fn over(
        nodes: Nodes,
        descriptor: pg_sys::TupleDesc,
        columns: &[Column],
        on_error: OnError,
        memory: pg_sys::MemoryContext,
    ) -> Projection {
        // SAFETY: guarded calls; this function's contract covers the nodes.
        unsafe {
            let old = pg_sys::MemoryContextSwitchTo(memory);
            let descriptor = pg_sys::CreateTupleDescCopy(descriptor);
            let slot = pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsVirtual);
            clear_columns(slot);
            let quals = pg_sys::ExecInitQual(nodes.quals, std::ptr::null_mut());
            let mut parts = Vec::new();
            for entry in PgList::<pg_sys::TargetEntry>::from_pg(nodes.targets).iter_ptr() {
                let to = usize::try_from((*entry).resno - 1).unwrap_or(0);
                parts.push(if (*(*entry).expr).type_ == pg_sys::NodeTag::T_Var {
                    let variable = (*entry).expr.cast::<pg_sys::Var>();
                    let from = usize::try_from((*variable).varattno - 1).unwrap_or(0);
                    let is_made = i64::from((*variable).varno) == i64::from(pg_sys::OUTER_VAR);
                    if is_made { Part::Take { from, to } } else { Part::Move { from, to } }
                } else {
                    let expands = pg_sys::get_typlen(pg_sys::exprType((*entry).expr.cast())) == -1;
                    Part::Compute { state: pg_sys::ExecInitExpr((*entry).expr, std::ptr::null_mut()), to, expands }
                });
            }
            let call = (!nodes.row.is_null()).then(|| Call::new(nodes.row, slot, nodes.targets));
            pg_sys::MemoryContextSwitchTo(old);
            // What a function does not look at is an argument all the same.
            let early = early(&columns_of(nodes.quals), nodes.quals.is_null() || nodes.filters, on_error);
            let survives = nodes.filters && matches!(on_error, OnError::Table | OnError::Ignore);
            let projection = Projection::fitted(slot, quals, parts, early, columns);
            Projection { call, filters: nodes.filters, survives, ..projection }
        }
    }

    /// For the rows of a foreign table that are a scan's, whose slot this is, and its conditions, which look at `by_quals`.
    /// Nothing is made of the rows that pass.
    ///
    /// # Safety
    /// A virtual slot of the foreign table's rows, and an expression or null, which live as long.
    pub unsafe fn of_scan(
        slot: *mut pg_sys::TupleTableSlot,
        quals: *mut pg_sys::ExprState,
        by_quals: &[i16],
        columns: &[Column],
        on_error: OnError,
    ) -> Projection {
        // SAFETY: this function's contract covers the slot.
        unsafe { clear_columns(slot) };
        Projection::fitted(slot, quals, Vec::new(), early(by_quals, quals.is_null(), on_error), columns)
    }

    fn fitted(
        slot: *mut pg_sys::TupleTableSlot,
        quals: *mut pg_sys::ExprState,
        parts: Vec<Part>,
        early: Option<Vec<usize>>,
        columns: &[Column],
    ) -> Projection {
        let (first, rest) = (Vec::new(), Vec::new());
        let (call, filters, survives) = (None, false, false);
        let mut projection =
            Projection { slot, quals, parts, call, filters, survives, first, rest, early, is_partial: false };
        projection.fit(columns);
        projection
    }

    /// The conditions of a scan are not asked any more: all rows pass.
    pub fn forget_conditions(&mut self) {
        self.quals = std::ptr::null_mut();
    }

    /// See [`expression::anew`]. Not for that of a scan. Guarded; allocates in the current memory context.
    pub fn renew(&mut self) {
        // SAFETY: all but those of a scan were made without a node.
        unsafe {
            self.quals = expression::anew(self.quals);
            for part in &mut self.parts {
                if let Part::Compute { state, .. } = part {
                    *state = expression::anew(*state);
                }
            }
        }
        if let Some(call) = &mut self.call {
            call.renew();
        }
    }

    /// The file's columns are in these places.
    pub fn fit(&mut self, columns: &[Column]) {
        let is_early = |column: &Column| self.early.as_ref().is_none_or(|early| early.contains(&column.attribute));
        let wanted = || columns.iter().enumerate().filter(|(_, column)| !column.ignored);
        let places = |early: bool| wanted().filter(|(_, c)| is_early(c) == early).map(|(i, _)| i).collect();
        (self.first, self.rest) = (places(true), places(false));
    }

    /// The arrays of the row.
    pub fn arrays(&self) -> RowArrays {
        // SAFETY: a slot that lives as long as the executor's state.
        unsafe { RowArrays { values: (*self.slot).tts_values, nulls: (*self.slot).tts_isnull } }
    }

    /// Attributes of the row.
    pub fn attributes(&self) -> usize {
        // SAFETY: as above.
        unsafe { usize::try_from((*(*self.slot).tts_tupleDescriptor).natts).unwrap_or(0) }
    }

    /// Does the function make rows of just the target's attributes, in their order, so that each is a tuple of the target's but for the
    /// header? Not where its errors are survived, which are dear anyway.
    pub fn makes_tuples(&self, attributes: usize) -> bool {
        let is_own = |(i, part): (usize, &Part)| matches!(part, Part::Take { from, to } if (*from, *to) == (i, i));
        !self.survives
            && self.call.as_ref().is_some_and(|call| call.natts() == attributes)
            && self.parts.len() == attributes
            && self.parts.iter().enumerate().all(is_own)
    }

    /// The row as one value, for a function that takes it as that; see [`RowValue::form`](super::row_value::RowValue::form).
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn form_value(&mut self, sources: &[Source], arrays: RowArrays) -> Option<pg_sys::HeapTupleHeader> {
        // Conditions are about columns.
        if !self.quals.is_null() {
            return None;
        }
        let value = self.call.as_mut()?.value_mut()?;
        // SAFETY: passed on.
        unsafe { value.form(sources, arrays) }
    }

    /// Columns are left to be converted of rows that pass.
    pub fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }
}

/// # Safety
/// A valid process with a projection.
#[pg_guard]
unsafe extern "C-unwind" fn decode_rest(process: *mut Process, projection: *const Projection) {
    // SAFETY: this function's contract covers both arguments; the arrays are as long as the foreign table's descriptor.
    unsafe { (*process).rows.decode(&(*projection).rest, (*projection).arrays()) }
}

/// Convert what is left of the row's columns.
///
/// # Safety
/// A plain frame, with the row's memory context; a valid process, and its projection.
pub unsafe fn convert_rest(process: *mut Process, projection: *mut Projection) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        if std::mem::replace(&mut (*projection).is_partial, false) {
            decode_rest(process, projection);
            let rows = &raw mut (*process).rows;
            if (*rows).has_queue() {
                Rows::convert(rows, (*projection).arrays(), (*process).fields);
            }
        }
    }
}

/// # Safety
/// A valid process, and the arrays of its slot.
#[pg_guard]
pub unsafe extern "C-unwind" fn set_defaults(process: *mut Process, arrays: *const RowArrays) {
    // SAFETY: this function's contract covers both arguments.
    unsafe { (*process).defaults.set(*arrays) }.or_raise();
}

/// Does the row pass? What is left of its columns is converted then.
///
/// # Safety
/// A plain frame, with the memory context of the row's values; a valid process, and its projection.
pub unsafe fn passes(process: *mut Process, projection: *mut Projection) -> bool {
    // SAFETY: this function's contract covers all arguments; nothing here has a destructor.
    unsafe {
        let econtext = (*process).fields;
        let rows = &raw mut (*process).rows;
        let slot = (*projection).slot;
        unguarded::store_virtual(slot);
        (*econtext).ecxt_scantuple = slot;
        (*rows).is_converting = false;
        if !unguarded::exec_qual((*projection).quals, econtext) {
            return false;
        }
        (*rows).is_converting = true;
        convert_rest(process, projection);
        (*rows).is_converting = false;
        true
    }
}

/// Make the target's attributes of the row, but for defaults that are expressions.
///
/// # Safety
/// A plain frame, with the row's memory context; a valid process, its projection, and the arrays of its slot. `as_tuple` says that a
/// filter's row may stay a tuple.
pub unsafe fn project(process: *mut Process, projection: *mut Projection, arrays: RowArrays, as_tuple: bool) -> Made {
    // SAFETY: this function's contract covers all arguments; nothing here has a destructor. Parts are within the two descriptors.
    unsafe {
        if (*projection).filters {
            (*process).rows.is_converting = false;
            let made = filter_to(projection, (*process).executor.econtext, arrays, as_tuple);
            if !matches!(made, Made::Row) {
                return made;
            }
        } else {
            if !passes(process, projection) {
                return Made::Nothing;
            }
            compute(projection, (*process).executor.econtext, arrays);
        }
        // A guard for each row is dear.
        if (*process).defaults.sets() {
            set_defaults(process, &raw const arrays);
        }
        Made::Row
    }
}

/// Make the tuple of a row that is one value.
///
/// # Safety
/// A plain frame, with the row's memory context; a valid projection that [makes tuples](Projection::makes_tuples) and has made the
/// value.
#[inline]
pub unsafe fn make_of(
    projection: *const Projection,
    econtext: *mut pg_sys::ExprContext,
    value: pg_sys::HeapTupleHeader,
) -> Made {
    // SAFETY: this function's contract covers all arguments; nothing here has a destructor.
    unsafe {
        let Some(call) = (*projection).call.as_ref() else { return Made::Nothing };
        let tuple = call.make_of(value, econtext);
        if tuple.is_null() { Made::Nothing } else { Made::Tuple(tuple) }
    }
}

/// What became of a row of the file.
#[derive(Debug, Clone, Copy)]
pub enum Made {
    Row,
    /// The function has made this of it, of which no attribute is made yet.
    Tuple(pg_sys::HeapTupleHeader),
    /// It does not pass.
    Nothing,
    /// The function does not like it, and that is survived.
    Bad(*mut pg_sys::ErrorData),
}

/// The making of a row.
struct Making {
    projection: *const Projection,
    econtext: *mut pg_sys::ExprContext,
    arrays: RowArrays,
    as_tuple: bool,
    made: Made,
}

/// Make a row of one of the file, which has just been read, by a filter.
///
/// # Safety
/// A plain frame, with the row's memory context; a valid projection that filters, and the arrays of the target's row.
pub unsafe fn filter(projection: *const Projection, econtext: *mut pg_sys::ExprContext, arrays: RowArrays) -> Made {
    // SAFETY: this function's contract covers all arguments.
    unsafe { filter_to(projection, econtext, arrays, false) }
}

/// The same, or as far as the tuple that the function has made.
///
/// # Safety
/// As [`filter`].
unsafe fn filter_to(
    projection: *const Projection,
    econtext: *mut pg_sys::ExprContext,
    arrays: RowArrays,
    as_tuple: bool,
) -> Made {
    // SAFETY: this function's contract covers all arguments; nothing here has a destructor.
    unsafe {
        unguarded::store_virtual((*projection).slot);
        (*econtext).ecxt_scantuple = (*projection).slot;
        let mut making = Making { projection, econtext, arrays, as_tuple, made: Made::Nothing };
        if (*projection).survives {
            let error = survive((&raw mut making).cast());
            if !error.is_null() {
                if !failure::is_about_a_row(error) {
                    unguarded::ReThrowError(error);
                }
                return Made::Bad(error);
            }
        } else {
            make((&raw mut making).cast());
        }
        making.made
    }
}

/// # Safety
/// As [`filter`], with what it has made of its arguments.
unsafe extern "C-unwind" fn make(making: Opaque) {
    // SAFETY: this function's contract covers the argument; nothing here has a destructor.
    unsafe {
        let making = making.cast::<Making>();
        let Making { projection, econtext, arrays, as_tuple, .. } = *making;
        if !unguarded::exec_qual((*projection).quals, econtext) {
            return;
        }
        if let Some(call) = (*projection).call.as_ref() {
            let tuple = call.make(econtext);
            if tuple.is_null() {
                return;
            }
            if as_tuple {
                (*making).made = Made::Tuple(tuple);
                return;
            }
            call.take_apart(tuple, econtext);
        }
        compute(projection, econtext, arrays);
        (*making).made = Made::Row;
    }
}

/// Make attributes of a tuple that a filter has made.
///
/// # Safety
/// A plain frame, with the row's memory context; a valid projection that has made it, and the arrays of the target's row.
pub unsafe fn take_apart(
    projection: *const Projection,
    econtext: *mut pg_sys::ExprContext,
    tuple: pg_sys::HeapTupleHeader,
    arrays: RowArrays,
) {
    // SAFETY: this function's contract covers all arguments; nothing here has a destructor.
    unsafe {
        if let Some(call) = (*projection).call.as_ref() {
            call.take_apart(tuple, econtext);
        }
        compute(projection, econtext, arrays);
    }
}

/// # Safety
/// As [`make`], not in parallel mode.
#[pg_guard]
unsafe extern "C-unwind" fn survive(making: Opaque) -> *mut pg_sys::ErrorData {
    // SAFETY: this function's contract covers the argument.
    unsafe { in_subtransaction(make, making) }
}

/// Make attributes of a row of the file, which is in the slot.
///
/// # Safety
/// A plain frame, with the row's memory context; a valid projection whose slot is the context's scan tuple, and the arrays of the target's row.
pub unsafe fn compute(projection: *const Projection, econtext: *mut pg_sys::ExprContext, arrays: RowArrays) {
    // SAFETY: this function's contract covers all arguments; nothing here has a destructor. Parts are within the two descriptors.
    unsafe {
        let source = (*projection).arrays();
        let parts = &raw const (*projection).parts;
        for i in 0..(*parts).len() {
            match *(*parts).as_ptr().add(i) {
                Part::Move { from, to } => {
                    *arrays.values.add(to) = *source.values.add(from);
                    *arrays.nulls.add(to) = *source.nulls.add(from);
                }
                Part::Take { from, to } => {
                    if let Some(call) = (*projection).call.as_ref() {
                        let made = call.arrays();
                        *arrays.values.add(to) = *made.values.add(from);
                        *arrays.nulls.add(to) = *made.nulls.add(from);
                    }
                }
                Part::Compute { state, to, expands } => {
                    let is_null = arrays.nulls.add(to);
                    let value = unguarded::exec_eval_expr(state, econtext, is_null);
                    let value = if expands && !*is_null { unguarded::read_only(value) } else { value };
                    *arrays.values.add(to) = value;
                }
            }
        }
    }
}

/// The same of a row that has just been read, and has not been stored in the slot yet.
///
/// # Safety
/// As [`compute`].
pub unsafe fn compute_read(projection: *const Projection, econtext: *mut pg_sys::ExprContext, arrays: RowArrays) {
    // SAFETY: this function's contract covers all arguments.
    unsafe {
        unguarded::store_virtual((*projection).slot);
        (*econtext).ecxt_scantuple = (*projection).slot;
        compute(projection, econtext, arrays);
    }
}
