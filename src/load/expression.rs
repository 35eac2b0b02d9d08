//! Computed columns: expressions in the option `columns`.
//!
//! ```text
//!   fields ─► input row: the target's columns, then a text for each other name ─► expressions ─► the target's row
//! ```
//!
//! A string in `columns` that names no column of the table is an input: its field becomes a text that only expressions
//! see. So the fields are decoded into an input row, and a [projection](Nodes) makes the target's row of
//! it, as for a foreign table.
//!
//! An expression is parsed as the condition is ([`where_clause`](crate::program::where_clause)). No relation has the columns of
//! the input row, so [`column_reference`] resolves names for the parser. The expressions that are permitted, and the
//! errors about others, are those of a generated column; but an expression may call volatile functions.
//!
//! Analysis runs in a plain frame: constant folding runs user code, and a guard would drop the position of an error.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};

use pgrx::{PgSqlErrorCode as Code, pg_guard, pg_sys};

use super::options::LoadOptions;
use super::source;
use crate::error::{Error, OrRaise};
use crate::program::assignment::{assign, complain};
use crate::program::mapping::Mapping;
use crate::program::volatile;
use crate::program::where_clause::{only_clause, statement, within_option};
use crate::program::{Nodes, variable};
use crate::server::node::make;
use crate::server::node::{Node, NodeList};
use crate::server::relation::{Relation, TupleDesc, attribute_name};
use crate::server::unguarded::{self as c, guarded};

/// The names that expressions may use, and the projection made so far.
struct ExpressionAnalysis {
    relation: Relation<'static>,
    descriptor: TupleDesc<'static>,
    mapping: Mapping,
    statements: Vec<CString>,
    targets: NodeList<'static, pg_sys::TargetEntry>,
    /// The attributes of the input row that expressions name, including references that constant folding removes.
    named: Vec<Cell<bool>>,
}

/// Makes the projection of a load, if its options have expressions.
///
/// # Safety
/// A plain frame. The contents of the projection live in the current memory context, as long as the relation is open.
pub unsafe fn analyze(relation: Relation<'static>, options: &LoadOptions) -> Option<Nodes> {
    // SAFETY: the frame is plain; parse trees live as long as the analysis.
    unsafe {
        let analysis = guarded(|| begin(relation, options));
        if analysis.is_null() {
            return None;
        }
        for at in 0..(*analysis).statements.len() {
            let text = (*(*analysis).statements.as_ptr().add(at)).as_ptr();
            c::in_context(within_option, text.cast_mut().cast(), || add(analysis, at, text));
        }
        guarded(|| (*analysis).check_inputs());
        Some(Nodes { targets: (*analysis).targets, ..Nodes::NONE })
    }
}

/// Adds the expression of a text.
///
/// # Safety
/// As [`analyze`], with its analysis.
unsafe fn add(analysis: *mut ExpressionAnalysis, at: usize, text: *const c_char) {
    // SAFETY: the frame is plain; the functions return nodes.
    unsafe {
        let parsed = NodeList::from_raw(c::raw_parser(text, pg_sys::RawParseMode::RAW_PARSE_DEFAULT));
        let (Some(expression), Some(form)) = (only_clause(parsed), (*analysis).attribute(at)) else {
            return guarded(|| Error::new(Code::ERRCODE_SYNTAX_ERROR, "expr must be one expression").raise());
        };
        let state = c::make_parsestate(std::ptr::null_mut());
        (*state).p_sourcetext = text;
        (*state).p_pre_columnref_hook = Some(column_reference);
        (*state).p_ref_hook_state = analysis.cast();
        let node = c::transformExpr(state, expression.as_ptr(), pg_sys::ParseExprKind::EXPR_KIND_GENERATED_COLUMN);
        // As transformAssignedExpr (parse_target.c).
        let assigned = assign(state, node, form.atttypid, form.atttypmod);
        if assigned.is_null() {
            guarded::<()>(|| complain(Node::from_raw(node).unwrap_or(expression), form));
        }
        c::assign_expr_collations(state, assigned);
        if let Some(node) = Node::from_raw(c::eval_const_expressions(std::ptr::null_mut(), assigned)) {
            guarded(|| (*analysis).targets.push(make::target(node, form.attnum, None)));
        }
    }
}

