//! Servers with the option `directory`, and what may be done with their tables by whom.
//!
//! A table's `filename` may be set by who has pg_read_server_files, or by who has USAGE on a server whose directory the file
//! must be below. The validator is told the options, and not the server. So where the role is missing it takes the file name
//! for the moment ([`remember`]), and the catalog is asked when the statement has said which table it is for ([`settle`]):
//!
//! * at the end of the statement ([`end_statement`]);
//! * before the table can be used, whenever the options of a table are read;
//! * before the transaction commits. The library may have been loaded in the middle of the statement, so that its end is not
//!   seen, and nobody need use the table.
//!
//! Rows of pg_foreign_table are looked for that this transaction has written, with the file name. What was to be settled stays so until no such
//! row is against the rules: a subtransaction that catches the error does not get past it. What a subtransaction has settled is to be settled
//! again when one is rolled back ([`at_subtransaction_end`]): that may bring back a row that was dropped, or altered, in it. It is
//! remembered as long as there is such a row, or may be one again.
//!
//! **A directory cannot be taken away again**, or tables that were made without the role would read everything: an
//! object_access_hook sees to it. Who alters a server calls the validator first, so the library is there by then. For the same reason a server that is
//! an extension's member is given none: pg_dump leaves members to CREATE EXTENSION, and what was altered is lost.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::OnceLock;

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use crate::error::{Error, OrRaise, Result};
use crate::pg::directory::{Below, DIRECTORY, check_usage, directory_of, is_ours, reads_all};
use crate::pg::option_value::{stored, text};
use crate::pg::server_text::from_server;

/// A table's source that somebody has named.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Named {
    option: &'static str,
    value: Vec<u8>,
    by: pg_sys::Oid,
}

/// The server and the options of a foreign table.
type Written = (pg_sys::Oid, Vec<(String, Vec<u8>)>);

/// More than any statement or script names; each is looked for.
const MOST: usize = 10_000;

thread_local! {
    static TO_SETTLE: RefCell<Vec<Named>> = const { RefCell::new(Vec::new()) };
    /// What was settled within subtransactions.
    static SETTLED: RefCell<HashSet<Named>> = RefCell::default();
    /// It is to be settled again.
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

/// The complaint about an option of an object that takes a role.
pub fn role_missing(role: &str, option: &str, object: &str) -> Error {
    let message = format!(
        "only superuser or a role with privileges of the {role} role may specify the {option} option of a bulk_fdw {object}"
    );
    Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message)
}

/// Check the options of a server.
pub fn validate(options: &[(String, Vec<u8>)]) -> Result<()> {
    let Some((_, directory)) = options.iter().find(|(name, _)| name == DIRECTORY) else { return Ok(()) };
    // SAFETY: a guarded call.
    if !reads_all(unsafe { pg_sys::GetUserId() }) {
        return Err(role_missing("pg_read_server_files", DIRECTORY, "server"));
    }
    if directory.first() != Some(&b'/') {
        let message = format!("directory \"{}\" is not an absolute path", text(directory));
        return Err(Error::new(Code::ERRCODE_FDW_INVALID_ATTRIBUTE_VALUE, message));
    }
    Ok(())
}

/// The current user has set this option of a table: whether he may, depends on the server. Guarded.
pub fn remember(option: &'static str, value: &CStr) -> Result<()> {
    // SAFETY: guarded calls; the callback stays registered.
    let by = unsafe {
        if !IS_REGISTERED.replace(true) {
            pg_sys::RegisterXactCallback(Some(at_transaction_end), std::ptr::null_mut());
            pg_sys::RegisterSubXactCallback(Some(at_subtransaction_end), std::ptr::null_mut());
        }
        pg_sys::GetUserId()
    };
    let named = Named { option, value: value.to_bytes().to_vec(), by };
    TO_SETTLE.with_borrow_mut(|list| {
        if list.len() >= MOST {
            return Err(Error::new(Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED, "too many foreign tables in one transaction"));
        }
        if !list.contains(&named) {
            list.push(named);
        }
        Ok(())
    })
}

