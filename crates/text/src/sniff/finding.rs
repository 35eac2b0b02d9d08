//! Makes the findings from the best trial: line ends, comments, blank lines, stray quotes, and the odd lines.

use super::preamble::Place;
use super::tokens::{Ends, Kind, Syntax, has_blank};
use super::trial::{Row, Trial};
use crate::dialect::{Dialect, EndMarker, Eol, Format};
use crate::fixed::Trim;
use crate::separator::Separator;

/// Bytes at the start of comments, the most frequent first.
const COMMENTS: [&[u8]; 6] = [b"#", b"//", b"--", b"%", b"!", b";"];

/// The options that are given explicitly.
#[derive(Debug, Clone)]
pub struct GivenOptions {
    /// Text, CSV, or CSV without quotes.
    pub format: Option<Format>,
    /// The field delimiter.
    pub delimiter: Option<Separator>,
    /// The quote.
    pub quote: Option<u8>,
    /// The escape.
    pub escape: Option<u8>,
    /// Lines end with a delimiter.
    pub trailing: Option<bool>,
    /// The ends of fields from which blanks are removed.
    pub trim: Option<Trim>,
    /// The marker of a default.
    pub default: Option<Vec<u8>>,
    /// Blank lines are no records.
    pub skip_blank_lines: Option<bool>,
    /// The bytes at the start of comments; empty if there are none.
    pub comment: Option<Vec<u8>>,
    /// Quotes count only at both ends of a field.
    pub lenient_quotes: Option<bool>,
    /// How lines end.
    pub line_end: Option<Eol>,
    /// The NULL marker.
    pub null: Option<Vec<u8>>,
    /// The meaning of `\.`.
    pub end_marker: EndMarker,
}

/// The detected properties of a file.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The dialect, with which the whole sample can be read.
    pub dialect: Dialect,
    /// Number of fields of the table's records.
    pub width: usize,
    /// Number of records in front of the table. Blank lines and comments that the dialect skips do not count.
    pub ahead: usize,
    /// Number of the line in which the table begins, from 1.
    pub first_line: usize,
    /// Number of comments, and the line of the first one.
    pub comments: (usize, usize),
    /// The ends of fields with blanks that belong to no value.
    pub trim: Trim,
    /// The lines that differ from the table's, in their order. None is behind the table if the sample is
    /// not the whole file.
    pub odd: Vec<OddLine>,
}

/// A line that differs from the table's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OddLine {
    /// Its number, from 1.
    pub line: usize,
    /// Number of its fields.
    pub fields: usize,
    /// How it differs.
    pub oddity: Oddity,
}

/// How a line differs from the table's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oddity {
    /// It is in front of the table.
    Ahead,
    /// It is behind the table.
    Behind,
    /// It has fewer fields.
    Short,
    /// It has more fields.
    Long,
    /// It has a quote that does not stand at both ends of a field.
    StrayQuote,
}

