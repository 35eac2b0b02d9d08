//! `bulk_sniff`: detects the format of a file and returns it as a row.
//!
//! `rows::sniff` does the detection. This module has the arguments, the rights, which are those of a load, and the result
//! row, whose statements and options are ready for use.

use std::ffi::{CStr, CString};

use pgrx::pg_sys;

use super::definer::Allowed;
use super::options::{given, value};
use super::target::check_location;
use crate::error::Result;
use crate::input::encoding::shown;
use crate::input::source::Location;
use crate::program::copy_question;
use crate::rows::sniff::{self, Request, Sniffed, SniffedColumn, ValuePosition, identifier, table_name};
use crate::server::function::{Call, sql_function};
use crate::server::jsonb::{Json, Jsonb};
use crate::server::lookup::QualifiedName;
use crate::server::option_value::{Caller, OptionValue, invalid, text};
use crate::server::server_text::is_valid_in_server_encoding;
use crate::server::sql_value::SqlValue;
use pg_bulk_text::dialect::{Eol, Format};

/// Option names besides those that describe the file.
const NAMES: &[&str] = &["program", "server", "sample", "table"];

/// The foreign server that the extension creates.
const SERVER: &CStr = c"bulk_files";

sql_function!(pg_finfo_bulk_sniff, bulk_sniff, sniff_call);

/// `bulk_sniff(path, options, allow)`.
fn sniff_call(call: &Call) -> Result<pg_sys::Datum> {
    let path = call.required(0, "path")?.into_text();
    let options = call.jsonb(1, "options")?;
    let allowed = Allowed::by_call(call)?;
    let mut asked = Asked::parse(&path, &options, &allowed)?;
    check_location(&asked.location)?;
    copy_question::may_read(&asked.location);
    if asked.table.is_empty() {
        asked.table = identifier(&table_name(asked.path, asked.location.is_pattern()));
    }
    let sniffed = sniff::sniff(&asked.location, &asked.request)?;
    call.rows().put(&asked.row(&sniffed))?;
    Ok(pg_sys::Datum::from(0usize))
}

/// The arguments.
struct Asked<'a> {
    path: &'a CStr,
    location: Location,
    request: Request,
    server: Option<CString>,
    is_program: bool,
    /// The name of the table, quoted for SQL. Empty: it is that of the file.
    table: Vec<u8>,
}

