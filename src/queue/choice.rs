//! Chooses the jobs that may start now, and the next of them.
//!
//! **Slots.** `pg_bulk.max_running_jobs` jobs run at a time. One owner may take all of these slots, so that an
//! installation with a single owner uses them all. An owner without a running job does not wait for another owner's
//! second job: it starts one job beyond the limit while fewer owners than `max_running_jobs` have a running job. So
//! each of up to `max_running_jobs` owners can always run one job, and at most `2 * max_running_jobs - 1` jobs run. A
//! limit of 1 is exact: jobs run one after the other.
//!
//! An alternative would be to keep one slot free for other owners. It needs no job beyond the limit, but a single owner
//! would lose one of the two slots of the default.
//!
//! **Order.** The next job has the lowest priority number. Among jobs of the same priority, the owner with the fewest
//! running jobs comes first, then the owner whose last start is the longest ago, then the earliest `run_at`. An owner
//! gains neither by the number of its jobs nor by an early `run_at`. Only owners with a separate right have priorities
//! below 0 (`functions`).
//!
//! **Tables.** A job that blocks other sessions from its table (`alone`) waits until no other job loads that table, and
//! jobs behind it wait for it. Here the order is priority, `run_at`, `job_id`, for all owners together. A job whose
//! owner gets no slot now blocks only its owner's jobs. Otherwise one owner's long jobs could keep other owners from a
//! table.
//!
//! The view bulk_jobs shows by the same rules what a job waits for (sql/queue.sql).

use std::collections::HashMap;

use pgrx::pg_sys;

use super::job::Queued;

/// The slots in use, by owner.
#[derive(Debug, Clone)]
pub struct Slots {
    limit: usize,
    /// Running jobs of each owner that has one.
    running: HashMap<u32, usize>,
}

impl Slots {
    /// Takes the owners of the running jobs, once for each job.
    pub fn new(limit: usize, owners: impl Iterator<Item = pg_sys::Oid>) -> Slots {
        let mut slots = Slots { limit, running: HashMap::new() };
        owners.for_each(|owner| slots.take(owner));
        slots
    }

    fn take(&mut self, owner: pg_sys::Oid) {
        *self.running.entry(owner.to_u32()).or_default() += 1;
    }

    fn running_of(&self, owner: pg_sys::Oid) -> usize {
        self.running.get(&owner.to_u32()).copied().unwrap_or(0)
    }

    /// May a job of this owner start?
    pub fn may_start(&self, owner: pg_sys::Oid) -> bool {
        let total: usize = self.running.values().sum();
        total < self.limit || self.has_beyond() && self.running_of(owner) == 0
    }

    /// May a job of any owner start?
    pub fn has_room(&self) -> bool {
        self.running.values().sum::<usize>() < self.limit || self.has_beyond()
    }

    /// May an owner without a running job start one?
    fn has_beyond(&self) -> bool {
        self.running.len() < self.limit
    }
}

/// The sequence number of each owner's last start.
#[derive(Debug, Default)]
pub struct LastStarts {
    number: u64,
    last: HashMap<u32, u64>,
}

impl LastStarts {
    /// Records the start of a job of this owner.
    pub fn record(&mut self, owner: pg_sys::Oid) {
        self.number += 1;
        self.last.insert(owner.to_u32(), self.number);
    }

    /// 0 if the owner has not started a job.
    fn last_of(&self, owner: pg_sys::Oid) -> u64 {
        self.last.get(&owner.to_u32()).copied().unwrap_or(0)
    }
}

/// Tables that are being loaded, or will be.
#[derive(Debug, Clone, Default)]
pub struct Targets(HashMap<u32, bool>);

impl Targets {
    /// Adds a job's table; `alone` if the job excludes other loads of it.
    pub fn add(&mut self, target: pg_sys::Oid, alone: bool) {
        *self.0.entry(target.to_u32()).or_default() |= alone;
    }

    fn keep_out(&self, job: &Queued) -> bool {
        self.0.get(&job.target.to_u32()).is_some_and(|alone| *alone || job.alone)
    }
}

/// Of the due jobs, in the order of [`super::Queue::due`], those that may start now, the next one first. Counts them in
/// `slots` and `busy`.
pub fn choose(
    candidates: &[Queued],
    may_start: impl Fn(&Queued) -> bool,
    slots: &mut Slots,
    mut busy: Targets,
    last_starts: &LastStarts,
) -> Vec<Queued> {
    let mut start: Vec<Queued> = Vec::new();
    while slots.has_room() {
        let Some(next) = next(candidates, &may_start, slots, &busy, last_starts, &start) else { break };
        slots.take(next.owner);
        busy.add(next.target, next.alone);
        start.push(next);
    }
    start
}

/// The next job.
fn next(
    candidates: &[Queued],
    may_start: &impl Fn(&Queued) -> bool,
    slots: &Slots,
    busy: &Targets,
    last_starts: &LastStarts,
    started: &[Queued],
) -> Option<Queued> {
    let mut before = Targets::default();
    let mut best = None;
    for (place, job) in candidates.iter().enumerate() {
        // An owner without a slot for this job has none for a later one either.
        if !slots.may_start(job.owner) || started.iter().any(|other| other.id == job.id) {
            continue;
        }
        let waits = busy.keep_out(job) || before.keep_out(job);
        before.add(job.target, job.alone);
        if waits || !may_start(job) {
            continue;
        }
        let rank = (job.rank, slots.running_of(job.owner), last_starts.last_of(job.owner), place);
        if best.as_ref().is_none_or(|(other, _)| rank < *other) {
            best = Some((rank, *job));
        }
    }
    best.map(|(_, job)| job)
}
