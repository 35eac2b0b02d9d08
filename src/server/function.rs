//! SQL functions of the extension (fmgr.h): their records, and their calls.
//!
//! A [`Call`] lasts as long as the function runs. Its arguments have the types that the function's declaration names, so
//! a declaration with other types than pg_bulk expects gives an argument of another type, and no wrong datum.

use std::cell::OnceCell;
use std::marker::PhantomData;
use std::ptr::NonNull;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::jsonb::Jsonb;
use super::lookup::{argument_types, function_schema};
use super::own_table::Row;
use super::relation::TupleDesc;
use super::sql_value::SqlValue;
use crate::error::{Error, OrRaise, Result};

/// Defines functions that return the record of a function of version 1, which the server asks for before it calls it.
macro_rules! version_1 {
    ($($record:ident),*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C-unwind" fn $record() -> *const pgrx::pg_sys::Pg_finfo_record {
                static VERSION_1: pgrx::pg_sys::Pg_finfo_record = pgrx::pg_sys::Pg_finfo_record { api_version: 1 };
                &raw const VERSION_1
            }
        )*
    };
}

/// Defines an SQL function in a guarded frame, with its record. The body is a function of the [`Call`].
macro_rules! sql_function {
    ($record:ident, $name:ident, $body:expr) => {
        $crate::server::function::version_1!($record);

        /// # Safety
        /// Called by the executor.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fcinfo: pgrx::pg_sys::FunctionCallInfo) -> pgrx::pg_sys::Datum {
            // SAFETY: the executor passes a call that lasts as long as this frame, which owns nothing.
            unsafe { $crate::server::function::answer(fcinfo, $body) }
        }
    };
}

pub(crate) use {sql_function, version_1};

/// Runs the body of an SQL function in a guarded frame.
///
/// # Safety
/// A plain frame, and a call that the executor made of it.
pub unsafe fn answer<T: Into<pg_sys::Datum>>(
    fcinfo: pg_sys::FunctionCallInfo,
    body: fn(&Call) -> Result<T>,
) -> pg_sys::Datum {
    // SAFETY: the executor's call lasts as long as this frame, which owns nothing that has a destructor.
    unsafe { pg_sys::panic::pgrx_extern_c_guard(|| body(&Call::from_raw(fcinfo)).or_raise().into()) }
}

/// The error for an argument that is NULL.
pub fn missing(name: &str) -> Error {
    Error::new(Code::ERRCODE_NULL_VALUE_NOT_ALLOWED, format!("{name} must not be null"))
}

/// A call of an SQL function.
#[derive(Debug)]
pub struct Call<'a> {
    fcinfo: NonNull<pg_sys::FunctionCallInfoBaseData>,
    types: OnceCell<Vec<pg_sys::Oid>>,
    lasts: PhantomData<&'a ()>,
}

