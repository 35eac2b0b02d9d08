//! Restricts file names to the directory of a foreign server with the option `directory`.
//!
//! A role that has USAGE on such a server may read files below its directory, without a right to the server's files. So
//! a name must never lead out of the directory. A name that does so, by itself or through symbolic links, is rejected
//! before anything outside is examined: otherwise a user could find out which files exist there. Links are followed one
//! by one ([`Below::follow`]). They may change meanwhile, so the position of the open descriptor decides in the end
//! ([`Below::admits`]).
//!
//! **Grants.** USAGE on such a server includes a part of pg_read_server_files, so only a role with the privileges of
//! pg_read_server_files may grant it. A server's owner may have lost these privileges or never had them, and the server
//! does not check this at GRANT. So pg_bulk accepts grants by roles that have the privileges now, and ownership by such
//! a role.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr, c_int};
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::pattern::without_escapes;
use super::source::is_below;
use crate::error::{Error, Result};
use crate::server::compat;
use crate::server::lookup::{CatalogRow, ForeignServer, owner_of};
use crate::server::node::Node;
use crate::server::role::has_privileges;
use crate::server::server_text::from_server;

/// A file that must be below the directory of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Below {
    pub server: pg_sys::Oid,
    server_name: CString,
    directory: PathBuf,
    /// Path of the file; relative names are below the directory.
    pub path: CString,
}

impl Below {
    /// Creates the path of `name`, as given by the user. Guarded.
    pub fn new(server: pg_sys::Oid, directory: &CStr, name: &CStr) -> Below {
        let directory = PathBuf::from(OsStr::from_bytes(directory.to_bytes()));
        let path = directory.join(OsStr::from_bytes(name.to_bytes()));
        let path = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        Below { server, server_name: ForeignServer::find(server).name, directory, path }
    }

    /// Returns another path below the directory.
    pub fn at(&self, path: &[u8]) -> Below {
        Below { path: CString::new(path).unwrap_or_default(), ..self.clone() }
    }

    /// Returns the server's directory.
    pub fn directory(&self) -> &[u8] {
        self.directory.as_os_str().as_bytes()
    }

    /// Returns the path behind the directory. `None` if the path leads out without links, or contains `..`, whose
    /// meaning depends on links.
    pub fn rest(&self) -> Option<&Path> {
        let rest = Path::new(OsStr::from_bytes(self.path.to_bytes())).strip_prefix(&self.directory).ok()?;
        rest.components().all(|part| part != Component::ParentDir).then_some(rest)
    }

    /// Follows the path and its links without examining anything outside. Returns false if they lead out. A path that
    /// cannot be followed is accepted here, and fails when it is opened.
    fn follow(&self) -> bool {
        let Some(rest) = self.rest() else { return false };
        let Ok(directory) = std::fs::canonicalize(&self.directory) else { return true };
        let mut to_follow = VecDeque::from([rest.to_path_buf()]);
        let (mut at, mut links) = (directory.clone(), 0);
        while let Some(path) = to_follow.pop_front() {
            // A link may contain the directory's name as the server has it, which may itself contain links.
            let below = path.is_absolute().then(|| path.strip_prefix(&self.directory).ok()).flatten();
            if let Some(rest) = below {
                at.clone_from(&directory);
                to_follow.push_front(rest.to_path_buf());
                continue;
            }
            let mut parts = path.components();
            let Some(part) = parts.next() else { continue };
            to_follow.push_front(parts.as_path().to_path_buf());
            match part {
                Component::ParentDir => drop(at.pop()),
                Component::RootDir => at = PathBuf::from("/"),
                Component::CurDir | Component::Prefix(_) => (),
                Component::Normal(name) => {
                    let next = at.join(name);
                    if directory.starts_with(&next) {
                        // A parent of the directory, which contains no links.
                        at = next;
                        continue;
                    }
                    if !next.starts_with(&directory) {
                        return false;
                    }
                    let Ok(meta) = std::fs::symlink_metadata(&next) else { return true };
                    if !meta.is_symlink() {
                        at = next;
                        continue;
                    }
                    links += 1;
                    let Ok(target) = std::fs::read_link(&next) else { return true };
                    if links > MOST_LINKS {
                        return true;
                    }
                    to_follow.push_front(target);
                }
            }
        }
        at.starts_with(&directory)
    }

