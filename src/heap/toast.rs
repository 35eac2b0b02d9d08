//! Shortens rows that are too long for a page, like heap_toast_insert_or_update (heaptoast.c), but works on values.
//!
//! A tuple is formed only from the shortened values. And the two steps of the work are separate: any process may
//! compress values, but only the leader may store a value out of line, which inserts rows.
//!
//! The rounds, and the conditions that end them, are core's, so that a row looks as after an INSERT.

use std::ffi::{c_char, c_int};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::server::relation::Relation;
use crate::server::slot::Row;
use crate::server::unguarded;

/// TOAST_HAS_NULLS (toast_helper.h)
const HAS_NULLS: u8 = 0x04;
/// TOASTCOL_INCOMPRESSIBLE (toast_helper.h)
const INCOMPRESSIBLE: u8 = 0x20;
/// TYPSTORAGE_EXTENDED (pg_type.h)
const EXTENDED: u8 = b'x';
/// TYPSTORAGE_PLAIN (pg_type.h)
const PLAIN: u8 = b'p';
/// MAXALIGN(TOAST_POINTER_SIZE) (toast_tuple_find_biggest_attribute, toast_helper.c)
const POINTER: usize = 24;
/// TOAST_POINTER_SIZE (detoast.h)
const REFERENCE: usize = 18;
/// VARHDRSZ - VARHDRSZ_SHORT (postgres.h)
const LESS: usize = 3;
const TUPLE_HEADER: usize = 23;
/// TOAST_TUPLE_TARGET (heaptoast.h): four tuples a page.
const TARGET: usize = 2032;
/// TOAST_TUPLE_TARGET_MAIN (heaptoast.h): one tuple a page.
const TARGET_MAIN: usize = 8160;

/// `ToastAttrInfo` (toast_helper.h), which has no binding.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ToastAttrInfo {
    old_external: *mut pg_sys::varlena,
    size: i32,
    flags: u8,
    compression: c_char,
}

/// `ToastTupleContext` (toast_helper.h), which has no binding.
#[derive(Debug)]
#[repr(C)]
pub struct ToastTupleContext {
    relation: pg_sys::Relation,
    values: *mut pg_sys::Datum,
    nulls: *mut bool,
    old_values: *mut pg_sys::Datum,
    old_nulls: *mut bool,
    flags: u8,
    attributes: *mut ToastAttrInfo,
}

const _: () = assert!(size_of::<ToastAttrInfo>() == 16 && size_of::<ToastTupleContext>() == 56);

unsafe extern "C-unwind" {
    fn toast_tuple_init(context: *mut ToastTupleContext);
    fn toast_tuple_find_biggest_attribute(
        context: *mut ToastTupleContext,
        for_compression: bool,
        check_main: bool,
    ) -> c_int;
    fn toast_tuple_try_compression(context: *mut ToastTupleContext, attribute: c_int);
    fn toast_tuple_externalize(context: *mut ToastTupleContext, attribute: c_int, options: c_int);
}

/// Memory for rows that are shortened.
#[derive(Debug, Default)]
pub struct Toaster {
    values: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
    attributes: Vec<ToastAttrInfo>,
}

/// A row of a relation that is being shortened.
#[derive(Debug)]
pub struct WideRow<'t> {
    toaster: &'t mut Toaster,
    relation: Relation<'t>,
}

/// A tuple of a relation in the memory context that was current when it was formed.
#[derive(Debug)]
pub struct FormedTuple {
    tuple: pg_sys::HeapTuple,
    relation: pg_sys::Oid,
}

