//! The order of a file's rows, as the option `sorted_by` declares it.
//!
//! ```text
//!   option ─► keys ─► columns ─► pathkeys ─► path ─► plan: the columns to check ─► check, row by row
//!   text      names   types      what the query   only if it is chosen
//!                     operators  can use
//! ```
//!
//! The option has the text of an ORDER BY clause with columns only, and the server's grammar parses it. Names are
//! resolved each time a query is planned. So after a column is renamed or dropped, planning fails instead of using
//! another order.
//!
//! The planner gets a path with the order beside the one without it, at the cost of comparing each row with the one
//! before. So if no plan node relies on the order, nothing is checked. If one does, the scan checks the rows that it
//! returns ([`check`]), since the plan depends on their order. The plan carries the columns to check, so the check is
//! that of the plan even if the option has changed since.
//!
//! **Several processes.** Each reads chunks of the file in ascending order, so the rows of each process are in order if
//! those of the file are. Each checks its own rows, which is sufficient for Gather Merge.
//!
//! A scan that does not return all rows cannot check the rest: LIMIT, min() and a merge join whose other side has ended
//! rely on the option alone.

mod check;

use std::ffi::{CStr, CString};

use pgrx::{PgSqlErrorCode as Code, PgTryBuilder, pg_sys};

pub use self::check::{IN_ORDER, OrderCheck, follows};
use crate::error::{Error, Result};
use crate::rows::copy_options::attribute_number;
use crate::server::compat;
use crate::server::lookup::{
    collation_name, collation_named, column_name, column_type, equality_in, quoted, type_entry, type_name,
};
use crate::server::node::{Node, NodeList, make};
use crate::server::option_value::invalid;
use crate::server::planner::{PathOrder, PlannedRelation, Planner};

/// A column in the option.
#[derive(Debug)]
struct OrderKey<'a> {
    name: CString,
    /// Names of a collation; none without one.
    collation: NodeList<'a>,
    descending: bool,
    nulls_first: bool,
}

/// A column of the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ordered {
    /// The column's number.
    pub number: i16,
    /// The sort operator.
    pub operator: pg_sys::Oid,
    pub collation: pg_sys::Oid,
    pub nulls_first: bool,
}

fn malformed() -> Error {
    let message = "argument to option \"sorted_by\" must be a list of column names";
    invalid(message).hint("Each may be followed by COLLATE, ASC or DESC, NULLS FIRST or NULLS LAST, as in ORDER BY.")
}

/// Raises unless the option can be parsed. Guarded.
pub fn validate(option: &CStr) -> Result<()> {
    keys(option).map(drop)
}

/// Parses the option. Guarded.
fn keys<'a>(option: &CStr) -> Result<Vec<OrderKey<'a>>> {
    let statement = CString::new([b"SELECT ORDER BY ", option.to_bytes()].concat()).unwrap_or_default();
    // A position in the parser's error would refer to this internal statement.
    let statements = PgTryBuilder::new(|| make::parsed(&statement))
        .catch_when(Code::ERRCODE_SYNTAX_ERROR, |_| NodeList::EMPTY)
        .execute();
    sort_clause(statements).and_then(|clause| clause.iter().map(key).collect()).ok_or_else(malformed)
}

/// The ORDER BY clause, if the statement has nothing else. Guarded.
fn sort_clause<'a>(statements: NodeList<'a, pg_sys::RawStmt>) -> Option<NodeList<'a>> {
    let statement = statements.first().filter(|_| statements.len() == 1)?.stmt().as_a::<pg_sys::SelectStmt>()?;
    let clause = statement.sort_clause();
    // Nothing else may follow ORDER BY.
    let is_all = statement.limitOffset.is_null() && statement.limitCount.is_null() && statement.lockingClause.is_null();
    (is_all && !clause.is_empty()).then_some(clause)
}

