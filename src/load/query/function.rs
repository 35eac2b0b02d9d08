//! A function in FROM that returns a set: its rows one by one.
//!
//! A scan of a function has all its rows collected before the first one is used, however many they are. A function in a select
//! list is asked for one after the other, where it can give them so (ExecProjectSet). So where a function is all that a query
//! reads from, it is put into the list of a query below:
//!
//! ```text
//!   SELECT a, b FROM f(…)        SELECT a, b FROM (SELECT (r).a, (r).b FROM (SELECT f(…) AS r) …)
//! ```
//!
//! What the planner puts in place of its call stays where it is: SQL functions that are not volatile. So do functions whose columns
//! the query says itself, and those WITH ORDINALITY.

use pgrx::{PgList, pg_sys};

use crate::pg::compat;

/// SQL functions (pg_language.dat)
const SQL: u32 = 14;
/// PROVOLATILE_VOLATILE (pg_proc.h)
const VOLATILE: u8 = b'v';

/// A SELECT of nothing. Guarded.
///
/// # Safety
/// Allocates in the current memory context, which must outlive it.
pub unsafe fn select() -> *mut pg_sys::Query {
    // SAFETY: zeroed memory is what makeNode starts from.
    unsafe {
        let query = pg_sys::palloc0(size_of::<pg_sys::Query>()).cast::<pg_sys::Query>();
        (*query).type_ = pg_sys::NodeTag::T_Query;
        (*query).commandType = pg_sys::CmdType::CMD_SELECT;
        (*query).canSetTag = true;
        (*query).jointree = pg_sys::makeFromExpr(std::ptr::null_mut(), std::ptr::null_mut());
        query
    }
}

/// Let a SELECT, which reads nothing yet, read from another one. Guarded.
///
/// # Safety
/// Two queries that were analyzed.
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

/// Let a SELECT, which reads nothing yet, read from rows of VALUES, whose columns have the types of these. Guarded.
///
/// # Safety
/// A query, lists of expressions, and one of each column.
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

/// A relation with these columns, which is all that the query reads from. Guarded.
///
/// # Safety
/// A query that reads nothing, and strings.
unsafe fn only_entry(query: *mut pg_sys::Query, names: *mut pg_sys::List) -> *mut pg_sys::RangeTblEntry {
    // SAFETY: this function's contract covers both arguments; zeroed memory is what makeNode starts from; guarded calls.
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
/// An entry of a range table, and a query that was analyzed.
unsafe fn read_from(entry: *mut pg_sys::RangeTblEntry, below: *mut pg_sys::Query) {
    // SAFETY: this function's contract covers both arguments.
    unsafe {
        (*entry).rtekind = pg_sys::RTEKind::RTE_SUBQUERY;
        (*entry).subquery = below;
    }
}

/// Change the query so that its rows come one by one, if it reads from a function and nothing else. Guarded.
///
/// # Safety
/// A query that was analyzed, and that nobody else has.
pub unsafe fn let_stream(query: *mut pg_sys::Query) {
    // SAFETY: this function's contract covers the query; tags say what nodes are; guarded calls.
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
        // It is a level deeper now.
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

/// Is it a call that is a set, which nothing is put in the place of (inline_set_returning_function, clauses.c)? Guarded.
///
/// # Safety
/// An expression.
unsafe fn is_worth_it(call: *mut pg_sys::Node) -> bool {
    // SAFETY: this function's contract covers the argument; a tag says what it is; guarded catalog lookups.
    unsafe {
        if (*call).type_ != pg_sys::NodeTag::T_FuncExpr || !(*call.cast::<pg_sys::FuncExpr>()).funcretset {
            return false;
        }
        let function = (*call.cast::<pg_sys::FuncExpr>()).funcid;
        language_of(function) != pg_sys::Oid::from_u32(SQL)
            || pg_sys::func_volatile(function).cast_unsigned() == VOLATILE
    }
}

/// Guarded.
fn language_of(function: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: a guarded catalog lookup; a tuple of pg_proc begins with what its struct says.
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

/// Does the query look at whole rows of the relation at that place, or at what a subquery could not have? Guarded.
///
/// # Safety
/// A query that was analyzed.
unsafe fn names_whole_row(query: *mut pg_sys::Query, place: i32) -> bool {
    // SAFETY: this function's contract covers the argument; guarded calls on a set made here.
    unsafe {
        // Who looks at it from below is not asked.
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

/// A query of the fields of another one's only column.
///
/// # Safety
/// A query, its column, and the descriptor of what is in it. Guarded.
unsafe fn fields_of(
    below: *mut pg_sys::Query,
    column: *mut pg_sys::TargetEntry,
    descriptor: pg_sys::TupleDesc,
) -> *mut pg_sys::Query {
    // SAFETY: this function's contract covers all arguments; zeroed memory is what makeNode starts from; guarded calls; a descriptor has natts
    // attributes.
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
