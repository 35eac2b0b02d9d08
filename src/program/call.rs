//! The call of a function whose composite result is the row, and is taken apart if necessary.
//!
//! A function that returns `record` may return any row type, and one in C may be wrong. So the type of a value is
//! checked before its columns are read, once for each type. If the row has exactly the target's columns, the value is a
//! heap tuple without a header, and is stored without being taken apart ([`Call::natts`]).

use std::cell::Cell;
use std::ffi::CStr;

use pgrx::{PgList, PgSqlErrorCode as Code, pg_sys};

use super::row_value::RowValue;
use crate::error::{Error, OrRaise, Result};
use crate::rows::row::RowArrays;
use crate::server::compat;
use crate::server::expression;
use crate::server::server_text::from_server;
use crate::server::slot::Slot;
use crate::server::unguarded::{self, guarded};

/// A call that is ready to run.
#[derive(Debug)]
pub struct Call {
    state: *mut pg_sys::ExprState,
    /// The call for rows as one value, if the function takes a composite argument.
    value: Option<RowValue>,
    /// The row, a virtual tuple.
    slot: *mut pg_sys::TupleTableSlot,
    known: Cell<CheckedType>,
}

/// The type that was checked last.
#[derive(Debug, Clone, Copy)]
struct CheckedType {
    type_oid: pg_sys::Oid,
    typmod: i32,
    /// Identifier of the type's descriptor, which changes when the type is altered.
    number: u64,
    /// Type cache entry with this identifier; null for a type without a name.
    entry: *const pg_sys::TypeCacheEntry,
}

impl CheckedType {
    const NONE: CheckedType =
        CheckedType { type_oid: pg_sys::InvalidOid, typmod: -1, number: 0, entry: std::ptr::null() };

    /// Is this known type the given one, and unaltered since? As in get_cached_rowtype (execExprInterp.c).
    ///
    /// # Safety
    /// A plain frame.
    #[inline]
    unsafe fn is(self, type_oid: pg_sys::Oid, typmod: i32) -> bool {
        if (type_oid, typmod) != (self.type_oid, self.typmod) {
            return false;
        }
        // SAFETY: entries of the type cache live as long as the process; for an unregistered type without a name, the
        // call raises an error.
        let number = unsafe {
            match self.entry.as_ref() {
                Some(entry) => entry.tupDesc_identifier,
                None => unguarded::assign_record_type_identifier(type_oid, typmod),
            }
        };
        // An invalidated entry has no identifier.
        number != 0 && number == self.number
    }
}

