//! Builds indexes from the whole heap after the rows. [`new_files`](super::new_files) chooses them.
//!
//! Several indexes of a relation are built at the same time, each by one process ([`team`]).
//!
//! A build finds equal keys while it sorts, and its error is about creating an index. For the user, a row violates a
//! constraint, so the error is reworded to COPY's.

mod members;
mod team;

use std::ffi::{CStr, CString};
use std::time::Instant;

use pgrx::memcxt::PgMemoryContexts;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use self::team::RebuildTask;
use super::indexes::{Index, Indexes};
use crate::error::{OrRaise, Result};
use crate::index::strategy::IndexStrategy;
use crate::server::attempt::attempt;
use crate::server::compat;
use crate::server::failure;
use crate::server::original::{Caught, catch, gettext};
use crate::server::owner::along_safe_path;
use crate::server::points::{point, point_plain};
use crate::server::relation::{OpenRelation, Relation};
use crate::server::role::{column_privileges, current_user, has_policies, privileges};
use crate::server::statement::next_command;
use crate::server::team::Team;
use crate::server::unguarded::guarded;
use crate::server::usage::Cpu;

/// The indexes of a relation that are rebuilt.
#[derive(Debug)]
struct Rebuild {
    builds: Vec<Build>,
    /// The workers, while they run.
    team: Option<Team<RebuildTask>>,
}

/// An index that is rebuilt.
#[derive(Debug)]
struct Build {
    /// Its position in the relation's list.
    number: usize,
    /// The name in the server's encoding.
    name: CString,
    /// The user may see the keys of the table.
    reveals: bool,
}

/// Rebuilds the indexes of the rebuild strategy, with at most `workers` workers. Returns the workers' CPU usage.
///
/// # Safety
/// A plain frame outside of parallel mode. The indexes are closed.
pub unsafe fn run(relation: Relation<'_>, indexes: &mut Indexes, workers: usize) -> Cpu {
    if indexes.list.iter().all(|index| index.strategy != IndexStrategy::Rebuild) {
        return Cpu::default();
    }
    // SAFETY: a plain frame, in which nothing has a destructor, because a memory context owns the state. Each step is
    // guarded.
    unsafe {
        let rebuild = guarded(|| {
            let rebuild = Rebuild::new(relation, &indexes.list);
            PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(rebuild)
        });
        let mut caught = match catch(|| (*rebuild).all(relation, indexes, workers).or_raise()) {
            Ok(cpu) => return cpu,
            Err(caught) => caught,
        };
        if (*rebuild).team.is_some() {
            // No worker's error is received any more.
            failure::recover();
            if !attempt(|| guarded(|| (*rebuild).stop())).is_null() {
                failure::recover();
            }
            point_plain!("team.failed");
        }
        // The callers correct any other error, and recognize a worker's. They cannot recognize a reworded one.
        if guarded(|| (*rebuild).build_of(&caught).is_some()) {
            caught.restore();
            guarded(|| (*rebuild).reword(&mut caught));
        }
        caught.raise()
    }
}

impl Rebuild {
    /// Guarded.
    fn new(relation: Relation<'_>, list: &[Index]) -> Rebuild {
        let rebuilt = list.iter().enumerate().filter(|(_, index)| index.strategy == IndexStrategy::Rebuild);
        let build = |(number, index): (usize, &Index)| Build {
            number,
            name: index.name.clone(),
            reveals: may_see_keys(relation, index.oid),
        };
        Rebuild { builds: rebuilt.map(build).collect(), team: None }
    }

    /// Builds all indexes, first those that a team builds. Guarded.
    fn all(&mut self, relation: Relation<'_>, indexes: &mut Indexes, workers: usize) -> Result<Cpu> {
        let (done, cpu) = self.build_together(relation, &mut indexes.list, workers)?;
        for Build { number, .. } in self.builds.iter().filter(|build| !done.contains(&build.number)) {
            let Some(index) = indexes.list.get_mut(*number) else { continue };
            pgrx::check_for_interrupts!();
            let began = Instant::now();
            point!("load.rebuild");
            along_safe_path(relation, || compat::reindex_index(index.oid, relation.persistence()));
            next_command();
            point!("load.rebuilt");
            index.took += began.elapsed();
        }
        Ok(cpu)
    }

    /// The build that an error about equal keys is about.
    fn build_of(&self, error: &Caught) -> Option<&Build> {
        let is_about = |build: &&Build| {
            error.message() == filled(c"could not create unique index \"%s\"", build.name.as_bytes()).to_bytes()
        };
        self.builds.iter().filter(|_| error.sqlstate() == Code::ERRCODE_UNIQUE_VIOLATION as i32).find(is_about)
    }

    /// Rewords a build's error about equal keys to that of an insertion (_bt_check_unique, nbtinsert.c). Guarded.
    fn reword(&self, error: &mut Caught) {
        let Some(build) = self.build_of(error) else { return };
        let (before, after) = halves(c"Key %s is duplicated.");
        let key = error.detail().strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        let detail = key.filter(|_| build.reveals).map(|key| filled(c"Key %s already exists.", key));
        let message = filled(c"duplicate key value violates unique constraint \"%s\"", build.name.as_bytes());
        error.reword(&message, detail.as_deref());
    }
}

/// May the user see a key that is not unique? The check of BuildIndexValueDescription (genam.c), which during a build
/// checks the table's owner instead. Guarded.
fn may_see_keys(relation: Relation<'_>, index: pg_sys::Oid) -> bool {
    const OK: pg_sys::AclResult::Type = pg_sys::AclResult::ACLCHECK_OK;
    let table = relation.oid();
    let right = |attnum| column_privileges(table, attnum, current_user(), pg_sys::ACL_SELECT as pg_sys::AclMode);
    // An expression has no right of its own.
    let sees = |attnum: i16| attnum != 0 && right(attnum) == OK;
    let sees_table = || privileges(table, pg_sys::ACL_SELECT) == OK;
    let index = || OpenRelation::open(index, pg_sys::AccessShareLock).releasing();
    !has_policies(table) && (sees_table() || index().get().key_columns().into_iter().all(sees))
}

/// The text before and after the `%s` of a server message, in its language.
fn halves(format: &CStr) -> (&[u8], &[u8]) {
    let words = gettext(format).to_bytes();
    match words.windows(2).position(|two| two == b"%s") {
        Some(at) => (words.get(..at).unwrap_or_default(), words.get(at + 2..).unwrap_or_default()),
        None => (words, b""),
    }
}

fn filled(format: &CStr, value: &[u8]) -> CString {
    let (before, after) = halves(format);
    CString::new([before, value, after].concat()).unwrap_or_default()
}
