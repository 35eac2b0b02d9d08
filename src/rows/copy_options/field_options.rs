//! Options that change a column's text before it is converted.
//!
//! A column of a foreign table has them as column options. A function takes them in objects of its `columns`. Some can
//! also be set for all columns of a file. [`FieldDraft`] collects them per column, and [`CopyOptions::refine`] checks
//! and applies them. A column's own option overrides the option for all columns.
//!
//! A list in a string, as in a foreign table's options, has the syntax of a list of names with commas, except that case
//! matters: `NA, n/a, "", "a, b"`.

use pg_bulk_text::fixed::Trim;
use pg_bulk_text::pattern::Pattern;
use pg_bulk_text::refine::{Form, Refinement};
use pg_bulk_text::template::{BadTemplate, Template, TemplateType};
use pgrx::pg_sys;

use super::super::column::{Column, Taken};
use super::slice_options::trim;
use super::{CopyOptions, RecordShape};
use crate::error::{Error, Result};
use crate::server::lookup::base_type;
use crate::server::option_value::{Caller, OptionValue, invalid, text};

/// Options of a column, or of all columns, that are being collected.
#[derive(Debug, Clone, Default)]
pub struct FieldDraft {
    trim: Option<Trim>,
    null: Option<Vec<u8>>,
    nulls: Option<Vec<Vec<u8>>>,
    decimal: Option<u8>,
    thousands: Option<Vec<u8>>,
    date_format: Option<Vec<u8>>,
}

