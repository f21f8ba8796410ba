//! Streams of random numbers and places, from published algorithms.
//!
//! - Tausworthe: P. L'Ecuyer, "Maximally Equidistributed Combined Tausworthe Generators" (1996),
//!   and for 64 bits "Tables of Maximally Equidistributed Combined LFSR Generators" (1999).
//! - Zipf: J. Gray et al., "Quickly Generating Billion-Record Synthetic Databases" (1994).
//! - LFSR: Galois form, taps as P. Alfke tabulates them, "Efficient Shift Registers, LFSR Counters,
//!   and Long Pseudo-Random Sequence Generators" (1996); the tests prove each full period.
//!
//! The places that fio itself would visit for a seed are not reproduced, only their distribution.

use base::Rng;

/// A combined Tausworthe generator of 32 or 64 bits.
#[derive(Clone, Debug)]
pub enum Tausworthe {
    /// Three components of 32 bits.
    Bits32([u32; 3]),
    /// Five components of 64 bits.
    Bits64([u64; 5]),
}

impl Tausworthe {
    /// The generator of 32 bits.
    pub fn new32(rng: &mut Rng) -> Tausworthe {
        // Below these bounds a component would fall to zero and stay there.
        Tausworthe::Bits32([2u32, 8, 16].map(|least| rng.next_u32() | least))
    }

    /// The generator of 64 bits.
    pub fn new64(rng: &mut Rng) -> Tausworthe {
        let least = [2u64, 512, 4096, 131_072, 8_388_608];
        Tausworthe::Bits64(least.map(|least| rng.next_u64() | least))
    }

    /// The next number below 2^32, or below 2^64 where the generator has 64 bits.
    fn next(&mut self) -> u64 {
        match self {
            Tausworthe::Bits32([a, b, c]) => {
                let step = |s: u32, q: u32, k: u32, mask: u32, l: u32| {
                    ((s & mask) << l) ^ (((s << q) ^ s) >> k)
                };
                *a = step(*a, 13, 19, 0xffff_fffe, 12);
                *b = step(*b, 2, 25, 0xffff_fff8, 4);
                *c = step(*c, 3, 11, 0xffff_fff0, 17);
                u64::from(*a ^ *b ^ *c)
            }
            Tausworthe::Bits64(state) => {
                const STEPS: [(u32, u32, u32, u32); 5] = [
                    (1, 53, 10, 63),
                    (24, 50, 5, 55),
                    (3, 23, 29, 52),
                    (5, 24, 23, 47),
                    (3, 33, 8, 41),
                ];
                let mut all = 0;
                for (s, (q, k, l, bits)) in state.iter_mut().zip(STEPS) {
                    let mask = u64::MAX << (64 - bits);
                    *s = ((*s & mask) << l) ^ (((*s << q) ^ *s) >> k);
                    all ^= *s;
                }
                all
            }
        }
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        let bits = match self {
            Tausworthe::Bits64(_) => self.next(),
            Tausworthe::Bits32(_) => self.next() << 32 | self.next(),
        };
        ((u128::from(bits) * u128::from(bound)) >> 64) as u64
    }
}

/// Taps of Galois registers with the full period, for 2 to 40 bits, as positions from 1.
const TAPS: [&[u32]; 39] = [
    &[2, 1],
    &[3, 2],
    &[4, 3],
    &[5, 3],
    &[6, 5],
    &[7, 6],
    &[8, 6, 5, 4],
    &[9, 5],
    &[10, 7],
    &[11, 9],
    &[12, 6, 4, 1],
    &[13, 4, 3, 1],
    &[14, 5, 3, 1],
    &[15, 14],
    &[16, 15, 13, 4],
    &[17, 14],
    &[18, 11],
    &[19, 6, 2, 1],
    &[20, 17],
    &[21, 19],
    &[22, 21],
    &[23, 18],
    &[24, 23, 22, 17],
    &[25, 22],
    &[26, 6, 2, 1],
    &[27, 5, 2, 1],
    &[28, 25],
    &[29, 27],
    &[30, 6, 4, 1],
    &[31, 28],
    &[32, 22, 2, 1],
    &[33, 20],
    &[34, 27, 2, 1],
    &[35, 33],
    &[36, 25],
    &[37, 5, 4, 3, 2, 1],
    &[38, 6, 5, 1],
    &[39, 35],
    &[40, 38, 21, 19],
];

