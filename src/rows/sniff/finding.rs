//! Makes the result of `bulk_sniff` after the sample has been read.
//!
//! Options that the caller gave are kept, and those that were found are added. COPY's own checks decide whether they
//! can be combined.

use std::ffi::CString;

use pg_bulk_text::dialect::Format;
use pg_bulk_text::fixed::Trim;
use pg_bulk_text::sniff::header::names;
use pg_bulk_text::sniff::style::Style;

use super::evidence::Evidence;
use super::proposal::{LONGEST, clip};
use super::request::Request;
use super::{NAMES, Sniffed, SniffedColumn, Sniffer};
use crate::error::Result;
use crate::rows::copy_options::{Draft, LINE_ENDS};
use crate::rows::ragged::{LongRows, ShortRows};
use crate::server::option_value::OptionValue;

impl Sniffer {
    pub(super) fn finish(
        mut self,
        request: &Request,
        mut draft: Draft,
        compression: Option<&'static str>,
        files: Vec<CString>,
    ) -> Result<Sniffed> {
        let Some(known) = self.known.take() else { return self.nothing(request, draft, compression, files) };
        let mut words: Vec<(Vec<u8>, u64)> = Vec::new();
        for word in self.columns.iter().flat_map(Evidence::null_words_so_far) {
            match words.iter_mut().find(|(known, _)| *known == word.word) {
                Some((_, count)) => *count += word.count,
                None => words.push((word.word.clone(), word.count)),
            }
        }
        let recurs = |word: &[u8]| words.iter().any(|(known, count)| known == word && *count > 1);
        let styles = &self.validator.styles;
        self.columns.iter_mut().for_each(|column| column.finish(styles, recurs));
        if self.columns.iter().any(|column| matches!(column.style(), Some(Style::Number(b',', _)))) {
            self.columns.iter_mut().for_each(|column| column.doubt_points(styles));
        }
        // If most records are longer, a cut would lose their values, so that columns are added.
        let widens = self.given.ragged.long_rows.is_none()
            && self.given.ragged.short_rows != Some(ShortRows::Error)
            && self.trial.long.count * 2 > self.records;
        let cuts = self.given.ragged.long_rows.map_or(!widens, |long| long == LongRows::Cut);
        if widens {
            self.width = self.width.max(self.columns.len());
        } else {
            self.columns.truncate(self.width);
        }
        self.validator.close();
        let d = &known.dialect;
        let mut options = request.given.clone();
        let mut propose = |name: &str, value: Vec<u8>| -> Result<()> {
            if request.bytes_of(name).is_none() {
                let value = OptionValue::Text(value);
                draft.set(name, &value)?;
                options.push((name.to_owned(), value));
            }
            Ok(())
        };
        let format = match d.format {
            Format::Text => "text",
            Format::Lines => "json",
            _ => "csv",
        };
        propose("format", format.as_bytes().to_vec())?;
        if !d.is_lines() {
            propose("delimiter", d.separator.bytes().to_vec())?;
            let header = match known.header_lines {
                0 => "false".to_owned(),
                1 => "true".to_owned(),
                lines => lines.to_string(),
            };
            propose("header", header.into_bytes())?;
        }
        let words = [
            ("trailing_delimiter", "true", d.trailing),
            ("skip_blank_lines", "true", d.skip_blank_lines || self.trial.blank.count > 0),
            ("lenient_quotes", "true", d.lenient_quotes),
            ("short_rows", "null", self.trial.short.count > 0 || widens),
            ("long_rows", "cut", self.trial.long.count > 0 && cuts),
        ];
        for (name, word, _) in words.into_iter().filter(|(.., is_set)| *is_set) {
            propose(name, word.as_bytes().to_vec())?;
        }
        if !d.comment.is_empty() {
            propose("comment", d.comment.clone())?;
        }
        if let Some((name, _)) = LINE_ENDS.iter().find(|(_, line_end)| Some(*line_end) == d.line_end) {
            propose("line_end", name.as_bytes().to_vec())?;
        }
        if known.trim == Trim::Both && request.bytes_of("trim").is_none() {
            propose("trim", b"both".to_vec())?;
            self.notes.push("blanks around fields are removed (trim)".to_owned());
        }
        if d.format == Format::Unquoted && request.bytes_of("quote").is_none() {
            propose("quote", b"none".to_vec())?;
            self.notes.push("fields have no quotes: a quote is data".to_owned());
        }
        if d.is_csv() && d.quote != b'"' {
            propose("quote", vec![d.quote])?;
        }
        if d.is_csv() && d.escape != d.quote {
            propose("escape", vec![d.escape])?;
        }
        if let Some(encoding) = &self.encoding_option {
            propose("encoding", encoding.clone().into_bytes())?;
        }
        options.sort_by_key(|(name, _)| NAMES.iter().position(|known| known == name));
        // COPY's own check that the options can be combined.
        draft.finish()?;
        let mut keys = self.keys.map(|keys| keys.names.into_iter().map(Some).collect::<Vec<_>>());
        let names = names(keys.as_deref().or(known.names.as_deref()), self.columns.len(), LONGEST, clip);
        let mut key = |at: usize, name: &[u8]| keys.as_mut()?.get_mut(at)?.take().filter(|key| key != name);
        let column = |(at, (name, evidence)): (usize, (Vec<u8>, Evidence))| SniffedColumn {
            key: key(at, &name),
            name,
            evidence,
        };
        let columns: Vec<_> = names.into_iter().zip(self.columns).enumerate().map(column).collect();
        let mut foreign_notes = Vec::new();
        for column in &columns {
            self.notes.extend(column.notes(&files));
            let (name, kind) = (column.shown_name(), column.type_name());
            if kind != column.foreign_type_name() {
                foreign_notes.push(format!(
                    "column \"{name}\": the type {kind} depends on the DateStyle of this session, so the type in a foreign table is text"
                ));
            }
        }
        if self.width > columns.len() {
            let (width, most) = (self.width, columns.len());
            self.notes.push(format!("lines have {width} fields, but tables can have at most {most} columns"));
        }
        let fails = "a load fails there, or rejects them with on_error = table";
        let short = self.given.ragged.short_rows.unwrap_or(ShortRows::Null);
        let filled = match short {
            ShortRows::Error => fails,
            ShortRows::Null => "missing fields are NULL (short_rows)",
            ShortRows::Default => "missing fields get defaults (short_rows)",
        };
        let surplus = match cuts {
            true => "surplus fields are not read (long_rows)",
            false if widens => "columns are added, which are NULL in shorter lines (short_rows)",
            false => fails,
        };
        let are_texts = columns.iter().all(|column| column.evidence.column_type().is_none());
        self.records += if are_texts { self.trial.repeated.count } else { 0 };
        let repeated = if are_texts { "a load reads them as rows" } else { fails };
        let trial = &self.trial;
        let kinds = [
            (&trial.blank, "blank lines are skipped (skip_blank_lines)", false),
            (&trial.short, filled, short == ShortRows::Error),
            (&trial.long, surplus, !cuts && !widens),
            (&trial.repeated, repeated, !are_texts),
            (&trial.unreadable, fails, true),
            (&trial.invalid, fails, true),
            (&trial.marker, "a load does not read the lines behind it, as COPY does not", false),
            (&trial.spanning, "none of the first lines has: a quote may be data (quote)", false),
        ];
        self.notes.extend(kinds.iter().filter_map(|(kind, consequence, _)| kind.note(&files, consequence)));
        let rejects = kinds.iter().filter(|(_, _, is_reject)| *is_reject).map(|(kind, ..)| kind.count).sum();
        Ok(Sniffed {
            options,
            dialect: known.dialect,
            header: known.has_names,
            encoding: self.encoding,
            eol: self.eol,
            compression,
            records: self.records,
            rejects,
            complete: self.complete,
            columns,
            files,
            notes: self.notes,
            foreign_notes,
        })
    }

    /// The result for a file without a byte.
    fn nothing(
        mut self,
        request: &Request,
        draft: Draft,
        compression: Option<&'static str>,
        files: Vec<CString>,
    ) -> Result<Sniffed> {
        self.validator.close();
        let dialect = draft.finish()?.dialect;
        self.notes.push("there is no data".to_owned());
        Ok(Sniffed {
            options: request.given.clone(),
            dialect,
            header: false,
            encoding: self.encoding,
            eol: None,
            compression,
            records: 0,
            rejects: 0,
            complete: true,
            columns: Vec::new(),
            files,
            notes: self.notes,
            foreign_notes: Vec::new(),
        })
    }
}