/// An item of a sort clause.
fn key(item: Node<'_>) -> Option<OrderKey<'_>> {
    let item = item.as_a::<pg_sys::SortBy>()?;
    let descending = match item.sortby_dir {
        pg_sys::SortByDir::SORTBY_DEFAULT | pg_sys::SortByDir::SORTBY_ASC => false,
        pg_sys::SortByDir::SORTBY_DESC => true,
        _ => return None,
    };
    let nulls_first = match item.sortby_nulls {
        pg_sys::SortByNulls::SORTBY_NULLS_FIRST => true,
        pg_sys::SortByNulls::SORTBY_NULLS_LAST => false,
        _ => descending,
    };
    let (mut node, mut collation) = (item.value(), NodeList::EMPTY);
    if let Some(clause) = node.as_a::<pg_sys::CollateClause>() {
        (node, collation) = (clause.arg()?, clause.names());
    }
    let fields = node.as_a::<pg_sys::ColumnRef>()?.fields();
    let field = fields.first().filter(|_| fields.len() == 1)?.as_a::<pg_sys::String>()?;
    Some(OrderKey { name: field.text().to_owned(), collation, descending, nulls_first })
}

/// The columns of the order, with the planner's data about them. Guarded.
fn columns(relid: pg_sys::Oid, option: &CStr) -> Result<Vec<(Ordered, PlannerColumn)>> {
    keys(option)?.iter().map(|key| column(relid, key)).collect()
}

/// The planner's data about a column.
#[derive(Debug, Clone, Copy)]
struct PlannerColumn {
    type_: pg_sys::Oid,
    modifier: i32,
    own_collation: pg_sys::Oid,
    family: pg_sys::Oid,
    input: pg_sys::Oid,
    strategy: i16,
}

fn column(relid: pg_sys::Oid, key: &OrderKey<'_>) -> Result<(Ordered, PlannerColumn)> {
    let number = attribute_number(relid, &key.name)
        .map_err(|error| error.hint("The option sorted_by of the foreign table names the column."))?;
    let (type_, modifier, own_collation) = column_type(relid, number);
    let mut collation = own_collation;
    if !key.collation.is_empty() {
        if own_collation == pg_sys::InvalidOid {
            let message = format!("collations are not supported by type {}", type_name(type_));
            return Err(Error::new(Code::ERRCODE_DATATYPE_MISMATCH, message));
        }
        collation = collation_named(key.collation.of());
    }
    let operators = type_entry(type_, pg_sys::TYPECACHE_LT_OPR | pg_sys::TYPECACHE_GT_OPR);
    let operator = if key.descending { operators.gt_opr } else { operators.lt_opr };
    let ordering = if operator == pg_sys::InvalidOid { None } else { compat::ordering_of(operator) };
    let Some((family, input, strategy)) = ordering else {
        let message = format!("could not identify an ordering operator for type {}", type_name(type_));
        let hint = format!("The option sorted_by names column \"{}\".", key.name.to_string_lossy());
        return Err(Error::new(Code::ERRCODE_UNDEFINED_FUNCTION, message).hint(hint));
    };
    let ordered = Ordered { number, operator, collation, nulls_first: key.nulls_first };
    Ok((ordered, PlannerColumn { type_, modifier, own_collation, family, input, strategy }))
}

/// The leading part of a file's order that a query can use.
#[derive(Debug)]
struct UsableOrder<'a> {
    columns: Vec<Ordered>,
    pathkeys: Vec<Node<'a, pg_sys::PathKey>>,
    /// For each pathkey, the number of columns up to it.
    up_to: Vec<usize>,
}

impl UsableOrder<'_> {
    /// The columns that this many pathkeys stand for.
    fn columns(mut self, pathkeys: usize) -> Vec<Ordered> {
        if let Some(&columns) = pathkeys.checked_sub(1).and_then(|last| self.up_to.get(last)) {
            self.columns.truncate(columns);
        }
        self.columns
    }
}

