//! DETAIL and HINT that a load adds to the error that ends it.
//!
//! Work is done only after an error was caught. The first rejects are added to the error's DETAIL. Its HINT is set if it is
//! empty:
//!
//! - the first record fails, and the file plainly has another format than the options say, or a header that they do not
//!   declare;
//! - a row violates a constraint with `on_error = table`, and the direct writer, which could have rejected the row, was
//!   not used.
//!
//! The tricky point: the caught error has aborted nothing yet. Only errors of classes 22 and 23 get a HINT: conversions and
//! constraint checks raise these between their own catalog lookups, and the caller has released all LWLocks. So catalogs can be
//! read here. An error or a cancel meanwhile is dropped, since the first error is raised in any case.

use std::ffi::{CStr, c_char};

use pg_bulk_text::dialect::Format;
use pgrx::pg_sys;

use super::options::WriterOption;
use super::rejects::{Reject, Spool};
use super::target::TargetKind;
use super::{Load, Writer};
use crate::error::{OrRaise, Result};
use crate::input::source::Location;
use crate::rows::context::displayed;
use crate::rows::copy_options::{CopyOptions, RecordShape};
use crate::rows::sniff::{self, Request, Sniffed};
use crate::rows::soft::OnError;
use crate::server::attempt::ignoring_errors;
use crate::server::lookup;
use crate::server::option_value::{Caller, HeaderOption, OptionValue};
use crate::server::relation::ancestors_of;
use crate::server::server_text::to_server;

/// Bytes of the file that are read for a HINT.
const SAMPLE: u64 = 64 * 1024;

/// What a HINT depends on: the strings of an error that was caught.
struct Caught<'e> {
    code: i32,
    message: &'e CStr,
    context: &'e CStr,
    /// Empty for an error that names no table.
    schema: &'e CStr,
    table: &'e CStr,
}

/// Adds the first rejects to an error's DETAIL, and sets its HINT, if it has none and one applies. A check reports its
/// rejects, and adds nothing to errors.
///
/// # Safety
/// A plain frame; an error that was caught and is going to be raised again. No lightweight lock is held.
pub unsafe fn complete(load: &Load, error: &mut pg_sys::ErrorData) {
    if load.request.is_dry() {
        return;
    }
    // SAFETY: a plain frame that owns nothing; strings of errors are NUL-terminated or null. An error of the search must not
    // replace the error of the load.
    unsafe {
        let string = |string: *const c_char| if string.is_null() { c"" } else { CStr::from_ptr(string) };
        if let Some(spool) = load.spool.filter(|spool| spool.count() > 0) {
            ignoring_errors(|| {
                let detail = detail(spool, string(error.detail).to_bytes()).or_raise();
                error.detail = pg_sys::pstrdup(detail.as_ptr().cast());
            });
        }
        if !error.hint.is_null() || !matches!(class_of(error.sqlerrcode), b"22" | b"23") {
            return;
        }
        let caught = Caught {
            code: error.sqlerrcode,
            message: string(error.message),
            context: string(error.context),
            schema: string(error.schema_name),
            table: string(error.table_name),
        };
        ignoring_errors(|| {
            if let Some(hint) = find(load, &caught) {
                error.hint = pg_sys::pstrdup(to_server(&hint).as_ptr());
            }
        });
    }
}

/// The class of a SQLSTATE, which has six bits a character.
fn class_of(code: i32) -> &'static [u8; 2] {
    let character = |at: u32| u8::try_from((code >> (6 * at)) & 0x3f).unwrap_or(0) + b'0';
    match [character(0), character(1)] {
        [b'2', b'2'] => b"22",
        [b'2', b'3'] => b"23",
        _ => b"--",
    }
}

/// The HINT for an error. Guarded.
fn find(load: &Load, error: &Caught<'_>) -> Option<String> {
    if class_of(error.code) == b"23" {
        return writer_hint(load, error);
    }
    let location = is_about_first_record(load, error)?;
    let copy = &load.request.options.copy;
    let fields = (!copy.by_name()).then_some(load.mapping.fields.len());
    let sniffed = sniff_start(&location, copy).ok()?;
    format_hint(&sniffed, copy, fields, shows_quote(error.message.to_bytes()))
}

