//! The call of a function whose composite result is the row, and is taken apart if necessary.
//!
//! A function that returns `record` may return any row type, and one in C may be wrong. So the type of a value is
//! checked before its columns are read, once for each type. If the row has exactly the target's columns, the value is a
//! heap tuple without a header, and is stored without being taken apart ([`Call::natts`]).

use std::cell::Cell;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::row_value::RowValue;
use crate::error::{Error, OrRaise, Result};
use crate::rows::row::RowArrays;
use crate::server::expression::Expression;
use crate::server::lookup::type_name;
use crate::server::node::{Node, NodeList};
use crate::server::relation::TupleDesc;
use crate::server::slot::Slot;
use crate::server::unguarded::{self, guarded};

/// A call that is ready to run.
#[derive(Debug)]
pub struct Call {
    state: Expression,
    /// The call for rows as one value, if the function takes a composite argument.
    value: Option<RowValue>,
    /// The row, a virtual tuple.
    slot: Slot<'static>,
    known: Cell<CheckedType>,
}

const MISMATCH: &str = "function return row and query-specified return row do not match";

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
}

impl Call {
    /// Makes the call: an expression of a composite type over the input row, of which `nothing` is one with NULL in all
    /// columns. The targets are made of the result's columns. Guarded; allocates in the current memory context, which must
    /// outlive it.
    pub fn new(
        row: Node<'static>,
        nothing: Slot<'static>,
        targets: NodeList<'static, pg_sys::TargetEntry>,
    ) -> Result<Call> {
        let variables = targets.node().map_or(NodeList::EMPTY, |targets| targets.variables(0)).of();
        // With the missing values of columns that a tuple is too short for.
        let descriptor =
            TupleDesc::of_expression(row).map_or_else(|| descriptor_of(variables), TupleDesc::copied_with_constraints);
        // Else a value would be read as another type.
        let fits = |variable: Node<'_, pg_sys::Var>| {
            let attribute = usize::try_from(variable.varattno - 1).ok().and_then(|at| descriptor.attribute(at));
            attribute.is_some_and(|attribute| attribute.atttypid == variable.vartype)
        };
        if !variables.iter().all(fits) {
            return Err(Error::new(Code::ERRCODE_DATATYPE_MISMATCH, MISMATCH));
        }
        Ok(Call {
            state: Expression::new(row),
            value: RowValue::new(row, nothing),
            slot: Slot::make(descriptor),
            known: Cell::new(CheckedType::NONE),
        })
    }

    /// See [`Expression::renew`]. Guarded.
    pub fn renew(&mut self) {
        self.state.renew();
        if let Some(value) = &mut self.value {
            value.renew();
        }
    }

    /// Makes the row from an input row: from `value`, which [`RowValue::form`] of this call has made, or if that is null from
    /// the scan tuple of the context. Returns a tuple of the row's type, or null if the function returns NULL.
    ///
    /// # Safety
    /// A plain frame, with the row's memory context; a valid context, and such an input row.
    #[inline]
    pub unsafe fn make(
        &self,
        value: pg_sys::HeapTupleHeader,
        econtext: *mut pg_sys::ExprContext,
    ) -> pg_sys::HeapTupleHeader {
        // SAFETY: the frame is plain; nothing here has a destructor. A composite value is a tuple whose header names its
        // type, which is compared with the slot's. Entries of the type cache live as long as the process.
        unsafe {
            let mut state = self.state;
            if let Some(call) = self.value.as_ref().filter(|_| !value.is_null()) {
                (*econtext).caseValue_datum = pg_sys::Datum::from(value);
                (*econtext).caseValue_isNull = false;
                state = call.state;
            }
            let Some(made) = state.value(econtext) else { return std::ptr::null_mut() };
            let header = unguarded::pg_detoast_datum(made.cast_mut_ptr()).cast::<pg_sys::HeapTupleHeaderData>();
            let fields = (*header).t_choice.t_datum;
            // A type may be altered between two rows. As get_cached_rowtype (execExprInterp.c); an invalidated entry has no
            // identifier.
            let (type_oid, typmod, known) = (fields.datum_typeid, fields.datum_typmod, self.known.get());
            let is_number = |number: u64| number != 0 && number == known.number;
            let is_known = (type_oid, typmod) == (known.type_oid, known.typmod)
                && is_number(match known.entry.as_ref() {
                    Some(entry) => entry.tupDesc_identifier,
                    None => unguarded::assign_record_type_identifier(type_oid, typmod),
                });
            if !is_known {
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
        // SAFETY: the frame is plain; nothing here has a destructor. The type was compared with the slot's.
        unsafe {
            let mut tuple = pg_sys::HeapTupleData {
                t_len: pgrx::varsize_4b(header.cast()) as u32,
                t_self: pg_sys::ItemPointerData::default(),
                t_tableOid: pg_sys::InvalidOid,
                t_data: header,
            };
            let (descriptor, arrays) = (self.slot.descriptor().as_ptr(), self.arrays());
            unguarded::heap_deform_tuple(&raw mut tuple, descriptor, arrays.values(), arrays.nulls());
            self.slot.store();
            (*econtext).ecxt_outertuple = self.slot.as_ptr();
        }
    }

    /// The maker of row values, if the function takes a composite argument.
    pub fn value_mut(&mut self) -> Option<&mut RowValue> {
        self.value.as_mut()
    }

    /// Number of the row's columns.
    pub fn natts(&self) -> usize {
        self.slot.descriptor().len()
    }

    /// The arrays of the row.
    pub fn arrays(&self) -> RowArrays<'static> {
        self.slot.arrays()
    }

    /// Checks that the type is the expected one, with the messages of tupledesc_match (execSRF.c). Guarded; the current
    /// memory context owns a copy of its descriptor.
    fn compare(&self, type_oid: pg_sys::Oid, typmod: i32) -> Result<()> {
        let (mut entry, lookup) = (std::ptr::null(), pg_sys::TYPECACHE_TUPDESC.cast_signed());
        // Read before the comparison: if the type is altered in the meantime, the identifier is out of date.
        // SAFETY: guarded calls; an entry of the type cache stays.
        let number = unsafe {
            if type_oid == pg_sys::RECORDOID {
                pg_sys::assign_record_type_identifier(type_oid, typmod)
            } else {
                entry = pg_sys::lookup_type_cache(type_oid, lookup).cast_const();
                (*entry).tupDesc_identifier
            }
        };
        let (given, wanted) = (TupleDesc::of_type(type_oid, typmod), self.slot.descriptor());
        let mismatch = |detail: String| Err(Error::new(Code::ERRCODE_DATATYPE_MISMATCH, MISMATCH).detail(detail));
        let count = |natts: usize| if natts == 1 { "1 attribute".into() } else { format!("{natts} attributes") };
        if given.len() != wanted.len() {
            let (given, wanted) = (count(given.len()), wanted.len());
            return mismatch(format!("Returned row contains {given}, but query expects {wanted}."));
        }
        for (place, (given, wanted)) in (1..).zip(given.attributes().zip(wanted.attributes())) {
            let is_stored_alike = given.attlen == wanted.attlen && given.attalign == wanted.attalign;
            if given.atttypid != wanted.atttypid && !(wanted.attisdropped && is_stored_alike) {
                let (given, wanted) = (type_name(given.atttypid), type_name(wanted.atttypid));
                return mismatch(format!(
                    "Returned type {given} at ordinal position {place}, but query expects {wanted}."
                ));
            }
        }
        self.known.set(CheckedType { type_oid, typmod, number, entry });
        Ok(())
    }
}

/// Makes a descriptor from the columns of the row that the targets use, the only knowledge about it. Guarded.
fn descriptor_of(variables: NodeList<'_, pg_sys::Var>) -> TupleDesc<'static> {
    // Columns are counted from 1. Unused columns must exist, too, and are compared as text.
    let place = |variable: Node<'_, pg_sys::Var>| usize::try_from(variable.varattno).unwrap_or(0);
    let mut types = vec![pg_sys::TEXTOID; variables.iter().map(place).max().unwrap_or(0)];
    for variable in variables.iter() {
        if let Some(known) = types.get_mut(place(variable).wrapping_sub(1)) {
            *known = variable.vartype;
        }
    }
    TupleDesc::of_columns(types.into_iter().map(|type_oid| (c"", type_oid)))
}
