//! Handles of the server's nodes and lists of nodes: parse trees, expressions, paths, plans.
//!
//! A [`Node`] points to a node that is valid as long as `'a`. Its tag is set. Its fields are as the server's parser,
//! planner or executor makes them; some are null there, too. The same holds for all nodes below it. So [`Node::as_a`]
//! looks at a node as the struct that its tag says, and the table of [`nodes!`] has the fields that lead to other
//! nodes. The elements of a [`NodeList`] are nodes or null; their tags say which of them it returns.
//!
//! A node lives in a memory context: that of the statement, of the plan, or the one that was current when a function here
//! made it. Only unsafe code deletes or resets contexts, and `'a` must end before the node's context does.
//! Only unsafe code changes a node, too. The server changes its own planner's structures, so a reference to a struct
//! ([`Deref`]) lasts for one expression, in which no function of the server is called.
//!
//! Functions that walk or copy trees are guarded: they call the server through pgrx, and the server calls their closures
//! in a guard of their own. An error in a closure becomes an error of the server, and then a panic of the walk.

pub mod make;

use std::ffi::{CStr, CString, c_char, c_void};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use pgrx::pg_sys::panic::pgrx_extern_c_guard;
use pgrx::pg_sys::{self, NodeTag};

use super::call::{calls, passed, returned};
use super::column_set::ColumnSet;
use super::compat::expression_tree_mutator;

/// A struct that begins with a tag, or with a struct that does.
///
/// # Safety
/// Each node with one of these tags begins with this struct.
pub unsafe trait Tagged {
    fn is_tag(tag: NodeTag) -> bool;
}

/// A node of type `T`.
#[derive(Debug)]
#[repr(transparent)]
pub struct Node<'a, T = pg_sys::Node>(NonNull<T>, PhantomData<&'a T>);

impl<T> Clone for Node<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Node<'_, T> {}

/// Reads a field, which is copied at once.
impl<T> Deref for Node<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: a valid node.
        unsafe { self.0.as_ref() }
    }
}

