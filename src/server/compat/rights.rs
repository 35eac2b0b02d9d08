//! Rights to relations. They are stored in the range table entry up to 15, and in RTEPermissionInfo from 16 on.

use pgrx::pg_sys;

use crate::server::call::calls;
use crate::server::column_set::ColumnSet;
use crate::server::relation::Relation;

// SAFETY: reads a variable of this process.
calls! {
    fn current_user() -> pg_sys::Oid = GetUserId();
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
    // SAFETY: a guarded catalog lookup.
    unsafe {
        #[cfg(feature = "pg15")]
        return pg_sys::pg_class_ownercheck(relid, current_user());
        #[cfg(not(feature = "pg15"))]
        return pg_sys::object_ownercheck(pg_sys::RelationRelationId, relid, current_user());
    }
}

/// Whether a role may connect to a database. Guarded.
pub fn may_connect(database: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    access(pg_sys::DatabaseRelationId, database, role, pg_sys::ACL_CONNECT) == pg_sys::AclResult::ACLCHECK_OK
}

/// Raises an error unless the role has USAGE on a foreign server. Guarded.
pub fn check_server_usage(server: pg_sys::Oid, role: pg_sys::Oid) {
    let result = access(pg_sys::ForeignServerRelationId, server, role, pg_sys::ACL_USAGE);
    if result != pg_sys::AclResult::ACLCHECK_OK {
        // SAFETY: guarded calls; a foreign server has a name.
        unsafe {
            let name = (*pg_sys::GetForeignServer(server)).servername;
            pg_sys::aclcheck_error(result, pg_sys::ObjectType::OBJECT_FOREIGN_SERVER, name);
        }
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

/// Raises an error unless the current user may INSERT into these columns and has `rights`. A hook may keep the sets. Guarded.
pub fn check_insert_rights(relation: Relation<'_>, inserted: ColumnSet, rights: Rights) {
    use pg_sys::NodeTag::T_RangeTblEntry;
    use pgrx::{AllocatedByRust, PgBox, PgList};

    let mut wanted = pg_sys::AclMode::from(pg_sys::ACL_INSERT);
    if rights.selects {
        wanted |= pg_sys::AclMode::from(pg_sys::ACL_SELECT);
    }
    // SAFETY: guarded calls; each node has the type of its tag.
    unsafe {
        let mut entry = PgBox::<pg_sys::RangeTblEntry, AllocatedByRust>::alloc_node(T_RangeTblEntry);
        entry.rtekind = pg_sys::RTEKind::RTE_RELATION;
        entry.relid = relation.oid();
        entry.relkind = relation.kind().cast_signed();
        entry.rellockmode = pg_sys::RowExclusiveLock.cast_signed();
        let mut table = PgList::<pg_sys::RangeTblEntry>::new();
        #[cfg(feature = "pg15")]
        {
            entry.requiredPerms = wanted;
            entry.insertedCols = inserted.as_ptr();
            entry.selectedCols = rights.selected.as_ptr();
            table.push(entry.into_pg());
            pg_sys::ExecCheckRTPerms(table.into_pg(), true);
        }
        #[cfg(not(feature = "pg15"))]
        {
            use pg_sys::NodeTag::T_RTEPermissionInfo;
            entry.perminfoindex = 1;
            let mut info = PgBox::<pg_sys::RTEPermissionInfo, AllocatedByRust>::alloc_node(T_RTEPermissionInfo);
            info.relid = entry.relid;
            info.requiredPerms = wanted;
            info.insertedCols = inserted.as_ptr();
            info.selectedCols = rights.selected.as_ptr();
            table.push(entry.into_pg());
            let mut infos = PgList::<pg_sys::RTEPermissionInfo>::new();
            infos.push(info.into_pg());
            pg_sys::ExecCheckPermissions(table.into_pg(), infos.into_pg(), true);
        }
    }
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
            c::set_config_option(
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
