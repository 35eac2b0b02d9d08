//! Conditions and expressions between the file and the table, for an INSERT … SELECT.
//!
//! ```text
//!   columns of the conditions ─► conditions ─► the other columns ─► attributes, moved or computed ─► defaults
//! ```
//!
//! Fields are decoded into a row of the foreign table, the [slot](Projection::slot), not into a row of the target. As
//! in a scan, a column outside of the conditions is converted only if the row passes, so errors in other rows' columns
//! are not raised. Rows that were decoded in a block have no errors in any column.

use pg_bulk_types::block::ColumnForm;
use pgrx::{PgList, pg_sys};

use super::call::Call;
use super::defaults::Defaults;
use super::{Nodes, columns_of};
use crate::error::OrRaise;
use crate::rows::column::Column;
use crate::rows::row::{RowArrays, Rows};
use crate::rows::soft::OnError;
use crate::server::attempt::in_subtransaction;
use crate::server::expression;
use crate::server::failure;
use crate::server::slot::Slot;
use crate::server::unguarded::{self, Opaque, guarded};

/// Source of an attribute's value. Both are counted from 0.
#[derive(Debug, Clone, Copy)]
enum AttributeSource {
    Move {
        from: usize,
        to: usize,
    },
    /// Moves a column of the row that a function has made.
    Take {
        from: usize,
        to: usize,
    },
    /// `expands`: the value may be an expanded object, and is passed on read-only.
    Compute {
        state: *mut pg_sys::ExprState,
        to: usize,
        expands: bool,
    },
}

/// The attributes to convert before the conditions, which use the columns `by_quals`. None: all attributes.
fn early(by_quals: &[i16], no_quals: bool, on_error: OnError) -> Option<Vec<usize>> {
    let attributes = || by_quals.iter().filter_map(|n| usize::try_from(n - 1).ok()).collect();
    // The set of rejected rows must not depend on the columns in the conditions.
    (on_error == OnError::Stop && !no_quals).then(attributes)
}

/// A projection that is ready to run.
#[derive(Debug)]
pub struct Projection {
    /// A row of the foreign table.
    pub slot: *mut pg_sys::TupleTableSlot,
    quals: *mut pg_sys::ExprState,
    parts: Vec<AttributeSource>,
    /// The function that makes the row from the file's row, if there is one.
    call: Option<Call>,
    /// The projection is the call of a function whose errors may be survived.
    pub filters: bool,
    survives: bool,
    /// Columns to convert before and after the conditions: their indexes in the file.
    pub first: Vec<usize>,
    rest: Vec<usize>,
    /// Attributes in the conditions; None if all columns are converted before.
    early: Option<Vec<usize>>,
    /// The rest of the current row is still to be converted.
    pub is_partial: bool,
}

impl Projection {
    /// Makes the projection for rows of `foreign`, with these columns. Guarded; allocates in `memory`.
    ///
    /// # Safety
    /// The nodes are about the columns of that relation.
    pub unsafe fn new(
        nodes: Nodes,
        foreign: pg_sys::Oid,
        columns: &[Column],
        on_error: OnError,
        memory: pg_sys::MemoryContext,
    ) -> Projection {
        // SAFETY: guarded calls on a relation that is locked; this function's contract covers the nodes.
        unsafe {
            let relation = pg_sys::table_open(foreign, pg_sys::NoLock.cast_signed());
            let projection = Projection::over(nodes, (*relation).rd_att, columns, on_error, memory);
            pg_sys::table_close(relation, pg_sys::NoLock.cast_signed());
            projection
        }
    }

