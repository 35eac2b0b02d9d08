//! The queue of a row: input functions and default expressions that the server runs, in the order of the file.
//!
//! Decoding fills the queue and its strings under a guard. [`Rows::convert`] runs it in a plain frame, because input
//! functions are user code and may raise any error (see `server`). `soft` has the counterpart that survives bad values.

pub mod received;
pub mod refined;

use std::ffi::c_char;

use pgrx::pg_sys;

use self::refined::refuse;
use super::{Attention, RowArrays, Rows};
use crate::server::unguarded;

/// A conversion by the server.
#[derive(Debug, Clone, Copy)]
pub struct Queued {
    pub column: usize,
    pub what: What,
}

#[derive(Debug, Clone, Copy)]
pub enum What {
    /// The string at this offset of `strings`.
    Input(usize),
    /// The refined string at `input`; messages show the original one at `shown`.
    Made { input: usize, shown: usize },
    /// The string at this offset has no refined form: an error.
    Refused(usize),
    /// The binary field at this offset of `strings`, and its length in bytes.
    Field(usize, usize),
    /// NULL, for an input function that is not strict.
    Null,
    /// The default expression.
    Default,
}

impl Rows {
    /// Does [`Rows::convert`] have something to do?
    #[inline]
    pub fn has_queue(&self) -> bool {
        !self.values.queue.is_empty()
    }

    /// Empty the queue.
    pub fn clear_queue(&mut self) {
        self.values.queue.clear();
    }

    /// Run the queue.
    ///
    /// # Safety
    /// A plain frame; `this` is valid and not used elsewhere; `arrays` as in [`Rows::decode`]; `econtext` is valid if
    /// there is a DEFAULT marker. The current memory context is the row's.
    pub unsafe fn convert(this: *mut Rows, arrays: RowArrays<'_>, econtext: *mut pg_sys::ExprContext) {
        // SAFETY: this function's contract covers all arguments. A jump out of a call leaves `this` a valid value, with
        // `attention` set for the message.
        unsafe {
            let len = (*this).values.queue.len();
            for at in 0..len {
                let queued = *(*this).values.queue.as_ptr().add(at);
                let column = (*this).layout.columns.as_mut_ptr().add(queued.column);
                let string: *mut c_char = match queued.what {
                    What::Input(start) | What::Made { input: start, .. } | What::Field(start, _) => {
                        (*this).values.strings.as_mut_ptr().add(start).cast()
                    }
                    _ => std::ptr::null_mut(),
                };
                let shown = match (queued.what, &(*this).layout.default) {
                    (What::Default, Some(marker)) => marker.as_ptr(),
                    (What::Made { shown, .. } | What::Refused(shown), _) => {
                        (*this).values.strings.as_ptr().add(shown).cast()
                    }
                    (What::Field(..), _) => std::ptr::null(),
                    _ => string.cast_const(),
                };
                (*this).context.attention = Attention { column: (*column).name.as_ptr(), value: shown };
                let mut is_null = matches!(queued.what, What::Null);
                let datum = match queued.what {
                    What::Default => {
                        let value = (*column).default.and_then(|default| default.value(econtext));
                        is_null = value.is_none();
                        value.unwrap_or(pg_sys::Datum::from(0usize))
                    }
                    What::Refused(_) => refuse(column, shown),
                    What::Field(_, len) => received::call(column, string, len),
                    _ if (*column).input.is_receive => received::call(column, string, 0),
                    _ => unguarded::InputFunctionCall(
                        &raw mut (*column).input.function,
                        string,
                        (*column).input.typioparam,
                        (*column).input.typmod,
                    ),
                };
                arrays.set((*column).attribute, (!is_null).then_some(datum));
            }
            (*this).context.attention = Attention::NONE;
        }
    }
}
