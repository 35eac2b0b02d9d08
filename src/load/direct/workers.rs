//! The leader's side of workers: starts them, receives their messages, and adds up their counts.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pg_bulk_text::dialect::Eol;
use pg_bulk_text::reader::RecordStart;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::leader::Leader;
use super::rejects::TooMuch;
use super::spec::{LoadTask, RejectTally, Shared};
use crate::error::{Error, Result};
use crate::index::shared_sorts::SharedSorts;
use crate::input::chunk_order::Grid;
use crate::input::file_figures::FileFigures;
use crate::input::ring::{self, Ring};
use crate::input::source::Descriptor;
use crate::load::report::Counts;
use crate::rows::chunks::Chunks;
use crate::rows::file_chunks::{FileChunks, FileState, Listed};
use crate::rows::soft::OnError;
use crate::server::call::calls;
use crate::server::database::max_parallel_workers;
use crate::server::points::point;
use crate::server::sent::Sent;
use crate::server::shared_files::SharedFiles;
use crate::server::team::{Exclusive, Image, SharedRef, Team};

// SAFETY: initializes the struct.
calls! {
    fn measure(figures: &mut pg_sys::Instrumentation, options: i32) = InstrInit(figures, options);
}

impl Leader {
    /// Starts workers on the records after the first one.
    pub fn start(&mut self) -> Result<()> {
        let stream = self.process.rows.stream();
        let list = stream.files().cloned();
        let Some(file) = stream.identity() else { return Ok(()) };
        let leaders = stream.descriptor();
        let start = RecordStart { eol: Eol::Nl, offset: 0, lines: 0 };
        let reader = self.process.rows.reader();
        if list.is_none() && reader.is_in_broken_record() {
            // Workers would begin behind this row, but the other lines of its record are read as if the data ended there.
            self.notes.push("the first record has a quote that is not closed; the load ran in one process".into());
            return Ok(());
        }
        let place = if list.is_some() { Some(start) } else { reader.place_behind() };
        let Some(place) = place else { return Ok(()) };
        let Some(cutter) = stream.cutter(place) else { return Ok(()) };
        let is_compressed = list.is_none() && stream.size().is_none();
        let mut grid = match &list {
            Some(list) => FileChunks::of(list).grid(),
            None if is_compressed => Grid::endless(place.offset),
            None => Grid::from(place.offset, file.size),
        };
        let files = list.as_ref().map_or(0, |list| list.files.len());
        let wanted = self.workers.most.min(usize::try_from(grid.count().saturating_sub(1)).unwrap_or(0));
        if wanted == 0 {
            return Ok(());
        }
        if !self.workers.share_keys {
            self.share_keys(wanted);
        }
        self.spec.keys.earlier_workers = self.workers.launched;
        let mut spec = Vec::new();
        self.spec.send(&mut spec);
        let has_limit = self.process.writer.rejects.limit.is_some();
        let chunks = if has_limit { usize::try_from(grid.count()).unwrap_or(0) } else { 0 };
        let nodes = self.process.join().map_or(0, |join| join.nodes().len());
        // Only figures that are asked for are added up.
        let options = self.spec.join.as_ref().map_or(0, |join| join.instrument);
        let mut figure = pg_sys::Instrumentation::default();
        measure(&mut figure, options);
        let mut image = Image::new();
        let spec = image.array(spec);
        let sequences = image.array(self.process.writer.recipe.defaults.sequences());
        let counters = image.array(self.spec.traits.iter().map(|_| AtomicU64::new(0)));
        let rejects = image.array((0..chunks).map(|_| RejectTally::new()));
        let figures = image.array((0..wanted * nodes).map(|_| Exclusive::new(figure)));
        let states = image.array((0..files).map(|_| FileState::new()));
        let by_file = image.array((0..files).map(|_| FileFigures::default()));
        let team = Team::prepare(image, wanted, |workers| {
            if workers == 0 {
                return Err("no shared memory for workers; the load ran in one process");
            }
            let mut ring = Descriptor::NONE;
            if is_compressed {
                let most = usize::try_from(max_parallel_workers()).unwrap_or(0);
                let processes = workers.min(most) + 1;
                let chunk_len = ring::fitting(processes, usize::try_from(grid.len).unwrap_or(0));
                grid.len = chunk_len as u64;
                ring = (self.process.rows.stream_mut().source_mut().share(place.offset, processes, chunk_len))
                    .ok_or("no shared memory for the decompressed file; the load ran in one process")?;
            }
            let mut shared = Shared::new(file, grid, place, self.alone.bad.swap(0, Relaxed));
            (shared.leaders, shared.ring) = (leaders, ring);
            shared.kept.store(self.alone.kept.load(Relaxed), Relaxed);
            Ok(LoadTask { shared, spec, sequences, counters, rejects, figures, states, by_file })
        });
        let mut team = match team {
            Ok(team) => team,
            Err(note) => {
                self.notes.push(note.into());
                return Ok(());
            }
        };
        let task = team.task();
        // SAFETY: the memory stays until the workers are gone, and this process then uses its own again.
        let (shared, rejects, states) = unsafe {
            (
                SharedRef::new(&task.shared),
                SharedRef::new(team.slice(task.rejects)),
                SharedRef::new(team.slice(task.states)),
            )
        };
        self.process.hand_over(shared, if is_compressed { 0 } else { place.offset });
        let launched = team.launch();
        point!("load.launched");
        // SAFETY: when the team ends, the process gets empty queues, and receives nothing before.
        let queues = unsafe { team.queues() };
        self.workers.team = Some(team);
        self.workers.launched += launched;
        self.workers.at_once = self.workers.at_once.max(launched);
        self.phases().show(|figures| figures.workers = launched);
        if launched < wanted {
            self.notes.push(format!("{launched} of {wanted} workers could be started"));
        }
        if has_limit {
            self.process.writer.rejects.tallies = Some(rejects);
        }
        self.process.writer.chunks = match &list {
            Some(list) => {
                Chunks::Listed(Box::new(Listed::new(list, states, self.process.writer.recipe.defaults.takes_ids())))
            }
            None => Chunks::Shared { cutter: Box::new(cutter), ticket: 0 },
        };
        self.process.rows.stream_mut().let_caller_switch();
        self.process.rows.end_stream();
        self.process.writer.wide.set_queues(queues);
        Ok(())
    }