    /// Makes the projection for rows of this type, with these columns of the file. Guarded; allocates in `memory`.
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
            Slot::from_raw(slot).arrays().clear();
            let quals = pg_sys::ExecInitQual(nodes.quals, std::ptr::null_mut());
            let mut parts = Vec::new();
            for entry in PgList::<pg_sys::TargetEntry>::from_pg(nodes.targets).iter_ptr() {
                let to = usize::try_from((*entry).resno - 1).unwrap_or(0);
                parts.push(if (*(*entry).expr).type_ == pg_sys::NodeTag::T_Var {
                    let variable = (*entry).expr.cast::<pg_sys::Var>();
                    let from = usize::try_from((*variable).varattno - 1).unwrap_or(0);
                    let is_made = i64::from((*variable).varno) == i64::from(pg_sys::OUTER_VAR);
                    if is_made { AttributeSource::Take { from, to } } else { AttributeSource::Move { from, to } }
                } else {
                    let expands = pg_sys::get_typlen(pg_sys::exprType((*entry).expr.cast())) == -1;
                    AttributeSource::Compute {
                        state: pg_sys::ExecInitExpr((*entry).expr, std::ptr::null_mut()),
                        to,
                        expands,
                    }
                });
            }
            let call = (!nodes.row.is_null()).then(|| Call::new(nodes.row, slot, nodes.targets));
            pg_sys::MemoryContextSwitchTo(old);
            // A column that a function does not read is an argument, too.
            let early = early(&columns_of(nodes.quals), nodes.quals.is_null() || nodes.filters, on_error);
            let survives = nodes.filters && matches!(on_error, OnError::Table | OnError::Ignore);
            let projection = Projection::fitted(slot, quals, parts, early, columns);
            Projection { call, filters: nodes.filters, survives, ..projection }
        }
    }

    /// Makes the projection of a scan: conditions over the columns `by_quals`, without target expressions.
    ///
    /// # Safety
    /// A virtual slot for the foreign table's rows, and an expression or null; both live as long as the projection.
    pub unsafe fn of_scan(
        slot: *mut pg_sys::TupleTableSlot,
        quals: *mut pg_sys::ExprState,
        by_quals: &[i16],
        columns: &[Column],
        on_error: OnError,
    ) -> Projection {
        // SAFETY: the slot lives as long as the projection. Columns that are not used stay NULL in every row.
        unsafe { Slot::from_raw(slot) }.arrays().clear();
        Projection::fitted(slot, quals, Vec::new(), early(by_quals, quals.is_null(), on_error), columns)
    }

    fn fitted(
        slot: *mut pg_sys::TupleTableSlot,
        quals: *mut pg_sys::ExprState,
        parts: Vec<AttributeSource>,
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

    /// Switches the conditions of a scan off: all rows pass.
    pub fn forget_conditions(&mut self) {
        self.quals = std::ptr::null_mut();
    }

    /// See [`expression::anew`]. Not for a scan. Guarded; allocates in the current memory context.
    pub fn renew(&mut self) {
        // SAFETY: all expressions but a scan's were made without a parent node.
        unsafe {
            self.quals = expression::anew(self.quals);
            for part in &mut self.parts {
                if let AttributeSource::Compute { state, .. } = part {
                    *state = expression::anew(*state);
                }
            }
        }
        if let Some(call) = &mut self.call {
            call.renew();
        }
    }

    /// Adapts to the positions of columns in the file.
    pub fn fit(&mut self, columns: &[Column]) {
        let is_early = |column: &Column| self.early.as_ref().is_none_or(|early| early.contains(&column.attribute));
        let wanted = || columns.iter().enumerate().filter(|(_, column)| !column.ignored);
        let places = |early: bool| wanted().filter(|(_, c)| is_early(c) == early).map(|(i, _)| i).collect();
        (self.first, self.rest) = (places(true), places(false));
    }

    /// The arrays of the row.
    pub fn arrays(&self) -> RowArrays<'static> {
        // SAFETY: the slot lives as long as the executor's state.
        unsafe { Slot::from_raw(self.slot) }.arrays()
    }

    /// Number of the row's attributes.
    pub fn attributes(&self) -> usize {
        // SAFETY: as above.
        unsafe { usize::try_from((*(*self.slot).tts_tupleDescriptor).natts).unwrap_or(0) }
    }

    /// Does the function return rows with exactly the target's attributes, so that each is a tuple without a header?
    ///
    /// False if the function's errors are survived, which is expensive anyway.
    pub fn makes_tuples(&self, attributes: usize) -> bool {
        let is_own = |(i, part): (usize, &AttributeSource)| matches!(part, AttributeSource::Take { from, to } if (*from, *to) == (i, i));
        !self.survives
            && self.call.as_ref().is_some_and(|call| call.natts() == attributes)
            && self.parts.len() == attributes
            && self.parts.iter().enumerate().all(is_own)
    }

    /// The row as one value, for a function with a composite argument; see
    /// [`RowValue::form`](super::row_value::RowValue::form).
    ///
    /// # Safety
    /// See there.
    #[inline]
    pub unsafe fn form_value(
        &mut self,
        column_forms: &[ColumnForm],
        arrays: RowArrays,
    ) -> Option<pg_sys::HeapTupleHeader> {
        // The conditions need separate columns.
        if !self.quals.is_null() {
            return None;
        }
        let value = self.call.as_mut()?.value_mut()?;
        // SAFETY: `form` has this contract.
        unsafe { value.form(column_forms, arrays) }
    }

    /// Are there columns to convert after the conditions?
    pub fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }
}

