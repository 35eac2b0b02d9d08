//! The eligibility check of a target: may the direct writer store its rows? The input is an open relation, the output
//! one sentence for each reason against.
//!
//! The direct writer does the work of heap_insert, of the index access methods and of AFTER triggers. The executor
//! handles everything that comes before or replaces storing a row: rules, policies, BEFORE triggers, access methods
//! other than heap, foreign tables. Leaf relations of a partitioned table are checked one by one, since rows are
//! written there. Rules, policies and transition tables of a leaf relation do not apply to rows that come through its
//! parent.

use std::ffi::CStr;

use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{PgList, pg_sys};

use super::duplicate::Keep;
use super::options::LoadOptions;
use super::{engine, trigger_condition};
use crate::pg::append::Traits;
use crate::pg::server_text::from_server;
use crate::pg::unguarded::find_all_inheritors;
use crate::program::volatile;

/// All reasons against the direct writer for a table, one sentence each. Locks its leaf relations. Guarded.
///
/// # Safety
/// An open relation.
pub unsafe fn of_target(relation: pg_sys::Relation, keep: Keep) -> Vec<String> {
    // SAFETY: passed on.
    unsafe {
        let mut found = of_named(relation, keep);
        if (*(*relation).rd_rel).relkind.cast_unsigned() == pg_sys::RELKIND_PARTITIONED_TABLE {
            of_leaves((*relation).rd_id, keep, &mut found);
        }
        found
    }
}

/// Reasons against the direct writer of the relation itself, without its leaf relations. Guarded.
///
/// # Safety
/// An open relation.
pub unsafe fn of_named(relation: pg_sys::Relation, keep: Keep) -> Vec<String> {
    let mut found = Vec::new();
    // SAFETY: this function's contract covers the relation; guarded calls; an open relation has these structures.
    unsafe {
        let name = name_of(relation);
        let form = (*relation).rd_rel;
        if pg_sys::check_enable_rls((*relation).rd_id, pg_sys::InvalidOid, true)
            == pg_sys::CheckEnableRlsResult::RLS_ENABLED.cast_signed()
        {
            found.push(format!("Row-level security applies to table \"{name}\"."));
        }
        if has_rule((*relation).rd_rules, pg_sys::CmdType::CMD_INSERT) {
            found.push(format!("Relation \"{name}\" has rules on INSERT."));
        }
        if keep == Keep::New {
            if has_rule((*relation).rd_rules, pg_sys::CmdType::CMD_UPDATE) {
                found.push(format!("Relation \"{name}\" has rules on UPDATE."));
            }
            let is_for_all = |trigger: &pg_sys::Trigger| {
                !trigger.tgnewtable.is_null()
                    || !trigger.tgoldtable.is_null()
                    || trigger.tgtype.cast_unsigned() & ROW == 0
            };
            if has_trigger(relation, UPDATE, is_for_all) {
                found.push(format!("Table \"{name}\" has an UPDATE trigger for statements."));
            }
        }
        if has_trigger(relation, INSERT, |trigger| !trigger.tgnewtable.is_null()) {
            found.push(format!("Table \"{name}\" has an INSERT trigger with a transition table."));
        }
        if pg_sys::replorigin_session_origin != pg_sys::InvalidRepOriginId as pg_sys::RepOriginId {
            found.push("The session has a replication origin.".into());
        }
        if (*form).relkind.cast_unsigned() == pg_sys::RELKIND_PARTITIONED_TABLE {
            of_conditions(relation, keep, &mut found);
            volatile::of_partition_key(relation, &mut found);
            found.extend(engine::owner_of(relation).map(|owned| owned.obstacle(&name)));
        } else {
            of_storage(relation, keep, &mut found);
        }
        volatile::of_bound(relation, &mut found);
    }
    found
}

