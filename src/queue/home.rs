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

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::Queue;
use super::functions::argument;
use crate::error::{Error, Result};
use crate::server::database::{cluster, database};
use crate::server::function::version_1;
use crate::server::role::owner_here;
use crate::server::server_text::from_server;
use crate::server::spi::{Access, Argument, StatementResult};

/// Error of a job that was queued when its database was copied.
const COPIED: &CStr = c"the job belongs to the database that this one was copied from";

/// The role that owns a row, from its columns owner, name and cluster. Guarded.
fn owner_of(row: &StatementResult, first: usize) -> pg_sys::Oid {
    // SAFETY: the columns are an oid, a text and a bigint.
    let name = unsafe { row.first(first + 1).text() };
    owner_here(row.first(first).oid(), &name, row.first(first + 2).number())
}

impl Queue {
    /// Cancels queued jobs of other databases. Jobs that pg_upgrade has brought are at home. Guarded.
    pub fn disown_copies(&self) -> Result<()> {
        let statement = "UPDATE @.bulk_queue SET status = 'canceled', finished_at = clock_timestamp(),
                error_sqlstate = '57014', error_message = $2
            WHERE status IN ('queued', 'running') AND database <> $1";
        self.run(statement, &[Argument::oid(database()), Argument::text(Some(COPIED))], Access::Write)?;
        let statement = "UPDATE @.bulk_queue SET cluster = $1 WHERE status IN ('queued', 'running') AND cluster <> $1";
        self.run(statement, &[Argument::bigint(cluster())], Access::Write).map(drop)
    }

    /// The status of a job that a role may see, and the row's xmin. Guarded.
    pub fn status(&self, id: i64, role: pg_sys::Oid) -> Result<Option<(String, pg_sys::TransactionId)>> {
        let statement =
            "SELECT CASE WHEN database <> $2 AND status IN ('queued', 'running') THEN 'canceled' ELSE status END,
                xmin, owner, owner_name::text, cluster FROM @.bulk_queue WHERE job_id = $1";
        let row = self.run(statement, &[Argument::bigint(id), Argument::oid(database())], Access::ReadLatest)?;
        // SAFETY: a guarded call.
        if row.rows.is_empty() || !unsafe { pg_sys::has_privs_of_role(role, owner_of(&row, 2)) } {
            return Ok(None);
        }
        // SAFETY: the column is of type text, with names in ASCII.
        let status = unsafe { row.first(0).text() }.to_string_lossy().into_owned();
        Ok(Some((status, pg_sys::TransactionId::from(row.first(1).integer().cast_unsigned()))))
    }

    /// The role in this cluster that owns a job. Guarded.
    pub fn owner_of(&self, id: i64) -> Result<Option<pg_sys::Oid>> {
        let statement = "SELECT owner, owner_name::text, cluster FROM @.bulk_queue WHERE job_id = $1";
        let row = self.run(statement, &[Argument::bigint(id)], Access::ReadLatest)?;
        Ok((!row.rows.is_empty()).then(|| owner_of(&row, 0)))
    }

    /// Makes a job one of this database before it is queued again, with the owner and table that the view shows.
    /// Guarded.
    pub fn take_home(&self, id: i64) -> Result<()> {
        let statement = "SELECT owner, owner_name::text, cluster, target, target_schema::text, target_name::text,
                database = $2 AND cluster = $3 FROM @.bulk_queue WHERE job_id = $1";
        let (here, cluster) = (database(), cluster());
        let arguments = [Argument::bigint(id), Argument::oid(here), Argument::bigint(cluster)];
        let row = self.run(statement, &arguments, Access::ReadLatest)?;
        if row.rows.is_empty() {
            return Ok(());
        }
        let (owner, stored_target) = (owner_of(&row, 0), row.first(3).oid());
        // SAFETY: columns of type text; guarded catalog lookups, and the strings that they return.
        let (name, target, schema_name, table_name) = unsafe {
            let name = pg_sys::GetUserNameFromId(owner, true);
            if name.is_null() {
                let name = from_server(&row.first(1).text());
                let message = format!("role \"{name}\" does not exist");
                return Err(Error::new(Code::ERRCODE_UNDEFINED_OBJECT, message).detail("It is the job's owner."));
            }
            let (schema_name, table_name) = (row.first(4).text(), row.first(5).text());
            let target = if row.first(6).boolean() {
                stored_target
            } else {
                let schema = pg_sys::get_namespace_oid(schema_name.as_ptr(), true);
                pg_sys::get_relname_relid(table_name.as_ptr(), schema)
            };
            let (now, schema) = (pg_sys::get_rel_name(target), pg_sys::get_rel_namespace(target));
            let schema = pg_sys::get_namespace_name(schema);
            let name = CStr::from_ptr(name).to_owned();
            if now.is_null() || schema.is_null() {
                // The job fails when it runs.
                (name, target, schema_name, table_name)
            } else {
                (name, target, CStr::from_ptr(schema).to_owned(), CStr::from_ptr(now).to_owned())
            }
        };
        let statement =
            "UPDATE @.bulk_queue SET owner = $2, owner_name = $3::name, cluster = $4, database = $5, target = $6,
                target_schema = $7::name, target_name = $8::name,
                status = CASE WHEN status IN ('queued', 'running') THEN 'canceled' ELSE status END
            WHERE job_id = $1 AND (status NOT IN ('queued', 'running') OR database <> $5)";
        let arguments = [
            Argument::bigint(id),
            Argument::oid(owner),
            Argument::text(Some(&name)),
            Argument::bigint(cluster),
            Argument::oid(here),
            Argument::oid(target),
            Argument::text(Some(&schema_name)),
            Argument::text(Some(&table_name)),
        ];
        self.run(statement, &arguments, Access::Write).map(drop)
    }
}

version_1!(pg_finfo_bulk_owner);

version_1!(pg_finfo_bulk_is_at_home);

/// `bulk_owner(owner oid, owner_name name, cluster bigint)`: see [`owner_here`].
///
/// # Safety
/// Called by the executor, with three arguments that are not null.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_owner(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the executor passes arguments of the declared types: a name ends with a NUL.
    let owner = unsafe {
        let number = |index| argument(fcinfo, index).map_or(0, |datum| datum.value());
        match argument(fcinfo, 1) {
            Some(name) => {
                let name = CStr::from_ptr(name.cast_mut_ptr());
                owner_here(pg_sys::Oid::from_u32(number(0) as u32), name, number(2) as i64)
            }
            None => pg_sys::InvalidOid,
        }
    };
    pg_sys::Datum::from(owner)
}

/// `bulk_is_at_home(database oid, cluster bigint)`.
///
/// # Safety
/// Called by the executor, with two arguments that are not null.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_is_at_home(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the executor passes arguments of the declared types.
    let (of_database, of_cluster) = unsafe {
        let number = |index| argument(fcinfo, index).map_or(0, |datum| datum.value());
        (pg_sys::Oid::from_u32(number(0) as u32), number(1) as i64)
    };
    pg_sys::Datum::from(of_database == database() && of_cluster == cluster())
}
