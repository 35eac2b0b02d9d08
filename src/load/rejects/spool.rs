//! Rejects of a running load: in memory while they are few, else in a temporary file.
//!
//! The spool of a job survives its transaction: it is in memory of the process, and in a file that no transaction
//! closes. A process runs one job at a time; after that has failed and its transaction has ended, the job [takes](take)
//! the spool.

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::CString;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::Reject;
use crate::error::{Error, Result, out_of_memory};
use crate::guc;
use crate::server::buf_file::{BufFile, Place};
use crate::server::memory_context::MemoryContext;

/// The load that the rejects belong to.
#[derive(Debug, Clone)]
pub struct About {
    pub load_id: i64,
    pub attempt: i32,
    pub owner: pg_sys::Oid,
    pub relid: pg_sys::Oid,
    /// The target's name with its schema, quoted.
    pub target: CString,
    pub path: CString,
    /// The extension's schema.
    pub schema: pg_sys::Oid,
    /// The load has a limit in percent, which may end it after all its rows.
    pub may_exceed_share: bool,
}

/// Rejects of a load.
#[derive(Debug)]
pub struct Spool {
    pub about: About,
    memory: RefCell<Vec<u8>>,
    file: OnceCell<BufFile>,
    /// Transactions do not close the file.
    survives: bool,
    /// The file is incomplete.
    broken: Cell<bool>,
    /// Rejects that are kept, and the most to keep.
    count: Cell<u64>,
    most: u64,
}

/// The spool that survives its transaction, or null.
static SURVIVING: AtomicPtr<Spool> = AtomicPtr::new(std::ptr::null_mut());

/// Takes the surviving spool, if there is one.
pub fn take() -> Option<Box<Spool>> {
    let spool = SURVIVING.swap(std::ptr::null_mut(), Relaxed);
    // SAFETY: made by Box::into_raw in `Spool::open`, and unused since its load has ended.
    (!spool.is_null()).then(|| unsafe { Box::from_raw(spool) })
}

impl Spool {
    /// Makes the spool of a load that begins. It lives as long as the current memory context, or survives it. Guarded.
    pub fn open(about: About, survives: bool) -> &'static Spool {
        let (memory, file, broken, count) = Default::default();
        let spool = Spool { about, memory, file, survives, broken, count, most: guc::reject_cap() };
        if !survives {
            return MemoryContext::current().keep(spool);
        }
        if let Some(old) = take() {
            old.close();
        }
        let spool = Box::into_raw(Box::new(spool));
        SURVIVING.store(spool, Relaxed);
        // SAFETY: the spool stays until it is taken, after its load has ended.
        unsafe { &*spool }
    }

    /// The number of rejects that are kept.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// May one more reject be kept?
    pub fn has_room(&self) -> bool {
        self.count() < self.most
    }

    /// The id of the load whose rejects the view bulk_rejects will show; None if it may show none.
    pub fn view_of(&self) -> Option<i64> {
        let is_kept = self.about.load_id != 0 && self.count() > 0 && !self.about.may_exceed_share;
        is_kept.then_some(self.about.load_id)
    }

    /// Adds bytes of [`Reject::write`], unless the spool is full. Guarded.
    pub fn push(&self, reject: &[u8]) {
        if !self.has_room() {
            return;
        }
        let mut memory = self.memory.borrow_mut();
        if memory.try_reserve(reject.len().saturating_add(size_of::<u64>())).is_err() {
            out_of_memory().raise();
        }
        self.count.set(self.count() + 1);
        memory.extend((reject.len() as u64).to_ne_bytes());
        memory.extend(reject);
        if memory.len() >= guc::reject_bytes() {
            let file = self.file.get_or_init(|| match self.survives {
                true => BufFile::lasting(),
                false => BufFile::temporary(MemoryContext::of_transaction()),
            });
            self.spill(file, &mut memory);
        }
    }

    fn spill(&self, file: &BufFile, memory: &mut Vec<u8>) {
        // An error in between leaves part of the bytes in the file.
        self.broken.set(true);
        file.write(memory);
        self.broken.set(false);
        memory.clear();
    }

    /// Reads the rejects in the order in which they were added. Afterwards none can be added. Memory that `look` allocates
    /// is freed after each reject. Guarded.
    pub fn for_each(&self, mut look: impl FnMut(Reject) -> Result<()>) -> Result<()> {
        let damaged = || Error::new(Code::ERRCODE_INTERNAL_ERROR, "the rejects of the load cannot be read");
        if self.broken.get() {
            return Err(damaged().detail("They could not be written to a temporary file."));
        }
        let file = self.file.get();
        if let Some(file) = file {
            // Memory has the last rejects.
            self.spill(file, &mut self.memory.borrow_mut());
            file.go_to(Place::default());
        }
        let kept = self.memory.borrow();
        let mut rest = kept.as_slice();
        let mut read = |len: usize| match file {
            Some(file) => {
                let mut bytes = vec![0u8; len];
                file.fill(&mut bytes).then_some(bytes)
            }
            None => rest.split_off(..len).map(<[u8]>::to_vec),
        };
        for _ in 0..self.count() {
            pgrx::check_for_interrupts!();
            let len = read(8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
            let bytes = len.and_then(|len| usize::try_from(len).ok()).and_then(&mut read);
            let reject = bytes.as_deref().and_then(Reject::read).ok_or_else(damaged)?;
            let row = MemoryContext::current().child(c"pg_bulk reject");
            let entered = row.enter();
            look(reject)?;
            drop(entered);
            // SAFETY: a guarded call; nothing uses memory of this reject any more.
            unsafe { row.delete() };
        }
        Ok(())
    }

    /// Closes the file. Guarded.
    pub fn close(&self) {
        self.file.get().inspect(|file| file.close());
        self.memory.take();
        self.count.set(0);
    }
}