impl Call<'_> {
    /// # Safety
    /// The call is not null, and lasts as long as the handle.
    pub unsafe fn from_raw<'a>(fcinfo: pg_sys::FunctionCallInfo) -> Call<'a> {
        // SAFETY: the call is not null.
        let fcinfo = unsafe { NonNull::new_unchecked(fcinfo) };
        Call { fcinfo, types: OnceCell::new(), lasts: PhantomData }
    }

    /// The function.
    pub fn function(&self) -> pg_sys::Oid {
        // SAFETY: a call has its function.
        unsafe { (*self.fcinfo.as_ref().flinfo).fn_oid }
    }

    /// The schema of the function, which is the extension's. Guarded.
    pub fn schema(&self) -> pg_sys::Oid {
        function_schema(self.function())
    }

    /// A copy of an argument; NULL if the function has fewer. Guarded.
    pub fn argument(&self, index: usize) -> Result<SqlValue<'static>> {
        let types = self.types.get_or_init(|| argument_types(self.function()));
        let Some(&kind) = types.get(index) else {
            return Ok(SqlValue::null(pg_sys::InvalidOid));
        };
        // SAFETY: a call has an argument for each declared type, of that type.
        unsafe { SqlValue::from_datum(kind, self.datum(index)) }
    }

    /// An argument itself; None for NULL, and if the call has fewer.
    pub fn datum(&self, index: usize) -> Option<pg_sys::Datum> {
        // SAFETY: a call has as many arguments as it says.
        unsafe {
            let call = self.fcinfo.as_ref();
            let is_there = usize::try_from(call.nargs).is_ok_and(|count| index < count);
            is_there.then(|| *call.args.as_ptr().add(index)).filter(|argument| !argument.isnull)
        }
        .map(|argument| argument.value)
    }

    /// Makes a call of another function with the arguments and the result info of this one, in the current memory context.
    /// Guarded.
    ///
    /// # Safety
    /// The function takes these arguments, and returns these rows.
    pub unsafe fn of_other(&self, function: pg_sys::Oid) -> pg_sys::FunctionCallInfo {
        let from = self.fcinfo.as_ptr();
        // SAFETY: guarded calls. There is space for the head of a call and its arguments (SizeForFunctionCallInfo).
        unsafe {
            let count = usize::try_from((*from).nargs).unwrap_or(0);
            let size = size_of::<pg_sys::FunctionCallInfoBaseData>() + count * size_of::<pg_sys::NullableDatum>();
            let call: pg_sys::FunctionCallInfo = pg_sys::palloc0(size).cast();
            (*call).flinfo = pg_sys::palloc0(size_of::<pg_sys::FmgrInfo>()).cast();
            pg_sys::fmgr_info(function, (*call).flinfo);
            ((*call).resultinfo, (*call).fncollation) = ((*from).resultinfo, (*from).fncollation);
            (*call).nargs = (*from).nargs;
            std::ptr::copy_nonoverlapping((*from).args.as_ptr(), (*call).args.as_mut_ptr(), count);
            call
        }
    }

    /// An argument, or an error if it is NULL. Guarded.
    pub fn required(&self, index: usize, name: &str) -> Result<SqlValue<'static>> {
        let value = self.argument(index)?;
        if value.is_null() { Err(missing(name)) } else { Ok(value) }
    }

    /// An argument of type jsonb, or an error if it is NULL. Guarded.
    pub fn jsonb(&self, index: usize, name: &str) -> Result<Jsonb> {
        self.argument(index)?.into_jsonb().ok_or_else(|| missing(name))
    }

    /// The row that a BEFORE trigger is called for; None if the call is not one of a trigger.
    pub fn trigger_row(&self) -> Option<pg_sys::HeapTuple> {
        // SAFETY: the context of a call is null or a node, and a node's tag names its struct.
        unsafe {
            let context = self.fcinfo.as_ref().context.as_ref()?;
            if context.type_ != pg_sys::NodeTag::T_TriggerData {
                return None;
            }
            let trigger = &*self.fcinfo.as_ref().context.cast::<pg_sys::TriggerData>();
            let is_update = trigger.tg_event & pg_sys::TRIGGER_EVENT_OPMASK == pg_sys::TRIGGER_EVENT_UPDATE;
            Some(if is_update { trigger.tg_newtuple } else { trigger.tg_trigtuple })
        }
    }

    /// Whether the caller has described the rows that it takes: a list of column definitions.
    pub fn has_described_rows(&self) -> bool {
        // SAFETY: a result info of a call, or null.
        unsafe {
            let result = self.fcinfo.as_ref().resultinfo.cast::<pg_sys::ReturnSetInfo>();
            result.as_ref().is_some_and(|result| !result.expectedDesc.is_null())
        }
    }

    /// The result of a function whose caller has described the rows, and their descriptor. Guarded.
    pub fn described_rows(&self) -> (*mut pg_sys::Tuplestorestate, TupleDesc<'_>) {
        // SAFETY: a guarded call, which checks that the caller takes a set, and creates it with its descriptor.
        unsafe {
            let result = self.fcinfo.as_ref().resultinfo.cast::<pg_sys::ReturnSetInfo>();
            pg_sys::InitMaterializedSRF(self.fcinfo.as_ptr(), pg_sys::MAT_SRF_USE_EXPECTED_DESC);
            ((*result).setResult, TupleDesc::from_raw((*result).setDesc))
        }
    }

    /// The result of a function that returns a set of rows. Guarded.
    pub fn rows(&self) -> ResultRows<'_> {
        // SAFETY: the node's tag names its struct. A guarded call checks that the caller takes a set, and creates it.
        unsafe {
            let result = self.fcinfo.as_ref().resultinfo.cast::<pg_sys::ReturnSetInfo>();
            let is_begun = result
                .as_ref()
                .is_some_and(|result| result.type_ == pg_sys::NodeTag::T_ReturnSetInfo && !result.setResult.is_null());
            if !is_begun {
                pg_sys::InitMaterializedSRF(self.fcinfo.as_ptr(), 0);
            }
            ResultRows(result, PhantomData)
        }
    }
}

/// The rows that a call returns.
#[derive(Debug)]
pub struct ResultRows<'a>(*mut pg_sys::ReturnSetInfo, PhantomData<&'a ()>);

impl ResultRows<'_> {
    fn descriptor(&self) -> TupleDesc<'_> {
        // SAFETY: the set was created with its descriptor, and exists as long as the call.
        unsafe { TupleDesc::from_raw((*self.0).setDesc) }
    }

    /// Whether the rows have these types, or the first of them: the declaration may be of an older version of pg_bulk.
    fn check(&self, types: impl ExactSizeIterator<Item = pg_sys::Oid>) -> Result<()> {
        let attributes = self.descriptor().attributes();
        if attributes.len() <= types.len() && attributes.zip(types).all(|(attribute, of)| attribute.atttypid == of) {
            return Ok(());
        }
        Err(Error::new(Code::ERRCODE_DATATYPE_MISMATCH, "the function does not return the rows that pg_bulk makes"))
    }

    /// Adds a row. Guarded.
    pub fn put<const N: usize>(&self, row: &[SqlValue; N]) -> Result<()> {
        self.check(row.iter().map(SqlValue::kind))?;
        let row = row.each_ref().map(SqlValue::datum);
        let mut nulls = row.map(|value| value.is_none());
        let mut values = row.map(|value| value.unwrap_or(pg_sys::Datum::from(0usize)));
        // SAFETY: a guarded call; there is a value of its type for each of the set's attributes.
        unsafe {
            let (set, descriptor) = ((*self.0).setResult, (*self.0).setDesc);
            pg_sys::tuplestore_putvalues(set, descriptor, values.as_mut_ptr(), nulls.as_mut_ptr());
        }
        Ok(())
    }

    /// Adds a copy of a row of a table. Guarded.
    pub fn put_row(&self, row: &Row) -> Result<()> {
        self.check(row.descriptor().attributes().map(|attribute| attribute.atttypid))?;
        // SAFETY: a guarded call; the tuple has the types of the set's attributes.
        unsafe { pg_sys::tuplestore_puttuple((*self.0).setResult, row.as_ptr()) };
        Ok(())
    }
}
