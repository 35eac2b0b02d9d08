//! The next ids of a sequence: many at once, in the order in which nextval would return them.
//!
//! A load requests as many ids as it may have rows. It may get more ids than rows, or fewer than requested because the
//! sequence ends. Neither is an error yet: nextval fails only for an id that does not exist, and so must a load. A
//! range therefore only reports that it [is short](IdRange::is_short). The caller that needs one more id raises the
//! error.
//!
//! All arithmetic is that of nextval_internal (sequence.c), without its loop. A range is plain data: it can be copied
//! into shared memory.

/// The parameters of a sequence that decide which id comes next.
///
/// `START` does not matter: a cycle restarts at `MINVALUE` or `MAXVALUE`, and a sequence that was never called has
/// `START` as its last value. `CACHE`, the number of ids that a session takes at a time, does not matter either.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// `INCREMENT`; negative in a descending sequence, never 0.
    pub increment: i64,
    /// `MINVALUE`
    pub min: i64,
    /// `MAXVALUE`
    pub max: i64,
    /// `CYCLE`
    pub cycle: bool,
}

impl Rule {
    /// The first id of each further cycle.
    fn start_of_cycle(&self) -> i64 {
        if self.increment > 0 { self.min } else { self.max }
    }

    /// Number of ids after `value` until the sequence or the cycle ends.
    fn behind(&self, value: i64) -> u64 {
        let (value, min, max) = (i128::from(value), i128::from(self.min), i128::from(self.max));
        let room = if self.increment > 0 { max - value } else { value - min };
        // At most 2^64 - 1: both are 64-bit integers.
        let room = u64::try_from(room).unwrap_or(0);
        room.checked_div(self.increment.unsigned_abs()).unwrap_or(0)
    }

    /// Number of ids from `value` on, itself included.
    fn from(&self, value: i64) -> u64 {
        self.behind(value).saturating_add(1)
    }
}

/// The state of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The last id that was returned, or the first one to return if there was none yet.
    pub last_value: i64,
    /// Whether any id was returned.
    pub is_called: bool,
}

/// Ids reserved for one load.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    /// The next id, unless `run` or `left` is 0.
    next: i64,
    increment: i64,
    /// Number of ids from `next` on until the sequence or its cycle ends.
    run: u64,
    /// Ids left in this range.
    left: u64,
    /// The first id of each further cycle, and the number of ids in it.
    start_of_cycle: i64,
    cycle: u64,
    short: bool,
}

impl IdRange {
    /// Returns the next `n` ids of a sequence, or all that it has left. `position` is its state.
    #[must_use]
    pub fn after(position: Position, rule: &Rule, n: u64) -> IdRange {
        let last = position.last_value;
        let (next, run) = if position.is_called {
            (last.wrapping_add(rule.increment), rule.behind(last))
        } else {
            (last, rule.from(last))
        };
        let start_of_cycle = rule.start_of_cycle();
        let left = if rule.cycle { n } else { n.min(run) };
        let cycle = rule.from(start_of_cycle);
        IdRange { next, increment: rule.increment, run, left, start_of_cycle, cycle, short: left < n }
    }

    /// Number of ids left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Whether the sequence ended before the requested number of ids.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.short
    }

    /// The last id of the range: the sequence's last value once all ids are used.
    #[must_use]
    pub fn last_id(&self) -> Option<i64> {
        let steps = self.left.checked_sub(1)?;
        let (from, steps) = match steps.checked_sub(self.run) {
            None => (self.next, steps),
            Some(behind) => (self.start_of_cycle, behind.checked_rem(self.cycle)?),
        };
        // The result is between the sequence's bounds, so the wrapping arithmetic cuts off nothing.
        Some(from.wrapping_add(self.increment.wrapping_mul(steps.cast_signed())))
    }
}

impl Iterator for IdRange {
    type Item = i64;