impl FieldDraft {
    /// Sets an option. Returns false if the option is not one of these.
    pub fn set(&mut self, caller: Caller, name: &str, value: &OptionValue) -> Result<bool> {
        match name {
            "trim" => self.trim = Some(trim(value.one(name)?)?),
            "nullif" => self.null = Some(value.one(name)?.to_vec()),
            "null_if" => self.nulls = Some(strings(caller, name, value)?),
            "decimal" => {
                self.decimal = match value.one(name)? {
                    &[point @ (b'.' | b',')] => Some(point),
                    _ => return Err(invalid("decimal must be \".\" or \",\"")),
                };
            }
            "thousands" => {
                let given = value.one(name)?;
                let is_number =
                    |byte: &u8| byte.is_ascii_alphanumeric() || b"+-\\".contains(byte) || byte.is_ascii_control();
                let is_one =
                    given.len() == 1 || std::str::from_utf8(given).is_ok_and(|given| given.chars().count() == 1);
                if !is_one || given.iter().any(is_number) {
                    return Err(invalid("thousands must be a single character that cannot be part of a number"));
                }
                self.thousands = Some(given.to_vec());
            }
            "date_format" => {
                let given = value.one(name)?;
                // Whether the template lacks a field depends on the column's type.
                let known = Template::new(given, TemplateType::Timestamp);
                if let Err(why @ (BadTemplate::Unknown(_) | BadTemplate::Twice | BadTemplate::HalfDay)) = known {
                    return Err(bad_template(given, why));
                }
                self.date_format = Some(given.to_vec());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the option `trim`, if it is given.
    pub fn trim(&self) -> Option<Trim> {
        self.trim
    }

    /// Returns the values for NULL, if they are given.
    pub fn nulls(&self) -> Option<&Vec<Vec<u8>>> {
        self.nulls.as_ref()
    }

    /// Returns the NULL value of a record without delimiters, if it is given.
    pub fn null(&self) -> Option<&Vec<u8>> {
        self.null.as_ref()
    }

    /// Sets the NULL value of a record without delimiters.
    pub fn set_null(&mut self, null: Option<Vec<u8>>) {
        self.null = null;
    }

    /// Whether there are values for NULL.
    pub fn has_nulls(&self) -> bool {
        self.nulls.is_some() || self.null.is_some()
    }

    /// Returns the name of an option that was given.
    pub fn given(&self) -> Option<&'static str> {
        let options = [
            (self.trim.is_some(), "trim"),
            (self.nulls.is_some(), "null_if"),
            (self.null.is_some(), "nullif"),
            (self.decimal.is_some(), "decimal"),
            (self.thousands.is_some(), "thousands"),
            (self.date_format.is_some(), "date_format"),
        ];
        options.into_iter().find_map(|(given, name)| given.then_some(name))
    }

    fn refinement(&self, copy: &CopyOptions, column: &Column) -> Result<Refinement> {
        let all = &copy.fields;
        let refused = match copy.shape() {
            RecordShape::Json => self.trim.map(|_| "trim"),
            RecordShape::Binary => self.given(),
            RecordShape::Delimited | RecordShape::Fixed => None,
        };
        if let Some(name) = refused {
            let column = column.display_name();
            let format = if copy.shape() == RecordShape::Json { "json" } else { "binary" };
            return Err(invalid(format!("option {name} of column \"{column}\" has no meaning in format \"{format}\"")));
        }
        // Slices have options of their own for trimming and for one NULL value.
        let is_fixed = copy.shape() == RecordShape::Fixed;
        let trim = if is_fixed { Trim::None } else { self.trim.or(all.trim).unwrap_or(Trim::None) };
        let nulls = match (&self.nulls, &self.null) {
            (None, None) => all.nulls.clone().unwrap_or_default(),
            (nulls, null) => nulls.iter().flatten().chain(null.iter().filter(|_| !is_fixed)).cloned().collect(),
        };
        let form = match (self.number(column)?, self.template(column)?) {
            (Some(pattern), _) => Form::Number(pattern),
            (None, Some(template)) => Form::Time(template),
            (None, None) => Form::Own,
        };
        Ok(Refinement { trim, nulls, form })
    }

    fn template(&self, column: &Column) -> Result<Option<Template>> {
        let Some(given) = &self.date_format else { return Ok(None) };
        let of = format!("option date_format of column \"{}\"", column.display_name());
        let kind = match base_type(column.type_oid) {
            pg_sys::DATEOID => TemplateType::Date,
            pg_sys::TIMEOID => TemplateType::Time,
            pg_sys::TIMESTAMPOID | pg_sys::TIMESTAMPTZOID => TemplateType::Timestamp,
            _ => return Err(invalid(format!("{of} requires the type date, time, timestamp or timestamptz"))),
        };
        Template::new(given, kind).map(Some).map_err(|why| bad_template(given, why))
    }

    fn number(&self, column: &Column) -> Result<Option<Pattern>> {
        let name = if self.decimal.is_some() { "decimal" } else { "thousands" };
        if self.decimal.is_none() && self.thousands.is_none() {
            return Ok(None);
        }
        let of = format!("option {name} of column \"{}\"", column.display_name());
        let is_number = matches!(
            base_type(column.type_oid),
            pg_sys::INT2OID
                | pg_sys::INT4OID
                | pg_sys::INT8OID
                | pg_sys::FLOAT4OID
                | pg_sys::FLOAT8OID
                | pg_sys::NUMERICOID
        );
        if !is_number {
            return Err(invalid(format!("{of} requires a type of numbers")));
        }
        if column.slice.as_ref().is_some_and(|slice| slice.number.is_some()) {
            return Err(invalid(format!("cannot specify both binary_type and {of}")));
        }
        let thousands = self.thousands.clone();
        let decimal = self.decimal.unwrap_or(if thousands.as_deref() == Some(b".") { b',' } else { b'.' });
        if thousands.as_deref() == Some(&[decimal]) {
            let message = format!("decimal and thousands of column \"{}\" must be different", column.display_name());
            return Err(invalid(message));
        }
        Ok(Some(Pattern { decimal, thousands }))
    }
}

fn bad_template(given: &[u8], why: BadTemplate) -> Error {
    let error = invalid(format!("date_format \"{}\" not recognized", text(given)));
    match why {
        BadTemplate::Unknown(at) => {
            let rest = text(given.get(at..).unwrap_or_default()).into_owned();
            let hint = "Fields are YYYY, YY, MM, Mon, Month, DD, HH24, HH12 with AM, MI, SS, MS and US; other letters and digits are written in double quotes.";
            error.detail(format!("There is no field at \"{rest}\".")).hint(hint)
        }
        BadTemplate::Twice => error.detail("It has two fields for the same part of the date or time."),
        BadTemplate::HalfDay => error.detail("HH12 requires AM, and AM requires HH12."),
        BadTemplate::Lacks => {
            error.detail("It requires year, month and day, or the hour of a time. Seconds require minutes.")
        }
        BadTemplate::HasDate => error.detail("The column's type has no date."),
    }
}

impl CopyOptions {
    /// Sets the refinement of each column. `own` holds the columns' own options, in the same order. Guarded.
    pub fn refine(&self, columns: &mut [Column], own: &[FieldDraft]) -> Result<()> {
        let nothing = FieldDraft::default();
        for (i, column) in columns.iter_mut().enumerate() {
            if column.ignored || column.taken != Taken::Field {
                continue;
            }
            let refinement = own.get(i).unwrap_or(&nothing).refinement(self, column)?;
            column.refinement = (!refinement.is_nothing()).then(|| Box::new(refinement));
        }
        Ok(())
    }
}

/// Returns a list of strings. A function takes an array, or one string as a list with one element.
pub fn strings(caller: Caller, name: &str, value: &OptionValue) -> Result<Vec<Vec<u8>>> {
    match value {
        OptionValue::List(list) => Ok(list.iter().map(|string| string.as_bytes().to_vec()).collect()),
        OptionValue::Text(string) if caller == Caller::Function => Ok(vec![string.clone()]),
        OptionValue::Text(string) => split_strings(string).ok_or_else(|| {
            let message = format!("argument to option \"{name}\" must be a list of strings, separated by commas");
            invalid(message).hint(
                "Write a string in double quotes if it is empty, or if it has commas, quotes, or blanks around it.",
            )
        }),
    }
}

/// Splits a list of strings with the syntax of a list of names, but with case. None if the syntax is wrong.
fn split_strings(list: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut strings = Vec::new();
    let mut rest = list.trim_ascii_start();
    loop {
        let mut string = Vec::new();
        if let Some(mut quoted) = rest.strip_prefix(b"\"") {
            loop {
                let end = memchr::memchr(b'"', quoted)?;
                string.extend_from_slice(quoted.get(..end)?);
                quoted = quoted.get(end + 1..)?;
                let Some(more) = quoted.strip_prefix(b"\"") else { break };
                string.push(b'"');
                quoted = more;
            }
            rest = quoted.trim_ascii_start();
        } else {
            let end = memchr::memchr2(b',', b'"', rest).unwrap_or(rest.len());
            string.extend_from_slice(rest.get(..end)?.trim_ascii_end());
            if string.is_empty() {
                return None;
            }
            rest = rest.get(end..)?;
        }
        strings.push(string);
        match rest.split_first() {
            None => return Some(strings),
            Some((b',', more)) => rest = more.trim_ascii_start(),
            Some(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_written_like_lists_of_names() {
        let split = |list: &str| {
            let strings = split_strings(list.as_bytes())?;
            Some(strings.iter().map(|string| text(string).into_owned()).collect::<Vec<_>>())
        };
        let some = |strings: &[&str]| Some(strings.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        assert_eq!(split("NA"), some(&["NA"]));
        assert_eq!(split(" n/a ,N U L L, -"), some(&["n/a", "N U L L", "-"]));
        assert_eq!(split("\"\", \" a, b \",\"c\"\"d\" "), some(&["", " a, b ", "c\"d"]));
        for bad in ["", " ", "a,", ",a", "a,,b", "\"a", "\"a\"b", "a\"b\"", "a \"b\""] {
            assert_eq!(split(bad), None, "{bad}");
        }
    }
}
