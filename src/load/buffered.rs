//! The buffered writer: the server inserts the file's rows by an ordinary INSERT.
//!
//! ```text
//!   INSERT INTO t (a, b) OVERRIDING SYSTEM VALUE
//!   SELECT f.a, f.b FROM bulk_rows(NULL::t, $1) f
//! ```
//!
//! So the server applies rules, policies, triggers, views, foreign tables, routing to partitions, defaults, identity
//! and generated columns as for every INSERT. `bulk_rows`, which the planner makes a [`scan`](super::scan), returns the
//! rows one by one. `$1` is a random token. It says which of the loads in this backend is meant, since a trigger may
//! start another one. It also keeps a call from elsewhere from taking rows out of a load.
//!
//! The list has only the columns that the file has fields for; the server evaluates the defaults of the others. COPY
//! evaluates defaults before its WHERE. So with a `where` clause the feed evaluates them first, and the INSERT stores
//! these values. OVERRIDING SYSTEM VALUE makes INSERT accept values for identity columns as COPY does. With
//! `on_duplicate = keep_old` the statement ends in ON CONFLICT … DO NOTHING.
//!
//! The caller ([`super`]) pushes COPY's error context. It adds a line to errors of conversions, and also to errors of
//! constraints and row triggers, which are about the row that was returned last. Before the first row and after the
//! last one it adds nothing, as in COPY: errors of statement triggers and AFTER triggers are not about a record.

use std::ffi::{CString, c_char};

use pgrx::pg_sys;

use super::Load;
use super::duplicate::conflict_clause;
use super::feed::Feed;
use super::rejects::Spool;
use crate::error::OrRaise;
use crate::rows::row::pump::{Policy, Pump};
use crate::rows::soft::OnError;
use crate::server::column_set::ColumnSet;
use crate::server::lookup::{function_named, qualified, quoted, schema_name};
use crate::server::relation::name_of;
use crate::server::statement::{self, About, Checked, Surroundings};
use crate::server::unguarded::guarded;

/// Loads through an INSERT.
///
/// # Safety
/// A plain frame; a load whose rows are open. Its memory context is current.
pub unsafe fn load(load: *mut Load) {
    // SAFETY: this function's contract covers the load; feed and statement live as long as its memory context.
    unsafe {
        let feed = guarded(|| Feed::of_load(load).or_raise());
        let defaults = Checked { relid: (*load).target.relid, inserted: guarded(|| set_by_defaults(&*feed)) };
        let about = About::Rows {
            table: (*load).target.relid,
            function: guarded(|| {
                function_named(c"bulk_rows", &[pg_sys::ANYELEMENTOID, pg_sys::INT8OID], (*load).request.schema)
            }),
        };
        let processed =
            statement::run(guarded(|| insert(&*load, &*feed)), (*feed).token, about, defaults, Surroundings::NONE);
        guarded(|| end(&mut *load, &mut *feed, processed));
    }
}

/// The columns that the feed sets to defaults: as in COPY, these need no privilege. Guarded.
fn set_by_defaults(feed: &Feed) -> ColumnSet {
    feed.defaults.iter().filter_map(|(attribute, _)| i16::try_from(attribute + 1).ok()).collect()
}

/// The statement, in the current memory context. Guarded.
fn insert(load: &Load, feed: &Feed) -> *const c_char {
    let attributes = load.mapping.attributes().filter_map(|attnum| usize::try_from(attnum - 1).ok());
    let attributes = attributes.chain(feed.defaults.iter().map(|(attribute, _)| *attribute));
    let descriptor = load.target.relation().or_raise().descriptor();
    let (mut list, mut values) = (Vec::new(), Vec::new());
    for attribute in attributes {
        let name = descriptor.attribute(attribute).map_or_else(CString::default, |form| quoted(name_of(form)));
        let separator: &[u8] = if list.is_empty() { b"" } else { b", " };
        list.extend([separator, name.to_bytes()].concat());
        values.extend([separator, b"f.", name.to_bytes()].concat());
    }
    let list = if list.is_empty() { Vec::new() } else { [b" (", list.as_slice(), b")"].concat() };
    let function = qualified(&schema_name(load.request.schema).unwrap_or_default(), c"bulk_rows");
    let clause = load.arbiter.map_or(Vec::new(), |arbiter| conflict_clause(arbiter).or_raise());
    let table = load.target.name.as_bytes();
    let statement = [
        b"INSERT INTO ",
        table,
        list.as_slice(),
        b" OVERRIDING SYSTEM VALUE SELECT ",
        values.as_slice(),
        b" FROM ",
        function.to_bytes(),
        b"(NULL::",
        table,
        b", $1) f",
        &clause,
    ]
    .concat();
    let statement = CString::new(statement).unwrap_or_default();
    // SAFETY: a guarded call that copies the string.
    unsafe { pg_sys::pstrdup(statement.as_ptr()) }
}

/// Counts stored, duplicate and filtered rows.
///
/// # Safety
/// A feed whose statement has ended, and its load. Guarded.
unsafe fn end(load: &mut Load, feed: &mut Feed, processed: u64) {
    // SAFETY: the statement's state is the feed's own, and is not used any more.
    unsafe {
        // A spool lives as long as its load at least.
        let Pump { policy: Policy { tolerance, .. }, sink } = &feed.pump;
        tolerance.report(load.spool.as_ref().and_then(Spool::view_of));
        if let Some(rows) = &load.rows {
            let notices = rows.ragged_notices(&rows.ragged);
            load.measures.counts.notes.extend(notices.iter().map(|notice| notice.message().to_owned()));
        }
        pg_sys::ExecDropSingleTupleTableSlot(feed.slot.as_ptr());
        pg_sys::FreeExecutorState((*sink.econtext.as_ptr()).ecxt_estate);
        let left_out = feed.given.saturating_sub(processed);
        // The statement does not distinguish rows left out by ON CONFLICT from those left out by a trigger.
        let (duplicate, left_out) = if load.arbiter.is_some() { (left_out, 0) } else { (0, left_out) };
        load.measures.counts.duplicate = duplicate;
        if left_out > 0 {
            let rows = if left_out == 1 { "1 row was".to_owned() } else { format!("{left_out} rows were") };
            let note = format!("{rows} left out by triggers or rules of \"{}\".", load.target.display_name());
            load.measures.counts.notes.push(note);
        }
        if tolerance.on_error != OnError::SetNull {
            load.measures.counts.rejected = tolerance.bad_rows;
        }
        load.measures.counts.filtered = sink.filtered + left_out;
        load.measures.counts.loaded = processed;
        if let (Some(files), Some(stored)) = (&load.measures.files, feed.stored(processed)) {
            files.split_rows(stored, processed, load.arbiter.is_some());
        }
    }
}
