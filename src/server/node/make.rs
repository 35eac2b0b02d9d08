//! Makes nodes in the current memory context. All functions are guarded.

use std::ffi::{CStr, c_char};
use std::ptr::null_mut;

use pgrx::pg_sys::{self, CoercionForm, NodeTag, RawParseMode};

use super::{Node, NodeList, Tagged};
use crate::server::call::calls;
use crate::server::handle::Handle;
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

/// A string of the server.
type Text<'a> = Handle<'a, c_char>;

// SAFETY: expressions, strings and lists of this tree, of which the functions make nodes. A function is looked up.
calls! {
    fn text<'a>(text: &CStr) -> Text<'a> = pstrdup(text);
    fn string_of<'a>(text: Text<'a>) -> Node<'a, pg_sys::String> = makeString(text);
    fn entry_of<'a>(value: Node<'a>, number: i16, name: Option<Text<'a>>) -> Node<'a, pg_sys::TargetEntry>
        = makeTargetEntry(value, number, name, false);
    fn null_of<'a>(kind: pg_sys::Oid, typmod: i32, collation: pg_sys::Oid) -> Node<'a> = makeNullConst(kind, typmod, collation);
    fn result_of(function: pg_sys::Oid) -> pg_sys::Oid = get_func_rettype(function);
    fn call_of<'a>(function: pg_sys::Oid, kind: pg_sys::Oid, arguments: NodeList<'a>) -> Node<'a, pg_sys::FuncExpr>
        = makeFuncExpr(function, kind, arguments, (pg_sys::InvalidOid), (pg_sys::InvalidOid), (EXPLICIT_CALL));
    fn from<'a>(places: NodeList<'a, pg_sys::RangeTblRef>) -> Node<'a, pg_sys::FromExpr> = makeFromExpr(places, (null_mut()));
    fn alias<'a>(name: &CStr, columns: NodeList<'a, pg_sys::String>) -> Node<'a, pg_sys::Alias> = makeAlias(name, columns);
    /// Parses statements.
    pub fn parsed<'a>(text: &CStr) -> NodeList<'a, pg_sys::RawStmt> = raw_parser(text, (RawParseMode::RAW_PARSE_DEFAULT));
    /// A target list of these expressions, each once (`add_to_flat_tlist`).
    pub fn targets<'a>(expressions: NodeList<'a>) -> NodeList<'a, pg_sys::TargetEntry>
        = add_to_flat_tlist((null_mut()), expressions);
}

const EXPLICIT_CALL: CoercionForm::Type = CoercionForm::COERCE_EXPLICIT_CALL;

pub fn string<'a>(name: &CStr) -> Node<'a, pg_sys::String> {
    string_of(text(name))
}

/// An entry of a target list with this number, from 1.
pub fn target<'a>(value: Node<'a>, number: i16, name: Option<&CStr>) -> Node<'a, pg_sys::TargetEntry> {
    entry_of(value, number, name.map(text))
}

/// NULL of an attribute's type; of integer for a dropped one.
pub fn null<'a>(attribute: &pg_sys::FormData_pg_attribute) -> Node<'a> {
    let (kind, typmod, collation) = if attribute.attisdropped {
        (pg_sys::INT4OID, -1, pg_sys::InvalidOid)
    } else {
        (attribute.atttypid, attribute.atttypmod, attribute.attcollation)
    };
    null_of(kind, typmod, collation)
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
    call_of(function, result_of(function), arguments)
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
    table: Option<Node<'a, pg_sys::RangeTblEntry>>,
    has_sublinks: bool,
    has_sets: bool,
) -> Node<'a, pg_sys::Query> {
    // SAFETY: the fields of a reference and of a query.
    unsafe {
        let place = pg_sys::RangeTblRef { type_: NodeTag::T_RangeTblRef, rtindex: 1 };
        let places: NodeList<'_, _> = table.map(|_| node(place)).into_iter().collect();
        node(pg_sys::Query {
            type_: NodeTag::T_Query,
            commandType: pg_sys::CmdType::CMD_SELECT,
            canSetTag: true,
            jointree: from(places).as_ptr(),
            rtable: table.into_iter().collect::<NodeList<'_, _>>().as_ptr(),
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
    let eref = alias(c"query", names).as_ptr();
    // SAFETY: the fields of an entry.
    unsafe { node(pg_sys::RangeTblEntry { type_: NodeTag::T_RangeTblEntry, eref, inFromCl: true, ..fields }) }
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
    let fields = pg_sys::RangeTblEntry {
        rtekind: pg_sys::RTEKind::RTE_VALUES,
        values_lists: rows.as_ptr(),
        coltypes: columns.iter().map(|column| column.type_oid()).collect::<NodeList<'_, _>>().as_ptr(),
        coltypmods: columns.iter().map(|column| column.typmod()).collect::<NodeList<'_, _>>().as_ptr(),
        colcollations: columns.iter().map(|_| pg_sys::InvalidOid).collect::<NodeList<'_, _>>().as_ptr(),
        ..Default::default()
    };
    // SAFETY: the fields of VALUES.
    unsafe { entry(names, fields) }
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
        nodes.into_iter().fold(NodeList::EMPTY, |list, node| list.with(node.map(Node::node)))
    }
}

/// Makes a list of integers. Guarded.
impl FromIterator<i32> for NodeList<'_, i32> {
    fn from_iter<I: IntoIterator<Item = i32>>(numbers: I) -> Self {
        numbers.into_iter().fold(NodeList::EMPTY, NodeList::with_int)
    }
}

/// Makes a list of OIDs. Guarded.
impl FromIterator<pg_sys::Oid> for NodeList<'_, pg_sys::Oid> {
    fn from_iter<I: IntoIterator<Item = pg_sys::Oid>>(oids: I) -> Self {
        oids.into_iter().fold(NodeList::EMPTY, NodeList::with_oid)
    }
}

impl<'a, T> NodeList<'a, T> {
    // SAFETY: a list that is made above, of elements of one kind.
    calls! {
        fn with(self, node: Option<Node<'a>>) -> NodeList<'a, T> = lappend(self, node);
        fn with_int(self, number: i32) -> NodeList<'a, T> = lappend_int(self, number);
        fn with_oid(self, oid: pg_sys::Oid) -> NodeList<'a, T> = lappend_oid(self, oid);
    }
}
