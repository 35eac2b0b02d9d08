//! Switches from one file of a list to the next.
//!
//! Callers read the rows of all files as if they were one file. But a record ends with its file, whether the last line
//! has a line end or not. Each file has its own header, byte order mark, line ends, compression and line numbers, and
//! messages name it. State that depends on the fields of the previous file becomes invalid: the column of each field,
//! and rows decoded together. A caller that keeps such state checks [`Rows::take_change`] at the next row.

use super::row::{Attention, Rows};
use crate::error::Result;
use crate::input::encoding::invalid_in_server_encoding;
use crate::input::source::Location;
use crate::server::server_text::to_server;

impl Rows {
    /// Go to the start of a file of the list. Guarded.
    pub fn switch_to_file(&mut self, number: usize) -> Result<()> {
        pgrx::check_for_interrupts!();
        self.context.attention = Attention::NONE;
        let opened = self.stream.switch_to_file(number);
        self.name_file();
        self.note_change();
        if opened.is_err() {
            // The error concerns the file, and not the line that was read last.
            self.context.elsewhere.begin();
        }
        opened
    }

    /// Note that the columns or the file have changed, which makes state for earlier rows invalid.
    pub fn note_change(&mut self) {
        self.has_changed = true;
        self.forget_block();
    }

    /// Have the columns or the file changed since the last call?
    #[inline]
    pub fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Set the name of the open file for messages, and for columns that need it.
    pub fn name_file(&mut self) {
        let file = self.stream.files().and_then(|list| list.files.get(self.stream.file_number()));
        let name = match file {
            Some(file) => file.path.as_bytes().to_vec(),
            None => self.stream.source().name().as_bytes().to_vec(),
        };
        if let Some(file) = file {
            self.context.described = Location::File(file.path.clone()).described();
        }
        // File names are bytes, and a value is text.
        let is_text = invalid_in_server_encoding(&name).is_none();
        let lossy = || to_server(&String::from_utf8_lossy(&name)).into_bytes();
        self.file_name = if is_text { name } else { lossy() };
        self.find_directories();
    }
}
