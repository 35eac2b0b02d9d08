//! A load holds its relations open, as COPY does, so that the server refuses commands that would change them meanwhile.
//!
//! ```text
//!   hold ─► rows ─► indexes of one relation: let_go ─► built, swapped ─► hold_again ─► triggers ─► close
//!             └ user-defined functions run here; refused: TRUNCATE, CLUSTER, REINDEX, CREATE INDEX, ALTER, DROP
//! ```
//!
//! A command that changes a relation's file or indexes checks with CheckTableNotInUse (tablecmds.c) whether this
//! session has the relation open. COPY holds its target, each partition with routed rows, and their indexes open until
//! its triggers have fired. A load appends to files and builds indexes itself, so such a change would damage them.
//! Before its first row, the load opens every relation that a row may go to.
//!
//! References of the relation cache are enough. The table's lock keeps other sessions from changing its indexes, and
//! locks on the indexes of thousands of partitions would fill the lock table.
//!
//! A reference does not prevent two changes, which [`HeldRelations`] detects. [`HeldRelations::is_disturbed`] finds
//! rows that a function inserted, updated or deleted, and [`HeldRelations::check`] a file that was replaced or
//! truncated after all. The load reacts as follows:
//!
//! | change | reaction of the load |
//! |---|---|
//! | rows, even if rolled back | It drops the collected keys. Indexes are built from the table, or inserted into. |
//! | rows, in a load with option freeze | It raises an error. A frozen row does not show which command inserted it. |
//! | the file | It raises an error. |
//! | which triggers fire (session_replication_role) | It raises an error. COPY asks for each row, a load once. |
//! | the state of constraints (SET CONSTRAINTS) | None. The state at the end counts, as under COPY. |
//! | triggers of a partition without rows | An error if the direct writer does not support them (`Heaps::open`). |
//! | other triggers, rules, policies | None. The executor's copies are those of the beginning, as under COPY. |

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::server::compat;
use crate::server::relation::{KeptRelation, Relation};
use crate::server::role::replication_role;
use crate::server::statement::current_command;

/// The relations of a load, held open.
#[derive(Debug)]
pub struct HeldRelations {
    relations: Vec<Held>,
    begin: Now,
}

#[derive(Debug)]
struct Held {
    relation: KeptRelation,
    /// Empty between `let_go` and `hold_again`.
    indexes: Vec<KeptRelation>,
    file: pg_sys::Oid,
    /// Rows that this session had changed when the load began; None without track_counts.
    changed: Option<i64>,
}

/// State of the session when the load began.
#[derive(Debug)]
struct Now {
    command: pg_sys::CommandId,
    /// session_replication_role, which decides which triggers fire.
    replication_role: i32,
}

impl Now {
    /// Guarded.
    fn new() -> Now {
        Now { command: current_command(false), replication_role: replication_role() }
    }
}

impl HeldRelations {
    /// Holds nothing.
    pub const NONE: HeldRelations =
        HeldRelations { relations: Vec::new(), begin: Now { command: 0, replication_role: 0 } };

    /// Holds relations and their indexes. They are locked to the end of the transaction, so that their oids keep their
    /// meaning. Guarded.
    pub fn hold(relations: &[Relation<'_>]) -> HeldRelations {
        let hold = |relation: &Relation<'_>| {
            let relation = KeptRelation::locked(relation.oid());
            let (file, changed) = (relation.get().file(), compat::changed_rows(relation.get()));
            Held { indexes: indexes_of(&relation), relation, file, changed }
        };
        HeldRelations { relations: relations.iter().map(hold).collect(), begin: Now::new() }
    }

    /// Has a function changed rows since the load began? Guarded.
    ///
    /// `inserted` returns how many rows of a relation the load has inserted through core, which counts them. Without
    /// track_counts, any command that may have written counts as a change. Raises an error if a function has changed
    /// session_replication_role.
    pub fn is_disturbed(&self, inserted: impl Fn(usize) -> u64) -> Result<bool> {
        let now = Now::new();
        if self.relations.is_empty() {
            return Ok(false);
        }
        if now.replication_role != self.begin.replication_role {
            let message = "session_replication_role was changed while rows were being loaded";
            return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .detail("This setting decides which triggers fire and whether foreign keys are checked."));
        }
        let is_other =
            |(number, held): (usize, &Held)| match compat::changed_rows(held.relation.get()).zip(held.changed) {
                Some((now, then)) => i64::try_from(inserted(number)) != Ok(now - then),
                None => now.command != self.begin.command,
            };
        Ok(self.relations.iter().enumerate().any(is_other))
    }

    /// Checks that a relation's file is the one that rows were appended to, from block `start` on. Guarded.
    pub fn check(&self, number: usize, start: u32) -> Result<()> {
        let Some(held) = self.relations.get(number) else { return Ok(()) };
        let relation = held.relation.get();
        if relation.file() == held.file && relation.pages() >= start.max(1) {
            return Ok(());
        }
        let message =
            format!("table \"{}\" was emptied or rewritten while rows were being loaded", relation.name_text());
        Err(Error::new(Code::ERRCODE_OBJECT_IN_USE, message).hint("A function that the load called did this."))
    }

    /// Releases the indexes of a relation, because a command of the load needs them closed. Guarded.
    pub fn let_go(&mut self, number: usize) {
        self.relations
            .get_mut(number)
            .into_iter()
            .flat_map(|held| held.indexes.drain(..))
            .for_each(KeptRelation::close);
    }

    /// Holds the indexes again. Guarded.
    pub fn hold_again(&mut self, number: usize) {
        if let Some(held) = self.relations.get_mut(number).filter(|held| held.indexes.is_empty()) {
            held.indexes = indexes_of(&held.relation);
        }
    }

    /// Releases all relations. After an error, the resource owner does this. Guarded.
    pub fn close(&mut self) {
        let all = self.relations.drain(..).flat_map(|held| held.indexes.into_iter().chain([held.relation]));
        all.for_each(KeptRelation::close);
    }
}

/// References to the indexes of a relation. An index that is dropped concurrently may be gone. Guarded.
fn indexes_of(relation: &KeptRelation) -> Vec<KeptRelation> {
    relation.get().indexes().into_iter().filter_map(KeptRelation::referenced).collect()
}
