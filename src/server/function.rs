//! The records of SQL functions (fmgr.h).

/// Defines functions that return the record of a function of version 1, which the server asks for before it calls it.
macro_rules! version_1 {
    ($($record:ident),*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C-unwind" fn $record() -> *const pgrx::pg_sys::Pg_finfo_record {
                static VERSION_1: pgrx::pg_sys::Pg_finfo_record = pgrx::pg_sys::Pg_finfo_record { api_version: 1 };
                &raw const VERSION_1
            }
        )*
    };
}

pub(crate) use version_1;
