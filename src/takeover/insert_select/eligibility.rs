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

use pgrx::{PgList, pg_sys};

use self::expression::{asks_for_last_id, of_expression, takes_ids};
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
use crate::rows::soft::OnError;
use crate::server::compat;
use crate::server::relation::Relation;
use crate::server::sequence_default::SequenceDefault;

const NO_LOCK: pg_sys::LOCKMODE = pg_sys::NoLock.cast_signed();

/// A negative answer is a sentence.
pub type Answer<T> = std::result::Result<T, String>;

pub fn no<T>(why: &str) -> Answer<T> {
    Err(why.into())
}

/// Checks an INSERT. Guarded.
///
/// # Safety
/// The planner's structures, while it makes paths for an INSERT.
pub unsafe fn check(
    root: *mut pg_sys::PlannerInfo,
    input: *mut pg_sys::RelOptInfo,
    path: *mut pg_sys::ModifyTablePath,
) -> Answer<Vec<Insertion>> {
    // SAFETY: this function's contract covers the structures; tags give the node types.
    unsafe {
        if guc::direct_insert() == DirectInsert::Off {
            return no("pg_bulk.direct_insert is off");
        }
        of_statement(root, path)?;
        let target = (*(*(*root).simple_rte_array.add((*(*root).parse).resultRelation as usize))).relid;
        if (*input).reloptkind == pg_sys::RelOptKind::RELOPT_JOINREL {
            return of_join(root, path, target);
        }
        let parts = of_source(root, input, path)?;
        let mut insertions = Vec::with_capacity(parts.len());
        for part in &parts {
            let ForeignInput { foreign, place, .. } = *part;
            let columns = of_columns(part.targets, target, Some((place, foreign)))?;
            of_expression(part.quals.cast(), place, foreign)?;
            insertions.push(Insertion {
                target,
                foreign,
                place,
                filters: !part.quals.is_null(),
                joins: None,
                columns,
                own: None,
            });
        }
        of_defaults(&parts, &mut insertions)?;
        if !parts.iter().all(|part| part.is_plain) {
            for (part, insertion) in parts.iter().zip(&mut insertions) {
                let targets = to_row(insertion.entries(part.targets).cast(), part.place as u32).cast();
                // The conditions come with the plan.
                insertion.own = Some(Nodes { targets, ..Nodes::NONE });
            }
        }
        of_tables(&insertions, false)?;
        of_plan(target)?;
        Ok(insertions)
    }
}

/// Checks an INSERT whose rows of one foreign table are joined with other tables. Guarded.
///
/// # Safety
/// As [`check`]; the target.
unsafe fn of_join(
    root: *mut pg_sys::PlannerInfo,
    path: *mut pg_sys::ModifyTablePath,
    target: pg_sys::Oid,
) -> Answer<Vec<Insertion>> {
    // SAFETY: this function's contract covers the structures.
    unsafe {
        let Joins { foreign, place, reach } = joins::check(root, (*path).subpath, target)?;
        let columns = of_columns((*root).processed_tlist, target, None)?;
        let reach = match joins::of_expressions(root, &columns)? {
            Reach::Everywhere => reach,
            Reach::Leader => Reach::Leader,
        };
        let insertion = Insertion { target, foreign, place, filters: false, joins: Some(reach), columns, own: None };
        of_tables(std::slice::from_ref(&insertion), false)?;
        of_plan(target)?;
        Ok(vec![insertion])
    }
}

/// An attribute that gets its default from some parts only becomes an expression. Guarded.
///
/// # Safety
/// Parts that were checked, and their insertions.
unsafe fn of_defaults(parts: &[ForeignInput], insertions: &mut [Insertion]) -> Answer<()> {
    let attributes = insertions.first().map_or(0, |insertion| insertion.columns.len());
    for i in 0..attributes {
        let is_default = |insertion: &Insertion| insertion.columns.get(i) == Some(&DEFAULT);
        if insertions.iter().all(is_default) {
            continue;
        }
        for (part, insertion) in parts.iter().zip(&mut *insertions).filter(|(_, insertion)| is_default(insertion)) {
            // SAFETY: a target list with an entry for each attribute.
            unsafe {
                let entry = PgList::<pg_sys::TargetEntry>::from_pg(part.targets).get_ptr(i);
                let expression = entry.map_or(std::ptr::null_mut(), |entry| (*entry).expr);
                of_expression(expression.cast(), part.place, part.foreign)?;
            }
            insertion.columns.iter_mut().skip(i).take(1).for_each(|column| *column = EXPRESSION);
        }
    }
    Ok(())
}