    #[inline]
    fn next(&mut self) -> Option<i64> {
        self.left = self.left.checked_sub(1)?;
        if self.run == 0 {
            self.next = self.start_of_cycle;
            self.run = self.cycle;
        }
        let id = self.next;
        self.run = self.run.wrapping_sub(1);
        self.next = id.wrapping_add(self.increment);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NEVER_CALLED: bool = false;

    fn rule(increment: i64, min: i64, max: i64, cycle: bool) -> Rule {
        Rule { increment, min, max, cycle }
    }

    fn ids(last_value: i64, is_called: bool, rule: &Rule, n: u64) -> (Vec<i64>, bool) {
        let range = IdRange::after(Position { last_value, is_called }, rule, n);
        (range.collect(), range.is_short())
    }

    /// nextval, one id at a time; `None` where it would raise an error.
    fn nextval(position: &mut Position, rule: &Rule) -> Option<i64> {
        let last = i128::from(position.last_value);
        let id = if position.is_called { last + i128::from(rule.increment) } else { last };
        let (min, max) = (i128::from(rule.min), i128::from(rule.max));
        let id = match (id > max, id < min) {
            (true, _) if rule.cycle => rule.min,
            (_, true) if rule.cycle => rule.max,
            (false, false) => i64::try_from(id).unwrap(),
            _ => return None,
        };
        *position = Position { last_value: id, is_called: true };
        Some(id)
    }

    #[test]
    fn starts_with_the_last_value_if_never_called() {
        let up = rule(1, 1, i64::MAX, false);
        assert_eq!(ids(1, NEVER_CALLED, &up, 3), (vec![1, 2, 3], false));
        assert_eq!(ids(1, true, &up, 3), (vec![2, 3, 4], false));
    }

    #[test]
    fn ends_where_the_sequence_ends() {
        let up = rule(3, 1, 10, false);
        assert_eq!(ids(1, NEVER_CALLED, &up, 4), (vec![1, 4, 7, 10], false));
        assert_eq!(ids(1, NEVER_CALLED, &up, 5), (vec![1, 4, 7, 10], true));
        assert_eq!(ids(10, true, &up, 1), (vec![], true));
        assert_eq!(ids(10, true, &up, 0), (vec![], false));
        let down = rule(-4, -10, -1, false);
        assert_eq!(ids(-1, NEVER_CALLED, &down, 9), (vec![-1, -5, -9], true));
    }

    #[test]
    fn cycles_from_the_other_end() {
        let up = rule(2, 1, 6, true);
        assert_eq!(ids(4, true, &up, 5), (vec![6, 1, 3, 5, 1], false));
        let down = rule(-2, 1, 6, true);
        assert_eq!(ids(4, NEVER_CALLED, &down, 5), (vec![4, 2, 6, 4, 2], false));
        let wide = rule(100, 1, 6, true);
        assert_eq!(ids(4, true, &wide, 3), (vec![1, 1, 1], false));
    }

    #[test]
    fn reaches_the_ends_of_the_type() {
        let all = rule(1, i64::MIN, i64::MAX, true);
        assert_eq!(ids(i64::MAX - 1, true, &all, 3).0, [i64::MAX, i64::MIN, i64::MIN + 1]);
        let leap = rule(i64::MIN, i64::MIN, i64::MAX, false);
        assert_eq!(ids(i64::MAX, NEVER_CALLED, &leap, 9), (vec![i64::MAX, -1], true));
        let half = IdRange::after(Position { last_value: i64::MIN, is_called: NEVER_CALLED }, &all, 1 << 63);
        assert_eq!(half.last_id(), Some(-1));
    }

    /// A number near 0 or the limits of i64, where arithmetic may overflow.
    fn edge() -> impl Strategy<Value = i64> {
        let near = prop_oneof![Just(0), Just(i64::MIN), Just(i64::MAX)];
        (near, -20..=20i64).prop_map(|(place, off)| place.saturating_add(off))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn gives_what_nextval_gives(
            (a, b, at) in (edge(), edge(), edge()),
            increment in edge().prop_filter("never 0", |&n| n != 0),
            (cycle, is_called) in (any::<bool>(), any::<bool>()),
            n in 0..100u64,
        ) {
            let rule = rule(increment, a.min(b), a.max(b), cycle);
            let mut position = Position { last_value: at.clamp(rule.min, rule.max), is_called };
            let range = IdRange::after(position, &rule, n);
            let mut expected = Vec::new();
            while (expected.len() as u64) < n {
                match nextval(&mut position, &rule) {
                    Some(id) => expected.push(id),
                    None => break,
                }
            }
            prop_assert_eq!(range.left(), expected.len() as u64);
            prop_assert_eq!(range.is_short(), (expected.len() as u64) < n);
            prop_assert_eq!(range.last_id(), expected.last().copied());
            prop_assert_eq!(range.collect::<Vec<_>>(), expected);
        }
    }
}
