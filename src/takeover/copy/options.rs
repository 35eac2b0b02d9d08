//! Translates the options of a COPY to those of a load.
//!
//! It accepts an option only if this server's COPY knows it, if it is given once, and if its value has the right type.
//! Core runs every other COPY, with its own errors.

use std::ffi::{CStr, CString};

use pgrx::{PgList, pg_sys};

use crate::input::source::Location;
use crate::load::options::LoadOptions;
use crate::server::compat;
use crate::server::option_value::OptionValue;
use crate::takeover::insert_select::eligibility::{Answer, no};

/// The options of a statement, and the same options as bytes of JSON, for workers. Guarded.
///
/// # Safety
/// A COPY FROM, as parsed.
pub unsafe fn of_statement(statement: &pg_sys::CopyStmt) -> Answer<(LoadOptions, Vec<u8>)> {
    // SAFETY: this function's contract covers the statement; lists have nodes of the types that the grammar makes.
    unsafe {
        let mut values: Vec<(String, OptionValue)> = vec![("compression".into(), OptionValue::Text(b"none".to_vec()))];
        for element in PgList::<pg_sys::DefElem>::from_pg(statement.options).iter_ptr() {
            let name = CStr::from_ptr((*element).defname).to_string_lossy().into_owned();
            if values.iter().any(|(other, _)| *other == name) {
                return no("An option is given twice.");
            }
            let value = value(&name, (*element).arg)?;
            values.push((name, value));
        }
        if !statement.attlist.is_null() {
            values.push(("columns".into(), OptionValue::List(names(statement.attlist)?)));
        }
        let path = statement.filename.as_ref().map_or(c"", |name| CStr::from_ptr(name)).to_owned();
        if statement.is_program {
            values.push(("program".into(), OptionValue::Text(b"true".to_vec())));
        }
        let Ok(mut options) = LoadOptions::of_values(path, &values) else {
            return no("The options are invalid.");
        };
        if !options.copy.dialect.is_copys() {
            return no("The options are invalid.");
        }
        if statement.filename.is_null() {
            options.location = Location::Client(0);
        }
        options.adapt_to_copy();
        Ok((options, json(&values)))
    }
}

/// An option's value.
///
/// # Safety
/// A node of the grammar, or null.
unsafe fn value(name: &str, node: *mut pg_sys::Node) -> Answer<OptionValue> {
    let text = |bytes: &[u8]| Ok(OptionValue::Text(bytes.to_vec()));
    // SAFETY: this function's contract covers the node; tags give the node types.
    unsafe {
        let string = string_of(node);
        match name {
            "freeze" | "header" => {
                let word = string.map(|word| word.to_bytes().to_ascii_lowercase());
                match word.as_deref() {
                    None if node.is_null() => text(b"true"),
                    Some(b"true" | b"on") => text(b"true"),
                    Some(b"false" | b"off") => text(b"false"),
                    Some(b"match") if name == "header" => text(b"match"),
                    None if (*node).type_ == pg_sys::NodeTag::T_Integer => {
                        match (*node.cast::<pg_sys::Integer>()).ival {
                            0 => text(b"false"),
                            1 => text(b"true"),
                            _ => no("The options are invalid."),
                        }
                    }
                    _ => no("The options are invalid."),
                }
            }
            "force_null" | "force_not_null" => {
                if node.is_null() || (*node).type_ != pg_sys::NodeTag::T_List {
                    return no("An option requires a list of columns.");
                }
                let names = names(node.cast())?;
                if (1..names.len())
                    .any(|i| names.get(i).is_some_and(|name| names.iter().take(i).any(|other| other == name)))
                {
                    return no("An option names a column twice.");
                }
                Ok(OptionValue::List(names))
            }
            "default" if !compat::COPY_HAS_DEFAULT => no("An option does not exist."),
            "format" | "delimiter" | "null" | "quote" | "escape" | "encoding" | "default" => match string {
                Some(string) if name == "format" && string == c"binary" => no("The format is binary."),
                Some(string) if name == "format" && string != c"text" && string != c"csv" => {
                    no("The options are invalid.")
                }
                Some(string) => text(string.to_bytes()),
                None => no("The options are invalid."),
            },
            _ => Err(format!("The COPY has the option {name}.")),
        }
    }
}

/// A string.
///
/// # Safety
/// A node, or null.
unsafe fn string_of<'a>(node: *mut pg_sys::Node) -> Option<&'a CStr> {
    // SAFETY: this function's contract covers the node; tags give the node types.
    unsafe {
        let node = node.as_ref()?;
        match node.type_ {
            pg_sys::NodeTag::T_String => {
                Some(CStr::from_ptr((*std::ptr::from_ref(node).cast::<pg_sys::String>()).sval))
            }
            pg_sys::NodeTag::T_Boolean => {
                let is = (*std::ptr::from_ref(node).cast::<pg_sys::Boolean>()).boolval;
                Some(if is { c"true" } else { c"false" })
            }
            _ => None,
        }
    }
}

/// Names of columns.
///
/// # Safety
/// A list of nodes.
unsafe fn names(list: *mut pg_sys::List) -> Answer<Vec<CString>> {
    // SAFETY: this function's contract covers the list; tags give the node types.
    unsafe {
        let nodes = PgList::<pg_sys::Node>::from_pg(list);
        let names = nodes.iter_ptr().map(|node| match (*node).type_ {
            pg_sys::NodeTag::T_String => Some(CStr::from_ptr((*node.cast::<pg_sys::String>()).sval).to_owned()),
            _ => None,
        });
        names.collect::<Option<Vec<_>>>().ok_or_else(|| "An option requires a list of columns.".into())
    }
}

/// Options as a JSON object, in the server's encoding.
fn json(values: &[(String, OptionValue)]) -> Vec<u8> {
    let mut object = b"{".to_vec();
    for (i, (name, value)) in values.iter().enumerate() {
        if i > 0 {
            object.push(b',');
        }
        quote(&mut object, name.as_bytes());
        object.push(b':');
        match value {
            OptionValue::Text(text) => quote(&mut object, text),
            OptionValue::List(names) => {
                object.push(b'[');
                for (i, name) in names.iter().enumerate() {
                    if i > 0 {
                        object.push(b',');
                    }
                    quote(&mut object, name.as_bytes());
                }
                object.push(b']');
            }
        }
    }
    object.push(b'}');
    object
}

fn quote(json: &mut Vec<u8>, text: &[u8]) {
    json.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => json.extend([b'\\', byte]),
            0..0x20 => json.extend(format!("\\u{byte:04x}").bytes()),
            _ => json.push(byte),
        }
    }
    json.push(b'"');
}