/// Prepares the analysis; null if there are no expressions. Guarded.
fn begin(relation: Relation<'static>, options: &LoadOptions) -> *mut ExpressionAnalysis {
    if options.columns.computed.is_empty() {
        return std::ptr::null_mut();
    }
    let Some(mapping) = source::by_position(relation, options).or_raise() else { return std::ptr::null_mut() };
    let descriptor = source::input_descriptor(relation, &mapping);
    let moved = mapping.fields.iter().copied().flatten().chain(mapping.others.iter().map(|(attnum, _)| *attnum));
    let target = |attnum: i16| {
        let column = variable(descriptor, usize::try_from(attnum - 1).ok()?)?;
        Some(make::target(column.node(), attnum, None))
    };
    let targets = moved.filter_map(target).collect();
    let statements = options.columns.computed.iter().map(|(_, text)| statement(text)).collect();
    let named = vec![Cell::new(false); descriptor.len()];
    let analysis = ExpressionAnalysis { relation, descriptor, mapping, statements, targets, named };
    pgrx::memcxt::PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(analysis)
}

impl ExpressionAnalysis {
    /// The target's column that this expression computes. Raises nothing.
    fn attribute(&self, at: usize) -> Option<&'static pg_sys::FormData_pg_attribute> {
        let attnum = *self.mapping.computed.get(at)?;
        self.relation.descriptor().attribute(usize::try_from(attnum - 1).ok()?)
    }

    /// Raises unless each input is used: a misspelled name must not pass for an input. Guarded.
    fn check_inputs(&self) {
        let mut inputs = self.descriptor.attributes().zip(&self.named).skip(self.relation.descriptor().len());
        if let Some((form, _)) = inputs.find(|(_, is_named)| !is_named.get()) {
            let (name, table) = (attribute_name(form), self.relation.name_text());
            let message = format!("column \"{name}\" of relation \"{table}\" does not exist");
            Error::new(Code::ERRCODE_UNDEFINED_COLUMN, message)
                .detail("No expression in columns uses it as a field either.")
                .raise();
        }
    }
}

/// Resolves a name to a column that a field is for, or to an input.
///
/// # Safety
/// Called by the parser, with the state that the analysis has prepared.
#[pg_guard]
unsafe extern "C-unwind" fn column_reference(
    state: *mut pg_sys::ParseState,
    reference: *mut pg_sys::ColumnRef,
) -> *mut pg_sys::Node {
    // SAFETY: the parser passes its own state and reference; all fields are Strings, except a star.
    unsafe {
        let analysis = &*(*state).p_ref_hook_state.cast::<ExpressionAnalysis>();
        let fields = (*reference).fields;
        let field = (*(*fields).elements).ptr_value.cast::<pg_sys::Node>();
        if (*fields).length != 1 || (*field).type_ != pg_sys::NodeTag::T_String {
            return std::ptr::null_mut();
        }
        let name = CStr::from_ptr((*field.cast::<pg_sys::String>()).sval);
        let Some(attribute) = analysis.mapping.input(name, analysis.relation) else {
            return std::ptr::null_mut();
        };
        if let Some(named) = analysis.named.get(attribute) {
            named.set(true);
        }
        let Some(variable) = variable(analysis.descriptor, attribute) else { return std::ptr::null_mut() };
        (*variable.as_ptr()).location = (*reference).location;
        variable.node().as_ptr()
    }
}

/// Reason if an expression calls a function that the direct writer must not run. Guarded.
pub fn obstacle(nodes: Nodes) -> Option<String> {
    nodes.targets.node().and_then(volatile::call_in).map(|call| format!("An expression in columns {call}."))
}
