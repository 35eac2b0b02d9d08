//! The option `settings` of bulk_enqueue: settings of a job beside those of its owner's session.
//!
//! They hold for the load's transaction, like SET LOCAL, and are set with the rights of the job's owner. bulk_enqueue
//! checks them as SET does.

use std::ffi::CString;

use pgrx::pg_sys;

use crate::error::Result;
use crate::server::jsonb::{Json, Jsonb};
use crate::server::option_value::{invalid, text};
use crate::server::role::{is_superuser, set_local};

/// Name of the option.
pub const SETTINGS: &str = "settings";

/// Settings that every job sets itself.
const FORCED: [&str; 11] = [
    "default_transaction_isolation",
    "default_transaction_read_only",
    "default_transaction_deferrable",
    "transaction_isolation",
    "transaction_read_only",
    "transaction_deferrable",
    "synchronous_commit",
    "exit_on_error",
    "transaction_timeout",
    "role",
    "session_authorization",
];

/// A setting's name and value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    name: CString,
    value: CString,
}

/// Parses the value of the option.
pub fn of_json(json: Json) -> Result<Vec<Setting>> {
    let members = match json {
        Json::Null => return Ok(Vec::new()),
        Json::Object(members) => members,
        _ => return Err(invalid("settings must be an object with names and values of settings")),
    };
    members.into_iter().map(|(name, value)| setting(name, value)).collect()
}

fn setting(name: Vec<u8>, value: Json) -> Result<Setting> {
    let shown = text(&name).into_owned();
    let lower = shown.to_ascii_lowercase();
    if FORCED.contains(&lower.as_str()) {
        return Err(
            invalid(format!("settings cannot have \"{shown}\"")).detail("A job has its own value of this setting.")
        );
    }
    let (Json::Text(value) | Json::Literal(value)) = value else {
        return Err(invalid(format!("value of \"{shown}\" in settings must be a string, number or boolean")));
    };
    // A string of the server has no zero byte.
    let string = |bytes: Vec<u8>| CString::new(bytes).unwrap_or_default();
    Ok(Setting { name: string(name), value: string(value) })
}

/// The settings among the options of a job. Guarded.
pub fn of_options(options: &Jsonb) -> Result<Vec<Setting>> {
    let members = options.members().unwrap_or_default();
    let found = members.into_iter().find(|(name, _)| name == SETTINGS.as_bytes());
    found.map_or_else(|| Ok(Vec::new()), |(_, json)| of_json(json))
}

/// Raises SET's errors for the current user. Guarded.
pub fn check(settings: &[Setting]) {
    settings.iter().for_each(|setting| setting.set_local(false));
}

/// Sets them with the rights of the current user, until the end of the transaction. Guarded.
pub fn apply(settings: &[Setting]) {
    settings.iter().for_each(|setting| setting.set_local(true));
}

impl Setting {
    /// SET LOCAL, as ExecSetVariableStmt (guc.c) does it; without `changes` only its checks.
    fn set_local(&self, changes: bool) {
        let context = if is_superuser() { pg_sys::GucContext::PGC_SUSET } else { pg_sys::GucContext::PGC_USERSET };
        set_local(&self.name, &self.value, context, changes);
    }
}
