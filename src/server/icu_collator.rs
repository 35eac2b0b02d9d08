//! ICU sort keys, for collations with the provider ICU.
//!
//! The server has opened the collator, so the library is loaded. The names of its functions contain the library's
//! version, as in `ucol_getSortKey_72`, and several versions may be loaded. So this module takes the library that
//! contains the collator's own methods, and tries each possible version in a function's name.
//!
//! The tricky point: the server compares strings with `ucol_strcollUTF8`, and an index in another order is corrupt. ICU
//! promises that sort keys have the same order, but there are exceptions. With ICU 72 they were found for strings with
//! equal base letters, in collations that compare accents backward (`fr-CA`) or shift punctuation (`ka-shifted`, `th`).
//! Some such strings even form cycles in which each is less than the next one. The server's sort is used for these
//! collations. For all others, neighbors with equal base letters are compared again with the server's function. If the
//! results differ, the server builds the index.
//!
//! The server's sort is also used for nondeterministic collations, for databases with another encoding than UTF-8, and
//! if the library or its functions are not found.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::{MaybeUninit, transmute};

use pg_bulk_storage::btree::bytes::collator::Collator;
use pgrx::pg_sys;

use super::compat;
use super::server_text::server_encoding;

/// `ucol_getSortKey`: returns the length of the key with its zero byte, even if it does not fit.
type GetSortKey = unsafe extern "C" fn(*const c_void, *const u16, i32, *mut u8, i32) -> i32;
/// `ucol_strcollUTF8`: compares two strings; the last argument receives an error.
type Compare = unsafe extern "C" fn(*const c_void, *const c_char, i32, *const c_char, i32, *mut c_int) -> c_int;

/// `ucol_getAttribute`: returns a setting of a collator; the last argument receives an error.
type GetAttribute = unsafe extern "C" fn(*const c_void, c_int, *mut c_int) -> c_int;

/// Settings (UColAttribute, ucol.h) and the values that make sort keys reliable: UCOL_FRENCH_COLLATION is UCOL_OFF,
/// UCOL_ALTERNATE_HANDLING is UCOL_NON_IGNORABLE.
const PLAIN: [(c_int, c_int); 2] = [(0, 16), (1, 21)];

/// Separator of the levels of a sort key, the first of which holds base letters.
const LEVEL_SEPARATOR: u8 = 1;

/// Possible versions of ICU. Before 49 they had another form in names.
const VERSIONS: std::ops::Range<u32> = 49..200;

/// A collator of the server, and the functions of its library.
#[derive(Debug)]
pub struct IcuCollator {
    /// The server keeps it as long as the process lives.
    collator: *const c_void,
    get_sort_key: GetSortKey,
    compare: Compare,
    /// The current string in UTF-16.
    characters: RefCell<Vec<u16>>,
}

impl IcuCollator {
    /// Creates it for a collation. None if sort keys cannot replace the collation's order. Guarded; looks into the
    /// catalogs.
    pub fn of(collation: pg_sys::Oid) -> Option<IcuCollator> {
        if server_encoding() != pg_sys::pg_enc::PG_UTF8.cast_signed() {
            return None;
        }
        let collator = compat::icu_collator(collation)?;
        // SAFETY: a collator of that library, and functions of these types.
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
        // SAFETY: a collator and a function of one library; `count` characters and `room` bytes.
        let length = unsafe { (self.get_sort_key)(self.collator, characters.as_ptr(), count, key.as_mut_ptr(), room) };
        // Without the zero byte at its end.
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
        // A value above zero is an error; a negative one is a warning.
        (error <= 0).then(|| order.cmp(&0))
    }
}

/// A loaded library.
struct Library(*mut c_void);

impl Library {
    /// Returns the library that contains the collator's code.
    ///
    /// # Safety
    /// A collator of ICU.
    unsafe fn of(collator: *const c_void) -> Option<Library> {
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: a collator is a C++ object with virtual methods and begins with the address of their table. dladdr
        // returns a name that the loader owns. RTLD_NOLOAD loads nothing.
        unsafe {
            let methods = *collator.cast::<*const c_void>();
            if libc::dladdr(methods, found.as_mut_ptr()) == 0 || found.assume_init().dli_fname.is_null() {
                return None;
            }
            let handle = libc::dlopen(found.assume_init().dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            (!handle.is_null()).then_some(Library(handle))
        }
    }

    /// Returns a function of the library by its name, with any version.
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
        // SAFETY: opened by `of`. The server itself still holds the library.
        unsafe { libc::dlclose(self.0) };
    }
}
