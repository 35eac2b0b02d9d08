//! From one file of a list to the next.
//!
//! To whoever reads rows they are the rows of one file. Records end with their file, whether its last line has an end or not;
//! each has its own header, byte order mark, line ends, compression and line numbers, and messages name it. What was made
//! for the fields of the file before (which column each is for, rows decoded together) is not to be used any more: who
//! keeps such things looks at [`Rows::take_turn`] when it has the next row.

use super::encoding::invalid_in_server_encoding;
use super::row::{Attention, Rows, Turn};
use super::server_text::to_server;
use super::source::Location;
use crate::error::Result;

impl Rows {
    /// Go to the start of a file of the list. Guarded.
    pub fn turn_to(&mut self, number: usize) -> Result<()> {
        pgrx::check_for_interrupts!();
        self.attention = Attention::NONE;
        let opened = self.stream.turn_to(number);
        self.name_file();
        self.note_turn(Turn::File);
        if opened.is_err() {
            // It is about the file and not about the line that was read last.
            self.elsewhere.begin();
        }
        opened
    }

    /// What is decoded from here on is not what was decoded before.
    pub(super) fn note_turn(&mut self, turn: Turn) {
        if self.turned != Some(Turn::File) {
            self.turned = Some(turn);
        }
        self.forget_block();
    }

    /// Has something changed since this was asked last?
    #[inline]
    pub fn take_turn(&mut self) -> Option<Turn> {
        self.turned.take()
    }

    /// Messages, and columns that want to know, name the file that is open.
    pub fn name_file(&mut self) {
        let file = self.stream.files().and_then(|list| list.files.get(self.stream.file_number()));
        let name = match file {
            Some(file) => file.path.as_bytes().to_vec(),
            None => self.stream.source().name().as_bytes().to_vec(),
        };
        if let Some(file) = file {
            self.described = Location::File(file.path.clone()).described();
        }
        // Names are bytes, and a value is text.
        let is_text = invalid_in_server_encoding(&name).is_none();
        let lossy = || to_server(&String::from_utf8_lossy(&name)).into_bytes();
        self.file_name = if is_text { name } else { lossy() };
    }
}
