//! Attributes that no field of the file sets.
//!
//! A constant is evaluated once. The next id of a sequence is taken from a range, reserved for each chunk in the order
//! of the chunks, so that ids ascend as the file does. All else is evaluated for each row, in a plain frame.

use pg_bulk_format::id_range::{IdRange, Position, Rule};
use pgrx::pg_sys;

use crate::error::Result;
use crate::pg::expression;
use crate::pg::row::RowArrays;
use crate::pg::sequence::{Parameters, Sequence};
use crate::pg::sequence_default::SequenceDefault;

/// Most ids that are taken at a time where the number of rows is not known.
const AHEAD: u64 = 4096;

/// An attribute's default. Attributes are counted from 0.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    Constant {
        attribute: usize,
        value: Option<pg_sys::Datum>,
    },
    /// A value that `expands` may be one that who gets it may change in its place.
    Expression {
        attribute: usize,
        state: *mut pg_sys::ExprState,
        expands: bool,
    },
}

#[derive(Debug)]
struct Ids {
    attribute: usize,
    default: SequenceDefault,
    sequence: Sequence,
    range: Option<IdRange>,
    /// Where the sequence would stand if no more had been taken than were used.
    used: Position,
    /// What is left of ranges is given back.
    gives_back: bool,
    /// Chunks are read in order by one process: take more when there are none left.
    refills: bool,
    /// Ids that are taken at a time then.
    ahead: u64,
    /// Rows are looked at again, and get ids that nobody has taken.
    made_up: bool,
}

impl Ids {
    /// Ids as the sequence might give them, however many; and where it stood.
    fn make_up(&self) -> (IdRange, Position) {
        let rule = Rule { cycle: true, ..self.sequence.parameters().rule };
        let is_inside = (rule.min..=rule.max).contains(&self.used.last_value);
        let first = Position { last_value: if rule.increment > 0 { rule.min } else { rule.max }, is_called: false };
        let position = if is_inside { self.used } else { first };
        (IdRange::after(position, &rule, AHEAD), position)
    }
}

/// The defaults of a load.
#[derive(Debug, Default)]
pub struct Defaults {
    pub list: Vec<self::Default>,
    ids: Vec<Ids>,
}

impl Defaults {
    /// Sort out expressions that are ready to run. `sequence` opens the sequence of a default, or finds it opened.
    /// Guarded.
    pub fn new(
        expressions: &[(usize, *mut pg_sys::ExprState)],
        mut sequence: impl FnMut(&SequenceDefault) -> Result<Sequence>,
    ) -> Result<Defaults> {
        let mut defaults = Defaults { list: Vec::new(), ids: Vec::new() };
        for &(attribute, state) in expressions {
            // SAFETY: an expression that ExecInitExpr was given.
            let (node, sequence_default) = unsafe {
                let node = (*state).expr.cast::<pg_sys::Node>();
                (node, SequenceDefault::recognise(node))
            };
            if let Some(default) = sequence_default {
                let sequence = sequence(&default)?;
                let used = Position { last_value: 0, is_called: false };
                defaults.ids.push(Ids {
                    attribute,
                    default,
                    sequence,
                    range: None,
                    used,
                    gives_back: false,
                    refills: true,
                    ahead: AHEAD,
                    made_up: false,
                });
                continue;
            }
            // SAFETY: a node says what it is.
            defaults.list.push(unsafe {
                if (*node).type_ == pg_sys::NodeTag::T_Const {
                    let constant = node.cast::<pg_sys::Const>();
                    let value = (!(*constant).constisnull).then_some((*constant).constvalue);
                    self::Default::Constant { attribute, value }
                } else {
                    let expands = pg_sys::get_typlen(pg_sys::exprType(node)) == -1;
                    self::Default::Expression { attribute, state, expands }
                }
            });
        }
        Ok(defaults)
    }

    /// Must anything be evaluated for each row?
    pub fn evaluates(&self) -> bool {
        self.list.iter().any(|d| matches!(d, self::Default::Expression { .. }))
    }

    /// Does [`Defaults::set`] set anything?
    pub fn sets(&self) -> bool {
        !self.ids.is_empty() || self.list.iter().any(|d| matches!(d, self::Default::Constant { .. }))
    }

