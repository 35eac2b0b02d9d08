//! Rights to relations. They are stored in the range table entry up to 15, and in RTEPermissionInfo from 16 on.

use std::ffi::CStr;

use pgrx::pg_sys::{self, NodeTag};

use crate::server::call::calls;
use crate::server::column_set::ColumnSet;
use crate::server::lookup::ForeignServer;
use crate::server::node::make::node;
use crate::server::node::{Node, NodeList};
use crate::server::relation::Relation;

// SAFETY: a variable of this process, lookups in the catalogs, and a name that is copied.
calls! {
    fn current_user() -> pg_sys::Oid = GetUserId();
    #[cfg(feature = "pg15")]
    fn is_owner(relid: pg_sys::Oid, role: pg_sys::Oid) -> bool = pg_class_ownercheck(relid, role);
    #[cfg(not(feature = "pg15"))]
    fn is_owner(relid: pg_sys::Oid, role: pg_sys::Oid) -> bool
        = object_ownercheck((pg_sys::RelationRelationId), relid, role);
    /// Raises the server's error about a right on an object with this name. Guarded.
    pub fn refuse(answer: pg_sys::AclResult::Type, kind: pg_sys::ObjectType::Type, name: Option<&CStr>)
        = aclcheck_error(answer, kind, name);
}

/// The server's answer whether a role has a privilege on an object of a catalog (`object_aclcheck`). Guarded.
fn access(catalog: pg_sys::Oid, object: pg_sys::Oid, role: pg_sys::Oid, privilege: u32) -> pg_sys::AclResult::Type {
    let mode = pg_sys::AclMode::from(privilege);
    // SAFETY: guarded catalog lookups.
    unsafe {
        #[cfg(feature = "pg15")]
        return match catalog {
            pg_sys::DatabaseRelationId => pg_sys::pg_database_aclcheck(object, role, mode),
            pg_sys::ForeignServerRelationId => pg_sys::pg_foreign_server_aclcheck(object, role, mode),
            pg_sys::NamespaceRelationId => pg_sys::pg_namespace_aclcheck(object, role, mode),
            pg_sys::ProcedureRelationId => pg_sys::pg_proc_aclcheck(object, role, mode),
            _ => pg_sys::AclResult::ACLCHECK_NO_PRIV,
        };
        #[cfg(not(feature = "pg15"))]
        return pg_sys::object_aclcheck(catalog, object, role, mode);
    }
}

/// Whether the current user is the owner of the relation or has the owner's privileges. Guarded.
pub fn owns_relation(relid: pg_sys::Oid) -> bool {
    is_owner(relid, current_user())
}

/// Whether a role may connect to a database. Guarded.
pub fn may_connect(database: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    access(pg_sys::DatabaseRelationId, database, role, pg_sys::ACL_CONNECT) == pg_sys::AclResult::ACLCHECK_OK
}

/// Raises an error unless the role has USAGE on a foreign server. Guarded.
pub fn check_server_usage(server: pg_sys::Oid, role: pg_sys::Oid) {
    let result = access(pg_sys::ForeignServerRelationId, server, role, pg_sys::ACL_USAGE);
    if result != pg_sys::AclResult::ACLCHECK_OK {
        refuse(result, pg_sys::ObjectType::OBJECT_FOREIGN_SERVER, Some(&ForeignServer::find(server).name));
    }
}

/// Whether the current user has USAGE on the schema. Guarded.
pub fn may_use_schema(schema: pg_sys::Oid) -> bool {
    access(pg_sys::NamespaceRelationId, schema, current_user(), pg_sys::ACL_USAGE) == pg_sys::AclResult::ACLCHECK_OK
}

/// Whether the current user may call the function. Guarded.
pub fn may_execute(function: pg_sys::Oid) -> pg_sys::AclResult::Type {
    access(pg_sys::ProcedureRelationId, function, current_user(), pg_sys::ACL_EXECUTE)
}

/// The struct that has the rights to a relation.
#[cfg(feature = "pg15")]
type Entry = pg_sys::RangeTblEntry;
#[cfg(not(feature = "pg15"))]
type Entry = pg_sys::RTEPermissionInfo;

/// # Safety
/// An item that the parser has made with its entry.
unsafe fn entry_of<'a>(item: *const pg_sys::ParseNamespaceItem) -> &'a mut Entry {
    // SAFETY: the item has an entry, which nothing else uses meanwhile.
    unsafe {
        #[cfg(feature = "pg15")]
        return &mut *(*item).p_rte;
        #[cfg(not(feature = "pg15"))]
        return &mut *(*item).p_perminfo;
    }
}

