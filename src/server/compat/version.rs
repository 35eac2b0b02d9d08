//! The server version that this library is built for.

use pgrx::pg_sys;

/// Major version that this library is built for; other versions refuse to load it.
pub const MAJOR: u32 = pg_sys::PG_VERSION_NUM / 10000;

/// Whether the letters T and Z in a timestamptz can be abbreviations of the session's time zone.
pub const ZONE_LETTERS: bool = MAJOR >= 18;

/// Whether COPY has the option `default`.
pub const COPY_HAS_DEFAULT: bool = MAJOR >= 16;

/// Whether the setting `transaction_timeout` exists.
pub const HAS_TRANSACTION_TIMEOUT: bool = MAJOR >= 17;