/// Visits every number below a bound once, in an order that looks random, without memory of it.
#[derive(Clone, Debug)]
pub struct Lfsr {
    taps: u64,
    state: u64,
    start: u64,
    bound: u64,
    done: bool,
}

impl Lfsr {
    /// All numbers below `bound` (1 to 2^40), from a start that the stream gives; `None` above.
    pub fn new(bound: u64, rng: &mut Rng) -> Option<Lfsr> {
        // States are never zero: number n is state n + 1.
        let bits = (64 - bound.leading_zeros()).max(2);
        let taps = TAPS.get(bits as usize - 2)?.iter().fold(0, |mask, tap| mask | 1 << (tap - 1));
        let start = 1 + rng.below(bound.max(1));
        Some(Lfsr { taps, state: start, start, bound, done: bound == 0 })
    }

    /// The next number, `None` after all of them.
    pub fn next(&mut self) -> Option<u64> {
        while !self.done {
            let number = self.state - 1;
            let low = self.state & 1;
            self.state >>= 1;
            if low == 1 {
                self.state ^= self.taps;
            }
            self.done = self.state == self.start;
            if number < self.bound {
                return Some(number);
            }
        }
        None
    }
}

/// Numbers with the frequencies of Zipf's law.
#[derive(Clone, Debug)]
pub struct Zipf {
    bound: u64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

/// Terms of the generalized harmonic number that are summed one by one; the rest is an integral.
const ZETA_TERMS: u64 = 100_000;

fn zeta(bound: u64, theta: f64) -> f64 {
    let summed = bound.min(ZETA_TERMS);
    let head: f64 = (1..=summed).map(|n| (n as f64).powf(-theta)).sum();
    let power = 1.0 - theta;
    let integral = |x: f64| x.powf(power) / power;
    head + if bound > summed { integral(bound as f64) - integral(summed as f64) } else { 0.0 }
}

impl Zipf {
    /// Numbers below `bound` with exponent `theta` (above 0, not 1).
    pub fn new(bound: u64, theta: f64) -> Zipf {
        let all = zeta(bound, theta);
        let share = 1.0 - zeta(2.min(bound), theta) / all;
        let eta = match share {
            share if share > 0.0 => (1.0 - (2.0 / bound as f64).powf(1.0 - theta)) / share,
            _ => 0.0,
        };
        Zipf { bound, theta, zeta: all, alpha: 1.0 / (1.0 - theta), eta }
    }

    /// Draws a number; 0 is the most frequent.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let uniform = unit(rng);
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return 1.min(self.bound - 1);
        }
        let place = self.bound as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha);
        (place as u64).min(self.bound - 1)
    }
}

