//! Opens a worker's rows: those of the file that its leader has open.
//!
//! A worker does not inherit the leader's descriptors, and opens the file by its name. But between the two opens the
//! name may be removed or given to another file, for example by log rotation. A server that reads the file in one
//! process would not notice, so the load must not fail here either: the worker then opens the leader's descriptor
//! instead. A file that has grown counts as the same one, since the part that the leader divides into chunks is
//! unchanged.

use super::Rows;
use crate::error::Result;
use crate::input::file_identity::{Identity, changed};
use crate::input::source::{Descriptor, Location};

/// Open the rows of `file`, which is at `location` and which the leader has open as `leaders`. `open` opens a location;
/// the rows are named after `location` in any case. An error is the one for `location`. Guarded.
pub fn leaders_rows(
    location: &Location,
    leaders: Descriptor,
    file: Identity,
    mut open: impl FnMut(&Location) -> Result<Rows>,
) -> Result<Rows> {
    let is_same = |rows: &Rows| rows.stream().identity().is_some_and(|identity| identity.continues(file));
    let error = match open(location) {
        Ok(rows) if is_same(&rows) => return Ok(rows),
        Ok(mut rows) => {
            rows.close()?;
            changed(&location.display())
        }
        Err(error) => error,
    };
    match open(&leaders.location()) {
        Ok(mut rows) if is_same(&rows) => {
            rows.stream_mut().source_mut().name_it(location);
            rows.name_file();
            Ok(rows)
        }
        Ok(mut rows) => {
            rows.close()?;
            Err(error)
        }
        Err(_) => Err(error),
    }
}
