//! The extension's tables belong to their server: what logical replication brings is left out.
//!
//! A publication FOR ALL TABLES has the tables of extensions, too, and cannot be told otherwise. A subscriber's dispatcher
//! would run the publisher's jobs once more; its own jobs, which have the same numbers, would be changed and removed with
//! the publisher's; and rejected rows would be shown to whoever has their owner's number there. So each of the tables has
//! a trigger that leaves a row alone where changes are applied.
//!
//! It is enabled as REPLICA, and so costs other sessions nothing. But it may come to be enabled otherwise (`pg_restore
//! --disable-triggers` ends with ENABLE TRIGGER ALL), so it looks at the session itself. Our own statements are no changes
//! that are applied, whatever the session's role: see `pg::role`.

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::functions::VERSION_1;
use crate::error::Error;
use crate::pg::role::applies_changes;

/// The record that the server asks for before it calls a function of version 1.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_finfo_bulk_keep_local() -> *const pg_sys::Pg_finfo_record {
    &raw const VERSION_1
}

/// `bulk_keep_local()`: BEFORE INSERT OR UPDATE OR DELETE, for each row.
///
/// # Safety
/// Called by the executor.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_keep_local(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the executor vouches for the call; its context says what it is, and is read as that.
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
    // No row means that nothing is to be done.
    pg_sys::Datum::from(if applies_changes() { std::ptr::null_mut() } else { row })
}