/// Makes the pathkeys of the option. Guarded.
fn spoken<'a>(
    root: Planner<'a>,
    rel: PlannedRelation<'a>,
    relid: pg_sys::Oid,
    option: &CStr,
) -> Result<UsableOrder<'a>> {
    let columns = columns(relid, option)?;
    let mut pathkeys: Vec<Node<'_, pg_sys::PathKey>> = Vec::new();
    let mut up_to = Vec::new();
    for (i, (ordered, known)) in columns.iter().enumerate() {
        // As make_pathkey_from_sortinfo and build_index_pathkeys.
        let equality = equality_in(known.family, known.input);
        let kind = (known.type_, known.modifier, known.own_collation);
        let column = make::variable(rel.relid.cast_signed(), ordered.number, kind);
        let class = compat::known_eclass(root, rel, column, equality, known.input, ordered.collation);
        // Without a class, the query does not use the order of this column.
        let Some(class) = class else { break };
        let key = compat::canonical_pathkey(root, class, known.family, known.strategy, ordered.nulls_first);
        let class = key.class();
        if !compat::is_constant(class) && pathkeys.iter().all(|other| other.pk_eclass != class.as_ptr()) {
            pathkeys.push(key);
            up_to.push(i + 1);
        }
    }
    let columns = columns.into_iter().map(|(ordered, _)| ordered).collect();
    Ok(UsableOrder { columns, pathkeys, up_to })
}

/// The part of the file's order that a query can use: pathkeys, and the columns that they stand for. `None` if it
/// can use no part. Guarded.
pub fn useful<'a>(
    root: Planner<'a>,
    rel: PlannedRelation<'a>,
    relid: pg_sys::Oid,
    option: &CStr,
) -> Result<Option<(PathOrder<'a>, Vec<Ordered>)>> {
    let mut spoken = spoken(root, rel, relid, option)?;
    let (order, count) = PathOrder::useful(root, rel, std::mem::take(&mut spoken.pathkeys));
    Ok((count > 0).then(|| (order, spoken.columns(count))))
}

/// The columns that the first pathkeys of a path stand for, which [`useful`] has made. Guarded.
pub fn promised(
    root: Planner<'_>,
    rel: PlannedRelation<'_>,
    relid: pg_sys::Oid,
    option: &CStr,
    pathkeys: usize,
) -> Result<Vec<Ordered>> {
    Ok(spoken(root, rel, relid, option)?.columns(pathkeys))
}

impl Ordered {
    /// Numbers that a plan can carry.
    pub fn to_numbers(self) -> [i32; 4] {
        let oid = |oid: pg_sys::Oid| oid.to_u32().cast_signed();
        let Ordered { number, operator, collation, nulls_first } = self;
        [i32::from(number), oid(operator), oid(collation), i32::from(nulls_first)]
    }

    /// The columns with these numbers.
    pub fn from_numbers(numbers: &[i32]) -> Vec<Ordered> {
        let oid = |number: i32| pg_sys::Oid::from_u32(number.cast_unsigned());
        let (columns, _) = numbers.as_chunks();
        let column = |&[number, operator, collation, nulls_first]: &[i32; 4]| {
            Some(Ordered {
                number: i16::try_from(number).ok()?,
                operator: oid(operator),
                collation: oid(collation),
                nulls_first: nulls_first != 0,
            })
        };
        columns.iter().filter_map(column).collect()
    }

    /// In ORDER BY syntax. Guarded.
    pub fn describe(&self, relid: pg_sys::Oid) -> String {
        let quoted = |name: CString| quoted(&name).to_string_lossy().into_owned();
        let mut text = column_name(relid, self.number).map_or_else(|| "?".to_owned(), quoted);
        let (_, _, own_collation) = column_type(relid, self.number);
        if let Some(name) = collation_name(self.collation).filter(|_| self.collation != own_collation) {
            text.push_str(&format!(" COLLATE {}", quoted(name)));
        }
        let strategy = compat::ordering_of(self.operator).map_or(0, |(_, _, strategy)| strategy);
        let descending = u32::from(strategy.cast_unsigned()) == pg_sys::BTGreaterStrategyNumber;
        if descending {
            text.push_str(" DESC");
        }
        if self.nulls_first != descending {
            text.push_str(if self.nulls_first { " NULLS FIRST" } else { " NULLS LAST" });
        }
        text
    }
}
