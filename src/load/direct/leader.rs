//! The leader of a load: it makes everything ready, starts workers, works itself, and sees to what comes after the rows.
//!
//! ```text
//!   prepare ─► first record ─► parallel mode, workers ─► rows ─► wide rows of workers ─► leave parallel mode ─► settle
//!   locks, xid, statement      only a file of some size                                  indexes, triggers, statistics
//!   triggers
//! ```
//!
//! The first record is the leader's alone, because only then it is known how lines end. What parallel mode forbids is
//! done before (xid, command id, sequences) or after it (triggers, statistics).
//!
//! An error, wherever it comes from, passes through here on its way: rows that were appended are counted for
//! autovacuum, and a worker's error loses the line that says it was a worker's.

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pg_bulk_format::chunk::BLOCK;
use pg_bulk_format::tuple::Stamp;
use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::chunks::Chunks;
use super::defaults::Defaults;
use super::executor;
use super::hazard::Hazards;
use super::process::{self, Parts, Process};
use super::settle;
use super::shared::{Grid, MOST_PROCESSES, Shared};
use super::spec::Spec;
use super::wide::{QUEUE, Received, Wide};
use crate::error::{Error, OrRaise, Result};
use crate::guc;
use crate::load::Load;
use crate::load::report::Counts;
use crate::load::source::{self, Mapping};
use crate::pg::append::Traits;
use crate::pg::attempt::attempt;
use crate::pg::build_id::build_id;
use crate::pg::compat;
use crate::pg::context::copy_context;
use crate::pg::parallel::Parallel;
use crate::pg::points::{point, point_plain};
use crate::pg::progress::Progress;
use crate::pg::soft::{OnError, Tolerance};
use crate::pg::source::Location;
use crate::pg::unguarded::{self, Opaque};

/// Keys of what is in shared memory.
pub const KEY_SHARED: u64 = 1;
pub const KEY_COUNTERS: u64 = 2;
pub const KEY_SPEC: u64 = 3;
pub const KEY_QUEUES: u64 = 4;

/// Stretches are this many times as long as what is read of a file at a time by one process.
const STRETCH: usize = 4;

/// The state of a load.
#[derive(Debug)]
pub struct Leader {
    process: Process,
    /// The shared state of a load without workers.
    alone: Box<Shared>,
    spec: Spec,
    parallel: Option<Parallel>,
    /// Rows appended by workers, for each relation of the spec.
    counters: *const AtomicU64,
    /// The same, when the workers are gone.
    gathered: Vec<u64>,
    /// Workers that there may be.
    most_workers: usize,
    workers: usize,
    notes: Vec<String>,
    /// The error context outside of the load's own.
    outer: *mut pg_sys::ErrorContextCallback,
    counts: Counts,
}

/// Load a file.
///
/// # Safety
/// A plain frame, and a load that is prepared, whose memory context is current.
pub unsafe fn load(load: *mut Load) {
    // SAFETY: the caller vouches for the load; the leader lives as long as it.
    unsafe {
        let leader = prepare(load);
        let error = attempt(work, leader.cast());
        if !error.is_null() {
            fail(leader, error);
        }
        settle_down(leader, load);
    }
}

/// # Safety
/// A valid load.
#[pg_guard]
unsafe extern "C-unwind" fn prepare(load: *mut Load) -> *mut Leader {
    // SAFETY: the caller vouches for it. The leader is dropped with the memory context.
    unsafe {
        let leader = Leader::new(&mut *load).or_raise();
        PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(leader)
    }
}

/// The rows.
///
/// # Safety
/// A plain frame, and a valid leader.
unsafe extern "C-unwind" fn work(leader: Opaque) {
    // SAFETY: the caller vouches for it; nothing in this frame has a destructor.
    unsafe {
        let leader = leader.cast::<Leader>();
        let process = &raw mut (*leader).process;
        let mut context = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(copy_context),
            arg: (&raw mut (*process).rows).cast(),
        };
        (*leader).outer = context.previous;
        pg_sys::error_context_stack = &raw mut context;
        if (*leader).most_workers > 0 {
            (*process).records_left = (*process).skip_left + 1;
            process::run(process);
            point_plain!("load.first");
            let ended = (*process).records_left > 0;
            (*process).records_left = u64::MAX;
            if !ended {
                start_workers(leader);
                process::run(process);
            }
        } else {
            process::run(process);
        }
        point_plain!("load.rows");
        process::finish(process);
        // What workers do from here on is not about the line that we read last.
        pg_sys::error_context_stack = context.previous;
        end_workers(leader);
    }
}