    /// Prepares shared key runs for `workers` workers, of all files, before the first worker starts. Guarded.
    pub fn share_keys(&mut self, workers: usize) {
        self.workers.share_keys = true;
        if !self.spec.keys.list.is_empty() {
            match SharedFiles::create() {
                Some(files) => {
                    self.spec.keys.files = files.handle();
                    self.process.writer.heaps.share_files(files);
                }
                None => self.spec.keys.list.clear(),
            }
        }
        let sorts = self.spec.keys.list.iter().filter(|planned| planned.sort.is_some()).count();
        if sorts > 0 {
            // The leader may get further rows after its first sort, and then takes part a second time.
            self.spec.keys.participants = workers + 2;
            match SharedSorts::create(sorts, self.spec.keys.participants) {
                Some(sorts) => {
                    self.spec.keys.sorts = sorts.handle();
                    self.process.writer.heaps.share_sorts(sorts);
                }
                None => self.spec.keys.list.retain(|planned| planned.sort.is_none()),
            }
        }
    }

    /// Receives what workers still send, and waits for the workers.
    pub fn end(&mut self) -> Result<()> {
        if self.workers.team.is_some() {
            self.process.writer.receive_all(&self.process.rows)?;
            // Pages of the leader still contain rows of workers.
            if self.is_last() {
                self.process.finish()?;
            } else {
                self.process.pause()?;
            }
            point!("load.received");
            if let Some(team) = &mut self.workers.team {
                self.counts.others.add(team.wait());
                if let Some(join) = self.process.join() {
                    // SAFETY: the workers have ended.
                    let figures = unsafe { &mut *Exclusive::pointer(team.slice(team.task().figures)) };
                    join.add_figures(figures, team.launched());
                }
            }
            self.gather()?;
            // If the reject limit was exceeded, not all files were read to their end.
            self.note_whole_files();
            if let Some(team) = &self.workers.team {
                let by_workers = team.slice(team.task().by_file);
                self.process.writer.progress.by_file.all().zip(by_workers).for_each(|(to, from)| to.add(from));
            }
            self.too_much = self.find_too_much();
            self.process.writer.rejects.tallies = None;
            self.process.writer.shared = self.alone.into();
            self.workers.gathered = (0..self.spec.traits.len()).map(|index| self.by_workers(index)).collect();
            if let Some(team) = self.workers.team.take() {
                team.finish();
            }
        } else {
            self.gather()?;
        }
        Ok(())
    }

