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

use std::ffi::CStr;

use crate::server::relation;
use pgrx::{PgList, PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::server::compat;
use crate::server::server_text::from_server;

/// The relations of a load, held open.
#[derive(Debug)]
pub struct HeldRelations {
    relations: Vec<Relation>,
    /// The current command when the load began.
    command: pg_sys::CommandId,
    /// session_replication_role when the load began; it decides which triggers fire.
    replication_role: i32,
}

#[derive(Debug)]
struct Relation {
    relation: pg_sys::Relation,
    /// Empty between `let_go` and `hold_again`.
    indexes: Vec<pg_sys::Relation>,
    file: pg_sys::Oid,
    /// Rows that this session had changed when the load began; None without track_counts.
    changed: Option<i64>,
}

impl HeldRelations {
    /// Holds nothing.
    pub const NONE: HeldRelations = HeldRelations { relations: Vec::new(), command: 0, replication_role: 0 };

    /// Holds relations and their indexes. Guarded.
    ///
    /// # Safety
    /// The relations are open, and locked to the end of the transaction, so that their oids keep their meaning.
    pub unsafe fn hold(relations: &[pg_sys::Relation]) -> HeldRelations {
        let hold = |&relation: &pg_sys::Relation| {
            // SAFETY: an open relation; guarded calls.
            unsafe {
                let relation = pg_sys::RelationIdGetRelation((*relation).rd_id);
                let (indexes, file) = (indexes_of(relation), file_of(relation));
                Relation {
                    relation,
                    indexes,
                    file,
                    changed: compat::changed_rows(relation::Relation::from_raw(relation)),
                }
            }
        };
        // SAFETY: reads a setting and a counter of this process; a guarded call.
        let (replication_role, command) =
            unsafe { (pg_sys::SessionReplicationRole, pg_sys::GetCurrentCommandId(false)) };
        HeldRelations { relations: relations.iter().map(hold).collect(), command, replication_role }
    }

    /// Has a function changed rows since the load began? Guarded.
    ///
    /// `inserted` returns how many rows of a relation the load has inserted through core, which counts them. Without
    /// track_counts, any command that may have written counts as a change. Raises an error if a function has changed
    /// session_replication_role.
    pub fn is_disturbed(&self, inserted: impl Fn(usize) -> u64) -> Result<bool> {
        // SAFETY: reads a setting and a counter of this process; a guarded call.
        let (role, command) = unsafe { (pg_sys::SessionReplicationRole, pg_sys::GetCurrentCommandId(false)) };
        if self.relations.is_empty() {
            return Ok(false);
        }
        if role != self.replication_role {
            let message = "session_replication_role was changed while rows were being loaded";
            return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .detail("This setting decides which triggers fire and whether foreign keys are checked."));
        }
        // SAFETY: the relations are held.
        let is_other = |(number, held): (usize, &Relation)| match unsafe {
            compat::changed_rows(relation::Relation::from_raw(held.relation))
        }
        .zip(held.changed)
        {
            Some((now, then)) => i64::try_from(inserted(number)) != Ok(now - then),
            None => command != self.command,
        };
        Ok(self.relations.iter().enumerate().any(is_other))
    }

    /// Checks that a relation's file is the one that rows were appended to, from block `start` on. Guarded.
    pub fn check(&self, number: usize, start: u32) -> Result<()> {
        let Some(held) = self.relations.get(number) else { return Ok(()) };
        // SAFETY: the relation is held; a guarded call.
        let (file, blocks, name) = unsafe {
            let blocks = pg_sys::RelationGetNumberOfBlocksInFork(held.relation, pg_sys::ForkNumber::MAIN_FORKNUM);
            (file_of(held.relation), blocks, (*(*held.relation).rd_rel).relname.data.as_ptr())
        };
        if file == held.file && blocks >= start.max(1) {
            return Ok(());
        }
        // SAFETY: the name of a relation that is held.
        let name = from_server(unsafe { CStr::from_ptr(name) });
        let message = format!("table \"{name}\" was emptied or rewritten while rows were being loaded");
        Err(Error::new(Code::ERRCODE_OBJECT_IN_USE, message).hint("A function that the load called did this."))
    }

    /// Releases the indexes of a relation, because a command of the load needs them closed. Guarded.
    pub fn let_go(&mut self, number: usize) {
        let Some(held) = self.relations.get_mut(number) else { return };
        // SAFETY: references that `HeldRelations` has taken.
        held.indexes.drain(..).for_each(|index| unsafe { pg_sys::RelationClose(index) });
    }

    /// Holds the indexes again. Guarded.
    pub fn hold_again(&mut self, number: usize) {
        let Some(held) = self.relations.get_mut(number).filter(|held| held.indexes.is_empty()) else { return };
        // SAFETY: the relation is held.
        held.indexes = unsafe { indexes_of(held.relation) };
    }

    /// Releases all relations. After an error, the resource owner does this. Guarded.
    pub fn close(&mut self) {
        for held in self.relations.drain(..) {
            for relation in held.indexes.into_iter().chain([held.relation]) {
                // SAFETY: references that `HeldRelations` has taken.
                unsafe { pg_sys::RelationClose(relation) };
            }
        }
    }
}

/// The relfilenode of a relation, which changes when the table is rewritten.
///
/// # Safety
/// The relation is open.
unsafe fn file_of(relation: pg_sys::Relation) -> pg_sys::Oid {
    // SAFETY: this function's contract covers the relation.
    unsafe { (*(*relation).rd_rel).relfilenode }
}

/// References to the indexes of a relation. Guarded.
///
/// # Safety
/// The relation is open and locked.
unsafe fn indexes_of(relation: pg_sys::Relation) -> Vec<pg_sys::Relation> {
    // SAFETY: this function's contract covers the relation; guarded calls. An index that is dropped concurrently may be
    // gone.
    unsafe {
        let list = PgList::<pg_sys::Oid>::from_pg(pg_sys::RelationGetIndexList(relation));
        let open = |oid| pg_sys::RelationIdGetRelation(oid);
        list.iter_oid().map(open).filter(|index| !index.is_null()).collect()
    }
}
