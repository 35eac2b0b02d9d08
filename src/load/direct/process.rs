//! What each process of a load does: records to rows, rows to heaps.
//!
//! This is the part that owns things; how rows go through it is in [`row_loop`](super::row_loop). A row is made in
//! [`advance`] and put where it belongs in [`store`].

mod advance;
mod at_once;
mod reject;
mod store;
mod trace;
mod turn;

use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::atomic::AtomicU64;

use pg_bulk_format::reader::Place;
use pg_bulk_format::tuple::{FormBuffer, Stamp};
use pgrx::{PgSqlErrorCode as Code, pg_sys};

pub use self::at_once::InBlock;
pub use self::turn::File;
use super::defaults::Defaults;
use super::executor::{Executor, set_up_again};
use super::heap::Heap;
use super::index_keys::{Collector, KeyPlan};
use super::join::Join;
use super::key_check::KeyCheck;
use super::origin::{Origins, Traces, Trail};
use super::projection::Projection;
use super::rejects::{Pins, Rejects};
use super::shared::Shared;
use super::wide::Wide;
use crate::error::{Error, Result};
use crate::load::obstacle;
use crate::load::phase::Phases;
use crate::load::query::Query;
use crate::pg::append::Traits;
use crate::pg::chunks::Chunks;
use crate::pg::compat;
use crate::pg::file_figures::ByFile;
use crate::pg::progress::Figures;
use crate::pg::row::Rows;
use crate::pg::row_violation::RowViolation;
use crate::pg::server_text::from_server;
use crate::pg::shared_files::SharedFiles;
use crate::pg::shared_sorts::SharedSorts;
use crate::pg::soft::Tolerance;
use crate::pg::stages::Stages;
use crate::pg::unguarded::Opaque;

/// One process's part of a load.
#[derive(Debug)]
pub struct Process {
    pub rows: Rows,
    pub chunks: Chunks,
    pub shared: *const Shared,
    /// Number of this process; 0 is the leader.
    pub number: usize,
    /// In a worker, the target as it opened it; else null.
    pub target: pg_sys::Relation,
    pub executor: Executor,
    pub defaults: Defaults,
    pub tolerance: Tolerance,
    pub rejects: Rejects,
    pub pins: Pins,
    /// The memory context that [`run`](super::row_loop::run) was called in.
    pub memory: pg_sys::MemoryContext,
    /// While it runs and keeps rejects: who tells which errors are a row's. Else null.
    pub violation: *mut RowViolation,
    /// Rows are made and judged, but there is no heap for them.
    pub is_dry: bool,
    /// Then, what their keys go to; null if they have none that matter.
    pub keys: *mut KeyCheck,
    /// Records that are still to be passed over.
    pub skip_left: u64,
    /// Records that are to be read before [`run`] returns.
    pub records_left: u64,
    /// Rows that may still be loaded.
    limit: u64,
    /// Attributes that must not be NULL, from 0.
    pub not_null: Vec<usize>,
    /// Those of them that no field of the file sets.
    unset_not_null: Vec<usize>,
    /// The columns of the file that are converted when a row is read: all, unless a condition comes first.
    pub wanted: Vec<usize>,
    /// What is made of the file's rows, if they are not stored as they are.
    pub projection: Option<Projection>,
    /// The plan that rows of the file go through, if they are joined.
    pub join: Option<Join>,
    /// The query whose rows they are, if there is no file; else null.
    pub query: *mut Query,
    /// In the leader: what is done before the second record, once. Then [`Process::records_left`] says where that is.
    pub beginning: Option<Beginning>,
    /// Where the values of a record are made: with a join, a record may have many rows.
    pub fields: *mut pg_sys::ExprContext,
    pub heaps: Vec<Heap>,
    /// Which of these is a relation's.
    by_oid: HashMap<u32, usize>,
    /// Memory that their pages take.
    page_bytes: usize,
    /// Traits of all relations that rows may go to.
    pub traits: Vec<(pg_sys::Oid, Traits)>,
    /// In the leader: the numbers of blocks that they had before the load.
    starts: Vec<u32>,
    pub stamp: Stamp,
    pub wide: Wide,
    /// In a worker: for each relation, the rows that workers appended.
    counters: *const AtomicU64,
    pub plan: KeyPlan,
    form: FormBuffer,
    /// The leaf that the last row went to: its result relation and the index of its heap.
    pub last_leaf: (*mut pg_sys::ResultRelInfo, usize),
    pub filtered: u64,
    /// Rows since interrupts were last looked for.
    round: u32,
    /// Rows and bytes that were reported.
    unreported_rows: u64,
    reported: u64,
    /// In the leader: what others may see of the load. Null in a worker.
    pub phases: *mut Phases,
    /// What it shows of the files before this one.
    pub before: Figures,
    /// Its rows can be traced to their records.
    pub traces: Traces,
    /// Gaps between records that it did not read: those of other processes.
    gaps: u64,
    /// Where the file can be read again, of late.
    anchors: Vec<(u64, u64)>,
    /// Where the last of these was.
    last_anchor: u64,
    /// In the leader: where the rows of all processes came from.
    pub origins: Origins,
    /// Where its time goes, but for what its heaps know.
    pub stages: Stages,
    /// What became of the records of each file, and the file that rows were counted of last.
    pub by_file: ByFile,
    file: usize,
}

