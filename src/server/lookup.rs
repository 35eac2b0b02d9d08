//! Lookups in the system catalogs, and the time. All functions are guarded.

use std::ffi::{CStr, CString};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

use pgrx::pg_sys;

use super::call::calls;
use super::handle::Handle;
use super::node::{Node, NodeList};
use super::option_value::stored;
use super::relation::{Relation, TupleDesc};
use super::server_text::copied;

/// The struct of a catalog's rows.
///
/// # Safety
/// The rows of this cache, whose only key is an OID, begin with this struct.
pub unsafe trait CatalogForm {
    const CACHE: pg_sys::SysCacheIdentifier::Type;
}

macro_rules! forms {
    ($($form:ident: $cache:ident),*) => {
        $(
            // SAFETY: the cache has rows of this catalog.
            unsafe impl CatalogForm for pg_sys::$form {
                const CACHE: pg_sys::SysCacheIdentifier::Type = pg_sys::SysCacheIdentifier::$cache;
            }
        )*
    };
}

forms!(FormData_pg_authid: AUTHOID, FormData_pg_class: RELOID, FormData_pg_index: INDEXRELID);
forms!(FormData_pg_foreign_data_wrapper: FOREIGNDATAWRAPPEROID);
forms!(FormData_pg_proc: PROCOID, FormData_pg_type: TYPEOID, FormData_pg_statistic_ext: STATEXTOID);

/// A row of a catalog, which the cache keeps until this value is dropped. For guarded frames. After an error, the end of the
/// transaction releases it.
#[derive(Debug)]
pub struct CatalogRow<T>(NonNull<pg_sys::HeapTupleData>, PhantomData<T>);

impl<T: CatalogForm> CatalogRow<T> {
    /// The row of the object with this OID, if it exists.
    pub fn find(oid: pg_sys::Oid) -> Option<CatalogRow<T>> {
        // SAFETY: a guarded call with the key of the cache.
        let tuple = unsafe { pg_sys::SearchSysCache1(T::CACHE.cast_signed(), pg_sys::Datum::from(oid)) };
        NonNull::new(tuple).map(|tuple| CatalogRow(tuple, PhantomData))
    }

    /// Returns the pointer for functions of the server.
    pub const fn as_ptr(&self) -> pg_sys::HeapTuple {
        self.0.as_ptr()
    }

    /// A text, or what nodeToString wrote.
    fn text(&self, attribute: u32) -> Option<CString> {
        let mut is_null = true;
        // SAFETY: guarded calls on a row of this cache. The callers name attributes of these types.
        unsafe {
            let number = attribute as pg_sys::AttrNumber;
            let value = pg_sys::SysCacheGetAttr(T::CACHE.cast_signed(), self.as_ptr(), number, &raw mut is_null);
            if is_null { None } else { copied(pg_sys::text_to_cstring(value.cast_mut_ptr())) }
        }
    }

    fn nodes(&self, attribute: u32) -> Option<Node<'static>> {
        // SAFETY: the callers name attributes that nodeToString wrote.
        self.text(attribute).and_then(|text| unsafe { Node::read(text.as_ptr()) })
    }
}

impl CatalogRow<pg_sys::FormData_pg_proc> {
    /// The function's body, or its name in a library.
    pub fn source(&self) -> Option<CString> {
        self.text(pg_sys::Anum_pg_proc_prosrc)
    }

    /// The body, if it was parsed when the function was created. In the current memory context.
    pub fn body(&self) -> Option<Node<'static>> {
        self.nodes(pg_sys::Anum_pg_proc_prosqlbody)
    }

    /// A copy of the row. In the current memory context.
    pub fn copied(&self) -> pg_sys::HeapTuple {
        // SAFETY: a guarded call on a row that is held.
        unsafe { pg_sys::heap_copytuple(self.as_ptr()) }
    }

    /// Whether the function runs with settings of its own.
    pub fn has_settings(&self) -> bool {
        // SAFETY: a guarded call on a row that is held.
        unsafe {
            !pg_sys::heap_attisnull(self.as_ptr(), pg_sys::Anum_pg_proc_proconfig.cast_signed(), std::ptr::null_mut())
        }
    }

    /// The defaults of the last arguments. In the current memory context.
    pub fn argument_defaults(&self) -> NodeList<'static> {
        self.nodes(pg_sys::Anum_pg_proc_proargdefaults).map_or(NodeList::EMPTY, Node::list)
    }
}

