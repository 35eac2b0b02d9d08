//! Forms tuples of rows that were decoded together, mostly without branches that depend on a value.
//!
//! In many files, NULLs and the lengths of short values are as good as random, and a mispredicted branch costs more
//! than writing an attribute. So the bytes of every value are written, NULL or not, and only the end of the tuple
//! depends on whether it is NULL. Short values are copied at one fixed length, together with the bytes behind them,
//! which zeros then overwrite. So the memory behind each value must be readable.

use std::slice;

use super::column::{AttributeForm, LONGEST_TO_SHORTEN, SLACK, Stop, StoredColumn, clear_behind, short_header};
use super::{FormBuffer, Formed, HEAP_HASNULL, HEAP_HASVARWIDTH, Layout, T_HOFF, T_INFOMASK, TUPLE_HEADER};
use super::{any_null, max_align, present};
use pg_bulk_types::block::ColumnForm;
use pg_bulk_types::raw;

/// The shorter one of the two fixed lengths of a copy, in bytes.
const SHORT: usize = 16;

const _: () = assert!(pg_bulk_types::arena::SLACK >= SLACK && SLACK >= 4 + SHORT);

impl Layout {
    /// Forms the tuple of a row, as [`Layout::form`] does.
    ///
    /// # Safety
    /// As [`Layout::form`], except that the values have the forms in `column_forms`, one for each attribute.
    #[inline]
    pub unsafe fn form_decoded<'b>(
        &self,
        column_forms: &[ColumnForm],
        values: *const u64,
        nulls: *const bool,
        out: &'b mut FormBuffer,
    ) -> Formed<'b> {
        let tuple = out.reserve(self.capacity);
        // SAFETY: this function's contract covers values and nulls; `tuple` points to `capacity` bytes.
        match unsafe { self.put_decoded(column_forms, values, nulls, tuple) } {
            // SAFETY: the buffer's words are initialised, and the tuple has been written into them.
            Ok(length) if length <= self.limit => Formed::Tuple(unsafe { slice::from_raw_parts(tuple, length) }),
            Ok(_) | Err(Stop::TooBig) => Formed::TooBig,
            Err(Stop::External) => Formed::External,
        }
    }

    /// # Safety
    /// As [`Self::form_decoded`]; `tuple` points to `capacity` writable bytes.
    #[inline(always)]
    unsafe fn put_decoded(
        &self,
        column_forms: &[ColumnForm],
        values: *const u64,
        nulls: *const bool,
        tuple: *mut u8,
    ) -> Result<usize, Stop> {
        let count = self.columns.len();
        // SAFETY: there is a null for each column.
        let has_null = unsafe { any_null(nulls, count) };
        let hoff = max_align(TUPLE_HEADER + if has_null { count.div_ceil(8) } else { 0 });
        // The last 8 bytes first: the header and the bitmap, written over them, leave the zeros behind the bitmap.
        // SAFETY: the capacity includes the longest possible header, and hoff is not below 24.
        unsafe {
            clear_behind(tuple, hoff - 8);
            tuple.cast::<[u8; 24]>().write(self.header);
            if has_null {
                for first in (0..count).step_by(8) {
                    *tuple.add(TUPLE_HEADER + first / 8) = present(nulls.add(first), (count - first).min(8));
                }
            }
        }
        let mut at = hoff;
        let mut varying = false;
        for (i, (column, &column_form)) in self.columns.iter().zip(column_forms).enumerate() {
            // SAFETY: there is a value and a null for each column; `at` is the end of the written bytes.
            unsafe {
                let null = *nulls.add(i);
                varying |= column.varying() & !null;
                at = column.put_decoded(column_form, *values.add(i), null, tuple, at, self.limit)?;
            }
        }
        if has_null {
            let fixed = u16::from_ne_bytes([self.header[T_INFOMASK], self.header[T_INFOMASK + 1]]) & !HEAP_HASVARWIDTH;
            let infomask = fixed | HEAP_HASNULL | if varying { HEAP_HASVARWIDTH } else { 0 };
            // SAFETY: within the header.
            unsafe {
                tuple.add(T_INFOMASK).cast::<[u8; 2]>().write(infomask.to_ne_bytes());
                *tuple.add(T_HOFF) = hoff as u8;
            }
        }
        Ok(at)
    }
}