/// An error ended the rows: raise it, or an earlier one of the file.
///
/// # Safety
/// A plain frame; a valid leader, and an error that was caught.
unsafe fn fail(leader: *mut Leader, error: *mut pg_sys::ErrorData) -> ! {
    // SAFETY: the caller vouches for it.
    unsafe {
        let mut error = error;
        process::recover();
        if (*leader).parallel.is_some() && process::is_about_a_row(error) {
            let earlier = attempt(wait_for_earlier, leader.cast());
            if !earlier.is_null() {
                error = earlier;
            }
        }
        if !attempt(count_dead, leader.cast()).is_null() {
            // Statistics are not worth losing the error for.
            process::recover();
        }
        forget_worker(error);
        unguarded::ReThrowError(error)
    }
}

/// Take the line off an error's context that says that it comes from a parallel worker (HandleParallelMessage,
/// parallel.c): which process read the file is nobody's business.
///
/// # Safety
/// An error that was caught.
unsafe fn forget_worker(error: *mut pg_sys::ErrorData) {
    // SAFETY: the error's own strings, allocated and NUL-terminated; it is shortened in place.
    unsafe {
        let context = (*error).context;
        if context.is_null() {
            return;
        }
        let words = CStr::from_ptr(gettext(c"parallel worker".as_ptr())).to_bytes();
        let bytes = CStr::from_ptr(context).to_bytes();
        let lines = bytes.strip_suffix(words);
        if let Some(rest) = lines.and_then(|rest| rest.strip_suffix(b"\n")) {
            *context.add(rest.len()) = 0;
        } else if lines.is_some_and(<[u8]>::is_empty) {
            (*error).context = std::ptr::null_mut();
        }
    }
}

unsafe extern "C" {
    /// libintl.h, part of the C library. The server has set its own catalog as the default one.
    fn gettext(words: *const std::ffi::c_char) -> *const std::ffi::c_char;
}

/// # Safety
/// A valid leader.
#[pg_guard]
unsafe extern "C-unwind" fn wait_for_earlier(leader: Opaque) {
    // SAFETY: the caller vouches for it.
    let leader = unsafe { &mut *leader.cast::<Leader>() };
    let process = &mut leader.process;
    // SAFETY: as in Process::shared; the reference does not outlive this function.
    let shared = unsafe { &*process.shared };
    let wide = &mut process.wide;
    // The workers' wide rows are of no use any more, but their queues must not fill.
    shared.wait_until_earliest(0, || while let Received::Row(..) = wide.receive() {});
}

/// # Safety
/// A valid leader.
#[pg_guard]
unsafe extern "C-unwind" fn count_dead(leader: Opaque) {
    // SAFETY: the caller vouches for it.
    unsafe { &*leader.cast::<Leader>() }.count_rows();
}

/// # Safety
/// A valid leader.
#[pg_guard]
unsafe extern "C-unwind" fn start_workers(leader: *mut Leader) {
    // SAFETY: the caller vouches for it. Errors of workers carry their own context.
    unsafe {
        let own = pg_sys::error_context_stack;
        pg_sys::error_context_stack = (*leader).outer;
        let started = (*leader).start();
        pg_sys::error_context_stack = own;
        started.or_raise();
    }
}

/// # Safety
/// A valid leader.
#[pg_guard]
unsafe extern "C-unwind" fn end_workers(leader: *mut Leader) {
    // SAFETY: the caller vouches for it.
    unsafe { &mut *leader }.end().or_raise();
}

/// # Safety
/// A valid leader and its load.
#[pg_guard]
unsafe extern "C-unwind" fn settle_down(leader: *mut Leader, load: *mut Load) {
    // SAFETY: the caller vouches for it.
    unsafe { &mut *leader }.settle(&mut unsafe { &mut *load }.counts).or_raise();
}

