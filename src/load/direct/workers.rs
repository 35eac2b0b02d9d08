//! The leader's side of workers: starts them, receives their messages, and adds up their counts.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pg_bulk_format::dialect::Eol;
use pg_bulk_format::reader::RecordStart;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::join::figures;
use super::leader::Leader;
use super::rejects::{RejectTally, TooMuch};
use super::shared::{
    KEY_BY_FILE, KEY_COUNTERS, KEY_FIGURES, KEY_FILES, KEY_QUEUES, KEY_REJECTS, KEY_SHARED, KEY_SPEC, KEY_USAGES,
    Shared,
};
use super::wide::QUEUE;
use crate::error::{Error, Result};
use crate::load::report::Counts;
use crate::pg::build_id::build_id;
use crate::pg::chunk_order::Grid;
use crate::pg::chunks::Chunks;
use crate::pg::file_chunks::{FileChunks, FileState, Listed};
use crate::pg::file_figures::{ByFile, FileFigures};
use crate::pg::parallel::Parallel;
use crate::pg::points::point;
use crate::pg::ring::{self, Ring};
use crate::pg::shared_files::SharedFiles;
use crate::pg::shared_sorts::SharedSorts;
use crate::pg::soft::OnError;
use crate::pg::source::Descriptor;
use crate::pg::usage::{self, WorkerUsage};

impl Leader {
    /// Starts workers on the records after the first one.
    pub fn start(&mut self) -> Result<()> {
        let stream = self.process.rows.stream();
        let list = stream.files().cloned();
        let Some(file) = stream.identity() else { return Ok(()) };
        let leaders = stream.descriptor();
        let start = RecordStart { eol: Eol::Nl, offset: 0, lines: 0 };
        let place = if list.is_some() { Some(start) } else { self.process.rows.reader().place_behind() };
        let Some(place) = place else { return Ok(()) };
        let Some(cutter) = stream.cutter(place) else { return Ok(()) };
        let is_compressed = list.is_none() && stream.size().is_none();
        let mut grid = match &list {
            Some(list) => FileChunks::of(list).grid(),
            None if is_compressed => Grid::endless(place.offset),
            None => Grid::from(place.offset, file.size),
        };
        let files = list.as_ref().map_or(0, |list| list.files.len());
        let wanted = self.most_workers.min(usize::try_from(grid.count().saturating_sub(1)).unwrap_or(0));
        if wanted == 0 {
            return Ok(());
        }
        if !self.shares_keys {
            self.share_keys(wanted);
        }
        self.spec.earlier_workers = self.workers;
        let spec = self.spec.write();
        let counters = self.spec.traits.len();
        let mut parallel = Parallel::new(c"pg_bulk_load_worker", wanted);
        parallel.estimate(size_of::<Shared>());
        parallel.estimate(counters * size_of::<AtomicU64>());
        parallel.estimate(spec.len() + 8);
        parallel.estimate(wanted * QUEUE);
        let has_limit = self.process.rejects.limit.is_some();
        let chunks = if has_limit { usize::try_from(grid.count()).unwrap_or(0) } else { 0 };
        parallel.estimate(chunks * size_of::<RejectTally>());
        parallel.estimate(wanted * size_of::<WorkerUsage>());
        let nodes = self.process.join().map_or(0, figures::nodes);
        parallel.estimate(wanted * nodes * size_of::<pg_sys::Instrumentation>());
        parallel.estimate(files * size_of::<FileState>());
        parallel.estimate(files * size_of::<FileFigures>());
        parallel.initialize();
        let wanted = parallel.most_workers().min(wanted);
        if wanted == 0 {
            parallel.finish();
            self.notes.push("no shared memory for workers; the load ran in one process".into());
            return Ok(());
        }
        let mut descriptor = Descriptor::NONE;
        if is_compressed {
            // SAFETY: reads a setting.
            let most = usize::try_from(unsafe { pg_sys::max_parallel_workers }).unwrap_or(0);
            let processes = wanted.min(most) + 1;
            let chunk_len = ring::fitting(processes, usize::try_from(grid.len).unwrap_or(0));
            grid.len = chunk_len as u64;
            match self.process.rows.stream_mut().source_mut().share(place.offset, processes, chunk_len) {
                Some(shared) => descriptor = shared,
                None => {
                    parallel.finish();
                    self.notes.push("no shared memory for the decompressed file; the load ran in one process".into());
                    return Ok(());
                }
            }
        }
        let shared = parallel.insert(KEY_SHARED, size_of::<Shared>()).cast::<Shared>();
        let counts = parallel.insert(KEY_COUNTERS, counters * size_of::<AtomicU64>()).cast::<AtomicU64>();
        let text = parallel.insert(KEY_SPEC, spec.len() + 8);
        let queues = parallel.insert(KEY_QUEUES, wanted * QUEUE);
        let rejects = parallel.insert(KEY_REJECTS, chunks * size_of::<RejectTally>()).cast::<RejectTally>();
        let bad = self.alone.bad.swap(0, Relaxed);
        let usages = parallel.insert(KEY_USAGES, wanted * size_of::<WorkerUsage>()).cast::<WorkerUsage>();
        let figures = parallel.insert(KEY_FIGURES, wanted * nodes * size_of::<pg_sys::Instrumentation>());
        let figures = figures.cast::<pg_sys::Instrumentation>();
        let states = parallel.insert(KEY_FILES, files * size_of::<FileState>()).cast::<FileState>();
        let by_file = parallel.insert(KEY_BY_FILE, files * size_of::<FileFigures>()).cast::<FileFigures>();
        // SAFETY: memory of these sizes, aligned for any type.
        let queues: Vec<_> = unsafe {
            shared.write(Shared::new(file, grid, place, bad, build_id()));
            ((*shared).leaders, (*shared).ring) = (leaders, descriptor);
            (*shared).kept.store(self.alone.kept.load(Relaxed), Relaxed);
            for i in 0..chunks {
                rejects.add(i).write(RejectTally::new());
            }
            for i in 0..files {
                states.add(i).write(FileState::new());
                by_file.add(i).write(FileFigures::default());
            }
            for i in 0..counters {
                counts.add(i).write(AtomicU64::new(0));
            }
            for i in 0..wanted {
                usages.add(i).write(WorkerUsage::default());
            }
            for i in 0..wanted * nodes {
                // Only figures that are asked for are added up.
                let options = self.spec.join.as_ref().map_or(0, |join| join.instrument);
                pg_sys::InstrInit(figures.add(i), options);
            }
            text.cast::<u64>().write(spec.len() as u64);
            std::ptr::copy_nonoverlapping(spec.as_ptr(), text.add(8), spec.len());
            (0..wanted).map(|i| parallel.queue(queues.add(i * QUEUE), QUEUE)).collect()
        };
        // SAFETY: written above; the memory stays until the workers are gone.
        unsafe { self.process.hand_over(shared, if is_compressed { 0 } else { place.offset }) };
        let launched = parallel.launch();
        point!("load.launched");
        // SAFETY: queues of launched workers.
        unsafe { queues.iter().take(launched).enumerate().for_each(|(i, &queue)| parallel.belongs(queue, i)) };
        self.parallel = Some(parallel);
        self.counters = counts;
        self.usages = usages;
        // SAFETY: written above; the figures stay until they are added up.
        self.by_file = unsafe { ByFile::new(by_file, files) };
        self.figures = figures;
        self.launched = launched;
        self.workers += launched;
        self.builders = self.builders.max(launched);
        // SAFETY: the load outlives its leader.
        unsafe { &mut *self.process.progress.phases }.show(|figures| figures.workers = launched);
        if launched < wanted {
            self.notes.push(format!("{launched} of {wanted} workers could be started"));
        }
        if has_limit {
            self.process.rejects.tallies = rejects;
        }
        self.process.chunks = match &list {
            Some(list) => Chunks::Listed(Box::new(Listed::new(list, states, self.process.recipe.defaults.takes_ids()))),
            None => Chunks::Shared { cutter: Box::new(cutter), ticket: 0 },
        };
        self.process.rows.stream_mut().let_caller_switch();
        self.process.rows.end_stream();
        self.process.wide.set_queues(queues.into_iter().take(launched).collect());
        Ok(())
    }