    /// Fails if the name leads out without links.
    pub fn check_spelling(&self) -> Result<()> {
        if self.rest().is_some() { Ok(()) } else { Err(self.outside()) }
    }

    /// Fails if the pattern leads out without links, with or without its backslashes.
    pub fn check_pattern(&self) -> Result<()> {
        let rest = self.rest().ok_or_else(|| self.outside())?;
        let meant = without_escapes(rest.as_os_str().as_bytes(), false);
        let leads_out = |part| part == Component::ParentDir;
        if Path::new(OsStr::from_bytes(&meant)).components().any(leads_out) { Err(self.outside()) } else { Ok(()) }
    }

    /// Fails if the name leads out. Called before anything is opened.
    pub fn check_name(&self) -> Result<()> {
        if self.follow() { Ok(()) } else { Err(self.outside()) }
    }

    /// Fails if the open file is not below the directory.
    pub fn check(&self, fd: c_int) -> Result<()> {
        if self.admits(fd) { Ok(()) } else { Err(self.outside()) }
    }

    /// Whether the open file is below the directory.
    pub fn admits(&self, fd: c_int) -> bool {
        self.rest().is_some() && is_below(fd, std::slice::from_ref(&self.directory))
    }

    /// Returns the metadata of the file, if it is below. Opens it with O_PATH, which has no effect on a device or FIFO.
    pub fn metadata(&self) -> std::io::Result<Metadata> {
        let none = || std::io::Error::from_raw_os_error(libc::ENOENT);
        if !self.follow() {
            return Err(none());
        }
        let path = Path::new(OsStr::from_bytes(self.path.to_bytes()));
        let file = File::options().read(true).custom_flags(libc::O_PATH).open(path)?;
        if self.admits(file.as_raw_fd()) { file.metadata() } else { Err(none()) }
    }

    fn outside(&self) -> Error {
        let (path, server) = (from_server(&self.path), from_server(&self.server_name));
        let message = format!("file \"{path}\" is not below the directory of server \"{server}\"");
        Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message)
    }
}

/// The system's own limit.
const MOST_LINKS: usize = 40;

/// Name of the server option.
pub const DIRECTORY: &str = "directory";

/// Returns the directory of a server, if it has one. Guarded.
pub fn directory_of(server: pg_sys::Oid) -> Option<CString> {
    let mut options = ForeignServer::find(server).options.into_iter();
    options.find(|(name, _)| name == DIRECTORY).and_then(|(_, directory)| CString::new(directory).ok())
}

/// ClanguageId (pg_language.h).
const C_LANGUAGE: u32 = 13;
/// Name of the C function that is the wrapper's handler.
const HANDLER: &[u8] = b"bulk_fdw_handler_wrapper";