/// Were the options set that the tables' servers allow? Guarded.
pub fn settle() -> Result<()> {
    if !has_to_settle() {
        return Ok(());
    }
    let mut named: HashSet<Named> = TO_SETTLE.with_borrow(|list| list.iter().cloned().collect());
    if AGAIN.get() {
        SETTLED.with_borrow(|settled| named.extend(settled.iter().cloned()));
    }
    for (server, options) in written(Rows::Now) {
        for (option, value) in &options {
            for named in named.iter().filter(|named| named.option == option && named.value == *value) {
                check(server, named)?;
            }
        }
    }
    // At the top nothing that is no more comes back, and what is there was looked at.
    let mut remembered = HashSet::new();
    // SAFETY: reads a variable of this process.
    if unsafe { pg_sys::GetCurrentTransactionNestLevel() } > 1 {
        remembered = SETTLED.with_borrow(|settled| settled.clone());
        remembered.extend(named);
        let options: HashSet<(String, Vec<u8>)> =
            written(Rows::OnceMore).into_iter().flat_map(|(_, options)| options).collect();
        remembered.retain(|named| options.contains(&(named.option.to_string(), named.value.clone())));
    }
    TO_SETTLE.with_borrow_mut(Vec::clear);
    AGAIN.set(false);
    SETTLED.set(remembered);
    Ok(())
}

/// May he, on a table of this server?
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
            // Not even named: were the option lost, the table would read it.
            let name = CString::new(named.value.as_slice()).unwrap_or_default();
            Below::new(server, &directory, &name).check_spelling()
        }
        (option, None) if !reads_all(named.by) => Err(role_missing("pg_read_server_files", option, "foreign table")),
        (_, None) => Ok(()),
    }
}

/// The complaint about a program where there is a directory. Guarded.
pub fn no_programs(server: pg_sys::Oid) -> Error {
    // SAFETY: a guarded catalog lookup.
    let name = from_server(unsafe { CStr::from_ptr((*pg_sys::GetForeignServer(server)).servername) });
    let message = format!("foreign tables of server \"{name}\" cannot have a program");
    Error::new(Code::ERRCODE_FDW_INVALID_OPTION_NAME, message).detail("The server has the option \"directory\".")
}

/// Which rows of a catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// As they are now, the last command's among them.
    Now,
    /// Also those that are no more, of which some are again if a subtransaction is rolled back.
    OnceMore,
}

/// The servers and options of foreign tables that this transaction has made or altered, and not rolled back. Guarded.
fn written(which: Rows) -> Vec<Written> {
    let mut found = Vec::new();
    // SAFETY: guarded calls; the row of a table begins with its oid and its server's, and ends with its options.
    unsafe {
        each_row(pg_sys::ForeignTableRelationId, which, |tuple, values| {
            let xmin = (*(*tuple).t_data).t_choice.t_heap.t_xmin;
            if !pg_sys::TransactionIdIsCurrentTransactionId(xmin) {
                return;
            }
            let [_, Some(server), Some(options)] = *values else { return };
            let options = stored(pg_sys::untransformRelOptions(options));
            found.push((pg_sys::Oid::from_u32(server.value() as u32), options));
        });
    }
    found
}

/// The rows of a catalog. Guarded.
fn each_row(catalog: pg_sys::Oid, which: Rows, mut look: impl FnMut(pg_sys::HeapTuple, &[Option<pg_sys::Datum>])) {
    // SAFETY: guarded calls on a catalog; there is room for each attribute.
    unsafe {
        let lock = pg_sys::AccessShareLock.cast_signed();
        let relation = pg_sys::table_open(catalog, lock);
        let snapshot = match which {
            Rows::Now => &raw mut pg_sys::SnapshotSelfData,
            Rows::OnceMore => &raw mut pg_sys::SnapshotAnyData,
        };
        let none = std::ptr::null_mut();
        let scan = pg_sys::systable_beginscan(relation, pg_sys::InvalidOid, false, snapshot, 0, none);
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            let attributes = usize::try_from((*(*relation).rd_att).natts).unwrap_or(0);
            let (mut values, mut nulls) = (vec![pg_sys::Datum::from(0usize); attributes], vec![true; attributes]);
            pg_sys::heap_deform_tuple(tuple, (*relation).rd_att, values.as_mut_ptr(), nulls.as_mut_ptr());
            let row: Vec<_> = values.into_iter().zip(nulls).map(|(value, null)| (!null).then_some(value)).collect();
            look(tuple, &row);
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(relation, lock);
    }
}