/// A number from 0 to below 1.
pub fn unit(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Pareto: the share `power` of the numbers below `bound` gets most of the draws.
pub fn pareto(bound: u64, power: f64, rng: &mut Rng) -> u64 {
    let exponent = power.ln() / (1.0 - power).ln();
    ((bound as f64 * unit(rng).powf(exponent)) as u64).min(bound - 1)
}

/// Normal around the middle of the numbers below `bound`; the deviation in percent of them. What
/// falls outside is drawn again, and after some tries put at the end.
pub fn normal(bound: u64, percent: f64, rng: &mut Rng) -> u64 {
    let (mean, deviation) = (bound as f64 / 2.0, bound as f64 * percent / 100.0);
    for _ in 0..16 {
        // Box and Muller, 1958.
        let radius = (-2.0 * (1.0 - unit(rng)).ln()).sqrt();
        let number = mean + deviation * radius * (std::f64::consts::TAU * unit(rng)).cos();
        if (0.0..bound as f64).contains(&number) {
            return number as u64;
        }
    }
    bound - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The taps have the full period: every number below the bound comes exactly once.
    #[test]
    fn a_register_visits_every_number_once() {
        let mut rng = Rng::new(1, 1);
        for bound in (1..130).chain([255, 256, 257, 4095, 4096, 100_000, 1 << 20]) {
            let mut register = Lfsr::new(bound, &mut rng).unwrap();
            let mut seen = vec![false; bound as usize];
            while let Some(number) = register.next() {
                assert!(!std::mem::replace(&mut seen[number as usize], true), "{number} twice");
            }
            assert!(seen.iter().all(|&seen| seen), "bound {bound}");
        }
        assert!(Lfsr::new(1 << 41, &mut rng).is_none());
    }

    /// A linear map has the period 2^n - 1 where raising it to that power, and to no quotient by a
    /// prime factor, gives the identity: that holds for every table entry without walking it.
    #[test]
    fn every_register_has_the_full_period() {
        for bits in 2..=40u32 {
            let taps = TAPS[bits as usize - 2].iter().fold(0u64, |mask, tap| mask | 1 << (tap - 1));
            let step: Vec<u64> = (0..bits).map(|bit| galois(1 << bit, taps)).collect();
            let period = (1u64 << bits) - 1;
            assert!(is_identity(&power(&step, period)), "{bits} bits");
            for factor in prime_factors(period) {
                let shorter = period / factor;
                assert!(shorter == 0 || !is_identity(&power(&step, shorter)), "{bits}: {factor}");
            }
        }
    }

    fn galois(state: u64, taps: u64) -> u64 {
        (state >> 1) ^ if state & 1 == 1 { taps } else { 0 }
    }

    /// A matrix over two elements: the image of each unit vector.
    fn image(matrix: &[u64], vector: u64) -> u64 {
        let columns = matrix.iter().enumerate().filter(|(bit, _)| vector >> bit & 1 == 1);
        columns.fold(0, |sum, (_, column)| sum ^ column)
    }

    fn power(matrix: &[u64], mut exponent: u64) -> Vec<u64> {
        let mut result: Vec<u64> = (0..matrix.len()).map(|bit| 1 << bit).collect();
        let mut square = matrix.to_vec();
        while exponent > 0 {
            if exponent & 1 == 1 {
                result = result.iter().map(|&column| image(&square, column)).collect();
            }
            square = square.iter().map(|&column| image(&square, column)).collect();
            exponent >>= 1;
        }
        result
    }

    fn is_identity(matrix: &[u64]) -> bool {
        matrix.iter().enumerate().all(|(bit, &column)| column == 1 << bit)
    }

    fn prime_factors(mut number: u64) -> Vec<u64> {
        let mut factors = Vec::new();
        let mut divisor = 2;
        while divisor * divisor <= number {
            while number.is_multiple_of(divisor) {
                factors.push(divisor);
                number /= divisor;
            }
            divisor += 1;
        }
        factors.extend((number > 1).then_some(number));
        factors.dedup();
        factors
    }

    #[test]
    fn tausworthe_fills_its_range_evenly() {
        let mut rng = Rng::new(3, 3);
        for mut generator in [Tausworthe::new32(&mut rng), Tausworthe::new64(&mut rng)] {
            let mut counts = [0u32; 16];
            (0..160_000).for_each(|_| counts[generator.below(16) as usize] += 1);
            assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn skewed_numbers_have_their_shapes() {
        let mut rng = Rng::new(5, 5);
        let zipf = Zipf::new(1000, 1.2);
        let mut counts = vec![0u32; 1000];
        (0..100_000).for_each(|_| counts[zipf.draw(&mut rng) as usize] += 1);
        let expected = 100_000.0 / zeta(1000, 1.2);
        assert!((f64::from(counts[0]) / expected - 1.0).abs() < 0.05, "{}", counts[0]);
        assert!(counts[0] > 2 * counts[1] - 1000 && counts[1] > counts[9]);
        let low = (0..10_000).filter(|_| pareto(1000, 0.2, &mut rng) < 200).count();
        assert!((7_700..8_300).contains(&low), "{low} of 10000 in a fifth");
        let middle = (0..10_000).filter(|_| normal(1000, 10.0, &mut rng).abs_diff(500) < 100);
        assert!((6_500..7_150).contains(&middle.count()));
        assert_eq!((Zipf::new(1, 1.2).draw(&mut rng), pareto(1, 0.2, &mut rng)), (0, 0));
    }
}
