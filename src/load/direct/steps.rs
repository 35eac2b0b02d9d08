//! The steps of a load: the leader prepares it, starts workers, loads rows itself, and finalizes the load.
//!
//! ```text
//!   prepare ─► first record ─► parallel mode, workers ─► rows ─► workers' wide rows ─► leave parallel mode ─► finalize
//!   locks, xid, statement      only for a large file                                   indexes, triggers, statistics
//!   triggers
//! ```
//!
//! The leader alone reads the first record, because it shows how the file's lines end. Parallel mode forbids some
//! steps: the leader takes the xid, the command id and the sequences before it, and does triggers and statistics after
//! it.
//!
//! Every error passes through [`failed`] before it is raised.

mod failed;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::failed::{blame, fail};
use super::executor::{self, Executor, inserted_by};
use super::finalize::{self, Finalization, Written};
use super::leader::Leader;
use super::leader::prepare::workers_for;
use super::new_files::PATIENCE;
use super::process::{Beginning, Pull, Writer};
use super::row_loop;
use crate::error::{Error, OrRaise, Result};
use crate::load::options::LoadOptions;
use crate::load::report::Counts;
use crate::load::{Load, Request};
use crate::rows::context::copy_context;
use crate::rows::soft::OnError;
use crate::server::attempt::attempt;
use crate::server::memory_context::MemoryContext;
use crate::server::original::Original;
use crate::server::points::{point, point_plain};
use crate::server::session_state::SessionState;
use crate::server::unguarded::{self, Opaque, guarded};

/// Loads a file.
///
/// # Safety
/// A plain frame, and a load that is prepared, whose memory context is current.
pub unsafe fn load(load: *mut Load) {
    // SAFETY: the load outlives its leader, which is dropped with the load's memory context; each step uses the load's
    // parts alone. Nothing in this frame has a destructor.
    unsafe {
        let mut leader: *mut Leader = std::ptr::null_mut();
        let mut original = Original::new();
        let state = SessionState::note();
        let error = Original::watch(&raw mut original, || {
            let error = attempt(|| {
                leader = guarded(|| std::ptr::from_mut(MemoryContext::current().keep(prepare(&mut *load).or_raise())));
                loop {
                    work_on_file(leader);
                    blame(&mut *leader);
                    if !guarded(|| (*leader).go_on().or_raise()) {
                        break;
                    }
                }
                guarded(|| {
                    let mut finalization = (*leader).finalize(&(*load).request).or_raise();
                    if let Some(statement) = (*load).statement {
                        statement.add_triggers(&(*leader).process.writer.executor);
                    }
                    (*leader).finish(&mut finalization, &mut (*load).measures.counts).or_raise();
                });
            });
            if error.is_null() { error } else { fail(leader.as_mut(), error, &raw mut original, &state) }
        });
        if !error.is_null() {
            unguarded::ReThrowError(error);
        }
        state.keep();
    }
}

/// Makes the leader of a load. Guarded; the leader lives in the current memory context.
fn prepare(load: &mut Load) -> Result<Leader> {
    point!("load.begin");
    let executor = set_up(load);
    // Statement triggers may change the table and its partitions, so they fire before the load reads the state of
    // either.
    if !load.request.is_dry() {
        finalize::before_rows(executor);
    }
    Leader::new(load, executor)
}

/// Makes the executor state of a load. Guarded.
fn set_up(load: &Load) -> Executor {
    let instrument = load.statement.map_or(0, |statement| statement.instrument());
    executor::set_up(
        load.target.relation().or_raise(),
        &inserted_by(load),
        load.program.where_clause.conditions,
        instrument,
    )
}

/// Loads the rows of one file.
///
/// # Safety
/// A plain frame, and a valid leader.
unsafe fn work_on_file(leader: *mut Leader) {
    // SAFETY: a plain frame, and no reference to the leader is used elsewhere; the context callback gets the rows of its process while it is
    // pushed; nothing in this frame has a destructor.
    unsafe {
        let process = &raw mut (*leader).process;
        let mut context = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(copy_context),
            arg: (&raw mut (*process).rows).cast(),
        };
        (*leader).outer = context.previous;
        pg_sys::error_context_stack = &raw mut context;
        let mut goes_on = true;
        if (*leader).workers.most > 0 && (*process).rows.stream().files().is_some() {
            // Each process reads the beginning of each file that it opens, so workers may start at once.
            start_workers(leader.cast());
        } else if (*leader).workers.most > 0 {
            (*process).writer.records = (*process).policy.skip_left + 1;
            if (*process).join().is_some() {
                // The plan asks for records. The process in which it asks for the second record starts the workers.
                let memory = pg_sys::CurrentMemoryContext;
                (*process).beginning = Some(Beginning { begin: start_workers, leader: leader.cast(), memory });
            } else {
                row_loop::run(process);
                point_plain!("load.first");
                goes_on = (*process).writer.records == 0;
                (*process).writer.records = u64::MAX;
                if goes_on {
                    start_workers(leader.cast());
                }
            }
        }
        if goes_on {
            row_loop::run(process);
        }
        ((*process).beginning, (*process).writer.records) = (None, u64::MAX);
        if let Some(Pull::Query(query)) = (*process).writer.pull {
            query.finish();
        }
        point_plain!("load.rows");
        if (*leader).is_last() {
            guarded(|| (*process).finish().or_raise());
        } else {
            guarded(|| (*leader).process.pause().or_raise());
        }
        // The leader's last line is no context for errors of workers.
        pg_sys::error_context_stack = context.previous;
        guarded(|| (*leader).end().or_raise());
    }
}

