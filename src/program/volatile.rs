//! Functions that may look at the table, or write to it, while it is being loaded.
//!
//! The input is expressions, types, indexes and partition keys of a load; the output is the calls that keep rows out of
//! the direct writer.
//!
//! COPY inserts row by row where a default or its WHERE condition calls a volatile function: the function may query the
//! table and must find the earlier rows. No query finds rows on pages that are still being built. A few volatile
//! functions of the server read no state of the table. Every other one may read a table (query_to_xml), its file
//! (pg_relation_size) or the last id of a sequence (currval), from which a load takes many ids at a time. It may also
//! change the settings by which the load reads fields (set_config).
//!
//! A label STABLE or IMMUTABLE proves nothing, since the server does not enforce it. The server does stop a function
//! that writes in parallel mode. So the direct writer runs a user-defined function only if it is declared PARALLEL SAFE
//! or PARALLEL RESTRICTED.

use pgrx::pg_sys;

use super::mapping::Mapping;
use crate::rows::column::default_expression;
use crate::rows::type_parts::{TypeParts, domain_checks};
use crate::server::compat;
use crate::server::expression::Expression;
use crate::server::index_functions;
use crate::server::lookup::{
    CatalogRow, base_type, column_type, explicit_cast, language_of, operator_function, parallel_label, range_of,
    signature_of, type_entry, type_kind, type_output, volatility,
};
use crate::server::node::{Node, NodeList};
use crate::server::relation::{IndexForm, OpenRelation, Relation, attribute_name};
use crate::server::server_text::from_server;

/// Volatile functions that read no state of the table. nextval is one of them: each caller gets another id.
const HARMLESS: [u32; 6] = [
    pg_sys::F_NEXTVAL,
    // random(). The binding's name differs between server versions.
    1598,
    pg_sys::F_GEN_RANDOM_UUID,
    pg_sys::F_CLOCK_TIMESTAMP,
    pg_sys::F_TIMEOFDAY,
    pg_sys::F_PG_SLEEP,
];
/// ClanguageId (pg_language.dat)
const C_LANGUAGE: u32 = 13;

/// A call that keeps rows out of the direct writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserCall {
    /// Of a volatile function.
    Volatile,
    /// Of this function, whose declaration allows it to write.
    Unsafe(pg_sys::Oid),
}

/// The predicate of a sentence. Guarded.
impl std::fmt::Display for UserCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            UserCall::Volatile => f.write_str("calls a volatile function"),
            UserCall::Unsafe(function) => {
                let name = signature_of(*function);
                write!(f, "calls function {name}, which is declared neither PARALLEL SAFE nor PARALLEL RESTRICTED")
            }
        }
    }
}

/// The call, if this function keeps rows out. Guarded.
fn call_of(function: pg_sys::Oid) -> Option<UserCall> {
    if HARMLESS.contains(&function.to_u32()) {
        return None;
    }
    if volatility(function) == pg_sys::PROVOLATILE_VOLATILE {
        return Some(UserCall::Volatile);
    }
    unsafe_call_of(function)
}

/// The call, if this function is a user's that is declared PARALLEL UNSAFE. Volatile ones pass, too: COPY does not look at the labels
/// of functions that convert fields, or that compare keys. Guarded.
fn unsafe_call_of(function: pg_sys::Oid) -> Option<UserCall> {
    let is_user_defined = function.to_u32() >= pg_sys::FirstUnpinnedObjectId;
    (is_user_defined && parallel_label(function) == pg_sys::PROPARALLEL_UNSAFE).then_some(UserCall::Unsafe(function))
}

/// Calls by the CHECK constraints and domains of a relation that rows are written to. Guarded.
pub fn of_constraints(relation: Relation<'_>, found: &mut Vec<String>) {
    for (name, check) in relation.descriptor().checks() {
        if let Some(call) = call_in(check) {
            found.push(format!("The constraint \"{}\" {call}.", from_server(name)));
        }
    }
    for attribute in relation.descriptor().live() {
        if let Some(call) = call_in_type(attribute.atttypid) {
            let name = attribute_name(attribute);
            let is_domain = type_kind(attribute.atttypid) == pg_sys::TYPTYPE_DOMAIN;
            found.push(format!("The {} of column \"{name}\" {call}.", if is_domain { "domain" } else { "type" }));
        }
    }
}

