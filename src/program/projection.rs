//! Conditions and expressions between the file and the table, for an INSERT … SELECT.
//!
//! ```text
//!   columns of the conditions ─► conditions ─► the other columns ─► attributes, moved or computed ─► defaults
//! ```
//!
//! Fields are decoded into a row of the foreign table, the [slot](Projection::slot), not into a row of the target. As
//! in a scan, a column outside of the conditions is converted only if the row passes, so errors in other rows' columns
//! are not raised. Rows that were decoded in a block have no errors in any column.

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::call::Call;
use super::defaults::Defaults;
use super::row_value::RowValue;
use super::{Nodes, columns_of};
use crate::error::{Error, OrRaise, Result};
use crate::rows::column::Column;
use crate::rows::row::{RowArrays, Rows};
use crate::rows::soft::OnError;
use crate::server::attempt::in_subtransaction;
use crate::server::expression::{Expression, expands};
use crate::server::failure;
use crate::server::memory_context::MemoryContext;
use crate::server::node::Node;
use crate::server::relation::{OpenRelation, TupleDesc};
use crate::server::slot::{ExprContext, Slot};
use crate::server::unguarded::{self, guarded};

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
        state: Expression,
        to: usize,
        expands: bool,
    },
}

impl AttributeSource {
    /// The source of a target that is made of the columns in the slot, or of a function's row. Guarded.
    fn of(target: Node<'static, pg_sys::TargetEntry>, slot: Slot<'static>) -> Result<AttributeSource> {
        let (node, index) = (target.expr(), |number: i16| usize::try_from(number - 1).ok());
        let to = index(target.resno).unwrap_or(0);
        let Some((variable, from)) = node.as_a::<pg_sys::Var>().and_then(|one| Some((one, index(one.varattno)?)))
        else {
            return Ok(AttributeSource::Compute { state: Expression::new(node), to, expands: expands(node) });
        };
        if i64::from(variable.varno) == i64::from(pg_sys::OUTER_VAR) {
            return Ok(AttributeSource::Take { from, to });
        }
        // A value is moved as it is.
        if slot.descriptor().attribute(from).is_some_and(|attribute| attribute.atttypid == variable.vartype) {
            return Ok(AttributeSource::Move { from, to });
        }
        Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, "a target is made of a column of another type"))
    }
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
    slot: Slot<'static>,
    quals: Option<Expression>,
    parts: Vec<AttributeSource>,
    /// The function that makes the row from the file's row, if there is one.
    call: Option<Call>,
    /// The projection is the call of a function whose errors may be survived.
    pub filters: bool,
    survives: bool,
    /// Columns to convert after the conditions: their indexes in the file.
    rest: Vec<usize>,
    /// Attributes in the conditions; None if all columns are converted before.
    early: Option<Vec<usize>>,
    /// The rest of the current row is still to be converted.
    pub is_partial: bool,
}

impl Projection {
    /// Makes the projection for rows of `foreign`, which is locked, with these columns. Otherwise as [`Projection::over`].
    pub fn new(
        nodes: Nodes,
        foreign: pg_sys::Oid,
        columns: &[Column],
        on_error: OnError,
        memory: MemoryContext,
    ) -> Projection {
        let foreign = OpenRelation::locked(foreign);
        Projection::over(nodes, foreign.get().descriptor(), columns, on_error, memory)
    }

    /// Makes the projection for rows of this type, with these columns of the file. Guarded; raises an error if the nodes name
    /// other columns. Allocates in `memory`.
    pub fn over(
        nodes: Nodes,
        descriptor: TupleDesc<'_>,
        columns: &[Column],
        on_error: OnError,
        memory: MemoryContext,
    ) -> Projection {
        let within = memory.enter();
        let slot = Slot::make(descriptor.copied());
        let quals = Expression::conditions(nodes.quals);
        let parts = nodes.targets.iter().map(|target| AttributeSource::of(target, slot).or_raise()).collect();
        let call = nodes.row.map(|row| Call::new(row, slot, nodes.targets).or_raise());
        drop(within);
        // A column that a function does not read is an argument, too.
        let by_quals: Vec<i16> = columns_of(nodes.quals).collect();
        let early = early(&by_quals, quals.is_none() || nodes.filters, on_error);
        let survives = nodes.filters && matches!(on_error, OnError::Table | OnError::Ignore);
        let projection = Projection::fitted(slot, quals, parts, early, columns);
        Projection { call, filters: nodes.filters, survives, ..projection }
    }

    /// Makes the projection of a scan: conditions over the columns `by_quals` of the slot, without target expressions.
    pub fn of_scan(
        slot: Slot<'static>,
        quals: Option<Expression>,
        by_quals: &[i16],
        columns: &[Column],
        on_error: OnError,
    ) -> Projection {
        // Columns that are not used stay NULL in every row.
        slot.arrays().clear();
        Projection::fitted(slot, quals, Vec::new(), early(by_quals, quals.is_none(), on_error), columns)
    }

    fn fitted(
        slot: Slot<'static>,
        quals: Option<Expression>,
        parts: Vec<AttributeSource>,
        early: Option<Vec<usize>>,
        columns: &[Column],
    ) -> Projection {
        let (call, filters, survives, rest) = (None, false, false, Vec::new());
        let mut projection = Projection { slot, quals, parts, call, filters, survives, rest, early, is_partial: false };
        projection.fit(columns);
        projection
    }

