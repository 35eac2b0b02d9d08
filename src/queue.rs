//! The queue: files that background workers load.
//!
//! ```text
//!   bulk_enqueue ─► row in bulk_queue ─ COMMIT ─► dispatcher ─► worker: lock, claim ─► load + "succeeded" ─► (gone)
//!    (any session)                     wakes or    one per                       └───► rollback, "failed"
//!                                      starts it   database
//! ```
//!
//! * `functions`, `wait`: the SQL functions.
//! * `wake`: makes sure that a dispatcher runs exactly while there is work.
//! * `dispatcher`: starts jobs; `choice`: the rules for the next job.
//! * `worker`: runs a job; `run_job`: the statement that it runs; `succession`: further jobs in the same process;
//!   `failure`: records a failed job.
//! * `job`: the row of a job; all statements on it are there.
//! * `home`: distinguishes rows of this database from copied ones.
//! * `launcher`: with a preloaded library, visits all databases when the server starts.
//!
//! **Exactly once.** A worker holds its job's lock ([`Queue::job_lock`]) from before it claims the row until the load
//! is committed or its process has exited. "running" is written in a transaction of its own, "succeeded" in the
//! transaction of the rows. So after any crash either both are committed, or the row still says "running" and its lock
//! is free. In the latter case the dispatcher runs the job again. PIDs are never trusted.
//!
//! **Rights.** A load runs in a session of the job's owner, and nothing in it can switch to another role. Only this
//! module writes rows of the queue, as the owner of the queue's table ([`Queue::run`]). No SQL-callable function stores
//! a row that its caller has composed.

mod choice;
mod dispatcher;
mod functions;
mod home;
mod job;
mod launcher;
mod wait;
mod wake;
mod worker;

use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

pub use self::launcher::init;
use crate::error::{Error, Result};
use crate::server::background;
use crate::server::lock::ObjectLock;
use crate::server::lookup::{extension_named, owner_of, quoted, relation_named, schema_name};
use crate::server::role::{as_role, current_user};
use crate::server::spi::{self, Access, StatementResult};
use crate::server::sql_value::SqlValue;

/// The extension's name.
const EXTENSION: &CStr = c"pg_bulk";

/// Overrides settings of the role and the database that would change the behavior of the queue's statements, and these
/// further ones. Guarded.
fn force_settings(further: &[(&CStr, &CStr)]) {
    let forced = [
        (c"default_transaction_isolation", c"read committed"),
        (c"default_transaction_read_only", c"off"),
        (c"default_transaction_deferrable", c"off"),
        (c"synchronous_commit", c"on"),
        // The state of a job must be recorded however long that takes.
        (c"lock_timeout", c"0"),
    ];
    for (name, value) in forced.iter().chain(further) {
        background::force(name, value);
    }
    background::take_time();
}

/// The lock that the launcher holds in exclusive mode during its life.
fn launcher_lock() -> ObjectLock {
    ObjectLock::shared(pg_sys::ExtensionRelationId, 0)
}

/// The queue of this database.
#[derive(Debug, Clone)]
pub struct Queue {
    /// The extension's schema.
    pub schema: pg_sys::Oid,
    /// Table bulk_queue, and its owner.
    pub table: pg_sys::Oid,
    owner: pg_sys::Oid,
    /// Table bulk_queue_state.
    state: pg_sys::Oid,
}

impl Queue {
    /// The queue in a schema. Guarded.
    pub fn in_schema(schema: pg_sys::Oid) -> Result<Queue> {
        let missing = || Error::new(Code::ERRCODE_UNDEFINED_TABLE, "the queue of pg_bulk does not exist");
        let (table, state) = (relation_named(c"bulk_queue", schema), relation_named(c"bulk_queue_state", schema));
        if state == pg_sys::InvalidOid {
            return Err(missing());
        }
        let owner = owner_of(table).ok_or_else(missing)?;
        Ok(Queue { schema, table, owner, state })
    }

    /// The queue of the extension in this database, if it is installed. Keeps it from being dropped until the
    /// transaction's end. Guarded.
    pub fn of_database() -> Result<Option<Queue>> {
        let extension = extension_named(EXTENSION);
        if extension == pg_sys::InvalidOid {
            return Ok(None);
        }
        let class = pg_sys::ExtensionRelationId;
        // SAFETY: a guarded call in a transaction.
        unsafe { pg_sys::LockDatabaseObject(class, extension, 0, pg_sys::AccessShareLock.cast_signed()) };
        let query = b"SELECT extnamespace FROM pg_catalog.pg_extension WHERE oid = $1";
        let arguments = [SqlValue::oid(extension)];
        let found = as_role(current_user(), || spi::execute(query, &arguments, Access::ReadLatest, &[]))?;
        // The extension may have been dropped during the wait for the lock.
        if found.rows.is_empty() {
            return Ok(None);
        }
        Queue::in_schema(found.first(0).as_oid()).map(Some)
    }

    /// The schema's current name, quoted, and a dot. Guarded.
    fn prefix(&self) -> Result<Vec<u8>> {
        let name = schema_name(self.schema)
            .ok_or_else(|| Error::new(Code::ERRCODE_UNDEFINED_TABLE, "the queue of pg_bulk does not exist"))?;
        Ok([quoted(&name).to_bytes(), b"."].concat())
    }

    /// Runs a statement on the queue's tables, which it names `@.name`. Guarded.
    pub fn run(&self, statement: &str, arguments: &[SqlValue], access: Access) -> Result<StatementResult> {
        let prefix = self.prefix()?;
        let mut source = Vec::with_capacity(statement.len() + 4 * prefix.len());
        let mut parts = statement.split("@.");
        source.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
        for part in parts {
            source.extend_from_slice(&prefix);
            source.extend_from_slice(part.as_bytes());
        }
        as_role(self.owner, || spi::execute(&source, arguments, access, &[self.table, self.state]))
    }

    /// The lock that the process of a job holds in exclusive mode. A session that changes the row of a job without a
    /// process holds it in mode `ShareUpdateExclusive`, which conflicts with the process's mode but cannot be mistaken
    /// for it.
    pub fn job_lock(&self, job: i64) -> ObjectLock {
        ObjectLock::new(self.table, job as u32, (job >> 32) as u16)
    }

    /// The lock that the dispatcher holds in exclusive mode during its life.
    fn life_lock(&self) -> ObjectLock {
        ObjectLock::new(self.state, 0, 0)
    }

    /// The lock that a session holds in share mode while it looks for the process of a job to cancel and signals it. A
    /// process that goes on to another job holds it in exclusive mode.
    fn cancel_lock(&self) -> ObjectLock {
        ObjectLock::new(self.state, 2, 0)
    }

    /// The lock that transactions hold from their change of the queue to their end. A dispatcher that is about to leave
    /// holds it in exclusive mode.
    fn gate_lock(&self) -> ObjectLock {
        ObjectLock::new(self.state, 1, 0)
    }
}
