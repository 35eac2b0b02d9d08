//! Checks that each row follows the one before in the declared order.
//!
//! Rows are compared with the functions that a Sort would use. These may be user-defined, so [`follows`] is a plain
//! frame. It copies the values of the last row into the query's memory, since the row itself does not live that long.

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::Ordered;
use crate::error::Error;
use crate::rows::row::RowArrays;
use crate::server::compat;
use crate::server::unguarded;

/// The declared order of a scan's rows, and the last row.
#[derive(Debug)]
pub struct OrderCheck {
    columns: Vec<Compared>,
    has_row: bool,
    /// Memory context of the last row's values.
    context: pg_sys::MemoryContext,
}

#[derive(Debug)]
struct Compared {
    attribute: usize,
    support: pg_sys::SortSupportData,
    by_value: bool,
    length: i16,
    value: pg_sys::Datum,
    null: bool,
}

impl OrderCheck {
    /// Makes the check for this relation and order; `None` if there is no order. The last row lives in the current
    /// memory context. Guarded.
    ///
    /// # Safety
    /// An open relation, and columns that it had when the query was planned.
    pub unsafe fn new(order: &[Ordered], relation: pg_sys::Relation) -> Option<OrderCheck> {
        if order.is_empty() {
            return None;
        }
        // SAFETY: the current context.
        let context = unsafe { pg_sys::CurrentMemoryContext };
        let compared = |column: &Ordered| {
            let attribute = usize::try_from(column.number - 1).unwrap_or(0);
            let mut support = pg_sys::SortSupportData {
                ssup_cxt: context,
                ssup_collation: column.collation,
                ssup_nulls_first: column.nulls_first,
                ssup_attno: column.number,
                ..Default::default()
            };
            // SAFETY: an attribute of the relation; a guarded call.
            let form = unsafe {
                pg_sys::PrepareSortSupportFromOrderingOp(column.operator, &raw mut support);
                &*compat::attribute((*relation).rd_att, attribute)
            };
            let (by_value, length) = (form.attbyval, form.attlen);
            Compared { attribute, support, by_value, length, value: pg_sys::Datum::from(0usize), null: true }
        };
        Some(OrderCheck { columns: order.iter().map(compared).collect(), has_row: false, context })
    }

    /// Forgets the last row, for a rescan.
    pub fn again(&mut self) {
        self.has_row = false;
    }
}

/// Result of [`follows`] for a row in order.
pub const IN_ORDER: usize = usize::MAX;

/// [`IN_ORDER`] if the row may come next; else the number of the column that violates the order.
///
/// # Safety
/// A plain frame, in a memory context that is reset now and then; a valid check, and the complete row.
pub unsafe fn follows(check: *mut OrderCheck, row: RowArrays) -> usize {
    // SAFETY: this function's contract covers both arguments; nothing here has a destructor.
    unsafe {
        let check = &mut *check;
        let mut is_new = !check.has_row;
        if check.has_row {
            for (i, column) in check.columns.iter_mut().enumerate() {
                let (value, null) = (*row.values().add(column.attribute), *row.nulls().add(column.attribute));
                let order = compare(column, value, null);
                if order > 0 {
                    return i;
                }
                if order < 0 {
                    is_new = true;
                    break;
                }
            }
        }
        if is_new {
            let old = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = check.context;
            for column in &mut check.columns {
                let (value, null) = (*row.values().add(column.attribute), *row.nulls().add(column.attribute));
                if !column.by_value && !column.null {
                    column.null = true;
                    unguarded::pfree(column.value.cast_mut_ptr());
                }
                if !null {
                    column.value = unguarded::datumCopy(value, column.by_value, i32::from(column.length));
                }
                column.null = null;
            }
            pg_sys::CurrentMemoryContext = old;
            check.has_row = true;
        }
        IN_ORDER
    }
}

/// Compares the last row's value with the next one's (`ApplySortComparator`).
///
/// # Safety
/// As [`follows`].
#[inline]
unsafe fn compare(column: &mut Compared, value: pg_sys::Datum, null: bool) -> i32 {
    let nulls_first = column.support.ssup_nulls_first;
    match (column.null, null) {
        (true, true) => 0,
        (true, false) => {
            if nulls_first {
                -1
            } else {
                1
            }
        }
        (false, true) => {
            if nulls_first {
                1
            } else {
                -1
            }
        }
        (false, false) => {
            let support = &raw mut column.support;
            // SAFETY: OrderCheck::new has prepared the support for the column's type; column.value is a copy of an earlier
            // row's value. This function's contract covers frame and value.
            let order =
                unsafe { (*support).comparator }.map_or(0, |compare| unsafe { compare(column.value, value, support) });
            if column.support.ssup_reverse { 0_i32.saturating_sub(order) } else { order }
        }
    }
}

impl OrderCheck {
    /// The error about a row that violates the order by this column. Guarded.
    ///
    /// # Safety
    /// The relation of the rows.
    pub unsafe fn complaint(&self, column: usize, relation: pg_sys::Relation) -> Error {
        let attribute = self.columns.get(column).map_or(0, |column| column.attribute);
        // SAFETY: this function's contract covers the relation, which has the attribute.
        let (table, column) = unsafe {
            let column = (*compat::attribute((*relation).rd_att, attribute)).attname.data;
            let table = (*(*relation).rd_rel).relname.data;
            let text = |name: &[std::ffi::c_char]| {
                let bytes: Vec<u8> = name.iter().map(|&c| c.cast_unsigned()).take_while(|&b| b != 0).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            };
            (text(&table), text(&column))
        };
        let message = format!("rows of foreign table \"{table}\" are not sorted as its option sorted_by says");
        Error::new(Code::ERRCODE_BAD_COPY_FILE_FORMAT, message)
            .detail(format!(
                "In the order of column \"{column}\", this row belongs before a row that was read earlier."
            ))
            .hint("Sort the file, or drop the option; queries then sort the rows.")
    }
}