impl Leader {
    fn new(load: &mut Load) -> Result<Leader> {
        let relation = load.target.relation;
        let condition = load.where_clause.conditions.cast::<pg_sys::Node>();
        let (options, mapping) = (&load.options, &load.mapping);
        // SAFETY: a guarded call on an open relation.
        let relations = unsafe { settle::lock_leaves(relation) };
        let no_rows = || Error::new(Code::ERRCODE_INTERNAL_ERROR, "the file is not open");
        let rows = load.rows.take().ok_or_else(no_rows)?;
        // SAFETY: guarded calls.
        let (xmin, command) = unsafe {
            let xmin = pg_sys::GetCurrentTransactionId().into_inner();
            (xmin, pg_sys::GetCurrentCommandId(true))
        };
        let stamp = Stamp { xmin, cid: command, frozen: options.freeze };
        let inserted: Vec<i16> = mapping.attributes().collect();
        let executor = executor::set_up(relation, &inserted, condition);
        let expressions = source::defaults(relation, mapping);
        let defaults = Defaults::new(&expressions, |default| default.open())?;
        // SAFETY: open relations, in the process that may have made them.
        let traits: Vec<(pg_sys::Oid, Traits)> =
            unsafe { relations.iter().map(|&leaf| ((*leaf).rd_id, Traits::of(leaf))).collect() };
        // SAFETY: guarded calls on open relations.
        let blocks = |&leaf: &pg_sys::Relation| unsafe {
            pg_sys::RelationGetNumberOfBlocksInFork(leaf, pg_sys::ForkNumber::MAIN_FORKNUM)
        };
        let starts = relations.iter().map(blocks).collect();
        // SAFETY: as above; closed, the locks stay.
        let is_safe = unsafe {
            let hazards = Hazards::new();
            let safe = relations.iter().all(|&leaf| hazards.relation_is_safe(leaf))
                && hazards.relation_is_safe(relation)
                && hazards.is_safe(condition)
                && rows.columns().iter().filter(|c| !c.ignored).all(|c| {
                    hazards.column_is_safe(c) && (c.default.is_null() || hazards.is_safe((*c.default).expr.cast()))
                })
                && defaults.expressions().all(|state| hazards.is_safe((*state).expr.cast()))
                && defaults.is_shareable();
            settle::close_leaves(relation, &relations);
            safe
        };
        let copy = &options.copy;
        let alone = Box::new(Shared::alone());
        let most_workers = if is_safe
            && rows.stream().has_chunks()
            && copy.on_error == OnError::Stop
            && copy.limit.is_none()
            && traits.iter().all(|(_, t)| !t.temporary)
        {
            workers_for(options.workers, rows.stream().size().unwrap_or(0))
        } else {
            0
        };
        let spec = Spec {
            // SAFETY: an open relation.
            relation: unsafe { (*relation).rd_id },
            command,
            frozen: options.freeze,
            path: load.path.clone(),
            // SAFETY: a jsonb.
            options: unsafe { jsonb_bytes(load.json) },
            encoding: rows.stream().encoding(),
            fields: fields(mapping),
            // SAFETY: an expression, or null.
            condition: (!condition.is_null()).then(|| unsafe { node_string(condition) }),
            traits: traits.clone(),
            sequences: defaults.sequences(),
        };
        if traits.iter().any(|(_, t)| t.logical) {
            log_transaction();
        }
        settle::before_rows(&executor);
        let mut process = Process::new(Parts {
            rows,
            chunks: Chunks::InOrder,
            shared: &raw const *alone,
            number: 0,
            executor,
            defaults,
            tolerance: Tolerance {
                on_error: copy.on_error,
                verbosity: copy.verbosity,
                reject_limit: copy.reject_limit,
                bad_rows: 0,
            },
            skip: copy.skip,
            limit: copy.limit.unwrap_or(u64::MAX),
            traits,
            starts,
            stamp,
            wide: Wide::leader(),
            counters: std::ptr::null(),
        })?;
        process.progress = match &load.options.location {
            Location::File(_) => Progress::start(load.target.relid, false, process.rows.stream().size()),
            Location::Program(_) => Progress::start(load.target.relid, true, None),
        };
        Ok(Leader {
            process,
            alone,
            spec,
            parallel: None,
            counters: std::ptr::null(),
            gathered: Vec::new(),
            most_workers,
            workers: 0,
            notes: Vec::new(),
            outer: std::ptr::null_mut(),
            counts: Counts::default(),
        })
    }