/// # Safety
/// Called by the server.
unsafe extern "C-unwind" fn at_transaction_end(event: pg_sys::XactEvent::Type, _argument: *mut c_void) {
    use pg_sys::XactEvent::{
        XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PRE_COMMIT, XACT_EVENT_PRE_PREPARE, XACT_EVENT_PREPARE,
    };
    match event {
        XACT_EVENT_PRE_COMMIT | XACT_EVENT_PRE_PREPARE => settle_guarded(),
        XACT_EVENT_ABORT | XACT_EVENT_COMMIT | XACT_EVENT_PREPARE => forget(),
        _ => (),
    }
}

/// # Safety
/// Called by the server.
unsafe extern "C-unwind" fn at_subtransaction_end(
    event: pg_sys::SubXactEvent::Type,
    _own: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _argument: *mut c_void,
) {
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        unsettle();
    }
}

/// # Safety
/// Called by the server.
#[pg_guard]
extern "C-unwind" fn settle_guarded() {
    settle().or_raise();
}

/// Raises nothing.
extern "C-unwind" fn forget() {
    TO_SETTLE.with_borrow_mut(Vec::clear);
    SETTLED.set(HashSet::new());
    AGAIN.set(false);
}

/// Raises nothing.
extern "C-unwind" fn unsettle() {
    AGAIN.set(SETTLED.with_borrow(|settled| !settled.is_empty()));
}

/// A utility statement is done. May raise; a plain frame.
pub fn end_statement() {
    if has_to_settle() {
        settle_guarded();
    }
}

/// Raises nothing.
fn has_to_settle() -> bool {
    AGAIN.get() || TO_SETTLE.with_borrow(|list| !list.is_empty())
}

/// # Safety
/// Called by the server.
unsafe extern "C-unwind" fn object_access(
    access: pg_sys::ObjectAccessType::Type,
    class: pg_sys::Oid,
    object: pg_sys::Oid,
    sub: c_int,
    argument: *mut c_void,
) {
    // A plain frame: nothing here has a destructor.
    // SAFETY: passed on.
    unsafe {
        if let Some(previous) = OBJECT_ACCESS.get().copied().flatten() {
            previous(access, class, object, sub, argument);
        }
        if access == pg_sys::ObjectAccessType::OAT_POST_ALTER && class == pg_sys::ForeignServerRelationId {
            keep_directory(object);
        }
    }
}

/// A server was altered: it must have a directory if it had one, and none that is lost in a dump. The row is not visible yet, so
/// the cache has the old one.
#[pg_guard]
extern "C-unwind" fn keep_directory(server: pg_sys::Oid) {
    if !is_ours(server, super::owns) {
        return;
    }
    let old = directory_of(server).map(CString::into_bytes);
    let mut new = None;
    // SAFETY: guarded calls; a row of the catalog has these attributes, the first one its oid, the last one its options.
    unsafe {
        each_row(pg_sys::ForeignServerRelationId, Rows::Now, |_, values| {
            let [Some(oid), .., options] = *values else { return };
            if oid.value() as u32 == server.to_u32() {
                let options = options.map(|options| stored(pg_sys::untransformRelOptions(options))).unwrap_or_default();
                new = options.into_iter().find(|(name, _)| name == DIRECTORY).map(|(_, value)| value);
            }
        });
        if new == old {
            return;
        }
        let name = from_server(CStr::from_ptr((*pg_sys::GetForeignServer(server)).servername));
        if new.is_none() {
            Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, format!("cannot drop the directory of server \"{name}\""))
                .detail("Its foreign tables could then read any file.")
                .hint("Set another directory, or drop the server.")
                .raise()
        }
        if pg_sys::getExtensionOfObject(pg_sys::ForeignServerRelationId, server) != pg_sys::InvalidOid {
            Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, format!("cannot set the directory of server \"{name}\""))
                .detail("The server is a member of an extension, so a dump would omit the directory.")
                .hint("Create another server with foreign-data wrapper bulk_fdw.")
                .raise()
        }
    }
}
