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

use std::ffi::c_char;

use pgrx::pg_sys;

use super::Load;
use super::duplicate::conflict_clause;
use super::feed::Feed;
use super::planned_insert::insert_from;
use super::rejects::Spool;
use crate::error::{OrRaise, Result};
use crate::rows::context::copy_context;
use crate::rows::row::pump::{Policy, Pump};
use crate::rows::soft::OnError;
use crate::server::column_set::ColumnSet;
use crate::server::lookup::{function_named, qualified, schema_name};
use crate::server::statement::{self, About, Checked, Surroundings};
use crate::server::unguarded::{guarded, in_context};

/// Loads through an INSERT.
///
/// # Safety
/// A plain frame; a load whose rows are open. Its memory context is current.
pub unsafe fn load(load: *mut Load) {
    // SAFETY: the frame is plain. Feed and statement live as long as the load's memory context, and are used by one step
    // at a time; the rows outlive the push.
    unsafe {
        let feed = guarded(|| Feed::of_load(&mut *load).or_raise());
        let table = (*load).target.relid;
        let defaults = Checked { relid: table, inserted: guarded(|| set_by_defaults(&*feed)) };
        let types = [pg_sys::ANYELEMENTOID, pg_sys::INT8OID];
        let function = guarded(|| function_named(c"bulk_rows", &types, (*load).request.schema));
        let (text, about) = (guarded(|| insert(&*load, &*feed)), About::Rows { table, function });
        let rows = &raw mut (*feed).rows;
        let processed = in_context(copy_context, rows.cast(), || {
            statement::run(text, (*feed).token, about, defaults, Surroundings::NONE)
        });
        guarded(|| end(&mut *load, &mut *feed, processed).or_raise());
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
    let attributes = attributes.filter_map(|attribute| descriptor.attribute(attribute));
    let function = qualified(&schema_name(load.request.schema).unwrap_or_default(), c"bulk_rows");
    let clause = load.arbiter.map_or(Vec::new(), |arbiter| conflict_clause(arbiter).or_raise());
    let statement = insert_from(&load.target.name, attributes, function.to_bytes(), b"$1", &clause);
    // SAFETY: a guarded call that copies the string.
    unsafe { pg_sys::pstrdup(statement.as_ptr()) }
}

/// Closes the file, and counts stored, duplicate and filtered rows. Guarded.
fn end(load: &mut Load, feed: &mut Feed, processed: u64) -> Result<()> {
    let Pump { policy: Policy { tolerance, .. }, sink } = &mut feed.pump;
    std::mem::swap(&mut load.measures.phases, &mut sink.phases);
    tolerance.report(load.spool.and_then(Spool::view_of));
    let counts = &mut load.measures.counts;
    let notices = feed.rows.ragged_notices(&feed.rows.ragged);
    counts.notes.extend(notices.iter().map(|notice| notice.message().to_owned()));
    let left_out = feed.given.saturating_sub(processed);
    // The statement does not distinguish rows left out by ON CONFLICT from those left out by a trigger.
    let (duplicate, left_out) = if load.arbiter.is_some() { (left_out, 0) } else { (0, left_out) };
    counts.duplicate = duplicate;
    if left_out > 0 {
        let rows = if left_out == 1 { "1 row was".to_owned() } else { format!("{left_out} rows were") };
        counts.notes.push(format!("{rows} left out by triggers or rules of \"{}\".", load.target.display_name()));
    }
    if tolerance.on_error != OnError::SetNull {
        counts.rejected = tolerance.bad_rows;
    }
    counts.filtered = sink.filtered + left_out;
    counts.loaded = processed;
    counts.bytes_read = feed.rows.stream().bytes_read();
    // SAFETY: guarded calls; the statement has ended, and nothing uses slot and state any more.
    unsafe {
        pg_sys::ExecDropSingleTupleTableSlot(feed.slot.as_ptr());
        pg_sys::FreeExecutorState((*sink.econtext.as_ptr()).ecxt_estate);
    }
    if let (Some(files), Some(stored)) = (&load.measures.files, feed.stored(processed)) {
        files.split_rows(stored, processed, load.arbiter.is_some());
    }
    feed.rows.close()
}
