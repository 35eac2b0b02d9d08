//! Statements on the extension's own tables, through SPI.
//!
//! Values are passed as datums in both directions, because text in the server's encoding is not always UTF-8.

use std::ffi::{CStr, CString, c_char};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::compat;
use crate::error::{Error, Result};

/// A value for a statement; `$1` is the first one.
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    kind: pg_sys::Oid,
    value: Option<pg_sys::Datum>,
}

impl Argument {
    pub fn datum(kind: pg_sys::Oid, value: pg_sys::Datum) -> Argument {
        Argument { kind, value: Some(value) }
    }

    pub fn bigint(value: i64) -> Argument {
        Argument::datum(pg_sys::INT8OID, pg_sys::Datum::from(value))
    }

    pub fn integer(value: i32) -> Argument {
        Argument::datum(pg_sys::INT4OID, pg_sys::Datum::from(value))
    }

    pub fn boolean(value: bool) -> Argument {
        Argument::datum(pg_sys::BOOLOID, pg_sys::Datum::from(value))
    }

    pub fn oid(value: pg_sys::Oid) -> Argument {
        Argument::datum(pg_sys::OIDOID, pg_sys::Datum::from(value))
    }

    /// Text in the server's encoding, or NULL. Guarded.
    pub fn text(value: Option<&CStr>) -> Argument {
        // SAFETY: a guarded call that copies the string.
        let value = value.map(|text| pg_sys::Datum::from(unsafe { pg_sys::cstring_to_text(text.as_ptr()) }));
        Argument { kind: pg_sys::TEXTOID, value }
    }

    /// An array of text. Guarded.
    pub fn texts(values: &[CString]) -> Argument {
        // SAFETY: guarded calls that copy the strings, and then the values.
        unsafe {
            let mut values: Vec<_> =
                values.iter().map(|text| pg_sys::Datum::from(pg_sys::cstring_to_text(text.as_ptr()))).collect();
            let len = i32::try_from(values.len()).unwrap_or(i32::MAX);
            let align = pg_sys::TYPALIGN_INT as c_char;
            let array = pg_sys::construct_array(values.as_mut_ptr(), len, pg_sys::TEXTOID, -1, false, align);
            Argument::datum(pg_sys::TEXTARRAYOID, pg_sys::Datum::from(array))
        }
    }
}

/// A value of a result.
#[derive(Debug, Clone, Copy)]
pub struct ResultValue(Option<pg_sys::Datum>);

impl ResultValue {
    /// A value from another source.
    pub fn of(datum: pg_sys::Datum) -> ResultValue {
        ResultValue(Some(datum))
    }

    pub fn datum(self) -> Option<pg_sys::Datum> {
        self.0
    }

    /// As a number, for types bigint, integer, oid and timestamptz; 0 for NULL.
    pub fn number(self) -> i64 {
        self.0.map_or(0, |datum| datum.value() as i64)
    }

    /// As a number, for type integer.
    pub fn integer(self) -> i32 {
        self.0.map_or(0, |datum| datum.value() as i32)
    }

    pub fn oid(self) -> pg_sys::Oid {
        self.0.map_or(pg_sys::InvalidOid, |datum| pg_sys::Oid::from_u32(datum.value() as u32))
    }

    pub fn boolean(self) -> bool {
        self.0.is_some_and(|datum| datum.value() & 1 != 0)
    }

    /// As a string, for type text; empty for NULL. Guarded.
    ///
    /// # Safety
    /// The value is of type text.
    pub unsafe fn text(self) -> CString {
        let Some(datum) = self.0 else { return CString::default() };
        // SAFETY: this function's contract covers the type; guarded calls.
        unsafe {
            let text = pg_sys::pg_detoast_datum_packed(datum.cast_mut_ptr());
            CStr::from_ptr(pg_sys::text_to_cstring(text.cast())).to_owned()
        }
    }

    /// As strings, for type text[] without NULLs. Guarded.
    ///
    /// # Safety
    /// The value is of type text[].
    pub unsafe fn texts(self) -> Vec<CString> {
        let Some(datum) = self.0 else { return Vec::new() };
        let (mut elements, mut nulls, mut number) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        // SAFETY: this function's contract covers the type; guarded calls, which return the number of elements.
        unsafe {
            let array = pg_sys::pg_detoast_datum(datum.cast_mut_ptr()).cast();
            let align = pg_sys::TYPALIGN_INT as c_char;
            let (elements_at, nulls_at) = (&raw mut elements, &raw mut nulls);
            pg_sys::deconstruct_array(array, pg_sys::TEXTOID, -1, false, align, elements_at, nulls_at, &raw mut number);
            let number = usize::try_from(number).unwrap_or(0);
            (0..number).filter(|i| !*nulls.add(*i)).map(|i| ResultValue(Some(*elements.add(i))).text()).collect()
        }
    }
}

/// The rows that a statement returned, and the number of rows that it processed.
#[derive(Debug)]
pub struct StatementResult {
    pub rows: Vec<Vec<ResultValue>>,
    pub processed: u64,
}

impl StatementResult {
    /// A value of the first row.
    pub fn first(&self, column: usize) -> ResultValue {
        value(self.rows.first(), column)
    }
}

/// A value of a row; NULL if the row or the column does not exist.
pub fn value(row: Option<&Vec<ResultValue>>, column: usize) -> ResultValue {
    row.and_then(|row| row.get(column)).copied().unwrap_or(ResultValue(None))
}

