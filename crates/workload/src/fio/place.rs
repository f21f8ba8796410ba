//! Where the next operation goes: directions, sizes and offsets of one job.

use std::sync::Arc;

use base::Rng;

use super::job::{Direction, Distribution, FileService, Generator, Job};
use super::random::{Lfsr, Tausworthe, Zipf, normal, pareto};
use super::visited::Visited;

/// Blocks that one map of visited blocks may cover: 512 MiB of memory.
const MAP_BLOCKS_MAX: u64 = 1 << 32;

/// The part of a file that a job works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// One operation: what, in which file, where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Direction.
    pub direction: Direction,
    /// Number of the file.
    pub file: usize,
    /// First byte.
    pub offset: u64,
    /// Bytes, at least 1.
    pub len: u64,
}

struct FilePlaces {
    extent: Extent,
    /// Blocks of the smallest size.
    blocks: u64,
    /// Next sequential byte of each direction, from the start of the extent.
    next: [u64; 3],
    map: Option<Visited>,
    register: Option<Lfsr>,
    zipf: Option<Zipf>,
    /// Operations since the last random place.
    in_row: u64,
    done: bool,
}

/// The places of a job, one after the other.
pub struct JobPlaces {
    job: Arc<Job>,
    unit: u64,
    files: Vec<FilePlaces>,
    turn: usize,
    rng: Rng,
    mix: Rng,
    sizes: Rng,
    generator: Tausworthe,
    trimmed: Option<Unit>,
    last: Option<Unit>,
    repeats: u64,
    /// Begin again when everything was visited.
    endless: bool,
}

impl JobPlaces {
    /// The places of a job on these files, from random streams of `seed`. With `endless` they begin
    /// again where a pass ends.
    ///
    /// # Errors
    /// A file has more blocks than a map of visited ones may cover.
    pub fn new(
        job: &Arc<Job>,
        extents: &[Extent],
        seed: u64,
        endless: bool,
    ) -> Result<JobPlaces, String> {
        let mut rng = Rng::new(seed, 1);
        let generator = match job.generator {
            Generator::Tausworthe64 => Tausworthe::new64(&mut rng),
            _ => Tausworthe::new32(&mut rng),
        };
        let mut places = JobPlaces {
            job: job.clone(),
            unit: job.unit(),
            files: Vec::new(),
            turn: 0,
            rng,
            mix: Rng::new(seed, 2),
            sizes: Rng::new(seed, 3),
            generator,
            trimmed: None,
            last: None,
            repeats: 0,
            endless,
        };
        for &extent in extents {
            let file = places.file(extent)?;
            places.files.push(file);
        }
        Ok(places)
    }

    fn file(&mut self, extent: Extent) -> Result<FilePlaces, String> {
        let blocks = extent.len / self.unit;
        let mut file = FilePlaces {
            extent,
            blocks,
            next: [0; 3],
            map: None,
            register: None,
            zipf: None,
            in_row: 0,
            done: blocks == 0,
        };
        if let Distribution::Zipf(theta) = self.job.distribution
            && blocks > 0
        {
            file.zipf = Some(Zipf::new(blocks, theta));
        }
        self.begin_pass(&mut file)?;
        Ok(file)
    }

    /// Forgets what was visited.
    fn begin_pass(&mut self, file: &mut FilePlaces) -> Result<(), String> {
        let uniform = self.job.distribution == Distribution::Uniform;
        let listed = self.job.replay.is_some();
        if !self.job.pattern.random || self.job.norandommap || !uniform || listed {
            return Ok(());
        }
        if self.job.generator == Generator::Lfsr {
            file.register = Lfsr::new(file.blocks, &mut self.rng);
            if file.register.is_some() {
                return Ok(());
            }
        }
        file.map = match file.blocks {
            blocks if blocks <= MAP_BLOCKS_MAX => Some(Visited::new(blocks)),
            _ if self.job.softrandommap => None,
            blocks => {
                return Err(format!(
                    "a map of {blocks} blocks is too large; set norandommap or softrandommap"
                ));
            }
        };
        Ok(())
    }

    /// The next operation; `None` where every place was visited.
    pub fn next(&mut self) -> Option<Unit> {
        if let Some(unit) = self.trimmed.take() {
            return Some(Unit { direction: Direction::Write, ..unit });
        }
        let direction = self.direction();
        // The same place as often as the suffix of the pattern says.
        if self.job.identical
            && let Some(last) = self.last
            && self.repeats + 1 < self.job.pattern.suffix
        {
            self.repeats += 1;
            return Some(Unit { direction, ..last });
        }
        self.repeats = 0;
        // Each file may turn out to be done once, and begin anew once.
        for _ in 0..2 * self.files.len() + 1 {
            let number = self.choose_file()?;
            let wanted = self.size(direction);
            if let Some((offset, len)) = self.place(number, direction, wanted) {
                let unit = Unit { direction, file: number, offset, len };
                let pairs = self.job.pattern.trim_then_write && direction == Direction::Trim;
                self.trimmed = pairs.then_some(unit);
                self.last = Some(unit);
                return Some(unit);
            }
            self.end_pass(number);
        }
        None
    }

