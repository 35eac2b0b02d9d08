//! An aggregate over one column of many rows, with the result of the server's transition function.
//!
//! Only aggregates whose state is a number or two are here. They follow the functions' rules: of two equal values the
//! same one is kept, the sum of no values is NULL, a sum of integers wraps around (`int4_sum` does not check), a sum of
//! floats does not, and floats are added in the order of rows.

use pg_bulk_types::block::Run;
use pg_bulk_types::convert::Datum;
use pgrx::{IntoDatum, pg_sys};

const MIN_OID: u32 = pg_sys::F_MIN_OID.to_u32();
const MAX_OID: u32 = pg_sys::F_MAX_OID.to_u32();

/// The aggregates that a scan computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AggregateKind {
    /// `count(*)`
    Rows,
    /// `count(column)`
    Values,
    Sum(Type),
    /// Of integers only.
    Average(Type),
    Least(Type),
    Greatest(Type),
}

/// The type that decides how values are added or compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Int2,
    /// Also date.
    Int4,
    /// Also time, timestamp and timestamptz.
    Int8,
    Oid,
    Float4,
    Float8,
}

impl AggregateKind {
    /// The aggregate with this function OID. `None` for all other functions, whatever their names.
    pub fn of(function: pg_sys::Oid) -> Option<AggregateKind> {
        use AggregateKind::{Average, Greatest, Least, Rows, Sum, Values};
        use Type::{Float4, Float8, Int2, Int4, Int8, Oid};
        Some(match function.to_u32() {
            pg_sys::F_COUNT_ => Rows,
            pg_sys::F_COUNT_ANY => Values,
            pg_sys::F_SUM_INT2 => Sum(Int2),
            pg_sys::F_SUM_INT4 => Sum(Int4),
            pg_sys::F_SUM_INT8 => Sum(Int8),
            pg_sys::F_SUM_FLOAT4 => Sum(Float4),
            pg_sys::F_SUM_FLOAT8 => Sum(Float8),
            pg_sys::F_AVG_INT2 => Average(Int2),
            pg_sys::F_AVG_INT4 => Average(Int4),
            pg_sys::F_AVG_INT8 => Average(Int8),
            pg_sys::F_MIN_INT2 => Least(Int2),
            pg_sys::F_MIN_INT4 | pg_sys::F_MIN_DATE => Least(Int4),
            pg_sys::F_MIN_INT8 | pg_sys::F_MIN_TIME | pg_sys::F_MIN_TIMESTAMP | pg_sys::F_MIN_TIMESTAMPTZ => {
                Least(Int8)
            }
            MIN_OID => Least(Oid),
            pg_sys::F_MIN_FLOAT4 => Least(Float4),
            pg_sys::F_MIN_FLOAT8 => Least(Float8),
            pg_sys::F_MAX_INT2 => Greatest(Int2),
            pg_sys::F_MAX_INT4 | pg_sys::F_MAX_DATE => Greatest(Int4),
            pg_sys::F_MAX_INT8 | pg_sys::F_MAX_TIME | pg_sys::F_MAX_TIMESTAMP | pg_sys::F_MAX_TIMESTAMPTZ => {
                Greatest(Int8)
            }
            MAX_OID => Greatest(Oid),
            pg_sys::F_MAX_FLOAT4 => Greatest(Float4),
            pg_sys::F_MAX_FLOAT8 => Greatest(Float8),
            _ => return None,
        })
    }

    /// Can core's combining function take the state from several processes? The state of sums of int8 differs between
    /// server versions.
    pub fn has_partial_state(self) -> bool {
        !matches!(self, AggregateKind::Sum(Type::Int8) | AggregateKind::Average(Type::Int8))
    }
}

/// A sum exceeds the range of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow;

/// An aggregate in progress.
#[derive(Debug, Clone)]
pub struct Accumulator {
    kind: AggregateKind,
    /// The attribute that it reads.
    attribute: usize,
    /// Number of values or rows.
    count: i64,
    /// Sum of integers. Core's int8 sums wrap around; wrapping at the end gives the same result.
    sum: i128,
    /// The least or greatest value, or a sum of floats; valid if there is a value.
    value: Datum,
}

/// Visits the values of a column that are not NULL.
#[inline(always)]
fn each(run: &Run<'_>, attribute: usize, mut with: impl FnMut(Datum)) {
    let values = run.values.iter().skip(attribute).step_by(run.attributes);
    let nulls = run.nulls.iter().skip(attribute).step_by(run.attributes);
    for (&value, &null) in values.zip(nulls) {
        if !null {
            with(value);
        }
    }
}

