//! The log message about a successful load, like autovacuum's.
//!
//! Its level is LOG: it is in the server's log unless that keeps only fatal errors, and a client may ask for it.

use std::fmt::Write;
use std::iter;
use std::time::Duration;

use pgrx::pg_sys;

use super::{Load, Writer};
use crate::guc;
use crate::input::source::Location;
use crate::server::server_text::{copied, from_server, to_server};
use crate::server::stages::Stage;
use crate::server::unguarded as c;

/// Writes the message. Guarded.
pub fn log(load: &mut Load) {
    let level = pg_sys::LOG.cast_signed();
    // SAFETY: message_level_is_interesting only compares settings.
    if !unsafe { pg_sys::message_level_is_interesting(level) } {
        return;
    }
    let text = to_server(&text(load));
    // SAFETY: the string outlives the message, which is logged without error context.
    unsafe {
        c::guard(|| {
            if c::errstart_cold(level, std::ptr::null()) {
                c::errmsg_internal(c"%s".as_ptr(), text.as_ptr());
                c::errhidestmt(true);
                c::errhidecontext(true);
                c::errfinish(c"summary.rs".as_ptr(), 0, c"log".as_ptr());
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
    // SAFETY: a guarded catalog lookup, which returns a string or null.
    let name = unsafe { copied(pg_sys::get_database_name(pg_sys::MyDatabaseId)) };
    from_server(&name.unwrap_or_default())
}
