//! Decodes many rows together: a block of them, one column at a time.
//!
//! If native decoders can convert all columns wanted and no row needs work of its own, all records of a batch are
//! decoded at once ([`pg_bulk_types::block`]). [`Rows::advance`] then returns a row of the block, and
//! [`Rows::advance_decoded`] goes to the next one without a guard. A row of the block that has an error or needs the
//! queue is left to [`Rows::decode`], as without a block.
//!
//! The tricky point is how long a block stays valid. It has columns by position, decoders for the session's settings,
//! and batches by the reader's count. So the block is dropped when the columns of the fields change, at another file,
//! at a rescan, and when a setting changes. The caller then asks for a new one.

use pg_bulk_types::block::ColumnForm;
use pg_bulk_types::block::{self, Block, Run};
use pg_bulk_types::convert::Datum;
use pgrx::pg_sys;

use super::session::SessionMark;
use super::{Attention, RowArrays, RowValues, Rows};
use crate::error::{self, Result};
use crate::rows::column::{Column, Taken};
use crate::server::stages::Stage;

const _: () = assert!(size_of::<pg_sys::Datum>() == size_of::<Datum>());

/// The arrays of a row that was decoded together with others.
///
/// # Safety
/// The block stays until the last use of the arrays.
unsafe fn arrays_of(row: block::BlockRow<'_>) -> RowArrays<'static> {
    // SAFETY: the block keeps the addresses of a row, and uses its values only between two rows. A datum is a usize on a
    // 64-bit server.
    unsafe { RowArrays::from_raw(row.values.as_mut_ptr().cast(), row.nulls.as_mut_ptr(), row.nulls.len()) }
}

impl Rows {
    /// From now on, decode rows together if native decoders can convert all columns. Rows have `attributes` attributes,
    /// of which `not_null` must not be NULL. The session's settings for decoders must not change any more.
    pub fn decode_together(&mut self, attributes: usize, not_null: &[usize]) {
        let all = self.all();
        self.decode_some_together(attributes, not_null, &all);
    }

    /// From now on, decode rows together, but only the columns at `wanted`. The other columns are NULL in these rows.
    pub fn decode_some_together(&mut self, attributes: usize, not_null: &[usize], wanted: &[usize]) {
        // The current row may belong to the block that is dropped now: the first row of another file.
        self.values.decoded = None;
        // A block finds a DEFAULT marker only without blanks around it, and finds it in any field.
        if self.layout.parts.is_some()
            || self.layout.binary.is_some()
            // Its records are errors.
            || self.layout.directories.missing.is_some()
            || (self.layout.is_refined && self.layout.default.is_some())
        {
            self.values.block = None;
            return;
        }
        let field = |column: &Column| {
            let attribute = column.attribute;
            let plain =
                !column.force_null && !column.force_not_null && !column.input.wants_null && column.refinement.is_none();
            let decoder = column.decoder.filter(|_| plain)?;
            Some(block::FieldTarget { decoder, attribute, not_null: not_null.contains(&attribute) })
        };
        let is_wanted = |i: usize| wanted.contains(&i);
        let rest = self.layout.columns.iter().enumerate().skip(self.layout.fields);
        let is_nothing = |column: &Column| column.taken == Taken::Null && !column.input.wants_null;
        if rest.clone().any(|(i, column)| is_wanted(i) && !is_nothing(column)) {
            self.values.block = None;
            return;
        }
        let columns = self.layout.columns.iter().enumerate().take(self.layout.fields);
        let fields: Vec<_> = columns.map(|(i, c)| if is_wanted(i) { field(c) } else { None }).collect();
        let complete = fields.iter().enumerate().all(|(i, field)| field.is_some() || !is_wanted(i));
        self.values.block = complete.then(|| Block::new(fields, attributes)).flatten();
    }

    /// The arrays of the current row, if it was decoded together with others: it has no error, and [`Rows::convert`]
    /// has nothing to do. Its values last until the next row is asked for. [`Rows::column_forms`] describes them.
    #[inline]
    pub fn decoded(&self) -> Option<RowArrays<'_>> {
        self.values.decoded
    }

    /// How the values of decoded rows are stored.
    #[inline]
    pub fn column_forms(&self) -> &[ColumnForm] {
        self.values.block.as_ref().map_or(&[], Block::column_forms)
    }

    /// Are there decoded values that [`Rows::make_datums`] must still convert?
    pub fn has_raw(&self) -> bool {
        self.column_forms().contains(&ColumnForm::Raw)
    }

    /// Convert the values of the current row, if it was decoded together with others, that are not datums yet.
    ///
    /// # Safety
    /// This is called once a row, and no attribute of the row that has a field has been set.
    pub unsafe fn make_datums(&mut self) -> Result<()> {
        // SAFETY: it is the only call for this row, whose values are the block's.
        if unsafe { self.has_made_datums() } { Ok(()) } else { Err(error::out_of_memory()) }
    }

    /// Convert like [`Rows::make_datums`], but raise nothing: false if memory is short.
    ///
    /// # Safety
    /// As for [`Rows::make_datums`].
    #[inline]
    pub unsafe fn has_made_datums(&mut self) -> bool {
        let RowValues { block: Some(block), decoded: Some(arrays), .. } = &mut self.values else { return true };
        // SAFETY: the arrays of the block's current row, whose raw values are the block's own; a datum is a usize.
        unsafe { block.make_datums(arrays.values().cast(), arrays.nulls()) }.is_some()
    }

    /// The current record's row, if it is decoded together with others.
    #[inline]
    pub(super) fn row_of_block(&mut self) -> Option<RowArrays<'static>> {
        let row = self.values.block.as_mut()?.row(&self.stream.reader)?;
        // SAFETY: kept as the current row, which goes before the block does.
        Some(unsafe { arrays_of(row) })
    }

    /// The current record's row, with the time of decoding a block added to the stages.
    #[cold]
    pub(super) fn row_of_block_timed(&mut self) -> Option<RowArrays<'static>> {
        let block = self.values.block.as_ref()?;
        if block.has(&self.stream.reader) {
            return self.row_of_block();
        }
        let mut watch = self.stream.stages.watch();
        let row = self.row_of_block();
        self.stream.stages.lap(&mut watch, Stage::Convert);
        row
    }

    /// Go to the next row if it was decoded together with the current one ([`Rows::decoded`]); else false. This raises
    /// nothing and needs no guard.
    #[inline]
    pub fn advance_decoded(&mut self) -> bool {
        let Some(block) = &mut self.values.block else { return false };
        if self.values.session_mark != SessionMark::now() || !block.has_next(&self.stream.reader) {
            return false;
        }
        let _ = self.stream.reader.advance();
        self.rows += 1;
        self.values.queue.clear();
        self.context.attention = Attention::NONE;
        self.values.decoded = self.row_of_block();
        self.values.decoded.is_some()
    }

    /// The current row, which was decoded together with others, and up to `most` - 1 valid rows of the block behind it.
    /// The last of them becomes the current row.
    pub fn run(&mut self, most: usize) -> Option<Run<'_>> {
        let run = self.values.block.as_ref()?.run(&mut self.stream.reader, most)?;
        self.rows += run.rows as u64 - 1;
        Some(run)
    }

    /// Drop the block: the next rows are others than those in it.
    pub fn forget_block(&mut self) {
        (self.values.block, self.values.decoded) = (None, None);
    }
}
