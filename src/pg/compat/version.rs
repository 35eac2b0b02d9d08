//! Which version of the server this is built for.

use pgrx::pg_sys;

/// Major version this library was built for; the server refuses to load it into another.
pub const MAJOR: u32 = pg_sys::PG_VERSION_NUM / 10000;

/// Can the letters T and Z be names of the session's time zone, in a timestamptz?
pub const ZONE_LETTERS: bool = MAJOR >= 18;

/// Has COPY the option `default`?
pub const COPY_HAS_DEFAULT: bool = MAJOR >= 16;

/// Is there the setting `transaction_timeout`?
pub const HAS_TRANSACTION_TIMEOUT: bool = MAJOR >= 17;
