//! Finds the table among the records: behind titles and comments, in front of footers.
//!
//! A load that does not skip the lines in front fails there. But a record that is skipped by mistake is a lost row. So
//! such a record has fewer fields than the table, or all of its fields but one are empty, and enough complete rows are
//! below it.

use super::tokens::Kind;
use super::trial::{Row, Trial};

/// The fewest rows below a title.
const FEWEST: usize = 3;
/// The most padded titles.
const MOST_PADDED: usize = 32;
/// A table begins where most of these rows have its width.
const NEXT: usize = 5;

/// The place of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of fields of its records.
    pub(super) width: usize,
    /// Its records end with a delimiter.
    pub(super) trailing: bool,
    /// Its first and its last line.
    pub(super) first_line: usize,
    pub(super) last_line: usize,
}

impl Place {
    /// `whole`: the trial read the whole file. `trailing`: whether its records end with a delimiter, if that is known.
    pub(super) fn of(trial: &Trial, whole: bool, trailing: Option<bool>) -> Place {
        let records: Vec<Row> = trial.rows.iter().filter(|row| row.kind == Kind::Record).copied().collect();
        let count = |width: usize| records.iter().filter(|row| row.width == width).count();
        let mut width = trial.width;
        // Without a width that most records have, the header knows best.
        if let Some(first) = records.first()
            && count(width) * 2 < records.len()
            && first.width > 1
            && count(first.width) >= count(width)
        {
            width = first.width;
        }
        let agreeing = count(width);
        let complete = || records.iter().filter(|row| row.width == width);
        let ends_empty = width > 1 && agreeing > 0 && complete().all(|row| row.ends_empty);
        let is_header = |row: &Row| row.width + 1 == width && !row.ends_empty && row.filled == row.width;
        let header = records.iter().position(|row| row.width == width).and_then(|at| at.checked_sub(1));
        let header = header.filter(|&at| records.get(at).is_some_and(is_header));
        // Without a header that says so, an empty last field is rather a column. Only bars often end lines.
        let is_bar = trial.syntax.separator.first() == b'|' && agreeing >= FEWEST && agreeing == records.len();
        let trailing = trailing.unwrap_or(ends_empty && (header.is_some() || is_bar));
        let width = width - usize::from(trailing && ends_empty);
        let own = |row: &Row| row.width - usize::from(trailing && row.ends_empty && row.width > 1);
        let fits = |row: &Row| own(row) == width;

        let dense = |at: usize| {
            let next = records.get(at..records.len().min(at + NEXT)).unwrap_or_default();
            next.iter().filter(|row| fits(row)).count() * 2 > next.len()
        };
        let mut first = (0..records.len()).find(|&at| records.get(at).is_some_and(fits) && dense(at)).unwrap_or(0);
        let below = || records.iter().skip(first);
        let short = below().filter(|row| own(row) < width).count();
        // A header, but no row of data, can be known to have lines in front of it.
        let is_names = records.get(first).is_some_and(|row| row.words) && below().any(|row| !row.words);
        let are_titles = records.iter().take(first).all(|row| own(row) < width)
            && below().filter(|row| fits(row)).count() >= if is_names { 2 } else { FEWEST }
            && (is_names || short * 20 <= records.len() - first || first * 4 > records.len());
        if !are_titles {
            first = 0;
        }
        let last = records.iter().rposition(|row| own(row) >= width).filter(|_| whole && width > 1);
        // A header that is wider than the rows names columns that they do not have.
        let wide = records.first().filter(|row| !are_titles && own(row) > width && row.filled == row.width);
        let width = wide.map_or(width, own);
        first += padded(records.get(first..).unwrap_or_default(), width);
        let line = |at: usize| records.get(at).map(|row| row.line);
        Place {
            width,
            trailing,
            // A blank line in front of a single column is a record of it.
            first_line: if width > 1 { line(first).unwrap_or(1) } else { 1 },
            last_line: last.and_then(line).unwrap_or(usize::MAX),
        }
    }
}

/// Number of titles at the start that have the table's delimiters behind them, above names. A first row may lack values,
/// too.
fn padded(records: &[Row], width: usize) -> usize {
    let is_title = |row: &Row| row.filled <= 1 && row.width >= width;
    let titles = records.iter().take(MOST_PADDED).take_while(|row| is_title(row)).count();
    let below = records.get(titles..).unwrap_or_default();
    let sparse = below.iter().filter(|row| is_title(row)).count();
    let is_full = below.first().is_some_and(|row| row.words && row.filled * 10 > width * 6);
    let allowed = if width > 2 { below.len() / 10 } else { 0 };
    if titles > 0 && width > 1 && is_full && below.len() > 1 && sparse <= allowed { titles } else { 0 }
}
