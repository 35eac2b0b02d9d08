//! ExecutorCheckPerms_hook, which has one more argument from 16 on.

/// Defines a function for ExecutorCheckPerms_hook. It gives the range table to `$hear` in a guard, and then calls the hook
/// that this returns, which is another library's.
macro_rules! rights_hook {
    ($name:ident, $hear:ident) => {
        #[cfg(feature = "pg15")]
        unsafe extern "C-unwind" fn $name(table: *mut pg_sys::List, raises: bool) -> bool {
            // A plain frame: nothing here has a destructor.
            // SAFETY: the server calls the hook with a range table, as it calls the next one.
            unsafe {
                let next =
                    $crate::server::unguarded::guarded(|| $hear($crate::server::node::NodeList::from_raw(table)));
                next.is_none_or(|next| next(table, raises))
            }
        }
        #[cfg(not(feature = "pg15"))]
        unsafe extern "C-unwind" fn $name(table: *mut pg_sys::List, infos: *mut pg_sys::List, raises: bool) -> bool {
            // A plain frame: nothing here has a destructor.
            // SAFETY: the server calls the hook with a range table, as it calls the next one.
            unsafe {
                let next =
                    $crate::server::unguarded::guarded(|| $hear($crate::server::node::NodeList::from_raw(table)));
                next.is_none_or(|next| next(table, infos, raises))
            }
        }
    };
}

pub(crate) use rights_hook;
