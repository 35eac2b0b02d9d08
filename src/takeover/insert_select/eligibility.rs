//! The eligibility check of INSERTs: can the direct writer replace the executor?
//!
//! The direct writer must do to each row what the executor would do between the scan and the table. That holds for a
//! value that comes straight from a column of the file, if both columns have one type, or binary-coercible types. The
//! foreign table's column makes the value, with its length, and it is stored unchanged. It also holds for an attribute
//! that gets exactly its default. The processes that read the rows evaluate conditions and expressions over such
//! columns. Everything else stays core's.
//!
//! Each of several tables is checked by itself. But an attribute that gets its default from one table must get it from
//! all. A constant from one table and a column from another is an expression.
//!
//! A negative answer is a sentence, for EXPLAIN.

pub mod expression;
pub mod joins;
pub mod parts;

use pgrx::pg_sys;

use self::expression::{asks_for_last_id, is_column, of_expression, takes_ids};
use self::joins::Joins;
use self::parts::{Above, ForeignInput};
use super::insertion::{DEFAULT, EXPRESSION, Insertion, Reach};
use super::translate::to_row;
use crate::error::OrRaise;
use crate::guc::{self, DirectInsert};
use crate::load::duplicate::Keep;
use crate::load::wrapper::Wrapper;
use crate::load::{obstacle, planned_insert};
use crate::program::Nodes;
use crate::program::volatile;
use crate::rows::column::default_expression;
use crate::rows::soft::OnError;
use crate::server::expression::Expression;
use crate::server::node::{Node, NodeList};
use crate::server::relation::{OpenRelation, Relation};
use crate::server::sequence_default::SequenceDefault;

type Root<'a> = Node<'a, pg_sys::PlannerInfo>;
type Rel<'a> = Node<'a, pg_sys::RelOptInfo>;
type ModifyPath<'a> = Node<'a, pg_sys::ModifyTablePath>;

/// A negative answer is a sentence.
pub type Answer<T> = std::result::Result<T, String>;

pub fn no<T>(why: &str) -> Answer<T> {
    Err(why.into())
}

/// Checks an INSERT at the end of its planning. Guarded.
pub fn check(root: Root<'_>, input: Rel<'_>, path: ModifyPath<'_>) -> Answer<Vec<Insertion>> {
    if guc::direct_insert() == DirectInsert::Off {
        return no("pg_bulk.direct_insert is off");
    }
    of_statement(root, path)?;
    let target =
        root.entry(root.query().resultRelation.cast_unsigned()).map_or(pg_sys::InvalidOid, |entry| entry.relid);
    if input.reloptkind == pg_sys::RelOptKind::RELOPT_JOINREL {
        return of_join(root, path, target);
    }
    let parts = of_source(root, input, path)?;
    let mut insertions = Vec::with_capacity(parts.len());
    for part in &parts {
        let ForeignInput { foreign, place, .. } = *part;
        let columns = of_columns(part.targets, target, Some((place, foreign)))?;
        part.quals.node().map_or(Ok(()), |quals| of_expression(quals, place, foreign))?;
        let filters = !part.quals.is_empty();
        insertions.push(Insertion { target, foreign, place, filters, joins: None, columns, own: None });
    }
    of_defaults(&parts, &mut insertions)?;
    if !parts.iter().all(|part| part.is_plain) {
        for (part, insertion) in parts.iter().zip(&mut insertions) {
            let targets = insertion.entries(part.targets).map(|targets| to_row(targets, part.place as u32));
            // The conditions come with the plan.
            insertion.own = Some(Nodes { targets: targets.copied(), ..Nodes::NONE });
        }
    }
    of_tables(&insertions, false)?;
    of_plan(target)?;
    Ok(insertions)
}

/// Checks an INSERT whose rows of one foreign table are joined with other tables. Guarded.
fn of_join(root: Root<'_>, path: ModifyPath<'_>, target: pg_sys::Oid) -> Answer<Vec<Insertion>> {
    let Joins { foreign, place, reach } = joins::check(root, path.subpath(), target)?;
    let columns = of_columns(root.processed_tlist(), target, None)?;
    let reach = match joins::of_expressions(root, &columns)? {
        Reach::Everywhere => reach,
        Reach::Leader => Reach::Leader,
    };
    let insertion = Insertion { target, foreign, place, filters: false, joins: Some(reach), columns, own: None };
    of_tables(std::slice::from_ref(&insertion), false)?;
    of_plan(target)?;
    Ok(vec![insertion])
}

