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

use std::ffi::{CStr, CString, c_char};
use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use pgrx::{AllocatedByRust, PgBox, PgList, PgSqlErrorCode as Code, pg_guard, pg_sys};

use crate::error::Error;
use crate::input::source::Location;
use crate::server::attempt::{complaint, in_subtransaction};
use crate::server::compat::{self, Rights};
use crate::server::session_state::SessionState;
use crate::server::unguarded::{self as c, Opaque};

/// Name of an option that COPY does not have.
const OPTION: &CStr = c"pg_bulk_asks";
/// Number of a parameter that no statement has.
const PARAMETER: i32 = 2_000_000_000;
const PARAMETER_TEXT: &[u8] = b"$2000000000";
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
static OPEN: AtomicPtr<Question> = AtomicPtr::new(std::ptr::null_mut());

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
pub struct Insertion {
    /// Open and locked.
    pub relation: pg_sys::Relation,
    /// Columns, as in a range table entry.
    pub columns: *mut pg_sys::Bitmapset,
    pub rights: Rights,
}

impl Insertion {
    /// Raises an error unless the current user has the rights. Guarded.
    ///
    /// # Safety
    /// The relation is open. The range table lives until the transaction ends, since a hook may keep it as long as the
    /// statement.
    pub unsafe fn check(&self) {
        // SAFETY: this function's contract covers the relation; guarded calls.
        unsafe {
            let caller = pg_sys::MemoryContextSwitchTo(pg_sys::TopTransactionContext);
            let rights = Rights { selected: pg_sys::bms_copy(self.rights.selected), ..self.rights };
            compat::check_insert_rights(self.relation, pg_sys::bms_copy(self.columns), rights);
            pg_sys::MemoryContextSwitchTo(caller);
        }
    }
}

/// A COPY that is sent through the hooks.
#[derive(Debug)]
struct Question {
    plan: *mut pg_sys::PlannedStmt,
    statement: *mut pg_sys::Node,
    text: CString,
    /// Checked at the end of the chain.
    insertion: Option<Insertion>,
    /// The end of the chain was reached, and the check has passed.
    is_answered: bool,
    /// The previous ExecutorCheckPerms_hook, which is called after pg_bulk's.
    rights_hook: pg_sys::ExecutorCheckPerms_hook_type,
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
    // SAFETY: a variable of this process. The leader has asked before it starts workers.
    let is_worker = unsafe { pg_sys::ParallelWorkerNumber } >= 0;
    let from = From::of(location);
    if is_worker || matches!(from, From::Client) || !are_there_others() {
        return;
    }
    // SAFETY: guarded calls with strings.
    unsafe { ask(from, VIEW.0.as_ptr(), VIEW.1.as_ptr(), None, c"pg_bulk") };
}

/// Checks the rights to insert rows from this location, and asks the hooks. Raises an error if either forbids it. `by`
/// appears in the statement text that hooks see. Guarded.
///
/// # Safety
/// The relation is open and locked.
pub unsafe fn may_insert(location: &Location, insertion: Insertion, by: &CStr) {
    // SAFETY: this function's contract covers the relation; guarded calls.
    unsafe {
        if !are_there_others() {
            return insertion.check();
        }
        let form = (*insertion.relation).rd_rel;
        // A COPY without a column list copies all columns.
        if insertion.columns.is_null() || !compat::may_use_schema((*form).relnamespace) {
            may_read(location);
            return insertion.check();
        }
        let schema = pg_sys::get_namespace_name((*form).relnamespace);
        let name = (*form).relname.data.as_ptr();
        let asks = |from| ask(from, schema, name, Some(insertion), by);
        let mut end = asks(From::of(location));
        if end == CopyOutcome::NoRole {
            // The user has other rights to read this file.
            end = asks(From::Client);
        }
        if end != CopyOutcome::Answered {
            insertion.check();
        }
    }
}

/// Checks that the role may insert into some column, before the file's header names the columns. The insertion has no
/// columns. [`may_insert`] must follow; only then hooks see the rights. Guarded.
///
/// # Safety
/// As [`may_insert`].
pub unsafe fn may_insert_some(location: &Location, insertion: Insertion) {
    // SAFETY: this function's contract covers the relation; the body is a guard, and its argument outlives the call.
    unsafe {
        if !are_there_others() {
            return insertion.check();
        }
        may_read(location);
        let hook = pg_sys::ExecutorCheckPerms_hook;
        pg_sys::ExecutorCheckPerms_hook = None;
        let error = complaint(|| c::guarded(|| insertion.check()));
        pg_sys::ExecutorCheckPerms_hook = hook;
        if !error.is_null() {
            c::guard::<()>(|| c::ReThrowError(error));
        }
    }
}

