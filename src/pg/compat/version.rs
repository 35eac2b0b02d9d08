//! Which version of the server this is built for.

use pgrx::pg_sys;

/// Major version this library was built for; the server refuses to load it into another.
pub const MAJOR: u32 = pg_sys::PG_VERSION_NUM / 10000;
