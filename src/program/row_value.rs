//! A record as one composite value, for a function that takes a row.
//!
//! For each call, the executor would form a tuple from a slot's datums. Here forming it costs no more than for a tuple
//! of the table. Rows that were decoded in a block have no datums, and all rows use the same memory for the tuple. The
//! function often returns the same tuple.
//!
//! The call is the expression that all other rows use, except that its argument is the value instead of the slot's row.

use pg_bulk_storage::tuple::{FormBuffer, Layout, TUPLE_HEADER};
use pg_bulk_types::block::ColumnForm;
use pgrx::{PgList, pg_sys};

use crate::rows::row::RowArrays;
use crate::server::expression;
use crate::server::relation::TupleDesc;
use crate::server::tuple_layout::attributes;
use crate::server::unguarded;

/// A call that is ready to run.
#[derive(Debug)]
pub struct RowValue {
    /// The call; its argument is the context's case value.
    state: *mut pg_sys::ExprState,
    layout: Layout,
    buffer: FormBuffer,
}

impl RowValue {
    /// Makes the call, if the expression is a function call with the whole row as its one argument. Guarded; allocates
    /// in the current memory context, which must outlive it.
    ///
    /// # Safety
    /// `row` is an expression over the input row, `nothing` a slot for it in which all columns are NULL.
    pub unsafe fn new(row: *mut pg_sys::Node, nothing: *mut pg_sys::TupleTableSlot) -> Option<RowValue> {
        // SAFETY: guarded calls; this function's contract covers the nodes, and a node's tag is its type.
        unsafe {
            if row.is_null() || (*row).type_ != pg_sys::NodeTag::T_FuncExpr {
                return None;
            }
            let arguments = PgList::<pg_sys::Node>::from_pg((*row.cast::<pg_sys::FuncExpr>()).args);
            let argument = arguments.get_ptr(0).filter(|_| arguments.len() == 1)?;
            if (*argument).type_ != pg_sys::NodeTag::T_Var {
                return None;
            }
            let variable = argument.cast::<pg_sys::Var>();
            if (*variable).varattno != 0 {
                return None;
            }
            let layout = layout(argument, nothing)?;
            let value = pg_sys::palloc0(size_of::<pg_sys::CaseTestExpr>()).cast::<pg_sys::CaseTestExpr>();
            (*value).xpr.type_ = pg_sys::NodeTag::T_CaseTestExpr;
            (*value).typeId = (*variable).vartype;
            (*value).typeMod = -1;
            (*value).collation = pg_sys::InvalidOid;
            let call = pg_sys::copyObjectImpl(row.cast()).cast::<pg_sys::FuncExpr>();
            (*call).args = pg_sys::lappend(std::ptr::null_mut(), value.cast());
            let state = pg_sys::ExecInitExpr(call.cast(), std::ptr::null_mut());
            Some(RowValue { state, layout, buffer: FormBuffer::new() })
        }
    }

    /// See [`expression::anew`]. Guarded.
    pub fn renew(&mut self) {
        // SAFETY: made in `new`.
        self.state = unsafe { expression::anew(self.state) };
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

    /// Calls the function. Returns its result; None for NULL.
    ///
    /// # Safety
    /// A plain frame, with the row's memory context; `value` was made by [`RowValue::form`].
    #[inline]
    pub unsafe fn call(
        &self,
        value: pg_sys::HeapTupleHeader,
        econtext: *mut pg_sys::ExprContext,
    ) -> Option<pg_sys::Datum> {
        // SAFETY: `form` has made the value, and the row loop has the context.
        unsafe {
            let mut is_null = false;
            (*econtext).caseValue_datum = pg_sys::Datum::from(value);
            (*econtext).caseValue_isNull = false;
            let made = unguarded::exec_eval_expr(self.state, econtext, &raw mut is_null);
            (!is_null).then_some(made)
        }
    }
}

/// The layout of the values that the executor would form from the row. Guarded.
///
/// # Safety
/// The variable for the whole row, and a slot as in [`RowValue::new`].
unsafe fn layout(row: *mut pg_sys::Node, nothing: *mut pg_sys::TupleTableSlot) -> Option<Layout> {
    // SAFETY: guarded calls; this function's contract covers both arguments. A composite value has a tuple's header.
    unsafe {
        let state = pg_sys::ExecInitExpr(row.cast(), std::ptr::null_mut());
        let econtext = pg_sys::CreateStandaloneExprContext();
        unguarded::store_virtual(nothing);
        (*econtext).ecxt_scantuple = nothing;
        let mut is_null = false;
        let into = &raw mut is_null;
        let value = unguarded::guard(|| unguarded::exec_eval_expr(state, econtext, into));
        let attributes = attributes(TupleDesc::from_raw((*nothing).tts_tupleDescriptor));
        let layout = if is_null {
            None
        } else {
            Layout::of_values(&attributes, &value.cast_mut_ptr::<[u8; TUPLE_HEADER]>().read())
        };
        pg_sys::FreeExprContext(econtext, true);
        layout
    }
}
