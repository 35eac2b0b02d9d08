//! The functions that an index calls according to its operator classes.

use pgrx::pg_sys;

use super::relation::Relation;

/// BTMaxStrategyNumber (stratnum.h)
const BTREE_STRATEGIES: i16 = 5;

/// Whether `holds` is true for all functions that form and compare the keys of an index. Excludes index expressions and
/// predicates. False if the relation is no index. Guarded.
pub fn all(index: Relation<'_>, mut holds: impl FnMut(pg_sys::Oid) -> bool) -> bool {
    let Some(form) = index.index() else { return false };
    let (method, descriptor) = (index.access_method(), index.descriptor());
    let index = index.as_ptr();
    // SAFETY: an open index has an access method, and an operator family and input type for each key column; guarded
    // calls.
    unsafe {
        let mut holds = |function| function == pg_sys::InvalidOid || holds(function);
        let support = (*(*index).rd_indam).amsupport;
        (1i16..).zip(0..form.keys).all(|(column, place)| {
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
                    let compares = pg_sys::TYPECACHE_CMP_PROC.cast_signed();
                    descriptor.attribute(place).is_some_and(|attribute| {
                        holds((*pg_sys::lookup_type_cache(attribute.atttypid, compares)).cmp_proc)
                    })
                })
        })
    }
}