    /// Prepares shared key runs for `workers` workers, of all files, before the first worker starts. Guarded.
    pub fn share_keys(&mut self, workers: usize) {
        self.shares_keys = true;
        if !self.spec.keys.is_empty() {
            match SharedFiles::create() {
                Some(files) => {
                    self.spec.key_files = files.handle();
                    self.process.heaps.share_files(files);
                }
                None => self.spec.keys.clear(),
            }
        }
        let sorts = self.spec.keys.iter().filter(|planned| planned.sort.is_some()).count();
        if sorts > 0 {
            // The leader may get further rows after its first sort, and then takes part a second time.
            self.spec.key_participants = workers + 2;
            match SharedSorts::create(sorts, self.spec.key_participants) {
                Some(sorts) => {
                    self.spec.key_sorts = sorts.handle();
                    self.process.heaps.share_sorts(sorts);
                }
                None => self.spec.keys.retain(|planned| planned.sort.is_none()),
            }
        }
    }

    /// Receives what workers still send, and waits for the workers.
    pub fn end(&mut self) -> Result<()> {
        if self.parallel.is_some() {
            self.process.receive_all()?;
            // Pages of the leader still contain rows of workers.
            if self.is_last() {
                self.process.finish()?;
            } else {
                self.process.pause()?;
            }
            point!("load.received");
            if let Some(parallel) = &self.parallel {
                parallel.wait();
            }
            // SAFETY: an element for each worker, and the workers have ended.
            let cpu = unsafe { usage::take_usages(self.usages, self.launched) };
            self.counts.others.add(cpu);
            if let Some(join) = self.process.join() {
                // SAFETY: as for the CPU usage.
                unsafe { figures::take(join, self.figures, self.launched) };
            }
            self.gather()?;
            // If the reject limit was exceeded, not all files were read to their end.
            self.note_whole_files();
            let by_workers = std::mem::replace(&mut self.by_file, ByFile::NONE);
            self.process.progress.by_file.all().zip(by_workers.all()).for_each(|(to, from)| to.add(from));
            self.too_much = self.find_too_much();
            self.process.rejects.tallies = std::ptr::null();
            self.process.shared = &raw const *self.alone;
            if let Some(parallel) = self.parallel.take() {
                parallel.finish();
            }
        } else {
            self.gather()?;
        }
        Ok(())
    }

