//! Work that does not concern the line that was read last, so that the CONTEXT of an error does not name that line.

use std::cell::Cell;
use std::rc::Rc;

/// Whether the current work concerns something else than the line that the reader read last. The reader shares it with
/// the code that does such work.
#[derive(Debug, Clone, Default)]
pub struct Elsewhere(Rc<Cell<bool>>);

impl Elsewhere {
    /// Runs `work` on many rows, none of which is the current line. After an error the state remains until
    /// [`Elsewhere::end`], because the CONTEXT of the error is built again.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.set(true);
        let done = work();
        self.0.set(false);
        done
    }

    /// Whether errors do not concern the current line.
    pub fn is_so(&self) -> bool {
        self.0.get()
    }

    /// From now on, errors do not concern the current line.
    pub fn begin(&self) {
        self.0.set(true);
    }

    /// From now on, errors concern the current line again.
    pub fn end(&self) {
        self.0.set(false);
    }
}
