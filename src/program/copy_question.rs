//! Asks the hooks of other libraries whether they allow a COPY equivalent to the load or scan.
//!
//! A ProcessUtility hook may forbid a COPY, or log it: set_user forbids COPY FROM PROGRAM, pgaudit logs each COPY. Such
//! a hook sees no utility statement when a function or a foreign table reads the file. So pg_bulk builds an equivalent
//! COPY and sends it through the chain of hooks. This is done once for a load or a scan, before its file is opened or
//! its program is run.
//!
//! The COPY copies nothing. The end of the chain depends on the order in which the libraries were loaded:
//!
//! ```text
//!   pg_bulk loaded first:          other hooks ─► pg_bulk's hook             the hook answers
//!   another library loaded first:  pg_bulk's hook ─► other hooks ─► DoCopy   an error ends DoCopy before it reads
//! ```
//!
//! There are two kinds of questions:
//!
//! * About rows to be inserted ([`may_insert`]). The COPY names the table and the columns. The rights to these are
//!   checked while the other hooks believe that the COPY runs, so pgaudit logs the load as it logs a COPY. DoCopy calls
//!   ExecutorCheckPerms_hook after it has checked the rights; the question is answered there.
//! * About a file or program to be read ([`may_read`]). The COPY is not logged. Its WHERE clause has a parameter that
//!   does not exist, so DoCopy raises an error before it checks rights to the table. The COPY names a system view: the
//!   other hooks expect an existing relation, and Citus rejects a COPY with WHERE into one of its own tables.
//!
//! The COPY also has an option that does not exist. Hooks that run COPY themselves fail with an error about it before
//! they read. Any error but these means that a hook forbids the COPY, and is raised.
//!
//! Without a hook of another library, no question is sent.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use crate::error::Error;
use crate::input::source::Location;
use crate::server::attempt::{complaint, in_subtransaction};
use crate::server::column_set::ColumnSet;
use crate::server::compat::{self, Rights};
use crate::server::database::{is_in_parallel_mode, is_in_recovery, process_number};
use crate::server::lookup::{literal, qualified, quoted, schema_name, setting};
use crate::server::memory_context::MemoryContext;
use crate::server::node::NodeList;
use crate::server::node::make::node;
use crate::server::node::make::parsed;
use crate::server::original::text;
use crate::server::relation::{Relation, name_of};
use crate::server::role::set_option;
use crate::server::session_state::SessionState;
use crate::server::unguarded as c;

/// Name of an option that COPY does not have.
const OPTION: &[u8] = b"pg_bulk_asks";
/// A parameter that no statement has.
const PARAMETER: &[u8] = b"$2000000000";
/// The relation in a question that concerns only a file.
const VIEW: (&CStr, &CStr) = (c"pg_catalog", c"pg_stat_progress_copy");

type UtilityHook = unsafe extern "C-unwind" fn(
    *mut pg_sys::PlannedStmt,
    *const c_char,
    bool,
    pg_sys::ProcessUtilityContext::Type,
    pg_sys::ParamListInfo,
    *mut pg_sys::QueryEnvironment,
    *mut pg_sys::DestReceiver,
    *mut pg_sys::QueryCompletion,
);

/// Address of pg_bulk's ProcessUtility hook, and whether another library's hook was there before.
static OURS: OnceLock<(usize, bool)> = OnceLock::new();

/// The open question, or null.
static OPEN: AtomicPtr<Question<'static>> = AtomicPtr::new(std::ptr::null_mut());

/// Called once, when pg_bulk's hook is installed.
pub fn init(hook: UtilityHook, is_behind_others: bool) {
    let _ = OURS.set((hook as usize, is_behind_others));
}

fn was_behind_others() -> bool {
    OURS.get().is_some_and(|(_, behind)| *behind)
}

/// Whether another library has a ProcessUtility hook in this process.
fn are_there_others() -> bool {
    // SAFETY: a variable of this process.
    let first = unsafe { pg_sys::ProcessUtility_hook }.map(|hook| hook as usize);
    was_behind_others() || first != OURS.get().map(|(hook, _)| *hook)
}

/// Source of a COPY.
#[derive(Debug, Clone, Copy)]
enum From<'a> {
    File(&'a CStr),
    Program(&'a CStr),
    /// The client, or an object inside the database.
    Client,
}

impl From<'_> {
    fn of(location: &Location) -> From<'_> {
        match location {
            Location::File(_) | Location::Below(_) | Location::Files(_) => From::File(location.name()),
            Location::Program(command) => From::Program(command),
            Location::Client(_) | Location::Bytes(_) | Location::LargeObject(_) | Location::Query => From::Client,
        }
    }
}