/// The HINT for a constraint violation: why the direct writer, which rejects such rows, was not used. Guarded.
fn writer_hint(load: &Load, error: &Caught<'_>) -> Option<String> {
    if load.writer != Writer::Buffered || load.request.options.copy.on_error != OnError::Table {
        return None;
    }
    // An error that a function raises itself names no table. A trigger may have inserted into another table.
    if error.table.is_empty() || error.schema.is_empty() {
        return None;
    }
    let table = lookup::relation_named(error.table, lookup::schema_named(error.schema));
    let is_part = || table != pg_sys::InvalidOid && ancestors_of(table).contains(&load.target.relid);
    let is_ours = match load.target.kind {
        TargetKind::Plain => table == load.target.relid,
        TargetKind::Partitioned => table == load.target.relid || is_part(),
        TargetKind::Other => false,
    };
    if !is_ours {
        return None;
    }
    let why = match (load.request.options.writer, load.target.obstacles.first()) {
        (WriterOption::Buffered, _) => "the option writer is \"buffered\".",
        (_, Some(obstacle)) => obstacle,
        (_, None) => return None,
    };
    Some(format!("The direct writer, which could reject this row, was not used: {why}"))
}

/// The file that an error is about, if the error is about the first record and the file can be read again. Guarded.
fn is_about_first_record(load: &Load, error: &Caught<'_>) -> Option<Location> {
    let copy = &load.request.options.copy;
    if copy.shape() != RecordShape::Delimited || !copy.dialect.is_copys() {
        return None;
    }
    let location = &load.request.options.location;
    if matches!(location, Location::Program(_) | Location::Client(_) | Location::Query) {
        return None;
    }
    let location = match copy.files(location).ok()? {
        Some(list) => list.location(list.files.first()?),
        None => location.clone(),
    };
    // Only a regular file, or bytes in the database, can be read again.
    let is_there = location.is_inside() || location.metadata().is_ok_and(|meta| meta.is_file());
    let relation = lookup::relation_name(load.target.relid).unwrap_or_default();
    let context = error.context.to_bytes();
    let described = location.described();
    if !is_there || memchr::memmem::find(context, described.to_bytes()).is_none() {
        return None;
    }
    // The CONTEXT of `rows::context`, whose words may be translated: "COPY t, line 1".
    let rest = context.strip_prefix(b"COPY ")?.strip_prefix(relation.to_bytes())?;
    let digits: Vec<u8> = rest
        .iter()
        .skip_while(|byte| !byte.is_ascii_digit())
        .take_while(|byte| byte.is_ascii_digit())
        .copied()
        .collect();
    let line: u64 = std::str::from_utf8(&digits).ok()?.parse().ok()?;
    (line <= header_lines(copy.header) + 1).then_some(location)
}

fn header_lines(header: HeaderOption) -> u64 {
    match header {
        HeaderOption::Lines(lines) => lines,
        HeaderOption::Match => 1,
    }
}

/// Whether a message ends in a value that begins with a quote, as in `invalid input syntax for type integer: ""1""`.
fn shows_quote(message: &[u8]) -> bool {
    memchr::memmem::find(message, b"\"\"").is_some_and(|at| at + 2 < message.len())
}

/// Sniffs the first bytes of a file. Guarded, and interruptible.
fn sniff_start(location: &Location, copy: &CopyOptions) -> Result<Sniffed> {
    let mut request = Request::of_start(Caller::Function, SAMPLE);
    if copy.encoding.is_some() {
        request.set("encoding", &OptionValue::Text(copy.encoding_name()?.into_bytes()))?;
    }
    request.set("compression", &OptionValue::Text(copy.coding().compressed.name().into()))?;
    sniff::sniff(location, &request)
}

