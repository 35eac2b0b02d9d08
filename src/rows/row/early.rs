//! Ends a broken record at the line from which the file is in order again.
//!
//! A quote that is not closed takes the lines behind it into its record, up to the next such quote or the end of the
//! file. With `on_error = table` the record is a reject, and so would be all these lines. So its lines are tried: at the
//! first one that begins two good records, the reject ends, and reading goes on. A good record has the right number of
//! fields, and each of them can be converted.

use pg_bulk_text::reader::{Lines, Value};

use super::{RowArrays, Rows, What};
use crate::error::Result;
use crate::rows::ragged::Remark;
use crate::rows::soft::{Conversion, OnError, Tolerance, Verbosity};
use crate::server::slot::ExprContext;

/// How often the bytes of a broken record may be read in search of good lines.
const MOST_READ: usize = 16;

impl Rows {
    /// The current record has a wrong format or a bad value, and becomes a reject. If it has several lines, and one of them begins two
    /// good records, end it there. `arrays` and `econtext` are those of rows; the record's own values are lost. Returns
    /// the length of the record if it ended early. Guarded, and interruptible.
    #[cold]
    pub fn end_early(&mut self, arrays: RowArrays<'_>, econtext: ExprContext<'_>) -> Result<Option<usize>> {
        let is_file = self.stream.source().file_size().is_some();
        let Some(lines) = self.stream.reader.lines_of_record().filter(|_| is_file) else { return Ok(None) };
        let wanted = self.all();
        let ragged = self.ragged;
        let (mut line, mut end, mut count) = (None, None, 1);
        // A line with a quote may be read up to the record's end, so not all lines of a long record are tried.
        let most = MOST_READ * self.reader().record_len();
        // The lines of a value belong to it: a record whose quotes are in order stays whole.
        let mut left = if self.has_orderly_quotes() { 0 } else { most };
        loop {
            pgrx::check_for_interrupts!();
            line = self.stream.reader.line_behind(&lines, line);
            let Some(at) = line else { break };
            if left > 0
                && let Some(next) = self.is_good(&lines, at, &wanted, arrays, econtext, &mut left)?
                && self.is_good(&lines, next, &wanted, arrays, econtext, &mut left)?.is_some()
            {
                end = line;
                break;
            }
            count += 1;
        }
        self.ragged = ragged;
        self.stream.reader.end_early(&lines, end);
        if end.is_some() {
            self.remark(Remark::EndedEarly, 1);
        }
        if count > 1 {
            self.remark(Remark::Swallowed, count);
        }
        Ok(end.map(|_| self.reader().record_len()))
    }

    /// Has the current record the right number of fields, and quotes at both ends of fields only?
    fn has_orderly_quotes(&mut self) -> bool {
        let (reader, unescaped) = (&self.stream.reader, &mut self.values.unescaped);
        let mut is_stray = |field| {
            unescaped.clear();
            matches!(reader.value(field), Value::Escaped(raw) if reader.unescape(raw, unescaped))
        };
        let fields = reader.fields();
        fields == self.layout.fields && !(0..fields).any(&mut is_stray)
    }

    /// Do the bytes at a line's start make a good record? Returns the start of the next one. DEFAULT markers are not
    /// evaluated: this may have effects.
    fn is_good(
        &mut self,
        lines: &Lines,
        at: usize,
        wanted: &[usize],
        arrays: RowArrays<'_>,
        econtext: ExprContext<'_>,
        left: &mut usize,
    ) -> Result<Option<usize>> {
        let fields = self.layout.fields;
        let Some(next) = self.stream.reader.try_record(lines, at, fields, left) else { return Ok(None) };
        if self.layout.is_checked && self.check_record(fields).is_err() {
            return Ok(None);
        }
        self.reset();
        self.decode(wanted, arrays);
        self.values.queue.retain(|queued| !matches!(queued.what, What::Default));
        let mut tolerance = Tolerance {
            on_error: OnError::Table,
            verbosity: Verbosity::Silent,
            reject_limit: None,
            rejects_short: false,
            rejects_long: false,
            bad_rows: 0,
            bad_value: None,
        };
        let converted = econtext.within(|| self.convert_softly(&mut tolerance, arrays, econtext))?;
        self.clear_queue();
        // SAFETY: the values are not used.
        unsafe { econtext.reset() };
        Ok((converted == Conversion::Good).then_some(next))
    }
}
