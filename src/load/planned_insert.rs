//! The server's plan of an INSERT into a table: the last eligibility check of the direct writer.
//!
//! Another library may change the plan of an INSERT: it may send the rows to other tables, or to other servers. The
//! catalogs need not show that. So if other libraries have planner hooks, this module asks the planner. It plans the
//! INSERT that the buffered writer would run:
//!
//! ```text
//!   INSERT INTO t (a, b) OVERRIDING SYSTEM VALUE SELECT f.a, f.b FROM function_of_rows_of_t f
//! ```
//!
//! The function is one of the server's with the signature of `bulk_rows`, so no privilege on the extension's schema is
//! needed. The direct writer replaces exactly this plan: ModifyTable on top, with the table as its only result
//! relation, and a scan of the function.
//!
//! The hooks of this library do nothing meanwhile. The planner runs in a subtransaction, so its error becomes an
//! answer. The server would raise that error for its own INSERT too, and does when the buffered writer runs it.
//!
//! An answer is cached for a relation, a role, the setting `row_security` and the hooks, until the relation is
//! invalidated. If there are no hooks except this library's, the answer is known without planning.

use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pgrx::pg_sys;

use crate::server::attempt::in_subtransaction;
use crate::server::database::{is_in_parallel_mode, row_security};
use crate::server::lookup::{qualified_name, quoted};
use crate::server::memory_context::MemoryContext;
use crate::server::node::{Node, NodeList};
use crate::server::relation::{Relation, name_of};
use crate::server::role::current_user;
use crate::server::server_text::{copied, from_server};
use crate::server::unguarded as c;

/// How the server inserts into a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// As the server plans it without other libraries.
    Plain,
    /// With another plan, or not at all. A sentence.
    Other(String),
}

/// The addresses of this library's hooks, if no other library had one before; else a number that equals no hook.
pub static OUR_PATHLIST_HOOK: AtomicUsize = AtomicUsize::new(usize::MAX);
pub static OUR_UPPER_PATHS_HOOK: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The hooks that can change a plan, as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hooks([usize; 6]);

impl Hooks {
    fn now() -> Hooks {
        let number = |hook: Option<*const ()>| hook.map_or(0, |hook| hook as usize);
        // SAFETY: variables of this process, which has one thread.
        unsafe {
            Hooks([
                number(pg_sys::post_parse_analyze_hook.map(|hook| hook as *const ())),
                number(pg_sys::planner_hook.map(|hook| hook as *const ())),
                number(pg_sys::get_relation_info_hook.map(|hook| hook as *const ())),
                number(pg_sys::set_rel_pathlist_hook.map(|hook| hook as *const ())),
                number(pg_sys::set_join_pathlist_hook.map(|hook| hook as *const ())),
                number(pg_sys::create_upper_paths_hook.map(|hook| hook as *const ())),
            ])
        }
    }

    /// Do all hooks belong to this library?
    fn are_ours(self) -> bool {
        self == Hooks([0, 0, 0, OUR_PATHLIST_HOOK.load(Relaxed), 0, OUR_UPPER_PATHS_HOOK.load(Relaxed)])
    }
}

/// A cached answer, and the state that it depends on.
#[derive(Debug)]
struct Kept {
    relid: pg_sys::Oid,
    role: pg_sys::Oid,
    row_security: bool,
    hooks: Hooks,
    answer: Answer,
}

/// Most cached answers. The oldest one is dropped first.
const MOST: usize = 64;

static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

/// Counts invalidations: an answer is not cached if the counter moved during planning.
static INVALIDATIONS: AtomicU64 = AtomicU64::new(0);

/// The planner is being asked.
static ASKING: AtomicBool = AtomicBool::new(false);

/// Must this library's own hooks do nothing?
pub fn is_asking() -> bool {
    ASKING.load(Relaxed)
}

/// Called once, when the library is loaded. Guarded.
pub fn init() {
    // SAFETY: a guarded call; the function is never unloaded.
    unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(forget), pg_sys::Datum::from(0usize)) }
}

/// The cache. No server function is called under this mutex, so it is never poisoned.
fn kept() -> MutexGuard<'static, Vec<Kept>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called by the server, when a relation has changed, or all may have changed.
extern "C-unwind" fn forget(_: pg_sys::Datum, relid: pg_sys::Oid) {
    INVALIDATIONS.fetch_add(1, Relaxed);
    kept().retain(|kept| relid != pg_sys::InvalidOid && kept.relid != relid);
}

