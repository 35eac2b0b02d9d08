//! `mixed`: orders of a shop, 40 columns of some 30 types, as COPY would write them in CSV.
//!
//! It resembles a table of a real application: identifiers, flags, money, times, documents, arrays, a range, optional
//! columns that are mostly empty, and text with commas and quotes. Values with a comma or a quote are quoted, and their
//! quotes are doubled. Other values are not quoted; NULL is the empty field.

use crate::decimal;
use crate::random::Random;

const STATUS: [&[u8]; 6] = [b"open", b"paid", b"packed", b"shipped", b"returned", b"canceled"];
const COUNTRY: [&[u8]; 8] = [b"AT", b"BR", b"DE", b"FR", b"IN", b"JP", b"KE", b"US"];
const WORDS: [&[u8]; 12] = [
    b"amber", b"bolt", b"cedar", b"delta", b"ember", b"flint", b"grove", b"harbor", b"iris", b"juniper", b"kelp",
    b"lumen",
];

/// Appends one row in CSV.
#[inline]
pub(super) fn row(out: &mut Vec<u8>, random: &mut Random, id: u64) {
    let mut row = Row { out, random };
    decimal::integer(row.out, id);
    row.identity();
    row.amounts();
    row.times();
    row.texts();
    row.documents();
    row.lists();
    row.rest();
    row.out.push(b'\n');
}

/// The row that is being written. Each field begins with its delimiter.
struct Row<'a> {
    out: &'a mut Vec<u8>,
    random: &'a mut Random,
}