impl<'a, T> Node<'a, T> {
    /// Null gives None.
    ///
    /// # Safety
    /// Null, or a node of this type. It and the nodes below it are valid as long as handles of them are used.
    pub const unsafe fn from_raw(node: *mut T) -> Option<Node<'a, T>> {
        match NonNull::new(node) {
            Some(node) => Some(Node(node, PhantomData)),
            None => None,
        }
    }

    /// # Safety
    /// As [`Node::from_raw`], and not null.
    unsafe fn known(node: *mut T) -> Node<'a, T> {
        // SAFETY: the callers have checked that the node is not null, or the server never makes it null.
        Node(unsafe { NonNull::new_unchecked(node) }, PhantomData)
    }

    /// Returns the pointer for functions of the server.
    pub const fn as_ptr(self) -> *mut T {
        self.0.as_ptr()
    }

    /// The same node without its type.
    pub const fn node(self) -> Node<'a> {
        Node(self.0.cast(), PhantomData)
    }

    pub fn tag(self) -> NodeTag {
        self.node().type_
    }

    /// The node as this struct, if its tag says so.
    pub fn as_a<U: Tagged>(self) -> Option<Node<'a, U>> {
        U::is_tag(self.tag()).then_some(Node(self.0.cast(), PhantomData))
    }

    /// The node as a list of nodes; empty if the node is no such list.
    pub fn list<U: Tagged>(self) -> NodeList<'a, U> {
        let list = self.as_a::<pg_sys::List>().filter(|list| list.type_ == NodeTag::T_List);
        list.map_or(NodeList::EMPTY, |list| NodeList(list.as_ptr(), PhantomData))
    }

    /// The elements of a list of integers; none for any other node.
    pub fn ints(self) -> impl Iterator<Item = i32> {
        let list = self.as_a::<pg_sys::List>().map_or(NodeList::EMPTY, |list| NodeList(list.as_ptr(), PhantomData));
        NodeList::<i32>::iter(list)
    }

    /// Reads a tree in the current memory context; None for null. Guarded.
    ///
    /// # Safety
    /// A string that nodeToString wrote; the tree's root is of this type.
    pub unsafe fn read(text: *const c_char) -> Option<Node<'a, T>> {
        // SAFETY: a guarded call with such a string returns a tree or null.
        unsafe { Node::from_raw(pg_sys::stringToNode(text).cast()) }
    }

    // SAFETY: the functions look at the tags of the nodes. A copy has the same tag; the lists have nodes of this tree.
    calls! {
        /// Returns a copy of the tree in the current memory context, which outlives the handle. Guarded.
        pub fn copy<'b>(self) -> Node<'b, T> = copyObjectImpl((self.node()));
        /// Whether two trees are equal. Guarded.
        pub fn is_equal(self, other: Node<'_>) -> bool = equal((self.node()), other);
        /// Whether an expression or a query calls a volatile function. Guarded.
        pub fn is_volatile(self) -> bool = contain_volatile_functions((self.node()));
        /// Whether an expression calls a function that is not immutable. Guarded.
        pub fn is_mutable(self) -> bool = contain_mutable_functions((self.node()));
        /// The conditions that AND joins in an expression. Guarded.
        pub fn conjuncts(self) -> NodeList<'a> = make_ands_implicit((self.node()));
        /// Returns the type of an expression's value. Guarded; raises an error for other nodes.
        pub fn type_oid(self) -> pg_sys::Oid = exprType((self.node()));
        /// Returns the type modifier of an expression's value; -1 if it has none. Guarded.
        pub fn typmod(self) -> i32 = exprTypmod((self.node()));
        /// Returns the columns of the query that an expression uses, and the nodes of the kinds that `include` names
        /// (`pull_var_clause`). Guarded.
        pub fn variables(self, include: u32) -> NodeList<'a> = pull_var_clause((self.node()), (include.cast_signed()));
    }

    /// Returns the numbers of the attributes that an expression uses of a relation of the range table (`pull_varattnos`).
    /// Guarded.
    pub fn attributes(self, relation: pg_sys::Index) -> ColumnSet {
        let mut set = std::ptr::null_mut();
        // SAFETY: a guarded call on an expression makes the set.
        unsafe {
            pg_sys::pull_varattnos(self.node().as_ptr(), relation, &raw mut set);
            ColumnSet::from_raw(set)
        }
    }

    /// Whether `test` holds for a function that this node calls, without the nodes below it. Guarded.
    pub fn calls(self, mut test: impl FnMut(pg_sys::Oid) -> bool) -> bool {
        // SAFETY: a guarded call; `visit_function` gets the closure, which outlives it.
        unsafe {
            pg_sys::check_functions_in_node(self.node().as_ptr(), Some(function_visitor(&test)), closure(&mut test))
        }
    }

    /// Whether `test` holds for a node of an expression or query: of the tree from its root down, with subqueries.
    /// Guarded.
    pub fn any(self, mut test: impl FnMut(Node<'a>) -> bool) -> bool {
        search(self.node(), &mut test)
    }

    /// Returns a copy of an expression in which other nodes are put in place of those for which `by` returns one. Guarded.
    pub fn replace(self, mut by: impl FnMut(Node<'a>) -> Option<Node<'a>>) -> Node<'a> {
        rebuild(self.node(), &mut by)
    }
}

/// The argument that a walk passes on to its visitor.
fn closure<F>(closure: &mut F) -> *mut c_void {
    std::ptr::from_mut(closure).cast()
}

fn search<'a, F: FnMut(Node<'a>) -> bool>(node: Node<'a>, test: &mut F) -> bool {
    if test(node) {
        return true;
    }
    // SAFETY: guarded calls, which pass nodes below this one and the closure to the visitor. Nothing else uses the closure
    // meanwhile.
    unsafe {
        if node.tag() == NodeTag::T_Query {
            return pg_sys::query_tree_walker(node.as_ptr().cast(), Some(visit::<F>), closure(test), 0);
        }
        pg_sys::expression_tree_walker(node.as_ptr(), Some(visit::<F>), closure(test))
    }
}

/// # Safety
/// Called by a walk of [`search`].
unsafe extern "C-unwind" fn visit<'a, F: FnMut(Node<'a>) -> bool>(node: *mut pg_sys::Node, test: *mut c_void) -> bool {
    // SAFETY: `search` has passed the closure, and the server passes a node of the tree, or null.
    unsafe { pgrx_extern_c_guard(|| Node::from_raw(node).is_some_and(|node| search(node, &mut *test.cast::<F>()))) }
}

type FunctionVisitor = unsafe extern "C-unwind" fn(pg_sys::Oid, *mut c_void) -> bool;

/// The visitor for closures of this type.
fn function_visitor<F: FnMut(pg_sys::Oid) -> bool>(_: &F) -> FunctionVisitor {
    /// # Safety
    /// Called by [`Node::calls`].
    unsafe extern "C-unwind" fn visit<F: FnMut(pg_sys::Oid) -> bool>(function: pg_sys::Oid, test: *mut c_void) -> bool {
        // SAFETY: `calls` has passed the closure.
        unsafe { pgrx_extern_c_guard(|| (*test.cast::<F>())(function)) }
    }
    visit::<F>
}