impl CatalogRow<pg_sys::FormData_pg_index> {
    /// The expressions and the predicate, as they were created. In the current memory context.
    pub fn expressions(&self) -> impl Iterator<Item = Node<'static>> {
        [pg_sys::Anum_pg_index_indexprs, pg_sys::Anum_pg_index_indpred].into_iter().filter_map(|one| self.nodes(one))
    }
}

impl CatalogRow<pg_sys::FormData_pg_statistic_ext> {
    /// The expressions, as they were created. In the current memory context.
    pub fn expressions(&self) -> Option<Node<'static>> {
        self.nodes(super::compat::STATISTIC_EXPRESSIONS)
    }
}

impl<T: CatalogForm> Deref for CatalogRow<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the cache keeps the row, which begins with this struct.
        unsafe { &*pg_sys::GETSTRUCT(self.as_ptr()).cast() }
    }
}

impl<T> Drop for CatalogRow<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: a guarded call; `find` has found the row.
            unsafe { pg_sys::ReleaseSysCache(self.0.as_ptr()) }
        }
    }
}

/// A foreign server.
#[derive(Debug)]
pub struct ForeignServer {
    pub oid: pg_sys::Oid,
    pub owner: pg_sys::Oid,
    pub wrapper: pg_sys::Oid,
    pub name: CString,
    /// Names and values.
    pub options: Vec<(String, Vec<u8>)>,
}

impl ForeignServer {
    /// Raises an error if there is no server with this OID.
    pub fn find(oid: pg_sys::Oid) -> ForeignServer {
        // SAFETY: a guarded catalog lookup, which returns a server with a name and a list of DefElems.
        unsafe {
            let server = &*pg_sys::GetForeignServer(oid);
            let (name, options) =
                (copied(server.servername).unwrap_or_default(), stored(NodeList::from_raw(server.options)));
            ForeignServer { oid, owner: server.owner, wrapper: server.fdwid, name, options }
        }
    }

    /// Raises an error if there is no server with this name.
    pub fn named(name: &CStr) -> ForeignServer {
        ForeignServer::find(server_named(name, false))
    }
}

/// Names and values of the options of a foreign table's column.
pub fn column_options(table: pg_sys::Oid, attribute: i16) -> Vec<(String, Vec<u8>)> {
    stored(options_of_column(table, attribute))
}

/// The language of a function; None if the function does not exist.
pub fn language_of(function: pg_sys::Oid) -> Option<u32> {
    CatalogRow::<pg_sys::FormData_pg_proc>::find(function).map(|row| row.prolang.to_u32())
}

/// The class of a function's result, its type, and the descriptor of its rows; None if it returns no rows, or any.
pub fn result_of<'a>(function: pg_sys::Oid) -> (pg_sys::TypeFuncClass::Type, pg_sys::Oid, Option<TupleDesc<'a>>) {
    let (mut type_oid, mut row) = (pg_sys::InvalidOid, None);
    (function_result(function, &mut type_oid, &mut row), type_oid, row)
}

/// A type's input function, which may allocate in the current memory context, and its type parameter.
pub fn input_function(type_oid: pg_sys::Oid) -> (pg_sys::FmgrInfo, pg_sys::Oid) {
    let (mut function, mut typioparam) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
    let mut input = pg_sys::FmgrInfo::default();
    type_input(type_oid, &mut function, &mut typioparam);
    prepare_function(function, &mut input);
    (input, typioparam)
}

