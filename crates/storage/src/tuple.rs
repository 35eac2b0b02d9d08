//! Forms a heap tuple of datums: the bytes that heap_form_tuple and heap_prepare_insert would leave.
//!
//! ```text
//!  0       4       8      12        18           20          22     23
//!  t_xmin | t_xmax | t_cid | t_ctid | t_infomask2 | t_infomask | hoff | null bitmap | 0 | data ...
//! ```
//!
//! A [`Layout`] is made once per table, and [`Layout::form`] is called once per row. It supports most rows. The
//! server's own functions form the others: rows with a TOAST pointer or an expanded object, and rows that are long
//! enough for TOAST.
//!
//! The tricky point is the padding between attributes. It must be zero although the buffer has held other tuples. The
//! buffer is never cleared as a whole. Writing an attribute also clears the bytes behind it up to the next multiple of
//! 8, the largest alignment. For a by-value attribute that is one store of 8 bytes, for any length. The next attribute
//! overwrites the rest.
#![allow(unsafe_code, reason = "datums are addresses, and attributes are written where earlier ones end")]

mod column;
mod decoded;
mod given;
mod value;

use std::slice;

use column::{AttributeForm, SLACK, Stop, StoredColumn, clear_behind};
pub use given::Unfit;

/// MAXIMUM_ALIGNOF: alignment of a tuple and of the data within it.
pub const MAX_ALIGN: usize = 8;
/// SizeofHeapTupleHeader: offset of the null bitmap.
pub const TUPLE_HEADER: usize = 23;
/// MaxHeapAttributeNumber: the most columns of a table.
pub const MAX_ATTRIBUTES: usize = 1600;
/// MaxHeapTupleSize: the longest tuple that fits into an empty page.
pub const MAX_TUPLE_SIZE: usize = 8160;
/// TOAST_TUPLE_THRESHOLD: a longer tuple goes to the toaster first, if its table has a TOAST table.
pub const TOAST_TUPLE_THRESHOLD: usize = 2032;

/// HEAP_HASNULL
pub const HEAP_HASNULL: u16 = 0x0001;
/// HEAP_HASVARWIDTH
pub const HEAP_HASVARWIDTH: u16 = 0x0002;
/// HEAP_XMIN_FROZEN
pub const HEAP_XMIN_FROZEN: u16 = 0x0300;
/// HEAP_XMAX_INVALID
pub const HEAP_XMAX_INVALID: u16 = 0x0800;

/// HeapTupleHeaderData. No tuple is accessed through this type. It only lets the compiler check the offsets that this
/// crate uses.
#[repr(C)]
struct HeapTupleHeaderData {
    t_xmin: u32,
    t_xmax: u32,
    t_cid: u32,
    t_ctid: [u16; 3],
    t_infomask2: u16,
    t_infomask: u16,
    t_hoff: u8,
    t_bits: [u8; 1],
}

/// Offset of t_ctid: the halves of the block number, high one first, and the offset number, 16 bits each.
pub const T_CTID: usize = 12;
/// Offset of t_infomask2. WAL has the bytes of the tuple from here to its end.
pub const T_INFOMASK2: usize = 18;
/// Offset of t_infomask.
pub const T_INFOMASK: usize = 20;
/// Offset of t_hoff.
pub const T_HOFF: usize = 22;

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<usize>() == 8, "a datum is an address");
    assert!(offset_of!(HeapTupleHeaderData, t_xmin) == 0);
    assert!(offset_of!(HeapTupleHeaderData, t_xmax) == 4);
    assert!(offset_of!(HeapTupleHeaderData, t_cid) == 8);
    assert!(offset_of!(HeapTupleHeaderData, t_ctid) == T_CTID);
    assert!(offset_of!(HeapTupleHeaderData, t_infomask2) == T_INFOMASK2);
    assert!(offset_of!(HeapTupleHeaderData, t_infomask) == T_INFOMASK);
    assert!(offset_of!(HeapTupleHeaderData, t_hoff) == T_HOFF);
    assert!(offset_of!(HeapTupleHeaderData, t_bits) == TUPLE_HEADER);
    assert!(size_of::<HeapTupleHeaderData>() == TUPLE_HEADER + 1);
    assert!(max_align(TUPLE_HEADER + MAX_ATTRIBUTES.div_ceil(8)) <= u8::MAX as usize, "t_hoff is a byte");
};

/// MAXALIGN
#[inline(always)]
#[must_use]
pub const fn max_align(length: usize) -> usize {
    (length + (MAX_ALIGN - 1)) & !(MAX_ALIGN - 1)
}

/// Storage of an attribute, from the tuple descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// attlen: bytes, or -1 for a varlena, or -2 for a C string.
    pub len: i16,
    /// attalign in bytes: 1, 2, 4 or 8.
    pub align: u8,
    /// attbyval
    pub by_value: bool,
    /// attstorage is not plain: a varlena may have a header of one byte.
    pub packable: bool,
}

