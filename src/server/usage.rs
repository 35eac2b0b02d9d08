//! WAL and CPU usage of a process.
//!
//! A parallel worker reports its usage to the leader as in a parallel query. WAL and buffers are added to the server's
//! own counters, so that EXPLAIN and pg_stat_statements include them.

use std::time::Duration;

use pgrx::pg_sys;

use super::call::{calls, variables};

/// CPU usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cpu {
    pub user: Duration,
    pub system: Duration,
}

impl Cpu {
    /// Add the CPU usage of another process.
    pub fn add(&mut self, other: Cpu) {
        self.user += other.user;
        self.system += other.system;
    }

    /// CPU usage of this process since its start. Raises nothing.
    pub fn now() -> Cpu {
        // SAFETY: plain data, which the call fills. It does not fail for this process.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
            usage
        };
        let time = |time: libc::timeval| {
            Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0))
                + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
        };
        Cpu { user: time(usage.ru_utime), system: time(usage.ru_stime) }
    }
}

/// WAL and CPU usage of this process, including the WAL of workers that were added.
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

variables! {
    fn wal_usage() -> pg_sys::WalUsage = pgWalUsage;
}

impl Usage {
    /// The usage so far. Raises nothing.
    pub fn now() -> Usage {
        Usage { wal: wal_usage(), cpu: Cpu::now() }
    }

    /// The usage since then.
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

/// A worker's usage, in shared memory.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct WorkerUsage {
    buffers: pg_sys::BufferUsage,
    wal: pg_sys::WalUsage,
    cpu: Cpu,
}

// SAFETY: plain data.
calls! {
    fn end(buffers: &mut pg_sys::BufferUsage, wal: &mut pg_sys::WalUsage) = InstrEndParallelQuery(buffers, wal);
    fn add(buffers: &mut pg_sys::BufferUsage, wal: &mut pg_sys::WalUsage) = InstrAccumParallelQuery(buffers, wal);
}

impl WorkerUsage {
    /// Store the usage of this worker, which has finished its work. Guarded.
    pub fn end(&mut self) {
        self.cpu = Cpu::now();
        end(&mut self.buffers, &mut self.wal);
    }

    /// Add the usage of workers to this process's, and return their CPU usage. Guarded.
    pub fn add_up(usages: &mut [WorkerUsage]) -> Cpu {
        let mut all = Cpu::default();
        for usage in usages {
            add(&mut usage.buffers, &mut usage.wal);
            all.add(usage.cpu);
        }
        all
    }
}