/// # Safety
/// As [`check`].
unsafe fn of_statement(root: *mut pg_sys::PlannerInfo, path: *mut pg_sys::ModifyTablePath) -> Answer<()> {
    // SAFETY: this function's contract covers the structures.
    unsafe {
        let parse = (*root).parse;
        // An inlined CTE has no plan of its own.
        let plans = (*root).cte_plan_ids.as_ref();
        let has_plan =
            plans.is_some_and(|ids| (0..ids.length as usize).any(|i| (*ids.elements.add(i)).int_value != -1));
        if (*root).query_level != 1 || has_plan || (*parse).hasModifyingCTE {
            return no("The statement has a WITH clause.");
        }
        if !(*path).onconflict.is_null() {
            return no("The INSERT has an ON CONFLICT clause.");
        }
        if !(*path).returningLists.is_null() {
            return no("The INSERT has a RETURNING clause.");
        }
        if !(*path).withCheckOptionLists.is_null() {
            return no("A policy or a view checks each row.");
        }
        let one_target = (*path).resultRelations.as_ref().is_some_and(|list| list.length == 1);
        if !(*path).rowMarks.is_null() || !(*path).mergeActionLists.is_null() || !one_target {
            return no("The statement locks rows.");
        }
        of_select(root)
    }
}

/// Checks that a query or a subquery only reads rows. Guarded.
///
/// # Safety
/// As [`check`].
pub unsafe fn of_select(root: *mut pg_sys::PlannerInfo) -> Answer<()> {
    // SAFETY: this function's contract covers the structures.
    unsafe {
        let parse = (*root).parse;
        let more = [
            (*parse).sortClause,
            (*parse).groupClause,
            (*parse).groupingSets,
            (*parse).distinctClause,
            (*parse).windowClause,
            (*parse).rowMarks,
        ];
        if more.iter().any(|list| !list.is_null())
            || !(*parse).limitCount.is_null()
            || !(*parse).limitOffset.is_null()
            || !(*parse).havingQual.is_null()
            || (*parse).hasAggs
            || (*parse).hasWindowFuncs
            || (*parse).hasTargetSRFs
        {
            return no("The SELECT does more than read rows.");
        }
        if !(*parse).setOperations.is_null() {
            return no("The SELECT is more than a UNION ALL of columns of the same types.");
        }
        // A sublink that became a join has no plan of its own.
        let has_subplans = (*parse).hasSubLinks && !(*(*root).glob).subplans.is_null();
        if has_subplans || !(*root).init_plans.is_null() {
            return no("The SELECT has subqueries.");
        }
        if (*root).hasPseudoConstantQuals {
            return no("A condition reads no column.");
        }
        Ok(())
    }
}

/// The foreign tables that the rows come from, one after the other. Guarded.
///
/// # Safety
/// As [`check`].
unsafe fn of_source(
    root: *mut pg_sys::PlannerInfo,
    input: *mut pg_sys::RelOptInfo,
    path: *mut pg_sys::ModifyTablePath,
) -> Answer<Vec<ForeignInput>> {
    // SAFETY: this function's contract covers the structures.
    unsafe {
        let is_base = (*input).reloptkind == pg_sys::RelOptKind::RELOPT_BASEREL
            && pg_sys::bms_equal((*input).relids, (*root).all_baserels);
        if !is_base {
            return no("The SELECT does more than read rows.");
        }
        let above = Above { targets: (*root).processed_tlist, quals: std::ptr::null_mut(), is_plain: true };
        let mut found = Vec::new();
        parts::gather(root, (*path).subpath, above, &mut found)?;
        if found.is_empty() { no("The SELECT reads no table.") } else { Ok(found) }
    }
}

/// Strips RelabelType nodes.
///
/// # Safety
/// An expression.
pub unsafe fn without_relabels(expression: *mut pg_sys::Node) -> *mut pg_sys::Node {
    let mut value = expression;
    // SAFETY: this function's contract covers the expression; tags give the node types.
    unsafe {
        while (*value).type_ == pg_sys::NodeTag::T_RelabelType {
            value = (*value.cast::<pg_sys::RelabelType>()).arg.cast();
        }
    }
    value
}