// A datum holds a value in its low bits.
fn int2(datum: Datum) -> i16 {
    datum as i16
}
fn int4(datum: Datum) -> i32 {
    datum as i32
}
fn int8(datum: Datum) -> i64 {
    datum.cast_signed()
}
fn oid(datum: Datum) -> u32 {
    datum as u32
}
fn float4(datum: Datum) -> f32 {
    f32::from_bits(datum as u32)
}
fn float8(datum: Datum) -> f64 {
    f64::from_bits(datum)
}

/// As `float8_gt`: NaN is greater than all other values.
fn is_greater(a: f64, b: f64) -> bool {
    !b.is_nan() && (a.is_nan() || a > b)
}

impl Accumulator {
    pub fn new(kind: AggregateKind, attribute: usize) -> Accumulator {
        Accumulator { kind, attribute, count: 0, sum: 0, value: 0 }
    }

    /// Resets the aggregate.
    pub fn reset(&mut self) {
        *self = Accumulator::new(self.kind, self.attribute);
    }

    /// Adds rows whose values do not matter.
    pub fn add_rows(&mut self, rows: u64) {
        if self.kind == AggregateKind::Rows {
            self.count = self.count.wrapping_add_unsigned(rows);
        }
    }

    /// Adds some rows.
    pub fn add(&mut self, run: &Run<'_>) -> Result<(), Overflow> {
        if self.kind == AggregateKind::Rows {
            self.add_rows(run.rows as u64);
            return Ok(());
        }
        // Attributes after the last one of the file are NULL in every row.
        if self.attribute >= run.attributes {
            return Ok(());
        }
        match self.kind {
            AggregateKind::Rows => (),
            AggregateKind::Values => {
                let mut count = 0;
                each(run, self.attribute, |_| count += 1);
                self.count += count;
            }
            AggregateKind::Sum(Type::Float4) => {
                return self.add_floats(run, |a, b| Self::checked(float4(a), float4(b)));
            }
            AggregateKind::Sum(Type::Float8) => {
                return self.add_floats(run, |a, b| Self::checked_double(float8(a), float8(b)));
            }
            AggregateKind::Sum(Type::Int2) | AggregateKind::Average(Type::Int2) => {
                self.add_integers(run, |d| i64::from(int2(d)))
            }
            AggregateKind::Sum(Type::Int8) | AggregateKind::Average(Type::Int8) => self.add_large_integers(run),
            AggregateKind::Sum(_) | AggregateKind::Average(_) => self.add_integers(run, |d| i64::from(int4(d))),
            AggregateKind::Least(of) => match of {
                Type::Int2 => self.choose(run, |old, new| int2(old) < int2(new)),
                Type::Int4 => self.choose(run, |old, new| int4(old) < int4(new)),
                Type::Int8 => self.choose(run, |old, new| int8(old) < int8(new)),
                Type::Oid => self.choose(run, |old, new| oid(old) < oid(new)),
                Type::Float4 => self.choose(run, |old, new| is_greater(float4(new).into(), float4(old).into())),
                Type::Float8 => self.choose(run, |old, new| is_greater(float8(new), float8(old))),
            },
            AggregateKind::Greatest(of) => match of {
                Type::Int2 => self.choose(run, |old, new| int2(old) > int2(new)),
                Type::Int4 => self.choose(run, |old, new| int4(old) > int4(new)),
                Type::Int8 => self.choose(run, |old, new| int8(old) > int8(new)),
                Type::Oid => self.choose(run, |old, new| oid(old) > oid(new)),
                Type::Float4 => self.choose(run, |old, new| is_greater(float4(old).into(), float4(new).into())),
                Type::Float8 => self.choose(run, |old, new| is_greater(float8(old), float8(new))),
            },
        }
        Ok(())
    }

    #[inline(always)]
    fn add_integers(&mut self, run: &Run<'_>, read: impl Fn(Datum) -> i64) {
        let (mut count, mut sum) = (0, 0i64);
        each(run, self.attribute, |datum| {
            count += 1;
            // A run has too few rows to overflow this sum.
            sum += read(datum);
        });
        self.count += count;
        self.sum += i128::from(sum);
    }

    fn add_large_integers(&mut self, run: &Run<'_>) {
        let (mut count, mut sum) = (0, 0i128);
        each(run, self.attribute, |datum| {
            count += 1;
            sum += i128::from(int8(datum));
        });
        self.count += count;
        self.sum += sum;
    }

