//! File names that match a pattern, as in a shell (glob(7)).
//!
//! glob(3) is not used: it cannot be interrupted in a directory of millions of files, and it would look into
//! directories that are not allowed. A pattern is split at its slashes. A component with `*`, `?` or `[` is compared
//! with the names in the directories that the components before it match. The C library compares (fnmatch(3)). If one
//! of the names is exactly the component, the component means this name only.
//!
//! The component `**` matches any number of directories, also none; as the last component, it also matches the files in
//! them. It does not enter directories through links, so that it ends, and none whose name begins with a dot.

use std::collections::HashSet;
use std::ffi::{CStr, CString, OsStr};
use std::fs::ReadDir;
use std::io::{Error as IoError, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pgrx::PgSqlErrorCode as Code;

use crate::error::{Error, Result};
use crate::server::points::{point_errno, point_quiet};

/// Does a name have a character that makes it a pattern?
pub fn is_pattern(name: &[u8]) -> bool {
    name.iter().any(|byte| b"*?[".contains(byte))
}

/// The component that matches any number of directories.
const ANY_DEPTH: &[u8] = b"**";

/// Opens a directory, to list the names in it.
pub type Open<'a> = dyn Fn(&Path) -> Result<std::io::Result<ReadDir>> + 'a;

/// The paths that match a pattern, in no particular order; some may be there twice. The search begins in the directory `start`; if that is
/// empty, in the working directory or the root. A last component without wildcards is not looked up: that file may not
/// exist. `check_room` is called with the number of paths kept so far. Guarded, and interruptible.
pub fn matches(
    start: &[u8],
    pattern: &[u8],
    open: &Open<'_>,
    check_room: &dyn Fn(usize) -> Result<()>,
) -> Result<Vec<CString>> {
    let mut found = Vec::new();
    // A name that ends in a slash is a directory, and no file.
    if pattern.ends_with(b"/") {
        return Ok(found);
    }
    let parts: Vec<&[u8]> = pattern.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
    // Behind a last `**`.
    let files = [b"*".as_slice()];
    let start = if start.is_empty() && pattern.starts_with(b"/") { b"/" } else { start };
    let mut to_go = vec![(start.to_vec(), parts.as_slice())];
    // The directories from which a `**` was followed, with the number of components: another one may reach them again.
    let mut followed = HashSet::new();
    while let Some((path, parts)) = to_go.pop() {
        pgrx::check_for_interrupts!();
        let Some((part, rest)) = parts.split_first() else {
            found.extend(CString::new(path));
            continue;
        };
        let is_deep = *part == ANY_DEPTH;
        if is_deep {
            if !followed.insert((path.clone(), parts.len())) {
                continue;
            }
            let rest = if rest.is_empty() { &files } else { rest };
            to_go.push((path.clone(), rest));
        } else if !is_pattern(&without_escapes(part, true)) {
            to_go.push((join(&path, &without_escapes(part, false)), rest));
            continue;
        }
        let Ok(pattern) = CString::new(*part) else { continue };
        let directory = if path.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(&path)) };
        let failed = |e: &IoError| {
            Error::file_access(&format!("could not open directory \"{}\"", directory.to_string_lossy()), e)
        };
        let entries = match open(directory)? {
            Ok(entries) => entries,
            // A path that does not exist or is no directory has no matches.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
            Err(e) => return Err(failed(&e)),
        };
        let before = to_go.len();
        for entry in entries {
            point_quiet!("pattern.entry");
            pgrx::check_for_interrupts!();
            let entry = point_errno!("pattern.read").map_or(entry, |errno| Err(IoError::from_raw_os_error(errno)));
            let entry = entry.map_err(|e| failed(&e))?;
            let name = entry.file_name();
            if is_deep {
                let is_directory = match entry.file_type() {
                    Ok(kind) => kind.is_dir(),
                    Err(e) if e.kind() == ErrorKind::NotFound => false,
                    Err(e) => return Err(failed(&e)),
                };
                if is_directory && !name.as_bytes().starts_with(b".") {
                    to_go.push((join(&path, name.as_bytes()), parts));
                }
            } else if name.as_bytes() == *part {
                to_go.truncate(before);
                to_go.push((join(&path, part), rest));
                break;
            } else if does_match(&pattern, &name)? {
                to_go.push((join(&path, name.as_bytes()), rest));
            }
            check_room(found.len() + to_go.len() + followed.len())?;
        }
    }
    Ok(found)
}

/// Does a name in a directory match this component of the pattern?
fn does_match(part: &CStr, name: &OsStr) -> Result<bool> {
    let Ok(c_name) = CString::new(name.as_bytes()) else { return Ok(false) };
    // SAFETY: valid strings.
    let compare = || unsafe { libc::fnmatch(part.as_ptr(), c_name.as_ptr(), libc::FNM_PERIOD) };
    match point_errno!("pattern.match").unwrap_or_else(compare) {
        0 => Ok(true),
        libc::FNM_NOMATCH => Ok(false),
        // Some C libraries fail for bytes that are invalid in the server's locale; memory may also be short.
        _ => {
            let (part, name) = (part.to_string_lossy(), name.to_string_lossy());
            let message = format!("could not compare \"{name}\" with the pattern \"{part}\"");
            Err(Error::new(Code::ERRCODE_SYSTEM_ERROR, message))
        }
    }
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if path.is_empty() || path.ends_with(b"/") { b"" } else { b"/" };
    [path, slash, name].concat()
}

/// A component without its backslashes; with `nor_escaped`, also without the characters that they escape.
pub fn without_escapes(part: &[u8], nor_escaped: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(part.len());
    let mut bytes = part.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => out.extend(bytes.next().filter(|_| !nor_escaped)),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backslashes_take_meanings_away() {
        assert!(is_pattern(&without_escapes(b"a*", true)));
        assert!(!is_pattern(&without_escapes(b"a\\*\\[\\?", true)));
        assert!(is_pattern(&without_escapes(b"\\\\*", true)));
        assert_eq!(without_escapes(b"a\\*\\\\b\\", false), b"a*\\b");
    }
}
