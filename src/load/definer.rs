//! Options in a function with SECURITY DEFINER.
//!
//! Such a function lends its owner's rights to its caller, for what it does itself. If it hands on options that the caller has
//! written, an option like `query` or `where` would lend these rights for anything at all. So options whose [`Reach`] is `Code` are
//! refused there, unless the function allows them by the argument `allow` of `bulk_load` and its kin.
//!
//! **Why an argument, and no setting in the function's SET clause.** A setting must count only if the function itself has made it: its
//! caller can set anything before he calls it. Who has made a setting can be seen by a check hook, which is called as the owner
//! (fmgr_security_definer, fmgr.c, changes the user first). But where the library is not preloaded, it is loaded in the middle of the
//! function, and all settings of its prefix that were made before come to the hook then, as if the owner had made them
//! (reapply_stacked_values, guc.c). PostgreSQL 15 does not keep the role that has made them. An argument is the function's own word in
//! every case, and never comes from the JSON object.
//!
//! **How such a function is recognized.** fmgr_security_definer sets SECURITY_LOCAL_USERID_CHANGE for as long as the function
//! runs. SET ROLE and SET SESSION AUTHORIZATION do not. The flag alone counts, also where the owner is the session's own role:
//! that role may have been made to call somebody else's function, which calls this one; and authors of a function find out
//! when they test it themselves. The server sets the flag in few other places, where options are nobody's to hand on: triggers of
//! foreign keys, and scripts of trusted extensions.

use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::create::executable;
use super::option_name::{ColumnOption, OptionName, Reach};
use crate::error::{Error, Result};
use crate::pg::option_value::{Caller, Value, invalid};
use crate::pg::role::role_name;
use crate::pg::server_text::from_server;
use crate::pg::spi;

/// What options may be given.
#[derive(Debug)]
pub struct Allowed {
    /// None where all of them may.
    names: Option<Vec<&'static str>>,
}

impl Allowed {
    /// All of them: they were judged before.
    pub const ALL: Allowed = Allowed { names: None };

    /// By a call of a function of the extension, whose argument `allow`, if it has one, is of type text[]. Whoever calls a function
    /// with that argument needs EXECUTE on the one without it, so that one GRANT is about both. Guarded.
    ///
    /// # Safety
    /// A call with arguments as declared.
    pub unsafe fn by_call(fcinfo: pg_sys::FunctionCallInfo) -> Result<Allowed> {
        // SAFETY: the caller vouches for the call; guarded calls. A function has as many arguments as its types.
        unsafe {
            let function = (*(*fcinfo).flinfo).fn_oid;
            let names = match position(function) {
                Some(at) => {
                    check_execute(function, at)?;
                    let argument = *(*fcinfo).args.as_ptr().add(at);
                    if argument.isnull {
                        return Err(Error::new(Code::ERRCODE_NULL_VALUE_NOT_ALLOWED, "allow must not be null"));
                    }
                    names(argument.value)?
                }
                None => Vec::new(),
            };
            Ok(Allowed { names: is_definers().then_some(names) })
        }
    }

    /// May this option be given? Of what is not in the table of names nobody can say that it is harmless.
    pub fn check(&self, name: &str, value: &Value) -> Result<()> {
        match OptionName::by_name(name) {
            Some(option) if option.reach() == Reach::Data || asks_for_nothing(option, value) => Ok(()),
            _ => self.check_name(name),
        }
    }

    /// May a column be computed by an expression?
    pub fn check_expression(&self) -> Result<()> {
        self.check_name(ColumnOption::Expr.name())
    }

    fn check_name(&self, name: &str) -> Result<()> {
        if self.names.as_ref().is_none_or(|names| names.contains(&name)) {
            return Ok(());
        }
        let message = format!("cannot use option \"{name}\" within security-definer function");
        // SAFETY: a guarded call.
        let owner = role_name(unsafe { pg_sys::GetUserId() });
        let detail = format!("It would take effect with the privileges of role \"{owner}\", whoever has written it.");
        let hint = format!(
            "If the function itself sets the option, and does not take it from its caller, add the argument allow => '{{{name}}}'."
        );
        Err(Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message).detail(detail).hint(hint))
    }
}

/// Does a value of an option leave it at what it is by default, or at something that needs no right?
fn asks_for_nothing(option: OptionName, value: &Value) -> bool {
    let Value::Text(bytes) = value else { return false };
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
    let (mut user, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: fills what it is given.
    unsafe { pg_sys::GetUserIdAndSecContext(&raw mut user, &raw mut context) };
    context & pg_sys::SECURITY_LOCAL_USERID_CHANGE.cast_signed() != 0
}

/// The types of a function's arguments. Guarded.
fn argument_types(function: pg_sys::Oid) -> Vec<pg_sys::Oid> {
    let (mut types, mut count) = (std::ptr::null_mut(), 0);
    // SAFETY: a guarded call, which allocates as many types as it says.
    unsafe {
        pg_sys::get_func_signature(function, &raw mut types, &raw mut count);
        match usize::try_from(count) {
            Ok(count) if count > 0 => std::slice::from_raw_parts(types, count).to_vec(),
            _ => Vec::new(),
        }
    }
}

/// Which argument of a function is `allow`. Guarded.
pub fn position(function: pg_sys::Oid) -> Option<usize> {
    argument_types(function).iter().position(|&of| of == pg_sys::TEXTARRAYOID)
}

/// May the current user call the function that is the same without the argument `allow`? Guarded.
fn check_execute(function: pg_sys::Oid, allow: usize) -> Result<()> {
    let mut types = argument_types(function);
    types.remove(allow);
    // SAFETY: guarded catalog lookups.
    unsafe {
        let (name, schema) = (pg_sys::get_func_name(function), pg_sys::get_func_namespace(function));
        if name.is_null() {
            return Ok(());
        }
        executable(CStr::from_ptr(name), &types, schema).map(|_| ())
    }
}

/// The names in an array, which are of options.
///
/// # Safety
/// A datum of type text[]. Guarded.
unsafe fn names(array: pg_sys::Datum) -> Result<Vec<&'static str>> {
    // SAFETY: the caller vouches for the datum.
    let given = unsafe { spi::Value::of(array).texts() };
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