    /// The defaults that are evaluated for each row.
    pub fn expressions(&self) -> impl Iterator<Item = *mut pg_sys::ExprState> {
        self.list.iter().filter_map(|default| match default {
            self::Default::Expression { state, .. } => Some(*state),
            self::Default::Constant { .. } => None,
        })
    }

    /// For rows that are looked at again: see [`expression::anew`]. Their ids are made up: what was taken was for other rows, and no more is to
    /// be taken, nor to be given back. Guarded; allocates in the current memory context.
    pub fn renew(&mut self) {
        for ids in &mut self.ids {
            (ids.range, ids.refills, ids.gives_back, ids.made_up) = (None, true, false, true);
        }
        for default in &mut self.list {
            if let self::Default::Expression { state, .. } = default {
                // SAFETY: made by `default_expression`.
                *state = unsafe { expression::anew(*state) };
            }
        }
    }

    /// Are there ids to be taken?
    pub fn takes_ids(&self) -> bool {
        !self.ids.is_empty()
    }

    /// Can other processes take ids of all sequences, too?
    pub fn is_shareable(&self) -> bool {
        self.ids.iter().all(|ids| ids.sequence.is_shareable())
    }

    /// What workers must know of the sequences, in the order of attributes.
    pub fn sequences(&self) -> Vec<Parameters> {
        self.ids.iter().map(|ids| *ids.sequence.parameters()).collect()
    }

    /// Take no more ids than there have been rows, where the number of rows is not known, and give back what is left: an
    /// INSERT of few rows is not to use up a small sequence.
    pub fn be_sparing(&mut self) {
        for ids in &mut self.ids {
            (ids.ahead, ids.gives_back) = (1, true);
        }
    }

    /// Do all sequences have ids for so many rows, should some of them be taken for none? Guarded.
    pub fn have_room(&self, rows: u64) -> Result<bool> {
        for ids in &self.ids {
            if !ids.sequence.has_room(rows)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Ids that were taken are not needed any more. Guarded.
    pub fn give_back(&mut self) -> Result<()> {
        for ids in self.ids.iter_mut().filter(|ids| ids.gives_back) {
            if let Some(range) = ids.range.take() {
                ids.sequence.give_back(&range, ids.used)?;
            }
        }
        Ok(())
    }

    /// Take ids for `rows` rows, which is at least as many as there will be. Guarded.
    pub fn reserve(&mut self, rows: u64) -> Result<()> {
        self.give_back()?;
        for ids in &mut self.ids {
            let (range, position) = ids.sequence.take(rows)?;
            (ids.range, ids.used, ids.refills) = (Some(range), position, false);
        }
        Ok(())
    }

    /// From now on the number of rows is not known. Guarded.
    pub fn refill(&mut self) -> Result<()> {
        self.give_back()?;
        for ids in &mut self.ids {
            ids.refills = true;
            ids.range = None;
        }
        Ok(())
    }

    /// The rows of another file come next. Ids of a range that was taken for so many rows of the last one are left.
    pub fn go_on(&mut self) {
        for ids in self.ids.iter_mut().filter(|ids| !ids.refills) {
            ids.refills = true;
            ids.range = None;
        }
    }

    /// Set the attributes whose defaults are constants or ids. Guarded.
    ///
    /// # Safety
    /// The arrays belong to the relation's descriptor.
    #[inline]
    pub unsafe fn set(&mut self, arrays: RowArrays) -> Result<()> {
        for default in &self.list {
            if let self::Default::Constant { attribute, value } = *default {
                // SAFETY: this function's contract covers the arrays.
                unsafe { arrays.set(attribute, value) };
            }
        }
        for ids in &mut self.ids {
            if ids.refills && ids.range.as_ref().is_none_or(|range| range.left() == 0 && !range.is_short()) {
                let (range, position) = if ids.made_up { ids.make_up() } else { ids.sequence.take(ids.ahead)? };
                (ids.range, ids.used) = (Some(range), position);
                ids.ahead = (ids.ahead * 2).min(AHEAD);
            }
            if let Some(range) = &mut ids.range {
                let id = ids.sequence.next_id(range)?;
                ids.used = Position { last_value: id, is_called: true };
                let value = ids.default.datum(id)?;
                // SAFETY: as above.
                unsafe { arrays.set(ids.attribute, Some(value)) };
            }
        }
        Ok(())
    }
}
