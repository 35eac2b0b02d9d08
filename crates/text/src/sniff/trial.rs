//! Tries one syntax on a sample: the widths of its records, how its quotes stand, how much its fields look like values.

use super::cell;
use super::tokens::{Kind, Style, Syntax, tokenize};

/// The most records to try.
const MOST_RECORDS: usize = 5000;
/// All of the first records are measured, and then one in eight.
const MEASURED: usize = 200;
/// The most fields of a record to measure.
const MOST_FIELDS: usize = 100;
/// The most widths to tell apart.
const MOST_WIDTHS: usize = 64;

/// A line of the sample: a record, a blank line or a comment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) kind: Kind,
    /// Number of its first line, from 1.
    pub(super) line: usize,
    /// Number of its fields.
    pub(super) width: usize,
    /// Number of its fields that are not empty.
    pub(super) filled: usize,
    /// The last field is empty.
    pub(super) ends_empty: bool,
    /// Its first bytes.
    start: [u8; 2],
    /// A mark of comments and a blank, or the mark alone.
    remark: bool,
    /// Has a quote without a meaning.
    pub(super) stray: bool,
    /// No field is empty or begins as a number does.
    pub(super) words: bool,
}

impl Row {
    /// Whether it begins with a mark of comments.
    pub(super) fn begins(&self, mark: &[u8]) -> bool {
        self.start.starts_with(mark)
    }

    /// Whether a mark and a blank are at its start, or a mark alone.
    pub(super) fn is_remark(&self) -> bool {
        self.remark
    }
}

/// Sums over the records of one width.
#[derive(Debug, Clone, Copy)]
struct Width {
    width: usize,
    likeness: f64,
    measured: usize,
}

/// Numbers of fields with quotes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Quotes {
    /// In quotes, and those of them that are not empty.
    pub(super) quoted: usize,
    pub(super) values: usize,
    /// In quotes with blanks around.
    pub(super) padded: usize,
    /// With a quote without a meaning at the start.
    pub(super) stray: usize,
    /// With a quote without a meaning, but not at the start.
    pub(super) inner: usize,
    /// In quotes, with a delimiter within, a line end, an escaped quote.
    pub(super) hiding: usize,
    pub(super) spanning: usize,
    pub(super) escaped: usize,
}

impl Quotes {
    /// Number of fields with a quote that has no meaning.
    pub(super) fn strays(&self) -> usize {
        self.stray + self.inner
    }
}

/// The result of a trial.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    pub(super) syntax: Syntax,
    pub(super) rows: Vec<Row>,
    widths: Vec<Width>,
    pub(super) lost: bool,
    pub(super) quotes: Quotes,
    /// Fields behind the first one of their record that begin with a blank, and all of these fields.
    pub(super) blank_starts: usize,
    pub(super) later: usize,
    /// Numbers of lines that end with LF, CR LF and CR.
    pub(super) line_ends: (usize, usize, usize),
    /// Number of fields of the table's records; 0 if there is no record.
    pub(super) width: usize,
    /// Share of the records between the first and the last one of this width that have it.
    pub(super) agreement: f64,
    /// Rank among other trials, from 0 to 1.
    pub(super) score: f64,
}

impl Trial {
    /// Reads as many records as the choice of a syntax requires.
    pub(super) fn of(sample: &[u8], whole: bool, syntax: Syntax) -> Trial {
        Trial::read(sample, whole, syntax, MOST_RECORDS)
    }

    /// Reads all records.
    pub(super) fn whole_of(sample: &[u8], whole: bool, syntax: Syntax) -> Trial {
        Trial::read(sample, whole, syntax, usize::MAX)
    }