/// What a statement may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read the rows committed by now, at any isolation level.
    ReadLatest,
    /// Read the same rows, and change them. Above READ COMMITTED, a row that another transaction changes before this
    /// one does is an error.
    Write,
}

/// Run one statement. Guarded; values of by-reference types are in the current memory context.
///
/// It may use only `tables` and the server's catalogs. Their names alone are not safe. The owner of the extension's
/// schema may rename it, and create other tables under the names in the statement. Their triggers and functions would
/// then run as the extension's owner. So the relations to which parse analysis has resolved the names are checked. They
/// cannot change afterwards: parse analysis has locked them, so planning takes no new lock. Only with a new lock would
/// the server notice a renamed schema, and analyze the statement again.
pub fn execute(
    statement: &[u8],
    arguments: &[Argument],
    access: Access,
    tables: &[pg_sys::Oid],
) -> Result<StatementResult> {
    let source = CString::new(statement).unwrap_or_default();
    let mut kinds: Vec<_> = arguments.iter().map(|a| a.kind).collect();
    let mut values: Vec<_> = arguments.iter().map(|a| a.value.unwrap_or(pg_sys::Datum::from(0usize))).collect();
    let nulls: Vec<c_char> = arguments.iter().map(|a| if a.value.is_some() { b' ' } else { b'n' } as c_char).collect();
    let number = i32::try_from(arguments.len()).unwrap_or(0);
    // SAFETY: guarded calls with arrays of that length. SPI_finish frees what is not copied before it.
    unsafe {
        let fails = |what: i32| {
            let message = format!("statement on the queue failed with {what}");
            Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message))
        };
        let connected = pg_sys::SPI_connect();
        if connected != pg_sys::SPI_OK_CONNECT.cast_signed() {
            return fails(connected);
        }
        // Planning evaluates functions, which need a snapshot.
        pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot());
        let plan = pg_sys::SPI_prepare(source.as_ptr(), number, kinds.as_mut_ptr());
        if plan.is_null() {
            return fails(pg_sys::SPI_result);
        }
        if !is_about(plan, tables) {
            let message = "the tables of pg_bulk have another schema than expected";
            return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .hint("The extension's schema may have been renamed concurrently. Try again."));
        }
        let read_only = access == Access::ReadLatest;
        let (values, nulls) = (values.as_mut_ptr(), nulls.as_ptr());
        let (snapshot, any) = (pg_sys::GetLatestSnapshot(), std::ptr::null_mut());
        let result = pg_sys::SPI_execute_snapshot(plan, values, nulls, snapshot, any, read_only, true, 0);
        pg_sys::PopActiveSnapshot();
        if result < 0 {
            return fails(result);
        }
        let processed = pg_sys::SPI_processed;
        let rows = rows(pg_sys::SPI_tuptable);
        pg_sys::SPI_finish();
        Ok(StatementResult { rows, processed })
    }
}

/// Are all relations of a statement among `tables` or the server's catalogs?
///
/// # Safety
/// A plan that was prepared just now.
unsafe fn is_about(plan: pg_sys::SPIPlanPtr, tables: &[pg_sys::Oid]) -> bool {
    // SAFETY: this function's contract covers the plan; lists are walked to their length.
    unsafe {
        let known = |oid: pg_sys::Oid| oid.to_u32() < pg_sys::FirstNormalObjectId || tables.contains(&oid);
        let sources = pg_sys::SPI_plan_get_plan_sources(plan);
        (0..len(sources)).all(|i| {
            let source: *const pg_sys::CachedPlanSource = (*(*sources).elements.add(i)).ptr_value.cast();
            let relations = (*source).relationOids;
            (0..len(relations)).all(|i| known((*(*relations).elements.add(i)).oid_value))
        })
    }
}

/// # Safety
/// A list, or null.
unsafe fn len(list: *const pg_sys::List) -> usize {
    // SAFETY: this function's contract covers the list.
    unsafe { list.as_ref() }.map_or(0, |list| usize::try_from(list.length).unwrap_or(0))
}

/// # Safety
/// A result of SPI, or null.
unsafe fn rows(table: *mut pg_sys::SPITupleTable) -> Vec<Vec<ResultValue>> {
    if table.is_null() {
        return Vec::new();
    }
    // SAFETY: this function's contract covers the table, which has `numvals` tuples of `natts` attributes; guarded
    // calls.
    unsafe {
        let descriptor = (*table).tupdesc;
        let natts = usize::try_from((*descriptor).natts).unwrap_or(0);
        let read = |tuple: pg_sys::HeapTuple, index: usize| {
            let mut is_null = false;
            let attribute = &*compat::attribute(descriptor, index);
            let number = i32::try_from(index + 1).unwrap_or(0);
            let datum = pg_sys::SPI_getbinval(tuple, descriptor, number, &raw mut is_null);
            let (by_value, len) = (attribute.attbyval, i32::from(attribute.attlen));
            ResultValue((!is_null).then(|| pg_sys::SPI_datumTransfer(datum, by_value, len)))
        };
        let number = usize::try_from((*table).numvals).unwrap_or(0);
        (0..number).map(|row| (0..natts).map(|i| read(*(*table).vals.add(row), i)).collect()).collect()
    }
}