    fn end_pass(&mut self, number: usize) {
        let mut file = std::mem::replace(
            &mut self.files[number],
            FilePlaces {
                extent: Extent { offset: 0, len: 0 },
                blocks: 0,
                next: [0; 3],
                map: None,
                register: None,
                zipf: None,
                in_row: 0,
                done: true,
            },
        );
        file.next = [0; 3];
        file.done = !self.endless || file.blocks == 0 || self.begin_pass(&mut file).is_err();
        self.files[number] = file;
    }

    fn direction(&mut self) -> Direction {
        let pattern = &self.job.pattern;
        if pattern.trims {
            return Direction::Trim;
        }
        if pattern.is_mixed() {
            return match self.mix.below(100) < self.job.rwmixread {
                true => Direction::Read,
                false => Direction::Write,
            };
        }
        if pattern.reads { Direction::Read } else { Direction::Write }
    }

    fn choose_file(&mut self) -> Option<usize> {
        let open = self.files.iter().filter(|file| !file.done).count();
        if open == 0 {
            return None;
        }
        let count = self.files.len();
        let start = match self.job.file_service {
            FileService::RoundRobin => self.turn,
            FileService::Random => self.rng.below(count as u64) as usize,
            FileService::Sequential => 0,
        };
        let number = (start..start + count).map(|n| n % count).find(|&n| !self.files[n].done)?;
        self.turn = (number + 1) % count;
        Some(number)
    }

    /// The size of the next operation: fixed, drawn from a range, or by the shares of a split.
    fn size(&mut self, direction: Direction) -> u64 {
        let split = &self.job.bssplit[direction as usize];
        if !split.is_empty() {
            let mut left = self.sizes.below(100) as u32;
            for &(bytes, percent) in split {
                if left < percent {
                    return bytes;
                }
                left -= percent;
            }
            return split[split.len() - 1].0;
        }
        let (low, high) = self.job.bs[direction as usize];
        if low == high {
            return low;
        }
        let drawn = self.sizes.range(low..high + 1);
        if self.job.bs_unaligned { drawn } else { drawn / low * low }
    }

    /// Offset and length of an operation of `wanted` bytes; `None` at the end of a pass.
    fn place(&mut self, number: usize, direction: Direction, wanted: u64) -> Option<(u64, u64)> {
        let job = self.job.clone();
        let suffix = job.pattern.suffix;
        let start = if !job.pattern.random || !self.is_random(direction) {
            self.sequential(number, direction, wanted)?
        } else if suffix > 1 && !job.identical && !self.files[number].in_row.is_multiple_of(suffix)
        {
            let file = &mut self.files[number];
            file.in_row += 1;
            match self.sequential(number, direction, wanted) {
                Some(start) => start,
                None => self.random(number, direction)?,
            }
        } else {
            self.files[number].in_row += 1;
            self.random(number, direction)?
        };
        let unit = self.unit;
        let file = &mut self.files[number];
        let mut len = wanted.min(file.extent.len - start);
        if let Some(map) = &mut file.map
            && job.pattern.random
            && len > unit
        {
            // The first block was visited by its draw; the operation ends at the next visited one.
            len = unit + unit * map.visit_run(start / unit + 1, (len / unit).saturating_sub(1));
        }
        let skip = if job.pattern.random || job.identical { 0 } else { suffix };
        file.next[direction as usize] = start.saturating_add(len).saturating_add(skip);
        Some((file.extent.offset + start, len))
    }

    fn is_random(&mut self, direction: Direction) -> bool {
        match self.job.percentage_random[direction as usize] {
            100 => true,
            percent => self.mix.below(100) < percent,
        }
    }

    fn sequential(&mut self, number: usize, direction: Direction, wanted: u64) -> Option<u64> {
        let file = &self.files[number];
        let next = file.next[direction as usize];
        // What is left below the smallest size is not touched, as by fio.
        (next.checked_add(self.unit.min(wanted))? <= file.extent.len).then_some(next)
    }

    fn random(&mut self, number: usize, direction: Direction) -> Option<u64> {
        let file = &mut self.files[number];
        let blocks = file.blocks;
        if blocks == 0 {
            return None;
        }
        let block = match (self.job.distribution, &mut file.register) {
            (Distribution::Uniform, Some(register)) => register.next()?,
            (Distribution::Uniform, None) => {
                let drawn = self.generator.below(blocks);
                match &mut file.map {
                    Some(map) => map.visit(drawn)?,
                    None => drawn,
                }
            }
            (Distribution::Zipf(_), _) => {
                let rank = file.zipf.as_ref().map_or(0, |zipf| zipf.draw(&mut self.rng));
                spread(rank, blocks)
            }
            (Distribution::Pareto(power), _) => {
                spread(pareto(blocks, power, &mut self.rng), blocks)
            }
            (Distribution::Normal(percent), _) => normal(blocks, percent, &mut self.rng),
        };
        let start = block * self.unit;
        match self.job.blockalign[direction as usize] {
            0 | 1 => Some(start),
            align => Some(start / align * align),
        }
    }
}

