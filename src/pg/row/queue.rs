//! What the server has to do for a row: input functions and default expressions, in the order of the file.
//!
//! Decoding fills the queue, and its strings, under a guard. [`Rows::convert`] works it off in a plain frame, since that is user code,
//! which may raise anything (see `pg`); `soft` has the twin that survives bad values.

use std::ffi::c_char;

use pgrx::pg_sys;

use super::{Attention, RowArrays, Rows};
use crate::pg::refined::refuse;
use crate::pg::{received, unguarded};

/// A conversion that the server has to do.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Queued {
    pub(in super::super) column: usize,
    pub(in super::super) what: What,
}

#[derive(Debug, Clone, Copy)]
pub(in super::super) enum What {
    /// The string at this place of `strings`.
    Input(usize),
    /// The string at one place, made of the one at another, which is what messages show.
    Made { input: usize, shown: usize },
    /// None can be made of the one at this place: an error.
    Refused(usize),
    /// The binary field at this place of `strings`, of so many bytes.
    Field(usize, usize),
    /// NULL, for an input function that wants to see it.
    Null,
    /// The default expression.
    Default,
}

impl Rows {
    /// Is there something for [`Rows::convert`] to do?
    #[inline]
    pub fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// There is nothing for [`Rows::convert`] to do any more.
    pub fn clear_queue(&mut self) {
        self.queue.clear();
    }

    /// Work the queue off.
    ///
    /// # Safety
    /// A plain frame; `this` is valid and nobody else uses it; `arrays` as in [`Rows::decode`]; `econtext` is valid
    /// if there is a DEFAULT marker. The current memory context is the row's.
    pub unsafe fn convert(this: *mut Rows, arrays: RowArrays, econtext: *mut pg_sys::ExprContext) {
        // SAFETY: this function's contract covers all arguments. A jump out of a call leaves `this` as it is: a valid value, with
        // `attention` set to what the message is to say.
        unsafe {
            let len = (*this).queue.len();
            for at in 0..len {
                let queued = *(*this).queue.as_ptr().add(at);
                let column = (*this).columns.as_mut_ptr().add(queued.column);
                let string: *mut c_char = match queued.what {
                    What::Input(start) | What::Made { input: start, .. } | What::Field(start, _) => {
                        (*this).strings.as_mut_ptr().add(start).cast()
                    }
                    _ => std::ptr::null_mut(),
                };
                let shown = match (queued.what, &(*this).default) {
                    (What::Default, Some(marker)) => marker.as_ptr(),
                    (What::Made { shown, .. } | What::Refused(shown), _) => (*this).strings.as_ptr().add(shown).cast(),
                    (What::Field(..), _) => std::ptr::null(),
                    _ => string.cast_const(),
                };
                (*this).attention = Attention { column: (*column).name.as_ptr(), value: shown };
                let mut is_null = matches!(queued.what, What::Null);
                let datum = match queued.what {
                    What::Default => unguarded::exec_eval_expr((*column).default, econtext, &raw mut is_null),
                    What::Refused(_) => refuse(column, shown),
                    What::Field(_, len) => received::call(column, string, len),
                    _ if (*column).is_received => received::call(column, string, 0),
                    _ => unguarded::InputFunctionCall(
                        &raw mut (*column).input,
                        string,
                        (*column).typioparam,
                        (*column).typmod,
                    ),
                };
                arrays.set((*column).attribute, (!is_null).then_some(datum));
            }
            (*this).attention = Attention::NONE;
        }
    }
}
