//! The statement that a client has sent, as against what its functions run.
//!
//! The tricky point: what holds a lock to the end of the transaction may take one that keeps readers out only if that end
//! is near. Whether there is a transaction block, core knows (`IsInTransactionBlock`, xact.c); but a function or a DO block
//! may do more afterwards, and whoever runs in the executor is not told by whom it was called. The active portal tells: that
//! of a client's message has no name, and only clients can make such a one. What SPI runs is not among its statements, or
//! is run in a cursor, a portal that has a name. So have those of EXECUTE, in functions or not.

use pgrx::pg_sys;

/// Does the transaction end with this statement? True only of one that a client has sent alone and outside of a
/// transaction block, or that EXPLAIN runs for such a client: an INSERT into this table. Does not raise.
///
/// # Safety
/// The statement that is being executed.
pub unsafe fn is_alone(statement: *mut pg_sys::PlannedStmt, target: pg_sys::Oid) -> bool {
    // SAFETY: calls that only look; a portal that is active is valid, and so are its statements.
    unsafe {
        // The first statement of a pipeline looks as if it were alone, to core, too.
        let is_pipeline = pg_sys::MyXactFlags.cast_unsigned() & pg_sys::XACT_FLAGS_PIPELINING != 0;
        if is_pipeline || pg_sys::IsTransactionBlock() || pg_sys::GetCurrentTransactionNestLevel() != 1 {
            return false;
        }
        let Some(portal) = pg_sys::ActivePortal.as_ref() else { return false };
        if portal.name.is_null() || *portal.name != 0 {
            return false;
        }
        let Some(statements) = portal.stmts.as_ref().filter(|list| list.length == 1) else { return false };
        let sent = (*statements.elements).ptr_value.cast::<pg_sys::PlannedStmt>();
        sent == statement || explains(sent, target)
    }
}

/// Is it an EXPLAIN of an INSERT into this table?
///
/// # Safety
/// A valid statement.
unsafe fn explains(sent: *mut pg_sys::PlannedStmt, target: pg_sys::Oid) -> bool {
    // SAFETY: the caller vouches for the statement; tags say what nodes are, and an analyzed INSERT has its target in its
    // range table.
    unsafe {
        let utility = (*sent).utilityStmt;
        if utility.is_null() || (*utility).type_ != pg_sys::NodeTag::T_ExplainStmt {
            return false;
        }
        let query = (*utility.cast::<pg_sys::ExplainStmt>()).query;
        if query.is_null() || (*query).type_ != pg_sys::NodeTag::T_Query {
            return false;
        }
        let query = &*query.cast::<pg_sys::Query>();
        let Ok(place) = usize::try_from(query.resultRelation - 1) else { return false };
        query.commandType == pg_sys::CmdType::CMD_INSERT
            && query.rtable.as_ref().is_some_and(|tables| {
                usize::try_from(tables.length).is_ok_and(|length| place < length)
                    && (*(*tables.elements.add(place)).ptr_value.cast::<pg_sys::RangeTblEntry>()).relid == target
            })
    }
}