    /// Start workers on what is behind the record that was read first.
    fn start(&mut self) -> Result<()> {
        let stream = self.process.rows.stream();
        let (Some(place), Some(file)) = (self.process.rows.reader().place_behind(), stream.identity()) else {
            return Ok(());
        };
        let Some(cutter) = stream.cutter(place) else { return Ok(()) };
        let len = (guc::chunk_size() * STRETCH).next_multiple_of(BLOCK);
        let len = if guc::chunk_size() < 4096 { guc::chunk_size().next_multiple_of(BLOCK) } else { len };
        let grid = Grid { base: place.offset, end: stream.size().unwrap_or(0), len: len as u64 };
        let wanted = self.most_workers.min(usize::try_from(grid.count().saturating_sub(1)).unwrap_or(0));
        if wanted == 0 {
            return Ok(());
        }
        let spec = self.spec.write();
        let counters = self.spec.traits.len();
        let mut parallel = Parallel::new(c"pg_bulk_load_worker", wanted);
        parallel.estimate(size_of::<Shared>());
        parallel.estimate(counters * size_of::<AtomicU64>());
        parallel.estimate(spec.len() + 8);
        parallel.estimate(wanted * QUEUE);
        parallel.initialize();
        let wanted = parallel.most_workers().min(wanted);
        if wanted == 0 {
            parallel.finish();
            self.notes.push("no shared memory for workers; the load ran in one process".into());
            return Ok(());
        }
        let shared = parallel.insert(KEY_SHARED, size_of::<Shared>()).cast::<Shared>();
        let counts = parallel.insert(KEY_COUNTERS, counters * size_of::<AtomicU64>()).cast::<AtomicU64>();
        let text = parallel.insert(KEY_SPEC, spec.len() + 8);
        let queues = parallel.insert(KEY_QUEUES, wanted * QUEUE);
        // SAFETY: room of these sizes, aligned for everything.
        let queues: Vec<_> = unsafe {
            shared.write(Shared::new(file, grid, place, build_id()));
            for i in 0..counters {
                counts.add(i).write(AtomicU64::new(0));
            }
            text.cast::<u64>().write(spec.len() as u64);
            std::ptr::copy_nonoverlapping(spec.as_ptr(), text.add(8), spec.len());
            (0..wanted).map(|i| parallel.queue(queues.add(i * QUEUE), QUEUE)).collect()
        };
        let launched = parallel.launch();
        point!("load.launched");
        // SAFETY: queues of workers that were launched.
        unsafe { queues.iter().take(launched).enumerate().for_each(|(i, &queue)| parallel.belongs(queue, i)) };
        self.parallel = Some(parallel);
        self.counters = counts;
        self.workers = launched;
        if launched < wanted {
            self.notes.push(format!("{launched} of {wanted} workers could be started"));
        }
        self.process.shared = shared;
        self.process.chunks = Chunks::Shared { cutter: Box::new(cutter), number: 0 };
        self.process.hand_over(place.offset);
        self.process.rows.end_stream();
        self.process.wide.set_queues(queues.into_iter().take(launched).collect());
        Ok(())
    }

    /// Take what workers still send, and wait for them.
    fn end(&mut self) -> Result<()> {
        if let Some(parallel) = self.parallel.take() {
            self.process.receive_all()?;
            // Rows of workers are on the leader's pages.
            self.process.finish()?;
            point!("load.received");
            parallel.wait();
            self.gather()?;
            self.process.shared = &raw const *self.alone;
            parallel.finish();
        } else {
            self.gather()?;
        }
        Ok(())
    }

    /// What all processes have counted. After the last one is done, before the shared memory is gone.
    ///
    /// Rows are counted where they are made and where they are stored. Should these ever differ, a row is lost, and the
    /// load is not to be trusted.
    fn gather(&mut self) -> Result<()> {
        let shared = self.process.shared();
        let alone = &self.alone;
        let both = |count: fn(&Shared) -> &AtomicU64| {
            let own = if std::ptr::eq(shared, &raw const **alone) { 0 } else { count(alone).load(Relaxed) };
            count(shared).load(Relaxed) + own
        };
        self.counts.filtered = both(|s| &s.filtered);
        self.counts.bytes_read = both(|s| &s.bytes);
        let made = both(|s| &s.rows);
        if let Some(size) = self.process.rows.stream().size() {
            // Beginnings of records are read more than once.
            self.counts.bytes_read = self.counts.bytes_read.min(size);
        }
        self.gathered = (0..self.spec.traits.len()).map(|index| self.by_workers(index)).collect();
        self.counters = std::ptr::null();
        self.counts.loaded = (0..self.spec.traits.len()).map(|index| self.total(index)).sum();
        // Rows whose values became NULL are in the table.
        if self.process.tolerance.on_error == OnError::Ignore {
            self.counts.rejected = self.process.tolerance.bad_rows;
        }
        if made != self.counts.loaded {
            let message = format!("{made} rows were made, but {} were stored", self.counts.loaded);
            return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
        }
        Ok(())
    }

