//! Descends from an index's metapage to a leaf.

use super::tuple::{Item, item};
use super::{
    BTP_LEAF, BTP_META, INDEX_NULL, MAGIC, METAPAGE, NO_BLOCK, SPECIAL_START, VERSION, item_id, u16_at, u32_at,
};
use crate::btree::entry::Tid;
use crate::page::{LINE_POINTER, PAGE_HEADER, PAGE_SIZE};

/// The contents of the metapage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metapage {
    /// btm_root; [`NO_BLOCK`] if the index is empty.
    pub root: u32,
    /// btm_level: number of levels above the leaves.
    pub level: u32,
    /// btm_allequalimage
    pub all_equal_image: bool,
}

impl Metapage {
    /// Reads a metapage. `None` if the page is not one, or if its version does not order equal keys by TID.
    #[must_use]
    pub fn new(page: &[u8; PAGE_SIZE]) -> Option<Self> {
        let sane = usize::from(u16_at(page, 16)) == SPECIAL_START
            && u16_at(page, SPECIAL_START + 12) & BTP_META != 0
            && u32_at(page, PAGE_HEADER) == MAGIC
            && u32_at(page, PAGE_HEADER + 4) == VERSION;
        sane.then(|| Self {
            root: u32_at(page, PAGE_HEADER + 8),
            level: u32_at(page, PAGE_HEADER + 12),
            all_equal_image: page.get(PAGE_HEADER + 40).is_some_and(|byte| *byte != 0),
        })
    }
}

/// Returns the child at the fraction `part`, from 0 to 1, of all entries below a page at this level above the leaves, and
/// the fraction that remains within that child. `None` if the page is not at this level.
#[must_use]
pub fn child_at(page: &[u8; PAGE_SIZE], level: u32, part: f64) -> Option<(u32, f64)> {
    let sane = usize::from(u16_at(page, 16)) == SPECIAL_START
        && u16_at(page, SPECIAL_START + 12) & (BTP_META | BTP_LEAF) == 0
        && level > 0
        && u32_at(page, SPECIAL_START + 8) == level;
    if !sane {
        return None;
    }
    // P_FIRSTDATAKEY
    let number = if u32_at(page, SPECIAL_START + 4) == NO_BLOCK { 0 } else { 1 };
    let items = (usize::from(u16_at(page, 12)).saturating_sub(PAGE_HEADER) / LINE_POINTER).saturating_sub(number);
    let place = part.clamp(0.0, 1.0) * items as f64;
    let behind = (place as usize).min(items.saturating_sub(1));
    let pointer = PAGE_HEADER + (number + behind) * LINE_POINTER;
    if pointer + LINE_POINTER > usize::from(u16_at(page, 12)) {
        return None;
    }
    let (at, _, length) = item_id(u32_at(page, pointer));
    let tuple = page.get(at..at + length)?;
    let child = Tid::from_bytes(*tuple.first_chunk()?).block();
    let leads = matches!(item(tuple)?, (Item::Pivot, _)) && u16_at(tuple, 6) & INDEX_NULL == 0 && child != METAPAGE;
    leads.then_some((child, place - behind as f64))
}