fn rebuild<'a, F: FnMut(Node<'a>) -> Option<Node<'a>>>(node: Node<'a>, by: &mut F) -> Node<'a> {
    if let Some(other) = by(node) {
        return other;
    }
    // SAFETY: a guarded call, which passes nodes below this one and the closure to the visitor. It returns a new node.
    unsafe { Node::known(expression_tree_mutator(node.as_ptr(), mutate::<F>, closure(by))) }
}

/// # Safety
/// Called by [`rebuild`].
unsafe extern "C-unwind" fn mutate<'a, F: FnMut(Node<'a>) -> Option<Node<'a>>>(
    node: *mut pg_sys::Node,
    by: *mut c_void,
) -> *mut pg_sys::Node {
    // SAFETY: `rebuild` has passed the closure, and the server passes a node of the tree, or null.
    unsafe {
        pgrx_extern_c_guard(|| Node::from_raw(node).map_or(node, |node| rebuild(node, &mut *by.cast::<F>()).as_ptr()))
    }
}

// SAFETY: writes a tree, or null.
calls! {
    /// Writes a tree, or null, for [`Node::read`]. Guarded.
    pub fn written(node: Option<Node<'_>>) -> CString = nodeToString(node);
}

impl<'a> Node<'a, pg_sys::String> {
    pub fn text(self) -> &'a CStr {
        self.value().unwrap_or_default()
    }
}

// SAFETY: addresses of nodes and lists that are valid as long as the handles, and null.
passed! {
    @[T] Node<'_, T> => *mut T = Node::as_ptr;
    @[T] Node<'_, T> => *const T = |node| node.as_ptr();
    /// None is passed as null.
    @[T] Option<Node<'_, T>> => *mut T = |node| node.map_or(std::ptr::null_mut(), Node::as_ptr);
    /// Functions that look at the tags of nodes are declared with pointers of any type.
    Node<'_> => *const c_void = |node| node.as_ptr().cast_const().cast();
    Option<Node<'_>> => *const c_void = |node| node.map_or(std::ptr::null(), |node| node.as_ptr().cast_const().cast());
    Option<Node<'_>> => *mut c_void = |node| node.map_or(std::ptr::null_mut(), |node| node.as_ptr().cast());
    /// Functions that take any expression are declared with this struct.
    Node<'_> => *mut pg_sys::Expr = |node| node.as_ptr().cast();
    @[T] NodeList<'_, T> => *mut pg_sys::List = NodeList::as_ptr;
    @[T] NodeList<'_, T> => *const pg_sys::List = |list| list.as_ptr();
}

returned! {
    /// A node, which the function may be declared to return with another type.
    @['a, T, R] *mut R => Node<'a, T> = |raw: *mut R| Node::known(raw.cast());
    /// Such a node, or null.
    @['a, T, R] *mut R => Option<Node<'a, T>> = |raw: *mut R| Node::from_raw(raw.cast());
    /// A list of these, or null.
    @['a, T] *mut pg_sys::List => NodeList<'a, T> = NodeList::from_raw;
    /// The OIDs of a list, or of null.
    *mut pg_sys::List => Vec<pg_sys::Oid> = |raw| NodeList::<pg_sys::Oid>::from_raw(raw).iter().collect();
}

/// A list of nodes, of which it returns those of type `T`; or of integers or OIDs. An empty list is null.
#[derive(Debug)]
#[repr(transparent)]
pub struct NodeList<'a, T = pg_sys::Node>(*mut pg_sys::List, PhantomData<&'a T>);

impl<T> Clone for NodeList<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for NodeList<'_, T> {}

impl<'a, T> NodeList<'a, T> {
    pub const EMPTY: NodeList<'a, T> = NodeList(std::ptr::null_mut(), PhantomData);

    /// # Safety
    /// Null, or a list of nodes and nulls; of integers or OIDs if these are `T`. The list and its nodes are valid as long
    /// as handles of them are used.
    pub const unsafe fn from_raw(list: *mut pg_sys::List) -> NodeList<'a, T> {
        NodeList(list, PhantomData)
    }

    /// Returns the pointer for functions of the server.
    pub const fn as_ptr(self) -> *mut pg_sys::List {
        self.0
    }

    /// The list as a node; None if it is empty.
    pub fn node(self) -> Option<Node<'a>> {
        self.head().map(Node::node)
    }

    fn head(self) -> Option<Node<'a, pg_sys::List>> {
        NonNull::new(self.0).map(|list| Node(list, PhantomData))
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    pub fn len(self) -> usize {
        self.head().map_or(0, |list| usize::try_from(list.length).unwrap_or(0))
    }

    /// The element with this index; None for null, and beyond the end.
    #[inline]
    fn element(self, index: usize) -> Option<Element<'a>> {
        let list = self.head().filter(|_| index < self.len())?;
        // SAFETY: a valid list has as many cells as it says. Cells are nodes or null, or numbers, according to its tag. Integers
        // and OIDs lie in the same bytes.
        unsafe {
            let cell = *list.elements.add(index);
            match list.type_ {
                NodeTag::T_List => Node::from_raw(cell.ptr_value.cast()).map(Element::Node),
                _ => Some(Element::Number(cell.int_value)),
            }
        }
    }

    fn numbers(self) -> impl Iterator<Item = i32> {
        let number = move |index| if let Element::Number(number) = self.element(index)? { Some(number) } else { None };
        (0..self.len()).filter_map(number)
    }
}