/// Rows to be inserted.
#[derive(Debug, Clone, Copy)]
pub struct Insertion<'a> {
    pub relation: Relation<'a>,
    pub columns: ColumnSet,
    pub rights: Rights,
}

impl Insertion<'_> {
    /// Raises an error unless the current user has the rights. Guarded.
    pub fn check(&self) {
        // A hook may keep the range table as long as the statement.
        let within = MemoryContext::of_top_transaction().enter();
        let rights = Rights { selected: self.rights.selected.copied(), ..self.rights };
        compat::check_insert_rights(self.relation, self.columns.copied(), rights);
        drop(within);
    }
}

/// A COPY that is sent through the hooks.
#[derive(Debug)]
struct Question<'a> {
    plan: *mut pg_sys::PlannedStmt,
    statement: *mut pg_sys::Node,
    text: CString,
    /// Checked at the end of the chain.
    insertion: Option<Insertion<'a>>,
    /// The end of the chain was reached, and the check has passed.
    is_answered: Cell<bool>,
    /// The previous hook, which is called after pg_bulk's.
    rights_hook: RightsHook,
}

/// Outcome of a COPY that no hook has forbidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyOutcome {
    /// The hooks were called and the rights are checked.
    Answered,
    /// DoCopy does not let this user read files.
    NoRole,
    /// The hooks allow the COPY; the rights to the table are not checked yet.
    Passed,
}

/// Raises an error if a hook forbids COPY from this location. Guarded.
pub fn may_read(location: &Location) {
    let from = From::of(location);
    // The leader has asked before it starts workers.
    if process_number() > 0 || matches!(from, From::Client) || !are_there_others() {
        return;
    }
    ask(from, VIEW, None, c"pg_bulk");
}

/// Checks the rights to insert rows from this location, and asks the hooks. Raises an error if either forbids it. `by`
/// appears in the statement text that hooks see. Guarded.
pub fn may_insert(location: &Location, insertion: Insertion<'_>, by: &CStr) {
    if !are_there_others() {
        return insertion.check();
    }
    let relation = insertion.relation;
    let schema = schema_name(relation.namespace()).filter(|_| compat::may_use_schema(relation.namespace()));
    // A COPY without a column list copies all columns.
    let Some(schema) = schema.filter(|_| !insertion.columns.is_empty()) else {
        may_read(location);
        return insertion.check();
    };
    let name = relation.name();
    let asks = |from| ask(from, (&schema, &name), Some(insertion), by);
    let mut end = asks(From::of(location));
    if end == CopyOutcome::NoRole {
        // The user has other rights to read this file.
        end = asks(From::Client);
    }
    if end != CopyOutcome::Answered {
        insertion.check();
    }
}

/// Checks that the role may insert into some column, before the file's header names the columns. The insertion has no
/// columns. [`may_insert`] must follow; only then hooks see the rights. Guarded.
pub fn may_insert_some(location: &Location, insertion: Insertion<'_>) {
    if !are_there_others() {
        return insertion.check();
    }
    may_read(location);
    let hook = RightsHook::NONE.install();
    // SAFETY: the body is a guard.
    let error = unsafe { complaint(|| c::guarded(|| insertion.check())).as_mut() };
    hook.install();
    if let Some(error) = error {
        raise_again(error);
    }
}

/// Raises a caught error. Guarded.
fn raise_again(error: &'static mut pg_sys::ErrorData) {
    // SAFETY: nothing else uses the error, and the closure owns nothing.
    unsafe { c::guard::<()>(|| c::ReThrowError(error)) }
}

/// A value of ExecutorCheckPerms_hook: one that the variable had, or one of this module.
#[derive(Debug, Clone, Copy)]
struct RightsHook(pg_sys::ExecutorCheckPerms_hook_type);

impl RightsHook {
    const NONE: RightsHook = RightsHook(None);
    const OURS: RightsHook = RightsHook(Some(rights_are_asked));

    /// Puts it in place of the current one, which it returns.
    fn install(self) -> RightsHook {
        // SAFETY: only the server's thread uses the variable.
        RightsHook(unsafe { std::ptr::replace(&raw mut pg_sys::ExecutorCheckPerms_hook, self.0) })
    }
}