/// Header fields that all tuples of a load have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The inserting transaction.
    pub xmin: u32,
    /// Its command id.
    pub cid: u32,
    /// HEAP_INSERT_FROZEN: visible to all transactions at once.
    pub frozen: bool,
}

/// The result of [`Layout::form`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formed<'b> {
    /// The tuple. Its address is a multiple of 8, and zeros follow its last byte up to a multiple of 8.
    Tuple(&'b [u8]),
    /// A value is a TOAST pointer of any kind, perhaps to an expanded object. The size of the row is unknown.
    External,
    /// The tuple is longer than the layout's limit. Some of its values may be external, too.
    TooBig,
}

/// Layout and header of the tuples of a table.
#[derive(Clone, Debug)]
pub struct Layout {
    columns: Box<[StoredColumn]>,
    /// Number of by-value attributes at the start, and where they end: attcacheoff, as far as it is a constant.
    leading: usize,
    leading_end: usize,
    limit: usize,
    /// The header of a tuple without nulls.
    header: [u8; 24],
    /// Minimum size of a [`FormBuffer`], in bytes.
    capacity: usize,
}

/// Buffer in which tuples are formed. Several layouts may use it.
#[derive(Debug, Default)]
pub struct FormBuffer {
    words: Vec<u64>,
}

impl FormBuffer {
    /// Creates an empty buffer, which grows when it is used.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    #[inline(always)]
    fn reserve(&mut self, bytes: usize) -> *mut u8 {
        if self.words.len() * 8 < bytes {
            self.grow(bytes);
        }
        self.words.as_mut_ptr().cast()
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        self.words.resize(bytes.div_ceil(8), 0);
    }
}

impl Layout {
    /// Creates the layout of tuples with these attributes. A tuple longer than `limit`, which is
    /// [`TOAST_TUPLE_THRESHOLD`] or [`MAX_TUPLE_SIZE`], is [`Formed::TooBig`].
    ///
    /// Returns `None` if no tuple descriptor can have such attributes.
    #[must_use]
    pub fn new(attributes: &[Attribute], stamp: Stamp, limit: usize) -> Option<Self> {
        if attributes.len() > MAX_ATTRIBUTES || limit > MAX_TUPLE_SIZE {
            return None;
        }
        let mut columns = attributes.iter().map(StoredColumn::new).collect::<Option<Box<[StoredColumn]>>>()?;
        let (mut leading, mut leading_end) = (0, 0);
        for column in columns.iter_mut().take_while(|column| column.kind == AttributeForm::ByValue) {
            let mask = usize::from(column.mask);
            let offset = (leading_end + mask) & !mask;
            column.offset = offset as u16;
            (leading, leading_end) = (leading + 1, offset + usize::from(column.len));
        }
        // Before a variable-length value is written, the length is checked against the limit. Others are checked
        // only at the end.
        let by_value = columns.iter().map(|column| column.align_and_width()).sum::<usize>();
        let capacity = u8::MAX as usize + limit + by_value + 2 * SLACK;
        let mut layout = Self { columns, leading, leading_end, limit, header: [0; 24], capacity };
        layout.set_stamp(stamp);
        Some(layout)
    }

    /// Sets the command that inserts all further tuples.
    pub fn set_stamp(&mut self, stamp: Stamp) {
        let varying = self.columns.iter().any(|column| column.varying());
        let infomask = HEAP_XMAX_INVALID
            | if stamp.frozen { HEAP_XMIN_FROZEN } else { 0 }
            | if varying { HEAP_HASVARWIDTH } else { 0 };
        let header = &mut self.header;
        header[..4].copy_from_slice(&stamp.xmin.to_ne_bytes());
        header[8..12].copy_from_slice(&stamp.cid.to_ne_bytes());
        // InvalidBlockNumber; the offset number is set later.
        header[T_CTID..T_CTID + 4].fill(0xff);
        header[T_INFOMASK2..T_INFOMASK].copy_from_slice(&(self.columns.len() as u16).to_ne_bytes());
        header[T_INFOMASK..T_HOFF].copy_from_slice(&infomask.to_ne_bytes());
        header[T_HOFF] = max_align(TUPLE_HEADER) as u8;
    }

    /// Number of attributes.
    #[must_use]
    pub fn attributes(&self) -> usize {
        self.columns.len()
    }

