//! int4range and int8range in the form in which the server prints them: `[lower,upper)`.
//!
//! A range is a varlena of its type's oid, its bounds, and a byte of flags at the end. Integer ranges have one
//! canonical form, with an inclusive lower bound and an exclusive upper bound. A nonempty range in this form needs no
//! call of the canonical function. All others are left to range_in.

use super::{Datum, integer, oids, varlena};
use crate::arena::Arena;

/// RANGE_LB_INC (rangetypes.h)
const LOWER_INCLUSIVE: u8 = 0x02;

/// int4range
pub(super) fn int4range(field: &[u8], arena: &mut Arena) -> Option<Datum> {
    range(field, oids::INT4RANGE, arena, |bound| Some(integer::int4(bound)? as i32), i32::to_le_bytes)
}

/// int8range
pub(super) fn int8range(field: &[u8], arena: &mut Arena) -> Option<Datum> {
    range(field, oids::INT8RANGE, arena, |bound| Some(integer::int8(bound)? as i64), i64::to_le_bytes)
}

/// Decodes `[a,b)`, where `read` converts a bound and `bytes` has its stored form.
#[inline(always)]
fn range<T: PartialOrd, const N: usize>(
    field: &[u8],
    oid: u32,
    arena: &mut Arena,
    read: impl Fn(&[u8]) -> Option<T>,
    bytes: impl Fn(T) -> [u8; N],
) -> Option<Datum> {
    let [b'[', inner @ .., b')'] = field else { return None };
    let at = inner.iter().position(|&b| b == b',')?;
    let (lower, upper) = (read(inner.get(..at)?)?, read(inner.get(at + 1..)?)?);
    if lower >= upper {
        return None;
    }
    let (datum, body) = varlena::alloc(4 + 2 * N + 1, arena)?;
    let (to_oid, rest) = body.split_first_chunk_mut::<4>()?;
    let (low, rest) = rest.split_first_chunk_mut::<N>()?;
    let (high, rest) = rest.split_first_chunk_mut::<N>()?;
    (*to_oid, *low, *high) = (oid.to_le_bytes(), bytes(lower), bytes(upper));
    rest.fill(LOWER_INCLUSIVE);
    Some(datum)
}

#[cfg(test)]
mod tests {
    use super::super::testing::varlena_bytes;
    use super::*;

    #[test]
    fn as_the_server_keeps_them() {
        let a = &mut Arena::new();
        // SELECT pg_column_size('[714,-1)'::int4range), and range_send.
        let v = varlena_bytes(int4range(b"[-1,714)", a).unwrap());
        let parts: [&[u8]; 5] =
            [&(17u32 << 2).to_le_bytes(), &3904u32.to_le_bytes(), &(-1i32).to_le_bytes(), &714i32.to_le_bytes(), &[2]];
        assert_eq!(v, parts.concat());
        let v = varlena_bytes(int8range(b"[5,10000000000)", a).unwrap());
        let parts: [&[u8]; 5] = [
            &(25u32 << 2).to_le_bytes(),
            &3926u32.to_le_bytes(),
            &5i64.to_le_bytes(),
            &10_000_000_000i64.to_le_bytes(),
            &[2],
        ];
        assert_eq!(v, parts.concat());
    }

    #[test]
    fn others_are_the_servers() {
        let a = &mut Arena::new();
        for t in [
            "", "empty", "[1,2]", "(1,2)", "[1,1)", "[2,1)", "[,2)", "[1,)", "[ 1,2)", "[1,2) ", "[1,2,3)", "[1)", "[)",
        ] {
            assert_eq!(int4range(t.as_bytes(), a), None, "{t}");
            assert_eq!(int8range(t.as_bytes(), a), None, "{t}");
        }
        assert_eq!(int4range(b"[1,2147483648)", a), None);
    }
}