/// Whether a constraint of the relation or of one of its partitions calls a function that keeps rows out. The partitions
/// are locked. Guarded.
pub fn in_constraints(relation: Relation<'_>) -> bool {
    let calls = |relation: Relation<'_>| {
        let mut found = Vec::new();
        of_constraints(relation, &mut found);
        !found.is_empty()
    };
    if !relation.is_partitioned() {
        return calls(relation);
    }
    relation.with_descendants(pg_sys::NoLock).into_iter().any(|one| calls(OpenRelation::locked(one).get()))
}

/// A call by a domain in the type, at any depth, or by a function that makes a value of the type from a field. Guarded.
pub fn call_in_type(type_oid: pg_sys::Oid) -> Option<UserCall> {
    // A type of the server's own calls no user-defined function.
    if type_oid.to_u32() < pg_sys::FirstUnpinnedObjectId {
        return None;
    }
    match TypeParts::of(type_oid) {
        TypeParts::Domain(base) => call_in_domain(type_oid).or_else(|| call_in_type(base)),
        TypeParts::Composite(columns) => columns.into_iter().find_map(call_in_type),
        // Functions of the type compare its bounds and bring them into canonical form.
        TypeParts::Range { subtype, compare, canonical } => {
            call_of(compare).or_else(|| canonical.and_then(call_of)).or_else(|| call_in_type(subtype))
        }
        TypeParts::Multirange(range) => call_in_type(range),
        TypeParts::Array(element) => call_by_input(type_oid).or_else(|| call_in_type(element)),
        TypeParts::Single => call_by_input(type_oid),
    }
}

/// A call by the server's own functions that compare, hash or print values of a type: they look up the functions of the type and of
/// the types that it is made of. Guarded.
fn call_in_values(type_oid: pg_sys::Oid) -> Option<UserCall> {
    const WANTED: u32 = pg_sys::TYPECACHE_EQ_OPR
        | pg_sys::TYPECACHE_LT_OPR
        | pg_sys::TYPECACHE_GT_OPR
        | pg_sys::TYPECACHE_CMP_PROC
        | pg_sys::TYPECACHE_HASH_PROC
        | pg_sys::TYPECACHE_HASH_EXTENDED_PROC;
    // The server's own types are made of its own types only. An anonymous row is made of values that were checked.
    if type_oid.to_u32() < pg_sys::FirstUnpinnedObjectId {
        return None;
    }
    let inner = match TypeParts::of(type_oid) {
        TypeParts::Domain(base) => return call_in_values(base),
        TypeParts::Composite(columns) => columns.into_iter().find_map(call_in_values),
        TypeParts::Range { subtype, compare, canonical } => {
            let call = unsafe_call_of(compare).or_else(|| canonical.and_then(unsafe_call_of));
            call.or_else(|| call_in_values(subtype))
        }
        TypeParts::Multirange(range) => call_in_values(range),
        TypeParts::Array(element) => call_in_values(element),
        TypeParts::Single => None,
    };
    let entry = type_entry(type_oid, WANTED);
    let operators = [entry.eq_opr, entry.lt_opr, entry.gt_opr].into_iter();
    let (mut output, mut is_varlena, mut to_json) = (pg_sys::InvalidOid, false, pg_sys::InvalidOid);
    type_output(type_oid, &mut output, &mut is_varlena);
    // to_json and similar functions print a value by its cast to json.
    explicit_cast(pg_sys::JSONOID, type_oid, &mut to_json);
    let functions = [entry.cmp_proc, entry.hash_proc, entry.hash_extended_proc, output, to_json].into_iter();
    let operators = operators.filter(|&operator| operator != pg_sys::InvalidOid);
    inner.or_else(|| operators.map(operator_function).chain(functions).find_map(unsafe_call_of))
}

