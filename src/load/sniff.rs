//! `bulk_sniff`: detects the format of a file and returns it as a row.
//!
//! `rows::sniff` does the detection. This module has the arguments, the rights, which are those of a load, and the result
//! row, whose statements and options are ready for use.

use std::ffi::{CStr, CString};

use pgrx::pg_sys;

use super::definer::Allowed;
use super::options::value;
use super::target::check_location;
use super::wrapper::Wrapper;
use crate::error::Result;
use crate::input::directory::file_of;
use crate::input::encoding::shown;
use crate::input::source::Location;
use crate::program::copy_question;
use crate::rows::sniff::{self, Request, Sniffed, SniffedColumn, ValuePosition, identifier, table_name};
use crate::server::function::{Call, sql_function};
use crate::server::jsonb::Jsonb;
use crate::server::option_value::{Caller, OptionValue, invalid, text};
use crate::server::server_text::to_server;
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
        let location = match &server {
            Some(_) if is_program => return Err(invalid("cannot specify both program and server")),
            Some(server) => Location::Below(file_of(server, path, Wrapper::get()?.owns)?),
            None if is_program => Location::Program(path.to_owned()),
            None => Location::File(path.to_owned()),
        };
        let table = table.unwrap_or_else(|| if is_program { b"new_table".to_vec() } else { Vec::new() });
        Ok(Asked { path, location, request, server, is_program, table })
    }

    /// The row of the result. Guarded.
    fn row(&self, sniffed: &Sniffed) -> [SqlValue<'static>; 9] {
        let character =
            |byte: Option<u8>| byte.map_or_else(|| SqlValue::null(pg_sys::TEXTOID), |byte| SqlValue::text_of(&[byte]));
        let details = CString::new(self.details_json(sniffed)).unwrap_or_default();
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
            SqlValue::owned_jsonb(Jsonb::parse(&details)),
        ]
    }

    /// The findings that have no column of their own. Guarded.
    fn details_json(&self, sniffed: &Sniffed) -> Vec<u8> {
        let source = (if self.is_program { "program" } else { "filename" }, self.path);
        let server = self.server.as_deref().unwrap_or(SERVER);
        let line_end = sniffed.eol.map_or(b"null".to_vec(), |eol| {
            json_string(match eol {
                Eol::Nl => b"LF",
                Eol::Cr => b"CR",
                Eol::CrNl => b"CRLF",
                Eol::Any => b"any",
            })
        });
        let notes: Vec<_> = sniffed.notes.iter().chain(&sniffed.foreign_notes).map(|note| to_server(note)).collect();
        let members = [
            member("options", &self.options_json(sniffed)),
            member("complete", if sniffed.complete { b"true" } else { b"false" }),
            member("line_end", &line_end),
            member("compression", &json_string(sniffed.compression.unwrap_or("none").as_bytes())),
            member("columns", &columns_json(sniffed)),
            member("create_table", &json_string(&sniffed.create_table(&self.table))),
            member("create_foreign_table", &json_string(&sniffed.create_foreign_table(&self.table, server, source))),
            member("notes", &json_list(notes.iter().map(|note| note.to_bytes()))),
        ];
        bracketed(b'{', &members, b'}')
    }

    /// Options for a load of this path.
    fn options_json(&self, sniffed: &Sniffed) -> Vec<u8> {
        let mut members = Vec::new();
        if let Some(server) = &self.server {
            members.push(member("server", &json_string(server.to_bytes())));
        }
        if self.is_program {
            members.push(member("program", b"true"));
        }
        for (name, value) in &sniffed.options {
            let may_be_plain =
                matches!(name.as_str(), "header" | "skip_blank_lines" | "lenient_quotes" | "trailing_delimiter");
            let is_plain = |text: &[u8]| {
                may_be_plain && (matches!(text, b"true" | b"false") || text.iter().all(u8::is_ascii_digit))
            };
            let value = match value {
                OptionValue::Text(text) if is_plain(text) => text.clone(),
                OptionValue::Text(text) => json_string(text),
                OptionValue::List(words) => json_list(words.iter().map(|word| word.to_bytes())),
            };
            members.push(member(name, &value));
        }
        let mut forced = sniffed.columns.iter().filter(|column| column.evidence.wants_force_null()).peekable();
        if forced.peek().is_some() {
            members.push(member("force_null", &json_list(forced.map(|column| column.name.as_slice()))));
        }
        // All columns are named if one of them has options.
        let columns: Vec<Vec<u8>> = sniffed.columns.iter().map(column_json).collect();
        if columns.iter().any(|column| column.first() == Some(&b'{')) {
            members.push(member("columns", &bracketed(b'[', &columns, b']')));
        }
        bracketed(b'{', &members, b'}')
    }
}