impl Call {
    /// Makes the call. Guarded; allocates in the current memory context, which must outlive it.
    ///
    /// # Safety
    /// `row` is an expression of a composite type over the input row, `nothing` a slot for it with NULL in all columns,
    /// and `targets` are made of the result's columns.
    pub unsafe fn new(
        row: *mut pg_sys::Node,
        nothing: *mut pg_sys::TupleTableSlot,
        targets: *mut pg_sys::List,
    ) -> Call {
        // SAFETY: guarded calls; this function's contract covers the nodes.
        unsafe {
            let mut descriptor: pg_sys::TupleDesc = std::ptr::null_mut();
            pg_sys::get_expr_result_type(row, std::ptr::null_mut(), &raw mut descriptor);
            let descriptor =
                // With the missing values of columns that a tuple is too short for.
                if descriptor.is_null() { descriptor_of(targets) } else { pg_sys::CreateTupleDescCopyConstr(descriptor) };
            check_targets(targets, descriptor).or_raise();
            Call {
                state: pg_sys::ExecInitExpr(row.cast(), std::ptr::null_mut()),
                value: RowValue::new(row, nothing),
                slot: pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsVirtual),
                known: Cell::new(CheckedType::NONE),
            }
        }
    }

    /// See [`expression::anew`]. Guarded.
    pub fn renew(&mut self) {
        // SAFETY: made in `new`.
        self.state = unsafe { expression::anew(self.state) };
        if let Some(value) = &mut self.value {
            value.renew();
        }
    }

    /// Makes the row: a tuple of the row's type, or null if the function returns NULL.
    ///
    /// # Safety
    /// A plain frame, with the row's memory context; a context whose scan tuple is the row of the file.
    #[inline]
    pub unsafe fn make(&self, econtext: *mut pg_sys::ExprContext) -> pg_sys::HeapTupleHeader {
        // SAFETY: this function's contract covers the argument; nothing here has a destructor.
        unsafe {
            let mut is_null = false;
            let value = unguarded::exec_eval_expr(self.state, econtext, &raw mut is_null);
            if is_null { std::ptr::null_mut() } else { self.tuple_of(value) }
        }
    }

    /// Makes the row from an input row that is one value.
    ///
    /// # Safety
    /// A plain frame, with the row's memory context; `value` was made by [`RowValue::form`] of this call.
    #[inline]
    pub unsafe fn make_of(
        &self,
        value: pg_sys::HeapTupleHeader,
        econtext: *mut pg_sys::ExprContext,
    ) -> pg_sys::HeapTupleHeader {
        // SAFETY: this function's contract covers the argument; nothing here has a destructor.
        unsafe {
            let made = self.value.as_ref().and_then(|call| call.call(value, econtext));
            made.map_or(std::ptr::null_mut(), |made| self.tuple_of(made))
        }
    }

    /// The tuple of a value that the function has returned.
    ///
    /// # Safety
    /// See [`Call::make`]; the function has returned the value.
    #[inline]
    unsafe fn tuple_of(&self, value: pg_sys::Datum) -> pg_sys::HeapTupleHeader {
        // SAFETY: this function's contract covers the argument; nothing here has a destructor. A composite value is a
        // tuple whose header names its type, which is compared with the slot's.
        unsafe {
            let header = unguarded::pg_detoast_datum(value.cast_mut_ptr()).cast::<pg_sys::HeapTupleHeaderData>();
            let fields = (*header).t_choice.t_datum;
            // A type may be altered between two rows.
            let (type_oid, typmod) = (fields.datum_typeid, fields.datum_typmod);
            if !self.known.get().is(type_oid, typmod) {
                guarded(|| self.compare(type_oid, typmod).or_raise());
            }
            header
        }
    }

    /// Takes the row apart, into the context's outer tuple.
    ///
    /// # Safety
    /// See [`Call::make`], which has made the row.
    pub unsafe fn take_apart(&self, header: pg_sys::HeapTupleHeader, econtext: *mut pg_sys::ExprContext) {
        // SAFETY: this function's contract covers the argument; nothing here has a destructor. The type was compared
        // with the slot's.
        unsafe {
            let mut tuple = pg_sys::HeapTupleData {
                t_len: pgrx::varsize_4b(header.cast()) as u32,
                t_self: pg_sys::ItemPointerData::default(),
                t_tableOid: pg_sys::InvalidOid,
                t_data: header,
            };
            let slot = self.slot;
            let descriptor = (*slot).tts_tupleDescriptor;
            unguarded::heap_deform_tuple(&raw mut tuple, descriptor, (*slot).tts_values, (*slot).tts_isnull);
            unguarded::store_virtual(slot);
            (*econtext).ecxt_outertuple = slot;
        }
    }

    /// The maker of row values, if the function takes a composite argument.
    pub fn value_mut(&mut self) -> Option<&mut RowValue> {
        self.value.as_mut()
    }

    /// Number of the row's columns.
    pub fn natts(&self) -> usize {
        // SAFETY: the slot outlives the call.
        unsafe { usize::try_from((*(*self.slot).tts_tupleDescriptor).natts).unwrap_or(0) }
    }

    /// The arrays of the row.
    pub fn arrays(&self) -> RowArrays<'static> {
        // SAFETY: the slot outlives the call.
        unsafe { Slot::from_raw(self.slot) }.arrays()
    }

    /// Checks that the type is the expected one, with the messages of tupledesc_match (execSRF.c). Guarded.
    fn compare(&self, type_oid: pg_sys::Oid, typmod: i32) -> Result<()> {
        // SAFETY: guarded calls; attributes below natts exist. The current memory context owns the descriptor.
        let known = unsafe {
            let is_named = type_oid != pg_sys::RECORDOID;
            let entry = if is_named {
                pg_sys::lookup_type_cache(type_oid, pg_sys::TYPECACHE_TUPDESC.cast_signed()).cast_const()
            } else {
                std::ptr::null()
            };
            // Read before the comparison: if the type is altered in the meantime, the identifier is out of date.
            let number = match entry.as_ref() {
                Some(entry) => entry.tupDesc_identifier,
                None => pg_sys::assign_record_type_identifier(type_oid, typmod),
            };
            let given = pg_sys::lookup_rowtype_tupdesc_copy(type_oid, typmod);
            let wanted = (*self.slot).tts_tupleDescriptor;
            let mismatch = |detail: String| {
                let message = "function return row and query-specified return row do not match";
                Err(Error::new(Code::ERRCODE_DATATYPE_MISMATCH, message).detail(detail))
            };
            let count = |natts: i32| if natts == 1 { "1 attribute".into() } else { format!("{natts} attributes") };
            if (*given).natts != (*wanted).natts {
                let (given, wanted) = (count((*given).natts), (*wanted).natts);
                return mismatch(format!("Returned row contains {given}, but query expects {wanted}."));
            }
            for i in 0..usize::try_from((*wanted).natts).unwrap_or(0) {
                let (given, wanted) = (&*compat::attribute(given, i), &*compat::attribute(wanted, i));
                let is_stored_alike = given.attlen == wanted.attlen && given.attalign == wanted.attalign;
                if given.atttypid != wanted.atttypid && !(wanted.attisdropped && is_stored_alike) {
                    let name = |oid| from_server(CStr::from_ptr(pg_sys::format_type_be(oid)));
                    let (given, wanted) = (name(given.atttypid), name(wanted.atttypid));
                    let place = i + 1;
                    return mismatch(format!(
                        "Returned type {given} at ordinal position {place}, but query expects {wanted}."
                    ));
                }
            }
            CheckedType { type_oid, typmod, number, entry }
        };
        self.known.set(known);
        Ok(())
    }
}

