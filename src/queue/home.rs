//! Distinguishes rows of this database from rows that were copied from another one.
//!
//! A row of the queue may be in a database other than its own: a dump was restored, or the database was created with
//! another one as its template. A job that is queued in the copy must not run, since it runs where it was enqueued.
//! OIDs have another meaning in the copy: a role or table with the same OID may be another one. So a row records its
//! cluster and database, and the names of role and table beside their OIDs. At home the OIDs count, and names may have
//! changed; elsewhere the names count.
//!
//! pg_upgrade makes a new cluster, in which databases, roles and tables keep their OIDs. Rows that it brings are at
//! home there, because the database is the same. A standby that pg_createsubscriber turns into a subscriber looks the
//! same, and is promoted before it becomes another cluster. The administrator must keep jobs from running on both sides
//! (docs/operations/replication-and-backup.md).

use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::Queue;
use crate::error::{Error, Result};
use crate::server::database::{cluster, database};
use crate::server::function::{Call, sql_function};
use crate::server::lookup::{relation_named, relation_names, schema_named};
use crate::server::role::{existing_role_name, has_privileges, owner_here};
use crate::server::server_text::from_server;
use crate::server::spi::{Access, StatementResult};
use crate::server::sql_value::SqlValue;

/// Error of a job that was queued when its database was copied.
const COPIED: &CStr = c"the job belongs to the database that this one was copied from";

/// The role that owns a row, from its columns owner, name and cluster. Guarded.
fn owner_of(row: &StatementResult, first: usize) -> pg_sys::Oid {
    owner_here(row.first(first).as_oid(), &row.first(first + 1).into_text(), row.first(first + 2).number())
}

impl Queue {
    /// Cancels queued jobs of other databases. Jobs that pg_upgrade has brought are at home. Guarded.
    pub fn disown_copies(&self) -> Result<()> {
        let statement = "UPDATE @.bulk_queue SET status = 'canceled', finished_at = clock_timestamp(),
                error_sqlstate = '57014', error_message = $2
            WHERE status IN ('queued', 'running') AND database <> $1";
        self.run(statement, &[SqlValue::oid(database()), SqlValue::text(COPIED)], Access::Write)?;
        let statement = "UPDATE @.bulk_queue SET cluster = $1 WHERE status IN ('queued', 'running') AND cluster <> $1";
        self.run(statement, &[SqlValue::bigint(cluster())], Access::Write).map(drop)
    }

    /// The status of a job that a role may see, and the row's xmin. Guarded.
    pub fn status(&self, id: i64, role: pg_sys::Oid) -> Result<Option<(String, pg_sys::TransactionId)>> {
        let statement =
            "SELECT CASE WHEN database <> $2 AND status IN ('queued', 'running') THEN 'canceled' ELSE status END,
                xmin, owner, owner_name::text, cluster FROM @.bulk_queue WHERE job_id = $1";
        let row = self.run(statement, &[SqlValue::bigint(id), SqlValue::oid(database())], Access::ReadLatest)?;
        if row.rows.is_empty() || !has_privileges(role, owner_of(&row, 2)) {
            return Ok(None);
        }
        let status = row.first(0).into_text().to_string_lossy().into_owned();
        Ok(Some((status, pg_sys::TransactionId::from(row.first(1).small().cast_unsigned()))))
    }

    /// The role in this cluster that owns a job. Guarded.
    pub fn owner_of(&self, id: i64) -> Result<Option<pg_sys::Oid>> {
        let statement = "SELECT owner, owner_name::text, cluster FROM @.bulk_queue WHERE job_id = $1";
        let row = self.run(statement, &[SqlValue::bigint(id)], Access::ReadLatest)?;
        Ok((!row.rows.is_empty()).then(|| owner_of(&row, 0)))
    }

    /// Makes a job one of this database before it is queued again, with the owner and table that the view shows.
    /// Guarded.
    pub fn take_home(&self, id: i64) -> Result<()> {
        let statement = "SELECT owner, owner_name::text, cluster, target, target_schema::text, target_name::text,
                database = $2 AND cluster = $3 FROM @.bulk_queue WHERE job_id = $1";
        let (here, cluster) = (database(), cluster());
        let arguments = [SqlValue::bigint(id), SqlValue::oid(here), SqlValue::bigint(cluster)];
        let row = self.run(statement, &arguments, Access::ReadLatest)?;
        if row.rows.is_empty() {
            return Ok(());
        }
        let owner = owner_of(&row, 0);
        let Some(name) = existing_role_name(owner) else {
            let message = format!("role \"{}\" does not exist", from_server(&row.first(1).into_text()));
            return Err(Error::new(Code::ERRCODE_UNDEFINED_OBJECT, message).detail("It is the job's owner."));
        };
        let (schema_name, table_name) = (row.first(4).into_text(), row.first(5).into_text());
        let target = if row.first(6).is_true() {
            row.first(3).as_oid()
        } else {
            relation_named(&table_name, schema_named(&schema_name))
        };
        // Without the table, the job fails when it runs.
        let (schema_name, table_name) = relation_names(target).unwrap_or((schema_name, table_name));
        let statement =
            "UPDATE @.bulk_queue SET owner = $2, owner_name = $3::name, cluster = $4, database = $5, target = $6,
                target_schema = $7::name, target_name = $8::name,
                status = CASE WHEN status IN ('queued', 'running') THEN 'canceled' ELSE status END
            WHERE job_id = $1 AND (status NOT IN ('queued', 'running') OR database <> $5)";
        let arguments = [
            SqlValue::bigint(id),
            SqlValue::oid(owner),
            SqlValue::text(name),
            SqlValue::bigint(cluster),
            SqlValue::oid(here),
            SqlValue::oid(target),
            SqlValue::text(schema_name),
            SqlValue::text(table_name),
        ];
        self.run(statement, &arguments, Access::Write).map(drop)
    }
}

sql_function!(pg_finfo_bulk_owner, bulk_owner, owner);

/// `bulk_owner(owner oid, owner_name name, cluster bigint)`: see [`owner_here`].
fn owner(call: &Call) -> Result<pg_sys::Oid> {
    let (owner, cluster) = (call.argument(0)?.as_oid(), call.argument(2)?.number());
    let name = call.argument(1)?.into_optional_text();
    Ok(name.map_or(pg_sys::InvalidOid, |name| owner_here(owner, &name, cluster)))
}

sql_function!(pg_finfo_bulk_is_at_home, bulk_is_at_home, is_at_home);

/// `bulk_is_at_home(database oid, cluster bigint)`.
fn is_at_home(call: &Call) -> Result<bool> {
    Ok(call.argument(0)?.as_oid() == database() && call.argument(1)?.number() == cluster())
}
