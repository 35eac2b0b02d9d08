//! The result of a load: counts, indexes and notes, as a row.

use std::time::Duration;

use crate::server::jsonb::{Json, Jsonb};
use crate::server::server_text::to_server;
use crate::server::sql_value::SqlValue;
use crate::server::stages::Stages;
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