// SAFETY: lookups, which find nothing for an unknown OID, or raise an error. They return strings and lists of their own, and
// entries of the type cache, which stay.
calls! {
    /// A type's name, as messages show it.
    pub fn type_name(type_oid: pg_sys::Oid) -> String = format_type_be(type_oid);
    /// A function's name with its argument types, as messages show it.
    pub fn signature_of(function: pg_sys::Oid) -> String = format_procedure(function);
    /// One of TYPTYPE_BASE, …; 0 if the type does not exist.
    pub fn type_kind(type_oid: pg_sys::Oid) -> u8 = get_typtype(type_oid);
    /// The type below a domain; otherwise the type itself.
    pub fn base_type(type_oid: pg_sys::Oid) -> pg_sys::Oid = getBaseType(type_oid);
    /// The type of an array's elements; InvalidOid if the type is no array.
    pub fn element_type(type_oid: pg_sys::Oid) -> pg_sys::Oid = get_element_type(type_oid);
    /// The length of a type's values; -1 if it varies.
    pub fn type_length(type_oid: pg_sys::Oid) -> i16 = get_typlen(type_oid);
    /// The type of an attribute; InvalidOid if there is no such attribute.
    pub fn attribute_type(relation: pg_sys::Oid, number: i16) -> pg_sys::Oid = get_atttype(relation, number);
    /// The type of a relation's rows.
    pub fn row_type(relation: pg_sys::Oid) -> pg_sys::Oid = get_rel_type_id(relation);
    /// The function of an operator.
    pub fn operator_function(operator: pg_sys::Oid) -> pg_sys::Oid = get_opcode(operator);
    /// The relation with a name in a schema; InvalidOid if it does not exist.
    pub fn relation_named(name: &CStr, schema: pg_sys::Oid) -> pg_sys::Oid = get_relname_relid(name, schema);
    pub fn relation_name(relation: pg_sys::Oid) -> Option<CString> = get_rel_name(relation);
    fn relation_persistence(relation: pg_sys::Oid) -> u8 = get_rel_persistence(relation);
    /// The schema with a name; InvalidOid if it does not exist.
    pub fn schema_named(name: &CStr) -> pg_sys::Oid = get_namespace_oid(name, true);
    /// The schema of a relation; InvalidOid if the relation does not exist.
    pub fn schema_of(relation: pg_sys::Oid) -> pg_sys::Oid = get_rel_namespace(relation);
    pub fn schema_name(schema: pg_sys::Oid) -> Option<CString> = get_namespace_name(schema);
    /// The name of a schema; `pg_temp` for that of this session's temporary objects.
    pub fn shown_schema_name(schema: pg_sys::Oid) -> CString = get_namespace_name_or_temp(schema);
    /// The extension with a name; InvalidOid if it is not installed.
    pub fn extension_named(name: &CStr) -> pg_sys::Oid = get_extension_oid(name, true);
    /// The extension that an object of a catalog belongs to; InvalidOid if it belongs to none.
    pub fn extension_of(catalog: pg_sys::Oid, object: pg_sys::Oid) -> pg_sys::Oid = getExtensionOfObject(catalog, object);
    pub fn function_name(function: pg_sys::Oid) -> Option<CString> = get_func_name(function);
    /// The schema of a function; InvalidOid if the function does not exist.
    pub fn function_schema(function: pg_sys::Oid) -> pg_sys::Oid = get_func_namespace(function);
    /// PROVOLATILE_IMMUTABLE, …; an error if the function does not exist.
    pub fn volatility(function: pg_sys::Oid) -> u8 = func_volatile(function);
    /// PROPARALLEL_SAFE, …; an error if the function does not exist.
    pub fn parallel_label(function: pg_sys::Oid) -> u8 = func_parallel(function);
    /// The range type of a multirange type.
    pub fn range_of(multirange: pg_sys::Oid) -> pg_sys::Oid = get_multirange_range(multirange);
    /// The name of a relation's column, if it exists.
    pub fn column_name(relation: pg_sys::Oid, number: i16) -> Option<CString> = get_attname(relation, number, true);
    /// The number of a column; 0 if it does not exist.
    pub fn column_number(relation: pg_sys::Oid, name: &CStr) -> i16 = get_attnum(relation, name);
    fn generation(relation: pg_sys::Oid, number: i16) -> u8 = get_attgenerated(relation, number);
    /// The name of a constraint, if it exists.
    pub fn constraint_name(constraint: pg_sys::Oid) -> Option<CString> = get_constraint_name(constraint);
    /// The constraint of an index; InvalidOid if it has none.
    pub fn index_constraint(index: pg_sys::Oid) -> pg_sys::Oid = get_index_constraint(index);
    /// The columns of an index, as SQL has them between the parentheses.
    pub fn index_columns(index: pg_sys::Oid, pretty: bool) -> Option<CString> = pg_get_indexdef_columns(index, pretty);
    /// The name of an access method, if it exists.
    pub fn access_method_name(method: pg_sys::Oid) -> Option<CString> = get_am_name(method);
    pub fn database_name(database: pg_sys::Oid) -> Option<CString> = get_database_name(database);
    /// The average size of a type's values, as the planner estimates it.
    pub fn average_width(type_oid: pg_sys::Oid, typmod: i32) -> i32 = get_typavgwidth(type_oid, typmod);
    /// The five characters of an SQLSTATE.
    pub fn sql_state(code: i32) -> Option<CString> = unpack_sql_state(code);
    /// The relation with a name along the search_path; InvalidOid if it does not exist.
    pub fn visible_relation(name: &CStr) -> pg_sys::Oid = RelnameGetRelid(name);
    /// Lets later lookups see the commits of other transactions.
    pub fn see_commits() = InvalidateCatalogSnapshot();
    /// The name of a collation, if it exists.
    pub fn collation_name(collation: pg_sys::Oid) -> Option<CString> = get_collation_name(collation);
    fn member(family: pg_sys::Oid, left: pg_sys::Oid, right: pg_sys::Oid, strategy: i16) -> pg_sys::Oid
        = get_opfamily_member(family, left, right, strategy);
    /// Whether a schema is one for temporary objects of any session.
    pub fn is_temporary_schema(schema: pg_sys::Oid) -> bool = isAnyTempNamespace(schema);
    /// The name of an object with its schema, quoted.
    pub fn qualified(schema: &CStr, name: &CStr) -> CString = quote_qualified_identifier(schema, name);
    /// A name, quoted if it requires quotes.
    pub fn quoted(name: &CStr) -> CString = quote_identifier(name);
    /// A string as a literal of SQL.
    pub fn literal(string: &CStr) -> CString = quote_literal_cstr(string);
    /// The value of a setting, in the form that SET takes; None if there is no such setting.
    pub fn setting(name: &CStr) -> Option<CString> = GetConfigOption(name, true, false);
    /// Whether an expression of the first type can be assigned to a column of the second.
    pub fn can_assign(given: pg_sys::Oid, wanted: pg_sys::Oid) -> bool
        = can_coerce_type(1, (&given), (&wanted), (pg_sys::CoercionContext::COERCION_ASSIGNMENT));
    /// The function that writes a value, and whether values have a variable length.
    pub fn type_output(type_oid: pg_sys::Oid, function: &mut pg_sys::Oid, is_varlena: &mut bool)
        = getTypeOutputInfo(type_oid, function, is_varlena);
    /// The function of an explicit cast, if the result says that there is one.
    pub fn explicit_cast(to: pg_sys::Oid, from: pg_sys::Oid, function: &mut pg_sys::Oid) -> pg_sys::CoercionPathType::Type
        = find_coercion_pathway(to, from, (pg_sys::CoercionContext::COERCION_EXPLICIT), function);
    fn default_of<'a>(relation: Relation<'_>, number: i32) -> Option<Node<'a>> = build_column_default(relation, number);
    /// The type's function that reads text, and its type parameter.
    pub fn type_input(type_oid: pg_sys::Oid, function: &mut pg_sys::Oid, typioparam: &mut pg_sys::Oid)
        = getTypeInputInfo(type_oid, function, typioparam);
    /// The type's function that reads a binary value, and its type parameter.
    pub fn binary_type_input(type_oid: pg_sys::Oid, function: &mut pg_sys::Oid, typioparam: &mut pg_sys::Oid)
        = getTypeBinaryInputInfo(type_oid, function, typioparam);
    /// Looks a function up for calls; its memory is that of the current memory context.
    pub fn prepare_function(function: pg_sys::Oid, info: &mut pg_sys::FmgrInfo) = fmgr_info(function, info);
    fn function_result(function: pg_sys::Oid, type_oid: &mut pg_sys::Oid, row: &mut Option<TupleDesc<'_>>)
        -> pg_sys::TypeFuncClass::Type = get_func_result_type(function, type_oid, row);
    fn server_named(name: &CStr, missing_ok: bool) -> pg_sys::Oid = get_foreign_server_oid(name, missing_ok);
    fn options_of_column<'a>(table: pg_sys::Oid, attribute: i16) -> NodeList<'a, pg_sys::DefElem>
        = GetForeignColumnOptions(table, attribute);
    fn collation_of(names: NodeList<'_, pg_sys::String>, missing_ok: bool) -> pg_sys::Oid
        = get_collation_oid(names, missing_ok);
    fn cached_type(type_oid: pg_sys::Oid, fields: u32) -> Handle<'static, pg_sys::TypeCacheEntry>
        = lookup_type_cache(type_oid, (fields.cast_signed()));
    fn attribute_of(relation: pg_sys::Oid, number: i16, kind: &mut pg_sys::Oid, typmod: &mut i32, collation: &mut pg_sys::Oid)
        = get_atttypetypmodcoll(relation, number, kind, typmod, collation);
    /// The time now.
    pub fn now() -> pg_sys::TimestampTz = GetCurrentTimestamp();
}

/// The default of an attribute, which the insert of a row evaluates; None for NULL, or if there is no such attribute. Guarded.
pub fn column_default<'a>(relation: Relation<'_>, attribute: usize) -> Option<Node<'a>> {
    default_of(relation, relation.descriptor().attribute(attribute)?.attnum.into())
}

