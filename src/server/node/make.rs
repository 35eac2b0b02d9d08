//! Makes nodes in the current memory context. All functions are guarded.

use std::ffi::CStr;
use std::marker::PhantomData;

use pgrx::pg_sys::{self, NodeTag};

use super::{Node, NodeList, Tagged};
use crate::server::relation::TupleDesc;

/// A node with these fields.
///
/// # Safety
/// The fields are as the server makes them: the tag is that of `T`, which begins with a tag, and pointers lead to nodes
/// that live as long.
pub unsafe fn node<'a, T>(fields: T) -> Node<'a, T> {
    // SAFETY: a guarded call returns memory of this size.
    unsafe {
        let node = pg_sys::palloc(size_of::<T>()).cast::<T>();
        node.write(fields);
        Node::known(node)
    }
}

pub fn string<'a>(text: &CStr) -> Node<'a, pg_sys::String> {
    // SAFETY: guarded calls, which copy the string and return a node.
    unsafe { Node::known(pg_sys::makeString(pg_sys::pstrdup(text.as_ptr())).cast()) }
}

/// An entry of a target list with this number, from 1.
pub fn target<'a, T>(value: Node<'a, T>, number: i16, name: Option<&CStr>) -> Node<'a, pg_sys::TargetEntry> {
    // SAFETY: guarded calls, which copy the name and return a node.
    unsafe {
        let name = name.map_or(std::ptr::null_mut(), |name| pg_sys::pstrdup(name.as_ptr()));
        Node::known(pg_sys::makeTargetEntry(value.as_ptr().cast(), number, name, false))
    }
}

/// NULL of an attribute's type; of integer for a dropped one.
pub fn null<'a>(attribute: &pg_sys::FormData_pg_attribute) -> Node<'a> {
    let (kind, typmod, collation) = if attribute.attisdropped {
        (pg_sys::INT4OID, -1, pg_sys::InvalidOid)
    } else {
        (attribute.atttypid, attribute.atttypmod, attribute.attcollation)
    };
    // SAFETY: a guarded call, which returns a node.
    unsafe { Node::known(pg_sys::makeNullConst(kind, typmod, collation).cast()) }
}

/// A column of the relation with this index of the range table.
pub fn variable<'a>(
    relation: i32,
    number: i16,
    (kind, typmod, collation): (pg_sys::Oid, i32, pg_sys::Oid),
) -> Node<'a, pg_sys::Var> {
    // SAFETY: a guarded call, which returns a node.
    unsafe { Node::known(pg_sys::makeVar(relation as _, number, kind, typmod, collation, 0)) }
}

/// A call of a function with these arguments.
pub fn call<'a>(function: pg_sys::Oid, arguments: NodeList<'a>) -> Node<'a, pg_sys::FuncExpr> {
    let (none, form) = (pg_sys::InvalidOid, pg_sys::CoercionForm::COERCE_EXPLICIT_CALL);
    // SAFETY: guarded calls, which look the function up and return a node.
    unsafe {
        let kind = pg_sys::get_func_rettype(function);
        Node::known(pg_sys::makeFuncExpr(function, kind, arguments.as_ptr(), none, none, form))
    }
}

/// A value of this type that the context has, in which the expression runs.
pub fn case_value<'a>(kind: pg_sys::Oid) -> Node<'a, pg_sys::CaseTestExpr> {
    let mut fields = pg_sys::CaseTestExpr { typeId: kind, typeMod: -1, ..Default::default() };
    fields.xpr.type_ = NodeTag::T_CaseTestExpr;
    // SAFETY: the fields of such a node.
    unsafe { node(fields) }
}

/// `value IS NOT NULL`
pub fn is_not_null<'a>(value: Node<'a>) -> Node<'a, pg_sys::NullTest> {
    let (arg, nulltesttype) = (value.as_ptr().cast(), pg_sys::NullTestType::IS_NOT_NULL);
    let mut fields = pg_sys::NullTest { arg, nulltesttype, location: -1, ..Default::default() };
    fields.xpr.type_ = NodeTag::T_NullTest;
    // SAFETY: the fields of such a node.
    unsafe { node(fields) }
}

/// Parses statements.
pub fn parsed<'a>(text: &CStr) -> NodeList<'a, pg_sys::RawStmt> {
    // SAFETY: a guarded call with a string, which returns a list of statements.
    unsafe { NodeList::from_raw(pg_sys::raw_parser(text.as_ptr(), pg_sys::RawParseMode::RAW_PARSE_DEFAULT)) }
}

/// A target list of these expressions, each once (`add_to_flat_tlist`).
pub fn targets<'a>(expressions: NodeList<'a>) -> NodeList<'a, pg_sys::TargetEntry> {
    // SAFETY: a guarded call on a list of expressions, which makes a list of entries.
    unsafe { NodeList::from_raw(pg_sys::add_to_flat_tlist(std::ptr::null_mut(), expressions.as_ptr())) }
}

