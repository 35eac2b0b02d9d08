//! The eligibility check of a target: may the direct writer store its rows? The input is an open relation, the output
//! one sentence for each reason against.
//!
//! The direct writer does the work of heap_insert, of the index access methods and of AFTER triggers. The executor
//! handles everything that comes before or replaces storing a row: rules, policies, BEFORE triggers, access methods
//! other than heap, foreign tables. Leaf relations of a partitioned table are checked one by one, since rows are
//! written there. Rules, policies and transition tables of a leaf relation do not apply to rows that come through its
//! parent.
//!
//! The direct writer evaluates conditions (WHEN) of triggers after the last row, so their results must not depend on the
//! time.

use pgrx::pg_sys;

use super::duplicate::Keep;
use super::engine;
use super::options::LoadOptions;
use crate::heap::append::Traits;
use crate::program::volatile;
use crate::rows::type_parts::TypeParts;
use crate::server::call::variables;
use crate::server::lock::{try_lock_relation, unlock_relation};
use crate::server::lookup::{CatalogRow, access_method_name, operator_function, type_entry, type_kind, volatility};
use crate::server::node::Node;
use crate::server::relation::{OpenRelation, Relation};
use crate::server::role::has_policies;
use crate::server::server_text::from_server;

/// All reasons against the direct writer for a table, one sentence each. Locks its leaf relations. Guarded.
pub fn of_target(relation: Relation<'_>, keep: Keep) -> Vec<String> {
    let mut found = of_named(relation, keep);
    if relation.is_partitioned() {
        of_leaves(relation, keep, &mut found);
    }
    found
}

/// Reasons against the direct writer of the relation itself, without its leaf relations. Guarded.
pub fn of_named(relation: Relation<'_>, keep: Keep) -> Vec<String> {
    let mut found = Vec::new();
    let name = relation.name_text();
    if has_policies(relation.oid()) {
        found.push(format!("Row-level security applies to table \"{name}\"."));
    }
    if has_rule(relation, pg_sys::CmdType::CMD_INSERT) {
        found.push(format!("Relation \"{name}\" has rules on INSERT."));
    }
    if keep == Keep::New {
        if has_rule(relation, pg_sys::CmdType::CMD_UPDATE) {
            found.push(format!("Relation \"{name}\" has rules on UPDATE."));
        }
        let is_for_all = |trigger: &pg_sys::Trigger| {
            !trigger.tgnewtable.is_null() || !trigger.tgoldtable.is_null() || trigger.tgtype.cast_unsigned() & ROW == 0
        };
        if has_trigger(relation, UPDATE, is_for_all) {
            found.push(format!("Table \"{name}\" has an UPDATE trigger for statements."));
        }
    }
    if has_trigger(relation, INSERT, |trigger| !trigger.tgnewtable.is_null()) {
        found.push(format!("Table \"{name}\" has an INSERT trigger with a transition table."));
    }
    if replication_origin() != pg_sys::InvalidRepOriginId as pg_sys::RepOriginId {
        found.push("The session has a replication origin.".into());
    }
    if relation.is_partitioned() {
        of_conditions(relation, keep, &mut found);
        volatile::of_partition_key(relation, &mut found);
        found.extend(engine::owner_of(relation).map(|owned| owned.obstacle(&name)));
    } else {
        of_storage(relation, keep, &mut found);
    }
    volatile::of_bound(relation, &mut found);
    found
}

/// The reasons of all descendants, each of which is locked before it is opened. Guarded.
fn of_leaves(root: Relation<'_>, keep: Keep, found: &mut Vec<String>) {
    for leaf in root.with_descendants(pg_sys::RowExclusiveLock).into_iter().filter(|&leaf| leaf != root.oid()) {
        let leaf = OpenRelation::locked(leaf);
        if leaf.get().is_partitioned() {
            volatile::of_partition_key(leaf.get(), found);
        } else {
            of_storage(leaf.get(), keep, found);
        }
    }
}

