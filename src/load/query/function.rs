//! Lets a set-returning function in FROM return its rows one by one.
//!
//! A function scan collects all rows before the first one is used. ProjectSet returns the rows of a function in a
//! select list one by one, if the function supports that (ExecProjectSet). So if a query reads from one function only,
//! the function moves into the select list of a subquery:
//!
//! ```text
//!   SELECT a, b FROM f(…)        SELECT a, b FROM (SELECT (r).a, (r).b FROM (SELECT f(…) AS r) …)
//! ```
//!
//! SQL functions that are not volatile stay where they are, because the planner inlines them. So do functions with a
//! column definition list, and those WITH ORDINALITY.

use pgrx::{PgList, pg_sys};

use crate::server::compat;

/// SQL functions (pg_language.dat)
const SQL: u32 = 14;
/// PROVOLATILE_VOLATILE (pg_proc.h)
const VOLATILE: u8 = b'v';

/// An empty SELECT. Guarded.
///
/// # Safety
/// Allocates in the current memory context, which must outlive it.
pub unsafe fn select() -> *mut pg_sys::Query {
    // SAFETY: makeNode starts from zeroed memory, too.
    unsafe {
        let query = pg_sys::palloc0(size_of::<pg_sys::Query>()).cast::<pg_sys::Query>();
        (*query).type_ = pg_sys::NodeTag::T_Query;
        (*query).commandType = pg_sys::CmdType::CMD_SELECT;
        (*query).canSetTag = true;
        (*query).jointree = pg_sys::makeFromExpr(std::ptr::null_mut(), std::ptr::null_mut());
        query
    }
}

/// Makes an empty SELECT read from another query. Guarded.
///
/// # Safety
/// Two analyzed queries.
pub unsafe fn select_from(query: *mut pg_sys::Query, below: *mut pg_sys::Query) {
    // SAFETY: this function's contract covers both arguments; guarded calls.
    unsafe {
        let mut names = PgList::<pg_sys::String>::new();
        for column in PgList::<pg_sys::TargetEntry>::from_pg((*below).targetList).iter_ptr() {
            if !(*column).resjunk {
                let name = if (*column).resname.is_null() { c"".as_ptr() } else { (*column).resname.cast_const() };
                names.push(pg_sys::makeString(pg_sys::pstrdup(name)));
            }
        }
        read_from(only_entry(query, names.into_pg()), below);
    }
}

/// Makes an empty SELECT read from rows of VALUES, with the types of `columns`. Guarded.
///
/// # Safety
/// A query, lists of expressions, and one expression for each column.
pub unsafe fn select_values(query: *mut pg_sys::Query, rows: *mut pg_sys::List, columns: &[*mut pg_sys::Node]) {
    // SAFETY: this function's contract covers all arguments; guarded calls.
    unsafe {
        let mut names = PgList::<pg_sys::String>::new();
        columns.iter().for_each(|_| names.push(pg_sys::makeString(pg_sys::pstrdup(c"column".as_ptr()))));
        let entry = only_entry(query, names.into_pg());
        (*entry).rtekind = pg_sys::RTEKind::RTE_VALUES;
        (*entry).values_lists = rows;
        for &column in columns {
            (*entry).coltypes = pg_sys::lappend_oid((*entry).coltypes, pg_sys::exprType(column));
            (*entry).coltypmods = pg_sys::lappend_int((*entry).coltypmods, pg_sys::exprTypmod(column));
            (*entry).colcollations = pg_sys::lappend_oid((*entry).colcollations, pg_sys::InvalidOid);
        }
    }
}

/// Adds the query's only relation, with these columns. Guarded.
///
/// # Safety
/// A query that reads nothing, and strings.
unsafe fn only_entry(query: *mut pg_sys::Query, names: *mut pg_sys::List) -> *mut pg_sys::RangeTblEntry {
    // SAFETY: this function's contract covers both arguments; makeNode starts from zeroed memory, too; guarded calls.
    unsafe {
        let entry = pg_sys::palloc0(size_of::<pg_sys::RangeTblEntry>()).cast::<pg_sys::RangeTblEntry>();
        (*entry).type_ = pg_sys::NodeTag::T_RangeTblEntry;
        (*entry).eref = pg_sys::makeAlias(c"query".as_ptr(), names);
        (*entry).inFromCl = true;
        let place = pg_sys::palloc0(size_of::<pg_sys::RangeTblRef>()).cast::<pg_sys::RangeTblRef>();
        (*place).type_ = pg_sys::NodeTag::T_RangeTblRef;
        (*place).rtindex = 1;
        (*query).rtable = pg_sys::lappend(std::ptr::null_mut(), entry.cast());
        (*(*query).jointree).fromlist = pg_sys::lappend(std::ptr::null_mut(), place.cast());
        entry
    }
}

/// # Safety
/// An entry of a range table, and an analyzed query.
unsafe fn read_from(entry: *mut pg_sys::RangeTblEntry, below: *mut pg_sys::Query) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        (*entry).rtekind = pg_sys::RTEKind::RTE_SUBQUERY;
        (*entry).subquery = below;
    }
}