/// The source of each attribute of the target. Guarded.
///
/// # Safety
/// The target list of an INSERT, with an entry for each attribute of the target. The foreign table and its range table
/// index, if the query reads only that.
unsafe fn of_columns(
    list: *mut pg_sys::List,
    target: pg_sys::Oid,
    only: Option<(usize, pg_sys::Oid)>,
) -> Answer<Vec<i32>> {
    // SAFETY: this function's contract covers the list; guarded calls on a relation that the parser has locked.
    unsafe {
        let relation = pg_sys::table_open(target, NO_LOCK);
        let entries = PgList::<pg_sys::TargetEntry>::from_pg(list);
        let natts = usize::try_from((*(*relation).rd_att).natts).unwrap_or(0);
        let mut columns = Vec::with_capacity(natts);
        let mut sequences = Sequences::default();
        let mut answer = Ok(());
        for attribute in 0..natts {
            let of_attribute = match entries.get_ptr(attribute) {
                Some(entry) if usize::try_from((*entry).resno) == Ok(attribute + 1) && !(*entry).resjunk => {
                    of_column((*entry).expr, relation, attribute, only)
                }
                _ => no("The target list is not as expected."),
            };
            match of_attribute {
                Ok(number) => columns.push(number),
                Err(why) => answer = Err(why),
            }
            if let (Some(&DEFAULT), Some(entry)) = (columns.get(attribute), entries.get_ptr(attribute)) {
                sequences.add((*entry).expr.cast());
            }
            if answer.is_err() {
                break;
            }
        }
        pg_sys::table_close(relation, NO_LOCK);
        answer?;
        if sequences.are_shared() {
            return no("Two columns take their defaults from the same sequence.");
        }
        if columns.iter().all(|&number| number == DEFAULT) {
            return no("The INSERT uses no column of the file.");
        }
        Ok(columns)
    }
}

/// The sequences that defaults take ids of; None for an unknown one.
#[derive(Debug, Default)]
pub struct Sequences(Vec<Option<pg_sys::Oid>>);

