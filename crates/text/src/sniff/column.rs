//! The values of a column below a name: their families and their form.

use super::family::{Family, has_letter, is_one_of};

/// The most values of a column to compare with each other.
const MOST_VALUES: usize = 64;

/// Common names of columns, in several languages.
const COMMON: &str = "id name date time code key value type status state city country address street zip phone email e-mail \
    mail title description comment comments text label category amount price count total user username url \
    uuid lang language currency note notes timestamp year month day first_name last_name lastname firstname \
    surname gender sex age region number no. nr nr. datum betrag ort plz vorname nachname nom prénom ville \
    pays nombre apellido ciudad fecha nome data valor author product department company location group class \
    version column field string integer item word";

/// The classes of a text's bytes, with equal neighbors as one: `a9-a` for `abc12-d`.
fn form(text: &[u8]) -> Vec<u8> {
    let mut form: Vec<u8> = text
        .iter()
        .map(|&b| match b {
            b'0'..=b'9' => b'9',
            b'A'..=b'Z' => b'A',
            b'a'..=b'z' | 0x80.. => b'a',
            other => other,
        })
        .collect();
    form.dedup();
    form
}

/// The values of a column below the first record.
#[derive(Debug, Clone, Default)]
pub struct Column {
    /// Number of values of each family.
    families: [usize; Family::COUNT],
    /// The first values, which are neither blank nor missing, and different from each other. Their number is limited.
    values: Vec<Vec<u8>>,
    /// The number of values that were compared.
    compared: usize,
    /// They include the first record's value.
    repeats: bool,
}

impl Column {
    /// Adds the value of a record. `name` is that of the first record.
    pub fn take(&mut self, value: &[u8], name: &[u8]) {
        let family = Family::of(value);
        if let Some(count) = self.families.get_mut(family as usize) {
            *count += 1;
        }
        if matches!(family, Family::Blank | Family::Missing) {
            return;
        }
        self.repeats |= value == name;
        if self.compared < MOST_VALUES {
            self.compared += 1;
            if !self.values.iter().any(|known| known == value) {
                self.values.push(value.to_vec());
            }
        }
    }

    /// Removes a value that belongs to the header.
    pub fn remove(&mut self, value: &[u8]) {
        if let Some(count) = self.families.get_mut(Family::of(value) as usize) {
            *count = count.saturating_sub(1);
        }
    }

    fn count(&self, family: Family) -> usize {
        self.families.get(family as usize).copied().unwrap_or(0)
    }

    /// The family of nearly all values, if they have one.
    #[must_use]
    pub fn family(&self) -> Option<Family> {
        let of_any = |families: &[Family]| families.iter().map(|&family| self.count(family)).sum::<usize>();
        let all = self.families.iter().sum::<usize>() - of_any(&[Family::Blank, Family::Missing]);
        let families = [Family::Number, Family::Moment, Family::Truth, Family::Address, Family::Json];
        let of_nearly_all = families.into_iter().find(|&family| {
            let of_it =
                if family == Family::Number { of_any(&[Family::Number, Family::Quantity]) } else { self.count(family) };
            // One letter is a code rather than an answer.
            let is_answer = family != Family::Truth
                || self.values.len() > 1
                || self.values.first().is_some_and(|value| value.len() > 1);
            of_it > 0 && of_it * 10 >= all * 9 && is_answer
        });
        // Or else values of several families, but no text.
        let largest = || families.into_iter().max_by_key(|&family| self.count(family));
        let has_texts = of_any(&[Family::Word, Family::Sign, Family::Truth]) > 0;
        of_nearly_all.or_else(|| largest().filter(|_| all > 0 && !has_texts))
    }

    /// Whether there is no value.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.compared == 0
    }

    /// How much the form of a name differs from the form of all texts below it; negative if it is like them.
    #[must_use]
    pub fn score(&self, name: &[u8]) -> i32 {
        if self.repeats {
            return -3;
        }
        let Some(first) = self.values.first() else { return i32::from(is_common(name)) * 3 };
        let family = Family::of(name);
        let several = self.compared >= 2;
        let all = |is: &dyn Fn(&[u8]) -> bool| self.values.iter().all(|value| is(value));
        let has_digit = |text: &[u8]| text.iter().any(u8::is_ascii_digit);
        let is_upper = |text: &[u8]| has_letter(text) && !text.iter().any(u8::is_ascii_lowercase);
        let is_lower = |text: &[u8]| has_letter(text) && !text.iter().any(u8::is_ascii_uppercase);
        let mut score = 0;
        if !is_name(family) {
            score -= 2;
        }
        if is_common(name) {
            score += 3;
        } else if is_identifier(name) && !self.values.iter().any(|value| is_identifier(value)) {
            score += if all(&|value| value.contains(&b' ')) { 3 } else { 2 };
        }
        let is_mark = |b: u8| b.is_ascii_punctuation() && b != b'_';
        let has_mark = first.iter().any(|&b| is_mark(b) && !name.contains(&b) && all(&|value| value.contains(&b)));
        if !has_digit(name) && all(&has_digit) || has_mark {
            score += if several { 2 } else { 1 };
        }
        let name_form = form(name);
        let first_form = form(first);
        if several && all(&|value| form(value) == first_form) {
            let is_plain = first_form.iter().all(|b| b.is_ascii_alphabetic() || *b == b' ');
            score += match (name_form == first_form, is_plain) {
                (false, _) => 1,
                (true, false) => -2,
                (true, true) => 0,
            };
        } else if self.values.iter().any(|value| form(value) == name_form && has_digit(value)) {
            score -= 1;
        }
        let is_fixed = self.values.len() >= 3 && first.len() >= 2 && all(&|value| value.len() == first.len());
        if is_fixed {
            score += if name.len() == first.len() { -1 } else { 1 };
        }
        if several
            && ((is_lower(name) && all(&|value| value.first().is_some_and(u8::is_ascii_uppercase)))
                || (!is_upper(name) && all(&is_upper))
                || (!is_lower(name) && all(&is_lower)))
        {
            score += 1;
        }
        // The values are few and recur. The name is not one of them (see `repeats`).
        if self.compared >= 6 && self.values.len() * 3 <= self.compared {
            score += 1;
        }
        let total: usize = self.values.iter().map(Vec::len).sum();
        let average = total / self.values.len();
        if average >= 25 && average >= name.len() * 3 {
            score += 1;
        }
        score.min(3)
    }
}

/// Whether a value of a family may be a name: a text, or a word such as `n` or `no`.
#[must_use]
pub fn is_name(family: Family) -> bool {
    matches!(family, Family::Word | Family::Truth)
}

fn is_common(name: &[u8]) -> bool {
    let joined: Vec<u8> = name.iter().map(|&b| if b == b' ' { b'_' } else { b }).collect();
    is_one_of(COMMON, &joined)
}

/// Whether a text is in the form of identifiers of programs: `first_name`, `firstName`.
fn is_identifier(text: &[u8]) -> bool {
    let is_part = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let has_hump =
        text.windows(2).any(|pair| matches!(pair, [a, b] if a.is_ascii_lowercase() && b.is_ascii_uppercase()));
    let has_join = text.contains(&b'_') && !text.starts_with(b"_") && !text.ends_with(b"_");
    text.iter().all(is_part) && text.first().is_some_and(|b| !b.is_ascii_digit()) && (has_hump || has_join)
}
