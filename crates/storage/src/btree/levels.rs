//! The levels of a tree under construction: tuples in, pages out. This module does not look into the tuples.
//!
//! The tricky point is that a page's last item becomes the next page's first item, and the page's high key is made of
//! it. The high key of a leaf is made when both neighbors are known. It must not be longer than the item that it
//! replaces by more than a TID.
//!
//! A [`part`] of a tree has leaves only. The tuples for the level above are kept until the parts are joined.

mod part;

pub(super) use self::part::Links;
pub use self::part::TreePart;
use self::part::Unlinked;
use super::entry::{Entry, Tid, Word};
use super::sink::{BlockSource, BuildError, Built, Options, Page, PageSink};
use super::tuple::{Item, header, item};
use super::{
    BTP_LEAF, BTP_META, BTP_ROOT, INDEX_ALT_TID, ITEM_POINTER, LP_NORMAL, MAGIC, METAPAGE, NO_BLOCK,
    NONLEAF_FILLFACTOR, P_FIRSTKEY, P_HIKEY, SPECIAL_START, TUPLE_HEADER, VERSION, item_id, put, u32_at,
};
use crate::page::{LINE_POINTER, PAGE_HEADER, PAGE_SIZE};
use crate::tuple::max_align;

/// The open pages of a tree, from the leaf level up.
#[derive(Debug)]
pub(super) struct Levels {
    options: Options,
    levels: Vec<Level>,
    /// The next blocks: btws_pages_alloced if they are consecutive.
    blocks: Box<dyn BlockSource>,
    /// The highest block plus one.
    pages: u32,
    /// Set for a part, which has only the leaf level: the tuples for the level above, and its first leaf.
    part: Option<Unlinked>,
}

/// All blocks of a file, in order.
#[derive(Debug)]
pub(super) struct Ascending(pub(super) u32);

impl BlockSource for Ascending {
    fn next(&mut self) -> Option<u32> {
        let block = self.0;
        // MaxBlockNumber is one less than InvalidBlockNumber.
        self.0 = block.checked_add(1).filter(|_| block < u32::MAX - 1)?;
        Some(block)
    }
}

/// BTPageState: the open page of a level.
#[derive(Debug)]
pub(super) struct Level {
    pub(super) page: Box<Page>,
    block: u32,
    /// The block before it on its level.
    prev: u32,
    level: u32,
    lower: usize,
    upper: usize,
    /// Offset number of the last item; P_HIKEY on an empty page.
    last: usize,
    /// Size of the last item's posting list, in bytes.
    pub(super) last_extra: usize,
    /// Free space to leave on the page, in bytes, if possible.
    full: usize,
    /// The key of the page in the level above: the high key of the page before it.
    low_key: Vec<u8>,
}

/// Space for a TID at the end of a high key.
pub(super) const HEAP_TID: usize = max_align(ITEM_POINTER);

impl Levels {
    pub(super) fn new(options: Options) -> Self {
        Self::with_blocks(options, Box::new(Ascending(METAPAGE + 1)))
    }

    fn with_blocks(options: Options, blocks: Box<dyn BlockSource>) -> Self {
        Self { options, levels: Vec::new(), blocks, pages: METAPAGE + 1, part: None }
    }

    /// Begins the leaf level, unless it exists.
    #[inline(always)]
    pub(super) fn begin<E>(&mut self) -> Result<(), BuildError<E>> {
        if self.levels.is_empty() { self.add_level() } else { Ok(()) }
    }

    /// The open leaf.
    #[inline(always)]
    pub(super) fn leaf(&mut self) -> Option<&mut Level> {
        self.levels.first_mut()
    }

