//! What a process has used so far: WAL and processor time.
//!
//! A parallel worker's share comes to the leader as it does in a parallel query: WAL and buffers through the server's own
//! accounts, so that EXPLAIN and pg_stat_statements know of it too.

use std::time::Duration;

use pgrx::pg_sys;

/// Processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cpu {
    pub user: Duration,
    pub system: Duration,
}

impl Cpu {
    /// Account for another process.
    pub fn add(&mut self, other: Cpu) {
        self.user += other.user;
        self.system += other.system;
    }

    /// Of this process, since it began. Raises nothing.
    pub fn now() -> Cpu {
        // SAFETY: plain data, which the call fills.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: a valid place.
        if unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0 {
            return Cpu::default();
        }
        let time = |time: libc::timeval| {
            Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0))
                + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
        };
        Cpu { user: time(usage.ru_utime), system: time(usage.ru_stime) }
    }
}

/// WAL and processor time of this process, and the WAL of workers that were accounted for.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    wal: pg_sys::WalUsage,
    pub cpu: Cpu,
}

/// WAL that was written.
#[derive(Debug, Clone, Copy)]
pub struct Wal {
    pub records: i64,
    pub images: i64,
    pub bytes: u64,
}

impl Usage {
    /// So far. Raises nothing.
    pub fn now() -> Usage {
        // SAFETY: this process's own.
        Usage { wal: unsafe { pg_sys::pgWalUsage }, cpu: Cpu::now() }
    }

    /// What came to it since.
    pub fn since(&self) -> (Wal, Cpu) {
        let now = Usage::now();
        let wal = Wal {
            records: now.wal.wal_records - self.wal.wal_records,
            images: now.wal.wal_fpi - self.wal.wal_fpi,
            bytes: now.wal.wal_bytes.saturating_sub(self.wal.wal_bytes),
        };
        let cpu = Cpu {
            user: now.cpu.user.saturating_sub(self.cpu.user),
            system: now.cpu.system.saturating_sub(self.cpu.system),
        };
        (wal, cpu)
    }
}

/// A worker's share, in shared memory.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Share {
    buffers: pg_sys::BufferUsage,
    wal: pg_sys::WalUsage,
    cpu: Cpu,
}

/// The worker begins to count. Guarded.
pub fn begin_share() {
    // SAFETY: a guarded call.
    unsafe { pg_sys::InstrStartParallelQuery() }
}

/// The worker is done. Guarded.
///
/// # Safety
/// Room for its share, which nobody looks at before the worker is gone.
pub unsafe fn end_share(share: *mut Share) {
    // SAFETY: this function's contract covers the argument; a guarded call.
    unsafe {
        (*share).cpu = Cpu::now();
        pg_sys::InstrEndParallelQuery(&raw mut (*share).buffers, &raw mut (*share).wal);
    }
}

/// Account for workers that are gone. Returns what they have taken of the processors. Guarded.
///
/// # Safety
/// The shares of so many.
pub unsafe fn take_shares(shares: *mut Share, count: usize) -> Cpu {
    let mut all = Cpu::default();
    for i in 0..count {
        // SAFETY: this function's contract covers the argument; a guarded call.
        unsafe {
            let share = shares.add(i);
            pg_sys::InstrAccumParallelQuery(&raw mut (*share).buffers, &raw mut (*share).wal);
            all.add((*share).cpu);
        }
    }
    all
}
