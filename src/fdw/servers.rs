//! Servers with the option `directory`, and the checks of their tables' options.
//!
//! A role may set a table's `filename` if it has pg_read_server_files, or if it has USAGE on a server with a directory
//! that contains the file. The validator receives the options, but not the server. So if the role lacks
//! pg_read_server_files, the validator accepts the file name for now ([`remember`]). The catalog is checked once the
//! statement has stored the table ([`check_pending`]):
//!
//! * at the end of the statement (`process_utility`);
//! * before the table can be used, whenever the options of a table are read;
//! * before the transaction commits. The library may have been loaded in the middle of the statement, so that its end
//!   is missed, and the table may stay unused.
//!
//! The check looks for rows of pg_foreign_table with the file name that this transaction has written. A file name stays
//! pending until no such row violates the rules, so a subtransaction that catches the error cannot avoid it. A file
//! name that was checked within a subtransaction becomes pending again when a subtransaction is rolled back
//! ([`at_subtransaction_end`]), because that may restore a row that was dropped or altered in it. The name is
//! remembered as long as such a row exists, or may exist again.
//!
//! **A directory cannot be removed again**, or tables that were made without the role would read any file; an
//! object_access_hook prevents it. ALTER SERVER calls the validator first, so the library is loaded by then. For the
//! same reason a server that is an extension's member cannot get a directory: pg_dump leaves members to CREATE
//! EXTENSION, and the altered option would be lost.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::OnceLock;

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use crate::error::{Error, OrRaise, Result};
use crate::input::directory::{Below, DIRECTORY, check_usage, directory_of, is_ours, reads_all};
use crate::server::database::is_own_transaction;
use crate::server::lookup::{ForeignServer, extension_of};
use crate::server::option_value::{stored_in, text};
use crate::server::relation::OpenRelation;
use crate::server::role::current_user;
use crate::server::server_text::from_server;
use crate::server::statement::nest_level;

/// A source option of a table, and the role that has set it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Named {
    option: &'static str,
    value: Vec<u8>,
    by: pg_sys::Oid,
}

/// Names and values of options.
type Options = Vec<(String, Vec<u8>)>;

/// Most pending names. Each is looked for in the catalog.
const MOST: usize = 10_000;

thread_local! {
    static PENDING: RefCell<Vec<Named>> = const { RefCell::new(Vec::new()) };
    /// Names that were checked within subtransactions.
    static CHECKED: RefCell<HashSet<Named>> = RefCell::default();
    /// These names must be checked again.
    static AGAIN: Cell<bool> = const { Cell::new(false) };
    static IS_REGISTERED: Cell<bool> = const { Cell::new(false) };
}

static OBJECT_ACCESS: OnceLock<pg_sys::object_access_hook_type> = OnceLock::new();

/// Called once, when the library is loaded. Guarded.
pub fn init() {
    // SAFETY: variables of this process, which has one thread of the server's.
    unsafe {
        let _ = OBJECT_ACCESS.set(pg_sys::object_access_hook);
        pg_sys::object_access_hook = Some(object_access);
    }
}

/// The error about an option that requires a role.
pub fn role_missing(role: &str, option: &str, object: &str) -> Error {
    let message = format!(
        "only superuser or a role with privileges of the {role} role may specify the {option} option of a bulk_fdw {object}"
    );
    Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message)
}

/// Checks the options of a server.
pub fn validate(options: &[(String, Vec<u8>)]) -> Result<()> {
    let Some((_, directory)) = options.iter().find(|(name, _)| name == DIRECTORY) else { return Ok(()) };
    if !reads_all(current_user()) {
        return Err(role_missing("pg_read_server_files", DIRECTORY, "server"));
    }
    if directory.first() != Some(&b'/') {
        let message = format!("directory \"{}\" is not an absolute path", text(directory));
        return Err(Error::new(Code::ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE, message));
    }
    Ok(())
}

