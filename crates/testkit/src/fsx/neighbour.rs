//! Who fills the device beside the file, and empties it again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use base::{Errno, Rng};

use crate::content::pattern;

/// Where the neighbour's files lie.
pub trait Ground {
    /// Writes to a file, which is made where it is not there; returns how many bytes were taken.
    ///
    /// # Errors
    /// What the call answers.
    fn write(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<u64, Errno>;

    /// Reads a file from its begin; returns how many bytes it has.
    ///
    /// # Errors
    /// What the call answers.
    fn read(&mut self, name: &str, bytes: &mut [u8]) -> Result<u64, Errno>;

    /// Removes a file; one that was never made may be missing.
    ///
    /// # Errors
    /// What the call answers.
    fn remove(&mut self, name: &str) -> Result<(), Errno>;

    /// Waits a moment.
    fn nap(&mut self);
}

/// Lets the neighbour rest between two steps.
#[derive(Debug, Default)]
pub struct Gate {
    rest: AtomicBool,
    end: AtomicBool,
    /// Begins and ends of steps: odd within one.
    steps: AtomicU64,
}

impl Gate {
    /// Begins and ends of steps, so far.
    fn steps(&self) -> u64 {
        self.steps.load(SeqCst)
    }

    /// The neighbour does nothing when this returns, until [`Gate::open`]; `nap` waits a moment.
    pub fn close(&self, mut nap: impl FnMut()) {
        self.rest.store(true, SeqCst);
        while self.steps() % 2 == 1 {
            nap();
        }
    }

    /// The neighbour goes on.
    pub fn open(&self) {
        self.rest.store(false, SeqCst);
    }

    /// The neighbour is to end.
    pub fn end(&self) {
        self.end.store(true, SeqCst);
    }

    /// Begins a step, unless it is closed.
    fn enter(&self) -> bool {
        self.steps.fetch_add(1, SeqCst);
        let closed = self.rest.load(SeqCst);
        if closed {
            self.steps.fetch_sub(1, SeqCst);
        }
        !closed
    }

    fn leave(&self) {
        self.steps.fetch_add(1, SeqCst);
    }
}

struct File {
    number: u64,
    size: u64,
}

/// Fills the device with files, stays a while, removes some of them, and begins again.
pub struct Neighbour {
    rng: Rng,
    /// Bytes that it has at the most; where that is below what is free it is never refused.
    budget: u64,
    files: Vec<File>,
    made: u64,
    /// Steps that are still to be rested, full.
    stays: u64,
    /// How often it was refused.
    pub full: u64,
}

/// Bytes of a file, about.
const FILE_SIZE: u64 = 300_000;

impl Neighbour {
    /// A neighbour with at most `budget` bytes.
    pub fn new(seed: u64, budget: u64) -> Neighbour {
        let rng = Rng::new(seed, 71);
        Neighbour { rng, budget, files: Vec::new(), made: 0, stays: 0, full: 0 }
    }

    /// Works until the gate ends it; returns how often it was refused.
    ///
    /// # Errors
    /// An answer other than `ENOSPC`, or content that is not its own.
    pub fn live(mut self, ground: &mut dyn Ground, gate: &Gate) -> Result<u64, String> {
        while !gate.end.load(SeqCst) {
            if gate.enter() {
                let step = self.step(ground);
                gate.leave();
                step.map_err(|message| format!("the neighbour: {message}"))?;
            }
            ground.nap();
        }
        Ok(self.full)
    }

    fn step(&mut self, ground: &mut dyn Ground) -> Result<(), String> {
        if self.stays > 0 {
            self.stays -= 1;
            return if self.stays == 0 { self.empty(ground) } else { Ok(()) };
        }
        let all: u64 = self.files.iter().map(|file| file.size).sum();
        if self.files.last().is_none_or(|file| file.size >= FILE_SIZE) {
            self.made += 1;
            self.files.push(File { number: 1 << 20 | self.made, size: 0 });
        }
        let file = self.files.last_mut().expect("one was just made");
        let mut bytes = vec![0; 1 + self.rng.below(64 << 10) as usize];
        pattern(file.number, file.size, &mut bytes);
        let taken = match ground.write(&format!("n{}", file.number), file.size, &bytes) {
            Ok(count) => count,
            Err(Errno::ENOSPC) => 0,
            Err(errno) => return Err(format!("a write: {errno}")),
        };
        file.size += taken;
        let refused = taken < bytes.len() as u64;
        self.full += u64::from(refused);
        if refused || all + taken > self.budget {
            self.stays = 1 + self.rng.below(40);
        }
        Ok(())
    }

    /// Removes some of the files, or all, and looks at some of them before.
    fn empty(&mut self, ground: &mut dyn Ground) -> Result<(), String> {
        let keep = self.rng.below(self.files.len() as u64) as usize;
        self.rng.shuffle(&mut self.files);
        for file in self.files.split_off(keep) {
            let name = format!("n{}", file.number);
            if self.rng.chance(0.3) && file.size > 0 {
                let mut expected = vec![0; file.size as usize];
                pattern(file.number, 0, &mut expected);
                let mut found = vec![0; expected.len() + 1];
                let count = ground.read(&name, &mut found).map_err(|e| format!("{name}: {e}"))?;
                super::model::same(&found[..count as usize], &expected)
                    .map_err(|message| format!("{name}: {message}"))?;
            }
            ground.remove(&name).map_err(|errno| format!("{name} cannot be removed: {errno}"))?;
        }
        Ok(())
    }
}