/// What the leader does when the first record is done with.
#[derive(Debug, Clone, Copy)]
pub struct Beginning {
    pub begin: unsafe extern "C-unwind" fn(Opaque),
    pub leader: Opaque,
}

/// What a step ended with; numbers, so that they cross the guard as they are.
pub const END: i32 = 0;
/// A row is in the slot's arrays, and not all of it can be made here.
pub const ROW: i32 = 1;
/// The same, and it lacks fields: what there is is converted, then comes the error.
pub const SHORT: i32 = 2;

/// The parts a process is made of.
#[derive(Debug)]
pub struct Parts {
    pub projection: Option<Projection>,
    pub join: Option<Join>,
    pub rows: Rows,
    pub chunks: Chunks,
    pub shared: *const Shared,
    pub number: usize,
    pub executor: Executor,
    pub defaults: Defaults,
    pub tolerance: Tolerance,
    pub rejects: Rejects,
    pub is_dry: bool,
    pub skip: u64,
    pub limit: u64,
    pub traits: Vec<(pg_sys::Oid, Traits)>,
    pub starts: Vec<u32>,
    pub stamp: Stamp,
    pub wide: Wide,
    pub counters: *const AtomicU64,
    pub plan: KeyPlan,
    pub traces: Traces,
    pub by_file: ByFile,
}

impl Process {
    /// Guarded.
    pub fn new(parts: Parts) -> Result<Process> {
        let Parts { rows, chunks, shared, number, executor, defaults, tolerance, .. } = parts;
        let Parts {
            projection,
            join,
            rejects,
            is_dry,
            skip,
            limit,
            traits,
            starts,
            stamp,
            wide,
            counters,
            plan,
            traces,
            by_file,
            ..
        } = parts;
        let wanted = projection.as_ref().map_or_else(|| rows.all(), |projection| projection.first.clone());
        let relations = traits.len();
        let fields = join.as_ref().map_or(executor.econtext, |join| join.joined().fields());
        let mut process = Process {
            rows,
            chunks,
            shared,
            number,
            target: std::ptr::null_mut(),
            executor,
            defaults,
            tolerance,
            rejects,
            pins: Pins::default(),
            memory: std::ptr::null_mut(),
            violation: std::ptr::null_mut(),
            is_dry,
            keys: std::ptr::null_mut(),
            skip_left: skip,
            records_left: u64::MAX,
            limit,
            not_null: Vec::new(),
            unset_not_null: Vec::new(),
            wanted,
            projection,
            join,
            query: std::ptr::null_mut(),
            beginning: None,
            fields,
            heaps: Vec::new(),
            by_oid: HashMap::new(),
            page_bytes: 0,
            traits,
            starts,
            stamp,
            wide,
            counters,
            plan,
            form: FormBuffer::new(),
            last_leaf: (std::ptr::null_mut(), 0),
            filtered: 0,
            round: 0,
            unreported_rows: 0,
            reported: 0,
            phases: std::ptr::null_mut(),
            before: Figures::default(),
            traces,
            gaps: 0,
            anchors: Vec::new(),
            last_anchor: 0,
            origins: Origins::new(relations),
            stages: Stages::new(),
            by_file,
            file: 0,
        };
        if executor.routing.is_null() {
            // SAFETY: the executor's own structures.
            let relation = unsafe { (*executor.target).ri_RelationDesc };
            process.open_heap(relation)?;
            process.not_null = not_null(relation);
        }
        process.adapt();
        Ok(process)
    }

