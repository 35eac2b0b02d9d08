//! Keeps logical replication from changing the extension's tables, which belong to their server.
//!
//! A publication FOR ALL TABLES includes the tables of extensions, and cannot exclude them. A subscriber's dispatcher
//! would run the publisher's jobs once more. Its own jobs, which have the same numbers, would be changed and removed
//! with the publisher's. Rejected rows would be visible to the role that has their owner's OID there. So each of the
//! tables has a trigger that skips the change in a session that applies replicated changes.
//!
//! The trigger is enabled as REPLICA, so it costs other sessions nothing. But it may be enabled in another mode
//! (`pg_restore --disable-triggers` ends with ENABLE TRIGGER ALL), so it checks the session itself. The extension's own
//! statements do not count as applied changes, whatever the session's role: see `server::role`.

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::{Error, Result};
use crate::server::function::{Call, sql_function};
use crate::server::role::applies_changes;

sql_function!(pg_finfo_bulk_keep_local, bulk_keep_local, keep_local);

/// `bulk_keep_local()`: BEFORE INSERT OR UPDATE OR DELETE, for each row.
fn keep_local(call: &Call) -> Result<pg_sys::Datum> {
    let Some(row) = call.trigger_row() else {
        let message = "bulk_keep_local() must be called as trigger";
        return Err(Error::new(Code::ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED, message));
    };
    // NULL makes the executor skip the row.
    Ok(pg_sys::Datum::from(if applies_changes() { std::ptr::null_mut() } else { row }))
}