    /// Notes the files that all processes have read to their end. Only while the workers' figures exist.
    pub fn note_whole_files(&self) {
        if let (Chunks::Listed(listed), Some(_)) = (&self.process.chunks, &self.parallel) {
            let open = self.process.shared().first_open();
            self.process.progress.by_file.note_whole(listed.chunks().file_of(open));
        }
    }

    /// The record that exceeded `reject_limit`, if there is one before the position at which the load ended.
    pub fn find_too_much(&self) -> Option<TooMuch> {
        let shared = self.process.shared();
        self.process.rejects.too_much(shared)
    }

    /// Prepares to read that record again. False without such a record, or if it was read again already. Guarded.
    pub fn look_again(&mut self) -> Result<bool> {
        if self.looked_again {
            return Ok(false);
        }
        let Some(TooMuch { ticket, place, before }) = self.too_much.or_else(|| self.find_too_much()) else {
            return Ok(false);
        };
        self.looked_again = true;
        let process = &mut self.process;
        process.shared = &raw const *self.alone;
        self.counters = std::ptr::null();
        self.by_file = ByFile::NONE;
        if let Some(parallel) = self.parallel.take() {
            // SAFETY: raises nothing. A wait that timed out has left this process in the queue of a shared condition
            // variable.
            unsafe { pg_sys::ConditionVariableCancelSleep() };
            // A worker that raised its error is gone, and waiting for it would be an error.
            parallel.destroy();
        }
        process.rejects = process.rejects.again(before);
        self.alone.bad.store(0, Relaxed);
        process.look_again(ticket, place, &self.spec.inserted)?;
        Ok(true)
    }

    /// Adds up the counts of all processes for a file, after the last one is done and before the shared memory is gone.
    ///
    /// Rows are counted where they are made and where they are stored. If the counts differ, a row is missing and the
    /// load fails.
    fn gather(&mut self) -> Result<()> {
        let shared = self.process.shared();
        let alone = &self.alone;
        let both = |count: fn(&Shared) -> &AtomicU64| {
            let own = if std::ptr::eq(shared, &raw const **alone) { 0 } else { count(alone).load(Relaxed) };
            count(shared).load(Relaxed) + own
        };
        self.counts.filtered += both(|s| &s.filtered);
        let mut bytes_read = both(|s| &s.bytes);
        self.made += both(|s| &s.rows);
        let Counts { pages, stages, .. } = &mut self.counts;
        alone.sum_up(pages, stages);
        if !std::ptr::eq(shared, &raw const **alone) {
            shared.sum_up(pages, stages);
        }
        let stream = self.process.rows.stream();
        if let Some(size) = stream.files().map(|list| list.size()).or(stream.size()) {
            // The beginnings of some records are read more than once.
            bytes_read = bytes_read.min(size);
        } else if let Some(size) = self.process.rows.stream().file_size() {
            // A compressed file that had to be read in order after all is read twice, too. Blocks decompressed ahead
            // count.
            let ahead = self.process.rows.stream().source().ring().map_or(0, Ring::consumed);
            bytes_read = bytes_read.max(ahead).min(size);
        }
        self.counts.bytes_read += bytes_read;
        self.gathered = (0..self.spec.traits.len()).map(|index| self.by_workers(index)).collect();
        self.counters = std::ptr::null();
        let bad = both(|s| &s.bad);
        self.process.tolerance.bad_rows = bad;
        // Rows with values set to NULL are in the table.
        if self.process.tolerance.on_error != OnError::SetNull {
            self.counts.rejected += bad;
        }
        if !self.is_last() {
            return Ok(());
        }
        let made = self.made;
        self.counts.loaded = (0..self.spec.traits.len()).map(|index| self.total(index)).sum();
        if self.process.heaps.is_dry {
            self.counts.loaded = made;
        }
        if made != self.counts.loaded {
            let message = format!("{made} rows were made, but {} were stored", self.counts.loaded);
            return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
        }
        Ok(())
    }
}