    pub fn shared(&self) -> &Shared {
        // SAFETY: set by who made the process; lives as long as it does.
        unsafe { &*self.shared }
    }

    fn heap_of(&self, oid: pg_sys::Oid) -> Option<usize> {
        self.by_oid.get(&oid.to_u32()).copied()
    }

    /// Read the file in order from a place in a stretch on, and store nothing. An error may have ended anything in the middle, so that nothing is
    /// called any more of what was called then ([`expression`](crate::pg::expression)). `inserted` is as for the executor. Guarded.
    pub fn look_again(&mut self, stretch: u64, place: Place, inserted: &[i16]) -> Result<()> {
        // SAFETY: the executor's own memory, which stays.
        let old = unsafe { pg_sys::MemoryContextSwitchTo((*self.executor.estate).es_query_cxt) };
        self.pins.forget();
        self.rows.renew_columns();
        match (&self.join, &mut self.projection) {
            // The plan above the scan is not run again: which lines are bad, the scan knows.
            (Some(_), Some(projection)) => projection.forget_conditions(),
            (_, projection) => {
                self.executor = set_up_again(&self.executor, inserted);
                self.fields = self.executor.econtext;
                self.last_leaf = (std::ptr::null_mut(), 0);
                if let Some(projection) = projection {
                    projection.renew();
                }
                self.defaults.renew();
            }
        }
        // SAFETY: the context of before.
        unsafe { pg_sys::MemoryContextSwitchTo(old) };
        let chunks = std::mem::replace(&mut self.chunks, Chunks::InOrder);
        self.records_left = u64::MAX;
        self.is_dry = true;
        self.keys = std::ptr::null_mut();
        self.rejects.forget_spool();
        self.heaps.clear();
        self.wide.set_queues(Vec::new());
        if let Chunks::Listed(listed) = chunks {
            self.rows.turn_to(listed.units().file_of(stretch))?;
            if place.offset == 0 {
                return Ok(());
            }
            self.rows.take_names()?;
        }
        self.rows.stream_mut().resume(place)
    }

