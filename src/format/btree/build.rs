//! A tree from the leaves up: sorted entries in, pages out.
//!
//! ```text
//!                      ┌──────────────┐
//!   level 1            │ 3: -∞ k2 k4  │        first child without a key, of the others the left one's high key
//!                      └──────────────┘
//!   level 0   ┌─────────────┐ ┌────────────┐ ┌───────
//!             │ 1: k2│k0 k1 │ │ 2: k4│k2 k3│ │ 4: ...       high key │ items
//!             └─────────────┘ └────────────┘ └───────
//! ```
//!
//! One page of each level is open. When an item does not fit, or the fillfactor is reached, the page's last item moves to
//! the next page, leaves the page a high key, and the page goes into the level above: _bt_buildadd (nbtsort.c). Blocks
//! are numbered as pages are begun and handed out as they are complete, so a page of an upper level comes long after the
//! ones with higher numbers: [`PageSink::page`] must be able to go back. The metapage comes last.
//!
//! The tricky point is the leaf's high key. Of the last item only as many columns are kept as tell it from the item before;
//! if they are equal the TID is added: _bt_truncate (nbtutils.c). In its own t_tid a high key has the block number of
//! the item it was, for which nobody has any use.
//!
//! Equal keys become posting lists as _bt_load has it: up to a tenth of a page, whatever the fillfactor.

use super::entry::{Entry, Tid, Word};
use super::key::KeyShape;
use super::tuple::{Formed, Item, SHORT, header, item};
use super::{
    BT_IS_POSTING, BT_PIVOT_HEAP_TID, BTP_LEAF, BTP_META, BTP_ROOT, DEFAULT_FILLFACTOR, INDEX_ALT_TID, INDEX_SIZE_MASK,
    ITEM_POINTER, LP_NORMAL, MAGIC, MAX_POSTING_SIZE, METAPAGE, NO_BLOCK, NONLEAF_FILLFACTOR, P_FIRSTKEY, P_HIKEY,
    SPECIAL_START, TUPLE_HEADER, VERSION, item_id, u32_at,
};
use crate::page::{LINE_POINTER, PAGE_HEADER, PAGE_SIZE};
use crate::tuple::max_align;

/// A page, aligned as direct I/O wants it.
#[derive(Clone, Debug)]
#[repr(C, align(4096))]
pub struct Page(pub [u8; PAGE_SIZE]);

/// Takes the pages of a tree.
pub trait PageSink {
    /// Why a page cannot be taken.
    type Error;

    /// A complete page, whose pd_lsn and pd_checksum are 0; they may be set where it is. Pages do not come in the order
    /// of their blocks, but each comes once, and in the end there is none missing.
    ///
    /// # Errors
    /// The sink's own; the build is then at its end.
    fn page(&mut self, block: u32, page: &mut Page) -> Result<(), Self::Error>;
}

/// What an index's definition says of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Storage parameter fillfactor, 10 to 100.
    pub fillfactor: usize,
    /// Equal keys share a posting list: _bt_allequalimage, deduplicate_items is on, and the index is not unique.
    pub deduplicate: bool,
    /// What _bt_allequalimage says, for the metapage.
    pub all_equal_image: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { fillfactor: DEFAULT_FILLFACTOR, deduplicate: true, all_equal_image: true }
    }
}

/// Why a build has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError<E> {
    /// The sink's reason.
    Sink(E),
    /// An entry is not behind the one before it.
    Order,
    /// More pages than there are block numbers.
    Full,
}

impl<E> From<E> for BuildError<E> {
    fn from(error: E) -> Self {
        Self::Sink(error)
    }
}

/// What has been built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    /// Pages, the metapage among them.
    pub pages: u32,
    /// Entries.
    pub entries: u64,
    /// Levels; 0 if there is no entry.
    pub levels: u32,
}

/// A tree under construction.
#[derive(Debug)]
pub struct Builder<W: Word> {
    shape: KeyShape,
    options: Options,
    levels: Vec<Level>,
    /// btws_pages_alloced
    next_block: u32,
    entries: u64,
    /// The latest entry.
    last: Entry<W>,
    /// Equal keys that wait for more of them: one of them at least after the first entry. Only with `deduplicate`.
    pending: Vec<Tid>,
    /// Rows that a posting list has at most, behind a key without nulls.
    most: usize,
    /// Size of a tuple without nulls.
    size: usize,
    /// Such a tuple's data is made in one step.
    short: bool,
}

