//! Defaults that are the next id of a sequence: serial and identity columns.
//!
//! A load cannot evaluate them row by row (see [`super::sequence`]). So it recognizes them by their expression, and
//! applies the cast around the id itself, which may or may not raise an error.
//!
//! All functions are guarded, except that [`SequenceDefault::datum`] calls nothing of the server and may run anywhere.

use pgrx::{PgSqlErrorCode as Code, pg_sys};

use super::node::Node;
use super::sequence::Sequence;
use crate::error::{Error, Result};

/// The cast from an id to the column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    Int8,
    /// The cast of serial columns, which raises an error.
    Int4Checked,
    Int2Checked,
    /// The conversion of identity columns, which relies on the sequence's own limits and truncates larger ids
    /// (ExecEvalNextValueExpr).
    Int4,
    Int2,
}

/// A column's default that is the next id of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceDefault {
    oid: pg_sys::Oid,
    identity: bool,
    width: Width,
}

impl SequenceDefault {
    /// Recognize a default, as built by build_column_default or planned, that is only the next id.
    ///
    /// - bigserial: `nextval(constant)`;
    /// - serial, smallserial: this call in a cast to integer or smallint;
    /// - identity: NextValueExpr.
    ///
    /// With anything else around it (other casts, domains, expressions) it is another default. The privilege to call
    /// nextval is checked when the expression is initialized.
    pub fn recognise(expression: Node<'_>) -> Option<SequenceDefault> {
        if let Some(next) = expression.as_a::<pg_sys::NextValueExpr>() {
            let width = match next.typeId {
                pg_sys::INT8OID => Width::Int8,
                pg_sys::INT4OID => Width::Int4,
                pg_sys::INT2OID => Width::Int2,
                _ => return None,
            };
            return Some(SequenceDefault { oid: next.seqid, identity: true, width });
        }
        let (width, nextval) = match function_call(expression)? {
            (pg_sys::F_INT4_INT8, argument) => (Width::Int4Checked, argument),
            (pg_sys::F_INT2_INT8, argument) => (Width::Int2Checked, argument),
            _ => (Width::Int8, expression),
        };
        let (pg_sys::F_NEXTVAL, argument) = function_call(nextval)? else { return None };
        let constant = argument.as_a::<pg_sys::Const>()?;
        let oid = pg_sys::Oid::from(u32::try_from(constant.constvalue.value()).ok()?);
        (!constant.constisnull).then_some(SequenceDefault { oid, identity: false, width })
    }

    /// OID of the sequence.
    pub fn sequence(&self) -> pg_sys::Oid {
        self.oid
    }

    /// Open the sequence, and check the privileges that the default needs.
    pub fn open(&self) -> Result<Sequence> {
        Sequence::open(self.oid, !self.identity)
    }

    /// Convert an id to the column's value.
    #[inline]
    pub fn datum(&self, id: i64) -> Result<pg_sys::Datum> {
        let out_of_range = |kind| Error::new(Code::ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE, format!("{kind} out of range"));
        Ok(match self.width {
            Width::Int8 => id.into(),
            Width::Int4Checked => i32::try_from(id).map_err(|_| out_of_range("integer"))?.into(),
            Width::Int2Checked => i16::try_from(id).map_err(|_| out_of_range("smallint"))?.into(),
            Width::Int4 => (id as i32).into(),
            Width::Int2 => (id as i16).into(),
        })
    }
}

/// The OID of the called function and its argument, for a call with one argument.
fn function_call(expression: Node<'_>) -> Option<(u32, Node<'_>)> {
    let call = expression.as_a::<pg_sys::FuncExpr>()?;
    Some((call.funcid.to_u32(), call.args().first().filter(|_| call.args().len() == 1)?))
}
