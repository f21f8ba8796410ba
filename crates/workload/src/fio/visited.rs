//! Which blocks a pass has visited, and the next one that it has not.

/// A bitmap with a summary of its full words above it.
#[derive(Clone, Debug)]
pub struct Visited {
    /// From the blocks themselves up to one word.
    levels: Vec<Vec<u64>>,
    bound: u64,
    left: u64,
}

impl Visited {
    /// No block of `bound` is visited.
    pub fn new(bound: u64) -> Visited {
        let mut levels = Vec::new();
        let mut count = bound;
        loop {
            let words = count.div_ceil(64).max(1);
            let mut level = vec![0u64; words as usize];
            // Bits behind the end count as visited.
            if !count.is_multiple_of(64) || count == 0 {
                level[words as usize - 1] = u64::MAX.checked_shl((count % 64) as u32).unwrap_or(0);
            }
            levels.push(level);
            if words == 1 {
                return Visited { levels, bound, left: bound };
            }
            count = words;
        }
    }

    /// Visits `block`, or the next one behind it (then from the start) that is left; `None` where
    /// none is.
    pub fn visit(&mut self, block: u64) -> Option<u64> {
        if self.left == 0 {
            return None;
        }
        let found = self.next_from(0, block % self.bound).or_else(|| self.next_from(0, 0))?;
        self.mark(found);
        Some(found)
    }

    /// Visits as many of `count` blocks from `block` on as are left in one run, at least one of
    /// which is `block` itself; returns how many.
    pub fn visit_run(&mut self, block: u64, count: u64) -> u64 {
        let mut run = 0;
        while run < count && block + run < self.bound && !self.is_visited(block + run) {
            self.mark(block + run);
            run += 1;
        }
        run
    }

    fn is_visited(&self, block: u64) -> bool {
        self.levels[0][(block / 64) as usize] >> (block % 64) & 1 == 1
    }

    fn mark(&mut self, block: u64) {
        let mut index = block;
        for level in &mut self.levels {
            let word = &mut level[(index / 64) as usize];
            *word |= 1 << (index % 64);
            if *word != u64::MAX {
                break;
            }
            index /= 64;
        }
        self.left -= 1;
    }

    /// The first bit at or behind `from` in a level that is clear.
    fn next_from(&self, level: usize, from: u64) -> Option<u64> {
        let words = self.levels.get(level)?;
        let word = (from / 64) as usize;
        let open = !words.get(word)? & (u64::MAX << (from % 64));
        if open != 0 {
            return Some(word as u64 * 64 + u64::from(open.trailing_zeros()));
        }
        let next = self.next_from(level + 1, word as u64 + 1)?;
        let open = !words.get(next as usize)?;
        (open != 0).then(|| next * 64 + u64::from(open.trailing_zeros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_visited_once() {
        for bound in [1u64, 2, 63, 64, 65, 4096, 4097, 300_000] {
            let mut visited = Visited::new(bound);
            let mut rng = base::Rng::new(bound, 1);
            let mut seen = vec![false; bound as usize];
            for left in (0..bound).rev() {
                let block = visited.visit(rng.below(bound)).unwrap();
                assert!(!std::mem::replace(&mut seen[block as usize], true));
                assert_eq!(visited.left, left);
            }
            assert_eq!(visited.visit(0), None);
        }
    }

    #[test]
    fn a_run_ends_at_what_was_visited() {
        let mut visited = Visited::new(100);
        assert_eq!(visited.visit(10), Some(10));
        assert_eq!(visited.visit_run(7, 8), 3);
        assert_eq!(visited.visit_run(99, 8), 1);
        assert_eq!(visited.visit(7), Some(11));
        assert_eq!(visited.left, 100 - 6);
    }
}