    /// Rows of a relation, of all processes.
    fn total(&self, index: usize) -> u64 {
        self.process.rows_of(index) + self.by_workers(index)
    }

    fn by_workers(&self, index: usize) -> u64 {
        if self.counters.is_null() {
            return self.gathered.get(index).copied().unwrap_or(0);
        }
        // SAFETY: there is a counter for each relation of the spec.
        unsafe { (*self.counters.add(index)).load(Relaxed) }
    }

    /// Tell the statistics of the rows appended so far. They count as dead if the transaction fails. Only the leader does
    /// it: a worker's transaction always ends well.
    fn count_rows(&self) {
        for (index, (oid, _)) in self.spec.traits.iter().enumerate() {
            settle::count_rows(*oid, self.total(index));
        }
    }

    /// What comes after the rows, outside of parallel mode.
    fn settle(&mut self, counts: &mut Counts) -> Result<()> {
        self.process.tolerance.report();
        self.count_rows();
        self.process.release();
        self.process.progress.end();
        point!("load.settle");
        settle::after_rows(&mut self.process, &mut self.counts)?;
        self.process.rows.close()?;
        executor::tear_down(&self.process.executor);
        point!("load.settled");
        let notes = std::mem::take(&mut counts.notes);
        *counts = std::mem::take(&mut self.counts);
        counts.workers = self.workers;
        counts.notes.extend(notes);
        counts.notes.append(&mut self.notes);
        Ok(())
    }
}

/// In a subtransaction, let logical decoding know whose child it is: workers take their nesting for the top, and would
/// not log it with their first record (IsSubxactTopXidLogPending, xact.c). Any record of the leader's does it.
fn log_transaction() {
    let mut nothing = [0u8; 4];
    // SAFETY: guarded calls; the data outlive the record. XLOG_NOOP is XLOG's record that says nothing.
    unsafe {
        if pg_sys::GetCurrentTransactionNestLevel() > 1 {
            pg_sys::XLogBeginInsert();
            compat::xlog_register_data(nothing.as_mut_ptr(), nothing.len());
            pg_sys::XLogInsert(pg_sys::RmgrIds::RM_XLOG_ID as u8, pg_sys::XLOG_NOOP as u8);
        }
    }
}

/// Number of workers for a file of so many bytes.
fn workers_for(option: Option<usize>, size: u64) -> usize {
    let asked = option.or_else(guc::workers);
    let workers = asked.unwrap_or_else(|| {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // SAFETY: reads a setting.
        let setting = usize::try_from(unsafe { pg_sys::max_parallel_maintenance_workers }).unwrap_or(0);
        // A worker's start costs milliseconds.
        let worth = usize::try_from(size / (4 << 20)).unwrap_or(usize::MAX);
        setting.min(cores.saturating_sub(1)).min(worth)
    });
    workers.min(MOST_PROCESSES - 1)
}

fn fields(mapping: &Mapping) -> Vec<(i16, CString)> {
    let numbers = mapping.fields.iter().map(|attnum| attnum.unwrap_or(0));
    numbers.zip(mapping.names.iter().cloned()).collect()
}

/// # Safety
/// A jsonb. Guarded.
unsafe fn jsonb_bytes(json: pg_sys::Datum) -> Vec<u8> {
    // SAFETY: the caller vouches for it; detoasted, it begins with a header of four bytes that tells its length.
    unsafe {
        let varlena = pg_sys::pg_detoast_datum(json.cast_mut_ptr());
        let len = pgrx::varsize_4b(varlena);
        std::slice::from_raw_parts(varlena.cast::<u8>(), len).to_vec()
    }
}

/// # Safety
/// An expression. Guarded.
unsafe fn node_string(node: *mut pg_sys::Node) -> CString {
    // SAFETY: the caller vouches for it; the string is copied.
    unsafe { CStr::from_ptr(pg_sys::nodeToString(node.cast())) }.to_owned()
}
