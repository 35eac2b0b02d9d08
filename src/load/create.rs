//! `bulk_load` with the target's name as text. With option `create` the table need not exist.
//!
//! The parser resolves an untyped literal to text rather than regclass (`func_select_candidate`), so most calls with
//! options come here. This function then calls `bulk_load` with a regclass. It looks the name up as regclass's input
//! function does, but when the call runs and not when the statement is parsed. With `create` it calls `bulk_create` and
//! returns its result. It takes either function from the catalog, with the properties that ALTER FUNCTION has set.
//!
//! A name that consists of digits is a table's name, as in a cast of a text to regclass, or else an OID, as in a
//! literal.
//!
//! A role without EXECUTE on one of these functions cannot reach it through this one. If this function has the argument
//! `allow` ([`definer`](super::definer)), it calls the functions with that argument.

use std::ffi::CStr;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::definer::{self, Allowed, executable};
use super::options::{given, value};
use crate::error::{Error, OrRaise, Result};
use crate::server::function::{Call, version_1};
use crate::server::jsonb::Jsonb;
use crate::server::lookup::{QualifiedName, relation_name, visible_relation};
use crate::server::option_value::{Caller, text};
use crate::server::unguarded::guarded;

version_1!(pg_finfo_bulk_load_named);

/// `bulk_load(path, target, options, allow)` with a name for a target.
///
/// # Safety
/// Called by the executor, with three arguments, or with four.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bulk_load_named(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // A plain frame: nothing here has a destructor.
    // SAFETY: `resolve_call` returns a call whose function takes these arguments and returns these rows; user code,
    // called without a guard.
    unsafe {
        let call = guarded(|| resolve_call(&Call::from_raw(fcinfo)));
        match (*(*call).flinfo).fn_addr {
            Some(function) => {
                let result = function(call);
                (*fcinfo).isnull = (*call).isnull;
                result
            }
            None => pg_sys::Datum::from(0usize),
        }
    }
}

/// Prepares the call of `bulk_create`, or of `bulk_load` with a regclass. Guarded.
fn resolve_call(this: &Call<'_>) -> pg_sys::FunctionCallInfo {
    // Three arguments or four, as the function is declared.
    let with_allow = definer::position(this.function()).is_some();
    let function = |name, target| {
        let types = [pg_sys::TEXTOID, target, pg_sys::JSONBOID, pg_sys::TEXTARRAYOID];
        executable(name, types.get(..if with_allow { 4 } else { 3 }).unwrap_or(&types), this.schema()).or_raise()
    };
    let options = this.argument(2).or_raise().into_jsonb();
    let (function, target) =
        if options.is_some_and(|options| creates(&options, &Allowed::by_call(this).or_raise()).or_raise()) {
            (function(c"bulk_create", pg_sys::TEXTOID), None)
        } else {
            let function = function(c"bulk_load", pg_sys::REGCLASSOID);
            (function, this.argument(1).or_raise().into_optional_text().map(|name| relation_of(&name).or_raise()))
        };
    // SAFETY: `bulk_create` has the arguments and the rows of this function; so has `bulk_load`, with a regclass in place of
    // the name.
    unsafe {
        let call = this.of_other(function);
        if let Some(target) = target {
            (*(*call).args.as_mut_ptr().add(1)).value = pg_sys::Datum::from(target);
        }
        call
    }
}

/// The relation that a text names. Guarded.
fn relation_of(name: &CStr) -> Result<pg_sys::Oid> {
    let bytes = name.to_bytes();
    let says_number = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    // As text_regclass (regproc.c).
    let named = if says_number { visible_relation(&QualifiedName::of(name).name) } else { pg_sys::InvalidOid };
    if named == pg_sys::InvalidOid {
        let name = name.as_ptr().cast_mut();
        // SAFETY: a guarded call with a string, which it does not change.
        let relation =
            unsafe { pg_sys::OidInputFunctionCall(pg_sys::F_REGCLASSIN.into(), name, pg_sys::InvalidOid, -1) };
        return Ok(pg_sys::Oid::from((relation.value() & 0xffff_ffff) as u32));
    }
    let number = text(bytes).parse().map_or(pg_sys::InvalidOid, pg_sys::Oid::from_u32);
    if number != named && relation_name(number).is_some() {
        let message = format!("\"{}\" is the name of a relation and the OID of another one", text(bytes));
        let error = Error::new(Code::ERRCODE_AMBIGUOUS_PARAMETER, message);
        return Err(error.hint("Cast it to regclass, or write the name in double quotes."));
    }
    Ok(named)
}

/// Is `create` among the options and true? Raises if it is not permitted. The callee checks the other options.
/// Guarded.
fn creates(options: &Jsonb, allowed: &Allowed) -> Result<bool> {
    let Some(members) = options.members() else { return Ok(false) };
    let mut creates = false;
    let mut other = None;
    for (name, json) in members {
        let name = text(&name).into_owned();
        if name != "create" && !given::NAMES.contains(&name.as_str()) {
            continue;
        }
        let Some(value) = value(&name, json)? else { continue };
        if name == "create" {
            allowed.check(&name, &value)?;
            creates = Caller::Function.boolean(&name, value.one(&name)?)?;
        } else {
            other = Some(name);
        }
    }
    match other {
        Some(other) if creates => {
            let message = format!("cannot specify both create and {other}");
            Err(Error::new(Code::ERRCODE_INVALID_PARAMETER_VALUE, message))
        }
        _ => Ok(creates),
    }
}