/// A target list of all attributes of a relation: NULL for dropped ones.
pub fn columns<'a>(relation: i32, descriptor: TupleDesc<'_>) -> NodeList<'a, pg_sys::TargetEntry> {
    let column = |form: &pg_sys::FormData_pg_attribute| {
        let kind = (form.atttypid, form.atttypmod, form.attcollation);
        let is_there = !form.attisdropped;
        let value = if is_there { variable(relation, form.attnum, kind).node() } else { null(form) };
        target(value, form.attnum, None)
    };
    descriptor.attributes().map(column).collect()
}

/// A SELECT of these columns, from at most one relation.
pub fn select<'a>(
    targets: NodeList<'a, pg_sys::TargetEntry>,
    from: Option<Node<'a, pg_sys::RangeTblEntry>>,
    has_sublinks: bool,
    has_sets: bool,
) -> Node<'a, pg_sys::Query> {
    // SAFETY: the fields of a reference and of a query; a guarded call.
    unsafe {
        let place = pg_sys::RangeTblRef { type_: NodeTag::T_RangeTblRef, rtindex: 1 };
        let places: NodeList<'_, _> = from.map(|_| node(place)).into_iter().collect();
        node(pg_sys::Query {
            type_: NodeTag::T_Query,
            commandType: pg_sys::CmdType::CMD_SELECT,
            canSetTag: true,
            jointree: pg_sys::makeFromExpr(places.as_ptr(), std::ptr::null_mut()),
            rtable: from.into_iter().collect::<NodeList<'_, _>>().as_ptr(),
            targetList: targets.as_ptr(),
            hasSubLinks: has_sublinks,
            hasTargetSRFs: has_sets,
            ..Default::default()
        })
    }
}

/// An entry of a range table with the name `query`, columns of these names, and these fields.
///
/// # Safety
/// As [`node`].
unsafe fn entry<'a>(
    names: NodeList<'_, pg_sys::String>,
    fields: pg_sys::RangeTblEntry,
) -> Node<'a, pg_sys::RangeTblEntry> {
    // SAFETY: the fields of an entry; a guarded call with a string.
    unsafe {
        let eref = pg_sys::makeAlias(c"query".as_ptr(), names.as_ptr());
        node(pg_sys::RangeTblEntry { type_: NodeTag::T_RangeTblEntry, eref, inFromCl: true, ..fields })
    }
}

/// A query in FROM.
pub fn subquery<'a>(below: Node<'a, pg_sys::Query>) -> Node<'a, pg_sys::RangeTblEntry> {
    let columns = below.targets().iter().filter(|column| !column.resjunk);
    let names = columns.map(|column| string(column.name().unwrap_or_default()));
    let (rtekind, subquery) = (pg_sys::RTEKind::RTE_SUBQUERY, below.as_ptr());
    // SAFETY: the fields of a subquery.
    unsafe { entry(names.collect(), pg_sys::RangeTblEntry { rtekind, subquery, ..Default::default() }) }
}

/// VALUES in FROM: lists of expressions, with the types of `columns`.
pub fn values<'a>(rows: NodeList<'a, pg_sys::List>, columns: &[Node<'a>]) -> Node<'a, pg_sys::RangeTblEntry> {
    let names = columns.iter().map(|_| string(c"column")).collect();
    let mut fields = pg_sys::RangeTblEntry {
        rtekind: pg_sys::RTEKind::RTE_VALUES,
        values_lists: rows.as_ptr(),
        ..Default::default()
    };
    // SAFETY: guarded calls on lists that are made here; the fields of VALUES.
    unsafe {
        for column in columns {
            fields.coltypes = pg_sys::lappend_oid(fields.coltypes, column.type_oid());
            fields.coltypmods = pg_sys::lappend_int(fields.coltypmods, column.typmod());
            fields.colcollations = pg_sys::lappend_oid(fields.colcollations, pg_sys::InvalidOid);
        }
        entry(names, fields)
    }
}

/// Makes a list. Guarded.
impl<'a, T: Tagged> FromIterator<Node<'a, T>> for NodeList<'a, T> {
    fn from_iter<I: IntoIterator<Item = Node<'a, T>>>(nodes: I) -> Self {
        nodes.into_iter().map(Some).collect()
    }
}

/// Makes a list with null for None. Guarded.
impl<'a, T: Tagged> FromIterator<Option<Node<'a, T>>> for NodeList<'a, T> {
    fn from_iter<I: IntoIterator<Item = Option<Node<'a, T>>>>(nodes: I) -> Self {
        let pointers = nodes.into_iter().map(|node| node.map_or(std::ptr::null_mut(), Node::as_ptr));
        // SAFETY: guarded calls on a list that is made here.
        let list = pointers.fold(std::ptr::null_mut(), |list, node| unsafe { pg_sys::lappend(list, node.cast()) });
        NodeList(list, PhantomData)
    }
}

/// Makes a list of integers. Guarded.
impl FromIterator<i32> for NodeList<'_> {
    fn from_iter<I: IntoIterator<Item = i32>>(numbers: I) -> Self {
        // SAFETY: guarded calls on a list that is made here.
        let append = |list, number| unsafe { pg_sys::lappend_int(list, number) };
        NodeList(numbers.into_iter().fold(std::ptr::null_mut(), append), PhantomData)
    }
}
