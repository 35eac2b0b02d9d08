//! Rejects of a running load: in memory while they are few, else in a temporary file.
//!
//! The spool of a job survives its transaction: it is in memory of the process, and in a file that no transaction
//! closes. A process runs one job at a time; after that has failed and its transaction has ended, the job [takes](take)
//! the spool.

use std::ffi::CString;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::Reject;
use crate::error::{Error, Result, out_of_memory};
use crate::guc;
use crate::load::memory;

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
    memory: Vec<u8>,
    file: *mut pg_sys::BufFile,
    /// Transactions do not close the file.
    survives: bool,
    /// The file is incomplete.
    broken: bool,
    /// Rejects that are kept.
    pub count: u64,
    /// Most rejects to keep.
    pub most: u64,
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
    pub fn open(about: About, survives: bool) -> *mut Spool {
        let most = guc::reject_cap();
        let spool =
            Spool { about, memory: Vec::new(), file: std::ptr::null_mut(), survives, broken: false, count: 0, most };
        if !survives {
            return PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(spool);
        }
        if let Some(mut old) = take() {
            old.close();
        }
        let spool = Box::into_raw(Box::new(spool));
        SURVIVING.store(spool, Relaxed);
        spool
    }

    /// The id of the load whose rejects the view bulk_rejects will show; None if it may show none.
    pub fn view_of(&self) -> Option<i64> {
        let is_kept = self.about.load_id != 0 && self.count > 0 && !self.about.may_exceed_share;
        is_kept.then_some(self.about.load_id)
    }

    /// Adds bytes of [`Reject::write`], unless the spool is full. Guarded.
    pub fn push(&mut self, reject: &[u8]) {
        if self.count >= self.most {
            return;
        }
        if self.memory.try_reserve(reject.len().saturating_add(size_of::<u64>())).is_err() {
            out_of_memory().raise();
        }
        self.count += 1;
        self.memory.extend((reject.len() as u64).to_ne_bytes());
        self.memory.extend(reject);
        if self.memory.len() >= memory::reject_bytes() {
            self.spill();
        }
    }

    fn spill(&mut self) {
        // SAFETY: guarded calls; the file's own memory lives as long as the spool.
        unsafe {
            if self.file.is_null() {
                let memory = if self.survives { pg_sys::TopMemoryContext } else { pg_sys::CurTransactionContext };
                let old = pg_sys::MemoryContextSwitchTo(memory);
                pg_sys::PrepareTempTablespaces();
                self.file = pg_sys::BufFileCreateTemp(self.survives);
                pg_sys::MemoryContextSwitchTo(old);
            }
            // An error in between leaves part of the bytes in the file.
            self.broken = true;
            pg_sys::BufFileWrite(self.file, self.memory.as_mut_ptr().cast(), self.memory.len());
            self.broken = false;
        }
        self.memory.clear();
    }

    /// Reads the rejects in the order in which they were added. Afterwards none can be added. Guarded.
    pub fn for_each(&mut self, mut look: impl FnMut(Reject) -> Result<()>) -> Result<()> {
        let damaged = || Error::new(Code::ERRCODE_INTERNAL_ERROR, "the rejects of the load cannot be read");
        if self.broken {
            return Err(damaged().detail("They could not be written to a temporary file."));
        }
        if !self.file.is_null() {
            // Memory has the last rejects.
            self.spill();
            // SAFETY: guarded calls on the file.
            unsafe { pg_sys::BufFileSeek(self.file, 0, 0, libc::SEEK_SET) };
            let read = |len: usize| {
                let mut bytes = vec![0u8; len];
                // SAFETY: as above; the buffer has this length.
                let got = unsafe { pg_sys::BufFileRead(self.file, bytes.as_mut_ptr().cast(), len) };
                (got == len).then_some(bytes)
            };
            for _ in 0..self.count {
                pgrx::check_for_interrupts!();
                let len = read(8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_ne_bytes);
                let len = len.and_then(|len| usize::try_from(len).ok());
                look(len.and_then(read).as_deref().and_then(Reject::read).ok_or_else(damaged)?)?;
            }
            return Ok(());
        }
        let mut rest = &*self.memory;
        while let Some((len, more)) = rest.split_first_chunk() {
            let len = usize::try_from(u64::from_ne_bytes(*len)).unwrap_or(usize::MAX);
            let (reject, more) = more.split_at_checked(len).ok_or_else(damaged)?;
            look(Reject::read(reject).ok_or_else(damaged)?)?;
            rest = more;
        }
        Ok(())
    }

    /// Closes the file. Guarded.
    pub fn close(&mut self) {
        let file = std::mem::replace(&mut self.file, std::ptr::null_mut());
        if !file.is_null() {
            // SAFETY: a file that is open: the transaction that made it has not ended, or it outlives transactions.
            unsafe { pg_sys::BufFileClose(file) };
        }
        self.memory = Vec::new();
        self.count = 0;
    }
}