    /// The heap of a relation that rows may go to. Guarded.
    pub fn open_heap(&mut self, relation: pg_sys::Relation) -> Result<usize> {
        if self.is_dry {
            return Ok(0);
        }
        // SAFETY: an open relation.
        let oid = unsafe { (*relation).rd_id };
        if let Some(index) = self.heap_of(oid) {
            return Ok(index);
        }
        let index = self.number_of_relation(relation)?;
        let Some(&(_, traits)) = self.traits.get(index) else { return Ok(0) };
        // The executor has just made its copy of the triggers. Only commands of functions can have added some since the load began.
        // SAFETY: a guarded call; an open relation that is locked.
        let late = unsafe {
            (pg_sys::GetCurrentCommandId(false) > self.stamp.cid + 1)
                .then(|| obstacle::of_late_leaf(relation))
                .flatten()
        };
        if let Some(obstacle) = late {
            // SAFETY: the name of an open relation.
            let name = from_server(unsafe { CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()) });
            let message = format!("a function has changed partition \"{name}\" while rows were being loaded");
            return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message).detail(obstacle));
        }
        let mut heap = Heap::new(relation, traits, self.stamp)?;
        heap.index = index;
        if let Some(&start) = self.starts.get(index) {
            heap.start = start;
        }
        if !self.counters.is_null() {
            // SAFETY: there is a counter for each of the traits.
            heap.counter = unsafe { self.counters.add(index) };
        }
        heap.collectors = self.collectors(index, relation);
        if self.traces != Traces::Nothing {
            heap.trail = Some(Trail::new(self.traces == Traces::Lines, self.origins.file));
        }
        self.page_bytes += heap.bytes();
        self.by_oid.insert(oid.to_u32(), self.heaps.len());
        self.heaps.push(heap);
        Ok(self.heaps.len() - 1)
    }

    /// Which of the load's relations it is. Guarded.
    pub fn number_of_relation(&self, relation: pg_sys::Relation) -> Result<usize> {
        // SAFETY: an open relation.
        let (oid, name) = unsafe { ((*relation).rd_id, CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr())) };
        self.traits.iter().position(|(known, _)| *known == oid).ok_or_else(|| {
            let message = format!("partition \"{}\" was attached while rows were being loaded", name.to_string_lossy());
            Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        })
    }

    /// Who collects the keys of a relation's indexes. Guarded.
    fn collectors(&self, index: usize, relation: pg_sys::Relation) -> Vec<Collector> {
        let shared = self.plan.files.map(|files| (files, self.plan.earlier_workers + self.number));
        // SAFETY: guarded calls; the executor's memory outlives the process, the relation is open.
        unsafe {
            let old = pg_sys::MemoryContextSwitchTo((*self.executor.estate).es_query_cxt);
            let collectors = self.plan.collectors(index, relation, shared, &self.rows.elsewhere);
            pg_sys::MemoryContextSwitchTo(old);
            collectors
        }
    }

    /// Workers sort index tuples, too. Before the rows that they and the leader share.
    pub fn share_sorts(&mut self, sorts: SharedSorts) {
        self.plan.sorts = Some(sorts);
        for collector in self.heaps.iter_mut().flat_map(|heap| &mut heap.collectors) {
            collector.share(&self.plan.list, sorts);
        }
    }

    /// Workers have files for keys, too. Before the rows that they and the leader share.
    pub fn share_files(&mut self, files: SharedFiles) {
        self.plan.files = Some(files);
        self.heaps.iter_mut().flat_map(|heap| &mut heap.collectors).for_each(|collector| collector.share_files(files));
    }

    /// What this process has collected of a relation's indexes. Guarded.
    pub fn take_collectors(&mut self, index: usize) -> Result<Vec<Collector>> {
        if !self.plan.has(index) {
            return Ok(Vec::new());
        }
        if !self.heaps.iter().any(|heap| heap.index == index)
            && let Some(&(oid, _)) = self.traits.get(index)
        {
            // Only workers had rows for it.
            // SAFETY: a relation that the leader has locked.
            let relation = unsafe { pg_sys::table_open(oid, pg_sys::NoLock.cast_signed()) };
            let number = self.open_heap(relation)?;
            if let Some(heap) = self.heaps.get_mut(number) {
                heap.is_owner = true;
            }
        }
        let mut heaps = self.heaps.iter_mut().filter(|heap| heap.index == index);
        let mut collectors = heaps.next().map(|heap| std::mem::take(&mut heap.collectors)).unwrap_or_default();
        collectors.iter_mut().for_each(Collector::settle);
        Ok(collectors)
    }

    /// The block from which on rows of a relation may have been put.
    pub fn start_of(&self, index: usize) -> u32 {
        self.starts.get(index).copied().unwrap_or(0)
    }

    /// Rows of a relation that were put before that block.
    pub fn elsewhere(&self, index: usize) -> Vec<pg_sys::ItemPointerData> {
        self.heaps.iter().filter(|heap| heap.index == index).flat_map(|heap| heap.elsewhere.iter().copied()).collect()
    }

    /// Rows of a relation that this process has put into it.
    pub fn rows_of(&self, index: usize) -> u64 {
        self.heaps.iter().filter(|heap| heap.index == index).map(|heap| heap.rows).sum()
    }

    /// Of these, rows that core has told the statistics of.
    pub fn counted_rows_of(&self, index: usize) -> u64 {
        self.heaps.iter().filter(|heap| heap.index == index).map(|heap| heap.counted).sum()
    }

    /// Let go of what heaps hold. Guarded.
    pub fn release(&mut self) {
        self.heaps.iter_mut().for_each(Heap::release);
    }
}

/// Attributes that must not be NULL, but for virtual ones, which are in every row.
fn not_null(relation: pg_sys::Relation) -> Vec<usize> {
    // SAFETY: an open relation; its descriptor has natts attributes.
    unsafe {
        let descriptor = (*relation).rd_att;
        let natts = usize::try_from((*descriptor).natts).unwrap_or(0);
        let attribute = |i| &*compat::attribute(descriptor, i);
        (0..natts).filter(|&i| attribute(i).attnotnull && !compat::is_virtual(attribute(i))).collect()
    }
}
