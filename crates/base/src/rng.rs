//! Seeded random streams: PCG XSL RR 128/64 (O'Neill, 2014, "PCG: A Family of Simple Fast
//! Space-Efficient Statistically Good Algorithms for Random Number Generation").
//!
//! Every component of a world draws from a stream of its own, so that adding a draw in one place
//! leaves all the others as they were.

/// A reproducible stream of random numbers. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u128,
    increment: u128,
}

const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;

impl Rng {
    /// Stream number `stream` of the seed: different streams of one seed are independent.
    pub fn new(seed: u64, stream: u64) -> Rng {
        let increment = ((stream as u128) << 64 | 0xda3e_39cb_94b9_5bdb) << 1 | 1;
        let mut rng = Rng { state: 0, increment };
        rng.step();
        rng.state = rng.state.wrapping_add((seed as u128) << 32 | (seed as u128) >> 7);
        rng.step();
        rng
    }

    #[inline]
    fn step(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.step();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        folded.rotate_right((self.state >> 122) as u32)
    }

    /// The next 32 random bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// A number below `bound`, each with the same probability up to 2^-64.
    ///
    /// # Panics
    /// Where `bound` is zero.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a number below zero was asked for");
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// A number in `range`.
    ///
    /// # Panics
    /// Where the range is empty.
    pub fn range(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// True with probability `p` (0 to 1).
    pub fn chance(&mut self, p: f64) -> bool {
        ((self.next_u64() >> 11) as f64) < p * (1u64 << 53) as f64
    }

    /// One element of a non-empty slice.
    ///
    /// # Panics
    /// Where the slice is empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// Puts the elements into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end as u64 + 1) as usize);
        }
    }

    /// Fills `bytes` with random content.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_stream_and_streams_differ() {
        let draw = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            [rng.next_u64(), rng.next_u64(), rng.next_u64()]
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
    }

    #[test]
    fn bounded_numbers_reach_every_value_evenly() {
        let mut rng = Rng::new(7, 7);
        let mut counts = [0u32; 10];
        (0..100_000).for_each(|_| counts[rng.below(10) as usize] += 1);
        assert!(counts.iter().all(|&n| (9_500..10_500).contains(&n)), "{counts:?}");
        let hits = (0..100_000).filter(|_| rng.chance(0.25)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
    }
}
