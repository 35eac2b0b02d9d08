//! Appending finished pages to a heap.
//!
//! ```text
//!   baton ─► extension lock ─► end of file ─► segments, space ─► ctids ─► WAL ─► flush ─► write ─► sync request ─► pass on
//!   └ may raise, wait, be interrupted ────────────────────────┘└ raises nothing, interrupts are held ──────────────┘
//! ```
//!
//! Pages are written past the end of the file, complete, in order, around shared buffers. Each step is where it is
//! because a row is lost otherwise:
//!
//! * **Complete pages in order.** Whatever is below the end of the file belongs to shared buffers: a reader may cache
//!   it, VACUUM or an INSERT may use it if it is empty. A page that is written later would never be seen. So the end
//!   of the file never passes a page that is not written, and a page is never written twice. This holds even where
//!   nobody else can see the relation, for expressions of the load may read it.
//! * **WAL before data**, flushed: else a power loss leaves a page that no WAL can restore, with an LSN from the future,
//!   or with an xid that will be given out again. Where the file is new in this transaction nothing refers to it after
//!   a crash, and the flush is left out.
//! * **No checkpoint in between** (`DELAY_CHKPT_START`): its redo point would lie behind the record, its syncs before
//!   the data.
//! * **What can fail comes first.** Once there is WAL for a page, recovery and standbys will make it. A disk that turns
//!   out full after that is a server that does not start again. So segments are opened and space is allocated before.
//!   Should a write fail all the same, WAL for empty pages takes the place of what was not written.
//! * **A sync request for each segment touched, after the write**: a checkpoint may already have dealt with an earlier
//!   one.
//! * **WAL is one XLOG_HEAP2_MULTI_INSERT record a page**, as heap_multi_insert (heapam.c) writes it for a page that it
//!   fills: as small as COPY's, decodable, and never a page image for wal_compression to work on.

use std::ffi::c_char;

use pg_bulk_format::page::PageBatch;
use pgrx::pg_sys;

use super::baton::Baton;
use super::compat;
use super::points::{point, point_quiet};
use super::section::{Redo, Section};
use super::segment::{Pieces, RelationFile};
use super::stages::{Stage, Stages, Watch};
use crate::error::Result;

const BLCKSZ: usize = pg_sys::BLCKSZ as usize;
const MAIN: pg_sys::ForkNumber::Type = pg_sys::ForkNumber::MAIN_FORKNUM;
/// XLOG_HEAP2_MULTI_INSERT | XLOG_HEAP_INIT_PAGE (heapam_xlog.h)
const MULTI_INSERT_INIT: u8 = 0x50 | 0x80;
/// XLH_INSERT_LAST_IN_MULTI (heapam_xlog.h)
const LAST_IN_MULTI: u8 = 1 << 1;
/// XLH_INSERT_CONTAINS_NEW_TUPLE (heapam_xlog.h)
const CONTAINS_NEW_TUPLE: u8 = 1 << 3;
/// XLH_INSERT_ALL_FROZEN_SET (heapam_xlog.h)
const ALL_FROZEN: u8 = 1 << 5;
/// XLOG_INCLUDE_ORIGIN (xlog.h)
const INCLUDE_ORIGIN: u8 = 0x01;

/// What of a relation decides how pages are appended to it. The leader finds out and tells the workers, who cannot
/// know that a relation is new in this transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Traits {
    /// Others may extend the relation, too: take its extension lock.
    pub shared: bool,
    /// The file was there before this transaction: WAL must be on disk before data.
    pub existed: bool,
    /// RelationNeedsWAL
    pub needs_wal: bool,
    /// RelationIsLogicallyLogged
    pub logical: bool,
    pub temporary: bool,
}

impl Traits {
    /// The traits of an open relation, as the leader sees them.
    ///
    /// # Safety
    /// A valid relation, in the process that may have made it.
    pub unsafe fn of(relation: pg_sys::Relation) -> Traits {
        // SAFETY: this function's contract covers the relation; reads settings of this process.
        unsafe {
            let new = compat::is_new_file(relation);
            let persistence = (*(*relation).rd_rel).relpersistence.cast_unsigned();
            let temporary = persistence == pg_sys::RELPERSISTENCE_TEMP;
            let level = pg_sys::wal_level;
            let needs_wal = compat::needs_wal(relation);
            let logical = needs_wal && level >= pg_sys::WalLevel::WAL_LEVEL_LOGICAL.cast_signed();
            Traits { shared: !temporary && !new, existed: !temporary && !new, needs_wal, logical, temporary }
        }
    }
}

