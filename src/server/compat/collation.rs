//! Collations: the struct that describes one differs between versions.

use std::ffi::{c_char, c_void};

use pgrx::pg_sys;

use crate::server::unguarded as c;

/// struct pg_locale_struct (pg_locale.h) of a collation that ICU provides.
#[repr(C)]
struct Locale {
    provider: c_char,
    deterministic: bool,
    /// collate_is_c, ctype_is_c
    #[cfg(feature = "pg18")]
    is_c: [bool; 2],
    #[cfg(feature = "pg18")]
    is_default: bool,
    #[cfg(feature = "pg18")]
    methods: *const c_void,
    name: *const c_char,
    collator: *const c_void,
}

/// Returns ICU's collator (UCollator) for a collation; it lives as long as the process. None if the collation has
/// another provider or is not deterministic. Guarded; looks into the catalogs.
pub fn icu_collator(collation: pg_sys::Oid) -> Option<*const c_void> {
    // SAFETY: guarded calls. Null, or a struct that begins with its provider; for ICU it is complete.
    unsafe {
        let locale = c::guard(|| c::pg_newlocale_from_collation(collation)).cast::<Locale>();
        let is_icu = !locale.is_null()
            && (*locale).provider.cast_unsigned() == pg_sys::COLLPROVIDER_ICU
            && (*locale).deterministic;
        is_icu.then(|| (*locale).collator).filter(|collator| !collator.is_null())
    }
}

// SAFETY: looks into the catalogs.
#[cfg(not(feature = "pg18"))]
crate::server::call::calls! {
    /// Whether a collation orders strings by their bytes. Guarded.
    pub fn collates_bytes(collation: pg_sys::Oid) -> bool = lc_collate_is_c(collation) unguarded;
}

/// Whether a collation orders strings by their bytes. Guarded.
#[cfg(feature = "pg18")]
pub fn collates_bytes(collation: pg_sys::Oid) -> bool {
    // SAFETY: looks into the catalogs. Null, or such a struct.
    unsafe { c::guard(|| c::pg_newlocale_from_collation(collation)).cast::<Locale>().as_ref() }
        .is_some_and(|locale| locale.is_c[0])
}