/// An attribute that gets its default from some parts only becomes an expression. Guarded.
fn of_defaults(parts: &[ForeignInput<'_>], insertions: &mut [Insertion]) -> Answer<()> {
    let attributes = insertions.first().map_or(0, |insertion| insertion.columns.len());
    for i in 0..attributes {
        let is_default = |insertion: &Insertion| insertion.columns.get(i) == Some(&DEFAULT);
        if insertions.iter().all(is_default) {
            continue;
        }
        for (part, insertion) in parts.iter().zip(&mut *insertions).filter(|(_, insertion)| is_default(insertion)) {
            let entry = part.targets.get(i);
            entry.map_or(Ok(()), |entry| of_expression(entry.expr(), part.place, part.foreign))?;
            insertion.columns.iter_mut().skip(i).take(1).for_each(|column| *column = EXPRESSION);
        }
    }
    Ok(())
}

fn of_statement(root: Root<'_>, path: ModifyPath<'_>) -> Answer<()> {
    // An inlined CTE has no plan of its own.
    let has_plan = root.cte_plan_ids().iter().any(|plan| plan != -1);
    if root.query_level != 1 || has_plan || root.query().hasModifyingCTE {
        return no("The statement has a WITH clause.");
    }
    if !path.onconflict.is_null() {
        return no("The INSERT has an ON CONFLICT clause.");
    }
    if !path.returningLists.is_null() {
        return no("The INSERT has a RETURNING clause.");
    }
    if !path.withCheckOptionLists.is_null() {
        return no("A policy or a view checks each row.");
    }
    if !path.rowMarks.is_null() || !path.mergeActionLists.is_null() || path.targets().len() != 1 {
        return no("The statement locks rows.");
    }
    of_select(root)
}

/// Checks that a query or a subquery only reads rows.
pub fn of_select(root: Root<'_>) -> Answer<()> {
    let parse = root.query();
    let more = [
        parse.sortClause, parse.groupClause, parse.groupingSets, parse.distinctClause, parse.windowClause,
        parse.rowMarks,
    ];
    if more.iter().any(|list| !list.is_null())
        || !parse.limitCount.is_null()
        || !parse.limitOffset.is_null()
        || !parse.havingQual.is_null()
        || parse.hasAggs
        || parse.hasWindowFuncs
        || parse.hasTargetSRFs
    {
        return no("The SELECT does more than read rows.");
    }
    if !parse.setOperations.is_null() {
        return no("The SELECT is more than a UNION ALL of columns of the same types.");
    }
    // A sublink that became a join has no plan of its own.
    let has_subplans = parse.hasSubLinks && !root.glob().subplans.is_null();
    if has_subplans || !root.init_plans.is_null() {
        return no("The SELECT has subqueries.");
    }
    if root.hasPseudoConstantQuals {
        return no("A condition reads no column.");
    }
    Ok(())
}

/// The foreign tables that the rows come from, one after the other. Guarded.
fn of_source<'a>(root: Root<'a>, input: Rel<'a>, path: ModifyPath<'a>) -> Answer<Vec<ForeignInput<'a>>> {
    if input.reloptkind != pg_sys::RelOptKind::RELOPT_BASEREL || !root.is_only(input) {
        return no("The SELECT does more than read rows.");
    }
    let above = Above { targets: root.processed_tlist(), quals: NodeList::EMPTY, is_plain: true };
    let mut found = Vec::new();
    parts::gather(root, path.subpath(), above, &mut found)?;
    if found.is_empty() { no("The SELECT reads no table.") } else { Ok(found) }
}