/// Appends to one relation.
#[derive(Debug)]
pub struct Appender {
    relation: pg_sys::Relation,
    traits: Traits,
    frozen: bool,
    file: RelationFile,
    /// The redo point when a batch was last appended.
    redo: Redo,
    /// The data of one WAL record.
    wal: Vec<u8>,
    /// Other processes append, too: one had the baton when it was asked for.
    contended: bool,
    appended: Appended,
}

/// What an appender has done.
#[derive(Debug, Default)]
pub struct Appended {
    pub pages: u64,
    pub stages: Stages,
}

impl Appended {
    fn new() -> Appended {
        Appended { pages: 0, stages: Stages::new() }
    }
}

/// The extension lock.
pub struct ExtensionLock(pg_sys::Relation);

impl ExtensionLock {
    pub fn take(relation: pg_sys::Relation) -> ExtensionLock {
        // SAFETY: a guarded call on an open relation.
        unsafe { pg_sys::LockRelationForExtension(relation, pg_sys::ExclusiveLock.cast_signed()) };
        ExtensionLock(relation)
    }
}

impl Drop for ExtensionLock {
    fn drop(&mut self) {
        // SAFETY: the lock is held. Should the transaction have aborted meanwhile, this is a warning.
        unsafe { pg_sys::UnlockRelationForExtension(self.0, pg_sys::ExclusiveLock.cast_signed()) };
    }
}

impl Appender {
    /// An appender for an open relation. Guarded.
    /// `frozen`: all tuples are.
    pub fn new(relation: pg_sys::Relation, traits: Traits, frozen: bool) -> Result<Appender> {
        let file = RelationFile::new(relation, traits.temporary)?;
        let (wal, appended) = (Vec::new(), Appended::new());
        Ok(Appender { relation, traits, frozen, file, redo: Redo::now(), wal, contended: false, appended })
    }

    pub fn traits(&self) -> Traits {
        self.traits
    }

    /// Has another process been waited for?
    pub fn is_contended(&self) -> bool {
        self.contended
    }

    /// What was done since this was asked for.
    pub fn take_appended(&mut self) -> Appended {
        std::mem::replace(&mut self.appended, Appended::new())
    }

    /// Append the complete pages of a batch. Their tuples learn where they are. Returns the block number of the first
    /// one. Guarded.
    pub fn append(&mut self, batch: &mut PageBatch, baton: &Baton) -> Result<u32> {
        let count = batch.complete();
        point!("append.begin");
        let mut watch = self.appended.stages.watch();
        let held = baton.take();
        self.contended |= held.waited;
        self.appended.stages.lap(&mut watch, Stage::Baton);
        point!("append.baton");
        if self.traits.needs_wal {
            self.redo.let_checkpoint_pass();
        }
        let lock = self.traits.shared.then(|| ExtensionLock::take(self.relation));
        // SAFETY: guarded calls on an open relation. The storage manager's relation is fetched anew, for it may have
        // been closed while we waited.
        let first = unsafe { pg_sys::smgrnblocks(pg_sys::RelationGetSmgr(self.relation), MAIN) };
        let pieces = self.file.open_pieces(first, count)?;
        pgrx::check_for_interrupts!();
        point!("append.ready");
        self.appended.stages.lap(&mut watch, Stage::Space);
        let written = self.log_and_write(batch, count, first, &pieces, &mut watch);
        drop(pieces);
        drop(lock);
        drop(held);
        point!("append.done");
        self.appended.stages.lap(&mut watch, Stage::Write);
        self.appended.pages += count as u64;
        written.map(|()| first)
    }