    /// Switches the conditions of a scan off: all rows pass.
    pub fn forget_conditions(&mut self) {
        self.quals = None;
    }

    /// See [`Expression::renew`]. Not for a scan. Guarded; allocates in the current memory context.
    pub fn renew(&mut self) {
        let computed = self.parts.iter_mut().filter_map(|part| match part {
            AttributeSource::Compute { state, .. } => Some(state),
            _ => None,
        });
        self.quals.iter_mut().chain(computed).for_each(Expression::renew);
        if let Some(call) = &mut self.call {
            call.renew();
        }
    }

    /// Adapts to the positions of columns in the file.
    pub fn fit(&mut self, columns: &[Column]) {
        let is_rest = |column: &Column| !column.ignored && !self.is_first(column);
        self.rest = columns.iter().enumerate().filter(|(_, column)| is_rest(column)).map(|(i, _)| i).collect();
    }

    /// Is the column converted before the conditions?
    pub fn is_first(&self, column: &Column) -> bool {
        self.early.as_ref().is_none_or(|early| early.contains(&column.attribute))
    }

    /// The arrays of the row.
    pub fn arrays(&self) -> RowArrays<'static> {
        self.slot.arrays()
    }

    /// Number of the row's attributes.
    pub fn attributes(&self) -> usize {
        self.slot.descriptor().len()
    }

    /// Makes the arrays the row of the context, in which expressions read them.
    #[inline(always)]
    fn enter(&self, econtext: ExprContext<'_>) {
        self.slot.store();
        econtext.read(self.slot);
    }

    /// The conditions; null if there are none.
    fn quals(&self) -> *mut pg_sys::ExprState {
        self.quals.map_or(std::ptr::null_mut(), Expression::as_ptr)
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

    /// The maker of the row as one value, for a function with a composite argument.
    #[inline]
    pub fn value_mut(&mut self) -> Option<&mut RowValue> {
        // The conditions need separate columns.
        self.call.as_mut().filter(|_| self.quals.is_none())?.value_mut()
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
    // SAFETY: the frame is plain, and the projection is valid.
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
        (*projection).enter(ExprContext::from_raw(fields));
        (*rows).context.is_converting = false;
        if !unguarded::exec_qual((*projection).quals(), fields) {
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
            let made = filter(projection, econtext, arrays, as_tuple);
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
    // SAFETY: the frame is plain; nothing here has a destructor.
    unsafe {
        let Some(call) = (*projection).call.as_ref() else { return Made::Nothing };
        let tuple = call.make(value, econtext);
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

/// Makes a row from a row of the file that was just read, by a function; with `as_tuple`, stops at the function's tuple.
///
/// # Safety
/// A plain frame, with the row's memory context; a valid projection that filters, and the arrays of the target's row.
pub unsafe fn filter(
    projection: *const Projection,
    econtext: *mut pg_sys::ExprContext,
    arrays: RowArrays,
    as_tuple: bool,
) -> Made {
    // SAFETY: the frame is plain, and nothing here has a destructor.
    unsafe {
        (*projection).enter(ExprContext::from_raw(econtext));
        let make = || {
            if !unguarded::exec_qual((*projection).quals(), econtext) {
                return Made::Nothing;
            }
            let Some(call) = (*projection).call.as_ref() else {
                compute(projection, econtext, arrays);
                return Made::Row;
            };
            let tuple = call.make(std::ptr::null_mut(), econtext);
            if tuple.is_null() {
                return Made::Nothing;
            }
            if as_tuple {
                return Made::Tuple(tuple);
            }
            take_apart(projection, econtext, tuple, arrays);
            Made::Row
        };
        if !(*projection).survives {
            return make();
        }
        let mut made = Made::Nothing;
        // Not in parallel mode: such a file has no workers.
        let error = guarded(|| in_subtransaction(|| made = make()));
        if error.is_null() {
            return made;
        }
        if !failure::is_about_a_row(&*error) {
            unguarded::ReThrowError(error);
        }
        Made::Bad(error)
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
    // SAFETY: the frame is plain; nothing here has a destructor.
    unsafe {
        if let Some(call) = (*projection).call.as_ref() {
            call.take_apart(tuple, econtext);
        }
        compute(projection, econtext, arrays);
    }
}

/// Makes the attributes from a row of the file, which is in the arrays.
///
/// # Safety
/// A plain frame, with the row's memory context; a valid projection, and the arrays of the target's row.
pub unsafe fn compute(projection: *const Projection, econtext: *mut pg_sys::ExprContext, arrays: RowArrays) {
    // SAFETY: the frame is plain; nothing here has a destructor. Parts are within the two descriptors.
    unsafe {
        (*projection).enter(ExprContext::from_raw(econtext));
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
                    let value = unguarded::exec_eval_expr(state.as_ptr(), econtext, is_null);
                    let value = if expands && !*is_null { unguarded::read_only(value) } else { value };
                    *arrays.values().add(to) = value;
                }
            }
        }
    }
}