/// Strips RelabelType nodes.
pub fn without_relabels(expression: Node<'_>) -> Node<'_> {
    expression.as_a::<pg_sys::RelabelType>().map_or(expression, |relabel| without_relabels(relabel.arg()))
}

/// The source of each attribute of the target, from the target list of its INSERT. `only` is the foreign table and its
/// range table index, if the query reads only that. Guarded.
fn of_columns(
    entries: NodeList<'_, pg_sys::TargetEntry>,
    target: pg_sys::Oid,
    only: Option<(usize, pg_sys::Oid)>,
) -> Answer<Vec<i32>> {
    let target = OpenRelation::locked(target);
    let mut columns = Vec::new();
    let mut sequences = Sequences::default();
    for (i, attribute) in target.get().descriptor().attributes().enumerate() {
        let is_expected = |entry: &Node<'_, pg_sys::TargetEntry>| entry.resno == attribute.attnum && !entry.resjunk;
        let Some(entry) = entries.get(i).filter(is_expected) else { return no("The target list is not as expected.") };
        let column = of_column(entry.expr(), target.get(), attribute, only)?;
        if column == DEFAULT {
            sequences.add(entry.expr());
        }
        columns.push(column);
    }
    if sequences.are_shared() {
        return no("Two columns take their defaults from the same sequence.");
    }
    if columns.iter().all(|&number| number == DEFAULT) {
        return no("The INSERT uses no column of the file.");
    }
    Ok(columns)
}

/// The sequences that defaults take ids of; None for an unknown one.
#[derive(Debug, Default)]
pub struct Sequences(Vec<Option<pg_sys::Oid>>);

impl Sequences {
    /// Adds the sequences of a default. Guarded.
    pub fn add(&mut self, default: Node<'_>) {
        if takes_ids(default) {
            let default = SequenceDefault::recognise(default);
            self.0.push(default.map(|default| default.sequence()));
        }
    }

    /// Do several columns take ids from one sequence? A load takes ids for many rows of one column at a time; core
    /// alternates between the columns.
    pub fn are_shared(&self) -> bool {
        let has_twin = |(i, sequence): (usize, &Option<pg_sys::Oid>)| {
            let mut others = self.0.iter().enumerate().filter(|(j, _)| *j != i);
            others.any(|(_, other)| sequence.is_none() || other.is_none() || other == sequence)
        };
        self.0.iter().enumerate().any(has_twin)
    }
}

/// The source of an attribute, which gets the value of this expression. Guarded.
fn of_column(
    expression: Node<'_>,
    target: Relation<'_>,
    attribute: &pg_sys::FormData_pg_attribute,
    only: Option<(usize, pg_sys::Oid)>,
) -> Answer<i32> {
    if attribute.attisdropped || attribute.attgenerated != 0 {
        return Ok(DEFAULT);
    }
    // A relabeled value is stored unchanged.
    if let (Some((place, foreign)), Some(var)) = (only, without_relabels(expression).as_a::<pg_sys::Var>())
        && expression.type_oid() == attribute.atttypid
        && is_column(&var, place, foreign)
    {
        return Ok(i32::from(var.varattno));
    }
    let default = usize::try_from(attribute.attnum - 1).ok().and_then(|index| default_expression(target, index));
    let is_default = match default.and_then(Expression::node) {
        // A NULL that a domain must check is not a Const.
        None => expression.as_a::<pg_sys::Const>().is_some_and(|constant| constant.constisnull),
        Some(default) => expression.is_equal(default),
    };
    if asks_for_last_id(expression) {
        return no("An expression calls currval or lastval.");
    }
    if is_default {
        return Ok(DEFAULT);
    }
    match only {
        Some((place, foreign)) => of_expression(expression, place, foreign)?,
        None if takes_ids(expression) => return no("An expression calls nextval."),
        None => (),
    }
    Ok(EXPRESSION)
}

/// Checks facts that may change while a cached plan stays valid, and facts about the tables themselves, which are locked
/// as their INSERT and SELECT require. With `leaves`, also locks and checks partitions, unless another session holds a
/// lock that core might not wait for. Planning takes no lock that core would not take. Guarded.
pub fn of_tables(insertions: &[Insertion], leaves: bool) -> Answer<()> {
    let Some(first) = insertions.first() else { return no("The plan chooses partitions when it runs.") };
    insertions.iter().try_for_each(of_foreign)?;
    // All parts set the same attributes.
    of_target(first, leaves)
}

/// Checks that the server's INSERT into the target is a plain one. Not needed for a table that the statement creates,
/// because no INSERT fills it. Guarded.
pub fn of_plan(target: pg_sys::Oid) -> Answer<()> {
    planned_insert::obstacle(OpenRelation::locked(target).get()).map_or(Ok(()), Err)
}

/// Checks the foreign table. Guarded.
fn of_foreign(insertion: &Insertion) -> Answer<()> {
    let mapping = insertion.mapping();
    let foreign = OpenRelation::locked(insertion.foreign);
    // The constraints of its columns' domains are checked while the file is read.
    let mut found = Vec::new();
    volatile::of_constraints(foreign.get(), &mut found);
    if (Wrapper::get().or_raise().filters)(insertion.foreign).or_raise() {
        return no("The foreign table has the option filter.");
    }
    let (_, copy) = (Wrapper::get().or_raise().file)(insertion.foreign).or_raise();
    if copy.dialect.default.is_some() {
        return no("The foreign table has the option default.");
    }
    if (copy.by_name() || copy.takes_defaults()) && foreign.get().descriptor().defaults().next().is_some() {
        return no("The foreign table has defaults, for columns that the header or a record lacks.");
    }
    // The set of rows must not depend on the columns that are read.
    if (insertion.filters || insertion.joins.is_some()) && copy.limit.is_some() {
        // The limit counts rows of the file, and not rows that pass the conditions.
        return no("The foreign table has the option limit.");
    }
    if insertion.joins.is_some() && copy.on_error != OnError::Stop {
        return no("The foreign table has the option on_error.");
    }
    if copy.on_error != OnError::Stop && !insertion.projects() && mapping.fields.iter().any(Option::is_none) {
        return no("The foreign table has the option on_error, and not all of its columns are inserted.");
    }
    found.into_iter().next().map_or(Ok(()), Err)
}

/// Checks the target. Guarded.
fn of_target(insertion: &Insertion, leaves: bool) -> Answer<()> {
    let mapping = insertion.mapping();
    let target = OpenRelation::locked(insertion.target);
    let target = target.get();
    let mut found = obstacle::of_named(target, Keep::Error);
    // A negative answer needs no further locks.
    if leaves && found.is_empty() {
        obstacle::of_free_leaves(target, &mut found);
    }
    found.extend(volatile::obstacles(target, Some(&mapping), NodeList::EMPTY));
    if obstacle::has_before_statement(target) {
        // The trigger may change settings that affect how fields are read, and the foreign table.
        found.push("The table has a BEFORE statement trigger.".into());
    }
    if target.persistence() == pg_sys::RELPERSISTENCE_TEMP {
        found.push("The table is temporary.".into());
    }
    found.into_iter().next().map_or(Ok(()), Err)
}