/// The name of a relation in a text of SQL.
#[derive(Debug)]
pub struct QualifiedName {
    pub catalog: Option<CString>,
    pub schema: Option<CString>,
    pub name: CString,
}

impl QualifiedName {
    /// Raises an error if the text is no such name.
    pub fn of(text: &CStr) -> QualifiedName {
        // SAFETY: guarded calls with a text, which return a list of names, and a range variable with strings or null.
        unsafe {
            let names = pg_sys::textToQualifiedNameList(pg_sys::cstring_to_text(text.as_ptr()));
            let found = *pg_sys::makeRangeVarFromNameList(names);
            let [catalog, schema, name] = [found.catalogname, found.schemaname, found.relname].map(|part| copied(part));
            QualifiedName { catalog, schema, name: name.unwrap_or_default() }
        }
    }
}

/// The collation with a name, which may be qualified; raises an error if it does not exist.
pub fn collation_named(names: NodeList<'_, pg_sys::String>) -> pg_sys::Oid {
    // Without elements that are no strings.
    let names = names.iter().collect();
    collation_of(names, false)
}

/// A copy of the type cache's entry, with these TYPECACHE_ fields. The cache changes its own entry in place.
pub fn type_entry(type_oid: pg_sys::Oid, fields: u32) -> pg_sys::TypeCacheEntry {
    *cached_type(type_oid, fields).get()
}

