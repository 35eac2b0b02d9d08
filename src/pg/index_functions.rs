//! The functions that an index calls according to its operator classes.

use pgrx::pg_sys;

use super::compat;

/// BTMaxStrategyNumber (stratnum.h)
const BTREE_STRATEGIES: i16 = 5;

/// Whether `holds` is true for all functions that form and compare the keys of an index. Excludes index expressions and
/// predicates. Guarded.
///
/// # Safety
/// An open index.
pub unsafe fn all(index: pg_sys::Relation, mut holds: impl FnMut(pg_sys::Oid) -> bool) -> bool {
    // SAFETY: this function's contract covers the index; it has an operator family and input type for each key column;
    // guarded calls.
    unsafe {
        let mut holds = |function| function == pg_sys::InvalidOid || holds(function);
        let method = (*(*index).rd_rel).relam;
        let support = (*(*index).rd_indam).amsupport;
        (1..=(*(*index).rd_index).indnkeyatts).all(|column| {
            let place = usize::try_from(column - 1).unwrap_or(0);
            (1..=support).all(|number| holds(pg_sys::index_getprocid(index, column, number)))
                // minmax compares by operators of the family (brin_minmax.c).
                && (method != pg_sys::BRIN_AM_OID || (1..=BTREE_STRATEGIES).all(|strategy| {
                    let (family, of) = (*(*index).rd_opfamily.add(place), *(*index).rd_opcintype.add(place));
                    let operator = pg_sys::get_opfamily_member(family, of, of, strategy);
                    operator == pg_sys::InvalidOid || holds(pg_sys::get_opcode(operator))
                }))
                // Without a compare function in the operator class, GIN uses the one of the key type (initGinState,
                // ginutil.c).
                && (method != pg_sys::GIN_AM_OID || {
                    let of = (*compat::attribute((*index).rd_att, place)).atttypid;
                    let compares = pg_sys::TYPECACHE_CMP_PROC.cast_signed();
                    holds((*pg_sys::lookup_type_cache(of, compares)).cmp_proc)
                })
        })
    }
}