/// Sends a COPY through the hooks. Guarded; raises their errors.
///
/// # Safety
/// Strings; the insertion's relation is open.
unsafe fn ask(
    from: From<'_>,
    schema: *const c_char,
    name: *const c_char,
    insertion: Option<Insertion>,
    by: &CStr,
) -> CopyOutcome {
    // SAFETY: this function's contract covers the arguments; guarded calls. The memory context also holds allocations
    // of hooks.
    unsafe {
        let memory = pg_sys::AllocSetContextCreateExtended(
            pg_sys::CurrentMemoryContext,
            c"pg_bulk question".as_ptr(),
            pg_sys::ALLOCSET_SMALL_MINSIZE as usize,
            pg_sys::ALLOCSET_SMALL_INITSIZE as usize,
            pg_sys::ALLOCSET_SMALL_MAXSIZE as usize,
        );
        let caller = pg_sys::MemoryContextSwitchTo(memory);
        let columns = insertion.map(|insertion| names(&insertion)).unwrap_or_default();
        let statement = statement(from, schema, name, &columns, insertion.is_none());
        let text = text(from, schema, name, &columns, by);
        let mut plan = PgBox::<pg_sys::PlannedStmt, AllocatedByRust>::alloc_node(pg_sys::NodeTag::T_PlannedStmt);
        plan.commandType = pg_sys::CmdType::CMD_UTILITY;
        plan.canSetTag = true;
        plan.utilityStmt = statement;
        plan.stmt_len = i32::try_from(text.as_bytes().len()).unwrap_or(0);
        let rights_hook = pg_sys::ExecutorCheckPerms_hook;
        let mut question =
            Question { plan: plan.into_pg(), statement, text, insertion, is_answered: false, rights_hook };
        let error = put(&mut question);
        let Some(end) = outcome_of(&question, error) else {
            if !error.is_null() {
                c::guard::<()>(|| c::ReThrowError(error));
            }
            let message = "another library intercepted a COPY of pg_bulk and did not run it";
            Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message)
                .detail("A ProcessUtility hook neither passed the statement on nor raised an error.")
                .raise();
        };
        pg_sys::MemoryContextSwitchTo(caller);
        drop(question);
        pg_sys::MemoryContextDelete(memory);
        end
    }
}

/// Returns the names of the insertion's columns.
///
/// # Safety
/// The insertion's relation is open. Guarded.
unsafe fn names(insertion: &Insertion) -> Vec<*mut c_char> {
    let mut names = Vec::new();
    // SAFETY: this function's contract covers the relation; guarded calls on a set of its columns.
    unsafe {
        let mut member = pg_sys::bms_next_member(insertion.columns, -1);
        while member >= 0 {
            let number = member + pg_sys::FirstLowInvalidHeapAttributeNumber;
            let relid = (*insertion.relation).rd_id;
            names.push(pg_sys::get_attname(relid, i16::try_from(number).unwrap_or(0), false));
            member = pg_sys::bms_next_member(insertion.columns, member);
        }
    }
    names
}

/// # Safety
/// Strings that outlive the statement. Guarded.
unsafe fn statement(
    from: From<'_>,
    schema: *const c_char,
    name: *const c_char,
    columns: &[*mut c_char],
    has_parameter: bool,
) -> *mut pg_sys::Node {
    // SAFETY: this function's contract covers the strings; guarded calls; the nodes are those of the grammar.
    unsafe {
        let mut copy = PgBox::<pg_sys::CopyStmt, AllocatedByRust>::alloc_node(pg_sys::NodeTag::T_CopyStmt);
        copy.relation = pg_sys::makeRangeVar(pg_sys::pstrdup(schema), pg_sys::pstrdup(name), -1);
        copy.is_from = true;
        let (is_program, filename) = match from {
            From::File(path) => (false, Some(path)),
            From::Program(command) => (true, Some(command)),
            From::Client => (false, None),
        };
        copy.is_program = is_program;
        copy.filename = filename.map_or(std::ptr::null_mut(), |name| pg_sys::pstrdup(name.as_ptr()));
        let mut list = PgList::<pg_sys::String>::new();
        for &column in columns {
            list.push(pg_sys::makeString(column));
        }
        copy.attlist = list.into_pg();
        let mut options = PgList::<pg_sys::DefElem>::new();
        options.push(pg_sys::makeDefElem(pg_sys::pstrdup(OPTION.as_ptr()), std::ptr::null_mut(), -1));
        copy.options = options.into_pg();
        if has_parameter {
            let mut parameter = PgBox::<pg_sys::ParamRef, AllocatedByRust>::alloc_node(pg_sys::NodeTag::T_ParamRef);
            parameter.number = PARAMETER;
            parameter.location = -1;
            copy.whereClause = parameter.into_pg().cast();
        }
        copy.into_pg().cast()
    }
}