/// # Safety
/// A plain frame, and the leader of a load.
unsafe fn start_workers(leader: Opaque) {
    // SAFETY: [`Beginning`] and [`work_on_file`] pass the leader. Errors of workers carry their own context.
    unsafe {
        let leader = leader.cast::<Leader>();
        let own = pg_sys::error_context_stack;
        pg_sys::error_context_stack = (*leader).outer;
        guarded(|| {
            let started = (*leader).start();
            pg_sys::error_context_stack = own;
            started.or_raise();
        });
    }
}

impl Leader {
    /// Adds the rows appended so far to the statistics. They count as dead if the transaction fails. Only the leader
    /// does this, because a worker's transaction always ends well.
    fn count_rows(&mut self) {
        // The handler of a later error calls this again, and rows are counted once.
        if std::mem::replace(&mut self.is_counted, true) {
            return;
        }
        for (index, (oid, _)) in self.spec.traits.iter().enumerate() {
            finalize::count_rows(*oid, self.total(index) - self.process.writer.heaps.counted_rows_of(index));
        }
    }

    /// Does the steps after the last row. Outside of parallel mode.
    fn finalize(&mut self, request: &Request) -> Result<Finalization> {
        let mut finalization = self.close_heaps(&request.options)?;
        if request.is_dry() {
            self.decide_keys()?;
        } else {
            finalization.after_rows(self)?;
        }
        Ok(finalization)
    }

    /// Closes the heaps after the last row, and returns the state for finalizing the load.
    fn close_heaps(&mut self, options: &LoadOptions) -> Result<Finalization> {
        let disturbed = self.held.is_disturbed(|index| self.process.writer.heaps.counted_rows_of(index))?;
        self.count_rows();
        self.process.writer.tracer.origins.sort_anchors();
        let mut collectors = Vec::with_capacity(self.spec.traits.len());
        for index in 0..self.spec.traits.len() {
            let written = self.total(index) > 0;
            let Writer { heaps, tracer, .. } = &mut self.process.writer;
            collectors.push(if written { heaps.take_collectors(index, tracer)? } else { Vec::new() });
        }
        if disturbed && self.process.writer.heaps.stamp.frozen {
            let message = "a function has changed rows of the table while frozen rows were being loaded";
            return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .hint("Load without freeze, or without the function."));
        }
        if disturbed {
            // A function may have changed rows or inserted others, so indexes are built from the table.
            collectors.iter_mut().flat_map(|list| list.drain(..)).for_each(|mut collector| collector.close());
        }
        self.process.writer.heaps.release();
        point!("load.finalize");
        let written = |(index, &(oid, traits))| Written {
            index,
            oid,
            traits,
            rows: self.total(index),
            start: self.process.writer.heaps.start_of(index),
            elsewhere: self.process.writer.heaps.elsewhere(index),
            collectors: collectors.get_mut(index).map(std::mem::take).unwrap_or_default(),
        };
        let relations = self.spec.traits.iter().enumerate().map(written).filter(|written| written.rows > 0).collect();
        Ok(Finalization {
            executor: self.process.writer.executor,
            stamp: self.process.writer.heaps.stamp,
            relations,
            option: options.indexes,
            files: self.process.writer.heaps.plan.files,
            workers: self.workers.launched,
            builders: self.workers.at_once,
            // This does not depend on the number of new rows: workers build the indexes of whole tables.
            helpers: workers_for(options.workers, u64::MAX),
            referring: Vec::new(),
            patience: PATIENCE,
            indexes: Vec::new(),
            notes: Vec::new(),
        })
    }

    /// Closes the load's files and state, and returns its counts. Outside of parallel mode.
    fn finish(&mut self, finalization: &mut Finalization, counts: &mut Counts) -> Result<()> {
        self.process.rows.close()?;
        finalization.close_files();
        self.held.close();
        // SAFETY: the load has no row left, and finalize has ended.
        unsafe { executor::tear_down(&self.process.writer.executor) };
        // SAFETY: finalize has ended, which had the copies.
        unsafe { self.process.writer.heaps.plan.release() };
        point!("load.finalized");
        if self.process.policy.tolerance.on_error == OnError::Table {
            self.process.policy.tolerance.bad_rows = self.counts.rejected;
        }
        self.process.policy.tolerance.report(self.process.writer.rejects.kept_by());
        self.report_ragged();
        if self.replaced > 0 {
            let rows = if self.replaced == 1 { "1 row was".to_owned() } else { format!("{} rows were", self.replaced) };
            self.counts.notes.push(format!("{rows} replaced."));
        }
        let notes = std::mem::take(&mut counts.notes);
        *counts = std::mem::take(&mut self.counts);
        counts.workers = self.workers.launched;
        counts.indexes = std::mem::take(&mut finalization.indexes);
        counts.notes.extend(notes);
        counts.notes.append(&mut self.notes);
        counts.notes.append(&mut finalization.notes);
        Ok(())
    }
}