/// Records that the current user has set this option of a table; the server decides whether that is permitted. Guarded.
pub fn remember(option: &'static str, value: &CStr) -> Result<()> {
    if !IS_REGISTERED.replace(true) {
        // SAFETY: guarded calls; the callbacks stay registered.
        unsafe {
            pg_sys::RegisterXactCallback(Some(at_transaction_end), std::ptr::null_mut());
            pg_sys::RegisterSubXactCallback(Some(at_subtransaction_end), std::ptr::null_mut());
        }
    }
    let named = Named { option, value: value.to_bytes().to_vec(), by: current_user() };
    PENDING.with_borrow_mut(|list| {
        if list.len() >= MOST {
            return Err(Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, "too many foreign tables in one transaction"));
        }
        if !list.contains(&named) {
            list.push(named);
        }
        Ok(())
    })
}

/// Checks the pending options against the tables' servers. Guarded.
pub fn check_pending() -> Result<()> {
    if !AGAIN.get() && PENDING.with_borrow(Vec::is_empty) {
        return Ok(());
    }
    let mut named: HashSet<Named> = PENDING.with_borrow(|list| list.iter().cloned().collect());
    if AGAIN.get() {
        CHECKED.with_borrow(|checked| named.extend(checked.iter().cloned()));
    }
    // Tables that this transaction has created or altered.
    let written = |which| rows_of(pg_sys::ForeignTableRelationId, which, |_, is_own| is_own);
    for (server, options) in written(CatalogRows::Now) {
        for (option, value) in &options {
            for named in named.iter().filter(|named| named.option == option && named.value == *value) {
                check(server, named)?;
            }
        }
    }
    // At the top level, no dead row comes back, and all live rows were checked.
    let mut remembered = HashSet::new();
    if nest_level() > 1 {
        remembered = CHECKED.with_borrow(|checked| checked.clone());
        remembered.extend(named);
        let options: HashSet<(String, Vec<u8>)> =
            written(CatalogRows::OnceMore).into_iter().flat_map(|(_, options)| options).collect();
        remembered.retain(|named| options.contains(&(named.option.to_string(), named.value.clone())));
    }
    PENDING.with_borrow_mut(Vec::clear);
    AGAIN.set(false);
    CHECKED.set(remembered);
    Ok(())
}

/// Raises unless the role may set the option on a table of this server.
fn check(server: pg_sys::Oid, named: &Named) -> Result<()> {
    if !is_ours(server, super::owns) {
        return Ok(());
    }
    let directory = directory_of(server);
    match (named.option, directory) {
        ("program", Some(_)) => Err(no_programs(server)),
        ("program", None) => Ok(()),
        (_, Some(directory)) => {
            check_usage(server, named.by)?;
            // A name outside the directory is an error even here: if the server lost the option, the table would read
            // it.
            let name = CString::new(named.value.as_slice()).unwrap_or_default();
            Below::new(server, &directory, &name).check_spelling()
        }
        (option, None) if !reads_all(named.by) => Err(role_missing("pg_read_server_files", option, "foreign table")),
        (_, None) => Ok(()),
    }
}

/// The error about a program on a server with a directory. Guarded.
pub fn no_programs(server: pg_sys::Oid) -> Error {
    let name = from_server(&ForeignServer::find(server).name);
    let message = format!("foreign tables of server \"{name}\" cannot have a program");
    Error::new(Code::ERRCODE_FDW_INVALID_OPTION_NAME, message).detail("The server has the option \"directory\".")
}

/// The rows of a catalog to visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CatalogRows {
    /// Rows as they are now, including the last command's.
    Now,
    /// Also dead rows, which may come back when a subtransaction is rolled back.
    OnceMore,
}

