//! ICU's sort keys, for collations of the server that ICU provides.
//!
//! The server has opened the collator, and so has loaded the library; but its functions have the library's version in their
//! names, `ucol_getSortKey_72`, and it need not be the only version that is loaded. So the library is the one that the
//! collator's own methods are in, and its function is looked up by each name that it could have.
//!
//! The tricky point is that the server compares by `ucol_strcollUTF8`, and an index in another order is broken. ICU
//! promises that sort keys have the same order, but does not always keep it. What was found in ICU 72 are strings whose base
//! letters are the same, to collations that look at accents from behind (`fr-CA`) or shift punctuation (`ka-shifted`, `th`): to these
//! there are even strings that go round in circles, each less than the next one.
//! Such collations are left to the server's sort. To all others, neighbours that differ no earlier than in their accents are
//! compared as the server does it, and if it has another opinion of them, it has to build the index.
//!
//! Collations that take different strings for the same, and databases that are not in UTF-8, are left to it, too; so
//! are all if the library or its functions are not found.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::{MaybeUninit, transmute};

use pg_bulk_format::btree::bytes::collator::Collator;
use pgrx::pg_sys;

use super::compat;

/// `ucol_getSortKey`: the length of the key with its zero byte, even if it does not fit.
type GetSortKey = unsafe extern "C" fn(*const c_void, *const u16, i32, *mut u8, i32) -> i32;
/// `ucol_strcollUTF8`: two strings, and where an error is noted.
type Compare = unsafe extern "C" fn(*const c_void, *const c_char, i32, *const c_char, i32, *mut c_int) -> c_int;

/// `ucol_getAttribute`: a setting of a collator, and where an error is noted.
type GetAttribute = unsafe extern "C" fn(*const c_void, c_int, *mut c_int) -> c_int;

/// Settings (UColAttribute, ucol.h) with the value that collations have whose sort keys are to be relied on: UCOL_FRENCH_COLLATION is
/// UCOL_OFF, UCOL_ALTERNATE_HANDLING is UCOL_NON_IGNORABLE.
const PLAIN: [(c_int, c_int); 2] = [(0, 16), (1, 21)];

/// What is between the levels of a sort key, the first of which is that of base letters.
const LEVEL_SEPARATOR: u8 = 1;

/// Versions that ICU may have. Before 49 they were written otherwise.
const VERSIONS: std::ops::Range<u32> = 49..200;

/// A collator of the server's, and how to ask it.
#[derive(Debug)]
pub struct IcuCollator {
    /// The server keeps it as long as the process lives.
    collator: *const c_void,
    get_sort_key: GetSortKey,
    compare: Compare,
    /// The string that is looked at.
    characters: RefCell<Vec<u16>>,
}

impl IcuCollator {
    /// Of a collation. None if its order cannot be had from sort keys. Guarded; looks into the catalogs.
    pub fn of(collation: pg_sys::Oid) -> Option<IcuCollator> {
        // SAFETY: guarded calls.
        let collator = unsafe {
            if pg_sys::GetDatabaseEncoding() != pg_sys::pg_enc::PG_UTF8.cast_signed() {
                return None;
            }
            compat::icu_collator(collation)?
        };
        // SAFETY: a collator of that library, and functions of the types that they have there.
        unsafe {
            let library = Library::of(collator)?;
            let get_sort_key = transmute::<*mut c_void, GetSortKey>(library.function("ucol_getSortKey")?);
            let compare = transmute::<*mut c_void, Compare>(library.function("ucol_strcollUTF8")?);
            let get_attribute = transmute::<*mut c_void, GetAttribute>(library.function("ucol_getAttribute")?);
            let is_plain = PLAIN.iter().all(|&(attribute, wanted)| {
                let mut error = 0;
                get_attribute(collator, attribute, &raw mut error) == wanted && error <= 0
            });
            if !is_plain {
                return None;
            }
            Some(IcuCollator { collator, get_sort_key, compare, characters: RefCell::default() })
        }
    }
}

impl Collator for IcuCollator {
    fn sort_key(&self, string: &[u8], key: &mut [u8]) -> Option<usize> {
        let mut characters = self.characters.try_borrow_mut().ok()?;
        characters.clear();
        if string.is_ascii() {
            characters.extend(string.iter().map(|byte| u16::from(*byte)));
        } else {
            characters.extend(str::from_utf8(string).ok()?.encode_utf16());
        }
        let (count, room) = (i32::try_from(characters.len()).ok()?, i32::try_from(key.len()).ok()?);
        // SAFETY: a collator and a function of the same library; so many characters, and so much room.
        let length = unsafe { (self.get_sort_key)(self.collator, characters.as_ptr(), count, key.as_mut_ptr(), room) };
        // Its end is not wanted.
        usize::try_from(length).ok().filter(|length| *length <= key.len())?.checked_sub(1)
    }

    fn trusted_until(&self) -> u8 {
        LEVEL_SEPARATOR
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Option<Ordering> {
        let (a_length, b_length, mut error) = (i32::try_from(a.len()).ok()?, i32::try_from(b.len()).ok()?, 0);
        let (a, b) = (a.as_ptr().cast(), b.as_ptr().cast());
        // SAFETY: as above; strings of these lengths.
        let order = unsafe { (self.compare)(self.collator, a, a_length, b, b_length, &raw mut error) };
        // What is greater than zero is no warning.
        (error <= 0).then(|| order.cmp(&0))
    }
}

/// A library that is loaded.
struct Library(*mut c_void);

impl Library {
    /// The one whose collator this is.
    ///
    /// # Safety
    /// A collator of ICU.
    unsafe fn of(collator: *const c_void) -> Option<Library> {
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: a collator is an object with virtual methods, which begins with the address of their table. What dladdr
        // has found is a name of the loader's. RTLD_NOLOAD: nothing is loaded.
        unsafe {
            let methods = *collator.cast::<*const c_void>();
            if libc::dladdr(methods, found.as_mut_ptr()) == 0 || found.assume_init().dli_fname.is_null() {
                return None;
            }
            let handle = libc::dlopen(found.assume_init().dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            (!handle.is_null()).then_some(Library(handle))
        }
    }

    /// A function of it, whatever version is in its name.
    fn function(&self, name: &str) -> Option<*mut c_void> {
        let look_up = |name: &CStr| {
            // SAFETY: an open handle and a name.
            let function = unsafe { libc::dlsym(self.0, name.as_ptr()) };
            (!function.is_null()).then_some(function)
        };
        let names = std::iter::once(name.to_owned()).chain(VERSIONS.map(|version| format!("{name}_{version}")));
        names.filter_map(|name| CString::new(name).ok()).find_map(|name| look_up(&name))
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: opened by us. The server itself still has it.
        unsafe { libc::dlclose(self.0) };
    }
}
