//! Files below a directory: what a foreign server with the option `directory` lets its users read.
//!
//! Who has USAGE on such a server may read files below its directory, and needs no right to the server's files for that. So
//! the directory must hold whatever a name says. A name that leads out by itself is refused before anything is looked at, so
//! that nobody learns what is there; where links lead, the open descriptor tells ([`Below::admits`]).
//!
//! **Who grants?** USAGE here is worth a part of pg_read_server_files, so only those who have that role can give it. The owner of
//! a server need not have it any more, or never had; and who grants is not asked. So what counts are grants by roles that have it
//! now, and ownership by such a role.

use std::ffi::{CStr, CString, OsStr, c_int};
use std::fs::{File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use pgrx::{PgList, PgSqlErrorCode as Code, pg_sys};

use super::compat;
use super::encoding::from_server;
use super::source::is_below;
use crate::error::{Error, Result};

/// A file that must be below the directory of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Below {
    pub server: pg_sys::Oid,
    server_name: CString,
    directory: PathBuf,
    /// Where it is; relative names are below the directory.
    pub path: CString,
}

impl Below {
    /// `name` is what the user calls it. Guarded.
    pub fn new(server: pg_sys::Oid, directory: &CStr, name: &CStr) -> Below {
        let directory = PathBuf::from(OsStr::from_bytes(directory.to_bytes()));
        let path = directory.join(OsStr::from_bytes(name.to_bytes()));
        // SAFETY: a guarded catalog lookup.
        let server_name = unsafe { CStr::from_ptr((*pg_sys::GetForeignServer(server)).servername) }.to_owned();
        Below { server, server_name, directory, path: CString::new(path.as_os_str().as_bytes()).unwrap_or_default() }
    }

    /// Does its name stay below the directory, wherever links lead?
    fn is_named_below(&self) -> bool {
        let path = Path::new(OsStr::from_bytes(self.path.to_bytes()));
        let Ok(rest) = path.strip_prefix(&self.directory) else { return false };
        let mut depth = 0_i32;
        rest.components().all(|component| {
            match component {
                Component::Normal(_) => depth += 1,
                Component::ParentDir => depth -= 1,
                _ => (),
            }
            depth >= 0
        })
    }

    /// Complain about a name that leads out. Asked before anything is opened.
    pub fn check_name(&self) -> Result<()> {
        if self.is_named_below() { Ok(()) } else { Err(self.outside()) }
    }

    /// Complain about an open file that is elsewhere.
    pub fn check(&self, fd: c_int) -> Result<()> {
        if self.admits(fd) { Ok(()) } else { Err(self.outside()) }
    }

    /// Is what was opened below the directory?
    pub fn admits(&self, fd: c_int) -> bool {
        self.is_named_below() && is_below(fd, std::slice::from_ref(&self.directory))
    }

    /// What the system knows of the file, if it is below. Nothing is opened that would notice.
    pub fn metadata(&self) -> std::io::Result<Metadata> {
        let none = || std::io::Error::from_raw_os_error(libc::ENOENT);
        if !self.is_named_below() {
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

/// The name of a server's option.
pub const DIRECTORY: &str = "directory";

/// The directory of a server, if it has one. Guarded.
pub fn directory_of(server: pg_sys::Oid) -> Option<CString> {
    // SAFETY: a guarded catalog lookup, and what it returns: nodes with strings.
    unsafe {
        let options = PgList::<pg_sys::DefElem>::from_pg((*pg_sys::GetForeignServer(server)).options);
        let directory = options.iter_ptr().find(|o| CStr::from_ptr((**o).defname).to_bytes() == DIRECTORY.as_bytes());
        directory.map(|option| CStr::from_ptr(pg_sys::defGetString(option)).to_owned())
    }
}

/// A file below the directory of the server of this name, whose wrapper has routines that are `ours`. Guarded.
pub fn file_of(server: &CStr, path: &CStr, ours: unsafe fn(*const pg_sys::FdwRoutine) -> bool) -> Result<Below> {
    // SAFETY: guarded catalog lookups; the routines are valid.
    unsafe {
        let id = (*pg_sys::GetForeignServerByName(server.as_ptr(), false)).serverid;
        let directory = if ours(pg_sys::GetFdwRoutineByServerId(id)) { directory_of(id) } else { None };
        let Some(directory) = directory else {
            let message = format!("server \"{}\" has no directory to load from", from_server(server));
            return Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .hint("Servers of bulk_fdw have one that are given the option \"directory\"."));
        };
        Ok(Below::new(id, &directory, path))
    }
}

/// May this role read any file?
pub fn reads_all(role: pg_sys::Oid) -> bool {
    // SAFETY: a guarded catalog lookup.
    unsafe { pg_sys::has_privs_of_role(role, pg_sys::ROLE_PG_READ_SERVER_FILES.into()) }
}

/// May this role read what is below the server's directory? Guarded.
pub fn check_usage(server: pg_sys::Oid, role: pg_sys::Oid) -> Result<()> {
    compat::check_server_usage(server, role);
    if reads_all(role) || is_granted(server, role) {
        return Ok(());
    }
    // SAFETY: a guarded catalog lookup.
    let name = from_server(unsafe { CStr::from_ptr((*pg_sys::GetForeignServer(server)).servername) });
    let message = format!("permission denied for files of server \"{name}\"");
    let detail = "Only roles with privileges of the \"pg_read_server_files\" role may grant USAGE of a directory.";
    Err(Error::new(Code::ERRCODE_INSUFFICIENT_PRIVILEGE, message).detail(detail))
}

/// Is the role's USAGE from somebody who may read all files?
fn is_granted(server: pg_sys::Oid, role: pg_sys::Oid) -> bool {
    // SAFETY: guarded catalog lookups. The attribute is an array of ACL items, of which pointers into it are made.
    unsafe {
        let owner = (*pg_sys::GetForeignServer(server)).owner;
        if pg_sys::has_privs_of_role(role, owner) && reads_all(owner) {
            return true;
        }
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
                    && (is_public || pg_sys::has_privs_of_role(role, item.ai_grantee))
                    && reads_all(item.ai_grantor);
            }
        }
        pg_sys::ReleaseSysCache(tuple);
        granted
    }
}
