//! The result of a load: counts, indexes and notes, as a row and as a log message.
//!
//! The message is like autovacuum's. Its level is LOG: it is in the server's log unless that keeps only fatal errors, and
//! a client may ask for it.

use std::fmt::Write;
use std::iter;
use std::time::Duration;

use pgrx::pg_sys;

use super::{Load, Writer};
use crate::guc;
use crate::input::source::Location;
use crate::server::database;
use crate::server::jsonb::{Json, Jsonb};
use crate::server::lookup::database_name;
use crate::server::server_text::{from_server, to_server};
use crate::server::sql_value::SqlValue;
use crate::server::stages::{Stage, Stages};
use crate::server::unguarded as c;
use crate::server::usage::Cpu;

/// Figures that a writer counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Rows that are in the table now.
    pub loaded: u64,
    /// Records left out because of an error.
    pub rejected: u64,
    /// Rows left out because their key already exists.
    pub duplicate: u64,
    /// Rows that `where` or a trigger left out.
    pub filtered: u64,
    pub bytes_read: u64,
    /// Pages that were made and appended.
    pub pages: u64,
    /// CPU usage of the processes other than the caller's, and time by stage of all processes.
    pub others: Cpu,
    pub stages: Stages,
    /// Processes other than the caller's.
    pub workers: usize,
    /// Remarks about the load, one sentence each.
    pub notes: Vec<String>,
    pub indexes: Vec<IndexReport>,
}

/// How an index got the new entries.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexReport {
    pub name: String,
    /// The index strategy: `insert`, `merge` or `rebuild`.
    pub method: &'static str,
    /// Source of the keys of a rebuilt index: `load`, which has collected them, or `table`, which was scanned.
    pub from: Option<&'static str>,
    pub why: Why,
    /// Workers that took part in the build.
    pub workers: usize,
    pub seconds: f64,
}

/// The reason for the index strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Asked,
    Empty,
    Many,
    Few,
    FewForIndex,
    Behind,
    Online,
    Temporary,
    Kind,
    OldVersion,
    Deferrable,
    Exclusion,
    OneByOne,
    InUse,
    Invalid,
    Keys,
    Owner,
    Refers,
}

impl Why {
    /// The reason in words.
    pub fn words(self) -> &'static str {
        match self {
            Why::Asked => "requested by the option indexes",
            Why::Empty => "the table was empty",
            Why::Many => "many new rows",
            Why::Few => "few new rows",
            Why::FewForIndex => "few new rows for an index of this size",
            Why::Behind => "all new keys are greater",
            Why::Online => "lock = online",
            Why::Temporary => "the table is temporary",
            Why::Kind => "pg_bulk cannot merge such an index",
            Why::OldVersion => "the index has an old nbtree version",
            Why::Deferrable => "its constraint is deferrable",
            Why::Exclusion => "it belongs to an exclusion constraint",
            Why::OneByOne => "duplicates are looked up row by row",
            Why::InUse => "the index was in use",
            Why::Invalid => "the index is not valid",
            Why::Keys => "some keys cannot be merged",
            Why::Owner => "its functions would run as the table's owner",
            Why::Refers => "the table has foreign keys",
        }
    }
}

/// Columns of the result.
pub const COLUMNS: usize = 11;

/// The row of the result. Guarded.
pub fn row(id: i64, counts: &Counts, took: Duration, writer: &str) -> [SqlValue<'static>; COLUMNS] {
    let indexes = Jsonb::of(&Json::Array(counts.indexes.iter().map(IndexReport::json).collect()));
    let notes: Vec<_> = counts.notes.iter().map(|note| to_server(note)).collect();
    [
        SqlValue::bigint(id),
        SqlValue::count(counts.loaded),
        SqlValue::count(counts.rejected),
        SqlValue::count(counts.duplicate),
        SqlValue::count(counts.filtered),
        SqlValue::count(counts.bytes_read),
        SqlValue::double(took.as_secs_f64()),
        SqlValue::text(to_server(writer)),
        SqlValue::integer(i32::try_from(counts.workers).unwrap_or(i32::MAX)),
        SqlValue::owned_jsonb(indexes),
        SqlValue::texts(notes),
    ]
}