    /// The part in which nothing may be raised.
    fn log_and_write(
        &mut self,
        batch: &mut PageBatch,
        count: usize,
        first: u32,
        pieces: &Pieces,
        watch: &mut Watch,
    ) -> Result<()> {
        batch.set_block_numbers(first);
        let section = Section::begin(self.traits.needs_wal);
        if self.traits.needs_wal {
            section.critically(|| {
                let mut end = 0;
                point_quiet!("append.flagged");
                for page in 0..count {
                    point_quiet!("append.log");
                    end = self.log_page(batch, page, first + page as u32);
                    batch.set_lsn(page, end);
                }
                point_quiet!("append.logged");
                self.appended.stages.lap(watch, Stage::Log);
                // SAFETY: in a critical section, where an error would be a panic of the server, as in core.
                unsafe {
                    if self.traits.existed {
                        pg_sys::XLogFlush(end);
                        point_quiet!("append.flushed");
                        self.appended.stages.lap(watch, Stage::Flush);
                    } else {
                        // Nobody waits for it before the commit. But what the WAL writer has on disk by then need
                        // not be waited for, nor written by us when the WAL buffers are full.
                        pg_sys::XLogSetAsyncXactLSN(end);
                    }
                }
            });
        }
        for page in 0..count {
            // SAFETY: a page of the batch.
            unsafe { pg_sys::PageSetChecksumInplace(batch.as_ptr(page).cast::<c_char>(), first + page as u32) };
        }
        let (written, outcome) = self.file.write(&pieces.list, batch.pages(), &section);
        if outcome.is_err() && self.traits.needs_wal {
            section.critically(|| self.log_empty(first, written, count));
            point_quiet!("append.emptied");
        }
        drop(section);
        outcome
    }

    /// Log one page. Returns the end of its record.
    fn log_page(&mut self, batch: &mut PageBatch, page: usize, block: u32) -> pg_sys::XLogRecPtr {
        self.wal.clear();
        let tuples = batch.wal_data(page, &mut self.wal);
        // Each page is the last of its "multi insert": it ends what decoding keeps of out-of-line values.
        let mut flags = LAST_IN_MULTI;
        if self.traits.logical {
            flags |= CONTAINS_NEW_TUPLE;
        }
        if self.frozen {
            flags |= ALL_FROZEN;
        }
        // xl_heap_multi_insert: flags, a byte of padding, the number of tuples; no offsets, as the page is new.
        let tuples = tuples.to_ne_bytes();
        let [low, high] = tuples;
        let mut record = [flags, 0, low, high];
        let mut keep = pg_sys::REGBUF_STANDARD | pg_sys::REGBUF_WILL_INIT;
        if self.traits.logical {
            keep |= pg_sys::REGBUF_KEEP_DATA;
        }
        // SAFETY: in a critical section, as core logs; the data outlive XLogInsert, and the block is the relation's.
        unsafe {
            pg_sys::XLogBeginInsert();
            compat::xlog_register_data(record.as_mut_ptr(), record.len());
            let page = batch.as_ptr(page);
            compat::xlog_register_block(self.relation, MAIN, block, page.cast(), keep as u8);
            compat::xlog_register_block_data(self.wal.as_mut_ptr(), self.wal.len());
            if self.traits.logical {
                pg_sys::XLogSetRecordFlags(INCLUDE_ORIGIN);
            }
            pg_sys::XLogInsert(pg_sys::RmgrIds::RM_HEAP2_ID as u8, MULTI_INSERT_INIT)
        }
    }

    /// Pages `from..to` were logged but could not be written: log that they are empty, so that the rows of a
    /// transaction that is going to fail exist nowhere.
    fn log_empty(&self, first: u32, from: usize, to: usize) {
        let mut empty = AlignedPage([0; BLCKSZ]);
        let mut end = 0;
        for page in from..to {
            // SAFETY: in a critical section; a page of its own.
            unsafe {
                pg_sys::PageInit(empty.0.as_mut_ptr().cast(), BLCKSZ, 0);
                end = compat::log_newpage(self.relation, MAIN, first + page as u32, empty.0.as_mut_ptr().cast());
            }
        }
        // SAFETY: in a critical section.
        unsafe { pg_sys::XLogFlush(end) };
    }
}

#[repr(C, align(4096))]
struct AlignedPage([u8; BLCKSZ]);