impl Sequences {
    /// Adds the sequences of a default. Guarded.
    ///
    /// # Safety
    /// A default.
    pub unsafe fn add(&mut self, default: *mut pg_sys::Node) {
        // SAFETY: this function's contract covers the default; guarded calls.
        unsafe {
            if takes_ids(default, std::ptr::null_mut()) {
                self.0.push(SequenceDefault::recognise(default).map(|default| default.sequence()));
            }
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

/// # Safety
/// As [`of_columns`]; an expression for an attribute of the target.
unsafe fn of_column(
    expression: *mut pg_sys::Expr,
    relation: pg_sys::Relation,
    attribute: usize,
    only: Option<(usize, pg_sys::Oid)>,
) -> Answer<i32> {
    // SAFETY: this function's contract covers the arguments; tags give the node types, the attribute exists.
    unsafe {
        let form = &*compat::attribute((*relation).rd_att, attribute);
        if form.attisdropped || form.attgenerated != 0 {
            return Ok(DEFAULT);
        }
        // A relabeled value is stored unchanged.
        let value = without_relabels(expression.cast());
        if let (Some((place, foreign)), pg_sys::NodeTag::T_Var) = (only, (*value).type_) {
            let var = value.cast::<pg_sys::Var>();
            let is_ours = usize::try_from((*var).varno) == Ok(place) && (*var).varlevelsup == 0 && (*var).varattno > 0;
            let fits = pg_sys::exprType(expression.cast()) == form.atttypid;
            if is_ours && fits && pg_sys::get_attgenerated(foreign, (*var).varattno) == 0 {
                return Ok(i32::from((*var).varattno));
            }
        }
        let default = pg_sys::build_column_default(relation, i32::from(form.attnum));
        let is_default = if default.is_null() {
            // A NULL that a domain must check is not a Const.
            (*expression).type_ == pg_sys::NodeTag::T_Const && (*expression.cast::<pg_sys::Const>()).constisnull
        } else {
            pg_sys::equal(expression.cast(), pg_sys::expression_planner(default.cast()).cast())
        };
        if asks_for_last_id(expression.cast(), std::ptr::null_mut()) {
            return no("An expression calls currval or lastval.");
        }
        if is_default {
            return Ok(DEFAULT);
        }
        match only {
            Some((place, foreign)) => of_expression(expression.cast(), place, foreign)?,
            None if takes_ids(expression.cast(), std::ptr::null_mut()) => {
                return no("An expression calls nextval.");
            }
            None => (),
        }
        Ok(EXPRESSION)
    }
}

/// Checks facts that may change while a cached plan stays valid, and facts about the tables themselves. With `leaves`,
/// also locks and checks partitions, unless another session holds a lock that core might not wait for. Planning takes
/// no lock that core would not take. Guarded.
///
/// # Safety
/// Tables that are locked as their INSERT and SELECT require.
pub unsafe fn of_tables(insertions: &[Insertion], leaves: bool) -> Answer<()> {
    // SAFETY: this function's contract covers the locks.
    unsafe {
        let Some(first) = insertions.first() else { return no("The plan chooses partitions when it runs.") };
        insertions.iter().try_for_each(|insertion| of_foreign(insertion))?;
        // All parts set the same attributes.
        of_target(first, leaves)
    }
}

/// Checks that the server's INSERT into the target is a plain one. Not needed for a table that the statement creates,
/// because no INSERT fills it. Guarded.
///
/// # Safety
/// A target that is locked as its INSERT requires.
pub unsafe fn of_plan(target: pg_sys::Oid) -> Answer<()> {
    // SAFETY: this function's contract covers the lock; guarded calls.
    unsafe {
        let relation = pg_sys::table_open(target, NO_LOCK);
        let why = planned_insert::obstacle(relation);
        pg_sys::table_close(relation, NO_LOCK);
        why.map_or(Ok(()), Err)
    }
}

/// # Safety
/// As [`of_tables`].
unsafe fn of_foreign(insertion: &Insertion) -> Answer<()> {
    // SAFETY: this function's contract covers the locks; guarded calls.
    unsafe {
        let foreign = pg_sys::table_open(insertion.foreign, NO_LOCK);
        let mapping = insertion.mapping(foreign);
        // The constraints of its columns' domains are checked while the file is read.
        let mut found = Vec::new();
        volatile::of_constraints(Relation::from_raw(foreign), &mut found);
        let has_defaults = (*(*foreign).rd_att).constr.as_ref().is_some_and(|constraints| constraints.num_defval > 0);
        pg_sys::table_close(foreign, NO_LOCK);
        if (Wrapper::get().or_raise().filters)(insertion.foreign).or_raise() {
            return no("The foreign table has the option filter.");
        }
        let (_, copy) = Wrapper::get().or_raise().file_of(insertion.foreign).or_raise();
        if copy.dialect.default.is_some() {
            return no("The foreign table has the option default.");
        }
        if copy.by_name() && has_defaults {
            return no("The foreign table has defaults, for columns that the header does not name.");
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
}

/// # Safety
/// As [`of_tables`].
unsafe fn of_target(insertion: &Insertion, leaves: bool) -> Answer<()> {
    // SAFETY: this function's contract covers the locks; guarded calls.
    unsafe {
        let foreign = pg_sys::table_open(insertion.foreign, NO_LOCK);
        let mapping = insertion.mapping(foreign);
        pg_sys::table_close(foreign, NO_LOCK);
        let mut found = Vec::new();
        let relation = pg_sys::table_open(insertion.target, NO_LOCK);
        found.extend(obstacle::of_named(Relation::from_raw(relation), Keep::Error));
        // A negative answer needs no further locks.
        if leaves && found.is_empty() {
            obstacle::of_free_leaves(Relation::from_raw(relation), &mut found);
        }
        found.extend(volatile::obstacles(Relation::from_raw(relation), Some(&mapping), std::ptr::null_mut()));
        if obstacle::has_before_statement(Relation::from_raw(relation)) {
            // The trigger may change settings that affect how fields are read, and the foreign table.
            found.push("The table has a BEFORE statement trigger.".into());
        }
        let form = (*relation).rd_rel;
        if (*form).relpersistence.cast_unsigned() == pg_sys::RELPERSISTENCE_TEMP {
            found.push("The table is temporary.".into());
        }
        pg_sys::table_close(relation, NO_LOCK);
        found.into_iter().next().map_or(Ok(()), Err)
    }
}