impl Toaster {
    /// Copy a row of a relation. A varlena that a header of one byte makes as short as a TOAST pointer gets this header
    /// (see `packed`). Also returns the size of its tuple if all values are stored out of line that can be: no tuple of the
    /// row is smaller. Guarded; allocates in the current memory context.
    pub fn load<'t>(&'t mut self, row: Row<'t>) -> (WideRow<'t>, usize) {
        let (relation, arrays) = (row.relation(), row.arrays());
        let descriptor = relation.descriptor();
        let natts = descriptor.len();
        // SAFETY: the arrays are as long as the descriptor, and its values are of the attributes' types.
        let least = unsafe {
            self.values.clear();
            self.values.extend_from_slice(std::slice::from_raw_parts(arrays.values(), natts));
            self.nulls.clear();
            self.nulls.extend_from_slice(std::slice::from_raw_parts(arrays.nulls(), natts));
            let elsewhere = relation.toast_table() != pg_sys::InvalidOid;
            let bitmap = if self.nulls.contains(&true) { natts.div_ceil(8) } else { 0 };
            let mut least = (TUPLE_HEADER + bitmap).next_multiple_of(8);
            for ((value, null), attribute) in self.values.iter_mut().zip(&self.nulls).zip(descriptor.attributes()) {
                if *null {
                    continue;
                }
                if attribute.attlen == -1 && attribute.attstorage.cast_unsigned() != PLAIN {
                    *value = packed(*value);
                    let size = pgrx::varsize_any(value.cast_mut_ptr());
                    // Without a TOAST table, a value may still be compressed to a few bytes.
                    least +=
                        if size > POINTER { usize::from(elsewhere) * REFERENCE } else { size.saturating_sub(LESS) };
                } else if let Ok(size) = usize::try_from(attribute.attlen) {
                    least += size;
                }
            }
            least
        };
        (WideRow { toaster: self, relation }, least)
    }

    /// Deform a tuple of a relation, into values that point into it. Guarded.
    ///
    /// # Safety
    /// The bytes of a tuple of the relation, at a multiple of MAXALIGN, which exist as long as the result is used.
    pub unsafe fn load_tuple<'t>(&'t mut self, relation: Relation<'t>, tuple: &'t [u8]) -> WideRow<'t> {
        let mut tuple = pg_sys::HeapTupleData {
            t_len: u32::try_from(tuple.len()).unwrap_or(0),
            t_tableOid: relation.oid(),
            t_data: tuple.as_ptr().cast_mut().cast(),
            ..Default::default()
        };
        let descriptor = relation.descriptor();
        self.values.resize(descriptor.len(), pg_sys::Datum::from(0usize));
        self.nulls.resize(descriptor.len(), false);
        let (values, nulls) = (self.values.as_mut_ptr(), self.nulls.as_mut_ptr());
        // SAFETY: a guarded call; the arrays are as long as the descriptor.
        unsafe { pg_sys::heap_deform_tuple(&raw mut tuple, descriptor.as_ptr(), values, nulls) };
        WideRow { toaster: self, relation }
    }
}

