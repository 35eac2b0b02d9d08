//! Builds indexes from the whole heap after the rows. [`new_files`](super::new_files) chooses them.
//!
//! Several indexes of a relation are built at the same time, each by one process ([`team`]).
//!
//! A build finds equal keys while it sorts, and its error is about creating an index. For the user, a row violates a
//! constraint, so the error is reworded to COPY's.

mod members;
mod team;

use std::ffi::{CStr, CString, c_char};
use std::time::Instant;

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use self::team::Together;
use super::indexes::{Index, Indexes};
use crate::index::strategy::IndexStrategy;
use crate::server::attempt::attempt;
use crate::server::compat;
use crate::server::failure::forget_worker;
use crate::server::original::gettext;
use crate::server::owner::along_safe_path;
use crate::server::points::point_plain;
use crate::server::relation::Relation;
use crate::server::unguarded::{self as c, Opaque};
use crate::server::usage::Cpu;

/// Data for the errors of a build.
#[derive(Debug)]
struct Build {
    relation: pg_sys::Relation,
    index: *const Index,
    persistence: c_char,
    /// The user may see the keys of the table.
    reveals: bool,
}

/// Rebuilds the indexes of the rebuild strategy, with at most `workers` workers. Returns the workers' CPU usage.
///
/// # Safety
/// A plain frame outside of parallel mode. The indexes are closed.
pub unsafe fn run(relation: pg_sys::Relation, indexes: *mut Indexes, workers: usize) -> Cpu {
    // SAFETY: this function's contract covers the frame; nothing in it has a destructor.
    unsafe {
        let persistence = (*(*relation).rd_rel).relpersistence;
        let mut together = Together::new(relation, indexes, workers);
        Together::build(&raw mut together);
        for (number, index) in (*indexes).list.iter_mut().enumerate() {
            if index.strategy != IndexStrategy::Rebuild || together.has(number) {
                continue;
            }
            c::check_for_interrupts();
            let began = Instant::now();
            let mut build = Build { relation, index, persistence, reveals: may_see_keys(relation, index.oid) };
            let build = (&raw mut build).cast::<Build>();
            let error = attempt(|| reindex(build.cast()));
            if !error.is_null() {
                forget_worker(error);
                reword(error, build);
                c::ReThrowError(error);
            }
            index.took += began.elapsed();
        }
        together.cpu
    }
}

/// # Safety
/// A plain frame; a [`Build`].
unsafe extern "C-unwind" fn reindex(build: Opaque) {
    // SAFETY: this function's contract covers the argument.
    unsafe {
        let build = build.cast::<Build>();
        point_plain!("load.rebuild");
        along_safe_path(Relation::from_raw((*build).relation), || {
            compat::reindex_index((*(*build).index).oid, (*build).persistence)
        });
        c::CommandCounterIncrement();
        point_plain!("load.rebuilt");
    }
}

/// May the user see a key that is not unique? The check of BuildIndexValueDescription (genam.c), which during a build
/// checks the table's owner instead.
///
/// # Safety
/// The relation is open, and the index is one of its indexes.
#[pg_guard]
unsafe extern "C-unwind" fn may_see_keys(relation: pg_sys::Relation, index: pg_sys::Oid) -> bool {
    // SAFETY: this function's contract covers the argument; guarded calls. An index has `indnkeyatts` keys, listed
    // first.
    unsafe {
        let (relid, user) = ((*relation).rd_id, pg_sys::GetUserId());
        let enabled = pg_sys::CheckEnableRlsResult::RLS_ENABLED.cast_signed();
        if pg_sys::check_enable_rls(relid, pg_sys::InvalidOid, true) == enabled {
            return false;
        }
        let select = pg_sys::ACL_SELECT as pg_sys::AclMode;
        if pg_sys::pg_class_aclcheck(relid, user, select) == pg_sys::AclResult::ACLCHECK_OK {
            return true;
        }
        let index = pg_sys::index_open(index, pg_sys::AccessShareLock.cast_signed());
        let form = (*index).rd_index;
        let keys = usize::try_from((*form).indnkeyatts).unwrap_or(0);
        let may = (*form).indkey.values.as_slice(keys).iter().all(|&attnum| {
            attnum != 0 && pg_sys::pg_attribute_aclcheck(relid, attnum, user, select) == pg_sys::AclResult::ACLCHECK_OK
        });
        pg_sys::index_close(index, pg_sys::AccessShareLock.cast_signed());
        may
    }
}

/// Rewords a build's error about equal keys to that of an insertion (_bt_check_unique, nbtinsert.c).
///
/// # Safety
/// The error was caught from this build.
#[pg_guard]
unsafe extern "C-unwind" fn reword(error: *mut pg_sys::ErrorData, build: *const Build) {
    // SAFETY: this function's contract covers both arguments. The error's strings are allocated; gettext has the
    // server's own messages, which are formats with one argument.
    unsafe {
        if !is_about(error, build) {
            return;
        }
        let name = (*(*build).index).name.as_bytes();
        let inserted = filled(c"duplicate key value violates unique constraint \"%s\"", name);
        (*error).message = pg_sys::pstrdup(inserted.as_ptr());
        if (*error).detail.is_null() {
            return;
        }
        let detail = CStr::from_ptr((*error).detail).to_bytes();
        let (before, after) = halves(c"Key %s is duplicated.");
        let key = detail.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        (*error).detail = match key {
            Some(key) if (*build).reveals => pg_sys::pstrdup(filled(c"Key %s already exists.", key).as_ptr()),
            _ => std::ptr::null_mut(),
        };
    }
}

/// Is the error that of an index build about equal keys?
///
/// # Safety
/// See [`reword`].
unsafe fn is_about(error: *const pg_sys::ErrorData, build: *const Build) -> bool {
    // SAFETY: see `reword`.
    unsafe {
        if (*error).sqlerrcode != Code::ERRCODE_UNIQUE_VIOLATION as i32 || (*error).message.is_null() {
            return false;
        }
        let built = filled(c"could not create unique index \"%s\"", (*(*build).index).name.as_bytes());
        CStr::from_ptr((*error).message).to_bytes() == built.to_bytes()
    }
}

/// The text before and after the `%s` of a server message, in its language.
fn halves(format: &CStr) -> (&[u8], &[u8]) {
    let words = gettext(format).to_bytes();
    match words.windows(2).position(|two| two == b"%s") {
        Some(at) => (words.get(..at).unwrap_or_default(), words.get(at + 2..).unwrap_or_default()),
        None => (words, b""),
    }
}

fn filled(format: &CStr, value: &[u8]) -> CString {
    let (before, after) = halves(format);
    CString::new([before, value, after].concat()).unwrap_or_default()
}
