//! How a record of the file becomes a row of the target.

use crate::program::defaults::Defaults;
use crate::program::projection::Projection;
use crate::rows::column::{Column, Taken};
use crate::rows::row::Rows;
use crate::server::slot::ExprContext;

/// The steps from a record's fields to a row.
#[derive(Debug)]
pub struct Recipe {
    /// The columns of the file that are converted when a record is read: all, unless a condition is evaluated first.
    pub(super) wanted: Vec<usize>,
    /// The projection of the file's rows, if they are not stored unchanged.
    pub projection: Option<Projection>,
    /// The context for the values of a record; with a join, one record may have many rows.
    pub fields: ExprContext<'static>,
    pub defaults: Defaults,
    /// Attributes that must not be NULL, counted from 0.
    pub(super) not_null: Vec<usize>,
    /// Those of `not_null` that no field of the file sets.
    pub(super) unset_not_null: Vec<usize>,
}

impl Recipe {
    /// Before the first record, the process [adapts](Recipe::adapt) it to the file.
    pub fn new(projection: Option<Projection>, fields: ExprContext<'static>, defaults: Defaults) -> Recipe {
        Recipe { wanted: Vec::new(), projection, fields, defaults, not_null: Vec::new(), unset_not_null: Vec::new() }
    }

    /// Adapts to the columns of a file, and lets it decode rows of the projection, or of a target with this
    /// number of attributes.
    pub(super) fn adapt(&mut self, rows: &mut Rows, attributes: usize) {
        if let Some(projection) = &mut self.projection {
            projection.fit(rows.columns());
        }
        self.wanted = self.projection.as_ref().map_or_else(|| rows.all(), |projection| projection.first.clone());
        let has_field = |c: &Column| !c.ignored && c.taken == Taken::Field;
        let is_set = |i: &usize| rows.columns().iter().any(|c| has_field(c) && c.attribute == *i);
        self.unset_not_null = self.not_null.iter().copied().filter(|i| !is_set(i)).collect();
        match &self.projection {
            // The row is a row of the foreign table.
            Some(projection) => rows.decode_together(projection.attributes(), &[]),
            None => rows.decode_together(attributes, &self.not_null),
        }
    }
}