/// Returns the text of the COPY.
///
/// # Safety
/// Strings. Guarded.
unsafe fn text(
    from: From<'_>,
    schema: *const c_char,
    name: *const c_char,
    columns: &[*mut c_char],
    by: &CStr,
) -> CString {
    // SAFETY: this function's contract covers the strings; guarded calls that return strings.
    unsafe {
        let literal = |string: &CStr| CStr::from_ptr(pg_sys::quote_literal_cstr(string.as_ptr())).to_bytes();
        let mut text = b"COPY ".to_vec();
        text.extend(CStr::from_ptr(pg_sys::quote_qualified_identifier(schema, name)).to_bytes());
        for (i, &column) in columns.iter().enumerate() {
            text.extend(if i == 0 { b" (".as_slice() } else { b", " });
            text.extend(CStr::from_ptr(pg_sys::quote_identifier(column)).to_bytes());
        }
        if !columns.is_empty() {
            text.push(b')');
        }
        text.extend(b" FROM ");
        match from {
            From::File(path) => text.extend(literal(path)),
            From::Program(command) => {
                text.extend(b"PROGRAM ");
                text.extend(literal(command));
            }
            From::Client => text.extend(b"STDIN"),
        }
        text.extend(b" /* ");
        text.extend(by.to_bytes());
        text.extend(b" */");
        CString::new(text).unwrap_or_default()
    }
}

/// Sends the question. Returns the error that ended it, or null.
///
/// # Safety
/// A valid question, in a transaction, from a guarded frame. Hooks may leave allocations in the current memory context.
unsafe fn put(question: &mut Question) -> *mut pg_sys::ErrorData {
    let question: *mut Question = question;
    // SAFETY: this function's contract covers the question, which outlives the call. The variables are restored with or
    // without an error; only the server's thread uses them.
    unsafe {
        let before = OPEN.swap(question, Relaxed);
        if (*question).insertion.is_some() {
            pg_sys::ExecutorCheckPerms_hook = Some(rights_are_asked);
        }
        let error = if pg_sys::IsInParallelMode() {
            alone(question.cast())
        } else {
            in_subtransaction(|| send(question.cast()))
        };
        pg_sys::ExecutorCheckPerms_hook = (*question).rights_hook;
        OPEN.store(before, Relaxed);
        error
    }
}

/// [`send`] in parallel mode, where no subtransaction can begin. The server rejects COPY there before it opens
/// anything.
///
/// # Safety
/// As [`send`], from a guarded frame.
unsafe fn alone(question: Opaque) -> *mut pg_sys::ErrorData {
    // SAFETY: this function's contract covers the question.
    unsafe {
        let held_off = (pg_sys::InterruptHoldoffCount, pg_sys::QueryCancelHoldoffCount);
        let state = SessionState::note();
        let error = complaint(|| send(question));
        (pg_sys::InterruptHoldoffCount, pg_sys::QueryCancelHoldoffCount) = held_off;
        if error.is_null() {
            state.keep()
        } else {
            state.restore()
        }
        error
    }
}

/// # Safety
/// A question. A plain frame.
unsafe extern "C-unwind" fn send(question: Opaque) {
    // SAFETY: this function's contract covers the question; None_Receiver is a constant of the server.
    unsafe {
        let question = question.cast::<Question>();
        if was_behind_others() {
            log_at_once();
        }
        let mut completion = pg_sys::QueryCompletion { commandTag: pg_sys::CommandTag::CMDTAG_UNKNOWN, nprocessed: 0 };
        c::ProcessUtility(
            (*question).plan,
            (*question).text.as_ptr(),
            false,
            pg_sys::ProcessUtilityContext::PROCESS_UTILITY_QUERY,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            pg_sys::None_Receiver,
            &raw mut completion,
        );
    }
}