/// Changes the query so that its rows come one by one, if it reads from a single function. Guarded.
///
/// # Safety
/// An analyzed query that nothing else refers to.
pub unsafe fn let_stream(query: *mut pg_sys::Query) {
    // SAFETY: this function's contract covers the query; tags give the node types; guarded calls.
    unsafe {
        let from = PgList::<pg_sys::Node>::from_pg((*(*query).jointree).fromlist);
        let entries = PgList::<pg_sys::RangeTblEntry>::from_pg((*query).rtable);
        let (Some(place), 1) = (from.get_ptr(0), from.len()) else { return };
        if (*place).type_ != pg_sys::NodeTag::T_RangeTblRef {
            return;
        }
        let number = (*place.cast::<pg_sys::RangeTblRef>()).rtindex;
        let Some(entry) = usize::try_from(number - 1).ok().and_then(|i| entries.get_ptr(i)) else { return };
        if (*entry).rtekind != pg_sys::RTEKind::RTE_FUNCTION || (*entry).funcordinality || (*entry).lateral {
            return;
        }
        let functions = PgList::<pg_sys::RangeTblFunction>::from_pg((*entry).functions);
        let (Some(function), 1) = (functions.get_ptr(0), functions.len()) else { return };
        let call = (*function).funcexpr;
        if !(*function).funccolnames.is_null() || !is_worth_it(call) || names_whole_row(query, number) {
            return;
        }
        let mut kind = pg_sys::InvalidOid;
        let mut descriptor: pg_sys::TupleDesc = std::ptr::null_mut();
        let class = pg_sys::get_expr_result_type(call, &raw mut kind, &raw mut descriptor);
        let is_composite = match class {
            pg_sys::TypeFuncClass::TYPEFUNC_SCALAR => false,
            pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE => true,
            _ => return,
        };
        // The call is now one level deeper, or two.
        pg_sys::IncrementVarSublevelsUp(call, 1 + i32::from(is_composite), 0);
        let below = select();
        let column = pg_sys::makeTargetEntry(call.cast(), 1, pg_sys::pstrdup(c"r".as_ptr()), false);
        (*below).targetList = pg_sys::lappend(std::ptr::null_mut(), column.cast());
        (*below).hasTargetSRFs = true;
        let below = if is_composite { fields_of(below, column, descriptor) } else { below };
        (*entry).functions = std::ptr::null_mut();
        read_from(entry, below);
    }
}

/// Does the call return a set, and is it not inlined (inline_set_returning_function, clauses.c)? Guarded.
///
/// # Safety
/// An expression.
unsafe fn is_worth_it(call: *mut pg_sys::Node) -> bool {
    // SAFETY: this function's contract covers the argument; a tag gives the node type; guarded catalog lookups.
    unsafe {
        if (*call).type_ != pg_sys::NodeTag::T_FuncExpr || !(*call.cast::<pg_sys::FuncExpr>()).funcretset {
            return false;
        }
        let function = (*call.cast::<pg_sys::FuncExpr>()).funcid;
        language_of(function) != pg_sys::Oid::from_u32(SQL)
            || pg_sys::func_volatile(function).cast_unsigned() == VOLATILE
    }
}

/// The OID of a function's language. Guarded.
fn language_of(function: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: a guarded catalog lookup; a tuple of pg_proc begins with its form struct.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::PROCOID.cast_signed();
        let tuple = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(function));
        if tuple.is_null() {
            return pg_sys::InvalidOid;
        }
        let language = (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_proc>()).prolang;
        pg_sys::ReleaseSysCache(tuple);
        language
    }
}

/// Does the query use whole rows or system columns of the relation, or sublinks, CTEs or row marks? Guarded.
///
/// # Safety
/// An analyzed query.
unsafe fn names_whole_row(query: *mut pg_sys::Query, place: i32) -> bool {
    // SAFETY: this function's contract covers the argument; guarded calls on a set made here.
    unsafe {
        // References from nested levels are not searched for.
        if (*query).hasSubLinks || !(*query).cteList.is_null() || !(*query).rowMarks.is_null() {
            return true;
        }
        let mut attributes: *mut pg_sys::Bitmapset = std::ptr::null_mut();
        for node in [(*query).targetList.cast::<pg_sys::Node>(), (*(*query).jointree).quals, (*query).havingQual] {
            pg_sys::pull_varattnos(node, place as _, &raw mut attributes);
        }
        let first = pg_sys::FirstLowInvalidHeapAttributeNumber;
        (first..=0).any(|attnum| pg_sys::bms_is_member(attnum - first, attributes))
    }
}

/// A query of the fields of another query's only column.
///
/// # Safety
/// A query, its column, and the descriptor of its row type. Guarded.
unsafe fn fields_of(
    below: *mut pg_sys::Query,
    column: *mut pg_sys::TargetEntry,
    descriptor: pg_sys::TupleDesc,
) -> *mut pg_sys::Query {
    // SAFETY: this function's contract covers all arguments; makeNode starts from zeroed memory, too; guarded calls; a
    // descriptor has natts attributes.
    unsafe {
        let query = select();
        let mut fields = PgList::<pg_sys::TargetEntry>::new();
        for (index, number) in (0..usize::try_from((*descriptor).natts).unwrap_or(0)).zip(1..) {
            let form = &*compat::attribute(descriptor, index);
            let value: *mut pg_sys::Expr = if form.attisdropped {
                pg_sys::makeNullConst(pg_sys::INT4OID, -1, pg_sys::InvalidOid).cast()
            } else {
                let field = pg_sys::palloc0(size_of::<pg_sys::FieldSelect>()).cast::<pg_sys::FieldSelect>();
                (*field).xpr.type_ = pg_sys::NodeTag::T_FieldSelect;
                (*field).arg = pg_sys::makeVarFromTargetEntry(1, column).cast();
                (*field).fieldnum = number;
                (*field).resulttype = form.atttypid;
                (*field).resulttypmod = form.atttypmod;
                (*field).resultcollid = form.attcollation;
                field.cast()
            };
            let name = pg_sys::pstrdup(form.attname.data.as_ptr());
            fields.push(pg_sys::makeTargetEntry(value, number, name, false));
        }
        (*query).targetList = fields.into_pg();
        select_from(query, below);
        query
    }
}
