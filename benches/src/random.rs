//! A small random number generator: splitmix64.
//!
//! Every row has a stream of its own, derived from the seed and the row's id. So a row is equal in files of any length,
//! and a file that starts at id 1001 continues a file of 1000 rows byte for byte. Appends are generated this way.
//! Splitmix64 is used because starting such a stream costs two multiplications and needs no warm-up.

/// The weight of the counter: 2^64 divided by the golden ratio, odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Characters of random text. There are 64, so that one 64-bit number yields ten of them without division. None of them
/// needs quotes or escapes in any COPY format.
const ALPHABET: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 -";

/// The random numbers of one row.
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates the stream of row `id` of the file with this seed.
    #[must_use]
    pub fn row(seed: u64, id: u64) -> Self {
        Self { state: mix(seed ^ mix(id.wrapping_add(STEP))) }
    }

    /// Returns the next number, uniform over all of `u64`. (Not an `Iterator`: the stream has no end.)
    #[inline]
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// Returns a number from `0..bound`. Multiplication in place of a remainder avoids a division; its bias is below
    /// 2^-32 for the bounds in use.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number from `low..=high`.
    #[inline]
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true in `per_hundred` of 100 cases.
    #[inline]
    pub fn chance(&mut self, per_hundred: u64) -> bool {
        self.below(100) < per_hundred
    }

    /// Appends `length` characters of random text.
    #[inline]
    pub fn text(&mut self, out: &mut Vec<u8>, length: usize) {
        let mut left = length;
        while left > 0 {
            let mut bits = self.number();
            let mut group = [0; 10];
            for character in &mut group {
                *character = ALPHABET[(bits & 63) as usize];
                bits >>= 6;
            }
            let taken = left.min(group.len());
            out.extend_from_slice(&group[..taken]);
            left -= taken;
        }
    }

    /// Appends a text of `shortest..=longest` characters; all lengths are equally likely.
    #[inline]
    pub fn text_between(&mut self, out: &mut Vec<u8>, shortest: u64, longest: u64) {
        let length = self.between(shortest, longest) as usize;
        self.text(out, length);
    }

    /// Appends 32 hexadecimal digits, in the form of an MD5 sum.
    #[inline]
    pub fn md5(&mut self, out: &mut Vec<u8>) {
        for _ in 0..2 {
            let mut bits = self.number();
            let mut digits = [0; 16];
            for digit in &mut digits {
                *digit = b"0123456789abcdef"[(bits & 15) as usize];
                bits >>= 4;
            }
            out.extend_from_slice(&digits);
        }
    }
}

#[inline]
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference values of splitmix64 for seed 1234567, as published with the algorithm.
    #[test]
    fn numbers_are_splitmix64() {
        let mut random = Random { state: 1_234_567 };
        let numbers: Vec<u64> = (0..3).map(|_| random.number()).collect();
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut random = Random::row(1, 1);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[random.between(3, 9) as usize - 3] = true;
        }
        assert_eq!(seen, [true; 7]);
    }

    #[test]
    fn text_has_the_length_asked_for() {
        let mut random = Random::row(1, 1);
        for length in 0..40 {
            let mut out = Vec::new();
            random.text(&mut out, length);
            assert_eq!(out.len(), length);
            assert!(out.iter().all(|character| ALPHABET.contains(character)));
        }
    }

    #[test]
    fn rows_and_seeds_have_streams_of_their_own() {
        let first = |seed, id| Random::row(seed, id).number();
        assert_ne!(first(1, 1), first(1, 2));
        assert_ne!(first(1, 1), first(2, 1));
        assert_ne!(first(1, 2), first(2, 1));
    }
}