unsafe fn of_leaves(relid: pg_sys::Oid, keep: Keep, found: &mut Vec<String>) {
    let lock = pg_sys::RowExclusiveLock.cast_signed();
    // SAFETY: guarded calls; each relation is locked before it is opened, and the locks are kept.
    unsafe {
        let all = PgList::<pg_sys::Oid>::from_pg(pg_guard_ffi_boundary(|| {
            find_all_inheritors(relid, lock, std::ptr::null_mut())
        }));
        for leaf in all.iter_oid().filter(|&leaf| leaf != relid) {
            let relation = pg_sys::relation_open(leaf, pg_sys::NoLock.cast_signed());
            if (*(*relation).rd_rel).relkind.cast_unsigned() == pg_sys::RELKIND_PARTITIONED_TABLE {
                volatile::of_partition_key(relation, found);
            } else {
                of_storage(relation, keep, found);
            }
            pg_sys::relation_close(relation, pg_sys::NoLock.cast_signed());
        }
    }
}

/// Reasons against the direct writer of the leaf relations after the BEFORE statement triggers. Since the first check,
/// another session may have attached a partition, as its lock does not conflict with the load's, or a trigger may have
/// changed one. Guarded.
///
/// # Safety
/// Open relations that are locked.
pub unsafe fn of_open_leaves(leaves: &[pg_sys::Relation], options: &LoadOptions) -> Vec<String> {
    let mut found = Vec::new();
    for &leaf in leaves {
        // SAFETY: this function's contract covers the argument.
        unsafe {
            of_storage(leaf, options.duplicates.keep, &mut found);
        }
    }
    found
}

/// Reasons of leaf relations, without waiting for a lock that only some rows would need. That another session has
/// locked a leaf relation is a reason, too. Returns the leaf relations that this function has locked. If it has found a
/// reason, it releases all of them. Guarded.
///
/// # Safety
/// An open relation.
pub unsafe fn of_free_leaves(root: pg_sys::Relation, found: &mut Vec<String>) -> Vec<pg_sys::Oid> {
    let (lock, no_lock) = (pg_sys::RowExclusiveLock.cast_signed(), pg_sys::NoLock.cast_signed());
    let mut locked = Vec::new();
    // SAFETY: guarded calls; each relation is locked before it is opened.
    unsafe {
        if (*(*root).rd_rel).relkind.cast_unsigned() != pg_sys::RELKIND_PARTITIONED_TABLE {
            return locked;
        }
        let relid = (*root).rd_id;
        let all = pg_guard_ffi_boundary(|| find_all_inheritors(relid, no_lock, std::ptr::null_mut()));
        for leaf in PgList::<pg_sys::Oid>::from_pg(all).iter_oid().filter(|&leaf| leaf != relid) {
            if !pg_sys::ConditionalLockRelationOid(leaf, lock) {
                found.push("Another session holds a lock on a partition.".into());
                break;
            }
            locked.push(leaf);
            // Null if the leaf is gone since the catalog was read (find_inheritance_children, pg_inherits.c).
            let relation = pg_sys::try_relation_open(leaf, no_lock);
            if !relation.is_null() {
                if (*(*relation).rd_rel).relkind.cast_unsigned() == pg_sys::RELKIND_PARTITIONED_TABLE {
                    volatile::of_partition_key(relation, found);
                } else if let Some(indexes) = lock_indexes(relation) {
                    of_storage(relation, Keep::Error, found);
                    let share = pg_sys::AccessShareLock.cast_signed();
                    indexes.into_iter().for_each(|index| pg_sys::UnlockRelationOid(index, share));
                } else {
                    found.push("Another session holds a lock on an index of a partition.".into());
                }
                pg_sys::relation_close(relation, no_lock);
            }
            if !found.is_empty() {
                break;
            }
        }
    }
    if !found.is_empty() {
        release(&std::mem::take(&mut locked));
    }
    locked
}