/// Whether a server belongs to the wrapper whose routines are `ours`. Handlers of other wrappers are not called: a
/// wrapper may have none, or its library may be missing. Guarded.
pub fn is_ours(server: pg_sys::Oid, ours: fn(Option<Node<'_, pg_sys::FdwRoutine>>) -> bool) -> bool {
    let wrapper = CatalogRow::<pg_sys::FormData_pg_foreign_data_wrapper>::find(ForeignServer::find(server).wrapper);
    let Some(handler) = wrapper.map(|wrapper| wrapper.fdwhandler) else { return false };
    // The source of a C function is its name in the library.
    let is_handler = |row: CatalogRow<pg_sys::FormData_pg_proc>| {
        row.prolang == pg_sys::Oid::from(C_LANGUAGE) && row.source().is_some_and(|source| source.to_bytes() == HANDLER)
    };
    // SAFETY: a guarded call of a handler, which returns routines.
    CatalogRow::find(handler).is_some_and(is_handler) && ours(unsafe { Node::from_raw(pg_sys::GetFdwRoutine(handler)) })
}

/// Returns a file below the directory of the named server, whose wrapper must have routines that are `ours`. Guarded.
pub fn file_of(server: &CStr, path: &CStr, ours: fn(Option<Node<'_, pg_sys::FdwRoutine>>) -> bool) -> Result<Below> {
    let id = ForeignServer::named(server).oid;
    let Some(directory) = Some(id).filter(|&id| is_ours(id, ours)).and_then(directory_of) else {
        let message = format!("server \"{}\" has no directory to load from", from_server(server));
        return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .hint("Set the option \"directory\" of a server of bulk_fdw."));
    };
    Ok(Below::new(id, &directory, path))
}

/// Whether this role may read any file.
pub fn reads_all(role: pg_sys::Oid) -> bool {
    has_privileges(role, pg_sys::ROLE_PG_READ_SERVER_FILES.into())
}

/// Fails unless this role may read files below the server's directory. Guarded.
pub fn check_usage(server: pg_sys::Oid, role: pg_sys::Oid) -> Result<()> {
    compat::check_server_usage(server, role);
    if reads_all(role) || is_granted(server, role) {
        return Ok(());
    }
    let name = from_server(&ForeignServer::find(server).name);
    let message = format!("permission denied for files of server \"{name}\"");
    let detail = "Only roles with privileges of the \"pg_read_server_files\" role may grant USAGE of a directory.";
    Err(Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message).detail(detail))
}

/// Fails unless the owner of a table may still read files below the server's directory. A role with SELECT on the table
/// reads with the owner's rights. Guarded.
pub fn check_owner(server: pg_sys::Oid, relid: pg_sys::Oid) -> Result<()> {
    owner_of(relid).map_or(Ok(()), |owner| check_usage(server, owner))
}

/// Whether the role has USAGE that was granted by a role with access to all files.
fn is_granted(server: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    let owner = ForeignServer::find(server).owner;
    if has_privileges(role, owner) && reads_all(owner) {
        return true;
    }
    // SAFETY: guarded catalog lookups. The attribute is an array of ACL items, to which the elements point.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::FOREIGNSERVEROID as c_int;
        let tuple = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(server));
        if tuple.is_null() {
            return false;
        }
        let mut is_null = false;
        let attribute = pg_sys::Anum_pg_foreign_server_srvacl as i16;
        let acl = pg_sys::SysCacheGetAttr(cache, tuple, attribute, &raw mut is_null);
        let mut granted = false;
        if !is_null {
            let acl = pg_sys::pg_detoast_datum(acl.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
            let (mut len, mut by_value, mut align) = (0, false, 0);
            pg_sys::get_typlenbyvalalign(pg_sys::ACLITEMOID, &raw mut len, &raw mut by_value, &raw mut align);
            let (mut items, mut count) = (std::ptr::null_mut(), 0);
            let nulls = std::ptr::null_mut();
            let of = pg_sys::ACLITEMOID;
            pg_sys::deconstruct_array(acl, of, len.into(), by_value, align, &raw mut items, nulls, &raw mut count);
            for i in 0..usize::try_from(count).unwrap_or(0) {
                let item = *(*items.add(i)).cast_mut_ptr::<pg_sys::AclItem>();
                let is_public = item.ai_grantee == pg_sys::Oid::from(pg_sys::ACL_ID_PUBLIC);
                granted |= item.ai_privs & pg_sys::AclMode::from(pg_sys::ACL_USAGE) != 0
                    && (is_public || has_privileges(role, item.ai_grantee))
                    && reads_all(item.ai_grantor);
            }
        }
        pg_sys::ReleaseSysCache(tuple);
        granted
    }
}
