//! The settings of pg_bulk.
//!
//! The processes of a load divide `pg_bulk.memory_limit`:
//!
//! ```text
//!  limit ─┬─ 1/16  bytes of one read of the file ([`chunk_size`]); 1/4 a chunk, which is four of them
//!         ├─ 1/16  rejects, before they go to a temporary file
//!         ├─ 1/8   pages of one heap
//!         └─ 1/4   pages of all heaps; 1/2 where there are many
//! ```
//!
//! The rest is for memory that cannot be measured beforehand: the field positions and values of some rows, and the
//! process itself. A record or a row that exceeds the limit is still loaded, with memory of its size. Each heap needs
//! at least a page that is being filled and one more. With many partitions these pages may take more than half of the
//! limit.
//!
//! Index keys do not count: they are collected and sorted in maintenance_work_mem.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use pgrx::guc::GucEnum;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, pg_sys};

/// Bytes of one read of a file. 256 kB: the bytes of one read, and the values made of them, stay in the second-level
/// cache; larger reads measured no faster, smaller ones cost more system calls. Tests set a few bytes, so that every
/// record is cut somewhere.
static CHUNK_SIZE: GucSetting<i32> = GucSetting::<i32>::new(256 * 1024);

/// Empty by default: the right to name a file (pg_read_server_files) is the barrier, as with COPY. An administrator who
/// grants that right widely can restrict it here.
static ALLOWED_DIRECTORIES: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);

/// -1: as many as the server gives to maintenance commands, which are similar to bulk loads.
static WORKERS: GucSetting<i32> = GucSetting::<i32>::new(-1);

/// Kilobytes; the default of maintenance_work_mem. A load of a table without partitions gains nothing from more memory.
static MEMORY_LIMIT: GucSetting<i32> = GucSetting::<i32>::new(64 * 1024);

/// Off by default: the output is for experts.
static LOG_TIMING: GucSetting<bool> = GucSetting::<bool>::new(false);

/// Two: a load has parallel workers, and there are eight slots for background workers by default.
static MAX_RUNNING_JOBS: GucSetting<i32> = GucSetting::<i32>::new(2);

/// Seconds; a week, so that the jobs of the last weekend are still listed.
static JOB_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(7 * 24 * 60 * 60);

/// Enough to diagnose a file, and for most files all rejects. It bounds the space that an entirely bad file takes in
/// the database.
static REJECT_CAP: GucSetting<i32> = GucSetting::<i32>::new(100_000);

/// 0: as many as there are processors. Not more by default: most files were written recently, and need no disk reads.
static AGGREGATE_PROCESSES: GucSetting<i32> = GucSetting::<i32>::new(0);

/// Off by default: COPY stays the server's own.
static COPY: GucSetting<bool> = GucSetting::<bool>::new(false);

/// 64 kB: core loads about this many bytes in the time that a load takes to begin.
static COPY_MIN_SIZE: GucSetting<i32> = GucSetting::<i32>::new(64 * 1024);

/// The plan of an INSERT from a foreign table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectInsert {
    /// Core's INSERT.
    Off,
    /// A load with the locks of core's INSERT.
    On,
    /// A load that also loads an empty table exclusively, if no other session uses it.
    Exclusive,
}

/// Most pages of a batch: 2 MB. Smaller batches cost more for the WAL flush and for passing the append lock. Larger
/// batches have left the CPU cache when they are logged and written, and hold the extension lock for longer.
const BATCH: usize = 256;
/// Fewest pages of a batch.
const SMALLEST_BATCH: usize = 4;
/// Pages for each heap, if memory permits.
const GOOD_PAGES: usize = 4;
/// Pages that a heap needs from its first row on.
const LEAST_PAGES: usize = 2;
/// Most bytes of rejects.
const REJECTS: usize = 1 << 20;

const PAGE: usize = pg_sys::BLCKSZ as usize;

struct Entries<const N: usize>([pg_sys::config_enum_entry; N]);

// SAFETY: constants, and names that are static strings.
unsafe impl<const N: usize> Sync for Entries<N> {}

const fn entry(name: &'static CStr, value: DirectInsert, hidden: bool) -> pg_sys::config_enum_entry {
    pg_sys::config_enum_entry { name: name.as_ptr(), val: value as i32, hidden }
}

