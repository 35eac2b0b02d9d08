//! The types that a type consists of, and the constraints of domains.

use pgrx::{PgList, pg_sys};

use crate::server::node::Node;
use crate::server::relation::TupleDesc;

/// What a type consists of. A type never contains itself.
#[derive(Debug)]
pub enum TypeParts {
    /// A domain over this type.
    Domain(pg_sys::Oid),
    /// A row with columns of these types.
    Composite(Vec<pg_sys::Oid>),
    /// A range of bounds of this type, with the functions that compare bounds and bring ranges into canonical form.
    Range {
        subtype: pg_sys::Oid,
        compare: pg_sys::Oid,
        canonical: Option<pg_sys::Oid>,
    },
    /// A multirange of these ranges.
    Multirange(pg_sys::Oid),
    /// An array with elements of this type.
    Array(pg_sys::Oid),
    Single,
}

impl TypeParts {
    /// Guarded.
    pub fn of(type_oid: pg_sys::Oid) -> TypeParts {
        let given = |oid: pg_sys::Oid| (oid != pg_sys::InvalidOid).then_some(oid);
        // SAFETY: guarded catalog lookups; an entry of the type cache stays.
        unsafe {
            // Walks over the parts are recursive.
            pg_sys::check_stack_depth();
            match pg_sys::get_typtype(type_oid).cast_unsigned() {
                pg_sys::TYPTYPE_DOMAIN => TypeParts::Domain(pg_sys::getBaseType(type_oid)),
                pg_sys::TYPTYPE_COMPOSITE => {
                    TypeParts::Composite(TupleDesc::of_type(type_oid, -1).live().map(|one| one.atttypid).collect())
                }
                pg_sys::TYPTYPE_RANGE => {
                    let entry = &*pg_sys::lookup_type_cache(type_oid, pg_sys::TYPECACHE_RANGE_INFO.cast_signed());
                    let subtype = pg_sys::get_range_subtype(type_oid);
                    let (compare, canonical) = (entry.rng_cmp_proc_finfo.fn_oid, entry.rng_canonical_finfo.fn_oid);
                    TypeParts::Range { subtype, compare, canonical: given(canonical) }
                }
                pg_sys::TYPTYPE_MULTIRANGE => TypeParts::Multirange(pg_sys::get_multirange_range(type_oid)),
                _ => given(pg_sys::get_element_type(type_oid)).map_or(TypeParts::Single, TypeParts::Array),
            }
        }
    }
}

/// The expressions that a domain checks; none for another type. Guarded; they live as long as the current memory
/// context.
pub fn domain_checks(domain: pg_sys::Oid) -> Vec<Node<'static>> {
    // SAFETY: guarded calls. The context's callback points into the reference, which lives as long.
    unsafe {
        let constraints = pg_sys::palloc0(size_of::<pg_sys::DomainConstraintRef>());
        let constraints = constraints.cast::<pg_sys::DomainConstraintRef>();
        pg_sys::InitDomainConstraintRef(domain, constraints, pg_sys::CurrentMemoryContext, false);
        let list = PgList::<pg_sys::DomainConstraintState>::from_pg((*constraints).constraints);
        list.iter_ptr().filter_map(|constraint| Node::from_raw((*constraint).check_expr.cast())).collect()
    }
}