    /// Length of the longest tuple that is formed, in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Forms the tuple of a row.
    ///
    /// # Safety
    /// `values` and `nulls` point to as many elements as there are attributes. A value whose null is false is by value,
    /// or the address of a value of its attribute's type: `len` bytes, or a varlena with the length in its header, or a
    /// C string.
    #[inline]
    pub unsafe fn form<'b>(&self, values: *const u64, nulls: *const bool, out: &'b mut FormBuffer) -> Formed<'b> {
        let tuple = out.reserve(self.capacity);
        // SAFETY: this function's contract covers values and nulls; `tuple` points to `capacity` bytes.
        let length = unsafe {
            if any_null(nulls, self.columns.len()) {
                self.form_with_nulls(values, nulls, tuple)
            } else {
                self.form_without_nulls(values, tuple)
            }
        };
        match length {
            // SAFETY: the buffer's words are initialised, and the tuple has been written into them.
            Ok(length) if length <= self.limit => Formed::Tuple(unsafe { slice::from_raw_parts(tuple, length) }),
            Ok(_) | Err(Stop::TooBig) => Formed::TooBig,
            Err(Stop::External) => Formed::External,
        }
    }

    /// # Safety
    /// As [`Self::form`]; no value is null; `tuple` points to `capacity` writable bytes.
    #[inline]
    unsafe fn form_without_nulls(&self, values: *const u64, tuple: *mut u8) -> Result<usize, Stop> {
        // SAFETY: the capacity allows for the header.
        unsafe { tuple.cast::<[u8; 24]>().write(self.header) };
        let data = max_align(TUPLE_HEADER);
        let (leading, rest) = self.columns.split_at(self.leading);
        for (i, column) in leading.iter().enumerate() {
            // SAFETY: there is a value for each column; 8 bytes are within the slack.
            unsafe {
                let bytes = column.first_bytes(*values.add(i));
                tuple.add(data + usize::from(column.offset)).cast::<u64>().write_unaligned(bytes);
            }
        }
        let mut at = data + self.leading_end;
        for (i, column) in rest.iter().enumerate() {
            // SAFETY: there is a value for each column; `at` is the end of the written bytes.
            at = unsafe { column.put(*values.add(leading.len() + i), tuple, at, self.limit)? };
        }
        Ok(at)
    }

    /// # Safety
    /// As [`Self::form`]; `tuple` points to `capacity` writable bytes.
    #[inline(never)]
    unsafe fn form_with_nulls(&self, values: *const u64, nulls: *const bool, tuple: *mut u8) -> Result<usize, Stop> {
        let count = self.columns.len();
        let hoff = max_align(TUPLE_HEADER + count.div_ceil(8));
        // The last 8 bytes first: the header and the bitmap, written over them, leave the zeros behind the bitmap.
        // SAFETY: the capacity includes the longest possible header, and hoff is not below 24.
        unsafe {
            clear_behind(tuple, hoff - 8);
            tuple.cast::<[u8; 24]>().write(self.header);
        }
        let mut at = hoff;
        let mut varying = false;
        for (group, columns) in self.columns.chunks(8).enumerate() {
            let first = group * 8;
            // SAFETY: there is a null for each column; the bitmap ends before hoff.
            let mut present = unsafe {
                let present = present(nulls.add(first), columns.len());
                *tuple.add(TUPLE_HEADER + group) = present;
                present
            };
            while present != 0 {
                let i = present.trailing_zeros() as usize;
                present &= present - 1;
                let Some(column) = columns.get(i) else { break };
                varying |= column.varying();
                // SAFETY: there is a value for each column; `at` is the end of the written bytes.
                at = unsafe { column.put(*values.add(first + i), tuple, at, self.limit)? };
            }
        }
        let fixed = u16::from_ne_bytes([self.header[T_INFOMASK], self.header[T_INFOMASK + 1]]) & !HEAP_HASVARWIDTH;
        let infomask = fixed | HEAP_HASNULL | if varying { HEAP_HASVARWIDTH } else { 0 };
        // SAFETY: within the header.
        unsafe {
            tuple.add(T_INFOMASK).cast::<[u8; 2]>().write(infomask.to_ne_bytes());
            *tuple.add(T_HOFF) = hoff as u8;
        }
        Ok(at)
    }
}

/// # Safety
/// `nulls` points to `count` values.
#[inline(always)]
unsafe fn any_null(nulls: *const bool, count: usize) -> bool {
    // SAFETY: this function's contract; a bool is a byte.
    let nulls = unsafe { slice::from_raw_parts(nulls.cast::<u8>(), count) };
    let (words, rest) = nulls.as_chunks::<8>();
    words.iter().fold(0, |all, word| all | u64::from_ne_bytes(*word)) != 0
        || rest.iter().fold(0, |all, one| all | one) != 0
}

/// A byte of the null bitmap: bit i is set if value i of `count`, at most 8, is not null.
///
/// # Safety
/// `nulls` points to `count` values.
#[inline(always)]
unsafe fn present(nulls: *const bool, count: usize) -> u8 {
    // Eight bytes of 0 or 1 times these powers of two have byte i, and no other, in bit 56 + i.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    if count == 8 {
        // SAFETY: this function's contract; a bool is a byte.
        let nulls = u64::from_le_bytes(unsafe { *nulls.cast::<[u8; 8]>() });
        return !(nulls.wrapping_mul(GATHER) >> 56) as u8;
    }
    // SAFETY: there are `count` nulls.
    (0..count).fold(0, |bits, i| bits | u8::from(unsafe { !*nulls.add(i) }) << i)
}