/// Reads the sample with the best syntax. Returns the dialect, the place of the table, and the lines that differ from it.
pub(super) fn finding(sample: &[u8], whole: bool, given: &GivenOptions, best: &Trial) -> Finding {
    let (mut trial, line_end) = with_line_ends(sample, whole, given, &best.syntax);
    if given.comment.is_none()
        && let Some(comment) = comment(&trial)
    {
        trial = Trial::whole_of(sample, whole, Syntax { comment: comment.to_vec(), ..trial.syntax });
    }
    let place = Place::of(&trial, whole, given.trailing);
    let syntax = &trial.syntax;
    // A blank line of a single column may be a NULL.
    let has_blank_lines = || place.width > 1 && trial.rows.iter().any(|row| row.kind == Kind::Blank);
    let skip_blank_lines = given.skip_blank_lines.unwrap_or_else(has_blank_lines);
    let is_padded = !has_blank(&syntax.separator) && (trial.quotes.padded > 0 || trial.has_blank_starts());
    let trim = given.trim.unwrap_or(if is_padded { Trim::Both } else { Trim::None });
    let is_text = syntax.backslash;
    let format = match syntax.quote {
        _ if is_text => Format::Text,
        Some(_) => Format::Csv,
        None => Format::Unquoted,
    };
    // With blanks around them, quotes are not at the ends of a field, and so delimiters within them would count.
    let is_safe = trial.quotes.padded == 0 || trial.quotes.hiding + trial.quotes.spanning == 0;
    let has_strays = !syntax.toggles && is_safe && trial.quotes.strays() > 0;
    let lenient_quotes = format == Format::Csv && given.lenient_quotes.unwrap_or(has_strays);
    let (quote, escape) = syntax.quote.map_or((b'"', b'"'), |quote| (quote, syntax.escape));
    let null = given.null.clone().unwrap_or_else(|| if is_text { b"\\N".to_vec() } else { Vec::new() });
    let dialect = Dialect {
        format,
        delimiter: syntax.separator.first(),
        separator: syntax.separator,
        trailing: place.trailing,
        quote,
        escape,
        null,
        default: given.default.clone(),
        end_marker: given.end_marker,
        skip_blank_lines,
        comment: syntax.comment.clone(),
        lenient_quotes,
        line_end,
        ..Dialect::lines(None)
    };
    let is_comment = |row: &&Row| row.kind == Kind::Comment;
    let first_comment = trial.rows.iter().find(is_comment).map_or(0, |row| row.line);
    let comments = (trial.rows.iter().filter(is_comment).count(), first_comment);
    let is_record = |row: &&Row| row.kind == Kind::Record || (row.kind == Kind::Blank && !skip_blank_lines);
    let first_line = trial.rows.iter().filter(is_record).map(|row| row.line).find(|&line| line >= place.first_line);
    let first_line = first_line.unwrap_or(1);
    let mut finding = Finding { dialect, width: place.width, ahead: 0, first_line, comments, trim, odd: Vec::new() };
    let ends = is_text || given.end_marker == EndMarker::Until17;
    let is_marker = |row: &&Row| ends && place.width > 1 && row.width == 1 && row.begins(b"\\.");
    for row in trial.rows.iter().take_while(|row| !is_marker(row)).filter(is_record) {
        let width = row.width - usize::from(place.trailing && row.ends_empty && row.width > 1);
        let oddity = match () {
            () if row.line < place.first_line => Some(Oddity::Ahead),
            () if row.line > place.last_line => Some(Oddity::Behind),
            () if width < place.width => Some(Oddity::Short),
            () if width > place.width => Some(Oddity::Long),
            () if row.stray && format == Format::Csv => Some(Oddity::StrayQuote),
            () => None,
        };
        let Some(oddity) = oddity else { continue };
        finding.ahead += usize::from(oddity == Oddity::Ahead);
        finding.odd.push(OddLine { line: row.line, fields: width, oddity });
    }
    finding
}

/// Reads the sample with the line ends that explain it best. Returns also the option for them: none if the reader learns
/// them from the first line.
fn with_line_ends(sample: &[u8], whole: bool, given: &GivenOptions, best: &Syntax) -> (Trial, Option<Eol>) {
    let any = Trial::whole_of(sample, whole, best.clone());
    let (lf, cr_lf, cr) = any.line_ends;
    let sequences = [lf, cr_lf, cr].iter().filter(|&&count| count > 0).count();
    if sequences < 2 || given.line_end.is_some() {
        return (any, given.line_end);
    }
    // A sequence that ends few lines may be data. But where CR LF ends lines, LF and CR alone do not end others.
    let most = match () {
        () if cr_lf >= lf.max(cr) => Eol::CrNl,
        () if cr_lf > 0 => Eol::Any,
        () if lf >= cr => Eol::Nl,
        () => Eol::Cr,
    };
    let other = Trial::whole_of(sample, whole, Syntax { ends: Ends::of(most), ..best.clone() });
    if other.agreement > any.agreement { (other, Some(most)) } else { (any, Some(Eol::Any)) }
}

/// The bytes at the start of comments, if there are some: lines within the table or in front of it that begin with them.
/// They have one field, or a blank behind these bytes and another number of fields: a load drops them, so a row whose
/// first value begins so must not be taken for one.
fn comment(trial: &Trial) -> Option<&'static [u8]> {
    let width = trial.width;
    COMMENTS.into_iter().find(|&mark| {
        let begins = |row: &&Row| row.kind == Kind::Record && row.begins(mark);
        if trial.syntax.separator.has(mark.first().copied().unwrap_or(0)) {
            return false;
        }
        let records = || trial.rows.iter().filter(|row| row.kind == Kind::Record);
        let first = records().position(|row| !begins(&row)).unwrap_or(usize::MAX);
        let wrong = |row: &&Row| width == 1 || row.width == 1 || (row.width != width && row.is_remark());
        let behind = || records().skip(first).filter(begins);
        let in_front = records().take(first);
        // Values of the table may begin with the mark, too.
        if behind().any(|row| !wrong(&row) && !row.is_remark()) || first == usize::MAX {
            return false;
        }
        if width > 1 && behind().any(|row| wrong(&row)) {
            return true;
        }
        // The last line in front may be the header.
        let last = in_front.clone().last();
        let is_header = last.is_some_and(|row| !wrong(&row) && !row.is_remark());
        // A text above a column of numbers is its name: `# of x`.
        let has_text = last.is_some_and(|row| !row.begins(b"#\0"));
        let is_name = width == 1 && first == 1 && has_text && records().nth(1).is_some_and(|row| row.numbers);
        mark == b"#" && first > 0 && !is_header && !is_name && in_front.clone().any(|row| wrong(&row))
    })
}
