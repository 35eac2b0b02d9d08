//! Detects the dialect of a file: tries candidates on a sample and takes the one that explains most of its lines.
//!
//! Explicit options override detection. A candidate is a delimiter, a quote and an escape. The candidate with the
//! highest rank wins. These numbers are multiplied:
//!
//! - Agreement: the share of records with the same number of fields ([`super::trial`]).
//! - Likeness: how much fields look like single values ([`super::cell`]).
//! - Width: more fields rank higher.
//! - Quotes: the share of quotes at valid positions.
//! - Weight: lower for a delimiter that texts often contain.
//!
//! Two kinds of files look like records but have one column only: lines that are a single value (`10:00:00`), and lines
//! of JSON, whose quotes and commas belong to JSON. Lines of JSON are read without quotes, and with a delimiter that
//! does not occur in them.

use super::family::Family;
pub use super::finding::GivenOptions;
use super::finding::{Finding, finding};
use super::shape::{Type, Types, ValueShape};
use super::tokens::{Ends, Syntax};
use super::trial::Trial;
use crate::dialect::Format;
use crate::separator::Separator;

/// The most bytes of the sample for the choice.
const TRIAL_BYTES: usize = 64 * 1024;
/// With fewer lines in them, the choice takes as many bytes as the findings.
const ENOUGH_LINES: usize = 20;
/// The most bytes of the sample for the findings.
const MOST_BYTES: usize = 256 * 1024;
/// The most lines to test as single values.
const MOST_LINES: usize = 200;
/// Delimiters that are always tried, and how much their fields count.
const USUAL: [(u8, f64); 4] = [(b',', 1.0), (b'\t', 1.0), (b';', 1.0), (b'|', 0.95)];
/// Delimiters that are tried if most lines have them. Those that count at most [`WITHIN`] often stand within a value.
const RARE: [(u8, f64); 12] = [
    (b':', 0.5),
    (b' ', 0.5),
    (b'=', 0.4),
    (b'#', 0.6),
    (b'~', 0.7),
    (b'^', 0.7),
    (b'*', 0.6),
    (b'&', 0.5),
    (b'+', 0.5),
    (b'!', 0.5),
    (b'%', 0.4),
    (b'@', 0.4),
];
const WITHIN: f64 = 0.5;
/// How much fields between control characters count.
const CONTROL: f64 = 0.9;
/// Quotes, and how much their fields count.
const QUOTES: [(u8, f64); 4] = [(b'"', 1.0), (b'\'', 0.97), (b'~', 0.9), (b'`', 0.9)];
/// A character used as the delimiter to mean that there is no delimiter.
const NO_DELIMITER: u8 = 2;
/// A candidate with a lower rank explains nothing.
const LEAST: f64 = 0.1;
/// A long delimiter may have one of these on both sides, or be one of them twice.
const MARKS: &[u8] = b"|~^:;<>=#*&!%@+";

/// What the trials share.
#[derive(Clone, Copy)]
struct Sample<'a> {
    bytes: &'a [u8],
    whole: bool,
    given: &'a GivenOptions,
}

/// Detects the dialect of a file that begins with `sample`, and the place of its table. `whole`: the sample is the
/// whole file.
#[must_use]
pub fn detect(sample: &[u8], whole: bool, given: &GivenOptions) -> Finding {
    let bytes = sample.strip_prefix(b"\xef\xbb\xbf").unwrap_or(sample);
    let all =
        Sample { bytes: bytes.get(..MOST_BYTES).unwrap_or(bytes), whole: whole && bytes.len() <= MOST_BYTES, given };
    let part = bytes.get(..TRIAL_BYTES).unwrap_or(bytes);
    let part = match memchr::memchr2_iter(b'\n', b'\r', part).nth(ENOUGH_LINES) {
        Some(_) => Sample { bytes: part, whole: whole && bytes.len() <= TRIAL_BYTES, given },
        None => all,
    };
    let is_text = given.format == Some(Format::Text);
    if given.delimiter.is_none() && !is_text {
        let types = types_of_lines(part.bytes, part.whole);
        let has_quotes = given.quote.is_some() || given.escape.is_some() || given.lenient_quotes == Some(true);
        let is_json = types.has(Type::Json) && !has_quotes;
        if is_json && memchr::memchr(NO_DELIMITER, all.bytes).is_none() {
            return all.finding(&all.trial(Separator::byte(NO_DELIMITER), None, 0));
        }
        if !types.is_empty() && !is_json {
            return all.finding(&all.best_of(Separator::byte(b','), None));
        }
    }
    let chosen = match given.delimiter {
        Some(delimiter) => part.best_of(delimiter, None),
        None => part.choose().map_or_else(|| part.usual(), |trial| part.longer(trial)),
    };
    all.finding(&part.as_text(chosen))
}