impl<'a> Asked<'a> {
    /// Guarded.
    fn parse(path: &'a CStr, options: &Jsonb, allowed: &Allowed) -> Result<Asked<'a>> {
        let Some(members) = options.members() else {
            return Err(invalid("options must be a JSON object"));
        };
        let mut request = Request::new(Caller::Function);
        let (mut is_program, mut server, mut table) = (false, None, None);
        for (name, json) in members {
            let name = text(&name).into_owned();
            if !sniff::NAMES.contains(&name.as_str()) && !NAMES.contains(&name.as_str()) {
                let valid: Vec<_> = sniff::NAMES.iter().chain(NAMES).copied().collect();
                return Err(Caller::Function.unknown(&name, &valid));
            }
            let Some(value) = value(&name, json)? else { continue };
            allowed.check(&name, &value)?;
            match name.as_str() {
                "program" => is_program = Caller::Function.boolean(&name, value.one(&name)?)?,
                "server" => server = Some(CString::new(value.one(&name)?).unwrap_or_default()),
                "table" => table = Some(qualified(&name, &value)?),
                _ => drop(request.set(&name, &value)?),
            }
        }
        let location = given::location(path, is_program, server.as_deref())?;
        let table = table.unwrap_or_else(|| if is_program { b"new_table".to_vec() } else { Vec::new() });
        Ok(Asked { path, location, request, server, is_program, table })
    }

    /// The row of the result. Guarded.
    fn row(&self, sniffed: &Sniffed) -> [SqlValue<'static>; 9] {
        let character =
            |byte: Option<u8>| byte.map_or_else(|| SqlValue::null(pg_sys::TEXTOID), |byte| SqlValue::text_of(&[byte]));
        [
            SqlValue::text(match sniffed.dialect.format {
                Format::Text => c"text",
                Format::Lines => c"json",
                _ => c"csv",
            }),
            if sniffed.dialect.is_lines() {
                SqlValue::null(pg_sys::TEXTOID)
            } else {
                SqlValue::text_of(sniffed.dialect.separator.bytes())
            },
            character(sniffed.quote()),
            character(sniffed.escape()),
            SqlValue::boolean(sniffed.header),
            SqlValue::text_of(sniffed.encoding.as_bytes()),
            SqlValue::integer(i32::try_from(sniffed.columns.len()).unwrap_or(i32::MAX)),
            SqlValue::count(sniffed.records),
            SqlValue::owned_jsonb(Jsonb::of(&self.details_json(sniffed))),
        ]
    }

    /// The findings that have no column of their own. Guarded.
    fn details_json(&self, sniffed: &Sniffed) -> Json {
        let source = (if self.is_program { "program" } else { "filename" }, self.path);
        let server = self.server.as_deref().unwrap_or(SERVER);
        let line_end = sniffed.eol.map_or(Json::Null, |eol| {
            Json::text(match eol {
                Eol::Nl => "LF",
                Eol::Cr => "CR",
                Eol::CrNl => "CRLF",
                Eol::Any => "any",
            })
        });
        let notes = sniffed.notes.iter().chain(&sniffed.foreign_notes).map(|note| Json::text(note));
        Json::object([
            ("options", self.options_json(sniffed)),
            ("complete", Json::literal(sniffed.complete)),
            ("line_end", line_end),
            ("compression", Json::text(sniffed.compression.unwrap_or("none"))),
            ("columns", Json::Array(sniffed.columns.iter().map(|column| finding_json(sniffed, column)).collect())),
            ("create_table", Json::Text(sniffed.create_table(&self.table))),
            ("create_foreign_table", Json::Text(sniffed.create_foreign_table(&self.table, server, source))),
            ("notes", Json::Array(notes.collect())),
        ])
    }

    /// Options for a load of this path.
    fn options_json(&self, sniffed: &Sniffed) -> Json {
        let mut members = Vec::new();
        if let Some(server) = &self.server {
            members.push((b"server".to_vec(), Json::Text(server.to_bytes().to_vec())));
        }
        if self.is_program {
            members.push((b"program".to_vec(), Json::literal(true)));
        }
        for (name, value) in &sniffed.options {
            let may_be_plain =
                matches!(name.as_str(), "header" | "skip_blank_lines" | "lenient_quotes" | "trailing_delimiter");
            let is_plain = |text: &[u8]| {
                may_be_plain && (matches!(text, b"true" | b"false") || text.iter().all(u8::is_ascii_digit))
            };
            let value = match value {
                OptionValue::Text(text) if is_plain(text) => Json::Literal(text.clone()),
                OptionValue::Text(text) => Json::Text(text.clone()),
                OptionValue::List(words) => {
                    Json::Array(words.iter().map(|word| Json::Text(word.to_bytes().to_vec())).collect())
                }
            };
            members.push((name.clone().into_bytes(), value));
        }
        let forced = sniffed.columns.iter().filter(|column| column.evidence.wants_force_null());
        let forced: Vec<_> = forced.map(|column| Json::Text(column.name.clone())).collect();
        if !forced.is_empty() {
            members.push((b"force_null".to_vec(), Json::Array(forced)));
        }
        // All columns are named if one of them has options.
        let columns: Vec<_> = sniffed.columns.iter().map(column_json).collect();
        if columns.iter().any(|column| matches!(column, Json::Object(_))) {
            members.push((b"columns".to_vec(), Json::Array(columns)));
        }
        Json::Object(members)
    }
}

/// A column of the options of a load: its name, or an object with its options.
fn column_json(column: &SniffedColumn) -> Json {
    let name = Json::Text(column.name.clone());
    let options = column.written_options().into_iter();
    let mut members: Vec<_> = options.map(|(name, value)| (name.into(), Json::Text(value))).collect();
    let words: Vec<_> = column.evidence.null_words().iter().map(|word| Json::Text(word.word.clone())).collect();
    if !words.is_empty() {
        members.push((b"null_if".to_vec(), Json::Array(words)));
    }
    if members.is_empty() {
        return name;
    }
    members.push((b"column".to_vec(), name));
    Json::Object(members)
}

/// The findings about a column. Guarded.
fn finding_json(sniffed: &Sniffed, column: &SniffedColumn) -> Json {
    let ruled_out = column.evidence.ruled_out().map(|ruled| {
        let mut members = vec![
            (b"type".to_vec(), Json::text(ruled.of.name())),
            (b"value".to_vec(), Json::Text(ruled.value.to_bytes().to_vec())),
            match ruled.place {
                ValuePosition::Line(line) => (b"line".to_vec(), Json::literal(line)),
                ValuePosition::Offset(offset) => (b"byte_offset".to_vec(), Json::literal(offset)),
            },
        ];
        members.extend(sniffed.file_of(ruled).map(|file| (b"file".to_vec(), Json::text(&shown(file)))));
        Json::Object(members)
    });
    Json::object([
        ("name", Json::Text(column.name.clone())),
        ("type", Json::text(column.type_name())),
        ("nullable", Json::literal(column.evidence.is_nullable())),
        ("ruled_out", Json::Array(ruled_out.collect())),
    ])
}

/// The name of a table, with or without a schema, quoted for SQL. Guarded.
fn qualified(name: &str, value: &OptionValue) -> Result<Vec<u8>> {
    let given = value.one(name)?;
    let text = CString::new(given).ok().filter(|_| is_valid_in_server_encoding(given));
    let text = text.ok_or_else(|| invalid(format!("{name} must be the name of a table")))?;
    let QualifiedName { catalog, schema, name } = QualifiedName::of(&text);
    let parts: Vec<_> =
        catalog.into_iter().chain(schema).chain([name]).map(|part| identifier(part.to_bytes())).collect();
    Ok(parts.join(b".".as_slice()))
}