/// Locks the indexes of a leaf, which the checks open. ALTER INDEX … SET TABLESPACE locks an index and not its table. None, and no
/// lock, if this function would wait.
///
/// # Safety
/// An open relation. Guarded.
unsafe fn lock_indexes(relation: pg_sys::Relation) -> Option<Vec<pg_sys::Oid>> {
    let share = pg_sys::AccessShareLock.cast_signed();
    let mut locked = Vec::new();
    // SAFETY: this function's contract covers the relation; guarded calls.
    unsafe {
        for index in PgList::<pg_sys::Oid>::from_pg(pg_sys::RelationGetIndexList(relation)).iter_oid() {
            if !pg_sys::ConditionalLockRelationOid(index, share) {
                locked.into_iter().for_each(|index| pg_sys::UnlockRelationOid(index, share));
                return None;
            }
            locked.push(index);
        }
    }
    Some(locked)
}

/// Releases the locks that [`of_free_leaves`] has taken. A lock that the transaction held before stays. Guarded.
pub fn release(locked: &[pg_sys::Oid]) {
    // SAFETY: guarded calls.
    locked.iter().for_each(|&leaf| unsafe { pg_sys::UnlockRelationOid(leaf, pg_sys::RowExclusiveLock.cast_signed()) });
}

/// Conditions (WHEN) of row triggers that call a function that is not both built in and immutable, or read the session
/// or system columns. COPY evaluates them as it inserts each row, the direct writer after the last row. Such a
/// condition could see the difference, or change rows that are still to come.
///
/// # Safety
/// An open relation. Guarded.
unsafe fn of_conditions(relation: pg_sys::Relation, keep: Keep, found: &mut Vec<String>) {
    // SAFETY: this function's contract covers the relation; guarded calls on an expression of the catalog.
    unsafe {
        let is_other = |trigger: &pg_sys::Trigger| {
            let is_row = trigger.tgtype.cast_unsigned() & ROW != 0;
            is_row
                && !trigger.tgqual.is_null()
                && trigger_condition::is_time_dependent(pg_sys::stringToNode(trigger.tgqual).cast())
        };
        if has_trigger(relation, events_of(keep), is_other) {
            let name = name_of(relation);
            let why = "calls a function that is not built in and immutable";
            found.push(format!("The condition of a trigger of table \"{name}\" {why}."));
        }
    }
}

/// A reason against the direct writer that a function of the load has created on a partition before its first row.
/// Guarded.
///
/// # Safety
/// An open relation that is locked.
pub unsafe fn of_late_leaf(relation: pg_sys::Relation) -> Option<String> {
    let mut found = Vec::new();
    // SAFETY: passed on.
    unsafe { of_storage(relation, Keep::Error, &mut found) };
    found.into_iter().next()
}

/// Reasons against the direct writer of a relation that rows are written to.
unsafe fn of_storage(relation: pg_sys::Relation, keep: Keep, found: &mut Vec<String>) {
    // SAFETY: an open relation; guarded calls.
    unsafe {
        let name = name_of(relation);
        let form = (*relation).rd_rel;
        match (*form).relkind.cast_unsigned() {
            pg_sys::RELKIND_RELATION => (),
            pg_sys::RELKIND_VIEW => found.push(format!("\"{name}\" is a view.")),
            pg_sys::RELKIND_FOREIGN_TABLE => found.push(format!("\"{name}\" is a foreign table.")),
            _ => found.push(format!("\"{name}\" is not a table.")),
        }
        let method = (*form).relam;
        if method != pg_sys::InvalidOid && method != pg_sys::HEAP_TABLE_AM_OID {
            let method = pg_sys::get_am_name(method);
            let method = if method.is_null() { "?".into() } else { from_server(CStr::from_ptr(method)) };
            found.push(format!("Table \"{name}\" has the access method \"{method}\"."));
        }
        if let Some(owned) = engine::owner_of(relation) {
            found.push(owned.obstacle(&name));
        }
        if pg_sys::IsSystemRelation(relation) {
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
            // Replacing a row is an update. If a publication has updates of the table, the table needs a replica
            // identity.
            pg_sys::CheckCmdReplicaIdentity(relation, pg_sys::CmdType::CMD_UPDATE);
        }
        if keep != Keep::Error && Traits::of(relation).logical {
            // A duplicate is inserted and deleted again. A subscriber would fail at the insertion.
            found.push(format!("Changes of table \"{name}\" are decoded for logical replication."));
        }
        of_conditions(relation, keep, found);
        volatile::of_constraints(relation, found);
        volatile::of_computed(relation, found);
    }
}