impl Sample<'_> {
    fn finding(&self, best: &Trial) -> Finding {
        finding(self.bytes, self.whole, self.given, best)
    }

    fn trial(&self, separator: Separator, quote: Option<u8>, escape: u8) -> Trial {
        let backslash = self.given.format == Some(Format::Text);
        let ends = self.given.line_end.map_or(Ends::ANY, Ends::of);
        let comment = self.given.comment.clone().unwrap_or_default();
        let syntax = Syntax { separator, quote, escape, ends, comment, backslash, toggles: false };
        Trial::of(self.bytes, self.whole, syntax)
    }

    /// The best candidate, if one explains the sample.
    fn choose(&self) -> Option<Trial> {
        let quotes = memchr::memchr_iter(b'"', self.bytes).count();
        let is_one_value = self.lines_are_values();
        let mut trials: Vec<(Trial, f64)> = Vec::new();
        for (byte, weight) in self.candidates() {
            let trial = self.best_of(Separator::byte(byte), None);
            let is_rare = !USUAL.iter().any(|&(usual, _)| usual == byte);
            // Any text has some character that is not rare in it.
            if trial.width < 2 || (is_rare && trial.records().count() < 2) {
                continue;
            }
            // Values of one column have such characters, too, and its name has none.
            if is_rare && (is_one_value || trial.starts_whole()) {
                continue;
            }
            // Two words are rather one text: a name, an address.
            let words = trial.records().filter(|row| row.words).count();
            if weight <= WITHIN && trial.width == 2 && words * 10 > trial.records().count() * 9 {
                continue;
            }
            let explained = match trial.syntax.quote {
                None | Some(b'"') if quotes > 1 => (trial.quotes.quoted as f64 * 2.0 / quotes as f64).min(1.0),
                _ => 1.0,
            };
            let rank = trial.score * weight * (0.5 + 0.5 * explained);
            if rank > LEAST {
                trials.push((trial, rank));
            }
        }
        let (best, _) = trials.iter().reduce(|one, other| if other.1 > one.1 { other } else { one })?;
        // Names without this delimiter, and with another one that all lines have alike, are above lists of values.
        if best.starts_whole() && trials.iter().any(|(trial, _)| trial.is_below_names()) {
            trials.retain(|(trial, _)| trial.is_below_names());
        }
        trials.into_iter().reduce(|one, other| if other.1 > one.1 { other } else { one }).map(|(best, _)| best)
    }

    /// Whether nearly all lines are dates, addresses or amounts with a unit, which have blanks and signs within.
    fn lines_are_values(&self) -> bool {
        let lines = self.bytes.split(|&b| b == b'\n' || b == b'\r').filter(|line| !line.is_empty()).take(MOST_LINES);
        let families: Vec<Family> = lines.map(Family::of).collect();
        let count = |family| families.iter().filter(|&&other| other == family).count();
        [Family::Moment, Family::Address, Family::Quantity].iter().any(|&one| count(one) * 10 > families.len() * 9)
    }

    /// The usual delimiter, if it is in most lines, or else one that is in none: lines of a single column stay whole.
    fn usual(&self) -> Trial {
        let order: &[u8] = if self.given.format == Some(Format::Text) { b"\t;|," } else { b",\t;|" };
        let order = || order.iter().copied().filter(|&byte| self.given.quote != Some(byte));
        let usual = self.best_of(Separator::byte(order().next().unwrap_or(b',')), None);
        let cut = usual.records().filter(|row| row.width > 1).count();
        let all = usual.records().count();
        if cut == 0 || cut * 2 > all || usual.quotes.quoted > 0 {
            return usual;
        }
        let free = order().find(|&byte| memchr::memchr(byte, self.bytes).is_none()).unwrap_or(NO_DELIMITER);
        self.best_of(Separator::byte(free), None)
    }

    /// Candidates for the delimiter, with their weights.
    fn candidates(&self) -> Vec<(u8, f64)> {
        let (mut lines, mut hashes) = (0usize, 0usize);
        // The last line with each byte, and the number of lines with it.
        let mut bytes = [(0usize, 0usize); 256];
        for line in self.bytes.split(|&b| b == b'\n' || b == b'\r').filter(|line| !line.is_empty()) {
            lines += 1;
            hashes += usize::from(line.first() == Some(&b'#'));
            for &byte in line {
                if let Some((last, count)) = bytes.get_mut(usize::from(byte))
                    && *last != lines
                {
                    (*last, *count) = (lines, *count + 1);
                }
            }
        }
        let count = |byte: u8| bytes.get(usize::from(byte)).map_or(0, |&(_, count)| count);
        let control = (1..b' ').filter(|byte| !matches!(byte, b'\t' | b'\n' | b'\r')).map(|byte| (byte, CONTROL));
        let is_comment = |byte: u8| byte == b'#' && hashes * 10 > lines;
        let rare = RARE.into_iter().chain(control);
        // A file that is no text has control characters everywhere.
        let controls =
            (0..b' ').chain([0x7f]).filter(|&byte| !matches!(byte, b'\t' | b'\n' | b'\r') && count(byte) * 2 > lines);
        let is_binary = controls.count() > 2 || count(0) > 0;
        let is_odd = |byte: u8| is_comment(byte) || (byte < b' ' && is_binary);
        let rare = rare.filter(|&(byte, _)| count(byte) * 2 > lines && !is_odd(byte));
        let usual = USUAL.into_iter().filter(|&(byte, _)| count(byte) > 0);
        usual.chain(rare).filter(|&(byte, _)| self.given.quote != Some(byte)).collect()
    }

    /// Tries the quotes and escapes with this delimiter, or this quote only, and returns the best.
    fn best_of(&self, separator: Separator, quote: Option<u8>) -> Trial {
        if matches!(self.given.format, Some(Format::Text | Format::Unquoted)) {
            return self.trial(separator, None, 0);
        }
        if let Some(quote) = quote.or(self.given.quote) {
            return self.with_quote(separator, quote);
        }
        let mut best: Option<(Trial, f64)> = None;
        for (quote, weight) in QUOTES {
            if separator.has(quote) || !self.stands_at_borders(quote, &separator) {
                continue;
            }
            let found = self.with_quote(separator, quote);
            let others = found.quotes.stray * 4 < found.quotes.quoted && found.quotes.inner < found.quotes.quoted;
            let is_proper = match quote {
                b'"' => found.quotes.quoted > 0,
                b'\'' if found.quotes.hiding > 0 && found.quotes.strays() == 0 => true,
                b'\'' => found.quotes.values > 1 && others,
                _ => found.quotes.values >= found.rows.len() && others,
            };
            if is_proper && best.as_ref().is_none_or(|(best, than)| found.score * weight > best.score * than) {
                best = Some((found, weight));
            }
        }
        let Some((found, _)) = best else {
            // Without quotes in the file, the usual one is as good as none.
            let needs_quote = self.given.escape.is_some() || self.given.lenient_quotes == Some(true);
            if memchr::memchr(b'"', self.bytes).is_none() || needs_quote {
                return self.trial(separator, Some(b'"'), self.given.escape.unwrap_or(b'"'));
            }
            return self.toggled(self.trial(separator, None, 0));
        };
        if self.given.lenient_quotes == Some(true) {
            return found;
        }
        let bad = found.quotes.strays();
        let found = self.toggled(found);
        if found.syntax.toggles
            || (bad == 0 && found.quotes.spanning == 0 && found.quotes.hiding > 0)
            || self.given.escape.is_some()
        {
            return found;
        }
        let none = self.trial(separator, None, 0);
        // Quotes that hide nothing, and mostly stand where they have no meaning, are data.
        let is_data =
            found.quotes.hiding + found.quotes.spanning + found.quotes.escaped == 0 && bad >= found.quotes.quoted;
        // Each line is complete without quotes, so no line end is within quotes.
        let is_complete = found.quotes.spanning > 0
            && found.quotes.spanning + bad >= found.quotes.quoted
            && none.width > 1
            && (bad > 0 || none.rows.len() > 3)
            && none.records().all(|row| row.width == none.width);
        if is_data || is_complete || none.score > found.score * 1.05 { none } else { found }
    }

    /// Tries this quote with the escapes, and returns the better one.
    fn with_quote(&self, separator: Separator, quote: u8) -> Trial {
        let usual = self.trial(separator, Some(quote), self.given.escape.unwrap_or(quote));
        if self.given.escape.is_some() || memchr::memmem::find(self.bytes, &[b'\\', quote]).is_none() {
            return usual;
        }
        let other = self.trial(separator, Some(quote), b'\\');
        let bad = |trial: &Trial| trial.quotes.strays() + usize::from(trial.lost);
        let is_better = bad(&other) < bad(&usual) || (bad(&other) == bad(&usual) && other.score > usual.score);
        if other.quotes.escaped > 0 && is_better { other } else { usual }
    }

    /// The same with COPY's meaning of quotes, which begin and end anywhere in a field, if that explains more.
    fn toggled(&self, trial: Trial) -> Trial {
        let quote = trial.syntax.quote.unwrap_or(b'"');
        if trial.quotes.strays() == 0 && trial.syntax.quote.is_some() || trial.syntax.escape == b'\\' {
            return trial;
        }
        let syntax = Syntax { quote: Some(quote), escape: quote, toggles: true, ..trial.syntax.clone() };
        let other = Trial::of(self.bytes, self.whole, syntax);
        let is_better = other.quotes.hiding > 0
            && other.quotes.spanning == 0
            && other.score > trial.score
            && other.width > 1
            && other.records().all(|row| row.width == other.width);
        if is_better { other } else { trial }
    }

    /// Whether a quote stands at the start of a field.
    fn stands_at_borders(&self, quote: u8, separator: &Separator) -> bool {
        let last = separator.bytes().last().copied();
        let before = |at: usize| at.checked_sub(1).and_then(|before| self.bytes.get(before)).copied();
        memchr::memchr_iter(quote, self.bytes)
            .any(|at| matches!(before(at), None | Some(b'\n' | b'\r' | b' ')) || before(at) == last)
    }

    /// The same with a delimiter of several bytes, if all delimiters are parts of it.
    fn longer(&self, trial: Trial) -> Trial {
        let byte = trial.syntax.separator.first();
        if trial.syntax.separator.is_long() || trial.width < 2 {
            return trial;
        }
        let count = |string: &[u8]| memchr::memmem::find_iter(self.bytes, string).count();
        // Quotes that follow blanks do not count in `lenient_quotes`, unless the blank belongs to the delimiter.
        if trial.quotes.padded > 0 && trial.quotes.strays() > 0 {
            let blank = Separator::new(&[byte, b' ']).map(|separator| self.best_of(separator, trial.syntax.quote));
            let same = |other: &Trial| other.width == trial.width && other.agreement >= trial.agreement;
            return blank.filter(same).unwrap_or(trial);
        }
        let at = memchr::memchr(byte, self.bytes).unwrap_or(0);
        let before = at.checked_sub(1).and_then(|before| self.bytes.get(before)).copied().unwrap_or(0);
        let fields: usize = trial.records().map(|row| row.width - 1).sum();
        // Empty columns also make pairs of the usual delimiters.
        let may_be_pairs = MARKS.contains(&byte) && trial.width > 2 && (byte != b';' || trial.records().count() > 4);
        let longer = match () {
            () if may_be_pairs && count(&[byte, byte]) * 2 == fields && count(&[byte]) == fields => vec![byte, byte],
            () if MARKS.contains(&before) && count(&[before, byte, before]) == count(&[byte]) => {
                vec![before, byte, before]
            }
            () => return trial,
        };
        let Some(separator) = Separator::new(&longer) else { return trial };
        let other = self.best_of(separator, trial.syntax.quote.filter(|&quote| !separator.has(quote)));
        if other.width > 1 && other.agreement >= trial.agreement { other } else { trial }
    }

    /// The same in format text, if the file has its escapes.
    fn as_text(&self, trial: Trial) -> Trial {
        let separator = trial.syntax.separator;
        let may_be_text = self.given.format.is_none()
            && self.given.quote.is_none()
            && self.given.escape.is_none()
            && trial.quotes.quoted == 0
            && separator.first() != b':'
            && !crate::dialect::is_unsafe_in_text(separator.first())
            && memchr::memchr(b'\\', self.bytes).is_some();
        if !may_be_text {
            return trial;
        }
        // Each backslash begins an escape that people write, and one of them can be nothing else.
        let (mut at, mut is_certain) = (0, false);
        while let Some(next) = memchr::memchr(b'\\', self.bytes.get(at..).unwrap_or_default()) {
            let behind = self.bytes.get(at + next + 1..).unwrap_or_default();
            let before = (at + next).checked_sub(1).and_then(|before| self.bytes.get(before));
            let at_start = before.is_none_or(|&b| b == b'\n' || separator.has(b));
            let after = behind.get(1..).unwrap_or_default();
            let at_end = after.first().is_none_or(|&b| b == b'\n' || b == b'\r') || separator.begins(after);
            is_certain |= match behind.first() {
                Some(b'N') if at_start && at_end => self.given.null.is_none() && separator.first() != b',',
                Some(b'\\') => separator.first() == b'\t',
                Some(b'n' | b't' | b'r') | None => false,
                Some(_) if separator.begins(behind) => true,
                Some(_) => return trial,
            };
            at += next + 2;
        }
        let given = GivenOptions { format: Some(Format::Text), ..self.given.clone() };
        let text = Sample { given: &given, ..*self }.trial(separator, None, 0);
        if is_certain && text.width > 1 && text.agreement >= trial.agreement { text } else { trial }
    }
}

/// Returns the types of all lines but the first one, which may be a header.
fn types_of_lines(sample: &[u8], whole: bool) -> Types {
    let end = if memchr::memchr(b'\n', sample).is_some() { b'\n' } else { b'\r' };
    let mut lines: Vec<&[u8]> = sample.split(|&b| b == end).take(MOST_LINES).collect();
    let is_cut = lines.len() < MOST_LINES && !whole;
    if is_cut || lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    let shape = |line: &[u8]| ValueShape::of(line.strip_suffix(b"\r").unwrap_or(line)).types;
    let first = lines.first().map_or(Types::NONE, |line| shape(line));
    let is_alone = lines.len() == 1;
    let others = lines.iter().skip(1).filter(|line| !line.trim_ascii().is_empty());
    let types = others.fold(Types::ALL, |types, line| types.and(shape(line)));
    match () {
        () if is_alone => first,
        // Lines of JSON have no header.
        () if types.has(Type::Json) && !first.has(Type::Json) => Types::NONE,
        // All lines are blank.
        () if types == Types::ALL => Types::NONE,
        () => types,
    }
}
