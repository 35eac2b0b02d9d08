//! The eligibility check of COPY: can the direct writer replace core's COPY?
//!
//! A negative answer is a sentence, for a DEBUG1 message.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use pgrx::pg_sys;

use crate::guc;
use crate::input::source::is_allowed;
use crate::load::options::LoadOptions;
use crate::load::{direct, duplicate::Keep, obstacle, planned_insert};
use crate::program::mapping::Mapping;
use crate::program::volatile;
use crate::rows::column::default_expression;
use crate::server::database::{is_read_only, is_upgrade};
use crate::server::expression::Expression;
use crate::server::node::{Node, NodeList};
use crate::server::relation::Relation;
use crate::server::role::has_privileges_of;
use crate::takeover::insert_select::eligibility::expression::takes_ids;
use crate::takeover::insert_select::eligibility::{Answer, Sequences, no};

/// Checks of a COPY FROM made before the table is opened. `watched`: another library's hook would miss the statement.
/// Guarded.
pub fn of_statement(statement: Node<'_, pg_sys::CopyStmt>, watched: bool) -> Answer<()> {
    if watched {
        return no("A library that was loaded earlier has a hook on statements.");
    }
    if statement.table().is_none() || !statement.query.is_null() {
        return no("The statement has no target table.");
    }
    let role =
        if statement.is_program { pg_sys::ROLE_PG_EXECUTE_SERVER_PROGRAM } else { pg_sys::ROLE_PG_READ_SERVER_FILES };
    if is_read_only() {
        return no("The transaction is read-only.");
    }
    if is_upgrade() {
        return no("The cluster is being upgraded.");
    }
    let Some(file) = statement.file() else {
        // SAFETY: a variable of this process.
        let has_client = unsafe { pg_sys::whereToSendOutput } == pg_sys::CommandDest::DestRemote;
        return if has_client { Ok(()) } else { no("The session has no client.") };
    };
    if !has_privileges_of(role.into()) {
        return no("The current user lacks the privilege to read the file or to run the program.");
    }
    if statement.is_program {
        return Ok(());
    }
    let path = Path::new(OsStr::from_bytes(file.to_bytes()));
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() < guc::copy_min_size() as u64 => {
            no("The file is smaller than pg_bulk.copy_min_size.")
        }
        // The FIFO is not opened at all: its writer would get a reader that disappears.
        Ok(meta) if meta.file_type().is_fifo() && !is_allowed(path) => {
            no("The file is not below an allowed directory.")
        }
        Ok(meta) if meta.is_file() || meta.file_type().is_fifo() => Ok(()),
        _ => no("The file does not exist, or is neither a regular file nor a FIFO."),
    }
}

/// Checks of the table itself. They need no rights, and evaluate no user code. Guarded.
pub fn of_table(relation: Relation<'_>, options: &LoadOptions) -> Answer<()> {
    if relation.kind() != pg_sys::RELKIND_RELATION && !relation.is_partitioned() {
        return no("The target is not a table.");
    }
    if relation.is_other_temporary() {
        return no("The table is a temporary table of another session.");
    }
    let mut found = obstacle::of_named(relation, Keep::Error);
    if obstacle::has_before_statement(relation) {
        // The trigger may change settings that affect how fields are read.
        found.push("The table has a BEFORE statement trigger.".into());
    }
    if found.is_empty() {
        found.extend(planned_insert::obstacle(relation));
    }
    if found.is_empty() && options.table.freeze && direct::check_freeze(relation).is_err() {
        found.push("The table does not meet the conditions of FREEZE.".into());
    }
    found.into_iter().next().map_or(Ok(()), Err)
}

/// Checks of the rows that go into the table. Returns the leaves that it has locked. Guarded.
pub fn of_rows(
    relation: Relation<'_>,
    options: &LoadOptions,
    conditions: NodeList<'_>,
    mapping: &Mapping,
) -> Answer<Vec<pg_sys::Oid>> {
    // A field may request its column's default.
    let set = options.copy.dialect.default.is_none().then_some(mapping);
    let mut found = volatile::obstacles(relation, set, conditions);
    if conditions.node().is_some_and(takes_ids) {
        found.push("The condition calls nextval.".into());
    }
    if share_sequence(relation, mapping) {
        found.push("Two columns take their defaults from the same sequence.".into());
    }
    // A negative answer needs no further locks.
    let locked = if found.is_empty() { obstacle::of_free_leaves(relation, &mut found) } else { Vec::new() };
    found.into_iter().next().map_or(Ok(locked), Err)
}

/// Do several columns take ids from one sequence? Guarded.
fn share_sequence(relation: Relation<'_>, mapping: &Mapping) -> bool {
    let mut sequences = Sequences::default();
    for (index, attribute) in relation.descriptor().attributes().enumerate() {
        // Identity columns have no default in the catalog.
        let has_default = attribute.atthasdef || attribute.attidentity != 0;
        let is_set = mapping.attributes().any(|attnum| attnum == attribute.attnum);
        if is_set || !has_default || attribute.attisdropped || attribute.attgenerated != 0 {
            continue;
        }
        if let Some(expression) = default_expression(relation, index).and_then(Expression::node) {
            sequences.add(expression);
        }
    }
    sequences.are_shared()
}