/// The type of a relation's column, its modifier and its collation.
pub fn column_type(relation: pg_sys::Oid, attnum: i16) -> (pg_sys::Oid, i32, pg_sys::Oid) {
    let (mut type_oid, mut typmod, mut collation) = (pg_sys::InvalidOid, -1, pg_sys::InvalidOid);
    attribute_of(relation, attnum, &mut type_oid, &mut typmod, &mut collation);
    (type_oid, typmod, collation)
}

/// Whether a relation has a column with a name.
pub fn has_column(relation: pg_sys::Oid, name: &CStr) -> bool {
    column_number(relation, name) > 0
}

/// The operator for equality in a family of B-tree operators; InvalidOid if it has none for this type.
pub fn equality_in(family: pg_sys::Oid, type_oid: pg_sys::Oid) -> pg_sys::Oid {
    member(family, type_oid, type_oid, pg_sys::BTEqualStrategyNumber as i16)
}

/// Whether a column of a relation is generated.
pub fn is_generated(relation: pg_sys::Oid, attnum: i16) -> bool {
    attnum > 0 && generation(relation, attnum) != 0
}

pub fn is_temporary(relation: pg_sys::Oid) -> bool {
    relation_persistence(relation) == pg_sys::RELPERSISTENCE_TEMP
}