impl Row<'_> {
    fn next(&mut self) {
        self.out.push(b',');
    }

    fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Begins a field of a column that is NULL in `nulls` of 100 rows. Returns true if it is not NULL.
    fn given(&mut self, nulls: u64) -> bool {
        self.next();
        !self.random.chance(nulls)
    }

    fn pick<'w>(&mut self, words: &[&'w [u8]]) -> &'w [u8] {
        words[self.random.below(words.len() as u64) as usize]
    }

    fn number(&mut self, bound: u64) {
        decimal::integer(self.out, self.random.below(bound));
    }

    fn fixed(&mut self, bound: u64, scale: u32) {
        decimal::fixed(self.out, self.random.below(bound), scale);
    }

    fn hex(&mut self, digits: usize) {
        let mut bits = 0;
        for position in 0..digits {
            if position % 16 == 0 {
                bits = self.random.number();
            }
            self.out.push(b"0123456789abcdef"[(bits & 15) as usize]);
            bits >>= 4;
        }
    }

    fn uuid(&mut self) {
        self.hex(8);
        for digits in [4, 4, 4, 12] {
            self.out.push(b'-');
            self.hex(digits);
        }
    }

    fn boolean(&mut self, trues: u64) {
        let value = if self.random.chance(trues) { b't' } else { b'f' };
        self.out.push(value);
    }

    fn date_and_time(&mut self) {
        decimal::date_and_time(self.out, self.random.number());
    }

    fn micros(&mut self) {
        self.out.push(b'.');
        decimal::padded(self.out, self.random.below(1_000_000), 6);
    }

    /// Appends `count` words, separated by `between`.
    fn words(&mut self, count: u64, between: &[u8]) {
        for number in 0..count {
            if number > 0 {
                self.put(between);
            }
            let word = self.pick(&WORDS);
            self.put(word);
        }
    }

    /// customer uuid, status varchar(10), is_active, is_gift bool, channel smallint, quantity int, total bigint
    fn identity(&mut self) {
        self.next();
        self.uuid();
        self.next();
        let status = self.pick(&STATUS);
        self.put(status);
        self.next();
        self.boolean(90);
        if self.given(60) {
            self.boolean(30);
        }
        self.next();
        self.number(40);
        self.next();
        self.number(1000);
        self.next();
        self.number(10_000_000_000);
    }

    /// price numeric(12,2), discount numeric(5,4), tax numeric(20,6), weight real, latitude, longitude double precision
    fn amounts(&mut self) {
        self.next();
        self.fixed(10_000_000, 2);
        if self.given(50) {
            self.fixed(10_000, 4);
        }
        self.next();
        self.fixed(10_000_000_000, 6);
        if self.given(20) {
            self.fixed(100_000, 3);
        }
        for degrees in [90, 180] {
            self.next();
            if self.random.chance(50) {
                self.out.push(b'-');
            }
            self.fixed(degrees * 1_000_000, 6);
        }
    }

    /// created_at, updated_at timestamptz, shipped_on date, slot time, placed_at timestamp, took interval
    fn times(&mut self) {
        self.next();
        self.date_and_time();
        self.micros();
        self.put(b"+00");
        if self.given(30) {
            self.date_and_time();
            self.put(b"+00");
        }
        if self.given(40) {
            self.date_and_time();
            // The date without its time.
            self.out.truncate(self.out.len() - b" 00:00:00".len());
        }
        self.next();
        decimal::padded(self.out, self.random.below(24), 2);
        self.put(b":");
        decimal::padded(self.out, self.random.below(60), 2);
        self.put(b":00");
        self.next();
        self.date_and_time();
        if self.given(30) {
            let days = self.random.between(2, 60);
            decimal::integer(self.out, days);
            self.put(b" days ");
            decimal::padded(self.out, self.random.below(24), 2);
            self.put(b":");
            decimal::padded(self.out, self.random.below(60), 2);
            self.put(b":");
            decimal::padded(self.out, self.random.below(60), 2);
        }
    }

    /// name, email text, title varchar(60), country char(2), zip varchar(10), phone varchar(20), note text
    fn texts(&mut self) {
        self.next();
        self.put(b"\"");
        self.words(1, b"");
        self.put(b", ");
        self.words(1, b"");
        self.put(b"\"");
        self.next();
        self.words(2, b".");
        self.number(10_000);
        self.put(b"@example.com");
        self.next();
        let words = self.random.between(2, 6);
        self.words(words, b" ");
        self.next();
        let country = self.pick(&COUNTRY);
        self.put(country);
        self.next();
        decimal::padded(self.out, self.random.below(100_000), 5);
        if self.given(30) {
            self.put(b"+49 ");
            decimal::padded(self.out, self.random.below(10_000_000_000), 10);
        }
        if self.given(60) {
            self.put(b"\"");
            let words = self.random.between(3, 15);
            self.words(words, b" ");
            self.put(b", \"\"");
            self.words(2, b" ");
            self.put(b"\"\"\"");
        }
    }

    /// payload, attributes jsonb, source json
    fn documents(&mut self) {
        self.next();
        self.put(b"\"{\"\"sku\"\": \"\"");
        self.hex(8);
        self.put(b"\"\", \"\"count\"\": ");
        self.number(100);
        self.put(b", \"\"price\"\": ");
        self.fixed(100_000, 2);
        self.put(b", \"\"tags\"\": [\"\"");
        self.words(1, b"");
        self.put(b"\"\", \"\"");
        self.words(1, b"");
        self.put(b"\"\"], \"\"gift\"\": ");
        let gift: &[u8] = if self.random.chance(50) { b"true" } else { b"null" };
        self.put(gift);
        self.put(b"}\"");
        if self.given(50) {
            self.put(b"\"{\"\"color\"\": \"\"");
            self.words(1, b"");
            self.put(b"\"\", \"\"size\"\": {\"\"w\"\": ");
            self.number(100);
            self.put(b", \"\"h\"\": ");
            self.number(100);
            self.put(b"}}\"");
        }
        if self.given(30) {
            self.put(b"\"{\"\"agent\"\": \"\"");
            self.words(1, b"");
            self.put(b"/");
            self.number(100);
            self.put(b"\"\"}\"");
        }
    }

    /// tags text[], sizes int[], prices numeric(10,2)[], valid int4range
    fn lists(&mut self) {
        self.next();
        let count = self.random.between(2, 4);
        self.put(b"\"{");
        self.words(count, b",");
        self.put(b"}\"");
        self.next();
        self.put(b"\"{");
        for number in 0..self.random.between(2, 8) {
            if number > 0 {
                self.next();
            }
            self.number(1000);
        }
        self.put(b"}\"");
        if self.given(50) {
            self.put(b"\"{");
            self.fixed(100_000, 2);
            self.next();
            self.fixed(100_000, 2);
            self.put(b"}\"");
        }
        if self.given(40) {
            let from = self.random.below(1000);
            self.put(b"\"[");
            decimal::integer(self.out, from);
            self.next();
            decimal::integer(self.out, from + 10);
            self.put(b")\"");
        }
    }

    /// ip inet, checksum bytea, trace uuid, flags bit(8), grade "char", reference text
    fn rest(&mut self) {
        self.next();
        self.put(b"10");
        for _ in 0..3 {
            self.put(b".");
            self.number(256);
        }
        self.next();
        self.put(b"\\x");
        self.hex(32);
        if self.given(70) {
            self.uuid();
        }
        self.next();
        let flags = self.random.number();
        for bit in 0..8 {
            self.out.push(b'0' + ((flags >> bit) & 1) as u8);
        }
        self.next();
        let grade = b'A' + self.random.below(5) as u8;
        self.out.push(grade);
        if self.given(20) {
            self.random.text_between(self.out, 8, 40);
        }
    }
}