impl WideRow<'_> {
    /// Form the tuple. Guarded; in the current memory context.
    pub fn form(&mut self) -> FormedTuple {
        let (values, nulls) = (self.toaster.values.as_mut_ptr(), self.toaster.nulls.as_mut_ptr());
        // SAFETY: a guarded call with a row of the relation.
        let tuple = unsafe { pg_sys::heap_form_tuple(self.relation.descriptor().as_ptr(), values, nulls) };
        FormedTuple { tuple, relation: self.relation.oid() }
    }

    /// Shorten the row as far as necessary. With `options`, values are stored out of line if necessary, by heap_insert
    /// with these options. Without them, false means that this is necessary, and the row is as short as compression can
    /// make it. Guarded; allocates in the current memory context.
    pub fn shorten(&mut self, options: Option<i32>) -> bool {
        let (relation, descriptor) = (self.relation, self.relation.descriptor());
        let Toaster { values, nulls, attributes } = &mut *self.toaster;
        let empty = ToastAttrInfo { old_external: std::ptr::null_mut(), size: 0, flags: 0, compression: 0 };
        attributes.clear();
        attributes.resize(values.len(), empty);
        let mut context = ToastTupleContext {
            relation: relation.as_ptr(),
            values: values.as_mut_ptr(),
            nulls: nulls.as_mut_ptr(),
            old_values: std::ptr::null_mut(),
            old_nulls: std::ptr::null_mut(),
            flags: 0,
            attributes: attributes.as_mut_ptr(),
        };
        let context = &raw mut context;
        // SAFETY: guarded calls; the context's arrays are as long as the descriptor, and contain a row of the relation.
        unsafe {
            unguarded::guard(|| toast_tuple_init(context));
            let bitmap = if (*context).flags & HAS_NULLS != 0 { descriptor.len().div_ceil(8) } else { 0 };
            let header = (TUPLE_HEADER + bitmap).next_multiple_of(8);
            let relation_options = (*relation.as_ptr()).rd_options.cast::<pg_sys::StdRdOptions>();
            let target = match relation_options.as_ref() {
                Some(options) => usize::try_from(options.toast_tuple_target).unwrap_or(TARGET),
                None => TARGET,
            };
            let limit = target.saturating_sub(header);
            let elsewhere = relation.toast_table() != pg_sys::InvalidOid;
            let size = || pg_sys::heap_compute_data_size(descriptor.as_ptr(), (*context).values, (*context).nulls);
            let biggest = |for_compression: bool, check_main: bool| {
                let attribute =
                    unguarded::guard(|| toast_tuple_find_biggest_attribute(context, for_compression, check_main));
                usize::try_from(attribute).ok()
            };
            let compress =
                |attribute: usize| unguarded::guard(|| toast_tuple_try_compression(context, attribute as c_int));
            let store = |attribute: usize| match options {
                Some(options) => {
                    unguarded::guard(|| toast_tuple_externalize(context, attribute as c_int, options));
                    true
                }
                None => false,
            };
            // Compress values; store a value out of line at once if it alone is too long.
            while size() > limit {
                let Some(attribute) = biggest(true, false) else { break };
                let info = (*context).attributes.add(attribute);
                if descriptor.attribute(attribute).is_some_and(|one| one.attstorage.cast_unsigned() == EXTENDED) {
                    compress(attribute);
                } else {
                    (*info).flags |= INCOMPRESSIBLE;
                }
                if usize::try_from((*info).size).unwrap_or(0) > limit && elsewhere && !store(attribute) {
                    return false;
                }
            }
            while elsewhere && size() > limit {
                let Some(attribute) = biggest(false, false) else { break };
                if !store(attribute) {
                    return false;
                }
            }
            // Compress values of the storage type MAIN; store them out of line last.
            while size() > limit {
                let Some(attribute) = biggest(true, true) else { break };
                compress(attribute);
            }
            while elsewhere && size() > TARGET_MAIN - header {
                let Some(attribute) = biggest(false, true) else { break };
                if !store(attribute) {
                    return false;
                }
            }
        }
        true
    }
}

/// Give a value the short header that heap_fill_tuple (heaptuple.c) would give it, if that makes it as short as a TOAST
/// pointer. Core has formed a tuple before, and does not store such short values out of line. Guarded.
///
/// # Safety
/// A value of variable length.
unsafe fn packed(value: pg_sys::Datum) -> pg_sys::Datum {
    // SAFETY: this function's contract covers the value, which has the size in its header.
    unsafe {
        let varlena = value.cast_mut_ptr::<pg_sys::varlena>();
        if !pgrx::varatt_is_4b_u(varlena) {
            return value;
        }
        let size = pgrx::varsize_4b(varlena);
        if size <= POINTER || size - LESS > POINTER {
            return value;
        }
        let short = pg_sys::palloc(size - LESS).cast::<pg_sys::varlena>();
        pgrx::set_varsize_1b(short, i32::try_from(size - LESS).unwrap_or(i32::MAX));
        std::ptr::copy_nonoverlapping(varlena.cast::<u8>().add(4), short.cast::<u8>().add(1), size - 4);
        short.into()
    }
}

impl FormedTuple {
    /// Checks that it is a tuple of this relation.
    pub fn of(self, relation: Relation<'_>) -> Result<FormedTuple> {
        if self.relation == relation.oid() {
            return Ok(self);
        }
        Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, "a wide row is of another table"))
    }

    /// Returns the pointer for functions of the server.
    pub const fn as_ptr(&self) -> pg_sys::HeapTuple {
        self.tuple
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: a formed tuple has this size.
        unsafe { std::slice::from_raw_parts((*self.tuple).t_data.cast(), (*self.tuple).t_len as usize) }
    }
}