/// A call by the server's own functions in this node of an expression, for the types of values that it takes or makes.
/// Guarded.
fn call_for_types(node: Node<'_>) -> Option<UserCall> {
    use pg_sys::NodeTag::*;
    // Arrays, rows and ranges from text, and rows from JSON or XML: the constraints of domains in them.
    let made = |type_oid| call_in_type(type_oid).or_else(|| call_in_values(type_oid));
    if let Some(function) = node.as_a::<pg_sys::RangeTblFunction>() {
        return function.types().iter().find_map(made);
    }
    if let Some(function) = node.as_a::<pg_sys::TableFunc>() {
        return function.types().iter().find_map(made);
    }
    let is_servers = |call: Node<'_, pg_sys::FuncExpr>| call.funcid.to_u32() < pg_sys::FirstUnpinnedObjectId;
    match node.tag() {
        T_CoerceToDomain => call_in_domain(node.type_oid()),
        T_FuncExpr if node.as_a().is_some_and(is_servers) => made(node.type_oid()),
        T_CoerceViaIO => made(node.type_oid()),
        tag if compat::is_json_expression(tag) => made(node.type_oid()),
        T_Var | T_Const | T_Param | T_FuncExpr | T_OpExpr | T_Aggref | T_WindowFunc | T_RowExpr | T_ArrayExpr
        | T_ArrayCoerceExpr | T_ConvertRowtypeExpr | T_RelabelType | T_FieldSelect | T_SubscriptingRef => {
            call_in_values(node.type_oid())
        }
        _ => None,
    }
}

/// A call by the functions that make a value from text and from bytes. Guarded.
fn call_by_input(type_oid: pg_sys::Oid) -> Option<UserCall> {
    let row = CatalogRow::<pg_sys::FormData_pg_type>::find(type_oid)?;
    [row.typinput, row.typreceive].into_iter().find_map(unsafe_call_of)
}

/// A call by a domain's constraints. Guarded; allocates in the current memory context.
fn call_in_domain(domain: pg_sys::Oid) -> Option<UserCall> {
    domain_checks(domain).into_iter().find_map(call_in)
}

/// Calls by generated columns and by indexes of a relation that rows are written to. The server does not allow volatile
/// functions there. Guarded.
pub fn of_computed(relation: Relation<'_>, found: &mut Vec<String>) {
    let descriptor = relation.descriptor();
    if descriptor.has_generated() {
        for (attribute, expression) in descriptor.defaults().filter(|(attribute, _)| attribute.attgenerated != 0) {
            if let Some(call) = call_in(expression) {
                found.push(format!("The generated column \"{}\" {call}.", attribute_name(attribute)));
            }
        }
    }
    for index in relation.indexes() {
        // None if the index is gone since the list was made (DROP INDEX CONCURRENTLY).
        let Some(index) = OpenRelation::find(index, pg_sys::AccessShareLock) else { continue };
        let index = index.releasing();
        if let Some(call) = call_in_index(index.get()) {
            found.push(format!("The index \"{}\" {call}.", index.get().name_text()));
        }
    }
}

/// A call by the bound of a partition. The server evaluates it for rows that do not come through the parent. Guarded.
pub fn of_bound(relation: Relation<'_>, found: &mut Vec<String>) {
    if let Some(call) = relation.partition_bound().node().and_then(call_in) {
        found.push(format!("The bound of partition \"{}\" {call}.", relation.name_text()));
    }
}

