//! Rows that are decoded together: a block of them, a column at a time.
//!
//! Where native decoders can do all that is wanted of a row, and nothing has to be done for each row, the records of a batch become
//! rows at once ([`pg_bulk_format::block`]). [`Rows::advance`] then finds the row made, and [`Rows::advance_decoded`] goes to the next
//! one without a guard. A row of the block with which anything is the matter is left to [`Rows::decode`], as if there was no block.
//!
//! The tricky point is how long a block is right. It knows columns by their places, decoders by the session's settings, and batches by
//! the reader's count. So it is forgotten where the fields are for other columns, with another file, at a rescan, and when a setting
//! has changed; whoever wants a new one asks for it.

use pg_bulk_format::block::{self, Block, Run};
use pg_bulk_format::convert::Datum;
use pg_bulk_format::tuple::Source;
use pgrx::pg_sys;

use super::session::SessionMark;
use super::{Attention, RowArrays, Rows};
use crate::error::{self, Result};
use crate::pg::column::{Column, Taken};
use crate::pg::stages::Stage;

const _: () = assert!(size_of::<pg_sys::Datum>() == size_of::<Datum>());

impl RowArrays {
    /// Those of a row that was decoded together with others.
    fn of(row: block::Row<'_>) -> RowArrays {
        // A datum is a usize on a 64-bit server.
        RowArrays { values: row.values.as_mut_ptr().cast(), nulls: row.nulls.as_mut_ptr() }
    }
}

impl Rows {
    /// From now on, decode rows together where all of their columns can be decoded: rows of so many attributes, of which
    /// these must not be NULL. What decoders depend on must not change any more.
    pub fn decode_together(&mut self, attributes: usize, not_null: &[usize]) {
        let all = self.all();
        self.decode_some_together(attributes, not_null, &all);
    }

    /// The same, where only the columns at `wanted` are. Columns that it does not decode are NULL in these rows.
    pub fn decode_some_together(&mut self, attributes: usize, not_null: &[usize], wanted: &[usize]) {
        // The current row may be one of those that go now: the first one of another file.
        self.decoded = None;
        // A block finds the marker for the default where there are no blanks around it, and in all fields.
        if self.parts.is_some() || self.binary.is_some() || (self.is_refined && self.default.is_some()) {
            self.block = None;
            return;
        }
        let field = |column: &Column| {
            let attribute = column.attribute;
            let plain =
                !column.force_null && !column.force_not_null && !column.wants_null && column.refinement.is_none();
            let decoder = column.decoder.filter(|_| plain)?;
            Some(block::Column { decoder, attribute, not_null: not_null.contains(&attribute) })
        };
        let is_wanted = |i: usize| wanted.contains(&i);
        let rest = self.columns.iter().enumerate().skip(self.fields);
        let is_nothing = |column: &Column| column.taken == Taken::Null && !column.wants_null;
        if rest.clone().any(|(i, column)| is_wanted(i) && !is_nothing(column)) {
            self.block = None;
            return;
        }
        let columns = self.columns.iter().enumerate().take(self.fields);
        let fields: Vec<_> = columns.map(|(i, c)| if is_wanted(i) { field(c) } else { None }).collect();
        let complete = fields.iter().enumerate().all(|(i, field)| field.is_some() || !is_wanted(i));
        self.block = complete.then(|| Block::new(fields, attributes)).flatten();
    }

    /// The arrays of the current row, if it was decoded together with others: all is well with it, and there is nothing
    /// left to do for [`Rows::convert`]. Its values stay until the row behind it is asked for; they are what
    /// [`Rows::sources`] says.
    #[inline]
    pub fn decoded(&self) -> Option<RowArrays> {
        self.decoded
    }

    /// What the values of decoded rows are.
    #[inline]
    pub fn sources(&self) -> &[Source] {
        self.block.as_ref().map_or(&[], Block::sources)
    }

    /// Are there values among those decoded together of which [`Rows::make_datums`] makes something?
    pub fn has_raw(&self) -> bool {
        self.sources().contains(&Source::Raw)
    }

    /// Make datums of what is none in the current row, which was decoded together with others.
    ///
    /// # Safety
    /// The arrays are what [`Rows::decoded`] returned, and this is done once a row.
    pub unsafe fn make_datums(&mut self, arrays: RowArrays) -> Result<()> {
        let Some(block) = &mut self.block else { return Ok(()) };
        // SAFETY: this function's contract covers the argument; a datum is a usize.
        unsafe { block.make_datums(arrays.values.cast(), arrays.nulls) }.ok_or_else(error::out_of_memory)
    }

    /// The same, where nothing may be raised: false if there is no memory.
    ///
    /// # Safety
    /// As [`Rows::make_datums`].
    #[inline]
    pub unsafe fn has_made_datums(&mut self, arrays: RowArrays) -> bool {
        let Some(block) = &mut self.block else { return true };
        // SAFETY: this function's contract covers the argument; a datum is a usize.
        unsafe { block.make_datums(arrays.values.cast(), arrays.nulls) }.is_some()
    }

    /// The current record's row, if it is decoded together with others.
    #[inline]
    pub(super) fn row_of_block(&mut self) -> Option<RowArrays> {
        self.block.as_mut()?.row(&self.stream.reader).map(RowArrays::of)
    }

    /// The same, where somebody wants to know the time of what is done for many records at once.
    #[cold]
    pub(super) fn row_of_block_timed(&mut self) -> Option<RowArrays> {
        let block = self.block.as_ref()?;
        if block.has(&self.stream.reader) {
            return self.row_of_block();
        }
        let mut watch = self.stream.stages.watch();
        let row = self.row_of_block();
        self.stream.stages.lap(&mut watch, Stage::Convert);
        row
    }

    /// Go to the next row if that was decoded together with the current one, which takes no more than to say so: it raises
    /// nothing and need not be guarded. The arrays are those of [`Rows::decoded`].
    #[inline]
    pub fn advance_decoded(&mut self) -> Option<RowArrays> {
        let block = self.block.as_mut()?;
        if self.session_mark != SessionMark::now() || !block.has_next(&self.stream.reader) {
            return None;
        }
        let _ = self.stream.reader.advance();
        self.rows += 1;
        self.queue.clear();
        self.attention = Attention::NONE;
        self.decoded = block.row(&self.stream.reader).map(RowArrays::of);
        self.decoded
    }

    /// The current row, which was decoded together with others, and those of them that are behind it, `most` at most: all is
    /// well with them. The last of them is the current one then.
    pub fn run(&mut self, most: usize) -> Option<Run<'_>> {
        let run = self.block.as_ref()?.run(&mut self.stream.reader, most)?;
        self.rows += run.rows as u64 - 1;
        Some(run)
    }

    /// Rows that were decoded together are not the next ones any more.
    pub(in super::super) fn forget_block(&mut self) {
        (self.block, self.decoded) = (None, None);
    }
}
