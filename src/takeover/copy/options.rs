//! Translates the options of a COPY to those of a load.
//!
//! It accepts an option only if this server's COPY knows it, if it is given once, and if its value has the right type.
//! Core runs every other COPY, with its own errors.

use std::ffi::{CStr, CString};

use pgrx::pg_sys;

use crate::input::source::Location;
use crate::load::options::LoadOptions;
use crate::server::compat;
use crate::server::node::{Node, NodeList};
use crate::server::option_value::OptionValue;
use crate::takeover::insert_select::eligibility::{Answer, no};

/// The options of a COPY FROM, and the same options as bytes of JSON, for workers. Guarded.
pub fn of_statement(statement: Node<'_, pg_sys::CopyStmt>) -> Answer<(LoadOptions, Vec<u8>)> {
    let mut values: Vec<(String, OptionValue)> = vec![("compression".into(), OptionValue::Text(b"none".to_vec()))];
    for option in statement.options().iter() {
        let name = option.name().unwrap_or_default().to_string_lossy().into_owned();
        if values.iter().any(|(other, _)| *other == name) {
            return no("An option is given twice.");
        }
        let value = value(&name, option.value())?;
        values.push((name, value));
    }
    if !statement.columns().is_empty() {
        values.push(("columns".into(), OptionValue::List(names(statement.columns())?)));
    }
    if statement.is_program {
        values.push(("program".into(), OptionValue::Text(b"true".to_vec())));
    }
    let path = statement.file().unwrap_or_default().to_owned();
    let Ok(mut options) = LoadOptions::of_values(path, &values) else {
        return no("The options are invalid.");
    };
    if !options.copy.dialect.is_copys() {
        return no("The options are invalid.");
    }
    if statement.file().is_none() {
        options.location = Location::Client(0);
    }
    options.adapt_to_copy();
    Ok((options, json(&values)))
}

/// An option's value.
fn value(name: &str, node: Option<Node<'_>>) -> Answer<OptionValue> {
    let text = |bytes: &[u8]| Ok(OptionValue::Text(bytes.to_vec()));
    let string = node.and_then(string_of);
    match name {
        "freeze" | "header" => {
            let word = string.map(|word| word.to_bytes().to_ascii_lowercase());
            let number = node.and_then(Node::as_a::<pg_sys::Integer>).map(|number| number.ival);
            match (word.as_deref(), number) {
                (None, _) if node.is_none() => text(b"true"),
                (Some(b"true" | b"on"), _) | (None, Some(1)) => text(b"true"),
                (Some(b"false" | b"off"), _) | (None, Some(0)) => text(b"false"),
                (Some(b"match"), _) if name == "header" => text(b"match"),
                _ => no("The options are invalid."),
            }
        }
        "force_null" | "force_not_null" => {
            let names = names(node.and_then(Node::as_a::<pg_sys::List>).map_or(NodeList::EMPTY, Node::list))?;
            if names.is_empty() {
                return no("An option requires a list of columns.");
            }
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
            Some(string) if name == "format" && string != c"text" && string != c"csv" => no("The options are invalid."),
            Some(string) => text(string.to_bytes()),
            None => no("The options are invalid."),
        },
        _ => Err(format!("The COPY has the option {name}.")),
    }
}

/// A string, or a Boolean as a word.
fn string_of(node: Node<'_>) -> Option<&CStr> {
    let word = |node: Node<'_, pg_sys::Boolean>| if node.boolval { c"true" } else { c"false" };
    node.as_a::<pg_sys::String>().map(Node::text).or_else(|| node.as_a().map(word))
}

/// Names of columns.
fn names(list: NodeList<'_, pg_sys::String>) -> Answer<Vec<CString>> {
    let names: Vec<CString> = list.iter().map(|name| name.text().to_owned()).collect();
    if names.len() == list.len() { Ok(names) } else { no("An option requires a list of columns.") }
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
