//! Rows that came with a copy of a database, and what they mean in it.
//!
//! A dump that is restored, here or elsewhere, and a database that has another one as its template bring along what was loaded, as it should
//! be: the tables are there, with their rows. But numbers of tables mean nothing there, and names will mean other tables some day. So what
//! was copied is taken home once, by name, before anything is found in it: rows are of the tables that have these names now.
//!
//! **Who is at home?** A row that is where it was put: in this database, in this table, by the transaction that the row has as its own.
//! pg_upgrade keeps all of these, with the tables' numbers, though the cluster is a new one; VACUUM does, too, whatever it freezes. Whoever writes a row anew, from a
//! dump or otherwise, is another transaction. The numbers of database and table alone would not do: in clusters that are made the same way they are
//! the same.

use pgrx::pg_sys;

use super::{
    CLUSTER, DATABASE, HOME, MADE_BY, OWNER, OWNER_NAME, TABLE, TABLE_COLUMNS, TARGET, TARGET_NAME, Table, number, oid,
    text, value,
};
use crate::error::Result;
use crate::pg::database::{cluster, database};
use crate::pg::lock::{Mode, ObjectLock, Until};
use crate::pg::own_table::{OwnTable, made_by};
use crate::pg::role::owner_here;

/// The transaction that makes a row now, as a value. Guarded.
pub fn transaction() -> pg_sys::Datum {
    // SAFETY: a guarded call.
    pg_sys::Datum::from(unsafe { pg_sys::GetCurrentTransactionId() }.into_inner())
}

/// Is a row of this table where it was put?
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

/// Take home the rows that were copied and have the name of this table, or any. Guarded; allocates in the current memory context.
pub fn take_home(schema: pg_sys::Oid, table: Option<&Table>) -> Result<()> {
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
    // Others wait until it is done, and find nothing then.
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
                // A role that is not there yet is known by its name.
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
    // SAFETY: a guarded call. Who removes some of these rows next must see them.
    unsafe { pg_sys::CommandCounterIncrement() };
    Ok(())
}

/// The table that has the name that a row tells. Guarded.
///
/// # Safety
/// The values of a row.
unsafe fn named(values: &[pg_sys::Datum]) -> pg_sys::Oid {
    // SAFETY: this function's contract covers the values; guarded calls. A name that we have written is schema and table.
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