/// Servers and options in rows of pg_foreign_server or pg_foreign_table. `wants` gets the server of a row, and whether
/// this transaction has written the row. Guarded.
fn rows_of(
    catalog: pg_sys::Oid,
    which: CatalogRows,
    wants: impl Fn(pg_sys::Oid, bool) -> bool,
) -> Vec<(pg_sys::Oid, Options)> {
    let mut found = Vec::new();
    let relation = OpenRelation::open(catalog, pg_sys::AccessShareLock).releasing();
    let descriptor = relation.get().descriptor();
    let mut values = vec![pg_sys::Datum::from(0usize); descriptor.len()];
    let mut nulls = vec![true; descriptor.len()];
    // The row of a table begins with its OID and its server's. Both end with options.
    let number = usize::from(catalog == pg_sys::ForeignTableRelationId);
    // SAFETY: guarded calls on a catalog; there is room for each attribute. The last one is an array of options.
    unsafe {
        let snapshot = match which {
            CatalogRows::Now => &raw mut pg_sys::SnapshotSelfData,
            CatalogRows::OnceMore => &raw mut pg_sys::SnapshotAnyData,
        };
        let (none, relation) = (std::ptr::null_mut(), relation.get().as_ptr());
        let scan = pg_sys::systable_beginscan(relation, pg_sys::InvalidOid, false, snapshot, 0, none);
        while let Some(tuple) = pg_sys::systable_getnext(scan).as_mut() {
            pg_sys::heap_deform_tuple(tuple, descriptor.as_ptr(), values.as_mut_ptr(), nulls.as_mut_ptr());
            let server = values.get(number).map_or(pg_sys::InvalidOid, |oid| pg_sys::Oid::from_u32(oid.value() as u32));
            if wants(server, is_own_transaction((*tuple.t_data).t_choice.t_heap.t_xmin)) {
                let options = values.last().filter(|_| nulls.last() == Some(&false));
                found.push((server, options.map_or_else(Vec::new, |&options| stored_in(options))));
            }
        }
        pg_sys::systable_endscan(scan);
    }
    found
}

#[pg_guard]
extern "C-unwind" fn at_transaction_end(event: pg_sys::XactEvent::Type, _argument: *mut c_void) {
    use pg_sys::XactEvent::{
        XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PRE_COMMIT, XACT_EVENT_PRE_PREPARE, XACT_EVENT_PREPARE,
    };
    match event {
        XACT_EVENT_PRE_COMMIT | XACT_EVENT_PRE_PREPARE => check_pending().or_raise(),
        XACT_EVENT_ABORT | XACT_EVENT_COMMIT | XACT_EVENT_PREPARE => {
            PENDING.with_borrow_mut(Vec::clear);
            CHECKED.set(HashSet::new());
            AGAIN.set(false);
        }
        _ => (),
    }
}

extern "C-unwind" fn at_subtransaction_end(
    event: pg_sys::SubXactEvent::Type,
    _own: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _argument: *mut c_void,
) {
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        // Raises nothing.
        AGAIN.set(CHECKED.with_borrow(|checked| !checked.is_empty()));
    }
}

/// # Safety
/// Called by the server, with the arguments of the hook.
unsafe extern "C-unwind" fn object_access(
    access: pg_sys::ObjectAccessType::Type,
    class: pg_sys::Oid,
    object: pg_sys::Oid,
    sub: c_int,
    argument: *mut c_void,
) {
    // A plain frame: nothing here has a destructor.
    // SAFETY: the server calls the hook with these arguments.
    unsafe {
        if let Some(previous) = OBJECT_ACCESS.get().copied().flatten() {
            previous(access, class, object, sub, argument);
        }
        if access == pg_sys::ObjectAccessType::OAT_POST_ALTER && class == pg_sys::ForeignServerRelationId {
            keep_directory(object);
        }
    }
}

/// Checks an altered server: a directory must not disappear, nor be set if a dump would lose it. The new row is not
/// visible yet, so the cache has the old one.
#[pg_guard]
extern "C-unwind" fn keep_directory(server: pg_sys::Oid) {
    if !is_ours(server, super::owns) {
        return;
    }
    let old = directory_of(server).map(CString::into_bytes);
    let rows = rows_of(pg_sys::ForeignServerRelationId, CatalogRows::Now, |other, _| other == server);
    let new =
        rows.into_iter().flat_map(|(_, options)| options).find(|(name, _)| name == DIRECTORY).map(|(_, value)| value);
    if new == old {
        return;
    }
    let name = from_server(&ForeignServer::find(server).name);
    if new.is_none() {
        Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, format!("cannot drop the directory of server \"{name}\""))
            .detail("Its foreign tables could then read any file.")
            .hint("Set another directory, or drop the server.")
            .raise()
    }
    if extension_of(pg_sys::ForeignServerRelationId, server) != pg_sys::InvalidOid {
        Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, format!("cannot set the directory of server \"{name}\""))
            .detail("The server is a member of an extension, so a dump would omit the directory.")
            .hint("Create another server with foreign-data wrapper bulk_fdw.")
            .raise()
    }
}
