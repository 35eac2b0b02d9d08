//! Options in a SECURITY DEFINER function.
//!
//! Such a function runs with the rights of its owner. If it hands on options of its caller, an option such as `query`
//! or `where` gives the caller these rights. So pg_bulk refuses each option whose [`Reach`] is `Code` there. The
//! function can allow options by the argument `allow` of `bulk_load`, `bulk_enqueue` and the other functions that
//! have options.
//!
//! **Why an argument.** A setting in the function's SET clause would do, if pg_bulk could distinguish it from a setting
//! that the caller has made before the call. A check hook sees the current user, and fmgr_security_definer (fmgr.c)
//! changes the user before it applies the SET clause. But a library that is not preloaded is loaded in the middle of
//! the function. The server then passes all earlier settings of its prefix to the hook, with the owner as the current
//! user (reapply_stacked_values, guc.c). PostgreSQL 15 does not record the role that made them. The argument always
//! comes from the function's text, and never from the JSON object.
//!
//! **How such a function is recognized.** fmgr_security_definer sets SECURITY_LOCAL_USERID_CHANGE while the function
//! runs. SET ROLE and SET SESSION AUTHORIZATION do not. The flag is enough, even if the owner is also the session's
//! user:
//!
//! - A may call a function of B that runs as B. If B's function calls a function of A, B has chosen options that run as
//!   A.
//! - The error also appears when the function's author tests it in a session of the same role.
//!
//! The server sets the flag in few other places: in queries of foreign keys, and in scripts of trusted extensions.

use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::option_name::{ColumnOption, OptionName, Reach};
use crate::error::{Error, Result};
use crate::server::compat;
use crate::server::function::Call;
use crate::server::lookup::{argument_types, function_name, function_named, function_schema};
use crate::server::option_value::{Caller, OptionValue, invalid};
use crate::server::role::{current_user, role_name};
use crate::server::server_text::from_server;
use crate::server::session_state::user_of_session;

/// The options that a call may have.
#[derive(Debug)]
pub struct Allowed {
    /// None: all of them.
    names: Option<Vec<&'static str>>,
}

impl Allowed {
    /// All options: they were checked before.
    pub const ALL: Allowed = Allowed { names: None };

    /// The options that the argument `allow` of this call permits. If the function lacks the argument, all that its
    /// context permits. The caller needs EXECUTE on the function without `allow`, so one GRANT covers both. Guarded.
    pub fn by_call(call: &Call) -> Result<Allowed> {
        let function = call.function();
        let names = match position(function) {
            Some(at) => {
                check_execute(function, at)?;
                names(call.required(at, "allow")?.into_texts())?
            }
            None => Vec::new(),
        };
        Ok(Allowed { names: is_definers().then_some(names) })
    }

    /// Raises unless this option may be given with this value. An option without a name in the table counts as code.
    pub fn check(&self, name: &str, value: &OptionValue) -> Result<()> {
        match OptionName::by_name(name) {
            Some(option) if option.reach() == Reach::Data || asks_for_nothing(option, value) => Ok(()),
            _ => self.check_name(name),
        }
    }

    /// Raises unless a column may be computed by an expression.
    pub fn check_expression(&self) -> Result<()> {
        self.check_name(ColumnOption::Expr.name())
    }

    /// Raises unless a job may have settings of its own.
    pub fn check_settings(&self) -> Result<()> {
        self.check_name(OptionName::Settings.name())
    }

    fn check_name(&self, name: &str) -> Result<()> {
        if self.names.as_ref().is_none_or(|names| names.contains(&name)) {
            return Ok(());
        }
        let message = format!("cannot use option \"{name}\" within security-definer function");
        let owner = role_name(current_user());
        let detail = format!(
            "The option would take effect with the privileges of role \"{owner}\", even if a caller without them chose its value."
        );
        let hint = format!(
            "If the function itself sets the option, and does not take it from its caller, add the argument allow => '{{{name}}}'."
        );
        Err(Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message).detail(detail).hint(hint))
    }
}

/// Does this value turn the option off, or need no right beyond INSERT?
fn asks_for_nothing(option: OptionName, value: &OptionValue) -> bool {
    let OptionValue::Text(bytes) = value else { return false };
    match option {
        OptionName::Program | OptionName::Truncate | OptionName::Create => {
            Caller::Function.boolean(option.name(), bytes).is_ok_and(|is_on| !is_on)
        }
        OptionName::OnDuplicate => !bytes.eq_ignore_ascii_case(b"keep_new"),
        _ => false,
    }
}

/// Is this a SECURITY DEFINER function, or called by one?
fn is_definers() -> bool {
    user_of_session().1 & pg_sys::SECURITY_LOCAL_USERID_CHANGE.cast_signed() != 0
}

/// The position of the argument `allow` of a function. Guarded.
pub fn position(function: pg_sys::Oid) -> Option<usize> {
    argument_types(function).iter().position(|&of| of == pg_sys::TEXTARRAYOID)
}

/// Raises unless the current user may call the function of the same name without the argument `allow`. Guarded.
fn check_execute(function: pg_sys::Oid, allow: usize) -> Result<()> {
    let mut types = argument_types(function);
    types.remove(allow);
    let Some(name) = function_name(function) else { return Ok(()) };
    executable(&name, &types, function_schema(function)).map(|_| ())
}

/// The extension's function of this name with arguments of these types. An error unless the current user may call it.
/// Guarded.
pub(super) fn executable(name: &CStr, types: &[pg_sys::Oid], schema: pg_sys::Oid) -> Result<pg_sys::Oid> {
    let function = function_named(name, types, schema);
    if function == pg_sys::InvalidOid {
        let message = format!("function {}() of pg_bulk does not exist", name.to_string_lossy());
        return Err(Error::new(Code::ERRCODE_UNDEFINED_FUNCTION, message));
    }
    let answer = compat::may_execute(function);
    if answer != pg_sys::AclResult::ACLCHECK_OK {
        compat::refuse(answer, pg_sys::ObjectType::OBJECT_FUNCTION, Some(name));
    }
    Ok(function)
}

/// The options with these names. Guarded.
fn names(given: Vec<CString>) -> Result<Vec<&'static str>> {
    let known = |name: CString| {
        let name = from_server(&name);
        let option = OptionName::by_name(&name).map(OptionName::name);
        option.or(ColumnOption::by_name(&name).map(ColumnOption::name)).ok_or_else(|| {
            let code =
                OptionName::ALL.iter().filter(|option| option.reach() == Reach::Code).map(|option| option.name());
            let code = code.chain(
                ColumnOption::ALL.iter().filter(|option| option.reach() == Reach::Code).map(|option| option.name()),
            );
            let list: Vec<_> = code.collect();
            invalid(format!("allow names \"{name}\", which is not an option"))
                .hint(format!("Options that a function may allow are: {}", list.join(", ")))
        })
    };
    given.into_iter().map(known).collect()
}
