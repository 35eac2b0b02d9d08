//! Attributes that no field of the file sets.
//!
//! A constant is evaluated once. Ids of a sequence are taken from a range that is reserved for each chunk in the order
//! of the chunks, so that ids ascend in file order. Any other default is evaluated for each row, in a plain frame.

use pg_bulk_storage::id_range::{IdRange, Position, Rule};
use pgrx::pg_sys;

use crate::error::Result;
use crate::rows::row::RowArrays;
use crate::server::expression::{Expression, expands};
use crate::server::sequence::{Parameters, Sequence};
use crate::server::sequence_default::SequenceDefault;

/// Most ids taken at a time when the number of rows is unknown.
const AHEAD: u64 = 4096;

/// An attribute's default. Attributes are counted from 0.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    Constant {
        attribute: usize,
        value: Option<pg_sys::Datum>,
    },
    /// `expands`: the value may be an expanded object, and is passed on read-only.
    Expression {
        attribute: usize,
        state: Expression,
        expands: bool,
    },
}

#[derive(Debug)]
struct Ids {
    attribute: usize,
    default: SequenceDefault,
    sequence: Sequence,
    range: Option<IdRange>,
    /// The sequence's position if only the used ids had been taken.
    used: Position,
    /// Unused ids of a range are given back.
    gives_back: bool,
    /// One process reads the chunks in order: further ids are taken when the range is used up.
    refills: bool,
    /// Number of ids to take then.
    ahead: u64,
    /// Rows are read again, with ids that are not taken from the sequence.
    made_up: bool,
}

impl Ids {
    /// Any number of ids within the sequence's bounds, and the sequence's position.
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
    /// Sorts the expressions, which are ready to run, by kind of default. `sequence` opens the sequence of a default or
    /// returns an open one. Guarded.
    pub fn new(
        expressions: &[(usize, Expression)],
        mut sequence: impl FnMut(&SequenceDefault) -> Result<Sequence>,
    ) -> Result<Defaults> {
        let mut defaults = Defaults { list: Vec::new(), ids: Vec::new() };
        for &(attribute, state) in expressions {
            let Some(node) = state.node() else { continue };
            if let Some(default) = SequenceDefault::recognise(node) {
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
            defaults.list.push(if let Some(constant) = node.as_a::<pg_sys::Const>() {
                let value = (!constant.constisnull).then_some(constant.constvalue);
                self::Default::Constant { attribute, value }
            } else {
                self::Default::Expression { attribute, state, expands: expands(node) }
            });
        }
        Ok(defaults)
    }

    /// Does each row need an evaluated default?
    pub fn evaluates(&self) -> bool {
        self.list.iter().any(|d| matches!(d, self::Default::Expression { .. }))
    }

    /// Does [`Defaults::set`] set any attribute?
    pub fn sets(&self) -> bool {
        !self.ids.is_empty() || self.list.iter().any(|d| matches!(d, self::Default::Constant { .. }))
    }

    /// The defaults that are evaluated for each row.
    pub fn expressions(&self) -> impl Iterator<Item = Expression> {
        self.list.iter().filter_map(|default| match default {
            self::Default::Expression { state, .. } => Some(*state),
            self::Default::Constant { .. } => None,
        })
    }

    /// Prepares for rows that are read again: see [`Expression::renew`].
    ///
    /// Their ids are made up, because the taken ids belong to the rows of the first reading. No further id is taken or
    /// given back. Guarded; allocates in the current memory context.
    pub fn renew(&mut self) {
        for ids in &mut self.ids {
            (ids.range, ids.refills, ids.gives_back, ids.made_up) = (None, true, false, true);
        }
        for default in &mut self.list {
            if let self::Default::Expression { state, .. } = default {
                state.renew();
            }
        }
    }

    /// Does the load take ids from sequences?
    pub fn takes_ids(&self) -> bool {
        !self.ids.is_empty()
    }

    /// Can other processes take ids of all sequences, too?
    pub fn is_shareable(&self) -> bool {
        self.ids.iter().all(|ids| ids.sequence.is_shareable())
    }

    /// The parameters of the sequences for workers, in the order of attributes.
    pub fn sequences(&self) -> Vec<Parameters> {
        self.ids.iter().map(|ids| *ids.sequence.parameters()).collect()
    }

    /// When the number of rows is unknown, takes only as many ids as there were rows, and gives unused ids back. So an
    /// INSERT of few rows does not use up a small sequence.
    pub fn be_sparing(&mut self) {
        for ids in &mut self.ids {
            (ids.ahead, ids.gives_back) = (1, true);
        }
    }

    /// Do all sequences have ids for `rows` rows, even if some ids stay unused? Guarded.
    pub fn have_room(&self, rows: u64) -> Result<bool> {
        for ids in &self.ids {
            if !ids.sequence.has_room(rows)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives unused ids back. Guarded.
    pub fn give_back(&mut self) -> Result<()> {
        for ids in self.ids.iter_mut().filter(|ids| ids.gives_back) {
            if let Some(range) = ids.range.take() {
                ids.sequence.give_back(&range, ids.used)?;
            }
        }
        Ok(())
    }

    /// Takes ids for `rows` rows, an upper bound of the rows of the chunk. Guarded.
    pub fn reserve(&mut self, rows: u64) -> Result<()> {
        self.give_back()?;
        for ids in &mut self.ids {
            let (range, position) = ids.sequence.take(rows)?;
            (ids.range, ids.used, ids.refills) = (Some(range), position, false);
        }
        Ok(())
    }

    /// Switches to an unknown number of rows. Guarded.
    pub fn refill(&mut self) -> Result<()> {
        self.give_back()?;
        for ids in &mut self.ids {
            ids.refills = true;
            ids.range = None;
        }
        Ok(())
    }

    /// Goes on with the rows of another file. Unused ids of a range for the file before are lost.
    pub fn go_on(&mut self) {
        for ids in self.ids.iter_mut().filter(|ids| !ids.refills) {
            ids.refills = true;
            ids.range = None;
        }
    }

    /// Sets the attributes whose defaults are constants or ids. Guarded.
    #[inline]
    pub fn set(&mut self, arrays: RowArrays<'_>) -> Result<()> {
        for default in &self.list {
            if let self::Default::Constant { attribute, value } = *default {
                arrays.set(attribute, value);
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
                arrays.set(ids.attribute, Some(value));
            }
        }
        Ok(())
    }
}