/// Returns the rights that an expression over a relation requires, from its range table entry.
///
/// # Safety
/// A valid entry.
pub unsafe fn wanted_rights(item: *const pg_sys::ParseNamespaceItem) -> Rights {
    // SAFETY: the parser has made the item with its entry, which has a set.
    unsafe {
        let entry = entry_of(item);
        Rights {
            selects: entry.requiredPerms & pg_sys::AclMode::from(pg_sys::ACL_SELECT) != 0,
            selected: ColumnSet::from_raw(entry.selectedCols),
        }
    }
}

/// Makes the entry require INSERT only, as DoCopy (copy.c) does before it transforms the WHERE clause: a new entry
/// requires SELECT.
///
/// # Safety
/// A valid entry. Raises nothing.
pub unsafe fn want_insert(item: *const pg_sys::ParseNamespaceItem) {
    // SAFETY: the parser has made the item with its entry.
    unsafe { entry_of(item) }.requiredPerms = pg_sys::AclMode::from(pg_sys::ACL_INSERT);
}

/// Makes a plan insert into these columns of a relation without the right to.
///
/// # Safety
/// A plan that has no other user. Raises nothing.
pub unsafe fn forgo_insert_rights(plan: *mut pg_sys::PlannedStmt, relid: pg_sys::Oid, columns: ColumnSet) {
    use crate::server::unguarded::bms_del_members;

    // SAFETY: the planner has made the list; all nodes of the list have one type.
    unsafe {
        #[cfg(feature = "pg15")]
        let (list, insert) = ((*plan).rtable, pg_sys::ACL_INSERT);
        #[cfg(not(feature = "pg15"))]
        let (list, insert) = ((*plan).permInfos, u64::from(pg_sys::ACL_INSERT));
        let Some(list) = list.as_ref() else { return };
        for i in 0..usize::try_from(list.length).unwrap_or(0) {
            let entry = (*list.elements.add(i)).ptr_value.cast::<Entry>();
            if (*entry).relid == relid && (*entry).requiredPerms & insert != 0 {
                (*entry).insertedCols = bms_del_members((*entry).insertedCols, columns.as_ptr());
            }
        }
    }
}

/// Marks the columns that a COPY names, or all columns, as inserted in its only range table entry, as DoCopy (copy.c)
/// does.
///
/// # Safety
/// A plain frame; the state of a COPY with such an entry, and its relation.
pub unsafe fn insert_into(state: *mut pg_sys::ParseState, relation: pg_sys::Relation, names: *mut pg_sys::List) {
    use crate::server::unguarded::{CopyGetAttnums, bms_add_member};

    // SAFETY: the parser has made the state with one entry; the list holds integers.
    unsafe {
        #[cfg(feature = "pg15")]
        let list = (*state).p_rtable;
        #[cfg(not(feature = "pg15"))]
        let list = (*state).p_rteperminfos;
        let entry = (*(*list).elements).ptr_value.cast::<Entry>();
        (*entry).requiredPerms |= pg_sys::AclMode::from(pg_sys::ACL_INSERT);
        let Some(numbers) = CopyGetAttnums((*relation).rd_att, relation, names).as_ref() else { return };
        for i in 0..usize::try_from(numbers.length).unwrap_or(0) {
            let number = (*numbers.elements.add(i)).int_value - pg_sys::FirstLowInvalidHeapAttributeNumber;
            (*entry).insertedCols = bms_add_member((*entry).insertedCols, number);
        }
    }
}

/// Rights to read a relation.
#[derive(Debug, Clone, Copy)]
pub struct Rights {
    pub selects: bool,
    pub selected: ColumnSet,
}

/// Range table entries, and from 16 on the rights that they require.
type RangeTable = (NodeList<'static, pg_sys::RangeTblEntry>, NodeList<'static>);