impl IndexReport {
    /// Guarded.
    fn json(&self) -> Json {
        let mut members = vec![
            (b"index".to_vec(), Json::text(&self.name)),
            (b"method".to_vec(), Json::text(self.method)),
            (b"why".to_vec(), Json::text(self.why.words())),
            (b"seconds".to_vec(), Json::literal(format!("{:.6}", self.seconds))),
        ];
        members.extend(self.from.map(|from| (b"from".to_vec(), Json::text(from))));
        if self.workers > 0 {
            members.push((b"workers".to_vec(), Json::literal(self.workers)));
        }
        Json::Object(members)
    }
}

/// Writes the message. Guarded.
pub fn log(load: &mut Load) {
    let level = pg_sys::LOG.cast_signed();
    // SAFETY: message_level_is_interesting only compares settings. The string outlives the message, which is logged without
    // error context.
    unsafe {
        if !pg_sys::message_level_is_interesting(level) {
            return;
        }
        let text = to_server(&text(load));
        c::guard(|| {
            if c::errstart_cold(level, std::ptr::null()) {
                c::errmsg_internal(c"%s".as_ptr(), text.as_ptr());
                c::errhidestmt(true);
                c::errhidecontext(true);
                c::errfinish(c"report.rs".as_ptr(), 0, c"log".as_ptr());
            }
        });
    }
}

fn text(load: &mut Load) -> String {
    let (wal, own) = load.measures.usage.since();
    let phases = list(load.measures.phases.spent());
    let counts = &load.measures.counts;
    let seconds = load.measures.took.as_secs_f64();
    let from = iter::once(described(&load.request.options.location))
        .chain(load.request.also.iter().cloned())
        .collect::<Vec<_>>();
    let (from, table, database) = (from.join(", "), from_server(&load.target.name), database());
    let (writer, workers) = (load.writer.name(), counts.workers);
    let plural = if workers == 1 { "" } else { "s" };
    let mut text = match load.id {
        0 if load.request.options.is_copy() => "copy".to_owned(),
        0 => "insert".to_owned(),
        id => format!("load {id}"),
    };
    // Writing to a string does not fail.
    let _ = write!(text, " from {from} into table \"{database}.{table}\"");
    let mut line = |line: &str| {
        // Writing to a string does not fail.
        let _ = write!(text, "\n\t{line}");
    };
    line(&format!("writer: {writer}, {workers} worker{plural}"));
    let (loaded, rejected, duplicate, filtered) = (counts.loaded, counts.rejected, counts.duplicate, counts.filtered);
    line(&format!("rows: {loaded} loaded, {rejected} rejected, {duplicate} duplicate, {filtered} filtered"));
    let rate = if seconds > 0.0 { counts.bytes_read as f64 / seconds / f64::from(1 << 20) } else { 0.0 };
    line(&format!("bytes: {} read, avg rate: {rate:.3} MB/s", counts.bytes_read));
    if load.writer == Writer::Direct {
        line(&format!("pages: {} appended", counts.pages));
    }
    line(&format!("WAL usage: {} records, {} full page images, {} bytes", wal.records, wal.images, wal.bytes));
    line(&format!("phases: {phases}"));
    for index in &counts.indexes {
        let from = index.from.map(|from| format!(" from {from}")).unwrap_or_default();
        let why = index.why.words();
        let workers = match index.workers {
            0 => String::new(),
            1 => ", 1 worker".into(),
            n => format!(", {n} workers"),
        };
        line(&format!("index \"{}\": {}{from} ({why}){workers}, {:.3} s", index.name, index.method, index.seconds));
    }
    for note in &counts.notes {
        line(&format!("note: {note}"));
    }
    if guc::log_timing() && load.writer == Writer::Direct {
        let stages = Stage::NAMES.iter().map(|&(stage, name)| (name, counts.stages.of(stage)));
        line(&format!("stages of all processes: {}", list(stages)));
    }
    let (user, system) = (own.user + counts.others.user, own.system + counts.others.system);
    line(&format!(
        "system usage: CPU: user: {:.2} s, system: {:.2} s, elapsed: {seconds:.2} s",
        user.as_secs_f64(),
        system.as_secs_f64()
    ));
    text
}

/// A file or program, as the log names it.
pub fn described(location: &Location) -> String {
    from_server(&location.described())
}

fn list<'a>(times: impl Iterator<Item = (&'a str, Duration)>) -> String {
    let times: Vec<_> = times.map(|(name, time)| format!("{name} {:.3} s", time.as_secs_f64())).collect();
    times.join(", ")
}

fn database() -> String {
    from_server(&database_name(database::database()).unwrap_or_default())
}
