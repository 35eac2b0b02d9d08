//! pg_bulk: files into PostgreSQL.
//!
//! ```text
//!   fdw ──► pg ──► format          format: bytes to datums, no server      (src/format, a crate of its own)
//!            │                     pg:     sources, encodings, rows        (raw PostgreSQL)
//!            └──► error, guc       fdw:    the foreign data wrapper
//! ```
//!
//! ARCHITECTURE.md shows the way of a byte through all of it.

mod error;
mod fdw;
mod guc;
#[expect(dead_code, reason = "no function calls it yet")]
mod load;
mod pg;

use pgrx::prelude::*;

::pgrx::pg_module_magic!(name, version);

extension_sql_file!("../sql/fdw.sql", name = "fdw", requires = [fdw::bulk_fdw_handler, fdw::bulk_fdw_validator]);

/// Called by the server when it loads the library.
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    guc::init();
}
