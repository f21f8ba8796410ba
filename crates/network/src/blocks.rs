//! The blocks of an object in memory: there, or on their way.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::Error;
use crate::streams::Streams;

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 64 << 10;

/// The bytes of a block.
type Bytes = Arc<Vec<u8>>;

/// What is known of the blocks. Behind one lock.
pub(crate) struct Blocks {
    /// Blocks that are there, with their last use.
    there: BTreeMap<u64, (Bytes, u64)>,
    uses: BTreeMap<u64, u64>,
    clock: u64,
    /// Blocks that are being fetched.
    flying: BTreeSet<u64>,
    /// Blocks that somebody waits for and that did not come.
    failed: BTreeMap<u64, Arc<Error>>,
    /// The object changed: nothing is read any more.
    pub broken: Option<Arc<Error>>,
    /// Rows of reads.
    pub streams: Streams,
    capacity: usize,
}

impl Blocks {
    /// At most `bytes` of blocks, and at least a few.
    pub fn new(bytes: u64) -> Blocks {
        Blocks {
            there: BTreeMap::new(),
            uses: BTreeMap::new(),
            clock: 0,
            flying: BTreeSet::new(),
            failed: BTreeMap::new(),
            broken: None,
            streams: Streams::default(),
            capacity: (bytes / BLOCK).max(64) as usize,
        }
    }

    /// A block that is there.
    fn get(&mut self, index: u64) -> Option<Bytes> {
        let (bytes, used) = self.there.get_mut(&index)?;
        self.uses.remove(used);
        self.clock += 1;
        *used = self.clock;
        self.uses.insert(self.clock, index);
        Some(bytes.clone())
    }

    /// Takes those that are there out of the blocks that a reader still waits for.
    ///
    /// # Errors
    /// One of them did not come.
    pub fn take_there(&mut self, left: &mut Vec<u64>) -> Result<Vec<(u64, Bytes)>, Arc<Error>> {
        let mut there = Vec::new();
        left.retain(|&index| match self.get(index) {
            Some(bytes) => {
                there.push((index, bytes));
                false
            }
            None => true,
        });
        match left.iter().find_map(|&index| self.failure(index)) {
            Some(error) => Err(error),
            None => Ok(there),
        }
    }

    /// Why a block did not come; asked once, so that the next reader tries again.
    fn failure(&mut self, index: u64) -> Option<Arc<Error>> {
        self.broken.clone().or_else(|| self.failed.remove(&index))
    }

    /// Whether somebody has to ask for a block.
    fn missing(&self, index: u64) -> bool {
        !self.there.contains_key(&index) && !self.flying.contains(&index)
    }

    /// Takes what is missing of a range for the caller to fetch, in runs of at most `most` blocks.
    pub fn take_missing(&mut self, range: Range<u64>, most: u64) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for index in range {
            if !self.missing(index) {
                continue;
            }
            self.flying.insert(index);
            match runs.last_mut() {
                Some(run) if run.end == index && run.end - run.start < most => run.end += 1,
                _ => runs.push(index..index + 1),
            }
        }
        runs
    }

    /// Blocks that may be fetched ahead without driving each other out.
    pub fn room_ahead(&self) -> u64 {
        (self.capacity / 4).saturating_sub(self.flying.len()) as u64
    }

    /// A block came.
    pub fn put(&mut self, index: u64, bytes: Vec<u8>) {
        self.flying.remove(&index);
        self.clock += 1;
        if let Some((_, used)) = self.there.insert(index, (Arc::new(bytes), self.clock)) {
            self.uses.remove(&used);
        }
        self.uses.insert(self.clock, index);
        while self.there.len() > self.capacity {
            let Some((_, oldest)) = self.uses.pop_first() else { break };
            self.there.remove(&oldest);
        }
    }

    /// A run did not come.
    pub fn fail(&mut self, run: Range<u64>, error: Arc<Error>, wanted: bool) {
        if matches!(*error, Error::Changed { .. }) {
            self.broken = Some(error.clone());
        }
        for index in run {
            self.flying.remove(&index);
            if wanted {
                self.failed.insert(index, error.clone());
            }
        }
    }
}