/// Sends a COPY through the hooks. Guarded; raises their errors.
fn ask(from: From<'_>, table: (&CStr, &CStr), insertion: Option<Insertion<'_>>, by: &CStr) -> CopyOutcome {
    // Also holds allocations of hooks.
    let memory = MemoryContext::current().child(c"pg_bulk question");
    let within = memory.enter();
    let copy = copy_text(from, table, insertion);
    let with = |end: &[&[u8]]| CString::new([copy.as_slice(), &end.concat()].concat()).unwrap_or_default();
    let condition = if insertion.is_none() { [b" WHERE ".as_slice(), PARAMETER].concat() } else { Vec::new() };
    let asked = with(&[b" (", OPTION, b")", &condition]);
    let text = with(&[b" /* ", by.to_bytes(), b" */"]);
    let statement = parsed(&asked).first().map_or(std::ptr::null_mut(), |parsed| parsed.stmt().as_ptr());
    let plan = pg_sys::PlannedStmt {
        type_: pg_sys::NodeTag::T_PlannedStmt,
        commandType: pg_sys::CmdType::CMD_UTILITY,
        canSetTag: true,
        utilityStmt: statement,
        stmt_len: i32::try_from(text.as_bytes().len()).unwrap_or(0),
        ..Default::default()
    };
    // SAFETY: the fields of a utility statement.
    let plan = unsafe { node(plan) }.as_ptr();
    let (is_answered, rights_hook) = (Cell::new(false), RightsHook::OURS.install());
    if insertion.is_none() {
        rights_hook.install();
    }
    let question = Question { plan, statement, text, insertion, is_answered, rights_hook };
    let error = put(&question);
    let Some(end) = outcome_of(&question, error.as_deref()) else {
        if let Some(error) = error {
            raise_again(error);
        }
        let message = "another library intercepted a COPY of pg_bulk and did not run it";
        Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message)
            .detail("A ProcessUtility hook neither passed the statement on nor raised an error.")
            .raise();
    };
    drop((within, question));
    // SAFETY: what was allocated in it is used no more.
    unsafe { memory.delete() };
    end
}

/// The text of the COPY, without options. Guarded.
fn copy_text(from: From<'_>, (schema, name): (&CStr, &CStr), insertion: Option<Insertion<'_>>) -> Vec<u8> {
    let mut text = [b"COPY ", qualified(schema, name).to_bytes()].concat();
    if let Some(Insertion { relation, columns, .. }) = insertion.filter(|insertion| !insertion.columns.is_empty()) {
        let attributes = columns.numbers().filter_map(|number| usize::try_from(number - 1).ok());
        let names =
            attributes.filter_map(|index| relation.descriptor().attribute(index)).map(|form| quoted(name_of(form)));
        let names: Vec<Vec<u8>> = names.map(CString::into_bytes).collect();
        text.extend([b" (", names.join(b", ".as_slice()).as_slice(), b")"].concat());
    }
    let (before, location) = match from {
        From::File(path) => (b" FROM ".as_slice(), literal(path).into_bytes()),
        From::Program(command) => (b" FROM PROGRAM ".as_slice(), literal(command).into_bytes()),
        From::Client => (b" FROM ".as_slice(), b"STDIN".to_vec()),
    };
    [text.as_slice(), before, &location].concat()
}