/// An element of a list.
enum Element<'a> {
    Node(Node<'a>),
    /// An integer, or an OID.
    Number(i32),
}

impl NodeList<'_, i32> {
    pub fn iter(self) -> impl Iterator<Item = i32> {
        self.numbers()
    }
}

impl NodeList<'_, pg_sys::Oid> {
    pub fn iter(self) -> impl Iterator<Item = pg_sys::Oid> {
        self.numbers().map(|number| pg_sys::Oid::from_u32(number.cast_unsigned()))
    }
}

impl<'a, T: Tagged> NodeList<'a, T> {
    /// Returns the element with this index, from 0. None beyond the end, for null, and for a node that is no `T`.
    pub fn get(self, index: usize) -> Option<Node<'a, T>> {
        if let Element::Node(node) = self.element(index)? { node.as_a() } else { None }
    }

    pub fn first(self) -> Option<Node<'a, T>> {
        self.get(0)
    }

    pub fn iter(self) -> impl DoubleEndedIterator<Item = Node<'a, T>> + Clone {
        (0..self.len()).filter_map(move |index| self.get(index))
    }

    /// Returns a copy of the list and its nodes in the current memory context, which outlives the handle. Guarded.
    pub fn copied<'b>(self) -> NodeList<'b, T> {
        self.node().map_or(NodeList::EMPTY, |list| list.copy().list())
    }

    /// A new list with a node behind those of this list, which may be one of the server. Guarded.
    pub fn push(&mut self, node: Node<'a, T>) {
        *self = self.concat(NodeList::from_iter([node]));
    }

    /// The same list, for other types of nodes.
    pub const fn of<U: Tagged>(self) -> NodeList<'a, U> {
        NodeList(self.0, PhantomData)
    }

    // SAFETY: both are lists of nodes.
    calls! {
        /// A new list of all nodes of both. Guarded.
        pub fn concat(self, other: NodeList<'a, T>) -> NodeList<'a, T> = list_concat_copy(self, other);
    }

    /// The list that `change` makes of this one, unless it is empty.
    pub fn map(self, change: impl FnOnce(Node<'a>) -> Node<'a>) -> NodeList<'a, T> {
        self.node().map(change).map_or(NodeList::EMPTY, Node::list)
    }
}

// SAFETY: all nodes begin with these structs.
unsafe impl Tagged for pg_sys::Node {
    fn is_tag(_: NodeTag) -> bool {
        true
    }
}

/// Whether a tag lies between two others, both included.
fn is_between(tag: NodeTag, first: NodeTag, last: NodeTag) -> bool {
    (first as u32..=last as u32).contains(&(tag as u32))
}

// SAFETY: the tags from T_Path to T_LimitPath are those of pathnodes.h, in its order. These three are no paths.
unsafe impl Tagged for pg_sys::Path {
    fn is_tag(tag: NodeTag) -> bool {
        is_between(tag, NodeTag::T_Path, NodeTag::T_LimitPath)
            && !matches!(tag, NodeTag::T_IndexClause | NodeTag::T_GroupingSetData | NodeTag::T_RollupData)
    }
}

// SAFETY: the tags from T_Result to T_Limit are those of plannodes.h, in its order. This one is no plan.
unsafe impl Tagged for pg_sys::Plan {
    fn is_tag(tag: NodeTag) -> bool {
        is_between(tag, NodeTag::T_Result, NodeTag::T_Limit) && tag != NodeTag::T_NestLoopParam
    }
}