    /// Notes the files that all processes have read to their end. Only while the workers' figures exist.
    pub fn note_whole_files(&self) {
        if let (Chunks::Listed(listed), Some(_)) = (&self.process.writer.chunks, &self.workers.team) {
            let open = self.process.writer.shared.first_open();
            self.process.writer.progress.by_file.note_whole(listed.chunks().file_of(open));
        }
    }

    /// The record that exceeded `reject_limit`, if there is one before the position at which the load ended.
    pub fn find_too_much(&self) -> Option<TooMuch> {
        self.process.writer.rejects.too_much(&self.process.writer.shared)
    }

    /// Prepares to read that record again. False without such a record, or if it was read again already. Guarded.
    pub fn look_again(&mut self) -> Result<bool> {
        if self.files.looked_again {
            return Ok(false);
        }
        let Some(TooMuch { ticket, place, before }) = self.too_much.or_else(|| self.find_too_much()) else {
            return Ok(false);
        };
        self.files.looked_again = true;
        let process = &mut self.process;
        process.writer.shared = self.alone.into();
        if let Some(team) = self.workers.team.take() {
            // SAFETY: raises nothing. A wait that timed out has left this process in the queue of a shared condition
            // variable.
            unsafe { pg_sys::ConditionVariableCancelSleep() };
            // A worker that raised its error is gone, and waiting for it would be an error.
            team.destroy();
        }
        process.writer.rejects = process.writer.rejects.again(before);
        self.alone.bad.store(0, Relaxed);
        process.look_again(ticket, place, &self.spec.inserted)?;
        Ok(true)
    }

    /// Adds up the counts of all processes for a file, after the last one is done and before the shared memory is gone.
    ///
    /// Rows are counted where they are made and where they are stored. If the counts differ, a row is missing and the
    /// load fails.
    fn gather(&mut self) -> Result<()> {
        let shared = self.process.writer.shared;
        // What the leader has counted before it started workers, and what all processes have counted since.
        let other = (!std::ptr::eq(&raw const *shared, self.alone)).then_some(&*shared);
        let both = |count: fn(&Shared) -> &AtomicU64| {
            other.into_iter().chain([self.alone]).map(|shared| count(shared).load(Relaxed)).sum::<u64>()
        };
        self.counts.filtered += both(|s| &s.filtered);
        let mut bytes_read = both(|s| &s.bytes);
        self.files.made += both(|s| &s.rows);
        let bad = both(|s| &s.bad);
        let Counts { pages, stages, .. } = &mut self.counts;
        for shared in other.into_iter().chain([self.alone]) {
            self.files.ragged.add(&shared.ragged.total());
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
        self.process.policy.tolerance.bad_rows = bad;
        // Rows with values set to NULL are in the table.
        if self.process.policy.tolerance.on_error != OnError::SetNull {
            self.counts.rejected += bad;
        }
        if !self.is_last() {
            return Ok(());
        }
        let made = self.files.made;
        self.counts.loaded = (0..self.spec.traits.len()).map(|index| self.total(index)).sum();
        if self.process.writer.heaps.is_dry {
            self.counts.loaded = made;
        }
        if made != self.counts.loaded {
            let message = format!("{made} rows were made, but {} were stored", self.counts.loaded);
            return Err(Error::new(Code::ERRCODE_INTERNAL_ERROR, message));
        }
        Ok(())
    }
}