/// With pgaudit.log_rows, pgaudit logs a statement at its end, which this COPY never reaches. This makes pgaudit log
/// when rights are checked, until the subtransaction ends.
#[pg_guard]
unsafe extern "C-unwind" fn log_at_once() {
    let name = c"pgaudit.log_rows";
    // SAFETY: guarded calls with strings.
    unsafe {
        let value = pg_sys::GetConfigOption(name.as_ptr(), true, false);
        if value.is_null() || CStr::from_ptr(value) != c"on" || pg_sys::IsInParallelMode() {
            return;
        }
        pg_sys::set_config_option(
            name.as_ptr(),
            c"off".as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_LOCAL,
            true,
            0,
            false,
        );
    }
}

/// Returns the outcome of a question; None if a hook has forbidden the COPY.
///
/// # Safety
/// The error that ended the question, or null. Guarded.
unsafe fn outcome_of(question: &Question, error: *const pg_sys::ErrorData) -> Option<CopyOutcome> {
    if question.is_answered {
        return Some(CopyOutcome::Answered);
    }
    // SAFETY: this function's contract covers the error; its strings are null or NUL-terminated.
    let (code, message, function) = unsafe {
        let error = error.as_ref()?;
        let bytes = |string: *const c_char| if string.is_null() { &[] } else { CStr::from_ptr(string).to_bytes() };
        (error.sqlerrcode, bytes(error.message), bytes(error.funcname))
    };
    let is = |expected: Code| code == expected as i32;
    let says = |word: &[u8]| memchr::memmem::find(message, word).is_some();
    if is(Code::ERRCODE_UNDEFINED_PARAMETER) && says(PARAMETER_TEXT)
        || is(Code::ERRCODE_SYNTAX_ERROR) && says(OPTION.to_bytes())
    {
        return Some(CopyOutcome::Passed);
    }
    // DoCopy requires the role that may read any file. Readers of a foreign table or of a server's directory need not
    // have it.
    if is(Code::ERRCODE_INSUFFICIENT_PRIVILEGE) && function == b"DoCopy" {
        return Some(CopyOutcome::NoRole);
    }
    // SAFETY: reads variables of this process.
    let refuses_all = unsafe { pg_sys::IsInParallelMode() || pg_sys::RecoveryInProgress() };
    // standard_ProcessUtility rejects any COPY FROM in these states.
    (refuses_all && function.starts_with(b"PreventCommand")).then_some(CopyOutcome::Passed)
}

/// Whether this is the COPY of the open question. Raises nothing.
pub fn is_asked(statement: *const pg_sys::Node) -> bool {
    let question = OPEN.load(Relaxed);
    // SAFETY: a question is valid as long as it is open.
    !question.is_null() && unsafe { (*question).statement }.cast_const() == statement
}

/// Called when the COPY of the question has reached pg_bulk's hook, which is the last one.
///
/// # Safety
/// A question is open. A plain frame may call it.
#[pg_guard]
pub unsafe extern "C-unwind" fn answer() {
    // SAFETY: this function's contract covers the question; only the server's thread uses it.
    unsafe {
        let question = OPEN.load(Relaxed);
        let insertion = (*question).insertion;
        pg_sys::ExecutorCheckPerms_hook = (*question).rights_hook;
        if let Some(insertion) = insertion {
            insertion.check();
        }
        (*question).is_answered = true;
        if insertion.is_none() {
            // Otherwise other hooks would take it for a COPY that was carried out.
            end();
        }
    }
}

/// Called when the server has checked rights to these tables. Ends the COPY of the question if the tables are its own.
/// Otherwise returns the next hook.
///
/// # Safety
/// A range table; a question is open. A plain frame may call it.
#[pg_guard]
pub unsafe extern "C-unwind" fn hear(table: *mut pg_sys::List) -> pg_sys::ExecutorCheckPerms_hook_type {
    // SAFETY: as in `answer`; this function's contract covers the table.
    unsafe {
        let question = OPEN.load(Relaxed);
        let hook = (*question).rights_hook;
        let Some(insertion) = (*question).insertion else { return hook };
        let entries = PgList::<pg_sys::RangeTblEntry>::from_pg(table);
        let is_its = entries.len() == 1
            && entries.get_ptr(0).is_some_and(|entry| {
                (*entry).rtekind == pg_sys::RTEKind::RTE_RELATION && (*entry).relid == (*insertion.relation).rd_id
            });
        if is_its {
            pg_sys::ExecutorCheckPerms_hook = hook;
            insertion.check();
            (*question).is_answered = true;
            end();
        }
        hook
    }
}

compat::rights_hook!(rights_are_asked, hear);

/// Ends the COPY with an error. Guarded.
fn end() -> ! {
    Error::new(Code::ERRCODE_SUCCESSFUL_COMPLETION, "the hooks of other libraries let a COPY pass").raise()
}
