//! Finds the type of a column from its values.
//!
//! A type stays a candidate as long as each value has its syntax and the server accepts the value. The type's native
//! decoder is asked first, then its input function, under the settings of the session. So a load of the same values
//! accepts every type that is left in the end. For each other type, the first value that ruled it out is kept with its
//! position.

use std::ffi::CString;

use pg_bulk_text::json_object::repeats_key;
use pg_bulk_text::sniff::family::Family;
use pg_bulk_text::sniff::shape::{Day, Type, Types, ValueShape};
use pg_bulk_text::sniff::style::{Choice, Style, StyleSet, Styles, is_null_word};
use pg_bulk_types::arena::Arena;
use pg_bulk_types::convert::{Decoder, Session};
use pgrx::pg_sys;

use crate::error::Result;
use crate::rows::context::displayed;
use crate::server::compat::{self, Soft};
use crate::server::lookup::input_function;
use crate::server::memory_context::MemoryContext;

/// Position of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValuePosition {
    Line(u64),
    /// The number of the line is unknown.
    Offset(u64),
}

/// The value that ruled out a type for a column.
#[derive(Debug, Clone)]
pub struct RuledOut {
    pub of: Type,
    /// Index of the file, if there are several.
    pub file: usize,
    pub place: ValuePosition,
    pub value: CString,
}

/// The types whose values have a date.
const DATES: &[Type] = &[Type::Date, Type::Timestamp, Type::Timestamptz];

/// The types whose values are strings in JSON.
const STRINGS: &[Type] = &[Type::Date, Type::Timestamp, Type::Timestamptz, Type::Time, Type::Uuid];

/// The values of a column that were read so far.
#[derive(Debug, Clone)]
pub struct Evidence {
    left: Types,
    /// Types whose syntax some value has.
    spoken_for: Types,
    proven: Types,
    /// Some date can be read in two ways; some other date shows which one is meant.
    has_either: bool,
    order_proven: bool,
    /// Some date depends on the session's settings.
    has_local_dates: bool,
    /// The letters of false and of true occurred.
    letters: [bool; 2],
    values: u64,
    pub has_nulls: bool,
    /// Empty values in quotes, which `force_null` makes NULL.
    empty_quotes: bool,
    ruled_out: Vec<RuledOut>,
    /// Styles in which all values can be read, and what is known about them.
    styles: StyleSet,
    choice: Choice,
    /// Words for a missing value: each with its first position, and their number.
    words: Vec<NullWord>,
    amounts: Amounts,
}

/// The values that no type reads.
#[derive(Debug, Clone)]
enum Amounts {
    None,
    /// Numbers with currencies and other signs: the file, the place and the text of the first one.
    First(usize, ValuePosition, CString),
    Mixed,
}

/// A word for a missing value.
#[derive(Debug, Clone)]
pub struct NullWord {
    pub word: Vec<u8>,
    pub count: u64,
    file: usize,
    place: ValuePosition,
}

impl Default for Evidence {
    fn default() -> Evidence {
        Evidence {
            left: Types::ALL,
            spoken_for: Types::NONE,
            proven: Types::NONE,
            has_either: false,
            order_proven: false,
            has_local_dates: false,
            letters: [false; 2],
            values: 0,
            has_nulls: false,
            empty_quotes: false,
            ruled_out: Vec::new(),
            styles: StyleSet::ALL,
            choice: Choice::None,
            words: Vec::new(),
            amounts: Amounts::None,
        }
    }
}

impl Evidence {
    /// The column's type; None for text.
    pub fn column_type(&self) -> Option<Type> {
        match self.style() {
            Some(Style::Number(..)) => Some(Type::Numeric),
            Some(Style::Moment(one, _)) => Some(one),
            None => self.own_type(),
        }
    }

    /// The narrowest type that reads the values as they are written.
    fn own_type(&self) -> Option<Type> {
        let mut types = self.left.and(self.proven);
        if self.has_either && !self.order_proven {
            types = DATES.iter().fold(types, |types, &date| types.without(date));
        }
        if self.values == 0 { None } else { types.iter().next() }
    }

    /// The type under settings that are unknown. A column of dates that depend on the session's settings is text then.
    pub fn lasting_type(&self) -> Option<Type> {
        let is_local = self.has_local_dates && self.style().is_none();
        self.column_type().filter(|&one| !(is_local && DATES.contains(&one)))
    }

    /// How the values are written, if no type reads them as they are.
    pub fn style(&self) -> Option<Style> {
        match self.choice {
            Choice::One(style) if self.values > 0 && self.own_type().is_none() => Some(style),
            _ => None,
        }
    }

    /// Can the values be read as numbers, or as dates, in several ways?
    pub fn has_several_styles(&self) -> bool {
        self.choice == Choice::Several && self.column_type().is_none() && self.values > 0 && !self.is_ambiguous()
    }

    /// The first amount of a column of amounts that is text: its file, its place and itself.
    pub fn amount(&self) -> Option<(usize, ValuePosition, &CString)> {
        match &self.amounts {
            Amounts::First(file, place, value) if self.column_type().is_none() => Some((*file, *place, value)),
            _ => None,
        }
    }