/// Reason why the direct writer cannot replace the server's INSERT into a relation that is locked for it; None if it can.
/// Guarded.
pub fn obstacle(relation: Relation<'_>) -> Option<String> {
    match answer(relation) {
        Answer::Plain => None,
        Answer::Other(why) => Some(why),
    }
}

/// How the server would insert. Guarded.
pub fn answer(relation: Relation<'_>) -> Answer {
    let hooks = Hooks::now();
    if hooks.are_ours() {
        return Answer::Plain;
    }
    let relid = relation.oid();
    let (role, row_security, is_parallel) = (current_user(), row_security(), is_in_parallel_mode());
    let is_it = |kept: &&Kept| {
        kept.relid == relid && kept.role == role && kept.row_security == row_security && kept.hooks == hooks
    };
    if let Some(kept) = kept().iter().find(is_it) {
        return kept.answer.clone();
    }
    if is_parallel {
        return Answer::Other("The planner cannot be asked in parallel mode.".into());
    }
    let before = INVALIDATIONS.load(Relaxed);
    let answer = ask(relation);
    if INVALIDATIONS.load(Relaxed) == before {
        // Analyzing the statement may have loaded a library.
        let hooks = Hooks::now();
        let mut kept = kept();
        if kept.len() >= MOST {
            kept.remove(0);
        }
        kept.push(Kept { relid, role, row_security, hooks, answer: answer.clone() });
    }
    answer
}

/// Asks the planner. Guarded.
fn ask(relation: Relation<'_>) -> Answer {
    let text = statement(relation);
    let name = relation.name_text();
    let memory = MemoryContext::current().child(c"planned INSERT");
    let entered = memory.enter();
    let (mut queries, mut planned) = (NodeList::EMPTY, None);
    let was_asking = ASKING.swap(true, Relaxed);
    // SAFETY: a guarded frame in a transaction, and not in parallel mode; the body owns nothing.
    let error = unsafe { in_subtransaction(|| (queries, planned) = plan(text.as_ptr())).as_ref() };
    ASKING.store(was_asking, Relaxed);
    let answer = match error {
        Some(error) => {
            // SAFETY: an error's message is a string, or null.
            let message = unsafe { copied(error.message) }.unwrap_or_default();
            Answer::Other(format!("The server cannot plan an INSERT into \"{name}\": {}.", from_server(&message)))
        }
        None => difference(queries, planned, relation.oid(), &name).map_or(Answer::Plain, Answer::Other),
    };
    drop(entered);
    // SAFETY: the answer has copies, and nothing else uses the plan.
    unsafe { memory.delete() };
    answer
}

/// The INSERT, with each column that may be set. Guarded.
fn statement(relation: Relation<'_>) -> CString {
    let table = qualified_name(relation.oid()).unwrap_or_default();
    let attributes = relation.descriptor().attributes().filter(|one| !one.attisdropped && one.attgenerated == 0);
    insert_from(&table, attributes, b"pg_catalog.json_populate_recordset", b"NULL::pg_catalog.json", b"")
}

/// An INSERT of all rows of a function, whose first argument is NULL of the table's row type. `end` is its last clause.
/// Guarded.
pub fn insert_from<'a>(
    table: &CStr,
    attributes: impl Iterator<Item = &'a pg_sys::FormData_pg_attribute>,
    function: &[u8],
    argument: &[u8],
    end: &[u8],
) -> CString {
    let names: Vec<CString> = attributes.map(|attribute| quoted(name_of(attribute))).collect();
    let list = |before: &[u8]| {
        let names: Vec<Vec<u8>> = names.iter().map(|name| [before, name.to_bytes()].concat()).collect();
        names.join(b", ".as_slice())
    };
    let columns = if names.is_empty() { Vec::new() } else { [b" (", &*list(b""), b")"].concat() };
    let (table, values) = (table.to_bytes(), list(b"f."));
    let (select, from) = (b" OVERRIDING SYSTEM VALUE SELECT ", b" FROM ");
    let parts: [&[u8]; 13] = [
        b"INSERT INTO ", table, &columns, select, &values, from, function, b"(NULL::", table, b", ", argument, b") f",
        end,
    ];
    CString::new(parts.concat()).unwrap_or_default()
}