/// The names of a relation's schema and of the relation, if it exists.
pub fn relation_names(relation: pg_sys::Oid) -> Option<(CString, CString)> {
    Some((schema_name(schema_of(relation))?, relation_name(relation)?))
}

/// Schema and name of a relation, quoted, if it exists.
pub fn qualified_name(relation: pg_sys::Oid) -> Option<CString> {
    relation_names(relation).map(|(schema, name)| qualified(&schema, &name))
}

/// The function with this name, which may be qualified and have argument types; raises an error unless exactly one matches. A
/// number, or a dash for none, is not looked up.
pub fn function_by_name(name: &CStr) -> pg_sys::Oid {
    let (input, kind) = if name.to_bytes().contains(&b'(') {
        (pg_sys::F_REGPROCEDUREIN, pg_sys::REGPROCEDUREOID)
    } else {
        (pg_sys::F_REGPROCIN, pg_sys::REGPROCOID)
    };
    // SAFETY: a guarded call of an input function with a string.
    let function = unsafe { pg_sys::OidInputFunctionCall(input.into(), name.as_ptr().cast_mut(), kind, -1) };
    pg_sys::Oid::from((function.value() & 0xffff_ffff) as u32)
}

/// The function with this name and these argument types; InvalidOid unless exactly one matches. Raises an error only for a
/// malformed name.
pub fn find_function(name: &CStr) -> pg_sys::Oid {
    // SAFETY: guarded calls with a string.
    let found = unsafe {
        let text = pg_sys::cstring_to_text(name.as_ptr());
        pgrx::direct_function_call_as_datum(pg_sys::to_regprocedure, &[Some(pg_sys::Datum::from(text))])
    };
    found.map_or(pg_sys::InvalidOid, |oid| pg_sys::Oid::from((oid.value() & 0xffff_ffff) as u32))
}

/// The function of a schema with these argument types; InvalidOid if it does not exist.
pub fn function_named(name: &CStr, types: &[pg_sys::Oid], schema: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: guarded calls, with keys of the types that the cache expects; the vector is a copy of the types.
    unsafe {
        let vector = pg_sys::buildoidvector(types.as_ptr(), i32::try_from(types.len()).unwrap_or(0));
        pg_sys::GetSysCacheOid(
            pg_sys::SysCacheIdentifier::PROCNAMEARGSNSP as i32,
            pg_sys::Anum_pg_proc_oid as pg_sys::AttrNumber,
            pg_sys::Datum::from(name.as_ptr()),
            pg_sys::Datum::from(vector.cast::<std::ffi::c_void>()),
            pg_sys::Datum::from(schema),
            pg_sys::Datum::from(0usize),
        )
    }
}

/// The types of a function's arguments.
pub fn argument_types(function: pg_sys::Oid) -> Vec<pg_sys::Oid> {
    let (mut types, mut count) = (std::ptr::null_mut(), 0);
    // SAFETY: a guarded call, which allocates as many types as it says.
    unsafe {
        pg_sys::get_func_signature(function, &raw mut types, &raw mut count);
        match usize::try_from(count) {
            Ok(count) if count > 0 => std::slice::from_raw_parts(types, count).to_vec(),
            _ => Vec::new(),
        }
    }
}

/// The owner of a relation, if the relation exists.
pub fn owner_of(relation: pg_sys::Oid) -> Option<pg_sys::Oid> {
    CatalogRow::<pg_sys::FormData_pg_class>::find(relation).map(|row| row.relowner)
}