/// Checks that targets and the row agree in their columns' types; else a value would be read as another type. Guarded.
///
/// # Safety
/// Targets over columns of OUTER_VAR, and a valid descriptor.
unsafe fn check_targets(targets: *mut pg_sys::List, descriptor: pg_sys::TupleDesc) -> Result<()> {
    // SAFETY: this function's contract covers both arguments; a guarded call; attributes below natts exist.
    unsafe {
        let natts = usize::try_from((*descriptor).natts).unwrap_or(0);
        let list = PgList::<pg_sys::Var>::from_pg(pg_sys::pull_var_clause(targets.cast(), 0));
        let fits = |variable: *mut pg_sys::Var| {
            let at = usize::try_from((*variable).varattno - 1).ok().filter(|&at| at < natts);
            at.is_some_and(|at| (*compat::attribute(descriptor, at)).atttypid == (*variable).vartype)
        };
        if list.iter_ptr().all(fits) {
            return Ok(());
        }
        let message = "function return row and query-specified return row do not match";
        Err(Error::new(Code::ERRCODE_DATATYPE_MISMATCH, message))
    }
}

/// Makes a descriptor from the targets, the only knowledge about the row: the columns that they use. Guarded.
///
/// # Safety
/// Targets over columns of OUTER_VAR.
unsafe fn descriptor_of(targets: *mut pg_sys::List) -> pg_sys::TupleDesc {
    // SAFETY: this function's contract covers them; guarded calls. Columns are counted from 1.
    unsafe {
        let list = PgList::<pg_sys::Var>::from_pg(pg_sys::pull_var_clause(targets.cast(), 0));
        let natts = list.iter_ptr().map(|variable| (*variable).varattno).max().unwrap_or(0);
        let descriptor = pg_sys::CreateTemplateTupleDesc(i32::from(natts));
        // Unused columns must exist, too, and are compared as text.
        for number in 1..=natts {
            pg_sys::TupleDescInitEntry(descriptor, number, std::ptr::null(), pg_sys::TEXTOID, -1, 0);
        }
        for variable in list.iter_ptr() {
            let number = (*variable).varattno;
            pg_sys::TupleDescInitEntry(descriptor, number, std::ptr::null(), (*variable).vartype, -1, 0);
        }
        descriptor
    }
}
