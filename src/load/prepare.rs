//! The part of a load between its lock and its first row: the eligibility check, the choice of the writer, the load's
//! id, the open file.
//!
//! The order matters. Missing privileges are reported before unsupported options, and the file is opened last.

use std::ffi::CString;
use std::rc::Rc;

use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::duplicate::Keep;
use super::files::Files;
use super::options::{IndexesOption, LockOption, Once, WriterOption};
use super::phase::Phase;
use super::rejects::Spool;
use super::rejects::spool::About;
use super::target::TargetKind;
use super::{Load, Writer, direct, engine, expression, obstacle, once, planned_insert, source};
use crate::error::{Error, OrRaise, Result};
use crate::input::source::Location;
use crate::program::{filter, volatile};
use crate::rows::copy_options::RecordShape;
use crate::rows::soft::{Limit, OnError};
use crate::server::lookup::relation_named;
use crate::server::progress::{Figures, Progress, SourceKind};
use crate::server::relation::Relation;
use crate::server::server_text::to_server;
use crate::server::unguarded::nextval_internal;

/// Prepares the first row. The file is opened last: a caller without the INSERT privilege learns nothing of it.
///
/// Guarded; the load's memory context is current.
pub(super) fn prepare(load: &mut Load) {
    load.target.reopen();
    let target = load.target.relation().or_raise();
    let relation = target.as_ptr();
    let mapping = source::by_position(target, &load.request.options).or_raise();
    let by = caller(load);
    load.target
        .check_copy(mapping.as_ref(), load.program.where_clause.rights, &load.request.options.location, &by)
        .or_raise();
    // SAFETY: the target is open and locked.
    let target = unsafe { Relation::from_raw(relation) };
    load.target.obstacles = obstacle::of_target(target, load.request.options.duplicates.keep);
    let copy = &load.request.options.copy;
    // A column also gets its default if an object lacks its key, a record its field, or if a field is the marker.
    let set = mapping.as_ref().filter(|_| copy.shape() != RecordShape::Json && !copy.takes_defaults());
    let volatile = volatile::obstacles(target, set, load.program.where_clause.conditions);
    let computed = load.program.projection.and_then(|nodes| match load.request.options.function {
        Some(function) => filter::obstacle(function, target, nodes).or_raise(),
        None => expression::obstacle(nodes),
    });
    if load.request.is_dry() && (!volatile.is_empty() || computed.is_some() || volatile::in_constraints(target)) {
        // The buffered writer calls such functions in this process, so a check does too.
        load.request.options.workers = Some(0);
    }
    load.target.obstacles.extend(volatile);
    load.target.obstacles.extend(computed);
    load.target.obstacles.extend(load.program.query.as_ref().and_then(|query| query.obstacle(&load.request.options)));
    if load.request.options.duplicates.keep != Keep::Error {
        load.target.check_replace(load.request.options.duplicates.keep);
        load.arbiter = Some(load.request.options.duplicates.arbiter(target).or_raise());
    }
    if load.id == 0 && !load.request.is_dry() {
        load.id = next_id(load.request.schema).or_raise();
    }
    if load.request.options.once != Once::No && once::skip_loaded(load).or_raise() {
        load.request.analyze_statement = None;
        load.writer = Writer::None;
        return;
    }
    if load.request.is_dry() {
        load.target.check_rows().or_raise();
        load.writer = Writer::Direct;
    } else {
        ask_planner(load).or_raise();
        load.writer = choose_writer(load).or_raise();
    }
    if load.request.options.copy.on_error == OnError::Table {
        let about = About {
            load_id: load.id,
            attempt: load.request.attempt().unwrap_or(1),
            owner: load.request.owner,
            relid: load.target.relid,
            target: load.target.name.clone(),
            path: load.request.path.clone(),
            schema: load.request.schema,
            may_exceed_share: matches!(load.request.options.copy.reject_limit, Some(Limit::Percent(_))),
        };
        load.spool = Some(Spool::open(about, load.request.attempt().is_some()));
    }
    load.rows =
        Some(source::open_rows(load.target.relation().or_raise(), &load.request.options, mapping.as_ref()).or_raise());
    load.mapping = mapping.unwrap_or_default();
    once::check_opened(load).or_raise();
    if let Some(list) = load.rows.as_ref().and_then(|rows| rows.stream().files()) {
        let count = list.files.len();
        load.measures.counts.notes.push(if count == 1 { "1 file".into() } else { format!("{count} files") });
        load.measures.files = (!load.request.is_dry()).then(|| Files::new(Rc::clone(list)));
    }
    if let (Some(files), Some(rows)) = (&load.measures.files, &mut load.rows) {
        rows.stream_mut().count_by_file(files.by_file());
    }
    if load.writer == Writer::Direct && !load.request.is_dry() {
        let size = load.rows.as_ref().and_then(|rows| rows.stream().file_size());
        let others_go_on =
            load.request.options.table.lock == LockOption::Online && size.unwrap_or(0) < direct::WORTH_EXCLUSIVE;
        if load.target.kind == TargetKind::Plain && !others_go_on {
            // The relation is open, once.
            direct::renew(target, 1).or_raise();
        }
    }
    load.begin_rows();
}