    /// Adds a tuple to the leaf level: _bt_buildadd. It ends with a posting list of `extra` bytes. `high_key` makes the
    /// high key between two neighbors: _bt_truncate.
    #[inline(always)]
    pub(super) fn add_item<S: PageSink>(
        &mut self,
        tuple: &[u8],
        extra: usize,
        high_key: impl FnOnce(&[u8], &[u8]) -> Vec<u8>,
        sink: &mut S,
    ) -> Result<(), BuildError<S::Error>> {
        if self.levels.first().is_none_or(|leaf| !leaf.takes(tuple.len())) {
            self.next_leaf(high_key, sink)?;
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
    pub(super) fn next_leaf<S: PageSink>(
        &mut self,
        high_key: impl FnOnce(&[u8], &[u8]) -> Vec<u8>,
        sink: &mut S,
    ) -> Result<(), BuildError<S::Error>> {
        let Some(leaf) = self.levels.first_mut() else { return Ok(()) };
        let moved = leaf.take_last();
        let high_key = high_key(leaf.last_item(), &moved);
        leaf.put_high_key(&high_key);
        self.next_page(0, &moved, high_key, sink)
    }

    /// Completes the open pages and adds the metapage: _bt_uppershutdown.
    pub(super) fn finish<S: PageSink>(mut self, entries: u64, sink: &mut S) -> Result<Built, BuildError<S::Error>> {
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
        Ok(Built { pages: self.pages, entries, levels })
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
        let block = self.blocks.next().ok_or(BuildError::Full)?;
        self.pages = self.pages.max(block + 1);
        Ok(block)
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

    /// Passes the page of a level, with its high key, to the sink, and begins the next page with the item `moved`.
    fn next_page<S: PageSink>(
        &mut self,
        at: usize,
        moved: &[u8],
        high_key: Vec<u8>,
        sink: &mut S,
    ) -> Result<(), BuildError<S::Error>> {
        let block = self.allocate()?;
        if self.levels.len() == at + 1 && self.part.is_none() {
            self.add_level()?;
        }
        let Some(level) = self.levels.get_mut(at) else { return Ok(()) };
        let downlink = level.take_downlink();
        match &mut self.part {
            Some(part) => part.add_link(&downlink)?,
            None => self.add_pivot(at + 1, &downlink, sink)?,
        }
        let Some(level) = self.levels.get_mut(at) else { return Ok(()) };
        level.low_key = high_key;
        level.complete(block, 0);
        match &mut self.part {
            Some(part) if part.first.is_none() => part.first = Some(std::mem::replace(&mut level.page, new_page())),
            _ => sink.page(level.block, &mut level.page)?,
        }
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

/// BTreeTupleGetMaxHeapTID
pub(super) fn max_tid(tuple: &[u8]) -> Tid {
    match item(tuple) {
        Some((Item::Plain(tid), _)) => tid,
        Some((Item::Posting(tids), _)) => tids.last_chunk().map_or_else(Tid::default, |tid| Tid::from_bytes(*tid)),
        _ => Tid::default(),
    }
}

fn new_page() -> Box<Page> {
    Box::new(Page([0; PAGE_SIZE]))
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

    /// Whether a tuple belongs on this page: it fits, and the fillfactor is not reached. The last item's posting list
    /// counts as free space, because a high key made of the item omits it.
    #[inline(always)]
    pub(super) fn takes(&self, size: usize) -> bool {
        // PageGetFreeSpace
        let space = (self.upper - self.lower).saturating_sub(LINE_POINTER);
        let heap_tid = if self.level == 0 { HEAP_TID } else { 0 };
        space >= size + heap_tid && (space + self.last_extra >= self.full || self.last <= P_FIRSTKEY)
    }

    /// The number of tuples of this size, without posting lists, for which [`Self::takes`] would return true in turn.
    pub(super) fn room(&self, size: usize) -> usize {
        if !self.takes(size) {
            return 0;
        }
        let used = size + LINE_POINTER;
        let space = (self.upper - self.lower).saturating_sub(LINE_POINTER + used);
        let least = self.full.max(size + HEAP_TID);
        // The first items are added with any fillfactor.
        if self.last < P_FIRSTKEY || space < least { 1 } else { (space - least) / used + 2 }
    }

    /// Adds tuples without nulls and posting lists. The page must have room for them.
    #[inline(always)]
    pub(super) fn fill<W: Word, const DATA: usize>(&mut self, entries: &[Entry<W>], data: impl Fn(W) -> [u8; DATA]) {
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
    pub(super) fn put(&mut self, tuple: &[u8]) {
        self.upper -= tuple.len();
        put(&mut self.page.0, self.upper, tuple);
        put(&mut self.page.0, self.lower, &line_pointer(self.upper, tuple.len()).to_ne_bytes());
        self.lower += LINE_POINTER;
        self.last += 1;
    }

    /// Adds an item to a page above the leaves. The first one is stored without its key: _bt_sortaddtup.
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

    /// Removes the last item, which was added last.
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

    /// Moves the items to the position of the high key, which the last page of a level does not have: _bt_slideleft.
    pub(super) fn slide_left(&mut self) {
        self.page.0.copy_within(PAGE_HEADER + LINE_POINTER..self.lower, PAGE_HEADER);
        self.lower -= LINE_POINTER;
    }

    /// Returns the tuple of the level above that leads to this page.
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

    /// Writes the header, the hole and the special space.
    pub(super) fn complete(&mut self, next: u32, flags: u16) {
        let page = &mut self.page.0;
        page_header(page, self.lower, self.upper);
        if let Some(hole) = page.get_mut(self.lower..self.upper) {
            hole.fill(0);
        }
        special(page, self.prev, next, self.level, flags | if self.level == 0 { BTP_LEAF } else { 0 });
    }
}

/// Turns a high key into the tuple of the level above that leads to a block.
pub fn lead_to(link: &mut [u8], block: u32) {
    if let Some(tid) = link.first_chunk_mut() {
        *tid = Tid::new(block, Tid::from_bytes(*tid).offset()).to_bytes();
    }
}

/// A pivot tuple without columns.
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
