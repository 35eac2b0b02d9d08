//! Writes the script of CREATE EXTENSION from pgrx's descriptions of the SQL objects, which are a section of the library.
//! `tools/schema` copies that section to a file.
//!
//! Arguments: that file, the control file, the version.

use std::env;
use std::error::Error;
use std::fs;
use std::io;

use pgrx_sql_entity_graph::{ControlFile, PgrxSql, SqlGraphEntity, section};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [descriptions, control, version] = arguments.as_slice() else {
        return Err("usage: pg_bulk-sql DESCRIPTIONS CONTROL VERSION".into());
    };
    let descriptions = fs::read(descriptions)?;
    let root = SqlGraphEntity::ExtensionRoot(ControlFile::from_path_with_cargo_version(control, version)?);
    let entities = section::decode_entities(&descriptions)?;
    let script = PgrxSql::build([root].into_iter().chain(entities), "pg_bulk".to_owned(), false)?;
    Ok(script.write(&mut io::stdout())?)
}