/// The statement that the rows are read for, as hooks of other libraries see it. Guarded.
fn caller(load: &Load) -> CString {
    match load.request.attempt() {
        Some(_) => to_server(&format!("pg_bulk job {}", load.id)),
        None if load.request.is_dry() => c"bulk_check".to_owned(),
        None => c"bulk_load".to_owned(),
    }
}

/// Adds a reason against the direct writer, as the first one, if the server would insert into the table by another plan
/// than a plain one. Fails if that plan cannot do what the options demand. Guarded.
fn ask_planner(load: &mut Load) -> Result<()> {
    let relation = load.target.relation()?;
    let keep = load.request.options.duplicates.keep;
    let (why, counts) = match engine::owner_of(relation) {
        Some(owned) => (engine::check_active(relation, &owned)?, owned.counts_rows()),
        None if load.target.obstacles.is_empty()
            && (load.request.options.writer != WriterOption::Buffered || keep == Keep::Old) =>
        {
            (planned_insert::obstacle(relation), false)
        }
        None => (None, true),
    };
    let Some(why) = why else { return Ok(()) };
    if keep == Keep::Old && !counts {
        let message = format!("cannot count duplicates of \"{}\" with the buffered writer", load.target.display_name());
        return Err(Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message).detail(why));
    }
    load.target.obstacles.insert(0, why);
    Ok(())
}

/// Chooses the writer. Options that it cannot follow become a note or an error.
fn choose_writer(load: &mut Load) -> Result<Writer> {
    let obstacles = &load.target.obstacles;
    let unsupported = |message: String, obstacle: Option<&String>| {
        let error = Error::new(Code::ERRCODE_FEATURE_NOT_SUPPORTED, message);
        Err(match obstacle {
            Some(obstacle) => error.detail(obstacle.clone()),
            None => error,
        })
    };
    if load.request.options.writer == WriterOption::Direct && !obstacles.is_empty() {
        let message = format!("cannot load \"{}\" with the direct writer", load.target.display_name());
        return unsupported(message, obstacles.first());
    }
    if load.request.options.writer != WriterOption::Buffered && obstacles.is_empty() {
        if load.request.options.table.freeze {
            direct::check_freeze(load.target.relation()?)?;
        }
        return Ok(Writer::Direct);
    }
    if load.request.options.table.freeze {
        return unsupported("cannot freeze rows with the buffered writer".into(), obstacles.first());
    }
    if load.request.options.duplicates.keep == Keep::New {
        let message = format!("cannot replace rows of \"{}\" with the buffered writer", load.target.display_name());
        return unsupported(message, obstacles.first());
    }
    if load.request.options.writer == WriterOption::Auto {
        load.measures.counts.notes.extend(obstacles.iter().cloned());
    }
    if matches!(load.request.options.indexes, IndexesOption::Merge | IndexesOption::Rebuild) {
        load.measures.counts.notes.push("The buffered writer inserts into indexes row by row.".into());
    }
    Ok(Writer::Buffered)
}

/// An id for a load. The caller needs no privilege on the sequence. Guarded.
pub fn next_id(schema: pg_sys::Oid) -> Result<i64> {
    let sequence = relation_named(c"bulk_load_id_seq", schema);
    if sequence == pg_sys::InvalidOid {
        let message = "sequence \"bulk_load_id_seq\" does not exist";
        return Err(Error::new(Code::ERRCODE_UNDEFINED_TABLE, message));
    }
    // SAFETY: the call raises an error if the relation is no sequence.
    Ok(unsafe { pg_guard_ffi_boundary(|| nextval_internal(sequence, false)) })
}

/// Reads the columns from the header. Guarded.
pub(super) fn read_header(load: &mut Load) {
    let Some(rows) = &mut load.rows else { return };
    let mut mapping = source::by_name(load.target.relation().or_raise(), &load.request.options, rows).or_raise();
    // Errors about rights are not about a line.
    rows.context.is_quiet = true;
    load.measures.counts.notes.append(&mut mapping.notes);
    let by = caller(load);
    load.target
        .check_copy(Some(&mapping), load.program.where_clause.rights, &load.request.options.location, &by)
        .or_raise();
    load.mapping = mapping;
    if let Some(rows) = &mut load.rows {
        rows.context.is_quiet = false;
    }
    if let Some(files) = &load.measures.files {
        // The records that were read for the header are read again.
        files.by_file().clear();
    }
}

impl Load {
    /// Reports the open file to the progress view. Guarded.
    pub fn begin_rows(&mut self) {
        let size = self.rows.as_ref().and_then(|rows| rows.stream().file_size());
        let more = self.more.iter().map(|source| source.options.location.size()).sum::<Option<u64>>();
        let size = size.zip(more).map(|(size, more)| size + more);
        let kind = match self.request.options.location {
            Location::File(_) | Location::Files(_) | Location::Below(_) => SourceKind::File,
            Location::Program(_) => SourceKind::Program,
            Location::Client(_) => SourceKind::Client,
            Location::Bytes(_) | Location::LargeObject(_) | Location::Query => SourceKind::Inside,
        };
        self.measures.phases.progress = Progress::of_load(self.target.relid, self.id, kind, size, Figures::default());
        self.measures.phases.enter(Phase::Rows);
    }
}
