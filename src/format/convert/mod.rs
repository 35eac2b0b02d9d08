//! Field bytes to datums, for the types that make up most files.
//!
//! Every decoder is *sure or silent*: it returns exactly what PostgreSQL's own input function would, or `None`,
//! and then the caller asks that function: same answer, same error. So a decoder never raises, never guesses, and
//! may be as narrow as it likes; it must only never be wrong.

use crate::arena::Arena;

/// A by-value datum, or the address of a by-reference one in the arena it was built in.
pub type Datum = u64;
