//! Heap pages of the table `test`, built in private memory, and the WAL that describes them.
//!
//! ```text
//! page:   header (24) | line pointers -> | free | <- tuples
//! tuple:  header (23, padded to 24) | id int4 | info short varlena | padding to 8 | crt_time int8
//! record: header | block reference | per tuple: length, infomasks, hoff, tuple from byte 23 on | xl_heap_multi_insert
//! ```
//!
//! A page gets its block number when its batch is appended, not while it is filled. So t_ctid is set, and the records
//! are formed, in [`Batch::place`].
//!
//! The records have the size and the copying cost of XLOG_HEAP2_MULTI_INSERT with INIT_PAGE, one for each page. The
//! checksum and the page header of every 8 kB of WAL are left out, because this is a lower bound.

use crate::record::Row;

/// Size of a page in bytes.
pub const PAGE: usize = 8192;

/// Number of pages of a batch.
pub const BATCH_PAGES: usize = 64;

const PAGE_HEADER: usize = 24;
const LINE_POINTER: usize = 4;
const TUPLE_HEADER: usize = 24;
/// Offset of the tuple's bytes that a WAL record contains: the header without its padding.
const LOGGED_FROM: usize = 23;
const LP_NORMAL: u32 = 1;
const HEAP_HASVARWIDTH: u16 = 0x0002;
const HEAP_XMAX_INVALID: u16 = 0x0800;
const COLUMNS: u16 = 3;
/// Any normal transaction id.
const XID: u32 = 1000;

/// Up to [`BATCH_PAGES`] pages under construction.
pub struct Batch {
    heap: Vec<u8>,
    wal: Vec<u8>,
    /// Start of the page that is being filled; the end of the buffer when the batch is full.
    page: usize,
    /// End of that page's line pointers and start of its tuples, counted from the start of the page.
    lower: usize,
    upper: usize,
}

impl Default for Batch {
    fn default() -> Self {
        let mut batch = Self {
            heap: vec![0; BATCH_PAGES * PAGE],
            wal: Vec::with_capacity(BATCH_PAGES * PAGE),
            page: 0,
            lower: 0,
            upper: 0,
        };
        batch.clear();
        batch
    }
}

impl Batch {
    /// Empties the batch.
    pub fn clear(&mut self) {
        // The space between line pointers and tuples must be zero, as must the padding within tuples.
        self.heap.fill(0);
        self.wal.clear();
        self.page = 0;
        self.begin_page();
    }

    fn begin_page(&mut self) {
        self.lower = PAGE_HEADER;
        self.upper = PAGE;
    }

    /// Adds a row. Returns false, without adding it, if the batch is full.
    #[inline]
    #[must_use]
    pub fn push(&mut self, row: &Row) -> bool {
        let info = TUPLE_HEADER + 4;
        let time = (info + 1 + row.info.len()).next_multiple_of(8);
        let length = time + 8;
        let room = length.next_multiple_of(8);
        if self.page == self.heap.len() {
            return false;
        }
        if self.lower + LINE_POINTER + room > self.upper {
            self.finish_page();
            if self.page == self.heap.len() {
                return false;
            }
        }
        self.upper -= room;
        let page = &mut self.heap[self.page..self.page + PAGE];
        let pointer = self.upper as u32 | (LP_NORMAL << 15) | ((length as u32) << 17);
        page[self.lower..self.lower + LINE_POINTER].copy_from_slice(&pointer.to_le_bytes());
        self.lower += LINE_POINTER;
        let tuple = &mut page[self.upper..self.upper + length];
        tuple[..4].copy_from_slice(&XID.to_le_bytes());
        tuple[18..20].copy_from_slice(&COLUMNS.to_le_bytes());
        tuple[20..22].copy_from_slice(&(HEAP_HASVARWIDTH | HEAP_XMAX_INVALID).to_le_bytes());
        tuple[22] = TUPLE_HEADER as u8;
        tuple[TUPLE_HEADER..info].copy_from_slice(&row.id.to_le_bytes());
        tuple[info] = (((row.info.len() + 1) << 1) | 1) as u8;
        tuple[info + 1..info + 1 + row.info.len()].copy_from_slice(row.info);
        tuple[time..].copy_from_slice(&row.time.to_le_bytes());
        true
    }

    fn finish_page(&mut self) {
        let page = &mut self.heap[self.page..self.page + PAGE];
        page[12..14].copy_from_slice(&(self.lower as u16).to_le_bytes());
        page[14..16].copy_from_slice(&(self.upper as u16).to_le_bytes());
        page[16..18].copy_from_slice(&(PAGE as u16).to_le_bytes());
        page[18..20].copy_from_slice(&(PAGE as u16 | 4).to_le_bytes());
        self.page += PAGE;
        self.begin_page();
    }

    /// Finishes the page that is being filled, unless it is empty, and returns the number of pages.
    pub fn finish(&mut self) -> usize {
        if self.lower > PAGE_HEADER {
            self.finish_page();
        }
        self.page / PAGE
    }

    /// Gives the finished pages the block numbers from `first_block` on. Returns the pages and their WAL.
    pub fn place(&mut self, first_block: u32) -> (&[u8], &[u8]) {
        let end = self.page;
        for (page, block) in self.heap[..end].chunks_exact_mut(PAGE).zip(first_block..) {
            number_and_log(page, block, &mut self.wal);
        }
        (&self.heap[..end], &self.wal)
    }
}