/// BTPageState: the open page of a level.
#[derive(Debug)]
struct Level {
    page: Box<Page>,
    block: u32,
    /// Block before it on its level.
    prev: u32,
    level: u32,
    lower: usize,
    upper: usize,
    /// Offset number of the last item; P_HIKEY if there is none.
    last: usize,
    /// Bytes of the last item's posting list.
    last_extra: usize,
    /// Free space that is left, if possible.
    full: usize,
    /// The key that the page goes by in the level above: the high key of the page before it.
    low_key: Vec<u8>,
}

/// One more column or TID at the end of a high key: the space for a TID.
const HEAP_TID: usize = max_align(ITEM_POINTER);

impl<W: Word> Builder<W> {
    /// A tree of keys of this shape.
    #[must_use]
    pub fn new(shape: &KeyShape, options: Options) -> Self {
        let size = shape.tuple_size();
        Self {
            shape: shape.clone(),
            options,
            levels: Vec::new(),
            next_block: METAPAGE + 1,
            entries: 0,
            last: Entry::default(),
            pending: Vec::new(),
            most: most_tids(size),
            size,
            short: shape.is_short(),
        }
    }

    /// Adds entries, which are behind all that have been added.
    ///
    /// # Errors
    /// The sink's, and if they are not.
    pub fn push<S: PageSink>(&mut self, entries: &[Entry<W>], sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(()) };
        if self.entries > 0 && !self.last.before(*first) || !super::sort::is_ascending(entries) {
            return Err(BuildError::Order);
        }
        if self.levels.is_empty() {
            self.add_level()?;
        }
        if self.options.deduplicate {
            self.deduplicate(entries, sink)?;
        } else {
            self.add_entries(entries, sink)?;
        }
        self.entries += entries.len() as u64;
        self.last = *last;
        Ok(())
    }

    /// Completes the open pages and adds the metapage: _bt_uppershutdown.
    ///
    /// # Errors
    /// The sink's.
    pub fn finish<S: PageSink>(mut self, sink: &mut S) -> Result<Built, BuildError<S::Error>> {
        self.flush_pending(self.last.key(), sink)?;
        let (mut root, mut at) = (NO_BLOCK, 0);
        while at < self.levels.len() {
            let top = at + 1 == self.levels.len();
            if !top {
                let downlink = self.levels.get_mut(at).map(Level::take_downlink).unwrap_or_default();
                self.add_pivot(at + 1, &downlink, sink)?;
            }
            let Some(level) = self.levels.get_mut(at) else { break };
            level.slide_left();
            level.complete(NO_BLOCK, if top { BTP_ROOT } else { 0 });
            sink.page(level.block, &mut level.page)?;
            (root, at) = (level.block, at + 1);
        }
        let levels = self.levels.len() as u32;
        let mut page = self.levels.pop().map_or_else(new_page, |level| level.page);
        metapage(&mut page, root, levels.saturating_sub(1), self.options.all_equal_image);
        sink.page(METAPAGE, &mut page)?;
        Ok(Built { pages: self.next_block, entries: self.entries, levels })
    }

    /// _bt_pagestate
    fn add_level<E>(&mut self) -> Result<(), BuildError<E>> {
        let level = self.levels.len() as u32;
        let fillfactor = if level > 0 { NONLEAF_FILLFACTOR } else { self.options.fillfactor.clamp(10, 100) };
        let mut state = Level {
            page: new_page(),
            block: self.allocate()?,
            prev: NO_BLOCK,
            level,
            lower: 0,
            upper: 0,
            last: P_HIKEY,
            last_extra: 0,
            full: PAGE_SIZE * (100 - fillfactor) / 100,
            low_key: Vec::new(),
        };
        state.begin();
        self.levels.push(state);
        Ok(())
    }

    fn allocate<E>(&mut self) -> Result<u32, BuildError<E>> {
        let block = self.next_block;
        // MaxBlockNumber is one less than InvalidBlockNumber.
        if block >= u32::MAX - 1 {
            return Err(BuildError::Full);
        }
        self.next_block += 1;
        Ok(block)
    }

    /// The loop of _bt_load that deduplicates. All entries that are between others go on at once; the last one waits.
    fn deduplicate<S: PageSink>(&mut self, entries: &[Entry<W>], sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let (mut key, mut rest) = (self.last.key(), entries);
        while let Some(first) = rest.first() {
            if key == first.key() && !self.pending.is_empty() {
                let most = self.most_of(key);
                let same = rest.iter().take_while(|entry| entry.key() == key).count();
                let (same, others) = rest.split_at_checked(same).unwrap_or((rest, &[]));
                for entry in same {
                    if self.pending.len() >= most {
                        self.flush_pending(key, sink)?;
                    }
                    self.pending.push(entry.tid());
                }
                rest = others;
                continue;
            }
            self.flush_pending(key, sink)?;
            let alone = rest.windows(2).take_while(|pair| matches!(pair, [a, b] if a.key() != b.key())).count();
            let (alone, others) = rest.split_at_checked(alone).unwrap_or((rest, &[]));
            self.add_entries(alone, sink)?;
            if let Some((last, others)) = others.split_first() {
                key = last.key();
                self.pending.push(last.tid());
                rest = others;
            }
        }
        Ok(())
    }

    /// Rows that a posting list of this key has at most: _bt_dedup_save_htid.
    fn most_of(&self, key: W) -> usize {
        if self.shape.nullable() && self.shape.has_null(key) {
            most_tids(self.shape.form(key, self.shape.len()).bytes().len())
        } else {
            self.most
        }
    }

    /// _bt_sort_dedup_finish_pending
    fn flush_pending<S: PageSink>(&mut self, key: W, sink: &mut S) -> Result<(), BuildError<S::Error>> {
        match *self.pending.as_slice() {
            [] => return Ok(()),
            [tid] => self.add_entries(&[Entry::new(key, tid)], sink)?,
            ref tids => {
                // _bt_form_posting
                let mut base = self.shape.form(key, self.shape.len());
                let start = base.bytes().len();
                let size = max_align(start + tids.len() * ITEM_POINTER);
                let info = base.info() & !INDEX_SIZE_MASK | size as u16 | INDEX_ALT_TID;
                base.set_header(Tid::new(start as u32, tids.len() as u16 | BT_IS_POSTING), info);
                let mut tuple = [0; max_align(MAX_POSTING_SIZE)];
                put(&mut tuple, 0, base.bytes());
                if let Some(list) = tuple.get_mut(start..) {
                    for (to, tid) in list.as_chunks_mut().0.iter_mut().zip(tids) {
                        *to = tid.to_bytes();
                    }
                }
                self.add_item(tuple.get(..size).unwrap_or_default(), size - start, sink)?;
            }
        }
        self.pending.clear();
        Ok(())
    }

    /// Adds the tuples of entries to the leaf level.
    fn add_entries<S: PageSink>(&mut self, entries: &[Entry<W>], sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let (size, nullable) = (self.size, self.shape.nullable());
        let mut rest = entries;
        while let Some(first) = rest.first() {
            if !self.short || nullable && self.shape.has_null(first.key()) {
                self.add_formed(*first, sink)?;
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let room = self.levels.first().map_or(0, |leaf| leaf.room(size));
            if room == 0 {
                self.next_leaf(sink)?;
                continue;
            }
            let (mut now, _) = rest.split_at_checked(room).unwrap_or((rest, &[]));
            if nullable {
                let plain = now.iter().take_while(|entry| !self.shape.has_null(entry.key())).count();
                now = now.get(..plain).unwrap_or_default();
            }
            rest = rest.get(now.len()..).unwrap_or_default();
            let Some(leaf) = self.levels.first_mut() else { return Ok(()) };
            let shape = &self.shape;
            if let Some(column) = shape.only_integer(8) {
                leaf.fill(now, |key| column.restore(key).to_u64().to_le_bytes());
            } else if let Some(column) = shape.only_integer(4) {
                leaf.fill(now, |key| column.restore(key).to_u64().to_le_bytes());
            } else if size == TUPLE_HEADER + SHORT {
                leaf.fill(now, |key| shape.short_data(key));
            } else {
                leaf.fill(now, |key| {
                    let [a, b, c, d, e, f, g, h, ..] = shape.short_data(key);
                    [a, b, c, d, e, f, g, h]
                });
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn add_formed<S: PageSink>(&mut self, entry: Entry<W>, sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let mut formed = self.shape.form(entry.key(), self.shape.len());
        formed.set_header(entry.tid(), formed.info());
        self.add_item(formed.bytes(), 0, sink)
    }

    /// Adds a tuple to the leaf level: _bt_buildadd.
    fn add_item<S: PageSink>(&mut self, tuple: &[u8], extra: usize, sink: &mut S) -> Result<(), BuildError<S::Error>> {
        if self.levels.first().is_none_or(|leaf| !leaf.takes(tuple.len())) {
            self.next_leaf(sink)?;
        }
        if let Some(leaf) = self.levels.first_mut() {
            leaf.last_extra = extra;
            leaf.put(tuple);
        }
        Ok(())
    }

    /// Completes the open leaf and begins another one with its last item.
    #[cold]
    #[inline(never)]
    fn next_leaf<S: PageSink>(&mut self, sink: &mut S) -> Result<(), BuildError<S::Error>> {
        let Some(leaf) = self.levels.first_mut() else { return Ok(()) };
        let moved = leaf.take_last();
        let high_key = high_key::<W>(&self.shape, leaf.last_item(), &moved);
        leaf.put_high_key(&high_key);
        self.next_page(0, &moved, high_key, sink)
    }

    /// Adds a tuple to a level above the leaves: _bt_buildadd.
    fn add_pivot<S: PageSink>(&mut self, at: usize, tuple: &[u8], sink: &mut S) -> Result<(), BuildError<S::Error>> {
        if self.levels.get(at).is_some_and(|level| !level.takes(tuple.len()))
            && let Some(level) = self.levels.get_mut(at)
        {
            let moved = level.take_last();
            level.put_high_key(&moved);
            self.next_page(at, &moved.clone(), moved, sink)?;
        }
        if let Some(level) = self.levels.get_mut(at) {
            level.put_pivot(tuple);
        }
        Ok(())
    }

    /// Hands out the page of a level, which has its high key, and begins the next one with the item that was its last.
    fn next_page<S: PageSink>(
        &mut self,
        at: usize,
        moved: &[u8],
        high_key: Vec<u8>,
        sink: &mut S,
    ) -> Result<(), BuildError<S::Error>> {
        let block = self.allocate()?;
        if self.levels.len() == at + 1 {
            self.add_level()?;
        }
        let Some(level) = self.levels.get_mut(at) else { return Ok(()) };
        let downlink = level.take_downlink();
        self.add_pivot(at + 1, &downlink, sink)?;
        let Some(level) = self.levels.get_mut(at) else { return Ok(()) };
        level.low_key = high_key;
        level.complete(block, 0);
        sink.page(level.block, &mut level.page)?;
        (level.prev, level.block) = (level.block, block);
        level.begin();
        if at == 0 {
            level.put(moved);
        } else {
            level.put_pivot(moved);
        }
        Ok(())
    }
}

/// How many rows a posting list has at most whose key takes this many bytes.
fn most_tids(size: usize) -> usize {
    (MAX_POSTING_SIZE / 8 * 8 - size) / ITEM_POINTER
}

/// The high key between two items of a leaf level: _bt_truncate. Its t_tid has the block number of the right one's.
fn high_key<W: Word>(shape: &KeyShape, left: &[u8], right: &[u8]) -> Vec<u8> {
    // What is on the page has been made of keys.
    let key = |tuple| shape.read_tuple::<W>(tuple).unwrap_or_default();
    let (left_key, right_key) = (key(left), key(right));
    let common = shape.common(left_key, right_key);
    let block = right.first_chunk().map_or(NO_BLOCK, |tid| Tid::from_bytes(*tid).block());
    let mut formed: Formed = shape.form(right_key, (common + 1).min(shape.len()));
    if common < shape.len() {
        formed.set_header(Tid::new(block, common as u16 + 1), formed.info() | INDEX_ALT_TID);
        return formed.bytes().to_vec();
    }
    let size = formed.bytes().len() + HEAP_TID;
    let info = formed.info() & !INDEX_SIZE_MASK | size as u16 | INDEX_ALT_TID;
    formed.set_header(Tid::new(block, common as u16 | BT_PIVOT_HEAP_TID), info);
    let mut tuple = formed.bytes().to_vec();
    tuple.resize(size, 0);
    put(&mut tuple, size - ITEM_POINTER, &max_tid(left).to_bytes());
    tuple
}

/// BTreeTupleGetMaxHeapTID
fn max_tid(tuple: &[u8]) -> Tid {
    match item(tuple) {
        Some((Item::Plain(tid), _)) => tid,
        Some((Item::Posting(tids), _)) => tids.last_chunk().map_or_else(Tid::default, |tid| Tid::from_bytes(*tid)),
        _ => Tid::default(),
    }
}

fn new_page() -> Box<Page> {
    Box::new(Page([0; PAGE_SIZE]))
}

/// Writes bytes that are within the others.
#[inline(always)]
fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = to.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

#[inline(always)]
fn line_pointer(at: usize, length: usize) -> u32 {
    let (at, length) = (at as u32, length as u32);
    if cfg!(target_endian = "big") { at << 17 | LP_NORMAL << 15 | length } else { at | LP_NORMAL << 15 | length << 17 }
}

impl Level {
    /// An empty page, with a line pointer for the high key: _bt_blnewpage.
    fn begin(&mut self) {
        self.lower = PAGE_HEADER + LINE_POINTER;
        self.upper = SPECIAL_START;
        self.last = P_HIKEY;
    }

    /// Is there room for a tuple, and is it not for the next page? Of the last item's posting list nothing will remain
    /// on this page if it becomes the high key.
    #[inline(always)]
    fn takes(&self, size: usize) -> bool {
        // PageGetFreeSpace
        let space = (self.upper - self.lower).saturating_sub(LINE_POINTER);
        let heap_tid = if self.level == 0 { HEAP_TID } else { 0 };
        space >= size + heap_tid && (space + self.last_extra >= self.full || self.last <= P_FIRSTKEY)
    }

    /// How many tuples of this size it takes without posting lists: what [`Self::takes`] says of one after the other.
    fn room(&self, size: usize) -> usize {
        if !self.takes(size) {
            return 0;
        }
        let used = size + LINE_POINTER;
        let space = (self.upper - self.lower).saturating_sub(LINE_POINTER + used);
        let least = self.full.max(size + HEAP_TID);
        // The first items are taken whatever the fillfactor.
        if self.last < P_FIRSTKEY || space < least { 1 } else { (space - least) / used + 2 }
    }

    /// Adds tuples without nulls and posting lists, for which there is room.
    #[inline(always)]
    fn fill<W: Word, const DATA: usize>(&mut self, entries: &[Entry<W>], data: impl Fn(W) -> [u8; DATA]) {
        let size = TUPLE_HEADER + DATA;
        let (pointers, tuples) = (entries.len() * LINE_POINTER, entries.len() * size);
        let (lower, upper) = (self.lower, self.upper);
        let Some(free) = self.page.0.get_mut(lower..upper) else { return };
        let Some((pointers_at, tuples_at)) = free.split_at_mut_checked(free.len() - tuples) else { return };
        let slots = pointers_at.as_chunks_mut::<LINE_POINTER>().0.iter_mut().zip(tuples_at.rchunks_exact_mut(size));
        let mut at = upper;
        for ((pointer, tuple), entry) in slots.zip(entries) {
            at -= size;
            *pointer = line_pointer(at, size).to_ne_bytes();
            if let Some((to, rest)) = tuple.split_first_chunk_mut() {
                *to = header(entry.tid(), size as u16);
                if let Some(to) = rest.first_chunk_mut() {
                    *to = data(entry.key());
                }
            }
        }
        self.lower += pointers;
        self.upper -= tuples;
        self.last += entries.len();
        self.last_extra = 0;
    }

    /// PageAddItem
    #[inline(always)]
    fn put(&mut self, tuple: &[u8]) {
        self.upper -= tuple.len();
        put(&mut self.page.0, self.upper, tuple);
        put(&mut self.page.0, self.lower, &line_pointer(self.upper, tuple.len()).to_ne_bytes());
        self.lower += LINE_POINTER;
        self.last += 1;
    }

    /// Adds an item to a page above the leaves, and the first one without its key: _bt_sortaddtup.
    fn put_pivot(&mut self, tuple: &[u8]) {
        if self.last > P_HIKEY {
            return self.put(tuple);
        }
        let block = tuple.first_chunk().map_or(NO_BLOCK, |tid| Tid::from_bytes(*tid).block());
        self.put(&minus_infinity(block));
    }

    fn item(&self, number: usize) -> &[u8] {
        let (at, _, length) = item_id(u32_at(&self.page.0, PAGE_HEADER + (number - 1) * LINE_POINTER));
        self.page.0.get(at..at + length).unwrap_or_default()
    }

    fn last_item(&self) -> &[u8] {
        self.item(self.last)
    }

    /// Removes the last item, which was the last one to be added.
    fn take_last(&mut self) -> Vec<u8> {
        let tuple = self.last_item().to_vec();
        self.upper += tuple.len();
        self.lower -= LINE_POINTER;
        self.last -= 1;
        tuple
    }

    fn put_high_key(&mut self, tuple: &[u8]) {
        self.upper -= tuple.len();
        put(&mut self.page.0, self.upper, tuple);
        put(&mut self.page.0, PAGE_HEADER, &line_pointer(self.upper, tuple.len()).to_ne_bytes());
    }

    /// Gives the place of the high key, which the last page of a level has not, to the items: _bt_slideleft.
    fn slide_left(&mut self) {
        self.page.0.copy_within(PAGE_HEADER + LINE_POINTER..self.lower, PAGE_HEADER);
        self.lower -= LINE_POINTER;
    }

    /// What the level above has of this page.
    fn take_downlink(&mut self) -> Vec<u8> {
        if self.low_key.is_empty() {
            return minus_infinity(self.block).to_vec();
        }
        let mut key = std::mem::take(&mut self.low_key);
        if let Some(tid) = key.first_chunk_mut() {
            *tid = Tid::new(self.block, Tid::from_bytes(*tid).offset()).to_bytes();
        }
        key
    }

    /// Writes what surrounds the items.
    fn complete(&mut self, next: u32, flags: u16) {
        let page = &mut self.page.0;
        page_header(page, self.lower, self.upper);
        if let Some(hole) = page.get_mut(self.lower..self.upper) {
            hole.fill(0);
        }
        special(page, self.prev, next, self.level, flags | if self.level == 0 { BTP_LEAF } else { 0 });
    }
}

/// A pivot without columns.
fn minus_infinity(block: u32) -> [u8; TUPLE_HEADER] {
    header(Tid::new(block, 0), TUPLE_HEADER as u16 | INDEX_ALT_TID)
}

fn page_header(page: &mut [u8; PAGE_SIZE], lower: usize, upper: usize) {
    const LAYOUT_VERSION: u16 = 4;
    let numbers = [0, 0, lower as u16, upper as u16, SPECIAL_START as u16, PAGE_SIZE as u16 | LAYOUT_VERSION, 0, 0];
    put(page, 0, &[0; 8]);
    for (i, number) in numbers.into_iter().enumerate() {
        put(page, 8 + 2 * i, &number.to_ne_bytes());
    }
}

fn special(page: &mut [u8; PAGE_SIZE], prev: u32, next: u32, level: u32, flags: u16) {
    for (i, number) in [prev, next, level].into_iter().enumerate() {
        put(page, SPECIAL_START + 4 * i, &number.to_ne_bytes());
    }
    put(page, SPECIAL_START + 12, &flags.to_ne_bytes());
    put(page, SPECIAL_START + 14, &[0; 2]);
}

/// _bt_initmetapage
fn metapage(page: &mut Page, root: u32, level: u32, all_equal_image: bool) {
    let page = &mut page.0;
    page.fill(0);
    for (i, number) in [MAGIC, VERSION, root, level, root, level].into_iter().enumerate() {
        put(page, PAGE_HEADER + 4 * i, &number.to_ne_bytes());
    }
    put(page, PAGE_HEADER + 32, &(-1.0f64).to_ne_bytes());
    put(page, PAGE_HEADER + 40, &[u8::from(all_equal_image)]);
    page_header(page, PAGE_HEADER + size_of::<super::Meta>(), SPECIAL_START);
    special(page, NO_BLOCK, NO_BLOCK, 0, BTP_META);
}