/// The question that was open before, and the hook of rights: both are restored at the end.
struct Open(*mut Question<'static>, RightsHook);

impl Drop for Open {
    fn drop(&mut self) {
        self.1.install();
        OPEN.store(self.0, Relaxed);
    }
}

/// Sends the question. Returns the error that ended it, if there is one. Hooks may leave allocations in the current memory
/// context. Guarded, in a transaction.
fn put(question: &Question<'_>) -> Option<&'static mut pg_sys::ErrorData> {
    let _open = Open(OPEN.swap(std::ptr::from_ref(question).cast_mut().cast(), Relaxed), question.rights_hook);
    // SAFETY: the question outlives the call, and so does its relation. The closure is plain code, and the plan is valid;
    // None_Receiver is a constant of the server. Errors are valid, or null; nothing else uses them.
    unsafe {
        let send = || {
            if was_behind_others() {
                c::guarded(log_at_once);
            }
            let tag = pg_sys::CommandTag::CMDTAG_UNKNOWN;
            let mut completion = pg_sys::QueryCompletion { commandTag: tag, nprocessed: 0 };
            c::ProcessUtility(
                question.plan,
                question.text.as_ptr(),
                false,
                pg_sys::ProcessUtilityContext::PROCESS_UTILITY_QUERY,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                pg_sys::None_Receiver,
                &raw mut completion,
            );
        };
        if !is_in_parallel_mode() {
            return in_subtransaction(send).as_mut();
        }
        // No subtransaction can begin. The server rejects COPY there before it opens anything.
        let held_off = (pg_sys::InterruptHoldoffCount, pg_sys::QueryCancelHoldoffCount);
        let state = SessionState::note();
        let error = complaint(send).as_mut();
        (pg_sys::InterruptHoldoffCount, pg_sys::QueryCancelHoldoffCount) = held_off;
        match error {
            None => state.keep(),
            Some(_) => state.restore(),
        }
        error
    }
}

/// With pgaudit.log_rows, pgaudit logs a statement at its end, which this COPY never reaches. This makes pgaudit log
/// when rights are checked, until the subtransaction ends. Guarded.
fn log_at_once() {
    let name = c"pgaudit.log_rows";
    if setting(name).as_deref() != Some(c"on") || is_in_parallel_mode() {
        return;
    }
    set_option(name, c"off", pg_sys::GucContext::PGC_SUSET, pg_sys::GucAction::GUC_ACTION_LOCAL);
}

/// Returns the outcome of a question and of the error that ended it; None if a hook has forbidden the COPY.
fn outcome_of(question: &Question<'_>, error: Option<&pg_sys::ErrorData>) -> Option<CopyOutcome> {
    if question.is_answered.get() {
        return Some(CopyOutcome::Answered);
    }
    let error = error?;
    // SAFETY: strings of an error are null or NUL-terminated.
    let (code, message, function) = unsafe { (error.sqlerrcode, text(error.message), text(error.funcname)) };
    let is = |expected: Code| code == expected as i32;
    let says = |word: &[u8]| memchr::memmem::find(message, word).is_some();
    if is(Code::ERRCODE_UNDEFINED_PARAMETER) && says(PARAMETER) || is(Code::ERRCODE_SYNTAX_ERROR) && says(OPTION) {
        return Some(CopyOutcome::Passed);
    }
    // DoCopy requires the role that may read any file. Readers of a foreign table or of a server's directory need not
    // have it.
    if is(Code::ERRCODE_INSUFFICIENT_PRIVILEGE) && function == b"DoCopy" {
        return Some(CopyOutcome::NoRole);
    }
    // standard_ProcessUtility rejects any COPY FROM in these states.
    ((is_in_parallel_mode() || is_in_recovery()) && function.starts_with(b"PreventCommand"))
        .then_some(CopyOutcome::Passed)
}

/// Looks at the open question.
fn with_open<T>(look: impl FnOnce(&Question<'_>) -> T) -> Option<T> {
    // SAFETY: null, or an open question, which stays open while it is looked at.
    unsafe { OPEN.load(Relaxed).as_ref() }.map(look)
}

/// Whether this is the COPY of the open question. Raises nothing.
pub fn is_asked(statement: *const pg_sys::Node) -> bool {
    with_open(|question| question.statement.cast_const() == statement) == Some(true)
}

impl Question<'_> {
    /// Checks the rights, without the hook of the question. Guarded.
    fn answer(&self) {
        self.rights_hook.install();
        if let Some(insertion) = self.insertion {
            insertion.check();
        }
        self.is_answered.set(true);
    }
}

/// Called when the COPY of the question has reached pg_bulk's hook, which is the last one. Guarded.
pub fn answer() {
    with_open(|question| {
        question.answer();
        if question.insertion.is_none() {
            // Otherwise other hooks would take it for a COPY that was carried out.
            end();
        }
    });
}

/// Called when the server has checked rights to these tables. Ends the COPY of the question if the tables are its own.
/// Otherwise returns the next hook. Guarded.
fn hear(tables: NodeList<'_, pg_sys::RangeTblEntry>) -> pg_sys::ExecutorCheckPerms_hook_type {
    with_open(|question| {
        let asked = question.insertion.map(|insertion| insertion.relation.oid());
        let only = tables.first().filter(|entry| tables.len() == 1 && entry.rtekind == pg_sys::RTEKind::RTE_RELATION);
        if only.is_some_and(|entry| Some(entry.relid) == asked) {
            question.answer();
            end();
        }
        question.rights_hook.0
    })
    .flatten()
}

compat::rights_hook!(rights_are_asked, hear);

/// Ends the COPY with an error. Guarded.
fn end() -> ! {
    Error::new(Code::ERRCODE_SUCCESSFUL_COMPLETION, "the hooks of other libraries let a COPY pass").raise()
}