    fn read(sample: &[u8], whole: bool, syntax: Syntax, most: usize) -> Trial {
        let mut trial = Trial {
            syntax: syntax.clone(),
            rows: Vec::new(),
            widths: Vec::new(),
            lost: false,
            quotes: Quotes::default(),
            blank_starts: 0,
            later: 0,
            line_ends: (0, 0, 0),
            width: 0,
            agreement: 0.0,
            score: 0.0,
        };
        trial.lost = tokenize(sample, whole, &syntax, |item| {
            let at = |at: usize| item.raw.get(at).copied().unwrap_or(0);
            let start = [at(0), at(1)];
            match item.end {
                b"\n" => trial.line_ends.0 += 1,
                b"\r\n" => trial.line_ends.1 += 1,
                b"\r" => trial.line_ends.2 += 1,
                _ => (),
            }
            let mut row = Row {
                kind: item.kind,
                line: item.line,
                width: item.fields.len(),
                filled: 0,
                ends_empty: item.fields.last().is_some_and(|last| last.raw.is_empty()),
                start,
                remark: matches!(item.raw.trim_ascii_start(), [b'#'] | [b'#', b' ' | b'#', ..]),
                stray: false,
                words: true,
            };
            if item.kind != Kind::Record {
                trial.rows.push(row);
                return true;
            }
            let number = trial.rows.len();
            let is_measured = number < MEASURED || number.is_multiple_of(8);
            let mut likeness = 0.0;
            for (at, token) in item.fields.iter().enumerate() {
                let inner = if syntax.toggles { token.raw } else { token.inner() };
                row.filled += usize::from(!inner.is_empty());
                row.words &= !matches!(inner.trim_ascii_start().first(), None | Some(b'0'..=b'9' | b'-' | b'+' | b'.'));
                match token.style {
                    Style::Bare => (),
                    Style::Quoted | Style::Padded => {
                        trial.quotes.quoted += 1;
                        trial.quotes.values += usize::from(!inner.is_empty());
                        trial.quotes.padded += usize::from(token.style == Style::Padded);
                        trial.quotes.hiding += usize::from(syntax.separator.is_in(inner));
                        trial.quotes.spanning += usize::from(memchr::memchr2(b'\n', b'\r', inner).is_some());
                        trial.quotes.escaped += usize::from(token.escaped);
                    }
                    Style::Stray => trial.quotes.stray += 1,
                    Style::Inner => trial.quotes.inner += 1,
                }
                row.stray |= matches!(token.style, Style::Stray | Style::Inner);
                if is_measured && at < MOST_FIELDS {
                    let quoted = matches!(token.style, Style::Quoted | Style::Padded);
                    likeness += if quoted { cell::likeness(inner).max(0.9) } else { cell::likeness(token.raw) };
                    if at > 0 {
                        trial.later += 1;
                        trial.blank_starts += usize::from(token.raw.first() == Some(&b' '));
                    }
                }
            }
            trial.rows.push(row);
            if is_measured && row.width > 0 {
                trial.measured(row.width, likeness, row.width.min(MOST_FIELDS));
            }
            trial.rows.len() < most
        });
        trial.rank();
        trial
    }

    fn measured(&mut self, width: usize, likeness: f64, fields: usize) {
        if let Some(known) = self.widths.iter_mut().find(|known| known.width == width) {
            known.likeness += likeness;
            known.measured += fields;
        } else if self.widths.len() < MOST_WIDTHS {
            self.widths.push(Width { width, likeness, measured: fields });
        }
    }

    /// The records that count in the choice of a dialect.
    pub(super) fn records(&self) -> impl Iterator<Item = &Row> {
        let hashes = self.rows.iter().filter(|row| row.begins(b"#")).count();
        let counts_hashes = hashes * 2 > self.rows.len() || self.syntax.separator.has(b'#');
        self.rows.iter().filter(move |row| row.kind == Kind::Record && (counts_hashes || !row.begins(b"#")))
    }

    /// Whether the first record has no delimiter.
    pub(super) fn starts_whole(&self) -> bool {
        self.records().next().is_some_and(|row| row.width == 1)
    }

    /// Whether all records have the same fields as the first one, whose fields are words.
    pub(super) fn is_below_names(&self) -> bool {
        self.records().next().is_some_and(|row| row.words) && self.records().all(|row| row.width == self.width)
    }

    /// Whether a blank follows nearly all delimiters.
    pub(super) fn has_blank_starts(&self) -> bool {
        self.later > 0 && self.blank_starts * 10 > self.later * 9
    }

    /// Determines the width of the table, and the rank.
    fn rank(&mut self) {
        let records: Vec<usize> = self.records().map(|row| row.width).collect();
        let mut best = (0, 0.0, -1.0);
        for known in &self.widths {
            let width = known.width;
            let is_it = |&other: &usize| other == width;
            let count = records.iter().filter(|other| is_it(other)).count();
            let first = records.iter().position(is_it);
            let (Some(first), Some(last)) = (first, records.iter().rposition(is_it)) else { continue };
            let span = last - first + 1;
            let inside = count as f64 / span as f64;
            let cover = span as f64 / records.len() as f64;
            let likeness = known.likeness / known.measured.max(1) as f64;
            let size = if width == 1 { 0.2 } else { 1.0 - 1.0 / (width as f64 + 1.0) };
            // One or two records of many may agree by chance.
            let share = if count < 3 { (count as f64 / records.len() as f64).powf(1.5) } else { cover.powf(0.7) };
            // A width without exceptions is better evidence than one above or below other lines.
            let all = if count == records.len() && count > 1 { 1.3 } else { 1.0 };
            let weight = all * inside.powf(2.0) * share * likeness.powf(1.5) * size;
            if weight > best.2 {
                best = (width, inside, weight);
            }
        }
        (self.width, self.agreement, self.score) = (best.0, best.1, best.2.max(0.0));
        if self.lost {
            self.score *= 0.5;
        }
        // Punctuation within text has a blank behind it, unless the values are in quotes.
        if self.has_blank_starts() && self.quotes.padded == 0 {
            self.score *= 0.8;
        }
        // A mark at the start or at the end of each line delimits nothing.
        let pairs = || self.records().filter(|row| row.width == 2);
        let starts_empty = |row: &Row| row.filled == 1 && !row.ends_empty;
        if self.width == 2 && (pairs().all(|row| row.ends_empty) || pairs().all(starts_empty)) {
            self.score *= 0.2;
        }
    }
}