/// The structs of nodes with their tags, and their fields that lead to other nodes. A field leads to a node (`one`), to
/// a node or null (`maybe`), to a list (`many`), or to a string or null (`text`). `base` is the struct that a node begins with. The path to the field
/// is in parentheses if it is not the name of the function.
macro_rules! nodes {
    ($($of:ident $(= $($tag:ident)|+)? { $($name:ident $(($($path:tt)+))?: $kind:ident $to:ident),* })*) => {$(
        $(
            // SAFETY: nodes with these tags begin with this struct.
            unsafe impl Tagged for pg_sys::$of {
                fn is_tag(tag: NodeTag) -> bool {
                    matches!(tag, $(NodeTag::$tag)|+)
                }
            }
        )?

        impl<'a> Node<'a, pg_sys::$of> {
            $(nodes! { @ $name ($($($path)+)?) $kind $to })*
        }
    )*};
    (@ $name:ident () $kind:ident $to:ident) => { nodes! { @ $name ($name) $kind $to } };
    (@ $name:ident ($($path:tt)+) one $to:ident) => {
        pub fn $name(self) -> Node<'a, pg_sys::$to> {
            // SAFETY: a valid node, whose field leads to a node of this type.
            unsafe { Node::known((*self.as_ptr()).$($path)+.cast()) }
        }
    };
    (@ $name:ident ($($path:tt)+) base $to:ident) => {
        pub fn $name(self) -> Node<'a, pg_sys::$to> {
            // SAFETY: a struct within a valid node.
            unsafe { Node::known(&raw mut (*self.as_ptr()).$($path)+) }
        }
    };
    (@ $name:ident ($($path:tt)+) maybe $to:ident) => {
        pub fn $name(self) -> Option<Node<'a, pg_sys::$to>> {
            // SAFETY: a valid node, whose field leads to a node of this type, or is null.
            unsafe { Node::from_raw((*self.as_ptr()).$($path)+.cast()) }
        }
    };
    (@ $name:ident ($($path:tt)+) many $to:ident) => {
        pub fn $name(self) -> NodeList<'a, pg_sys::$to> {
            // SAFETY: a valid node, whose field is a list of these, or null.
            unsafe { NodeList::from_raw((*self.as_ptr()).$($path)+) }
        }
    };
    (@ $name:ident ($($path:tt)+) text CStr) => {
        pub fn $name(self) -> Option<&'a CStr> {
            // SAFETY: a valid node, whose field is a string, or null.
            unsafe { (*self.as_ptr()).$($path)+.as_ref().map(|text| CStr::from_ptr(text)) }
        }
    };
}

