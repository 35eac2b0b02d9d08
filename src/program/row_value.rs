//! A record as one composite value, for a function that takes a row.
//!
//! For each call, the executor would form a tuple from a slot's datums. Here forming it costs no more than for a tuple
//! of the table. Rows that were decoded in a block have no datums, and all rows use the same memory for the tuple. The
//! function often returns the same tuple.
//!
//! The call is the expression that all other rows use, except that its argument is the value instead of the slot's row.

use pg_bulk_storage::tuple::{FormBuffer, Layout, TUPLE_HEADER};
use pg_bulk_types::block::ColumnForm;
use pgrx::pg_sys;

use crate::rows::row::RowArrays;
use crate::server::expression::Expression;
use crate::server::node::Node;
use crate::server::node::make;
use crate::server::slot::Slot;
use crate::server::tuple_layout::attributes;
use crate::server::unguarded;

/// A call that is ready to run.
#[derive(Debug)]
pub struct RowValue {
    /// The call; its argument is the context's case value.
    pub(super) state: Expression,
    layout: Layout,
    buffer: FormBuffer,
}

impl RowValue {
    /// Makes the call, if the expression over the input row is a function call with the whole row as its one argument.
    /// All columns of the row in `nothing` are NULL. Guarded; allocates in the current memory context, which must outlive it.
    pub fn new(row: Node<'static>, nothing: Slot<'static>) -> Option<RowValue> {
        let arguments = row.as_a::<pg_sys::FuncExpr>()?.args();
        let argument = arguments.first().filter(|_| arguments.len() == 1)?.as_a::<pg_sys::Var>()?;
        if argument.varattno != 0 {
            return None;
        }
        let layout = layout(argument, nothing)?;
        let value = |node: Node<'_>| Some(make::case_value(node.as_a::<pg_sys::Var>()?.vartype).node());
        let state = Expression::new(row.replace(value));
        Some(RowValue { state, layout, buffer: FormBuffer::new() })
    }

    /// See [`Expression::renew`]. Guarded.
    pub fn renew(&mut self) {
        self.state.renew();
    }

    /// The value of a row that was decoded in a block; None if it must be made like any other row's.
    ///
    /// It is valid until the next call. Raises nothing.
    ///
    /// # Safety
    /// The arrays have a value for each attribute of the row, in the form that `column_forms` names.
    #[inline]
    pub unsafe fn form(&mut self, column_forms: &[ColumnForm], arrays: RowArrays) -> Option<pg_sys::HeapTupleHeader> {
        let (values, nulls) = (arrays.values().cast_const().cast(), arrays.nulls().cast_const());
        // SAFETY: this function's contract covers the arrays; a datum is a usize. The tuple has the alignment of its
        // header.
        let value = unsafe { self.layout.form_value(column_forms, values, nulls, &mut self.buffer) };
        value.map(<*mut u8>::cast)
    }
}

/// The layout of the values that the executor would form from the whole row. Guarded.
fn layout(row: Node<'static, pg_sys::Var>, nothing: Slot<'static>) -> Option<Layout> {
    let state = Expression::new(row.node());
    // SAFETY: guarded calls; the closure owns nothing. A composite value has a tuple's header.
    unsafe {
        let econtext = pg_sys::CreateStandaloneExprContext();
        unguarded::store_virtual(nothing.as_ptr());
        (*econtext).ecxt_scantuple = nothing.as_ptr();
        let value = unguarded::guard(|| state.value(econtext));
        let header = value.map(|value| value.cast_mut_ptr::<[u8; TUPLE_HEADER]>().read());
        let layout = header.and_then(|header| Layout::of_values(&attributes(nothing.descriptor()), &header));
        pg_sys::FreeExprContext(econtext, true);
        layout
    }
}