/// Analyzes, rewrites and plans the first statement of a text. Returns its queries, and the plan if there is one query. They are
/// in the current memory context.
///
/// # Safety
/// A plain frame in a subtransaction; a string that outlives the result.
unsafe fn plan<'a>(text: *const c_char) -> (NodeList<'a, pg_sys::Query>, Option<Node<'a, pg_sys::PlannedStmt>>) {
    // SAFETY: a plain frame, in which nothing has a destructor; the text is a string.
    unsafe {
        c::PushActiveSnapshot(c::GetTransactionSnapshot());
        let parsed =
            NodeList::<pg_sys::RawStmt>::from_raw(c::raw_parser(text, pg_sys::RawParseMode::RAW_PARSE_DEFAULT));
        let Some(raw) = parsed.first() else {
            c::PopActiveSnapshot();
            return (NodeList::EMPTY, None);
        };
        let query = c::parse_analyze_fixedparams(raw.as_ptr(), text, std::ptr::null(), 0, std::ptr::null_mut());
        // The statement does not run, so pg_stat_statements must not count it.
        (*query).queryId = 0;
        let list = c::pg_rewrite_query(query);
        let queries = NodeList::from_raw(list);
        let plans = match queries.len() {
            1 => NodeList::from_raw(c::pg_plan_queries(list, text, 0, std::ptr::null_mut())),
            _ => NodeList::EMPTY,
        };
        c::PopActiveSnapshot();
        (queries, plans.first())
    }
}

/// The difference of a planned INSERT from the plan of a plain one, if there is one.
fn difference(
    queries: NodeList<'_, pg_sys::Query>,
    plan: Option<Node<'_, pg_sys::PlannedStmt>>,
    relid: pg_sys::Oid,
    name: &str,
) -> Option<String> {
    let Some(query) = queries.get(0).filter(|_| queries.len() == 1) else {
        return Some(format!("The server makes {} queries of an INSERT into \"{name}\".", queries.len()));
    };
    let unexpected = Some(format!("The server's query for an INSERT into \"{name}\" is not a plain INSERT."));
    let is_plain = query.commandType == pg_sys::CmdType::CMD_INSERT
        && query.withCheckOptions.is_null()
        && query.returningList.is_null()
        && query.onConflict.is_null();
    let Some(plan) = plan.filter(|_| is_plain) else { return unexpected };
    if let Some(why) = foreign_node(plan.plan(), name) {
        return Some(why);
    }
    let modify = plan.plan().and_then(|node| node.as_a::<pg_sys::ModifyTable>());
    let Some(modify) = modify.filter(|_| plan.subplans.is_null()) else {
        return unexpected;
    };
    let target = modify.targets().iter().next().filter(|_| modify.targets().len() == 1);
    let entry = target.and_then(|target| plan.rtable().get(usize::try_from(target - 1).ok()?));
    let is_plain = entry.is_some_and(|entry| entry.relid == relid)
        && modify.operation == pg_sys::CmdType::CMD_INSERT
        && modify.onConflictAction == pg_sys::OnConflictAction::ONCONFLICT_NONE
        && modify.withCheckOptionLists.is_null()
        && modify.returningLists.is_null()
        && modify.rowMarks.is_null();
    if is_plain { None } else { unexpected }
}

/// The topmost node that does not belong to a plain INSERT of a function's rows.
fn foreign_node(plan: Option<Node<'_, pg_sys::Plan>>, name: &str) -> Option<String> {
    let plan = plan?;
    if let Some(scan) = plan.as_a::<pg_sys::CustomScan>() {
        // SAFETY: a custom scan has methods with a name, or null.
        let own = unsafe { scan.methods.as_ref().map_or(c"?", |methods| CStr::from_ptr(methods.CustomName)) };
        let library = library_of(scan.methods.cast());
        return Some(format!(
            "INSERTs into \"{name}\" are planned by the library \"{library}\", with its node \"{}\".",
            from_server(own)
        ));
    }
    match plan.tag() {
        pg_sys::NodeTag::T_ModifyTable | pg_sys::NodeTag::T_Result | pg_sys::NodeTag::T_FunctionScan => {
            foreign_node(plan.lefttree(), name).or_else(|| foreign_node(plan.righttree(), name))
        }
        _ => Some(format!("The server's plan for an INSERT into \"{name}\" has an unknown node.")),
    }
}

/// The name of the library that contains an address, without directories and extension.
fn library_of(address: *const libc::c_void) -> String {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: looks the address up among loaded libraries; the name lives as long as its library.
    let path = unsafe {
        if libc::dladdr(address, found.as_mut_ptr()) == 0 || found.assume_init().dli_fname.is_null() {
            return "?".into();
        }
        from_server(CStr::from_ptr(found.assume_init().dli_fname))
    };
    let file = path.rsplit('/').next().unwrap_or_default();
    file.strip_suffix(".so").unwrap_or(file).into()
}
