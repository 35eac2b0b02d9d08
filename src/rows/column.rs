//! The columns of a file: the attribute of each field, and its conversion to a datum.

use std::ffi::{CStr, CString};

use pg_bulk_text::fixed::Slice;
use pg_bulk_text::json_text::Charset;
use pg_bulk_text::refine::Refinement;
use pg_bulk_types::convert::{Decoder, Session, Wire};
use pgrx::pg_sys;

use crate::error::Result;
use crate::server::compat;
use crate::server::expression::Expression;
use crate::server::lookup::{column_default, input_function};
use crate::server::option_value::invalid;
use crate::server::relation::{Relation, name_of};

/// The members of an object that a column takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberKey {
    /// The value of this key; the key is in the server's encoding.
    Named(Vec<u8>),
    /// All members that no column takes.
    Rest,
}

/// Origin of a column's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// A field of the record.
    Field,
    /// A part of the record, which is one field ([`super::line_parts`]).
    Part,
    /// The file's path.
    FileName,
    /// The line number of the record.
    LineNumber,
    /// The value of the directory `column=value` in the file's path ([`super::hive`]).
    Hive,
    /// The attribute's default: the file has no field for it.
    Default,
    /// NULL.
    Null,
}

impl Taken {
    /// Returns the origin for a column that is not in the file, by its name in an option.
    pub fn by_name(name: &str) -> Result<Taken> {
        match name {
            "filename" => Ok(Taken::FileName),
            "line_number" => Ok(Taken::LineNumber),
            "hive" => Ok(Taken::Hive),
            _ => Err(invalid(format!("source \"{name}\" not recognized"))
                .hint("Valid values are \"filename\", \"line_number\", \"hive\".")),
        }
    }
}

/// The function of a type that converts fields.
#[derive(Debug, Clone)]
pub struct InputFunction {
    pub function: pg_sys::FmgrInfo,
    pub typioparam: pg_sys::Oid,
    pub typmod: i32,
    /// The function also runs for NULL (domains).
    pub wants_null: bool,
    /// It is the type's receive function: fields are binary ([`super::row::received`]).
    pub is_receive: bool,
}

/// One field of a record and its attribute.
#[derive(Debug, Clone)]
pub struct Column {
    /// Index of the attribute in the tuple descriptor, from 0.
    pub attribute: usize,
    /// Records have the field, but it belongs to no attribute.
    pub ignored: bool,
    pub taken: Taken,
    /// Position in a record of fixed length.
    pub slice: Option<Slice>,
    /// Changes of the field's text before its conversion.
    pub refinement: Option<Box<Refinement>>,
    /// Key in a JSON object, unless it is the column's name.
    pub key: Option<MemberKey>,
    pub name: CString,
    /// Name in the file's header, unless it is the column's name.
    pub header_name: Option<CString>,
    /// The native decoder of binary fields, if there is one.
    pub wire: Option<Wire>,
    /// The native decoder, if there is one.
    pub decoder: Option<Decoder>,
    /// `force_not_null`
    pub force_not_null: bool,
    /// `force_null`
    pub force_null: bool,
    /// The attribute's default expression, if fields may hold the DEFAULT marker.
    pub default: Option<Expression>,
    pub input: InputFunction,
    pub type_oid: pg_sys::Oid,
}

/// Returns the session settings that decoders depend on. Guarded.
pub fn session(charset: Charset) -> Session {
    // SAFETY: reads two settings of this backend; the name belongs to a loaded time zone.
    let (utc, interval_sql_standard) = unsafe {
        let zone = pg_sys::session_timezone;
        let name = if zone.is_null() { std::ptr::null() } else { pg_sys::pg_get_timezone_name(zone) };
        let utc = !name.is_null() && {
            let name = CStr::from_ptr(name).to_bytes();
            name == b"UTC" || name == b"GMT" || name == b"Etc/UTC"
        };
        (utc, pg_sys::IntervalStyle == pg_sys::INTSTYLE_SQL_STANDARD.cast_signed())
    };
    Session { charset, zone_letters: compat::ZONE_LETTERS, utc, interval_sql_standard }
}

impl Column {
    /// Returns the columns of a relation's file: its attributes in order, without dropped and generated ones, as in
    /// CopyGetAttnums. `defaults` prepares their default expressions. Guarded; allocates in the current memory context,
    /// which must outlive the columns.
    pub fn of_relation(relation: Relation<'_>, session: &Session, defaults: bool) -> Vec<Column> {
        let attributes = relation.descriptor().attributes().filter(|one| !one.attisdropped && one.attgenerated == 0);
        attributes.map(|attribute| Column::of_attribute(relation, attribute, session, defaults)).collect()
    }

    /// Returns the column of one attribute of a relation. Otherwise as [`Column::of_relation`].
    pub fn of_attribute(
        relation: Relation<'_>,
        attribute: &pg_sys::FormData_pg_attribute,
        session: &Session,
        default: bool,
    ) -> Column {
        let column = Column::of(attribute, session);
        if default { Column { default: default_expression(relation, column.attribute), ..column } } else { column }
    }

    /// Returns the column of one attribute, without a default. Guarded; memory as in [`Column::of_relation`].
    pub fn of(form: &pg_sys::FormData_pg_attribute, session: &Session) -> Column {
        let (function, typioparam) = input_function(form.atttypid);
        let (typmod, wants_null) = (form.atttypmod, !function.fn_strict);
        Column {
            attribute: usize::try_from(form.attnum - 1).unwrap_or(usize::MAX),
            ignored: false,
            decoder: Decoder::for_type(form.atttypid.to_u32(), form.atttypmod, session),
            input: InputFunction { function, typioparam, typmod, wants_null, is_receive: false },
            type_oid: form.atttypid,
            ..Column::ignored(name_of(form).to_owned())
        }
    }

    /// Drops the data that functions cached between calls: see [`Expression::renew`]. Guarded; allocates in the current
    /// memory context.
    pub fn renew(&mut self) {
        self.input.function.fn_extra = std::ptr::null_mut();
        if let Some(default) = &mut self.default {
            default.renew();
        }
    }

    /// Creates a column for a field that no attribute takes.
    pub fn ignored(name: CString) -> Column {
        Column {
            attribute: usize::MAX,
            ignored: true,
            taken: Taken::Field,
            slice: None,
            refinement: None,
            key: None,
            name,
            header_name: None,
            wire: None,
            decoder: None,
            force_not_null: false,
            force_null: false,
            default: None,
            input: InputFunction {
                function: pg_sys::FmgrInfo::default(),
                typioparam: pg_sys::InvalidOid,
                typmod: -1,
                wants_null: false,
                is_receive: false,
            },
            type_oid: pg_sys::InvalidOid,
        }
    }

    /// Returns the name in a header.
    pub fn called(&self) -> &CString {
        self.header_name.as_ref().unwrap_or(&self.name)
    }

    /// Returns the column's name as text.
    pub fn display_name(&self) -> std::borrow::Cow<'_, str> {
        self.name.to_string_lossy()
    }
}

/// Prepares the attribute's default for execution, as BeginCopyFrom does. Guarded.
pub fn default_expression(relation: Relation<'_>, attribute: usize) -> Option<Expression> {
    column_default(relation, attribute).map(Expression::planned)
}