/// Accepts the spellings of a Boolean setting.
static DIRECT_INSERT_ENTRIES: Entries<10> = Entries([
    entry(c"on", DirectInsert::On, false),
    entry(c"off", DirectInsert::Off, false),
    entry(c"exclusive", DirectInsert::Exclusive, false),
    entry(c"true", DirectInsert::On, true),
    entry(c"yes", DirectInsert::On, true),
    entry(c"1", DirectInsert::On, true),
    entry(c"false", DirectInsert::Off, true),
    entry(c"no", DirectInsert::Off, true),
    entry(c"0", DirectInsert::Off, true),
    pg_sys::config_enum_entry { name: std::ptr::null(), val: 0, hidden: false },
]);

// SAFETY: the last entry has no name, which ends the list.
unsafe impl GucEnum for DirectInsert {
    fn from_ordinal(ordinal: i32) -> DirectInsert {
        [DirectInsert::Off, DirectInsert::On, DirectInsert::Exclusive]
            .into_iter()
            .find(|value| *value as i32 == ordinal)
            .unwrap_or(DirectInsert::Off)
    }

    fn to_ordinal(&self) -> i32 {
        *self as i32
    }

    const CONFIG_ENUM_ENTRY: *const pg_sys::config_enum_entry = DIRECT_INSERT_ENTRIES.0.as_ptr();
}

/// On: the result is that of the INSERT. Not exclusive: an INSERT must not keep readers waiting.
static DIRECT_INSERT: GucSetting<DirectInsert> = GucSetting::<DirectInsert>::new(DirectInsert::On);