/// Converts the remaining columns of the row.
///
/// # Safety
/// A plain frame, with the memory context of the row's values, which is that of `fields`; the rows of a file, and the
/// projection of their rows.
pub unsafe fn convert_rest(rows: *mut Rows, projection: *mut Projection, fields: *mut pg_sys::ExprContext) {
    // SAFETY: this function's contract covers all arguments.
    unsafe {
        if std::mem::replace(&mut (*projection).is_partial, false) {
            guarded(|| (*rows).decode(&(*projection).rest, (*projection).arrays()));
            if (*rows).has_queue() {
                Rows::convert(rows, (*projection).arrays(), fields);
            }
        }
    }
}

/// Does the row pass the conditions? If so, converts its remaining columns.
///
/// # Safety
/// See [`convert_rest`].
pub unsafe fn passes(rows: *mut Rows, projection: *mut Projection, fields: *mut pg_sys::ExprContext) -> bool {
    // SAFETY: as in `convert_rest`; nothing here has a destructor.
    unsafe {
        let slot = (*projection).slot;
        unguarded::store_virtual(slot);
        (*fields).ecxt_scantuple = slot;
        (*rows).context.is_converting = false;
        if !unguarded::exec_qual((*projection).quals, fields) {
            return false;
        }
        (*rows).context.is_converting = true;
        convert_rest(rows, projection, fields);
        (*rows).context.is_converting = false;
        true
    }
}

/// Makes the target's attributes of the row, without defaults that are expressions.
///
/// # Safety
/// See [`convert_rest`]; the defaults and the arrays are those of the target. `as_tuple`: the row of a function may
/// stay a tuple.
pub unsafe fn project(
    rows: *mut Rows,
    projection: *mut Projection,
    defaults: *mut Defaults,
    econtext: *mut pg_sys::ExprContext,
    arrays: RowArrays,
    as_tuple: bool,
) -> Made {
    // SAFETY: as in `convert_rest`; nothing here has a destructor. Parts are within the two descriptors.
    unsafe {
        if (*projection).filters {
            (*rows).context.is_converting = false;
            let made = filter_to(projection, econtext, arrays, as_tuple);
            if !matches!(made, Made::Row) {
                return made;
            }
        } else {
            if !passes(rows, projection, econtext) {
                return Made::Nothing;
            }
            compute(projection, econtext, arrays);
        }
        // A guard for each row is expensive.
        if (*defaults).sets() {
            guarded(|| (*defaults).set(arrays).or_raise());
        }
        Made::Row
    }
}

