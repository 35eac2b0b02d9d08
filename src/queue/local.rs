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

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use crate::error::Error;
use crate::server::function::version_1;
use crate::server::role::applies_changes;

version_1!(pg_finfo_bulk_keep_local);

/// `bulk_keep_local()`: BEFORE INSERT OR UPDATE OR DELETE, for each row.
///
/// # Safety
/// Called by the executor.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_keep_local(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: called by the executor; the context's tag shows that it is trigger data.
    let row = unsafe {
        let context = (*fcinfo).context;
        if context.is_null() || (*context).type_ != pg_sys::NodeTag::T_TriggerData {
            let message = "bulk_keep_local() must be called as trigger";
            Error::new(Code::ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED, message).raise();
        }
        let trigger = context.cast::<pg_sys::TriggerData>();
        let is_update = (*trigger).tg_event & pg_sys::TRIGGER_EVENT_OPMASK == pg_sys::TRIGGER_EVENT_UPDATE;
        if is_update { (*trigger).tg_newtuple } else { (*trigger).tg_trigtuple }
    };
    // NULL makes the executor skip the row.
    pg_sys::Datum::from(if applies_changes() { std::ptr::null_mut() } else { row })
}