/// Spreads the frequent ranks over the whole file, each rank to a place of its own where the number
/// of blocks and the multiplier have no common factor.
fn spread(rank: u64, blocks: u64) -> u64 {
    let mut multiplier = 0x9e37_79b9_7f4a_7c15 % blocks;
    while multiplier > 1 && gcd(multiplier, blocks) != 1 {
        multiplier -= 1;
    }
    (u128::from(rank) * u128::from(multiplier.max(1)) % u128::from(blocks)) as u64
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::super::keys::apply;
    use super::*;

    fn places(settings: &[(&str, &str)], len: u64, endless: bool) -> JobPlaces {
        let mut job = Job::new();
        for (key, value) in settings {
            apply(&mut job, key, value).expect("a good setting");
        }
        let extents: Vec<Extent> = (0..job.nrfiles).map(|_| Extent { offset: 8192, len }).collect();
        JobPlaces::new(&Arc::new(job), &extents, 7, endless).expect("good places")
    }

    fn all(mut places: JobPlaces) -> Vec<Unit> {
        std::iter::from_fn(|| places.next()).take(100_000).collect()
    }

    #[test]
    fn sequential_places_follow_each_other_and_leave_the_rest() {
        let units = all(places(&[("rw", "read")], 3 * 4096 + 100, false));
        let offsets: Vec<u64> = units.iter().map(|unit| unit.offset).collect();
        assert_eq!(offsets, [8192, 12288, 16384]);
        let skipping = all(places(&[("rw", "write:4k")], 4 * 4096, false));
        let offsets: Vec<u64> = skipping.iter().map(|unit| unit.offset).collect();
        assert_eq!(offsets, [8192, 16384]);
    }

    #[test]
    fn a_random_pass_visits_every_block_once() {
        for generator in ["tausworthe", "tausworthe64", "lfsr"] {
            let settings = [("rw", "randread"), ("random_generator", generator)];
            let mut offsets: Vec<u64> =
                all(places(&settings, 4096 * 1000, false)).iter().map(|u| u.offset).collect();
            let ordered = offsets.is_sorted();
            offsets.sort();
            let expected: Vec<u64> = (0..1000).map(|n| 8192 + n * 4096).collect();
            assert_eq!((offsets, ordered), (expected, false), "{generator}");
        }
    }

    #[test]
    fn ranges_and_splits_stay_inside_and_cover() {
        for sizes in [("bsrange", "4k-16k"), ("bssplit", "4k/50:12k/50")] {
            let units = all(places(&[("rw", "randwrite"), sizes], 4096 * 501, false));
            let covered: u64 = units.iter().map(|unit| unit.len).sum();
            assert_eq!(covered, 4096 * 501, "{sizes:?}");
            assert!(units.iter().all(|unit| unit.offset + unit.len <= 8192 + 4096 * 501));
            assert!(units.iter().any(|unit| unit.len > 4096));
        }
    }

    #[test]
    fn a_mix_keeps_its_share_and_its_places_apart() {
        let units = all(places(&[("rw", "rw"), ("rwmixread", "70")], 4096 * 10_000, false));
        let reads = units.iter().filter(|unit| unit.direction == Direction::Read).count();
        let share = reads as f64 / units.len() as f64;
        assert!((0.68..0.72).contains(&share), "{share}");
        let first_write = units.iter().find(|unit| unit.direction == Direction::Write).unwrap();
        assert_eq!(first_write.offset, 8192);
    }

    #[test]
    fn rows_files_trims_and_endless_passes() {
        let rows = all(places(&[("rw", "randread:4")], 4096 * 400, false));
        let follows = rows.windows(2).filter(|w| w[1].offset == w[0].offset + 4096).count();
        assert!(follows * 2 > rows.len(), "{follows} of {}", rows.len());
        let same = [("rw", "randread:3"), ("rw_sequencer", "identical")];
        let same: Vec<u64> =
            all(places(&same, 4096 * 10, false)).iter().map(|unit| unit.offset).collect();
        assert!(same.len() == 30 && same.chunks(3).all(|three| three[0] == three[2]), "{same:?}");
        let files = all(places(&[("rw", "read"), ("nrfiles", "3")], 8192, false));
        let numbers: Vec<usize> = files.iter().map(|unit| unit.file).collect();
        assert_eq!(numbers, [0, 1, 2, 0, 1, 2]);
        let pairs = all(places(&[("rw", "trimwrite")], 8192, false));
        let directions: Vec<Direction> = pairs.iter().map(|unit| unit.direction).collect();
        use Direction::{Trim, Write};
        assert_eq!(directions, [Trim, Write, Trim, Write]);
        assert_eq!(all(places(&[("rw", "randread")], 8192, true)).len(), 100_000);
        assert_eq!(all(places(&[("rw", "read")], 100, true)).len(), 0);
    }
}
