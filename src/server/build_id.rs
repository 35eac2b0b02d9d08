//! Identifies the loaded build of this library.
//!
//! If the library file is replaced, a leader may run the old build and a worker the new one. Both would read their
//! shared memory differently, so they compare build ids. The linker stores a hash of its output in a note. This module
//! reads the note from the loaded image, not from the file.

use std::ffi::{c_int, c_void};

use pgrx::PgSqlErrorCode as Code;

use crate::error::{Error, Result};

const NOTE_SIZE: usize = 12;
/// NT_GNU_BUILD_ID (elf.h)
const NT_GNU_BUILD_ID: u32 = 3;

/// Fails unless the process that sent `number` runs the same build as this one.
pub fn check_build(number: u64) -> Result<()> {
    if number == build_id() {
        return Ok(());
    }
    let message = "library pg_bulk was replaced while it was in use";
    Err(Error::new(Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message).hint("Reconnect and try again."))
}

struct Search {
    address: u64,
    found: u64,
}

/// Returns a number for the loaded build of this library; 0 where the linker left no note.
pub fn build_id() -> u64 {
    let own: fn() -> u64 = build_id;
    let mut search = Search { address: own as usize as u64, found: 0 };
    // SAFETY: dl_iterate_phdr passes the pointer on to the callback.
    unsafe { libc::dl_iterate_phdr(Some(look_into), (&raw mut search).cast()) };
    search.found
}

/// # Safety
/// Called by dl_iterate_phdr with a [`Search`].
unsafe extern "C" fn look_into(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader's own description of a loaded image, whose segments are mapped.
    unsafe {
        let search = &mut *search.cast::<Search>();
        let base = (*info).dlpi_addr;
        let headers = std::slice::from_raw_parts((*info).dlpi_phdr, usize::from((*info).dlpi_phnum));
        let covers = |h: &&libc::Elf64_Phdr| {
            h.p_type == libc::PT_LOAD && (base + h.p_vaddr..base + h.p_vaddr + h.p_memsz).contains(&search.address)
        };
        if !headers.iter().any(|h| covers(&h)) {
            return 0;
        }
        for header in headers.iter().filter(|h| h.p_type == libc::PT_NOTE) {
            let len = usize::try_from(header.p_memsz).unwrap_or(0);
            let notes = std::slice::from_raw_parts((base + header.p_vaddr) as *const u8, len);
            search.found = search.found.max(hash_in(notes).unwrap_or(0));
        }
        1
    }
}

/// Finds the build id among the notes, and folds it to a number.
fn hash_in(mut notes: &[u8]) -> Option<u64> {
    loop {
        let (header, rest) = notes.split_at_checked(NOTE_SIZE)?;
        let word = |at: usize| Some(u32::from_ne_bytes(header.get(at..at + 4)?.try_into().ok()?));
        let name_len = usize::try_from(word(0)?).ok()?.next_multiple_of(4);
        let len = usize::try_from(word(4)?).ok()?;
        let kind = word(8)?;
        let (name, rest) = rest.split_at_checked(name_len)?;
        let (hash, rest) = rest.split_at_checked(len.next_multiple_of(4).min(rest.len()))?;
        if kind == NT_GNU_BUILD_ID && name.starts_with(b"GNU") {
            let fold = |sum: u64, byte: &u8| sum.rotate_left(8) ^ u64::from(*byte).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            return Some(hash.iter().fold(1, fold));
        }
        notes = rest;
    }
}
