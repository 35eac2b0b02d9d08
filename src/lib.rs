//! pg_bulk: files into PostgreSQL.
//!
//! ```text
//!   queue, takeover ─► load ─┬► index ─► heap ─┬► rows ─► input ─► server ─► crates
//!                      fdw ──┴► program ───────┘
//! ```
//!
//! ARCHITECTURE.md describes the path of a byte through these modules.

// No code reachable from SQL may panic. An operation that cannot fail has a comment that says why.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::todo,
        clippy::unimplemented,
        clippy::indexing_slicing
    )
)]

mod error;
mod fdw;
mod guc;
mod heap;
mod index;
mod input;
mod load;
mod process_utility;
mod program;
mod queue;
mod rows;
mod server;
mod takeover;

use pgrx::prelude::*;

::pgrx::pg_module_magic!(name, version);

extension_sql_file!("../sql/fdw.sql", name = "fdw", requires = [fdw::bulk_fdw_handler, fdw::bulk_fdw_validator]);
extension_sql_file!("../sql/load.sql", name = "load");
extension_sql_file!("../sql/history.sql", name = "history", requires = ["load"]);
extension_sql_file!("../sql/once.sql", name = "once", requires = ["load"]);
extension_sql_file!("../sql/queue.sql", name = "queue", requires = ["load"]);
extension_sql_file!("../sql/rejects.sql", name = "rejects", requires = ["load"]);

/// Called by the server when it loads the library.
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    error::forbid_backtraces();
    guc::init();
    fdw::init();
    load::scan::init();
    load::wrapper::init(load::wrapper::Wrapper {
        owns: fdw::owns,
        file: fdw::file_of,
        filters: fdw::filters,
        columns: fdw::columns_of,
        wanted: fdw::wanted,
        is_replaceable: fdw::is_replaceable,
        replace: fdw::replace,
        count: fdw::count,
    });
    takeover::insert_select::init();
    process_utility::init();
    queue::init();
}