/// A range table with one relation that is the target of an INSERT into these columns. Guarded.
fn range_table(relation: Relation<'_>, inserted: ColumnSet, rights: Rights) -> RangeTable {
    let mut required = pg_sys::AclMode::from(pg_sys::ACL_INSERT);
    if rights.selects {
        required |= pg_sys::AclMode::from(pg_sys::ACL_SELECT);
    }
    let entry = pg_sys::RangeTblEntry {
        type_: NodeTag::T_RangeTblEntry,
        rtekind: pg_sys::RTEKind::RTE_RELATION,
        relid: relation.oid(),
        relkind: relation.kind().cast_signed(),
        rellockmode: pg_sys::RowExclusiveLock.cast_signed(),
        #[cfg(feature = "pg15")]
        requiredPerms: required,
        #[cfg(feature = "pg15")]
        insertedCols: inserted.as_ptr(),
        #[cfg(feature = "pg15")]
        selectedCols: rights.selected.as_ptr(),
        #[cfg(not(feature = "pg15"))]
        perminfoindex: 1,
        ..Default::default()
    };
    #[cfg(feature = "pg15")]
    let infos = NodeList::EMPTY;
    #[cfg(not(feature = "pg15"))]
    let infos = {
        let info = pg_sys::RTEPermissionInfo {
            type_: NodeTag::T_RTEPermissionInfo,
            relid: relation.oid(),
            requiredPerms: required,
            insertedCols: inserted.as_ptr(),
            selectedCols: rights.selected.as_ptr(),
            ..Default::default()
        };
        // SAFETY: the fields of such a node.
        [unsafe { node(info) }.node()].into_iter().collect()
    };
    // SAFETY: the fields of an entry.
    ([unsafe { node(entry) }].into_iter().collect(), infos)
}

// SAFETY: range tables that are made here, and an executor state, which keeps them.
calls! {
    #[cfg(feature = "pg15")]
    fn check(table: RangeTable) -> bool = ExecCheckRTPerms((table.0), true);
    #[cfg(not(feature = "pg15"))]
    fn check(table: RangeTable) -> bool = ExecCheckPermissions((table.0), (table.1), true);
    #[cfg(feature = "pg15")]
    fn keep(estate: Node<'_, pg_sys::EState>, table: RangeTable) = ExecInitRangeTable(estate, (table.0));
    #[cfg(any(feature = "pg16", feature = "pg17"))]
    fn keep(estate: Node<'_, pg_sys::EState>, table: RangeTable) = ExecInitRangeTable(estate, (table.0), (table.1));
    #[cfg(feature = "pg18")]
    fn keep(estate: Node<'_, pg_sys::EState>, table: RangeTable)
        = ExecInitRangeTable(estate, (table.0), (table.1), (pg_sys::bms_make_singleton(1)));
}

/// Raises an error unless the current user may INSERT into these columns and has `rights`. A hook may keep the sets. Guarded.
pub fn check_insert_rights(relation: Relation<'_>, inserted: ColumnSet, rights: Rights) {
    check(range_table(relation, inserted, rights));
}

/// `ExecInitRangeTable` for one relation that is the target of an INSERT (DoCopy). Guarded.
///
/// # Safety
/// The state has no range table yet: the one that it gets replaces the arrays of relations.
pub unsafe fn init_range_table(estate: Node<'_, pg_sys::EState>, relation: Relation<'_>, inserted: &[i16]) {
    let rights = Rights { selects: false, selected: ColumnSet::EMPTY };
    keep(estate, range_table(relation, inserted.iter().copied().collect(), rights));
}

#[cfg(any(feature = "pg15", feature = "pg16"))]
unsafe extern "C-unwind" {
    /// guc.c. In parallel mode, only with an action that a nest level reverts.
    fn set_config_option(
        name: *const std::ffi::c_char,
        value: *const std::ffi::c_char,
        context: pg_sys::GucContext::Type,
        source: pg_sys::GucSource::Type,
        action: pg_sys::GucAction::Type,
        changes: bool,
        level: std::ffi::c_int,
        is_reload: bool,
    ) -> std::ffi::c_int;
}

/// Restricts the search path to safe schemas until a nest level of settings ends, before code of `owner` runs for
/// `user`. From 17 on, maintenance commands do this (`RestrictSearchPath`). In older versions only owners run
/// maintenance commands, with search paths of their own. A load may be run by another user. With that user's search
/// path, the owner's code could call that user's functions, with the owner's rights.
///
/// # Safety
/// A plain frame in a nest level of its own.
pub unsafe fn restrict_search_path(user: pg_sys::Oid, owner: pg_sys::Oid) {
    use crate::server::unguarded as c;
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    let _ = (user, owner);
    // SAFETY: the frame is plain; the setting ends with the nest level.
    unsafe {
        #[cfg(any(feature = "pg17", feature = "pg18"))]
        c::RestrictSearchPath();
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        if !c::has_privs_of_role(user, owner) {
            set_config_option(
                c"search_path".as_ptr(),
                c"pg_catalog, pg_temp".as_ptr(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            );
        }
    }
}