    /// The words that are NULL, because the other values have a type.
    pub fn null_words(&self) -> &[NullWord] {
        if self.column_type().is_some() { &self.words } else { &[] }
    }

    /// The words before it is known whether the other values have a type.
    pub fn null_words_so_far(&self) -> &[NullWord] {
        if self.left.is_empty() && self.styles.is_empty() { &[] } else { &self.words }
    }

    /// Ends the examination. `recurs`: does the word occur several times in the file?
    pub fn finish(&mut self, styles: &Styles, recurs: impl Fn(&[u8]) -> bool) {
        self.choice = styles.choice(self.styles);
        if let Some(lone) = self.words.iter().find(|word| !recurs(&word.word)).cloned() {
            self.words.clear();
            self.choice = Choice::None;
            let (file, place, value) = (lone.file, lone.place, displayed(&lone.word));
            let left = std::mem::replace(&mut self.left, Types::NONE);
            self.ruled_out.extend(left.iter().map(|of| RuledOut { of, file, place, value: value.clone() }));
        }
    }

    /// Another column has commas before decimals. If the points here may separate thousands, the column is text.
    pub fn doubt_points(&mut self, styles: &Styles) {
        let has_points = matches!(self.own_type(), Some(Type::Numeric | Type::Double));
        if has_points && styles.has(self.styles, Style::Number(b',', ".")) {
            (self.left, self.choice) = (Types::NONE, Choice::Several);
        }
    }

    /// Does the column need `force_null`? It has empty values in quotes, and is not text.
    pub fn wants_force_null(&self) -> bool {
        self.empty_quotes && self.column_type().is_some()
    }

    /// May the column have NULLs?
    pub fn is_nullable(&self) -> bool {
        self.has_nulls
            || (self.values == 0 && self.words.is_empty())
            || self.wants_force_null()
            || !self.null_words().is_empty()
    }

    /// Are all values dates, of which some can be read in two ways, while none shows which one is meant?
    pub fn is_ambiguous(&self) -> bool {
        self.has_either && !self.order_proven && !self.left.and(Types::of(DATES)).is_empty()
    }

    /// The types that were ruled out although some value has their syntax.
    pub fn ruled_out(&self) -> impl Iterator<Item = &RuledOut> {
        self.ruled_out.iter().filter(|ruled| self.spoken_for.has(ruled.of))
    }

    pub fn take_null(&mut self) {
        self.has_nulls = true;
    }

    pub fn take_empty_quotes(&mut self) {
        self.empty_quotes = true;
    }

    /// Add a string of JSON: digits in quotes are no number. Guarded.
    pub fn take_string(
        &mut self,
        validator: &mut Validator,
        value: &[u8],
        file: usize,
        place: impl Fn() -> ValuePosition,
    ) -> Result<()> {
        if !is_null_word(value) && !validator.is_null(value) {
            (self.left, self.styles) = (self.left.and(Types::of(STRINGS)), StyleSet::NONE);
        }
        self.take(validator, value, file, place)
    }

    /// Add a value that is not NULL. Guarded.
    pub fn take(
        &mut self,
        validator: &mut Validator,
        value: &[u8],
        file: usize,
        place: impl Fn() -> ValuePosition,
    ) -> Result<()> {
        if validator.is_null(value) {
            self.has_nulls = true;
            return Ok(());
        }
        // Decided at the end: a word is a value of a column of texts.
        let is_undecided = validator.nulls.is_none() && (!self.left.is_empty() || !self.styles.is_empty());
        if is_undecided && is_null_word(value) {
            match self.words.iter_mut().find(|known| known.word == value) {
                Some(known) => known.count += 1,
                None => self.words.push(NullWord { word: value.to_vec(), count: 1, file, place: place() }),
            }
            return Ok(());
        }
        self.values += 1;
        if !self.styles.is_empty() {
            self.styles = validator.styles.keep(self.styles, value);
        }
        let shape = ValueShape::of(value);
        if shape.types.is_empty() && !matches!(self.amounts, Amounts::Mixed) {
            let is_plain = |byte: &u8| b"0123456789-+.,".contains(byte);
            let has_sign = !value.first().is_some_and(is_plain) || !value.last().is_some_and(u8::is_ascii_digit);
            if !has_sign || Family::of(value) != Family::Number {
                self.amounts = Amounts::Mixed;
            } else if matches!(self.amounts, Amounts::None) {
                self.amounts = Amounts::First(file, place(), displayed(value));
            }
        }
        self.spoken_for = self.spoken_for.or(shape.types);
        self.proven = self.proven.or(shape.proves);
        match shape.day {
            Some(Day::Either) => self.has_either = true,
            Some(Day::Ordered) => self.order_proven = true,
            Some(Day::Iso | Day::Same) | None => (),
        }
        self.has_local_dates |= shape.day.is_some_and(|day| day != Day::Iso);
        if let Some(seen) = shape.letter.and_then(|letter| self.letters.get_mut(usize::from(letter))) {
            *seen = true;
        }
        if self.letters == [true; 2] {
            self.proven = self.proven.or(Types::of(&[Type::Boolean]));
        }
        if self.left.is_empty() {
            return Ok(());
        }
        let mut kept = self.left.and(shape.types);
        let mut is_number = false;
        for one in kept.iter() {
            let is_known = match one {
                // The narrower types come first. A number of so few digits is also a valid float8.
                Type::Bigint | Type::Numeric | Type::Double => is_number,
                // A value that jsonb accepts is valid json.
                Type::Json => kept.has(Type::Jsonb),
                _ => false,
            };
            let is_valid = is_known || validator.accepts(one, value)?;
            is_number |= is_valid && matches!(one, Type::Integer | Type::Bigint | Type::Numeric);
            if !is_valid {
                kept = kept.without(one);
            }
        }
        if kept != self.left {
            for one in self.left.iter().filter(|&one| !kept.has(one)) {
                self.ruled_out.push(RuledOut { of: one, file, place: place(), value: displayed(value) });
            }
            self.left = kept;
        }
        Ok(())
    }
}