/// A column of the options of a load: its name, or an object with its options.
fn column_json(column: &SniffedColumn) -> Vec<u8> {
    let mut members: Vec<_> =
        column.written_options().iter().map(|(name, value)| member(name, &json_string(value))).collect();
    let words = column.evidence.null_words();
    if !words.is_empty() {
        members.push(member("null_if", &json_list(words.iter().map(|word| word.word.as_slice()))));
    }
    if members.is_empty() {
        return json_string(&column.name);
    }
    members.insert(0, member("column", &json_string(&column.name)));
    bracketed(b'{', &members, b'}')
}

/// The name of a table, with or without a schema, quoted for SQL. Guarded.
fn qualified(name: &str, value: &OptionValue) -> Result<Vec<u8>> {
    let Some(given) = SqlValue::text_of(value.one(name)?).datum() else {
        return Err(invalid(format!("{name} must be the name of a table")));
    };
    // SAFETY: guarded calls: a text, and a list of nodes with strings, or an error.
    unsafe {
        let names = pgrx::PgList::<pg_sys::Node>::from_pg(pg_sys::textToQualifiedNameList(given.cast_mut_ptr()));
        // Raises if there are too many parts.
        pg_sys::makeRangeVarFromNameList(names.as_ptr());
        let parts: Vec<_> = names
            .iter_ptr()
            .map(|part| identifier(CStr::from_ptr((*part.cast::<pg_sys::String>()).sval).to_bytes()))
            .collect();
        Ok(parts.join(b".".as_slice()))
    }
}

fn columns_json(sniffed: &Sniffed) -> Vec<u8> {
    let columns: Vec<_> = sniffed
        .columns
        .iter()
        .map(|column| {
            let ruled_out: Vec<_> = column
                .evidence
                .ruled_out()
                .map(|ruled| {
                    let mut members = vec![member("type", &json_string(ruled.of.name().as_bytes()))];
                    if let Some(file) = sniffed.file_of(ruled) {
                        members.push(member("file", &json_string(to_server(&shown(file)).to_bytes())));
                    }
                    members.push(match ruled.place {
                        ValuePosition::Line(line) => member("line", line.to_string().as_bytes()),
                        ValuePosition::Offset(offset) => member("byte_offset", offset.to_string().as_bytes()),
                    });
                    members.push(member("value", &json_string(ruled.value.to_bytes())));
                    bracketed(b'{', &members, b'}')
                })
                .collect();
            let members = [
                member("name", &json_string(&column.name)),
                member("type", &json_string(column.type_name().as_bytes())),
                member("nullable", if column.evidence.is_nullable() { b"true" } else { b"false" }),
                member("ruled_out", &bracketed(b'[', &ruled_out, b']')),
            ];
            bracketed(b'{', &members, b'}')
        })
        .collect();
    bracketed(b'[', &columns, b']')
}

fn member(name: &str, value: &[u8]) -> Vec<u8> {
    [b"\"".as_slice(), name.as_bytes(), b"\": ", value].concat()
}

fn bracketed(open: u8, parts: &[Vec<u8>], close: u8) -> Vec<u8> {
    [&[open], parts.join(b", ".as_slice()).as_slice(), &[close]].concat()
}

/// An array of strings.
fn json_list<'a>(strings: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    bracketed(b'[', &strings.map(json_string).collect::<Vec<_>>(), b']')
}

/// Bytes in the server's encoding, as a string of JSON.
fn json_string(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            0..b' ' => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
    out
}