/// Indexes of a relation whose access method is not one of the server's own. Such a method may do anything with a new
/// row.
///
/// # Safety
/// An open relation. Guarded.
unsafe fn of_index_methods(relation: pg_sys::Relation, name: &str, found: &mut Vec<String>) {
    let known = [
        pg_sys::BTREE_AM_OID,
        pg_sys::HASH_AM_OID,
        pg_sys::GIST_AM_OID,
        pg_sys::GIN_AM_OID,
        pg_sys::BRIN_AM_OID,
        pg_sys::SPGIST_AM_OID,
    ];
    // SAFETY: this function's contract covers the relation; guarded catalog lookups; the strings are copied.
    unsafe {
        for index in PgList::<pg_sys::Oid>::from_pg(pg_sys::RelationGetIndexList(relation)).iter_oid() {
            let cache = pg_sys::SysCacheIdentifier::RELOID.cast_signed();
            let tuple = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(index));
            if tuple.is_null() {
                continue;
            }
            let method = (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_class>()).relam;
            pg_sys::ReleaseSysCache(tuple);
            if !known.contains(&method) {
                let method = pg_sys::get_am_name(method);
                let method = if method.is_null() { "?".into() } else { from_server(CStr::from_ptr(method)) };
                found.push(format!("An index of table \"{name}\" has the access method \"{method}\"."));
            }
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
///
/// # Safety
/// An open relation.
pub unsafe fn has_before_statement(relation: pg_sys::Relation) -> bool {
    // SAFETY: this function's contract covers the relation.
    unsafe {
        has_trigger(relation, INSERT, |trigger| {
            let kind = trigger.tgtype.cast_unsigned();
            kind & ROW == 0 && kind & BEFORE != 0
        })
    }
}

/// Whether an enabled trigger on this event passes the test.
unsafe fn has_trigger(relation: pg_sys::Relation, event: u16, like: impl Fn(&pg_sys::Trigger) -> bool) -> bool {
    // SAFETY: an open relation, whose trigger descriptor has `numtriggers` triggers.
    unsafe {
        let Some(descriptor) = (*relation).trigdesc.as_ref() else { return false };
        let len = usize::try_from(descriptor.numtriggers).unwrap_or(0);
        (0..len).any(|i| {
            let trigger = &*descriptor.triggers.add(i);
            let enabled = trigger.tgenabled.cast_unsigned() != DISABLED;
            enabled && trigger.tgtype.cast_unsigned() & event != 0 && like(trigger)
        })
    }
}

unsafe fn has_rule(rules: *const pg_sys::RuleLock, event: pg_sys::CmdType::Type) -> bool {
    // SAFETY: an open relation's rules, or null.
    unsafe {
        let Some(rules) = rules.as_ref() else { return false };
        let len = usize::try_from(rules.numLocks).unwrap_or(0);
        (0..len).any(|i| {
            let rule = &**rules.rules.add(i);
            rule.event == event && rule.enabled.cast_unsigned() != DISABLED
        })
    }
}

/// `RelationIsUsedAsCatalogTable` (rel.h).
unsafe fn is_user_catalog(relation: pg_sys::Relation) -> bool {
    // SAFETY: an open relation; the options of an ordinary table are StdRdOptions.
    unsafe {
        (*(*relation).rd_rel).relkind.cast_unsigned() == pg_sys::RELKIND_RELATION
            && (*relation).rd_options.cast::<pg_sys::StdRdOptions>().as_ref().is_some_and(|o| o.user_catalog_table)
    }
}

unsafe fn name_of(relation: pg_sys::Relation) -> String {
    // SAFETY: an open relation's name.
    from_server(unsafe { CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr()) })
}
