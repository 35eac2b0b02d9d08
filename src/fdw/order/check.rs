//! Checks that each row follows the one before in the declared order.
//!
//! Rows are compared with the functions that a Sort would use. These may be user-defined, so [`follows`] is a plain
//! frame. It copies the values of the last row into the query's memory, since the row itself does not live that long.

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::Ordered;
use crate::error::Error;
use crate::rows::row::RowArrays;
use crate::server::memory_context::MemoryContext;
use crate::server::relation::{Relation, attribute_name};
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
    pub fn new(order: &[Ordered], relation: Relation<'_>) -> Option<OrderCheck> {
        if order.is_empty() {
            return None;
        }
        let context = MemoryContext::current().as_ptr();
        let compared = |column: &Ordered| {
            let attribute = usize::try_from(column.number - 1).ok()?;
            let form = relation.descriptor().attribute(attribute)?;
            let mut support = pg_sys::SortSupportData {
                ssup_cxt: context,
                ssup_collation: column.collation,
                ssup_nulls_first: column.nulls_first,
                ssup_attno: column.number,
                ..Default::default()
            };
            // SAFETY: a guarded call, which fills the support.
            unsafe { pg_sys::PrepareSortSupportFromOrderingOp(column.operator, &raw mut support) };
            let (by_value, length) = (form.attbyval, form.attlen);
            Some(Compared { attribute, support, by_value, length, value: pg_sys::Datum::from(0usize), null: true })
        };
        Some(OrderCheck { columns: order.iter().filter_map(compared).collect(), has_row: false, context })
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
                // As ApplySortComparator.
                let (nulls_first, support) = (column.support.ssup_nulls_first, &raw mut column.support);
                let order = match (column.null, null) {
                    (true, true) => 0,
                    (last_is_null, this_is_null) if last_is_null || this_is_null => {
                        if last_is_null == nulls_first {
                            -1
                        } else {
                            1
                        }
                    }
                    // `new` has prepared the support for the column's type.
                    _ => {
                        let order = (*support).comparator.map_or(0, |compare| compare(column.value, value, support));
                        if (*support).ssup_reverse { 0_i32.saturating_sub(order) } else { order }
                    }
                };
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

impl OrderCheck {
    /// The error about a row that violates the order by this column. Guarded.
    pub fn complaint(&self, column: usize, relation: Relation<'_>) -> Error {
        let table = relation.name_text();
        let attribute = self.columns.get(column).and_then(|column| relation.descriptor().attribute(column.attribute));
        let column = attribute.map(attribute_name).unwrap_or_default();
        let message = format!("rows of foreign table \"{table}\" are not sorted as its option sorted_by says");
        Error::new(Code::ERRCODE_BAD_COPY_FILE_FORMAT, message)
            .detail(format!(
                "In the order of column \"{column}\", this row belongs before a row that was read earlier."
            ))
            .hint("Sort the file, or drop the option; queries then sort the rows.")
    }
}
