//! Appends finished pages to a heap, past the end of its file and around shared buffers.
//!
//! ```text
//!   append lock ─► extension lock ─► EOF ─► segments, space ─► ctids ─► WAL ─► flush ─► write ─► sync ─► release
//!   └ may raise, wait, be interrupted ────────────────────────┘└ raises nothing, interrupts are held ──────────┘
//! ```
//!
//! The pages are complete and are appended in order. A row would be lost if any step were left out or moved:
//!
//! * **Complete pages in order.** Blocks below the end of the file belong to shared buffers. A reader may cache an
//!   empty block there, and VACUUM or an INSERT may use it. Such a process would never see a page that is written
//!   later. So every block below the end of the file is written, and no page is written twice. This also holds for a
//!   relation that other transactions cannot see, because expressions of the load may read it.
//! * **WAL before data**, flushed. Otherwise a power loss could leave a page that no WAL restores. The page could have
//!   an LSN from the future, or an xid that the server assigns again. The flush is left out for a file that is new in
//!   this transaction: nothing refers to that file after a crash.
//! * **No checkpoint in between** (`DELAY_CHKPT_START`). The redo point of such a checkpoint would lie behind the
//!   record, and its syncs would come before the data.
//! * **Steps that can fail come first.** Recovery and standbys write every page that has WAL. If the disk turns out
//!   full after the WAL is logged, the server cannot start again. So segments are opened and space is allocated before.
//!   If a write fails nevertheless, WAL for empty pages replaces the pages that were not written.
//! * **A sync request for each touched segment, after the write.** A checkpoint may have processed an earlier request
//!   already.
//! * **WAL is one XLOG_HEAP2_MULTI_INSERT record per page**, in the format of heap_multi_insert (heapam.c) for a page
//!   that it fills. It is as small as COPY's WAL and can be decoded. It holds no page image, which wal_compression
//!   would have to compress.

use pg_bulk_storage::page::{PAGE_SIZE, Page, PageBatch};
use pgrx::pg_sys;

use super::append_lock::AppendLock;
use super::segment::{OpenSegments, RelationFile};
use crate::error::Result;
use crate::server::compat::{self, PageChange};
use crate::server::points::{point, point_quiet};
use crate::server::relation::Relation;
use crate::server::section::{Redo, Section};
use crate::server::sent::sent;
use crate::server::stages::{Stage, Stages, Watch};

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

sent! {
    /// Properties of a relation that decide how pages are appended to it. The leader determines them and sends them to the
    /// workers, because a worker cannot know that a relation is new in this transaction.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Traits {
        /// Other transactions may extend the relation, so appends take its extension lock.
        pub shared: bool,
        /// The file existed before this transaction: WAL must be on disk before data.
        pub existed: bool,
        /// RelationNeedsWAL
        pub needs_wal: bool,
        /// RelationIsLogicallyLogged
        pub logical: bool,
        pub temporary: bool,
    }
}

impl Traits {
    /// Returns the traits of a relation. Only the leader, which has created the relation if it is new in this
    /// transaction, can determine them.
    pub fn of(relation: Relation<'_>) -> Traits {
        let new = compat::is_new_file(relation);
        let temporary = relation.persistence() == pg_sys::RELPERSISTENCE_TEMP;
        // SAFETY: a setting.
        let level = unsafe { pg_sys::wal_level };
        let needs_wal = compat::needs_wal(relation);
        let logical = needs_wal && level >= pg_sys::WalLevel::WAL_LEVEL_LOGICAL.cast_signed();
        Traits { shared: !temporary && !new, existed: !temporary && !new, needs_wal, logical, temporary }
    }
}

/// Appends pages to one relation.
#[derive(Debug)]
pub struct Appender {
    relation: Relation<'static>,
    traits: Traits,
    frozen: bool,
    file: RelationFile<'static>,
    /// Redo point when the latest batch was appended.
    redo: Redo,
    /// Data of one WAL record.
    wal: Vec<u8>,
    /// Another process of the load held the append lock when this one asked for it.
    contended: bool,
    appended: Appended,
}

/// Work done by an appender.
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

/// A held relation extension lock.
pub struct ExtensionLock<'a>(Relation<'a>);

impl<'a> ExtensionLock<'a> {
    pub fn take(relation: Relation<'a>) -> ExtensionLock<'a> {
        // SAFETY: a guarded call on an open relation.
        unsafe { pg_sys::LockRelationForExtension(relation.as_ptr(), pg_sys::ExclusiveLock.cast_signed()) };
        ExtensionLock(relation)
    }
}

impl Drop for ExtensionLock<'_> {
    fn drop(&mut self) {
        // SAFETY: the lock is held. If the transaction has aborted meanwhile, this only raises a warning.
        unsafe { pg_sys::UnlockRelationForExtension(self.0.as_ptr(), pg_sys::ExclusiveLock.cast_signed()) };
    }
}

impl Appender {
    /// Creates an appender for an open relation. `frozen`: all tuples are frozen. Guarded.
    pub fn new(relation: Relation<'static>, traits: Traits, frozen: bool) -> Result<Appender> {
        let file = RelationFile::new(relation, traits.temporary)?;
        let (wal, appended) = (Vec::new(), Appended::new());
        Ok(Appender { relation, traits, frozen, file, redo: Redo::now(), wal, contended: false, appended })
    }