impl StoredColumn {
    /// As [`StoredColumn::put`]; a NULL leaves zeros at the start of the next value.
    ///
    /// # Safety
    /// As [`StoredColumn::put`], and the value has the form `column_form`.
    #[inline(always)]
    unsafe fn put_decoded(
        self,
        column_form: ColumnForm,
        value: u64,
        null: bool,
        tuple: *mut u8,
        at: usize,
        limit: usize,
    ) -> Result<usize, Stop> {
        let keep = usize::from(null).wrapping_sub(1);
        match (self.kind, column_form) {
            (AttributeForm::ByValue, _) => {
                let mask = usize::from(self.mask);
                let aligned = (at + mask) & !mask;
                // SAFETY: 8 bytes are within the slack.
                unsafe {
                    tuple.add(aligned).cast::<u64>().write_unaligned(self.first_bytes(value) & keep as u64);
                }
                Ok(at + ((aligned + usize::from(self.len) - at) & keep))
            }
            (AttributeForm::Packable, ColumnForm::Raw) => {
                let (from, len) = raw::unpack(value);
                if len <= SLACK {
                    // SAFETY: this function's contract covers the bytes; `at` is not behind the limit.
                    return unsafe { put_short::<SLACK>(from, len, keep, tuple, at, limit) };
                }
                // SAFETY: `from` points to `len` bytes.
                unsafe { put_raw(from, len, len + 4 <= LONGEST_TO_SHORTEN, usize::from(self.mask), tuple, at, limit) }
            }
            (AttributeForm::Plain, ColumnForm::Raw) if !null => {
                let (from, len) = raw::unpack(value);
                // SAFETY: `from` points to `len` bytes.
                unsafe { put_raw(from, len, false, usize::from(self.mask), tuple, at, limit) }
            }
            (AttributeForm::Packable, ColumnForm::Padded) => {
                let from: *const u8 = std::ptr::with_exposed_provenance(value as usize);
                // SAFETY: this function's contract covers the header of four bytes and the readable bytes behind it.
                unsafe {
                    let len = (from.cast::<u32>().read_unaligned() >> 2) as usize - 4;
                    if len <= SHORT {
                        return put_short::<SHORT>(from.add(4), len, keep, tuple, at, limit);
                    }
                    self.put(value, tuple, at, limit)
                }
            }
            _ if null => Ok(at),
            // SAFETY: all other forms are datums as the server has them.
            _ => unsafe { self.put(value, tuple, at, limit) },
        }
    }
}

/// Writes a value of at most `N` bytes with a header of one byte if `keep` is all ones; leaves it out if `keep` is 0.
///
/// # Safety
/// `N` bytes can be read at `from`. Behind `limit`, `tuple` has SLACK bytes and one, and then the capacity for all
/// by-value columns.
#[inline(always)]
unsafe fn put_short<const N: usize>(
    from: *const u8,
    len: usize,
    keep: usize,
    tuple: *mut u8,
    at: usize,
    limit: usize,
) -> Result<usize, Stop> {
    if at > limit {
        return Err(Stop::TooBig);
    }
    let end = at + ((len + 1) & keep);
    // SAFETY: all bytes that are written behind the limit are within the slack.
    unsafe {
        *tuple.add(at) = short_header(len + 1);
        tuple.add(at + 1).cast::<[u8; N]>().write(from.cast::<[u8; N]>().read());
        clear_behind(tuple, end);
    }
    Ok(end)
}

/// Writes bytes with a header of one byte, if `shortened`, or of four.
///
/// # Safety
/// `from` points to `len` bytes, and `tuple` to SLACK more than `limit`.
#[inline(always)]
unsafe fn put_raw(
    from: *const u8,
    len: usize,
    shortened: bool,
    mask: usize,
    tuple: *mut u8,
    at: usize,
    limit: usize,
) -> Result<usize, Stop> {
    let start = if shortened { at } else { (at + mask) & !mask };
    let header = if shortened { 1 } else { 4 };
    let end = start + header + len;
    if end > limit {
        return Err(Stop::TooBig);
    }
    // SAFETY: all is written below the limit, and zeros within the slack.
    unsafe {
        if shortened {
            *tuple.add(start) = short_header(len + 1);
        } else {
            tuple.add(start).cast::<u32>().write_unaligned(long_header(len + 4));
        }
        std::ptr::copy_nonoverlapping(from, tuple.add(start + header), len);
        clear_behind(tuple, end);
    }
    Ok(end)
}

/// Header of a varlena. Blocks of decoded values exist on little-endian machines only.
fn long_header(size: usize) -> u32 {
    (size as u32) << 2
}
