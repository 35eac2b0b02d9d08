//! Rows of loaded files that came with a copy of a database.
//!
//! A restored dump, and a database made from another as its template, include these rows. That is right, since the
//! tables are there with their data. But the OIDs in the rows mean nothing in the copy, and the names may later belong
//! to other tables. So before the first look-up, rows that were copied are taken home, by name: they get the OIDs of
//! the tables that have these names now.
//!
//! **Home.** A row is at home if it is where it was written: in this database, in this table, by the transaction that
//! the row records. pg_upgrade keeps all of these, and the tables' OIDs, although the cluster is a new one. VACUUM
//! keeps them, even when it freezes. A row that is written again, from a dump or otherwise, has another transaction.
//! The OIDs of database and table are not enough: clusters that are set up the same way have the same OIDs.

use std::ffi::CStr;

use pgrx::pg_sys;

use super::{
    CLUSTER, DATABASE, HOME, LoadedTable, MADE_BY, OWNER, OWNER_NAME, TABLE, TABLE_COLUMNS, TARGET, TARGET_NAME,
};
use crate::error::Result;
use crate::server::database::{cluster, database};
use crate::server::lock::{Mode, ObjectLock, Until};
use crate::server::lookup::relation_named;
use crate::server::own_table::{OwnTable, Row};
use crate::server::role::owner_here;
use crate::server::sql_value::SqlValue;
use crate::server::statement::next_command;

/// The current transaction's id. Guarded.
pub fn transaction() -> pg_sys::TransactionId {
    // SAFETY: a guarded call.
    unsafe { pg_sys::GetCurrentTransactionId() }
}

/// Is a row of this table at home?
pub fn is_home(records: &OwnTable, row: Row) -> bool {
    row.oid(DATABASE) == database()
        && row.oid(HOME) == records.oid()
        && row.number(MADE_BY) as u32 == row.made_by().into_inner()
}

/// Takes home the copied rows of this table's name, or of all. Guarded.
pub fn take_home(schema: pg_sys::Oid, table: Option<&LoadedTable>) -> Result<()> {
    let is_copy = |records: &OwnTable, row: Row| {
        !is_home(records, row) && table.is_none_or(|table| row.value(TARGET_NAME).into_text() == table.name)
    };
    let records = OwnTable::to_read(schema, TABLE, TABLE_COLUMNS)?;
    let found = records.find(None, 1, |row| is_copy(&records, row));
    drop(records);
    if found.is_empty() {
        return Ok(());
    }
    let records = OwnTable::to_write(schema, TABLE, TABLE_COLUMNS)?;
    // Other sessions wait until this is done, and then find no copied rows.
    ObjectLock::new(records.oid(), 0, 0).take(Mode::Exclusive, Until::TransactionEnd);
    let mut copies = Vec::new();
    records.for_each(None, |row| {
        if is_copy(&records, row) {
            let owner = owner_here(row.oid(OWNER), &row.value(OWNER_NAME).into_text(), row.number(CLUSTER));
            copies.push((row.tid(), owner, row.all()));
        }
    });
    for (at, owner, mut values) in copies {
        pgrx::check_for_interrupts!();
        let removed = records.remove(std::slice::from_ref(&at));
        let name = values.get(TARGET_NAME).cloned().unwrap_or_else(|| SqlValue::null(pg_sys::TEXTOID)).into_text();
        let target = table.map_or_else(|| named(&name), |table| table.oid);
        if removed == 1 && target != pg_sys::InvalidOid {
            let mut set = |column: usize, new: SqlValue<'static>| {
                if let Some(value) = values.get_mut(column) {
                    *value = new;
                }
            };
            set(TARGET, SqlValue::oid(target));
            set(DATABASE, SqlValue::oid(database()));
            set(HOME, SqlValue::oid(records.oid()));
            set(MADE_BY, SqlValue::xid(transaction()));
            // A role that does not exist yet is recorded by its name only.
            if owner != pg_sys::InvalidOid {
                set(OWNER, SqlValue::oid(owner));
                set(CLUSTER, SqlValue::bigint(cluster()));
            }
            records.insert(&values)?;
        }
    }
    // A later removal of these rows must see them.
    next_command();
    Ok(())
}

/// The table with this name, which is schema and table, quoted. Guarded.
fn named(name: &CStr) -> pg_sys::Oid {
    // SAFETY: guarded calls with a text, which return a list of names, and a range variable with strings.
    let (schema, table) = unsafe {
        let names = pg_sys::textToQualifiedNameList(pg_sys::cstring_to_text(name.as_ptr()));
        let table = pg_sys::makeRangeVarFromNameList(names);
        if (*table).schemaname.is_null() {
            return pg_sys::InvalidOid;
        }
        (pg_sys::get_namespace_oid((*table).schemaname, true), CStr::from_ptr((*table).relname).to_owned())
    };
    relation_named(&table, schema)
}
