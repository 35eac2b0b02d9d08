//! Is a row where the order wants it?
//!
//! Rows are compared with the functions by which a Sort would have compared them. These may be anybody's, so [`follows`] is a
//! plain frame. What it remembers of the last row it copies into the query's memory, where the row itself does not live.

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::Ordered;
use crate::error::Error;
use crate::pg::compat;
use crate::pg::row::RowArrays;
use crate::pg::unguarded;

/// What the rows of a scan must be, and the last one.
#[derive(Debug)]
pub struct Check {
    columns: Vec<Compared>,
    has_row: bool,
    /// Where the last row's values are.
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

impl Check {
    /// Of rows of this relation, in this order; `None` if it is no matter. What is remembered lives in the current memory
    /// context. Guarded.
    ///
    /// # Safety
    /// An open relation, and columns that it had when the query was planned.
    pub unsafe fn new(order: &[Ordered], relation: pg_sys::Relation) -> Option<Check> {
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
        Some(Check { columns: order.iter().map(compared).collect(), has_row: false, context })
    }

    /// The next row is the first one.
    pub fn again(&mut self) {
        self.has_row = false;
    }
}

/// What [`follows`] says of a row that may come next.
pub const IN_ORDER: usize = usize::MAX;

/// May the row come next? Else by which column of the order it may not; [`IN_ORDER`] if it may.
///
/// # Safety
/// A plain frame, in a memory context that is reset now and then; a valid check, and the complete row.
pub unsafe fn follows(check: *mut Check, row: RowArrays) -> usize {
    // SAFETY: this function's contract covers both arguments; nothing here has a destructor.
    unsafe {
        let check = &mut *check;
        let mut is_new = !check.has_row;
        if check.has_row {
            for (i, column) in check.columns.iter_mut().enumerate() {
                let (value, null) = (*row.values.add(column.attribute), *row.nulls.add(column.attribute));
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
                let (value, null) = (*row.values.add(column.attribute), *row.nulls.add(column.attribute));
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

/// The last row's value and the next one's (`ApplySortComparator`).
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
            // SAFETY: PrepareSortSupportFromOrderingOp has set it.
            let order =
                unsafe { (*support).comparator }.map_or(0, |compare| unsafe { compare(column.value, value, support) });
            if column.support.ssup_reverse { 0_i32.saturating_sub(order) } else { order }
        }
    }
}

impl Check {
    /// What there is to be said of a row that may not come next by this column of the order. Guarded.
    ///
    /// # Safety
    /// The relation whose rows they are.
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