    /// Chooses the least or greatest value; `keeps` decides whether the current one stays.
    #[inline(always)]
    fn choose(&mut self, run: &Run<'_>, keeps: impl Fn(Datum, Datum) -> bool) {
        let (mut count, mut chosen) = (self.count, self.value);
        each(run, self.attribute, |datum| {
            if count == 0 || !keeps(chosen, datum) {
                chosen = datum;
            }
            count += 1;
        });
        (self.count, self.value) = (count, chosen);
    }

    fn checked(a: f32, b: f32) -> Option<Datum> {
        let sum = a + b;
        (!sum.is_infinite() || a.is_infinite() || b.is_infinite()).then(|| u64::from(sum.to_bits()))
    }

    fn checked_double(a: f64, b: f64) -> Option<Datum> {
        let sum = a + b;
        (!sum.is_infinite() || a.is_infinite() || b.is_infinite()).then(|| sum.to_bits())
    }

    #[inline(always)]
    fn add_floats(&mut self, run: &Run<'_>, add: impl Fn(Datum, Datum) -> Option<Datum>) -> Result<(), Overflow> {
        let (mut count, mut sum) = (self.count, Some(self.value));
        each(run, self.attribute, |datum| {
            // The first value becomes the state unchanged.
            sum = if count == 0 { Some(datum) } else { sum.and_then(|sum| add(sum, datum)) };
            count += 1;
        });
        (self.count, self.value) = (count, sum.ok_or(Overflow)?);
        Ok(())
    }

    /// The aggregate's value, or with `partial` its state, in the current memory context. Guarded.
    pub fn result(&self, partial: bool) -> Option<pg_sys::Datum> {
        match self.kind {
            AggregateKind::Rows | AggregateKind::Values => self.count.into_datum(),
            // An average has a state even without values.
            AggregateKind::Average(_) if partial => Some(self.count_and_sum()),
            _ if self.count == 0 => None,
            AggregateKind::Average(_) => Some(self.average()),
            AggregateKind::Sum(Type::Int8) => Some(self.sum_as_numeric()),
            // The sum wraps around.
            AggregateKind::Sum(Type::Int2 | Type::Int4) => (self.sum as i64).into_datum(),
            AggregateKind::Sum(_) | AggregateKind::Least(_) | AggregateKind::Greatest(_) => {
                Some(pg_sys::Datum::from(self.value as usize))
            }
        }
    }

    /// Divides as `int8_avg` and `numeric_poly_avg`. Guarded.
    fn average(&self) -> pg_sys::Datum {
        let [divide, numeric] = [pg_sys::F_NUMERIC_DIV, pg_sys::F_NUMERIC_INT8].map(pg_sys::Oid::from_u32);
        let collation = pg_sys::InvalidOid;
        // SAFETY: guarded calls of functions with these arguments.
        unsafe {
            let count = pg_sys::OidFunctionCall1Coll(numeric, collation, self.count.into());
            pg_sys::OidFunctionCall2Coll(divide, collation, self.sum_as_numeric(), count)
        }
    }

    /// The sum as a numeric. Guarded.
    fn sum_as_numeric(&self) -> pg_sys::Datum {
        // An average of shorter integers has a sum of type int8.
        let sum = if self.kind == AggregateKind::Average(Type::Int8) || self.kind == AggregateKind::Sum(Type::Int8) {
            self.sum
        } else {
            i128::from(self.sum as i64)
        };
        let text = std::ffi::CString::new(sum.to_string()).unwrap_or_default();
        // SAFETY: guarded; the arguments of an input function.
        unsafe {
            pg_sys::OidFunctionCall3Coll(
                pg_sys::Oid::from_u32(pg_sys::F_NUMERIC_IN),
                pg_sys::InvalidOid,
                pg_sys::Datum::from(text.as_ptr()),
                pg_sys::Datum::from(pg_sys::InvalidOid),
                pg_sys::Datum::from(-1),
            )
        }
    }

    /// The state of `int4_avg_accum`. Guarded.
    fn count_and_sum(&self) -> pg_sys::Datum {
        let mut both = [self.count, self.sum as i64].map(pg_sys::Datum::from);
        // SAFETY: guarded; two values of a type that is 8 bytes long and passed by value.
        unsafe {
            let align = pg_sys::TYPALIGN_DOUBLE as std::ffi::c_char;
            pg_sys::Datum::from(pg_sys::construct_array(both.as_mut_ptr(), 2, pg_sys::INT8OID, 8, true, align))
        }
    }
}