/// Reasons against the direct writer of the leaf relations after the BEFORE statement triggers. Since the first check,
/// another session may have attached a partition, as its lock does not conflict with the load's, or a trigger may have
/// changed one. Guarded.
pub fn of_open_leaves(leaves: &[Relation<'_>], options: &LoadOptions) -> Vec<String> {
    let mut found = Vec::new();
    leaves.iter().for_each(|&leaf| of_storage(leaf, options.duplicates.keep, &mut found));
    found
}

/// Reasons of leaf relations, without waiting for a lock that only some rows would need. That another session has
/// locked a leaf relation is a reason, too. Returns the leaf relations that this function has locked. If it has found a
/// reason, it releases all of them. Guarded.
pub fn of_free_leaves(root: Relation<'_>, found: &mut Vec<String>) -> Vec<pg_sys::Oid> {
    let mut locked = Vec::new();
    if !root.is_partitioned() {
        return locked;
    }
    for leaf in root.with_descendants(pg_sys::NoLock).into_iter().filter(|&leaf| leaf != root.oid()) {
        if !try_lock_relation(leaf, pg_sys::RowExclusiveLock) {
            found.push("Another session holds a lock on a partition.".into());
            break;
        }
        locked.push(leaf);
        // None if the leaf is gone since the catalog was read (find_inheritance_children, pg_inherits.c).
        if let Some(leaf) = OpenRelation::find(leaf, pg_sys::NoLock) {
            let relation = leaf.get();
            if relation.is_partitioned() {
                volatile::of_partition_key(relation, found);
            } else if let Some(indexes) = lock_indexes(relation) {
                of_storage(relation, Keep::Error, found);
                unlock_indexes(&indexes);
            } else {
                found.push("Another session holds a lock on an index of a partition.".into());
            }
        }
        if !found.is_empty() {
            break;
        }
    }
    if !found.is_empty() {
        release(&std::mem::take(&mut locked));
    }
    locked
}

/// Locks the indexes of a leaf, which the checks open. ALTER INDEX … SET TABLESPACE locks an index and not its table. None, and no
/// lock, if this function would wait. Guarded.
fn lock_indexes(relation: Relation<'_>) -> Option<Vec<pg_sys::Oid>> {
    let mut locked = Vec::new();
    for index in relation.indexes() {
        if !try_lock_relation(index, pg_sys::AccessShareLock) {
            unlock_indexes(&locked);
            return None;
        }
        locked.push(index);
    }
    Some(locked)
}

fn unlock_indexes(locked: &[pg_sys::Oid]) {
    locked.iter().for_each(|&index| unlock_relation(index, pg_sys::AccessShareLock));
}

/// Releases the locks that [`of_free_leaves`] has taken. A lock that the transaction held before stays. Guarded.
pub fn release(locked: &[pg_sys::Oid]) {
    locked.iter().for_each(|&leaf| unlock_relation(leaf, pg_sys::RowExclusiveLock));
}

/// Conditions (WHEN) of row triggers that call a function that is not both built in and immutable, or read the session
/// or system columns. COPY evaluates them as it inserts each row, the direct writer after the last row. Such a
/// condition could see the difference, or change rows that are still to come. Guarded.
fn of_conditions(relation: Relation<'_>, keep: Keep, found: &mut Vec<String>) {
    let is_other = |trigger: &pg_sys::Trigger| {
        let is_conditional = trigger.tgtype.cast_unsigned() & ROW != 0 && !trigger.tgqual.is_null();
        // SAFETY: a guarded call with an expression of the catalog.
        let condition = || unsafe { Node::from_raw(pg_sys::stringToNode(trigger.tgqual).cast()) };
        is_conditional && condition().is_some_and(is_time_dependent)
    };
    if has_trigger(relation, events_of(keep), is_other) {
        let name = relation.name_text();
        let why = "calls a function that is not built in and immutable";
        found.push(format!("The condition of a trigger of table \"{name}\" {why}."));
    }
}

/// A reason against the direct writer that a function of the load has created on a partition before its first row.
/// Guarded.
pub fn of_late_leaf(relation: Relation<'_>) -> Option<String> {
    let mut found = Vec::new();
    of_storage(relation, Keep::Error, &mut found);
    found.into_iter().next()
}

/// Reasons against the direct writer of a relation that rows are written to. Guarded.
fn of_storage(relation: Relation<'_>, keep: Keep, found: &mut Vec<String>) {
    let name = relation.name_text();
    match relation.kind() {
        pg_sys::RELKIND_RELATION => (),
        pg_sys::RELKIND_VIEW => found.push(format!("\"{name}\" is a view.")),
        pg_sys::RELKIND_FOREIGN_TABLE => found.push(format!("\"{name}\" is a foreign table.")),
        _ => found.push(format!("\"{name}\" is not a table.")),
    }
    let method = relation.access_method();
    if method != pg_sys::InvalidOid && method != pg_sys::HEAP_TABLE_AM_OID {
        found.push(format!("Table \"{name}\" has the access method \"{}\".", method_name(method)));
    }
    if let Some(owned) = engine::owner_of(relation) {
        found.push(owned.obstacle(&name));
    }
    if relation.is_system() {
        found.push(format!("Table \"{name}\" is a system catalog."));
    } else if is_user_catalog(relation) {
        found.push(format!("Table \"{name}\" has the storage parameter user_catalog_table."));
    }
    // TRIGGER_TYPE_AFTER is neither BEFORE nor INSTEAD.
    let is_known = |trigger: &pg_sys::Trigger| {
        let kind = trigger.tgtype.cast_unsigned();
        kind & !ALL_BITS == 0 && kind & INSTEAD == 0 && (kind & ROW == 0 || kind & BEFORE == 0)
    };
    if has_trigger(relation, events_of(keep), |trigger| !is_known(trigger)) {
        found.push(format!("Table \"{name}\" has BEFORE or INSTEAD OF row triggers."));
    }
    of_index_methods(relation, &name, found);
    if keep == Keep::New {
        // Replacing a row is an update. If a publication has updates of the table, the table needs a replica identity.
        relation.check_replica_identity(pg_sys::CmdType::CMD_UPDATE);
    }
    if keep != Keep::Error && Traits::of(relation).logical {
        // A duplicate is inserted and deleted again. A subscriber would fail at the insertion.
        found.push(format!("Changes of table \"{name}\" are decoded for logical replication."));
    }
    of_conditions(relation, keep, found);
    volatile::of_constraints(relation, found);
    volatile::of_computed(relation, found);
}

variables! {
    fn replication_origin() -> pg_sys::RepOriginId = replorigin_session_origin;
}

/// The name of an access method. Guarded.
fn method_name(method: pg_sys::Oid) -> String {
    access_method_name(method).map_or_else(|| "?".into(), |name| from_server(&name))
}

/// Indexes of a relation whose access method is not one of the server's own. Such a method may do anything with a new
/// row. Guarded.
fn of_index_methods(relation: Relation<'_>, name: &str, found: &mut Vec<String>) {
    let known = [
        pg_sys::BTREE_AM_OID,
        pg_sys::HASH_AM_OID,
        pg_sys::GIST_AM_OID,
        pg_sys::GIN_AM_OID,
        pg_sys::BRIN_AM_OID,
        pg_sys::SPGIST_AM_OID,
    ];
    for index in relation.indexes() {
        let Some(method) = CatalogRow::<pg_sys::FormData_pg_class>::find(index).map(|row| row.relam) else { continue };
        if !known.contains(&method) {
            let method = method_name(method);
            found.push(format!("An index of table \"{name}\" has the access method \"{method}\"."));
        }
    }
}

/// All bits that a trigger's type has (pg_trigger.h).
const ALL_BITS: u16 = ROW
    | BEFORE
    | INSTEAD
    | INSERT
    | UPDATE
    | pg_sys::TRIGGER_TYPE_DELETE as u16
    | pg_sys::TRIGGER_TYPE_TRUNCATE as u16;

/// A trigger or a rule that never fires (TRIGGER_DISABLED, RULE_DISABLED).
const DISABLED: u8 = b'D';
const ROW: u16 = pg_sys::TRIGGER_TYPE_ROW as u16;
const BEFORE: u16 = pg_sys::TRIGGER_TYPE_BEFORE as u16;
const INSTEAD: u16 = pg_sys::TRIGGER_TYPE_INSTEAD as u16;
const INSERT: u16 = pg_sys::TRIGGER_TYPE_INSERT as u16;
const UPDATE: u16 = pg_sys::TRIGGER_TYPE_UPDATE as u16;

/// The events that happen to rows of a load.
fn events_of(keep: Keep) -> u16 {
    if keep == Keep::New { INSERT | UPDATE } else { INSERT }
}

/// Whether an enabled BEFORE statement trigger on INSERT exists.
pub fn has_before_statement(relation: Relation<'_>) -> bool {
    has_trigger(relation, INSERT, |trigger| {
        let kind = trigger.tgtype.cast_unsigned();
        kind & ROW == 0 && kind & BEFORE != 0
    })
}

/// Whether an enabled trigger on this event passes the test.
fn has_trigger(relation: Relation<'_>, event: u16, like: impl Fn(&pg_sys::Trigger) -> bool) -> bool {
    // SAFETY: an open relation, whose trigger descriptor has `numtriggers` triggers. It does not change under the lock.
    unsafe {
        let Some(descriptor) = (*relation.as_ptr()).trigdesc.as_ref() else { return false };
        let len = usize::try_from(descriptor.numtriggers).unwrap_or(0);
        (0..len).any(|i| {
            let trigger = &*descriptor.triggers.add(i);
            let enabled = trigger.tgenabled.cast_unsigned() != DISABLED;
            enabled && trigger.tgtype.cast_unsigned() & event != 0 && like(trigger)
        })
    }
}

/// Whether an enabled rule on this event exists.
fn has_rule(relation: Relation<'_>, event: pg_sys::CmdType::Type) -> bool {
    // SAFETY: an open relation's rules, or null.
    unsafe {
        let Some(rules) = (*relation.as_ptr()).rd_rules.as_ref() else { return false };
        let len = usize::try_from(rules.numLocks).unwrap_or(0);
        (0..len).any(|i| {
            let rule = &**rules.rules.add(i);
            rule.event == event && rule.enabled.cast_unsigned() != DISABLED
        })
    }
}

/// `RelationIsUsedAsCatalogTable` (rel.h).
fn is_user_catalog(relation: Relation<'_>) -> bool {
    // SAFETY: an open relation; the options of an ordinary table are StdRdOptions, or null.
    let options = unsafe { (*relation.as_ptr()).rd_options.cast::<pg_sys::StdRdOptions>().as_ref() };
    relation.kind() == pg_sys::RELKIND_RELATION && options.is_some_and(|options| options.user_catalog_table)
}

/// PROVOLATILE_IMMUTABLE (pg_proc.h)
const IMMUTABLE: u8 = b'i';

/// Whether an expression calls a function that is not both built in and immutable, reads the session (`current_user`),
/// or reads a system column other than tableoid. Comparing a row, an array or a range calls the comparison functions of
/// its elements. Guarded.
fn is_time_dependent(expression: Node<'_>) -> bool {
    expression.any(|node| looks_around(node) || node.calls(is_not_built_in))
}

fn looks_around(node: Node<'_>) -> bool {
    use pg_sys::NodeTag::*;
    if let Some(var) = node.as_a::<pg_sys::Var>() {
        let attribute = i32::from(var.varattno);
        return attribute < 0 && attribute != pg_sys::TableOidAttributeNumber
            || !is_compared_by_server(node.type_oid());
    }
    match node.tag() {
        T_CoerceToDomain | T_SQLValueFunction | T_NextValueExpr => true,
        T_Const | T_Param | T_RowExpr | T_ArrayExpr | T_MinMaxExpr => !is_compared_by_server(node.type_oid()),
        _ => false,
    }
}

/// Are values of a type, and those that they are made of, compared by built-in functions? Guarded.
fn is_compared_by_server(type_oid: pg_sys::Oid) -> bool {
    const WANTED: u32 = pg_sys::TYPECACHE_EQ_OPR | pg_sys::TYPECACHE_CMP_PROC;
    match TypeParts::of(type_oid) {
        TypeParts::Composite(columns) => columns.into_iter().all(is_compared_by_server),
        TypeParts::Domain(part)
        | TypeParts::Range { subtype: part, .. }
        | TypeParts::Multirange(part)
        | TypeParts::Array(part) => is_compared_by_server(part),
        // Any row at all.
        TypeParts::Single if type_kind(type_oid) == pg_sys::TYPTYPE_PSEUDO => false,
        TypeParts::Single => {
            let entry = type_entry(type_oid, WANTED);
            [operator_function(entry.eq_opr), entry.cmp_proc]
                .into_iter()
                .all(|function| function.to_u32() < pg_sys::FirstUnpinnedObjectId)
        }
    }
}

fn is_not_built_in(function: pg_sys::Oid) -> bool {
    function.to_u32() >= pg_sys::FirstUnpinnedObjectId || volatility(function) != IMMUTABLE
}