pub fn init() {
    GucRegistry::define_enum_guc(
        c"pg_bulk.direct_insert",
        c"Accelerates INSERT ... SELECT from a foreign table of bulk_fdw when the result is equivalent.",
        c"EXPLAIN (VERBOSE) shows whether pg_bulk accelerates the statement, or the reason why not. With \"exclusive\", pg_bulk locks an empty table exclusively if no other session holds a lock on it.",
        &DIRECT_INSERT,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"pg_bulk.copy",
        c"Accelerates COPY FROM when the result is equivalent.",
        c"A DEBUG1 message says whether pg_bulk runs the COPY, or the reason why not. The library must be preloaded.",
        &COPY,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_bulk.copy_min_size",
        c"Sets the size of the data below which the server runs a COPY itself.",
        c"For COPY FROM STDIN, pg_bulk reads up to this size before it decides.",
        &COPY_MIN_SIZE,
        0,
        64 * 1024 * 1024,
        GucContext::Userset,
        GucFlags::UNIT_BYTE,
    );
    GucRegistry::define_bool_guc(
        c"pg_bulk.log_timing",
        c"Logs how much time the processes of a load spent in each stage.",
        c"The stages are reading, waiting for each other, rows, extending, WAL and writing. The phases are always logged.",
        &LOG_TIMING,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_bulk.reject_cap",
        c"Sets the maximum number of rejected rows that a load keeps.",
        c"A load only counts the rejected rows beyond this number.",
        &REJECT_CAP,
        0,
        i32::MAX,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_bulk.workers",
        c"Sets the number of parallel workers of a load, besides the leader.",
        c"-1 means max_parallel_maintenance_workers, but less than the number of CPU cores.",
        &WORKERS,
        -1,
        1024,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_bulk.memory_limit",
        c"Sets the memory that each process of a load may use for the file, for pages and for rejected rows.",
        c"Exceptions: a longer record is loaded, and each partition takes at least two pages.",
        &MEMORY_LIMIT,
        1024,
        i32::MAX,
        GucContext::Userset,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_int_guc(
        c"pg_bulk.chunk_size",
        c"Sets the number of bytes that a process reads from a file at a time.",
        c"This setting is for developers: results do not depend on it.",
        &CHUNK_SIZE,
        1,
        64 * 1024 * 1024,
        GucContext::Userset,
        GucFlags::UNIT_BYTE,
    );
    GucRegistry::define_int_guc(
        c"pg_bulk.aggregate_processes",
        c"Sets the maximum number of processes of a parallel query that compute aggregates of a file's rows.",
        c"0 means the number of processors. Further processes of the query do nothing.",
        &AGGREGATE_PROCESSES,
        0,
        1024,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_string_guc(
        c"pg_bulk.allowed_directories",
        c"Sets the directories below which pg_bulk may read files, separated by commas.",
        c"Empty means any file that the server can read. The setting does not apply to programs.",
        &ALLOWED_DIRECTORIES,
        GucContext::Sighup,
        GucFlags::SUPERUSER_ONLY,
    );
    GucRegistry::define_int_guc(
        c"pg_bulk.max_running_jobs",
        c"Sets the maximum number of jobs that run at a time in one database.",
        c"Each job requires a background worker. Its load may start parallel workers.",
        &MAX_RUNNING_JOBS,
        0,
        1024,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_bulk.job_retention",
        c"Sets how long ended jobs, rejected rows and the history of loads are kept.",
        c"-1 keeps them forever.",
        &JOB_RETENTION,
        -1,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_S,
    );
}

/// May a COPY run as a load?
pub fn copy() -> bool {
    COPY.get()
}

/// Bytes below which core runs a COPY.
pub fn copy_min_size() -> usize {
    usize::try_from(COPY_MIN_SIZE.get()).unwrap_or(0)
}

/// May an INSERT run as a load?
pub fn direct_insert() -> DirectInsert {
    DIRECT_INSERT.get()
}

/// Most jobs that run at a time in one database.
pub fn max_running_jobs() -> usize {
    usize::try_from(MAX_RUNNING_JOBS.get()).unwrap_or(0)
}

/// Seconds that ended jobs are kept; `None`: forever.
pub fn job_retention() -> Option<i32> {
    Some(JOB_RETENTION.get()).filter(|seconds| *seconds >= 0)
}

/// Workers of a load; `None` if the server's own setting applies.
pub fn workers() -> Option<usize> {
    usize::try_from(WORKERS.get()).ok()
}

/// Log the time of a load's processes by stage?
pub fn log_timing() -> bool {
    LOG_TIMING.get()
}

/// Most rejects that are kept of a load.
pub fn reject_cap() -> u64 {
    u64::try_from(REJECT_CAP.get()).unwrap_or(0)
}

/// Bytes of memory for each process of a load.
pub fn memory_limit() -> usize {
    usize::try_from(MEMORY_LIMIT.get()).unwrap_or(1024).saturating_mul(1024)
}

/// The server's `maintenance_work_mem`, in kB.
pub fn maintenance_work_mem() -> i32 {
    // SAFETY: reads a setting.
    unsafe { pg_sys::maintenance_work_mem }
}

/// Bytes of one read of a file: at most a small part of the memory limit.
pub fn chunk_size() -> usize {
    usize::try_from(CHUNK_SIZE.get()).unwrap_or(1).clamp(1, memory_limit() / 16)
}

/// Pages that are appended to a heap at once.
pub fn batch_pages() -> usize {
    (memory_limit() / 8 / PAGE).clamp(SMALLEST_BATCH, BATCH)
}

/// Bytes of pages of all heaps, for this number of heaps.
pub fn page_bytes(heaps: usize) -> usize {
    let limit = memory_limit();
    (heaps * GOOD_PAGES * PAGE).clamp(limit / 4, limit / 2).max(heaps * LEAST_PAGES * PAGE)
}

/// Bytes of rejects that are kept in memory.
pub fn reject_bytes() -> usize {
    (memory_limit() / 16).min(REJECTS)
}

/// Has a test made it so small that few rows are divided among processes as many rows are?
pub fn chunks_are_small() -> bool {
    chunk_size() <= 16 << 10
}

/// Most processes that compute aggregates of a file's rows at a time; at least one.
pub fn aggregate_processes() -> u32 {
    match u32::try_from(AGGREGATE_PROCESSES.get()) {
        Ok(processes) if processes > 0 => processes,
        _ => std::thread::available_parallelism().map_or(u32::MAX, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
    }
}

/// Directories that files must lie in; `None` means anywhere. A setting that is not empty but names no directory allows
/// none.
pub fn allowed_directories() -> Option<Vec<PathBuf>> {
    let list = ALLOWED_DIRECTORIES.get()?;
    let list = list.as_bytes();
    let named = |d: &&[u8]| !d.is_empty();
    let paths = list.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(named);
    (!list.is_empty()).then(|| paths.map(|d| PathBuf::from(OsStr::from_bytes(d))).collect())
}