/// A call by an index. Guarded.
fn call_in_index(index: Relation<'_>) -> Option<UserCall> {
    let form = index.index()?;
    let call = index.index_nodes().into_iter().filter_map(NodeList::node).find_map(call_in);
    if call.is_some() {
        return call;
    }
    let mut call = None;
    // Index methods other than the server's own are refused elsewhere.
    if index.access_method().to_u32() < pg_sys::FirstUnpinnedObjectId {
        index_functions::all(index, |function| {
            // btree_gin has no labels. Only a superuser can make a function in C.
            call = unsafe_call_of(function).filter(|_| language_of(function) != Some(C_LANGUAGE));
            call.is_none()
        });
        call = call.or_else(|| call_in_keys(index, form));
    }
    if call.is_none() && form.is_exclusion {
        let (mut operators, mut functions, mut strategies) = Default::default();
        // SAFETY: a guarded call, which returns arrays with an element for each key column.
        call = unsafe {
            let index = index.as_ptr();
            pg_sys::RelationGetExclusionInfo(index, &raw mut operators, &raw mut functions, &raw mut strategies);
            (0..form.keys).find_map(|at| unsafe_call_of(*functions.add(at)))
        };
    }
    call
}

/// A call by the server's own operator classes, for the types of an index's keys. Guarded.
fn call_in_keys(index: Relation<'_>, form: IndexForm) -> Option<UserCall> {
    let is_gist = index.access_method() == pg_sys::GIST_AM_OID;
    // A hash index stores hashes, and GIN elements. Expressions, whose attnum is 0, are checked by themselves.
    let columns = index.key_columns().into_iter().filter(|&attnum| attnum > 0);
    let columns = columns.map(|attnum| column_type(form.table, attnum).0);
    let keys = index.descriptor().attributes().take(form.keys).map(|key| key.atttypid);
    columns.chain(keys).find_map(|type_oid| {
        call_in_values(type_oid).or_else(|| if is_gist { call_in_difference(type_oid) } else { None })
    })
}

/// A call by GiST indexes on ranges, which ask how far apart two bounds are. Guarded.
fn call_in_difference(type_oid: pg_sys::Oid) -> Option<UserCall> {
    let base = base_type(type_oid);
    let range = match type_kind(base) {
        pg_sys::TYPTYPE_RANGE => base,
        pg_sys::TYPTYPE_MULTIRANGE => range_of(base),
        _ => return None,
    };
    unsafe_call_of(type_entry(range, pg_sys::TYPECACHE_RANGE_INFO).rng_subdiff_finfo.fn_oid)
}

/// A call by the key of a partitioned table, which finds the partition of a row. Guarded.
pub fn of_partition_key(relation: Relation<'_>, found: &mut Vec<String>) {
    let mut call = compat::partition_expressions(relation).node().and_then(call_in);
    if call.is_none() {
        compat::partition_functions(relation, |function| {
            call = unsafe_call_of(function);
            call.is_none()
        });
    }
    if let Some(call) = call.or_else(|| compat::partition_types(relation).into_iter().find_map(call_in_values)) {
        found.push(format!("The partition key of table \"{}\" {call}.", relation.name_text()));
    }
}

/// One sentence for each default, and for the condition, that calls a function that keeps rows out. Without a mapping,
/// every column may get its default. Guarded.
pub fn obstacles(relation: Relation<'_>, mapping: Option<&Mapping>, conditions: NodeList<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (index, attribute) in relation.descriptor().attributes().enumerate() {
        let set = mapping.is_some_and(|mapping| mapping.attributes().any(|attnum| attnum == attribute.attnum));
        if set || attribute.attisdropped || attribute.attgenerated != 0 {
            continue;
        }
        if let Some(call) = default_expression(relation, index).and_then(Expression::node).and_then(call_in) {
            found.push(format!("The default of column \"{}\" {call}.", attribute_name(attribute)));
        }
    }
    if let Some(call) = conditions.node().and_then(call_in) {
        found.push(format!("The condition {call}."));
    }
    found
}

/// The first call in an expression, in a query and those below it, or in a list of such, that keeps rows out. Guarded.
pub fn call_in(node: Node<'_>) -> Option<UserCall> {
    let mut call: Option<UserCall> = None;
    node.any(|node| {
        if node.tag() == pg_sys::NodeTag::T_Query {
            return false;
        }
        call = call_for_types(node);
        call.is_some()
            || node.calls(|function| {
                call = call_of(function);
                call.is_some()
            })
    });
    call
}