/// Makes the tuple of a row that is one value.
///
/// # Safety
/// A plain frame, with the row's memory context; a valid projection that [makes tuples](Projection::makes_tuples) and
/// has made the value.
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

/// Result of projecting a row of the file.
#[derive(Debug, Clone, Copy)]
pub enum Made {
    Row,
    /// The function's tuple; the target's attributes are not set.
    Tuple(pg_sys::HeapTupleHeader),
    /// The row does not pass.
    Nothing,
    /// The function has raised an error, which is survived.
    Bad(*mut pg_sys::ErrorData),
}

/// Arguments and result of [`make`].
struct Making<'a> {
    projection: *const Projection,
    econtext: *mut pg_sys::ExprContext,
    arrays: RowArrays<'a>,
    as_tuple: bool,
    made: Made,
}

/// Makes a row from a row of the file that was just read, by a function.
///
/// # Safety
/// A plain frame, with the row's memory context; a valid projection that filters, and the arrays of the target's row.
pub unsafe fn filter(projection: *const Projection, econtext: *mut pg_sys::ExprContext, arrays: RowArrays) -> Made {
    // SAFETY: this function's contract covers all arguments.
    unsafe { filter_to(projection, econtext, arrays, false) }
}

/// Makes a row as [`filter`] does; with `as_tuple`, stops at the function's tuple.
///
/// # Safety
/// See [`filter`].
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
            // Not in parallel mode: such a file has no workers.
            let error = guarded(|| in_subtransaction(|| make((&raw mut making).cast())));
            if !error.is_null() {
                if !failure::is_about_a_row(&*error) {
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
/// See [`filter`]; `making` has its arguments.
unsafe extern "C-unwind" fn make(making: Opaque) {
    // SAFETY: this function's contract covers the argument; nothing here has a destructor.
    unsafe {
        let making = making.cast::<Making<'_>>();
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

/// Makes the attributes from a tuple that a function has returned.
///
/// # Safety
/// A plain frame, with the row's memory context; the projection has made the tuple; the arrays are of the target's row.
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

/// Makes the attributes from a row of the file, which is in the slot.
///
/// # Safety
/// A plain frame, with the row's memory context; a valid projection whose slot is the context's scan tuple, and the
/// arrays of the target's row.
pub unsafe fn compute(projection: *const Projection, econtext: *mut pg_sys::ExprContext, arrays: RowArrays) {
    // SAFETY: this function's contract covers all arguments; nothing here has a destructor. Parts are within the two
    // descriptors.
    unsafe {
        let source = (*projection).arrays();
        let parts = &raw const (*projection).parts;
        for i in 0..(*parts).len() {
            match *(*parts).as_ptr().add(i) {
                AttributeSource::Move { from, to } => {
                    *arrays.values().add(to) = *source.values().add(from);
                    *arrays.nulls().add(to) = *source.nulls().add(from);
                }
                AttributeSource::Take { from, to } => {
                    if let Some(call) = (*projection).call.as_ref() {
                        let made = call.arrays();
                        *arrays.values().add(to) = *made.values().add(from);
                        *arrays.nulls().add(to) = *made.nulls().add(from);
                    }
                }
                AttributeSource::Compute { state, to, expands } => {
                    let is_null = arrays.nulls().add(to);
                    let value = unguarded::exec_eval_expr(state, econtext, is_null);
                    let value = if expands && !*is_null { unguarded::read_only(value) } else { value };
                    *arrays.values().add(to) = value;
                }
            }
        }
    }
}

/// Makes the attributes from a row that was just read and is not yet stored in the slot.
///
/// # Safety
/// See [`compute`].
pub unsafe fn compute_read(projection: *const Projection, econtext: *mut pg_sys::ExprContext, arrays: RowArrays) {
    // SAFETY: this function's contract covers all arguments.
    unsafe {
        unguarded::store_virtual((*projection).slot);
        (*econtext).ecxt_scantuple = (*projection).slot;
        compute(projection, econtext, arrays);
    }
}
