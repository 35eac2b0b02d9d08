//! Shortens rows that are too long for a page, like heap_toast_insert_or_update (heaptoast.c), but works on values.
//!
//! A tuple is formed only from the shortened values. And the two steps of the work are separate: any process may
//! compress values, but only the leader may store a value out of line, which inserts rows.
//!
//! The rounds, and the conditions that end them, are core's, so that a row looks as after an INSERT.

use std::ffi::{c_char, c_int};

use pgrx::pg_sys;

use crate::server::compat;
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

/// A row that is being shortened.
#[derive(Debug, Default)]
pub struct Toaster {
    pub values: Vec<pg_sys::Datum>,
    pub nulls: Vec<bool>,
    attributes: Vec<ToastAttrInfo>,
}

impl Toaster {
    /// Copy a row of a relation. A varlena that a header of one byte makes as short as a TOAST pointer gets this header
    /// (see `packed`). Returns the size of its tuple if all values are stored out of line that can be: no tuple of the
    /// row is smaller. Guarded; allocates in the current memory context.
    ///
    /// # Safety
    /// An open relation, and arrays as long as its descriptor.
    pub unsafe fn load(
        &mut self,
        relation: pg_sys::Relation,
        values: *const pg_sys::Datum,
        nulls: *const bool,
    ) -> usize {
        // SAFETY: the relation is open, and the arrays are as long as its descriptor.
        unsafe {
            let natts = usize::try_from((*(*relation).rd_att).natts).unwrap_or(0);
            self.values.clear();
            self.values.extend_from_slice(std::slice::from_raw_parts(values, natts));
            self.nulls.clear();
            self.nulls.extend_from_slice(std::slice::from_raw_parts(nulls, natts));
            let elsewhere = (*(*relation).rd_rel).reltoastrelid != pg_sys::InvalidOid;
            let bitmap = if self.nulls.contains(&true) { natts.div_ceil(8) } else { 0 };
            let mut least = (TUPLE_HEADER + bitmap).next_multiple_of(8);
            for (index, (value, null)) in self.values.iter_mut().zip(&self.nulls).enumerate() {
                let attribute = &*compat::attribute((*relation).rd_att, index);
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
        }
    }

    /// Deform a tuple of a relation, into values that point into it. Guarded.
    ///
    /// # Safety
    /// An open relation, and a tuple of it.
    pub unsafe fn load_tuple(&mut self, relation: pg_sys::Relation, tuple: pg_sys::HeapTuple) {
        // SAFETY: a guarded call; the arrays are as long as the descriptor.
        unsafe {
            let natts = usize::try_from((*(*relation).rd_att).natts).unwrap_or(0);
            self.values.resize(natts, pg_sys::Datum::from(0usize));
            self.nulls.resize(natts, false);
            pg_sys::heap_deform_tuple(tuple, (*relation).rd_att, self.values.as_mut_ptr(), self.nulls.as_mut_ptr());
        }
    }

    /// Shorten the row as far as necessary. With `options`, values are stored out of line if necessary, by heap_insert
    /// with these options. Without them, false means that this is necessary, and the row is as short as compression can
    /// make it. Guarded; allocates in the current memory context.
    ///
    /// # Safety
    /// An open relation, and a row of it that was loaded.
    pub unsafe fn shorten(&mut self, relation: pg_sys::Relation, options: Option<i32>) -> bool {
        let Toaster { values, nulls, attributes } = self;
        let empty = ToastAttrInfo { old_external: std::ptr::null_mut(), size: 0, flags: 0, compression: 0 };
        attributes.clear();
        attributes.resize(values.len(), empty);
        let mut context = ToastTupleContext {
            relation,
            values: values.as_mut_ptr(),
            nulls: nulls.as_mut_ptr(),
            old_values: std::ptr::null_mut(),
            old_nulls: std::ptr::null_mut(),
            flags: 0,
            attributes: attributes.as_mut_ptr(),
        };
        let context = &raw mut context;
        // SAFETY: guarded calls; the context's arrays are as long as the descriptor, and this function's contract
        // covers the row.
        unsafe {
            unguarded::guard(|| toast_tuple_init(context));
            let descriptor = (*relation).rd_att;
            let bitmap = if (*context).flags & HAS_NULLS != 0 { (*context).natts().div_ceil(8) } else { 0 };
            let header = (TUPLE_HEADER + bitmap).next_multiple_of(8);
            let relation_options = (*relation).rd_options.cast::<pg_sys::StdRdOptions>();
            let target = match relation_options.as_ref() {
                Some(options) => usize::try_from(options.toast_tuple_target).unwrap_or(TARGET),
                None => TARGET,
            };
            let limit = target.saturating_sub(header);
            let elsewhere = (*(*relation).rd_rel).reltoastrelid != pg_sys::InvalidOid;
            let size = || pg_sys::heap_compute_data_size(descriptor, (*context).values, (*context).nulls);
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
                if (*compat::attribute(descriptor, attribute)).attstorage.cast_unsigned() == EXTENDED {
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

impl ToastTupleContext {
    fn natts(&self) -> usize {
        // SAFETY: an open relation.
        usize::try_from(unsafe { (*(*self.relation).rd_att).natts }).unwrap_or(0)
    }
}