/// A type's functions.
#[derive(Debug)]
struct TypeFunctions {
    oid: pg_sys::Oid,
    decoder: Option<Decoder>,
    input: pg_sys::FmgrInfo,
    typioparam: pg_sys::Oid,
}

/// Checks whether a value is valid for a type.
#[derive(Debug)]
pub struct Validator {
    known: Vec<TypeFunctions>,
    arena: Arena,
    string: Vec<u8>,
    memory: MemoryContext,
    pub styles: Styles,
    /// The values that are NULL, if the caller has given them. Then there are no others.
    nulls: Option<Vec<Vec<u8>>>,
}

fn oid_of(one: Type) -> pg_sys::Oid {
    match one {
        Type::Boolean => pg_sys::BOOLOID,
        Type::Integer => pg_sys::INT4OID,
        Type::Bigint => pg_sys::INT8OID,
        Type::Numeric => pg_sys::NUMERICOID,
        Type::Double => pg_sys::FLOAT8OID,
        Type::Date => pg_sys::DATEOID,
        Type::Timestamp => pg_sys::TIMESTAMPOID,
        Type::Timestamptz => pg_sys::TIMESTAMPTZOID,
        Type::Time => pg_sys::TIMEOID,
        Type::Uuid => pg_sys::UUIDOID,
        Type::Jsonb => pg_sys::JSONBOID,
        Type::Json => pg_sys::JSONOID,
    }
}

impl Validator {
    /// Guarded. Input functions allocate in a memory context below the current one.
    pub fn new(session: &Session, nulls: Option<Vec<Vec<u8>>>) -> Validator {
        let known = Type::ALL.into_iter().map(|one| {
            let oid = oid_of(one);
            let (input, typioparam) = input_function(oid);
            TypeFunctions { oid, decoder: Decoder::for_type(oid.to_u32(), -1, session), input, typioparam }
        });
        let memory = MemoryContext::current().child(c"bulk_sniff values");
        let (arena, string) = (Arena::new(), Vec::new());
        Validator { known: known.collect(), arena, string, memory, styles: Styles::new(), nulls }
    }

    /// Free its memory. After an error, the parent context frees it. Guarded.
    pub fn close(self) {
        // SAFETY: this value owns the context, which is current only in `accepts`; nothing in it is used later.
        unsafe { self.memory.delete() }
    }

    /// Is the value one of those that the caller has given for NULL?
    fn is_null(&self, value: &[u8]) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.iter().any(|null| null == value))
    }

    /// Does the server accept the value for this type, and keep all of it?
    fn accepts(&mut self, one: Type, value: &[u8]) -> Result<bool> {
        let Some(known) = self.known.get_mut(one as usize) else { return Ok(false) };
        // A value would be lost.
        if one == Type::Jsonb && repeats_key(value) {
            return Ok(false);
        }
        self.arena.reset();
        if known.decoder.is_some_and(|decoder| decoder.decode(value, &mut self.arena).is_some()) {
            return Ok(true);
        }
        self.string.clear();
        self.string.extend_from_slice(value);
        self.string.push(0);
        let string = self.string.as_mut_ptr().cast();
        let entered = self.memory.enter();
        // SAFETY: the type's own function, and a NUL-terminated string. Nothing in the context, which this value owns,
        // is used later.
        unsafe {
            let input = &raw mut known.input;
            let said = compat::input_function_call_soft(input, string, known.typioparam, -1, known.oid, false)?;
            let is_good = match said {
                Soft::Good(_) => true,
                Soft::Bad(_) => false,
                // Raise the server's error.
                Soft::Raises => {
                    pg_sys::InputFunctionCall(input, string, known.typioparam, -1);
                    false
                }
            };
            drop(entered);
            pg_sys::MemoryContextReset(self.memory.as_ptr());
            Ok(is_good)
        }
    }
}
