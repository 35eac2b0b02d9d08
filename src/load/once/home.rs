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

use pgrx::pg_sys;

use super::{
    CLUSTER, DATABASE, HOME, LoadedTable, MADE_BY, OWNER, OWNER_NAME, TABLE, TABLE_COLUMNS, TARGET, TARGET_NAME,
    number, oid, text, value,
};
use crate::error::Result;
use crate::server::database::{cluster, database};
use crate::server::lock::{Mode, ObjectLock, Until};
use crate::server::own_table::{OwnTable, made_by};
use crate::server::role::owner_here;

/// The current transaction's id, as a value. Guarded.
pub fn transaction() -> pg_sys::Datum {
    // SAFETY: a guarded call.
    pg_sys::Datum::from(unsafe { pg_sys::GetCurrentTransactionId() }.into_inner())
}

/// Is a row of this table at home?
///
/// # Safety
/// A row and its values.
pub unsafe fn is_home(records: &OwnTable, row: pg_sys::HeapTuple, values: &[pg_sys::Datum]) -> bool {
    // SAFETY: this function's contract covers the row.
    let by = unsafe { made_by(row) }.into_inner();
    oid(values, DATABASE) == database()
        && oid(values, HOME) == records.oid()
        && value(values, MADE_BY).value() as u32 == by
}

/// Takes home the copied rows of this table's name, or of all. Guarded; allocates in the current memory context.
pub fn take_home(schema: pg_sys::Oid, table: Option<&LoadedTable>) -> Result<()> {
    // SAFETY: rows and their values.
    let is_copy = |records: &OwnTable, row, values: &[pg_sys::Datum]| unsafe {
        !is_home(records, row, values) && table.is_none_or(|table| text(values, TARGET_NAME) == table.name)
    };
    let records = OwnTable::to_read(schema, TABLE, TABLE_COLUMNS)?;
    let mut found = false;
    records.for_each(|row, values, _| found = found || is_copy(&records, row, values));
    records.close();
    if !found {
        return Ok(());
    }
    let records = OwnTable::to_write(schema, TABLE, TABLE_COLUMNS)?;
    // Other sessions wait until this is done, and then find no copied rows.
    ObjectLock::new(records.oid(), 0, 0).take(Mode::Exclusive, Until::TransactionEnd);
    let mut copies = Vec::new();
    records.for_each(|row, values, _| {
        if is_copy(&records, row, values) {
            // SAFETY: a valid row; a guarded call.
            copies.push(unsafe { ((*row).t_self, pg_sys::heap_copytuple(row)) });
        }
    });
    for (at, row) in copies {
        pgrx::check_for_interrupts!();
        // SAFETY: a row of the table that was copied here, whose columns are never null; guarded calls.
        unsafe {
            let removed = records.remove(std::slice::from_ref(&at));
            let mut values = records.values(row);
            let target = table.map_or_else(|| named(&values), |table| table.oid);
            if removed == 1 && target != pg_sys::InvalidOid {
                let owner = owner_here(oid(&values, OWNER), &text(&values, OWNER_NAME), number(&values, CLUSTER));
                let mut set = |column: usize, datum| {
                    if let Some(value) = values.get_mut(column) {
                        *value = datum;
                    }
                };
                set(TARGET, target.into());
                set(DATABASE, database().into());
                set(HOME, records.oid().into());
                set(MADE_BY, transaction());
                // A role that does not exist yet is recorded by its name only.
                if owner != pg_sys::InvalidOid {
                    set(OWNER, owner.into());
                    set(CLUSTER, pg_sys::Datum::from(cluster()));
                }
                records.insert(&values.into_iter().map(Some).collect::<Vec<_>>());
            }
            pg_sys::heap_freetuple(row);
        }
    }
    records.close();
    // SAFETY: a guarded call. A later removal of these rows must see them.
    unsafe { pg_sys::CommandCounterIncrement() };
    Ok(())
}

/// The table that a row names. Guarded.
///
/// # Safety
/// The values of a row.
unsafe fn named(values: &[pg_sys::Datum]) -> pg_sys::Oid {
    // SAFETY: this function's contract covers the values; guarded calls. A name in a row is schema and table, quoted.
    unsafe {
        let names = pg_sys::textToQualifiedNameList(value(values, TARGET_NAME).cast_mut_ptr());
        let table = pg_sys::makeRangeVarFromNameList(names);
        if (*table).schemaname.is_null() {
            return pg_sys::InvalidOid;
        }
        let schema = pg_sys::get_namespace_oid((*table).schemaname, true);
        pg_sys::get_relname_relid((*table).relname, schema)
    }
}