/// The HINT for a load whose records have `fields` fields, if their number is known.
///
/// None if the file may have the format of the options, or if the sniffer is not sure: the load expects another number of
/// fields, or the number of fields differs between records.
fn format_hint(sniffed: &Sniffed, copy: &CopyOptions, fields: Option<usize>, shows_quote: bool) -> Option<String> {
    let width = sniffed.columns.len();
    // The HINT has only these options.
    let is_regular = |(name, _): &(String, _)| {
        let names = ["format", "delimiter", "quote", "comment", "header", "encoding", "compression"];
        names.contains(&name.as_str())
    };
    let is_sure = sniffed.records > 0
        && sniffed.rejects == 0
        && !sniffed.dialect.separator.is_long()
        && !matches!(sniffed.dialect.format, Format::Unquoted | Format::Lines)
        && sniffed.options.iter().all(is_regular)
        && fields.map_or(width > 1, |fields| fields == width);
    if !is_sure {
        return None;
    }
    let dialect = &copy.dialect;
    let (is_csv, was_csv) = (sniffed.dialect.format != Format::Text, dialect.is_csv());
    // A single field has no delimiter.
    let other_delimiter = width > 1 && sniffed.dialect.delimiter != dialect.delimiter;
    let wants_header = sniffed.header && header_lines(copy.header) == 0;
    let other_quote = is_csv && was_csv && sniffed.quote().is_some_and(|quote| quote != dialect.quote);
    // Without quotes and escapes, CSV and text differ only in the delimiter. The sniffer says "text" only if there are
    // escapes or `\N`.
    let other_format = is_csv != was_csv && (!is_csv || other_delimiter || shows_quote);
    if !(other_delimiter || wants_header || other_quote || other_format) {
        return None;
    }
    let written = |character: u8| match character {
        b'\t' => "\"\\t\"".to_owned(),
        character => format!("\"{}\"", char::from(character)),
    };
    let usual = |is_csv: bool| if is_csv { b',' } else { b'\t' };
    let mut options = Vec::new();
    let format = if other_format { is_csv } else { was_csv };
    if other_format {
        options.push(format!("format = {}", if is_csv { "csv" } else { "text" }));
    }
    // If the format changes, so does the default of the delimiter.
    let was_given = dialect.delimiter != usual(was_csv);
    let before = if other_format && !was_given { usual(format) } else { dialect.delimiter };
    if width > 1 && sniffed.dialect.delimiter != before {
        options.push(format!("delimiter = {}", written(sniffed.dialect.delimiter)));
    }
    if let Some(quote) = sniffed.quote().filter(|&quote| format && quote != if was_csv { dialect.quote } else { b'"' })
    {
        options.push(format!("quote = {}", written(quote)));
    }
    if !sniffed.dialect.comment.is_empty() && sniffed.dialect.comment != dialect.comment {
        options.push(format!("comment = {}", String::from_utf8_lossy(&sniffed.dialect.comment)));
    }
    if wants_header {
        let header = sniffed.options.iter().find(|(name, _)| name == "header");
        let lines =
            header.and_then(|(name, value)| value.one(name).ok()).map_or("true".into(), String::from_utf8_lossy);
        options.push(format!("header = {lines}"));
    }
    let name = if format { "CSV" } else { "text format" };
    let with = if sniffed.header { " with a header" } else { "" };
    Some(format!("This file looks like {name}{with}: {}.", options.join(", ")))
}

/// Most rejects in a DETAIL.
const SHOWN: usize = 3;

/// A reject's position, in the order of files and lines.
fn place(reject: &Reject) -> (&Option<Vec<u8>>, u64) {
    (&reject.path, reject.line)
}

/// The error's own detail and the first rejects, in the order of the file, as a string. Guarded.
fn detail(spool: &Spool, own: &[u8]) -> Result<Vec<u8>> {
    let mut first: Vec<Reject> = Vec::new();
    spool.for_each(|reject| {
        if first.len() < SHOWN || first.last().is_some_and(|last| place(&reject) < place(last)) {
            let at = first.partition_point(|other| place(other) < place(&reject));
            first.insert(at, reject);
            first.truncate(SHOWN);
        }
        Ok(())
    })?;
    let mut text = own.to_vec();
    if !own.is_empty() {
        text.push(b'\n');
    }
    text.extend(b"The first rejected rows:");
    for Reject { path, line, complaint, .. } in &first {
        text.push(b'\n');
        if let Some(path) = path {
            text.extend([b"file \"", &**path, b"\", "].concat());
        }
        text.extend(format!("line {line}").bytes());
        if let Some(column) = &complaint.column {
            text.extend(b", column ");
            text.extend(column);
        }
        text.extend(b": ");
        text.extend(displayed(&complaint.message).to_bytes());
    }
    text.push(0);
    Ok(text)
}