/// Sets t_ctid of every tuple of a page and appends the page's record.
fn number_and_log(page: &mut [u8], block: u32, wal: &mut Vec<u8>) {
    let lower = usize::from(u16::from_le_bytes([page[12], page[13]]));
    let tuples = (lower - PAGE_HEADER) / LINE_POINTER;
    let start = wal.len();
    // XLogRecord, filled in below; then the block's header (id, flags, length of data), its relation and its number.
    wal.extend_from_slice(&[0; 24]);
    wal.extend_from_slice(&[0; 4 + 12]);
    wal.extend_from_slice(&block.to_le_bytes());
    // The header of the main data: its id and its length.
    wal.extend_from_slice(&[255, 4]);
    for offset in 1..=tuples {
        let at = PAGE_HEADER + (offset - 1) * LINE_POINTER;
        let pointer = u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
        let (place, length) = ((pointer & 0x7fff) as usize, (pointer >> 17) as usize);
        let tuple = &mut page[place..place + length];
        tuple[12..14].copy_from_slice(&((block >> 16) as u16).to_le_bytes());
        tuple[14..16].copy_from_slice(&(block as u16).to_le_bytes());
        tuple[16..18].copy_from_slice(&(offset as u16).to_le_bytes());
        // The server requires each tuple to begin at an even byte. This holds: tuples are multiples of 8 that end with
        // an int8, and 7 bytes of header replace the 23 left out.
        wal.extend_from_slice(&((length - LOGGED_FROM) as u16).to_le_bytes());
        wal.extend_from_slice(&tuple[18..23]);
        wal.extend_from_slice(&tuple[LOGGED_FROM..]);
    }
    // xl_heap_multi_insert: flags and the number of tuples; no offsets, the page is new.
    wal.extend_from_slice(&[0, 0]);
    wal.extend_from_slice(&(tuples as u16).to_le_bytes());
    let length = (wal.len() - start) as u32;
    wal[start..start + 4].copy_from_slice(&length.to_le_bytes());
    wal[start + 4..start + 8].copy_from_slice(&XID.to_le_bytes());
    wal.resize(start + (length as usize).next_multiple_of(8), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: i32) -> Row<'static> {
        Row { id, info: b"0123456789abcdef0123456789abcdef", time: i64::from(id) * 1000 }
    }

    fn filled(rows: i32) -> Batch {
        let mut batch = Batch::default();
        assert!((0..rows).all(|id| batch.push(&row(id))));
        batch
    }

    fn short(page: &[u8], at: usize) -> usize {
        usize::from(u16::from_le_bytes([page[at], page[at + 1]]))
    }

    /// A full page uses 24 + 107 × (4 + 72) = 8156 bytes, like one that COPY has filled.
    #[test]
    fn a_page_holds_107_rows() {
        assert_eq!(filled(107).finish(), 1);
        assert_eq!(filled(108).finish(), 2);
        assert_eq!(Batch::default().finish(), 0);
    }

    #[test]
    fn a_full_batch_takes_no_row() {
        let mut batch = filled(107 * 64);
        assert!(!batch.push(&row(0)));
        assert!(!batch.push(&row(0)));
        assert_eq!(batch.finish(), 64);
        batch.clear();
        assert!(batch.push(&row(0)));
        assert_eq!(batch.finish(), 1);
    }

    #[test]
    fn pages_read_back() {
        // A used batch: remains of other tuples must not appear.
        let mut batch = filled(107 * 64);
        batch.clear();
        assert!((0..150).all(|id| batch.push(&row(id))));
        assert_eq!(batch.finish(), 2);
        let (heap, _) = batch.place(0x0001_0002);
        assert_eq!(heap.len(), 2 * PAGE);
        let mut id = 0;
        for (page, block) in heap.chunks_exact(PAGE).zip(2..) {
            let (lower, upper) = (short(page, 12), short(page, 14));
            assert_eq!((short(page, 16), short(page, 18)), (8192, 8196));
            assert!(page[lower..upper].iter().all(|byte| *byte == 0));
            for offset in 1..=(lower - 24) / 4 {
                let at = 20 + offset * 4;
                let pointer = u32::from_le_bytes(page[at..at + 4].try_into().unwrap());
                assert_eq!((pointer >> 15) & 3, 1);
                let tuple = &page[(pointer & 0x7fff) as usize..][..(pointer >> 17) as usize];
                assert_eq!((short(tuple, 12), short(tuple, 14), short(tuple, 16)), (1, block, offset));
                assert_eq!((short(tuple, 18), short(tuple, 20), tuple[22]), (3, 0x0802, 24));
                assert_eq!(tuple[24..28], i32::to_le_bytes(id));
                assert_eq!(tuple[28], (33 << 1) | 1);
                assert_eq!(&tuple[29..61], row(id).info);
                assert_eq!(tuple[61..64], [0; 3]);
                assert_eq!(tuple[64..], row(id).time.to_le_bytes());
                id += 1;
            }
        }
        assert_eq!(id, 150);
    }

    #[test]
    fn one_record_a_page_with_all_its_tuples() {
        let mut batch = filled(150);
        batch.finish();
        let (_, wal) = batch.place(7);
        let mut rest = wal;
        for (block, tuples) in [(7u32, 107usize), (8, 43)] {
            let length = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
            // Each tuple: 7 bytes of header, 72 - 23 of content, even in sum.
            assert_eq!(length, 24 + 20 + 2 + tuples * 56 + 4);
            assert_eq!(rest[40..44], block.to_le_bytes());
            assert_eq!(short(rest, length - 2), tuples);
            assert_eq!(short(rest, 46), 49);
            rest = &rest[length.next_multiple_of(8)..];
        }
        assert!(rest.is_empty());
    }
}
