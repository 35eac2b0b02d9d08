//! The leader's part of having workers: start them, take what they send, count what they did.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pg_bulk_format::dialect::Eol;
use pg_bulk_format::reader::Place;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::join::figures;
use super::leader::Leader;
use super::rejects::{Tally, TooMuch};
use super::shared::{
    KEY_BY_FILE, KEY_COUNTERS, KEY_FIGURES, KEY_FILES, KEY_QUEUES, KEY_REJECTS, KEY_SHARED, KEY_SHARES, KEY_SPEC,
    Shared,
};
use super::wide::QUEUE;
use crate::error::{Error, Result};
use crate::load::report::Counts;
use crate::pg::build_id::build_id;
use crate::pg::chunks::Chunks;
use crate::pg::file_figures::{ByFile, FileFigures};
use crate::pg::parallel::Parallel;
use crate::pg::points::point;
use crate::pg::ring::{self, Ring};
use crate::pg::shared_files::SharedFiles;
use crate::pg::shared_sorts::SharedSorts;
use crate::pg::soft::OnError;
use crate::pg::source::Descriptor;
use crate::pg::stretches::Grid;
use crate::pg::units::{FileState, Listed, Units};
use crate::pg::usage::{self, Share};

impl Leader {
    /// Start workers on what is behind the record that was read first.
    pub fn start(&mut self) -> Result<()> {
        let stream = self.process.rows.stream();
        let list = stream.files().cloned();
        let Some(file) = stream.identity() else { return Ok(()) };
        let leaders = stream.descriptor();
        let start = Place { eol: Eol::Nl, offset: 0, lines: 0 };
        let place = if list.is_some() { Some(start) } else { self.process.rows.reader().place_behind() };
        let Some(place) = place else { return Ok(()) };
        let Some(cutter) = stream.cutter(place) else { return Ok(()) };
        let is_compressed = list.is_none() && stream.size().is_none();
        let mut grid = match &list {
            Some(list) => Units::of(list).grid(),
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
        let stretches = if has_limit { usize::try_from(grid.count()).unwrap_or(0) } else { 0 };
        parallel.estimate(stretches * size_of::<Tally>());
        parallel.estimate(wanted * size_of::<Share>());
        let nodes = self.process.join.as_ref().map_or(0, figures::nodes);
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
            let stretch = ring::fitting(processes, usize::try_from(grid.len).unwrap_or(0));
            grid.len = stretch as u64;
            match self.process.rows.stream_mut().source_mut().share(place.offset, processes, stretch) {
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
        let rejects = parallel.insert(KEY_REJECTS, stretches * size_of::<Tally>()).cast::<Tally>();
        let bad = self.alone.bad.swap(0, Relaxed);
        let shares = parallel.insert(KEY_SHARES, wanted * size_of::<Share>()).cast::<Share>();
        let figures = parallel.insert(KEY_FIGURES, wanted * nodes * size_of::<pg_sys::Instrumentation>());
        let figures = figures.cast::<pg_sys::Instrumentation>();
        let states = parallel.insert(KEY_FILES, files * size_of::<FileState>()).cast::<FileState>();
        let by_file = parallel.insert(KEY_BY_FILE, files * size_of::<FileFigures>()).cast::<FileFigures>();
        // SAFETY: room of these sizes, aligned for everything.
        let queues: Vec<_> = unsafe {
            shared.write(Shared::new(file, grid, place, bad, build_id()));
            ((*shared).leaders, (*shared).ring) = (leaders, descriptor);
            (*shared).kept.store(self.alone.kept.load(Relaxed), Relaxed);
            for i in 0..stretches {
                rejects.add(i).write(Tally::new());
            }
            for i in 0..files {
                states.add(i).write(FileState::new());
                by_file.add(i).write(FileFigures::default());
            }
            for i in 0..counters {
                counts.add(i).write(AtomicU64::new(0));
            }
            for i in 0..wanted {
                shares.add(i).write(Share::default());
            }
            for i in 0..wanted * nodes {
                // Only what is asked for is added up.
                let options = self.spec.join.as_ref().map_or(0, |join| join.instrument);
                pg_sys::InstrInit(figures.add(i), options);
            }
            text.cast::<u64>().write(spec.len() as u64);
            std::ptr::copy_nonoverlapping(spec.as_ptr(), text.add(8), spec.len());
            (0..wanted).map(|i| parallel.queue(queues.add(i * QUEUE), QUEUE)).collect()
        };
        // SAFETY: made above; it is there until the workers are gone.
        unsafe { self.process.hand_over(shared, if is_compressed { 0 } else { place.offset }) };
        let launched = parallel.launch();
        point!("load.launched");
        // SAFETY: queues of workers that were launched.
        unsafe { queues.iter().take(launched).enumerate().for_each(|(i, &queue)| parallel.belongs(queue, i)) };
        self.parallel = Some(parallel);
        self.counters = counts;
        self.shares = shares;
        // SAFETY: made above; they are there until they are added up.
        self.by_file = unsafe { ByFile::new(by_file, files) };
        self.figures = figures;
        self.launched = launched;
        self.workers += launched;
        self.builders = self.builders.max(launched);
        // SAFETY: the load's, which outlives its leader.
        unsafe { &mut *self.process.phases }.show(|figures| figures.workers = launched);
        if launched < wanted {
            self.notes.push(format!("{launched} of {wanted} workers could be started"));
        }
        if has_limit {
            self.process.rejects.tallies = rejects;
        }
        self.process.chunks = match &list {
            Some(list) => Chunks::Listed(Box::new(Listed::new(list, states, self.process.defaults.takes_ids()))),
            None => Chunks::Shared { cutter: Box::new(cutter), number: 0 },
        };
        self.process.rows.stream_mut().wait_for_turns();
        self.process.rows.end_stream();
        self.process.wide.set_queues(queues.into_iter().take(launched).collect());
        Ok(())
    }

    /// So many workers, one after the other, are going to have keys, too. Before there are any. Guarded.
    pub fn share_keys(&mut self, workers: usize) {
        self.shares_keys = true;
        if !self.spec.keys.is_empty() {
            match SharedFiles::create() {
                Some(files) => {
                    self.spec.key_files = files.handle();
                    self.process.share_files(files);
                }
                None => self.spec.keys.clear(),
            }
        }
        let sorts = self.spec.keys.iter().filter(|planned| planned.sort.is_some()).count();
        if sorts > 0 {
            // The leader may have more rows when it has sorted.
            self.spec.key_participants = workers + 2;
            match SharedSorts::create(sorts, self.spec.key_participants) {
                Some(sorts) => {
                    self.spec.key_sorts = sorts.handle();
                    self.process.share_sorts(sorts);
                }
                None => self.spec.keys.retain(|planned| planned.sort.is_none()),
            }
        }
    }

    /// Take what workers still send, and wait for them.
    pub fn end(&mut self) -> Result<()> {
        if self.parallel.is_some() {
            self.process.receive_all()?;
            // Rows of workers are on the leader's pages.
            if self.is_last() {
                self.process.finish()?;
            } else {
                self.process.pause()?;
            }
            point!("load.received");
            if let Some(parallel) = &self.parallel {
                parallel.wait();
            }
            // SAFETY: a share for each worker, and they are gone.
            let cpu = unsafe { usage::take_shares(self.shares, self.launched) };
            self.counts.others.add(cpu);
            if let Some(join) = &self.process.join {
                // SAFETY: as for the shares.
                unsafe { figures::take(join, self.figures, self.launched) };
            }
            self.gather()?;
            // Not all, if more rows were left out than may be.
            self.note_whole_files();
            let by_workers = std::mem::replace(&mut self.by_file, ByFile::NONE);
            self.process.by_file.all().zip(by_workers.all()).for_each(|(to, from)| to.add(from));
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

    /// How far are all processes with the files? While there still are workers' figures.
    pub fn note_whole_files(&self) {
        if let (Chunks::Listed(listed), Some(_)) = (&self.process.chunks, &self.parallel) {
            let open = self.process.shared().first_open();
            self.process.by_file.note_whole(listed.units().file_of(open));
        }
    }

    /// The row that was too many for `reject_limit`, if the file has one up to where the load ended.
    pub fn find_too_much(&self) -> Option<TooMuch> {
        let shared = self.process.shared();
        self.process.rejects.too_much(shared)
    }

    /// Get ready to find that row again. False if there is none, or it was looked for already. Guarded.
    pub fn look_again(&mut self) -> Result<bool> {
        if self.looked_again {
            return Ok(false);
        }
        let Some(TooMuch { stretch, place, before }) = self.too_much.or_else(|| self.find_too_much()) else {
            return Ok(false);
        };
        self.looked_again = true;
        let process = &mut self.process;
        process.shared = &raw const *self.alone;
        self.counters = std::ptr::null();
        self.by_file = ByFile::NONE;
        if let Some(parallel) = self.parallel.take() {
            // SAFETY: raises nothing. Whoever waited with a timeout is still in the queue of a condition variable there.
            unsafe { pg_sys::ConditionVariableCancelSleep() };
            // One that raised its error is gone, and must not be missed.
            parallel.destroy();
        }
        process.rejects = process.rejects.again(before);
        self.alone.bad.store(0, Relaxed);
        process.look_again(stretch, place, &self.spec.inserted)?;
        Ok(true)
    }

    /// What all processes have counted of a file. After the last one is done, before the shared memory is gone.
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
            // Beginnings of records are read more than once.
            bytes_read = bytes_read.min(size);
        } else if let Some(size) = self.process.rows.stream().file_size() {
            // So is a compressed file that had to be read in order after all. What was decompressed ahead counts.
            let ahead = self.process.rows.stream().source().ring().map_or(0, Ring::consumed);
            bytes_read = bytes_read.max(ahead).min(size);
        }
        self.counts.bytes_read += bytes_read;
        self.gathered = (0..self.spec.traits.len()).map(|index| self.by_workers(index)).collect();
        self.counters = std::ptr::null();
        let bad = both(|s| &s.bad);
        self.process.tolerance.bad_rows = bad;
        // Rows whose values became NULL are in the table.
        if self.process.tolerance.on_error != OnError::SetNull {
            self.counts.rejected += bad;
        }
        if !self.is_last() {
            return Ok(());
        }
        let made = self.made;
        self.counts.loaded = (0..self.spec.traits.len()).map(|index| self.total(index)).sum();
        if self.process.is_dry {
            self.counts.loaded = made;
        }
        if made != self.counts.loaded {
            let message = format!("{made} rows were made, but {} were stored", self.counts.loaded);
            return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
        }
        Ok(())
    }
}