nodes! {
    List = T_List | T_IntList | T_OidList {}
    Var = T_Var {}
    Param = T_Param {}
    FuncExpr = T_FuncExpr { args: many Node }
    RowExpr = T_RowExpr { args: many Node }
    RowCompareExpr = T_RowCompareExpr { families(opfamilies): many Oid }
    NullTest = T_NullTest {}
    CaseTestExpr = T_CaseTestExpr {}
    NextValueExpr = T_NextValueExpr {}
    Const = T_Const {}
    RelabelType = T_RelabelType { arg: one Node }
    PlaceHolderVar = T_PlaceHolderVar { phexpr: one Node }
    TargetEntry = T_TargetEntry { expr: one Node, name(resname): text CStr }
    RangeTblEntry = T_RangeTblEntry { subquery: maybe Query, functions: many RangeTblFunction }
    RangeTblFunction = T_RangeTblFunction { call(funcexpr): maybe Node, types(funccoltypes): many Oid }
    TableFunc = T_TableFunc { types(coltypes): many Oid }
    RangeTblRef = T_RangeTblRef {}
    FromExpr = T_FromExpr { fromlist: many Node, quals: maybe Node }
    EState = T_EState {
        entries(es_range_table): many RangeTblEntry,
        opened(es_opened_result_relations): many ResultRelInfo,
        routed(es_tuple_routing_result_relations): many ResultRelInfo
    }
    ResultRelInfo = T_ResultRelInfo {}
    ForeignScanState = T_ForeignScanState {
        state(ss.ps): base PlanState, plan(ss.ps.plan): one ForeignScan, routines(fdwroutine): maybe FdwRoutine
    }
    PlanState { lefttree: maybe PlanState, estate(state): one EState }
    FieldSelect = T_FieldSelect {}
    Query = T_Query {
        targets(targetList): many TargetEntry, rtable: many RangeTblEntry, jointree: maybe FromExpr,
        having(havingQual): maybe Node
    }
    PlannerGlobal = T_PlannerGlobal {}
    PlannerInfo = T_PlannerInfo {
        query(parse): one Query, glob: one PlannerGlobal, processed_tlist: many TargetEntry, cte_plan_ids: many int32
    }
    RelOptInfo = T_RelOptInfo {
        subroot: maybe PlannerInfo,
        conditions(baserestrictinfo): many RestrictInfo,
        pathlist: many Path,
        partial_paths(partial_pathlist): many Path,
        cheapest(cheapest_total_path): maybe Path
    }
    RestrictInfo = T_RestrictInfo { clause: one Node }
    String = T_String { value(sval): text CStr }
    Integer = T_Integer {}
    Boolean = T_Boolean {}
    RangeVar = T_RangeVar { name(relname): text CStr }
    DefElem = T_DefElem { name(defname): text CStr, value(arg): maybe Node }
    CopyStmt = T_CopyStmt {
        table(relation): maybe RangeVar, file(filename): text CStr, columns(attlist): many String, options: many DefElem,
        clause(whereClause): maybe Node
    }
    RawStmt = T_RawStmt { stmt: one Node }
    SelectStmt = T_SelectStmt {
        sort_clause(sortClause): many Node, rows(valuesLists): many List
    }
    SortBy = T_SortBy { value(node): one Node }
    CollateClause = T_CollateClause { arg: maybe Node, names(collname): many Node }
    ColumnRef = T_ColumnRef { fields: many Node }
    PathKey = T_PathKey { class(pk_eclass): one EquivalenceClass }
    EquivalenceClass = T_EquivalenceClass {}
    Aggref = T_Aggref { args: many TargetEntry }
    Path { rel(parent): one RelOptInfo }
    AggPath = T_AggPath { subpath: one Path }
    AppendPath = T_AppendPath { subpaths: many Path }
    ForeignPath = T_ForeignPath {
        rel(path.parent): one RelOptInfo, private(fdw_private): many Node, pathkeys(path.pathkeys): many PathKey
    }
    GroupPath = T_GroupPath { subpath: one Path }
    HashPath = T_HashPath {}
    JoinPath = T_NestPath | T_MergePath | T_HashPath { outerjoinpath: one Path, innerjoinpath: one Path }
    LimitPath = T_LimitPath { subpath: one Path }
    LockRowsPath = T_LockRowsPath { subpath: one Path }
    MaterialPath = T_MaterialPath { subpath: one Path }
    MemoizePath = T_MemoizePath { subpath: one Path }
    MergeAppendPath = T_MergeAppendPath { subpaths: many Path }
    ModifyTablePath = T_ModifyTablePath { subpath: one Path, targets(resultRelations): many int32 }
    ProjectionPath = T_ProjectionPath { subpath: one Path }
    ProjectSetPath = T_ProjectSetPath { subpath: one Path }
    SortPath = T_SortPath | T_IncrementalSortPath { subpath: one Path }
    SubqueryScanPath = T_SubqueryScanPath { subpath: one Path }
    UniquePath = T_UniquePath { subpath: one Path }
    UpperUniquePath = T_UpperUniquePath { subpath: one Path }
    WindowAggPath = T_WindowAggPath { subpath: one Path }
    PlannedStmt = T_PlannedStmt {
        plan(planTree): maybe Plan, rtable: many RangeTblEntry, relations(relationOids): many Oid
    }
    Plan { lefttree: maybe Plan, righttree: maybe Plan, qual: many Node, targetlist: many TargetEntry }
    CustomPath = T_CustomPath { private(custom_private): many Node }
    CustomScan = T_CustomScan { expressions(custom_exprs): many Node, private(custom_private): many Node, plans(custom_plans): many Plan }
    Append = T_Append { appendplans: many Plan }
    ForeignScan = T_ForeignScan { plan(scan.plan): base Plan, private(fdw_private): many Node }
    Join = T_NestLoop | T_MergeJoin | T_HashJoin {}
    ModifyTable = T_ModifyTable { targets(resultRelations): many int32 }
    ImportForeignSchemaStmt = T_ImportForeignSchemaStmt {
        schema(remote_schema): text CStr, server(server_name): text CStr, options: many DefElem
    }
    Result = T_Result {}
    SubqueryScan = T_SubqueryScan { subplan: one Plan }
}
