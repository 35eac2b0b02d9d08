//! A worker's rows: those of the file that its leader has open.
//!
//! A worker has no descriptor of the leader's and opens the file by its name, but a name can be removed, or given to another file, as
//! who rotates logs does, between the leader's opening and the worker's. To a server that reads the file in one process that is nothing, so it is nothing
//! here: then the worker opens what the leader's descriptor stands for. A file that has grown is the same; as far as the leader has taken
//! it for, there is what was there.

use super::Rows;
use crate::error::Result;
use crate::pg::chunk::{Identity, changed};
use crate::pg::source::{Descriptor, Location};

/// The rows of `file`, which is at `location` and which the leader has open as `leaders`. `open` opens what it is told, and describes
/// it as what is at `location`. An error is that of the name. Guarded.
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