    pub fn traits(&self) -> Traits {
        self.traits
    }

    /// Returns true if this appender has waited for another process.
    pub fn is_contended(&self) -> bool {
        self.contended
    }

    /// Returns the work done since the previous call.
    pub fn take_appended(&mut self) -> Appended {
        std::mem::replace(&mut self.appended, Appended::new())
    }

    /// Appends the complete pages of a batch and sets the positions of their tuples. Returns the block number of the
    /// first page. Guarded.
    pub fn append(&mut self, batch: &mut PageBatch, append_lock: &AppendLock) -> Result<u32> {
        let count = batch.complete();
        point!("append.begin");
        let mut watch = self.appended.stages.watch();
        let held = append_lock.take();
        self.contended |= held.waited;
        self.appended.stages.lap(&mut watch, Stage::WaitToAppend);
        point!("append.lock");
        if self.traits.needs_wal {
            self.redo.let_checkpoint_pass();
        }
        let lock = self.traits.shared.then(|| ExtensionLock::take(self.relation));
        let first = self.relation.pages();
        let segments = self.file.open_segments(first, count)?;
        pgrx::check_for_interrupts!();
        point!("append.ready");
        self.appended.stages.lap(&mut watch, Stage::Space);
        let written = self.log_and_write(batch, count, first, &segments, &mut watch);
        drop(segments);
        drop(lock);
        drop(held);
        point!("append.done");
        self.appended.stages.lap(&mut watch, Stage::Write);
        self.appended.pages += count as u64;
        written.map(|()| first)
    }

    /// Logs and writes the pages. Nothing here may raise an error.
    fn log_and_write(
        &mut self,
        batch: &mut PageBatch,
        count: usize,
        first: u32,
        segments: &OpenSegments,
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
                }
                point_quiet!("append.logged");
                self.appended.stages.lap(watch, Stage::Log);
                // SAFETY: in a critical section, as in core: an error here would be a PANIC.
                unsafe {
                    if self.traits.existed {
                        pg_sys::XLogFlush(end);
                        point_quiet!("append.flushed");
                        self.appended.stages.lap(watch, Stage::Flush);
                    } else {
                        // The flush at commit waits only for WAL that is not yet on disk. So the WAL writer writes now,
                        // and this process need not write when the WAL buffers are full.
                        pg_sys::XLogSetAsyncXactLSN(end);
                    }
                }
            });
        }
        for (number, block) in (0..count).zip(first..) {
            if let Some(page) = batch.page_mut(number) {
                compat::set_checksum(page, block);
            }
        }
        let (written, outcome) = self.file.write(&segments.list, batch.pages(), &section);
        if outcome.is_err() && self.traits.needs_wal {
            section.critically(|| self.log_empty(first, written, count));
            point_quiet!("append.emptied");
        }
        drop(section);
        outcome
    }

    /// Logs one page, and sets its LSN. Returns the end of its record.
    fn log_page(&mut self, batch: &mut PageBatch, page: usize, block: u32) -> pg_sys::XLogRecPtr {
        let Traits { logical, .. } = self.traits;
        self.wal.clear();
        let tuples = batch.wal_data(page, &mut self.wal);
        // Each page is the last of its "multi insert": logical decoding then drops the out-of-line values that it kept.
        let flags =
            LAST_IN_MULTI | if logical { CONTAINS_NEW_TUPLE } else { 0 } | if self.frozen { ALL_FROZEN } else { 0 };
        // xl_heap_multi_insert: flags, a byte of padding, number of tuples. A new page needs no offsets.
        let [low, high] = tuples.to_ne_bytes();
        let record = [flags, 0, low, high];
        let keep =
            pg_sys::REGBUF_STANDARD | pg_sys::REGBUF_WILL_INIT | if logical { pg_sys::REGBUF_KEEP_DATA } else { 0 };
        let Some(page) = batch.page_mut(page) else { return 0 };
        let id = (pg_sys::RmgrIds::RM_HEAP2_ID, MULTI_INSERT_INIT);
        let change = PageChange { block, page, flags: keep, data: &self.wal };
        let end = compat::log_change(self.relation, id, if logical { INCLUDE_ORIGIN } else { 0 }, &record, change);
        page.set_lsn(end);
        end
    }

    /// Logs pages `from..to`, which could not be written, as empty. The transaction is going to fail, and its rows must
    /// not exist anywhere.
    fn log_empty(&self, first: u32, from: usize, to: usize) {
        let mut empty = Page::ZERO;
        let mut end = 0;
        for page in from..to {
            // SAFETY: a page, which this initializes. Guarded.
            unsafe { pg_sys::PageInit(empty.0.as_mut_ptr().cast(), PAGE_SIZE, 0) };
            end = compat::log_newpage(self.relation, first + page as u32, &mut empty);
        }
        // SAFETY: in a critical section.
        unsafe { pg_sys::XLogFlush(end) };
    }
}
